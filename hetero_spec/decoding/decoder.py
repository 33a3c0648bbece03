# SPDX-License-Identifier: Apache-2.0
"""`SpeculativeDecoder`: from prompts to text, losslessly, with a drafter whose tokenizer may be another one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, overload

from hetero_spec.decoding.cascade import MiddleTarget
from hetero_spec.decoding.controller import Controller
from hetero_spec.decoding.disco import DiscoLookahead
from hetero_spec.decoding.lookahead import Lookahead, as_lookahead
from hetero_spec.decoding.loop import Batch, Piece, run
from hetero_spec.decoding.methods import (
    check_method,
    load_rdk_kernel,
    methods_for,
    note_on_kernel,
    proposer_factory,
    step_ratio,
)
from hetero_spec.decoding.protocols import Drafter, Target
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import Sampling
from hetero_spec.decoding.stats import DecodingStats, RequestStats
from hetero_spec.decoding.text import TextStream

Prompt = str | Sequence[int]


@dataclass(frozen=True)
class Generation:
    """What one prompt became.

    Attributes
    ----------
    text : str
        Without special tokens, and without the stop string that ended it.
    token_ids : tuple of int
        Every emitted target token, an end-of-text token and the tokens of a stop string included.
    finish_reason : str
        "eos", "stop", "length" or "error"; see `Piece`.
    stats : RequestStats
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stats: RequestStats


