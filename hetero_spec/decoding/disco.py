# SPDX-License-Identifier: Apache-2.0
"""DISCO: a small classifier decides after each drafted token whether to draft on or to verify.

It is trained by `hetero-spec calibrate lookahead` (see `disco_training.py`) and kept as a JSON file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetero_spec.decoding.lookahead import NUM_TOP_PROBS, DraftedToken, FixedLookahead
from hetero_spec.decoding.protocols import Drafter
from hetero_spec.files import write_whole

SHIPPED_CLASSIFIER = Path(__file__).parent / "classifiers" / "smollm2-embedded.json"
FORMAT = "hetero_spec disco 1"
NUM_FEATURES = NUM_TOP_PROBS + 3
# Probabilities below this are all the same to the classifier.
_LEAST_PROB = 1e-6

Array = npt.NDArray[np.float64]


def features_of(drafted: DraftedToken) -> Array:
    """Return what the classifier looks at, float64 [NUM_FEATURES].

    In this order: logarithms of the token's probability and of the NUM_TOP_PROBS largest ones; the entropy in nats of
    these and the rest taken as one; the token's place in the draft. The entropy is not `drafted.entropy`, which a
    greedy law has none of.
    """
    top = np.zeros(NUM_TOP_PROBS)
    given = drafted.top_probs[:NUM_TOP_PROBS]
    top[: len(given)] = given
    outcomes = np.append(top, max(0.0, 1.0 - float(top.sum())))
    outcomes = outcomes[outcomes > 0.0]
    entropy = -float((outcomes * np.log(outcomes)).sum())
    logs = np.log(np.maximum(np.append(drafted.prob, top), _LEAST_PROB))
    return np.concatenate([logs, [entropy, float(drafted.depth)]])


@dataclass(frozen=True)
class DiscoClassifier:
    """How likely a drafted token is accepted, given that those before it were.

    One hidden layer: sigmoid(output_weights . tanh(hidden_weights @ features + hidden_biases) + output_bias).

    Attributes
    ----------
    hidden_weights, hidden_biases : float64 [H, NUM_FEATURES], [H]
    output_weights : float64 [H]
    output_bias : float
    """

    hidden_weights: Array
    hidden_biases: Array
    output_weights: Array
    output_bias: float

    def __call__(self, features: Array) -> Array:
        """Return the probabilities of acceptance, float64 [...], of features [..., NUM_FEATURES]."""
        hidden = np.tanh(features @ self.hidden_weights.T + self.hidden_biases)
        logits = hidden @ self.output_weights + self.output_bias
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)))  # a sigmoid that cannot overflow


class DiscoLookahead(FixedLookahead):
    """Draft while the whole draft so far is likely enough to be accepted, as a classifier sees it.

    The product of the classifier's probabilities over a draft's tokens is how likely the draft is accepted whole.
    Drafting goes on while it is at least the threshold; the token that brings it below stays in the draft.

    Parameters
    ----------
    classifier : DiscoClassifier
    threshold : float
        In [0, 1]. 0 never stops early.
    max_draft_tokens : int
        Length at which every draft ends, at least 1.
    made_for : dict, optional
        What the classifier's file says about the models it was trained with: "target" and "drafter", their names, and
        "target_tokenizer_sha256" and "drafter_tokenizer_sha256". Without the latter two any pair may use it.

    Notes
    -----
    Other models with the same tokenizers may use a classifier too, only less well: no policy can change what the target
    says. For other tokenizers `check_pair` refuses it.

    Source
    ------
    Mamou et al. 2024, arXiv 2405.04304: a classifier on the ten largest probabilities, the entropy and the place in
    the draft, and a threshold swept on held-out text. The token's own probability and the product over the draft are
    ours.
    """

    needs_prob = True
    needs_top_probs = True

    def __init__(
        self,
        classifier: DiscoClassifier,
        threshold: float,
        max_draft_tokens: int,
        made_for: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(max_draft_tokens)
        if max_draft_tokens < 1:
            raise ValueError(f"lookahead: max_draft_tokens must be at least 1, got {max_draft_tokens}")
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"lookahead: threshold must be in [0, 1], got {threshold}")
        self.classifier = classifier
        self.threshold = threshold
        self.made_for = dict(made_for or {})
        self._probs: dict[int, float] = {}

    def check_pair(self, drafter: Drafter) -> None:
        """Refuse a pair whose tokenizers are not those that the classifier was trained with, as far as both are known.

        Parameters
        ----------
        drafter : Drafter
            With a `vocab_map`, or (a pruned model) with `target_sha256` and `drafter_sha256`.

        Raises
        ------
        VocabMismatchError   a ValueError: it was made for another target's or another drafter's tokenizer
        """
        from hetero_spec.vocab import VocabMismatchError

        vocab_map = getattr(drafter, "vocab_map", None)
        for side in ("target", "drafter"):
            made_for = self.made_for.get(f"{side}_tokenizer_sha256")
            given = getattr(getattr(vocab_map, side, None), "sha256", None) or getattr(drafter, f"{side}_sha256", None)
            if made_for is not None and given is not None and made_for != given:
                names = [str(self.made_for.get(name, "a model without a name")) for name in ("target", "drafter")]
                raise VocabMismatchError(
                    f"SpeculativeDecoder: lookahead must be a classifier made for the {side}'s tokenizer "
                    f"(sha256 {given[:12]}), got one for {made_for[:12]}, of {' <- '.join(names)}; "
                    "`hetero-spec calibrate lookahead` makes one for a pair"
                )

    def begin(self, num_requests: int) -> None:
        """Forget the drafts of an earlier batch."""
        self._probs = {}

    def wants_more(self, drafted: DraftedToken) -> bool:
        """Return whether the draft, the token just drafted included, is likely enough to be accepted whole."""
        before = self._probs.get(drafted.request, 1.0) if drafted.depth else 1.0
        prob = before * float(self.classifier(features_of(drafted)))
        self._probs[drafted.request] = prob
        return prob >= self.threshold

    def save(self, path: str | os.PathLike[str], report: dict[str, Any] | None = None) -> None:
        """Write classifier, threshold and length, whole or not at all.

        Parameters
        ----------
        path : path
        report : dict, optional
            How it was trained; for readers, and not read again.
        """
        parts = self.classifier
        content = {
            "format": FORMAT,
            "made_for": self.made_for,
            "threshold": self.threshold,
            "max_draft_tokens": self.max_draft_tokens,
            "num_top_probs": NUM_TOP_PROBS,
            "hidden_weights": parts.hidden_weights.tolist(),
            "hidden_biases": parts.hidden_biases.tolist(),
            "output_weights": parts.output_weights.tolist(),
            "output_bias": float(parts.output_bias),
            "report": report or {},
        }
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
        write_whole(path, f"{{\n{lines}\n}}\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DiscoLookahead:
        """Read a classifier's file.

        Raises
        ------
        OSError      it cannot be read
        ValueError   it is no such file
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(content, dict) or content.get("format") != FORMAT:
                raise ValueError(f"format must be {FORMAT!r}")
            hidden_weights, hidden_biases, output_weights, output_bias = (
                np.asarray(content[name], dtype=np.float64)
                for name in ("hidden_weights", "hidden_biases", "output_weights", "output_bias")
            )
            num_hidden = len(hidden_biases)
            _check_shapes(
                (hidden_weights, (num_hidden, NUM_FEATURES)),
                (hidden_biases, (num_hidden,)),
                (output_weights, (num_hidden,)),
                (output_bias, ()),
            )
            classifier = DiscoClassifier(hidden_weights, hidden_biases, output_weights, float(output_bias))
            made_for = content["made_for"]
            return cls(classifier, float(content["threshold"]), int(content["max_draft_tokens"]), made_for)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"lookahead: {os.fspath(path)} must be a classifier's file ({reason})") from error


def _check_shapes(*arrays: tuple[Array, Sequence[int]]) -> None:
    for array, shape in arrays:
        if array.shape != tuple(shape) or not all(math.isfinite(value) for value in array.flat):
            raise ValueError(f"weights must be finite and of shape {tuple(shape)}, got {array.shape}")
