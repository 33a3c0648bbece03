# SPDX-License-Identifier: Apache-2.0
"""Methods by name: what makes the proposers of each, and what each needs."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from hetero_spec.decoding.controller import Controller, size_ratio
from hetero_spec.decoding.lookahead import Lookahead
from hetero_spec.decoding.proposers import ModelProposer, ProposerFactory
from hetero_spec.decoding.protocols import Drafter, Target

METHODS = ("tli", "rdk", "slem", "slrs", "ngram", "cascade", "auto", "none")
VERIFICATIONS = ("rejection", "exact")
RULES = ("token", "block")
# Drafts of these come without a law, so that matching the target's own draw loses nothing.
_EXACT_BY_DEFAULT = ("slem", "ngram")
WITH_RDK_KERNEL = ("rdk", "auto")
_WITHOUT_DRAFTER = ("ngram", "cascade", "auto", "none")


def check_method(method: str, drafter: Any, middle: Any, rdk_kernel: Any, rule: str, verify: str | None) -> str:
    """Check that the arguments of a decoder fit together; return how it verifies.

    Raises
    ------
    ValueError   they do not
    """
    what = "SpeculativeDecoder:"
    if method not in METHODS:
        raise ValueError(f"{what} method must be one of {', '.join(METHODS)}, got {method!r}")
    if rule not in RULES:
        raise ValueError(f"{what} rule must be one of {', '.join(RULES)}, got {rule!r}")
    if verify is None:
        verify = "exact" if method in _EXACT_BY_DEFAULT and rule == "token" else "rejection"
    if verify not in VERIFICATIONS:
        raise ValueError(f"{what} verify must be one of {', '.join(VERIFICATIONS)}, got {verify!r}")
    if method == "slrs" and rule != "token":
        raise ValueError(f"{what} rule must be 'token' for method 'slrs', got {rule!r}")
    if rule != "token" and verify == "exact":
        raise ValueError(f"{what} rule must be 'token' where verification is exact, got {rule!r}")
    if drafter is None and method not in _WITHOUT_DRAFTER:
        raise ValueError(f"{what} drafter must be given for method {method!r}, got None")
    if (middle is not None) != (method == "cascade"):
        state = "given for" if method == "cascade" else "None without"
        raise ValueError(f"{what} middle must be {state} method 'cascade', got {type(middle).__name__}")
    if method == "rdk" and rdk_kernel is None:
        raise ValueError(f"{what} rdk_kernel must be a kernel or the path of one for method 'rdk', got None")
    if rdk_kernel is not None and method not in WITH_RDK_KERNEL:
        raise ValueError(f"{what} rdk_kernel must be None for method {method!r}, got {type(rdk_kernel).__name__}")
    return verify


def load_rdk_kernel(rdk_kernel: Any, target: Target, drafter: Drafter) -> tuple[Any, str | None]:
    """Return a kernel that fits the pair, and None; or None and the reason why decoding falls back to plain TLI.

    Parameters
    ----------
    rdk_kernel : Kernel or path
        A kernel whose `calibration` names a reason under "fallback" is not used.
    target, drafter : Target, Drafter

    Raises
    ------
    ValueError   the kernel is of another width, or was made for other tokenizers
    OSError      the file cannot be read
    """
    if isinstance(rdk_kernel, str | os.PathLike):
        from hetero_spec.rdk import load_kernel

        rdk_kernel = load_kernel(rdk_kernel)
    for attribute in ("vocab_size", "tensors"):
        if not hasattr(rdk_kernel, attribute):
            raise TypeError(
                f"SpeculativeDecoder: rdk_kernel must be a kernel of hetero_spec.rdk or the path of one, "
                f"got {type(rdk_kernel).__name__}"
            )
    if rdk_kernel.vocab_size != target.vocab_size:
        raise ValueError(
            f"SpeculativeDecoder: rdk_kernel must be {target.vocab_size} ids wide, as the target is, "
            f"got {rdk_kernel.vocab_size}"
        )
    vocab_map = getattr(drafter, "vocab_map", None)
    for side, own in (("target", "target_sha256"), ("drafter", "drafter_sha256")):
        made_for = getattr(rdk_kernel, own, None)
        # A pruned drafter has no map of its whole vocabulary, but knows what it was made from.
        given = getattr(getattr(vocab_map, side, None), "sha256", None) or getattr(drafter, own, None)
        if made_for is not None and given is not None and made_for != given:
            raise ValueError(
                f"SpeculativeDecoder: rdk_kernel must be made for the {side}'s tokenizer (sha256 {given[:12]}), "
                f"got one for {made_for[:12]}"
            )
    reason = getattr(rdk_kernel, "calibration", {}).get("fallback")
    return (None, str(reason)) if reason else (rdk_kernel, None)


def note_on_kernel(kernel: Any, drafter: Drafter) -> str | None:
    """Return what a user should know about a kernel that was fitted for another set of kept tokens."""
    fitted = getattr(kernel, "calibration", {}).get("num_kept_tokens")
    given = int((drafter.draft_to_target_ids >= 0).sum())
    if fitted is None or fitted == given:
        return None
    return (
        f"The RDK kernel was fitted for a drafter with {fitted} of the target's tokens, this one has {given}: "
        "the output is right all the same, but more may be accepted with a kernel of its own."
    )


def methods_for(target: Target, drafter: Drafter | None, kernel: Any) -> tuple[str, ...]:
    """Return what "auto" may choose from for a pair, the likeliest first."""
    if drafter is None:
        return ("ngram",)
    methods = ["tli", "ngram"] if kernel is None else ["tli", "rdk", "ngram"]
    from hetero_spec.decoding.slem import bridge_of

    try:
        bridge_of(drafter, "slem")
    except (TypeError, ValueError):  # its vocabularies cannot encode
        return tuple(methods)
    return (*methods, "slem")


def step_ratio(target: Target, drafter: Drafter) -> float | None:
    """Return about how many of the target's steps one of the drafter's takes, by the sizes of the models.

    None where they are no transformers models. Only where "auto" begins to measure.
    """
    sizes = [_num_weights(getattr(side, "model", None)) for side in (drafter, target)]
    return None if sizes[0] is None or sizes[1] is None else size_ratio(sizes[0], sizes[1])


def _num_weights(model: Any) -> float | None:
    """Return the weights that a step of a decoder-only model reads, roughly."""
    try:
        config = model.config.get_text_config()
        layer = 4 * config.hidden_size**2 + 3 * config.hidden_size * config.intermediate_size
        return float(config.num_hidden_layers * layer + config.vocab_size * config.hidden_size)
    except AttributeError:
        return None


def proposer_factory(
    method: str,
    *,
    kernel: Any = None,
    inner_drafter: Drafter | None = None,
    inner_lookahead: Lookahead | None = None,
    controller: Controller | None = None,
) -> ProposerFactory | None:
    """Return what makes a method's proposers; None for plain decoding. Modules it does not need are not loaded.

    Parameters
    ----------
    method : str
        One of METHODS.
    kernel : RDK kernel, optional
        For "rdk" (None: it falls back to TLI) and "auto" (None: it does without).
    inner_drafter, inner_lookahead : Drafter, Lookahead, optional
        For "cascade": the middle model's drafter (None: n-grams) and how much it drafts.
    controller : Controller, optional
        For "auto": what it has learnt so far.
    """
    if method in ("tli", "rdk"):
        return partial(ModelProposer, kernel=kernel)
    if method == "slem":
        from hetero_spec.decoding.slem import SlemProposer

        return SlemProposer
    if method == "slrs":
        from hetero_spec.decoding.slrs import SlrsProposer

        return SlrsProposer
    if method == "ngram":
        from hetero_spec.decoding.ngram import NgramProposer

        return NgramProposer
    if method == "cascade":
        from hetero_spec.decoding.cascade import CascadeProposer
        from hetero_spec.decoding.ngram import NgramProposer

        return partial(
            CascadeProposer,
            make_inner=NgramProposer if inner_drafter is None else ModelProposer,
            inner_drafter=inner_drafter,
            inner_lookahead=inner_lookahead,
        )
    if method == "auto":
        from hetero_spec.decoding.auto import AutoProposer

        assert controller is not None
        factories = {}
        for name in controller.methods:
            factory = proposer_factory(name, kernel=kernel if name == "rdk" else None)
            assert factory is not None
            factories[name] = factory
        return partial(AutoProposer, controller=controller, factories=factories)
    return None