class SpeculativeDecoder:
    """Decodes with a target, helped by a drafter; the output follows the target's law exactly.

    Parameters
    ----------
    target : LoadedModel, (model, tokenizer), or Target
        Of hetero_spec.models, of transformers, or anything that satisfies the protocol.
    drafter : LoadedModel, PrunedModel, (model, tokenizer), or Drafter; None for methods "ngram" and "none"
    method : str
        ============  ==============================================================================================
        "tli"         token-level intersection (Timor et al. 2502.05202): the drafter's law restricted to the tokens
                      both vocabularies have and renormalised
        "rdk"         the same, spread over the target's whole vocabulary by a redistribution kernel (2506.03206)
        "slem"        string-level exact match (2502.05202): drafts cross as text
        "slrs"        string-level rejection sampling (2502.05202): the same with the law of the text
        "ngram"       what followed the last few tokens earlier in the text; no drafter
        "cascade"     drafts from a middle model, which the drafter (or n-grams, without one) helps in turn
        "auto"        method and length with the most tokens per second, by running measurements; plain decoding
                      where drafting does not pay. Among tli, rdk with `rdk_kernel`, slem, and ngram
        "none"        plain decoding
        ============  ==============================================================================================
    lookahead : int, str, path or Lookahead
        Draft length, or for "auto" the largest; see `hetero_spec.decoding.lookahead`.
    vocab_map : VocabMap, optional
        Default: made from both tokenizers, and to be made from these very ones. Not for a drafter that brings its own
        map (a `Drafter`).
    rule : "token" or "block"
        Rule of rejection: Leviathan et al. 2211.17192, or Sun et al. 2403.10444, which accepts at least as many. Not
        for "slrs", which has its own.
    verify : "rejection" or "exact", optional
        "rejection" tests each draft token with the law that it was drawn from. "exact" is reproducible decoding: the
        target draws every token itself, and a draft is kept while it says the same. With a seed the emitted tokens are
        then those of plain seeded decoding, whatever the drafter, its method and its lookahead (up to float rounding
        between a pass over one token and a pass over several). At temperature 0 both come to the same; above it fewer
        drafts match than rejection sampling would accept. Default: "exact" for "slem" and "ngram", whose drafts have
        no law to lose, else "rejection".
    rdk_kernel : kernel of hetero_spec.rdk, or path
        For "rdk", and for "auto" if there is one. A kernel whose calibration found no gain is left out; `stats.notes`
        says so.
    middle : LoadedModel, (model, tokenizer), or Drafter
        For "cascade": the model that drafts for the target. The drafter's tokens are then read as the middle model's.
    controller : Controller, optional
        For "auto": what decides, with all it has learnt so far. Default: a new one, which learns from one text to the
        next for as long as the decoder lives.

    Attributes
    ----------
    controller : Controller or None
        Of "auto".
    stats : DecodingStats
        Of the latest `stream` or `generate`; it grows while pieces are read.

    Raises
    ------
    VocabMismatchError    a ValueError: the map, or the lookahead's classifier, was made for another tokenizer than the
                          target's or the drafter's
    ValueError            anything else that cannot be: unknown method, empty intersection, a model without rollback
    """

    def __init__(
        self,
        target: Any,
        drafter: Any = None,
        method: str = "tli",
        lookahead: int | str | Lookahead = 4,
        vocab_map: Any = None,
        *,
        rule: str = "token",
        verify: str | None = None,
        rdk_kernel: Any = None,
        middle: Any = None,
        controller: Controller | None = None,
    ) -> None:
        self.verify = check_method(method, drafter, middle, rdk_kernel, rule, verify)
        self.method = method
        self.rule = rule
        self.lookahead = as_lookahead(lookahead)
        self.target: Target
        self.drafter: Drafter | None = None
        inner_drafter: Drafter | None = None
        if method == "cascade":
            self.target, self.drafter = _as_pair(target, middle, vocab_map)
            inner_drafter = None if drafter is None else _as_inner_drafter(self.drafter, drafter)
        elif method in ("none", "ngram") or drafter is None:
            self.target = _as_target(target, vocab_map)
        else:
            self.target, self.drafter = _as_pair(target, drafter, vocab_map)
        if method in ("slem", "slrs") and self.drafter is not None:
            from hetero_spec.decoding.slem import bridge_of

            bridge_of(self.drafter, f"SpeculativeDecoder: method {method}")
        if isinstance(self.lookahead, DiscoLookahead) and self.drafter is not None:
            self.lookahead.check_pair(self.drafter)
        kernel = None
        self._notes: list[str] = []
        if rdk_kernel is not None and self.drafter is not None:
            kernel, reason = load_rdk_kernel(rdk_kernel, self.target, self.drafter)
            if reason is not None:
                self._notes.append(f"The RDK kernel is not used, drafts are plain TLI: {reason}")
            elif (note := note_on_kernel(kernel, self.drafter)) is not None:
                self._notes.append(note)
        self.controller: Controller | None = None
        if method == "auto":
            methods = methods_for(self.target, self.drafter, kernel)
            ratio = None if self.drafter is None else step_ratio(self.target, self.drafter)
            ratios = {} if ratio is None else dict.fromkeys(set(methods) - {"ngram"}, ratio)
            self.controller = Controller(methods, ratios) if controller is None else controller
        self._make_proposer = proposer_factory(
            method, kernel=kernel, inner_drafter=inner_drafter, controller=self.controller
        )
        self.stats = DecodingStats()

    @overload
    def stream(self, prompt: Prompt, **arguments: Any) -> Iterator[str]: ...

    @overload
    def stream(self, prompt: Sequence[Prompt], **arguments: Any) -> Iterator[Piece]: ...

    def stream(self, prompt: Prompt | Sequence[Prompt], **arguments: Any) -> Iterator[str] | Iterator[Piece]:
        """Decode, yielding text as soon as it is certain.

        Parameters
        ----------
        prompt : str, token ids (a sequence, array or tensor), or a sequence of either
            One prompt yields its text as str. Several are decoded as one batch and yield `Piece` objects, each naming
            its request; each request's last piece has a finish_reason.
        **arguments
            Those of `pieces`.
        """
        is_single, prompts = _as_prompts(prompt)
        pieces = self.pieces(prompts, **arguments)
        return (piece.text for piece in pieces if piece.text) if is_single else pieces

    @overload
    def generate(self, prompt: Prompt, **arguments: Any) -> Generation: ...

    @overload
    def generate(self, prompt: Sequence[Prompt], **arguments: Any) -> list[Generation]: ...

    def generate(self, prompt: Prompt | Sequence[Prompt], **arguments: Any) -> Generation | list[Generation]:
        """Decode to the end; one `Generation` per prompt. Arguments as for `stream`."""
        is_single, prompts = _as_prompts(prompt)
        texts, reasons = [""] * len(prompts), [""] * len(prompts)
        token_ids: list[tuple[int, ...]] = [()] * len(prompts)
        for piece in self.pieces(prompts, **arguments):
            texts[piece.request] += piece.text
            token_ids[piece.request] += piece.token_ids
            reasons[piece.request] = piece.finish_reason or ""
        results = [Generation(*parts) for parts in zip(texts, token_ids, reasons, self.stats.requests, strict=True)]
        return results[0] if is_single else results

    def pieces(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int = 128,
        temperature: float | Sequence[float] = 1.0,
        top_k: int | None | Sequence[int | None] = None,
        top_p: float | None | Sequence[float | None] = None,
        min_p: float | None | Sequence[float | None] = None,
        seed: int | None | Sequence[int | None] = None,
        stop: str | Sequence[str] = (),
        draft_sampling: Sampling | None = None,
    ) -> Iterator[Piece]:
        """Decode a batch of prompts, yielding a piece per request and round.

        Parameters
        ----------
        prompts : sequence of str or of token ids
            A str is encoded by the target's tokenizer, with the BOS that it puts in front.
        max_new_tokens : int
            At least 1; every request ends there at the latest.
        temperature, top_k, top_p, min_p : scalar, or one value per prompt
            The target's law; see `Sampling`. None is off.
        seed : int, None, or one of them per prompt
            A request's random numbers come from its seed and its own positions only, so an int gives every prompt
            what it would get alone with that seed. None takes fresh entropy.
        stop : str or strings
            Each ends a text and is left out of it.
        draft_sampling : Sampling, optional
            The drafter's own parameters; any choice is lossless. Default: the request's own, temperature and truncation
            alike, since a draft that the target's top-k or top-p has cut off is always rejected; greedy with exact
            verification, where what counts is how likely the target is to say the same.

        Raises
        ------
        ValueError, TypeError
            Before any work: an empty or over-long prompt, a parameter out of range, a wrong number of values; what is
            neither text nor whole numbers where these are wanted.
        """
        if isinstance(prompts, str | bytes):
            raise TypeError(f"generate: prompts must be a sequence of prompts, got {type(prompts).__name__}")
        count = len(prompts)
        _check_whole("max_new_tokens", max_new_tokens)
        if max_new_tokens < 1:
            raise ValueError(f"generate: max_new_tokens must be at least 1, got {max_new_tokens}")
        samplings = [
            Sampling(*values)
            for values in zip(
                _per_prompt("temperature", temperature, count, 1.0),
                _per_prompt("top_k", top_k, count, 0),
                _per_prompt("top_p", top_p, count, 1.0),
                _per_prompt("min_p", min_p, count, 0.0),
                strict=True,
            )
        ]
        stops = _as_stops(stop)
        seeds = _per_prompt("seed", seed, count, None)
        for value in seeds:
            if value is not None:
                _check_whole("seed", value)
        requests = []
        for index, prompt in enumerate(prompts):
            ids = list(self.target.encode(prompt)) if isinstance(prompt, str) else _as_token_ids(prompt)
            self._check_prompt(ids, max_new_tokens)
            request_seed = seeds[index]
            requests.append(
                Request(
                    index,
                    ids,
                    secrets.randbits(63) if request_seed is None else _as_int64(request_seed),
                    samplings[index],
                    self._draft_sampling(samplings[index]) if draft_sampling is None else draft_sampling,
                    TextStream(self.target.token_bytes, stops),
                    int(max_new_tokens),
                )
            )
        self.stats = DecodingStats(
            prompt_tokens=sum(len(request.prompt) for request in requests),
            requests=[RequestStats(prompt_tokens=len(request.prompt)) for request in requests],
            notes=list(self._notes),
        )
        return self._run(requests, self.stats)

    def _draft_sampling(self, sampling: Sampling) -> Sampling:
        return replace(sampling, temperature=0.0) if self.verify == "exact" else sampling

    def _run(self, requests: Sequence[Request], stats: DecodingStats) -> Iterator[Piece]:
        if not requests:
            return
        batch = Batch(
            self.target,
            self.drafter,
            requests,
            self.lookahead,
            make_proposer=self._make_proposer,
            verify=self.verify,
            rule=self.rule,
            stats=stats,
        )
        for pieces in run(batch):
            yield from pieces

    def _check_prompt(self, token_ids: Sequence[int], max_new_tokens: int) -> None:
        if not token_ids:
            raise ValueError("generate: prompt must hold at least one token, got none")
        if min(token_ids) < 0 or max(token_ids) >= self.target.vocab_size:
            raise ValueError(
                f"generate: prompt must hold ids in [0, {self.target.vocab_size}), "
                f"got {min(token_ids)}..{max(token_ids)}"
            )
        limit = self.target.max_length
        if limit is not None and len(token_ids) + max_new_tokens > limit:
            raise ValueError(
                f"generate: prompt and max_new_tokens must fit the target's {limit} positions, "
                f"got {len(token_ids)} + {max_new_tokens}"
            )


