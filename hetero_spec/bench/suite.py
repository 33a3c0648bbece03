# SPDX-License-Identifier: Apache-2.0
"""What a bench run consists of: pairs, contestants, prompts, temperatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hetero_spec.bench.prompts import KINDS, BenchPrompt, prompts_of

# Methods that have no lookahead, or need none: "auto" takes it as the largest.
_WITHOUT_LOOKAHEAD = ("none", "auto")


@dataclass(frozen=True)
class Contestant:
    """A method with a lookahead, written as "tli:4", "slem:disco" or "auto".

    Attributes
    ----------
    method : str
        Of `SpeculativeDecoder`.
    lookahead : int, str or None
        As `SpeculativeDecoder` takes it, or "oracle", which knows plain decoding's text in advance and is verified by
        exact match. None for methods that choose for themselves.
    """

    method: str
    lookahead: int | str | None = None

    @property
    def name(self) -> str:
        """The form in which it is written."""
        return self.method if self.lookahead is None else f"{self.method}:{self.lookahead}"

    @property
    def is_fixed(self) -> bool:
        """Whether method and length are settled beforehand, without knowing the text."""
        return self.method == "none" or (self.method != "auto" and isinstance(self.lookahead, int))

    @classmethod
    def parse(cls, text: str, methods: Sequence[str]) -> Contestant:
        """Read the form in which it is written.

        Raises
        ------
        ValueError   an unknown method, or a lookahead that is missing or not wanted
        """
        method, colon, lookahead = text.partition(":")
        if method not in methods:
            raise ValueError(f"contestant: method must be one of {', '.join(methods)}, got {text!r}")
        is_missing = not lookahead if colon else method not in _WITHOUT_LOOKAHEAD
        if is_missing or (colon and method == "none"):
            expected = method if method == "none" else f"{method}:LOOKAHEAD"
            raise ValueError(f"contestant: must be written {expected}, got {text!r}")
        if not colon:
            return cls(method)
        return cls(method, int(lookahead) if lookahead.isdecimal() else lookahead)


@dataclass(frozen=True)
class Suite:
    """Everything that decides what is measured.

    Attributes
    ----------
    pairs : tuple of (target, drafter)
        Names or folders, as `hetero_spec.models.load` takes them.
    contestants : tuple of str
        See `Contestant`.
    kinds : tuple of str
        Of prompts.
    prompts_per_kind : int
    temperatures : tuple of float
    num_repeats : int
        Of each cell; medians are reported.
    max_new_tokens : int
    seed : int
        Of every run.
    """

    pairs: tuple[tuple[str, str], ...]
    contestants: tuple[str, ...]
    kinds: tuple[str, ...]
    prompts_per_kind: int
    temperatures: tuple[float, ...]
    num_repeats: int
    max_new_tokens: int
    seed: int = 1

    def __post_init__(self) -> None:
        """Check what needs no model."""
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"kinds must be among {', '.join(KINDS)}, got {kind!r}")
        for name in ("prompts_per_kind", "num_repeats", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("pairs", "contestants", "kinds", "temperatures"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be at least one, each once, got {', '.join(map(str, values)) or 'none'}")
        for temperature in self.temperatures:
            if not 0.0 <= temperature < float("inf"):
                raise ValueError(f"temperatures must be finite and at least 0, got {temperature}")

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON gives it back."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


QUICK = Suite(
    pairs=(("smollm2", "embedded"),),
    contestants=("tli:2", "tli:4", "tli:disco", "slem:2", "ngram:4", "auto"),
    kinds=("chat", "summary", "code"),
    prompts_per_kind=1,
    temperatures=(0.0, 0.7),
    num_repeats=5,
    max_new_tokens=64,
)
FULL = Suite(
    pairs=(("smollm2", "embedded"), ("gemma3-270m", "smollm2"), ("gemma3-270m", "embedded")),
    contestants=(
        *("tli:1", "tli:2", "tli:4", "tli:8", "tli:confidence", "tli:heuristic", "tli:disco", "tli:oracle"),
        *("slem:2", "slem:4", "slem:confidence", "ngram:4", "auto", "none"),
    ),
    kinds=KINDS,
    prompts_per_kind=3,
    temperatures=(0.0, 0.7),
    num_repeats=3,
    max_new_tokens=64,
)
SUITES = {"quick": QUICK, "full": FULL}


@dataclass(frozen=True)
class Cell:
    """One pair, temperature and prompt, on which all contestants take turns with plain decoding."""

    target: str
    drafter: str
    temperature: float
    prompt: BenchPrompt

    @property
    def key(self) -> str:
        """Unique in a suite."""
        return f"{self.target} <- {self.drafter}, T {self.temperature:g}, {self.prompt.kind}/{self.prompt.name}"


def cells_of(suite: Suite) -> tuple[list[Cell], list[str]]:
    """Return a suite's cells in the order in which they run, and what is left out for want of a package or a prompt."""
    prompts, left_out = [], []
    for kind in suite.kinds:
        try:
            of_kind = prompts_of(kind, suite.prompts_per_kind)
        except ModuleNotFoundError as error:
            left_out.append(str(error))
            continue
        prompts += of_kind
        if len(of_kind) < suite.prompts_per_kind:
            left_out.append(f"{kind}: {suite.prompts_per_kind} prompts were asked for, there are {len(of_kind)}")
    return list(_product(suite, prompts)), left_out


def _product(suite: Suite, prompts: Sequence[BenchPrompt]) -> Iterator[Cell]:
    for target, drafter in suite.pairs:
        for temperature in suite.temperatures:
            for prompt in prompts:
                yield Cell(target, drafter, temperature, prompt)