def _as_prompts(prompt: Prompt | Sequence[Prompt]) -> tuple[bool, Sequence[Prompt]]:
    """Tell one prompt (text or ids) from several; return (is it one, prompts)."""
    prompt = _as_plain(prompt)
    if isinstance(prompt, str):
        return True, [prompt]
    if isinstance(prompt, bytes | bytearray) or not isinstance(prompt, Sequence):
        raise TypeError(f"generate: prompt must be text, token ids or a sequence of them, got {type(prompt).__name__}")
    if len(prompt) > 0 and isinstance(prompt[0], Integral):
        return True, [prompt]  # type: ignore[list-item]
    return False, prompt  # type: ignore[return-value]


def _as_plain(value: Any) -> Any:
    """Return an array's or tensor's content as Python numbers, anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _as_token_ids(prompt: Any) -> list[int]:
    ids = _as_plain(prompt)
    if isinstance(ids, bytes | bytearray) or not isinstance(ids, Sequence):
        raise TypeError(f"generate: prompt must be text or token ids, got {type(prompt).__name__}")
    for token_id in ids:
        if isinstance(token_id, bool) or not isinstance(token_id, Integral):
            raise TypeError(f"generate: prompt must be text or token ids, got a {type(token_id).__name__} among them")
    return [int(token_id) for token_id in ids]


def _as_stops(stop: Any) -> tuple[str, ...]:
    if isinstance(stop, str):
        return (stop,)
    if not isinstance(stop, Sequence) or not all(isinstance(string, str) for string in stop):
        raise TypeError(f"generate: stop must be a string or a sequence of strings, got {stop!r}")
    return tuple(stop)


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"generate: {name} must be a whole number, got {value!r}")


def _per_prompt(name: str, value: Any, count: int, default: Any) -> list[Any]:
    """Spread a scalar over the prompts, or check that there is one value for each; None becomes the default."""
    value = _as_plain(value)
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value] * count
    if len(values) != count:
        raise ValueError(f"generate: {name} must be one value or {count} of them, got {len(values)}")
    return [default if item is None else item for item in values]


def _as_int64(seed: int) -> int:
    """Wrap any integer to the 64 bits of a seed; -1 and 2**64 - 1 are the same seed."""
    return (int(seed) + 2**63) % 2**64 - 2**63


def _model_and_tokenizer(model: Any) -> tuple[Any, Any] | None:
    """Return the two parts of a LoadedModel or of a pair; None for anything else."""
    if isinstance(model, tuple) and len(model) == 2:
        return model
    if hasattr(model, "model") and hasattr(model, "tokenizer") and not isinstance(model, Target | Drafter):
        return model.model, model.tokenizer
    return None


def _as_target(target: Any, vocab_map: Any = None) -> Target:
    parts = _model_and_tokenizer(target)
    if parts is not None:
        from hetero_spec.decoding.target import TransformersTarget

        if vocab_map is not None:
            _check_made_for("target", parts[1], vocab_map.target.sha256)
        return TransformersTarget(*parts, token_bytes=None if vocab_map is None else vocab_map.target.tokens)
    if isinstance(target, Target):
        return target
    raise TypeError(
        "SpeculativeDecoder: target must be a loaded model, (model, tokenizer) or a Target, "
        f"got {type(target).__name__}"
    )


def _as_pair(target: Any, drafter: Any, vocab_map: Any) -> tuple[Target, Drafter]:
    from hetero_spec.rdk.prune import PrunedModel

    if isinstance(drafter, PrunedModel):
        if drafter.tokenizer is None:
            raise ValueError(
                "SpeculativeDecoder: drafter must have a tokenizer, got a PrunedModel without one "
                "(prune_vocabulary takes it, or make the drafter by PrunedModel.drafter)"
            )
        # Text and map are of the whole vocabulary, whose columns are then cut.
        own, whole = _as_pair(target, (drafter.model, drafter.tokenizer), vocab_map)
        return own, drafter.drafter(getattr(whole, "vocab_map", None), own.vocab_size)
    parts = _model_and_tokenizer(drafter)
    if parts is None:
        if not isinstance(drafter, Drafter):
            raise TypeError(
                "SpeculativeDecoder: drafter must be a loaded model, (model, tokenizer) or a Drafter, "
                f"got {type(drafter).__name__}"
            )
        if vocab_map is not None:
            raise ValueError("SpeculativeDecoder: vocab_map must be None for a Drafter, which brings its own map")
        own = _as_target(target)
        for name, ids, size in (
            ("draft_to_target_ids", drafter.draft_to_target_ids, drafter.vocab_size),
            ("target_to_draft_ids", drafter.target_to_draft_ids, own.vocab_size),
        ):
            if tuple(ids.shape) != (size,):
                raise ValueError(f"SpeculativeDecoder: {name} must be of shape ({size},), got {tuple(ids.shape)}")
        return own, drafter
    from hetero_spec.decoding.drafter import TransformersDrafter
    from hetero_spec.vocab import VocabMap

    own = _as_target(target, vocab_map)
    if vocab_map is None:
        target_parts = _model_and_tokenizer(target)
        if target_parts is None:
            raise ValueError("SpeculativeDecoder: vocab_map must be given for a target that is only a Target, got None")
        vocab_map = VocabMap.from_tokenizers(
            target_parts[1],
            parts[1],
            target_vocab_size=own.vocab_size,
            draft_vocab_size=int(parts[0].config.get_text_config().vocab_size),
        )
    else:
        _check_made_for("drafter", parts[1], vocab_map.drafter.sha256)
        if isinstance(target, Target):
            _check_made_for("target", getattr(target, "tokenizer", None), vocab_map.target.sha256)
    if vocab_map.target_vocab_size < own.vocab_size:
        raise ValueError(
            f"SpeculativeDecoder: vocab_map must cover the target's {own.vocab_size} ids, "
            f"got {vocab_map.target_vocab_size}"
        )
    return own, TransformersDrafter(*parts, vocab_map, own.vocab_size)


def _as_inner_drafter(middle: Drafter, drafter: Any) -> Drafter:
    """Return the drafter of a cascade's middle model."""
    tokenizer, parts = getattr(middle, "tokenizer", None), _model_and_tokenizer(drafter)
    as_target = MiddleTarget(middle, ())
    if parts is None:
        return _as_pair(as_target, drafter, None)[1]
    if tokenizer is None:
        raise ValueError("SpeculativeDecoder: drafter must be a Drafter where the middle model is one, got a model")
    from hetero_spec.vocab import VocabMap

    vocab_map = VocabMap.from_tokenizers(
        tokenizer,
        parts[1],
        target_vocab_size=middle.vocab_size,
        draft_vocab_size=int(parts[0].config.get_text_config().vocab_size),
    )
    return _as_pair(as_target, drafter, vocab_map)[1]


def _check_made_for(side: str, tokenizer: Any, sha256: str) -> None:
    """Refuse a map of another tokenizer: its ids would decode to other text. An unreadable tokenizer is trusted."""
    from hetero_spec.vocab import VocabMismatchError, read_vocabulary

    try:
        given = read_vocabulary(tokenizer).sha256
    except (TypeError, ValueError):
        return
    if given != sha256:
        raise VocabMismatchError(
            f"SpeculativeDecoder: vocab_map must be made for the {side}'s tokenizer (sha256 {given[:12]}), "
            f"got one for {sha256[:12]}"
        )
