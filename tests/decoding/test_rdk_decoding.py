# SPDX-License-Identifier: Apache-2.0
"""Method "rdk" over plain laws: redistributed drafts, their law, and the drafter's context behind tokens it lacks."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hetero_spec import ops, rdk
from hetero_spec.decoding import ConfidenceLookahead, SpeculativeDecoder
from hetero_spec.decoding.context import DraftContexts
from hetero_spec.vocab import VocabMap
from tests.decoding.pairs import agreeing_drafter, counts_of, exact_law, make_pair
from tests.decoding.toys import LawDrafter, LawTarget, law_of_context
from tests.tools.chi_square import departs

PRIOR = torch.tensor([0.1, 0.1, 0.4, 0.1, 0.3])


def make_kernel(kind: str) -> rdk.Kernel:
    if kind == "mix":
        return rdk.MixKernel(0.4, PRIOR)
    if kind == "mix per token":
        return rdk.MixKernel(torch.tensor([0.1, 0.7, 0.0, 0.3, 0.0]), PRIOR)
    if kind == "diagonal":
        return rdk.DiagonalKernel(torch.tensor([0.1, 0.2, 0.0, 0.3, 0.2]), 0.5)
    return rdk.LowRankKernel(torch.from_numpy(np.random.default_rng(3).dirichlet([0.5] * 5, size=4)), 0.05, 0.5)


def spelling_pair() -> tuple[LawTarget, LawDrafter]:
    """The target's third token is the bytes of the first two; the drafter has only those, and writes it with both."""
    vocab_map = VocabMap.from_bytes([b"a", b"b", b"ab", b"c"], [b"b", b"a"])
    target = LawTarget(law_of_context(4, 4), "abXc")
    return target, LawDrafter(law_of_context(2, 6), vocab_map)


@pytest.mark.parametrize("kind", ["mix", "mix per token", "diagonal", "low rank"])
def test_the_law_of_the_output_is_the_targets(kind: str) -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, "rdk", 2, rdk_kernel=make_kernel(kind))
    counts = counts_of(decoder, [0, 2], length=3, trials=4000)
    assert not departs(counts, exact_law(target.law, (0, 2), 5, 3))
    assert 0 < decoder.stats.accepted < decoder.stats.proposed


def test_drafts_hold_tokens_that_the_drafter_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    drafted = set()
    rejection_sample = ops.rejection_sample

    def recording(logits, ids, *arguments, **keywords):  # type: ignore[no-untyped-def]
        drafted.update(ids.tolist())
        return rejection_sample(logits, ids, *arguments, **keywords)

    monkeypatch.setattr(ops, "rejection_sample", recording)
    target, drafter = make_pair()
    for method, kernel in (("rdk", make_kernel("mix")), ("tli", None)):
        drafted.clear()
        SpeculativeDecoder(target, drafter, method, 2, rdk_kernel=kernel).generate(
            [[0]] * 100, max_new_tokens=8, seed=list(range(100))
        )
        assert drafted == ({0, 1, 2, 3, 4} if method == "rdk" else {0, 1, 3})


def test_verifying_with_another_kernel_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Negative control: the verification believes that less has been moved, and to elsewhere.
    rejection_sample, other = ops.rejection_sample, rdk.MixKernel(0.1, PRIOR.flip(0))

    def mistaken(*arguments, kernel=None, draft_leaked_mass=None, **keywords):  # type: ignore[no-untyped-def]
        return rejection_sample(*arguments, kernel=None if kernel is None else other, **keywords)

    monkeypatch.setattr(ops, "rejection_sample", mistaken)
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, "rdk", 2, rdk_kernel=make_kernel("mix"))
    assert departs(counts_of(decoder, [0, 2], length=3, trials=4000), exact_law(target.law, (0, 2), 5, 3))


@pytest.mark.parametrize("kind", ["mix per token", "low rank"])
def test_what_draws_have_kept_of_their_rows_reaches_the_verification(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row for row, with drafts of unequal length: made again from the draft rows it gives the same texts."""
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, "rdk", ConfidenceLookahead(0.3, 4), rdk_kernel=make_kernel(kind))
    arguments = {"max_new_tokens": 12, "seed": list(range(20))}
    kept_texts = decoder.generate([[0]] * 20, **arguments)
    rejection_sample = ops.rejection_sample
    shapes, lengths = set(), set()

    def forgetful(logits, ids, cu, *others, kernel=None, draft_leaked_mass=None, **keywords):  # type: ignore[no-untyped-def]
        if draft_leaked_mass is not None:
            assert len(draft_leaked_mass) == len(ids)
            shapes.add(tuple(draft_leaked_mass.shape[1:]))
            lengths.update(cu.diff().tolist())
        return rejection_sample(logits, ids, cu, *others, kernel=kernel, **keywords)

    monkeypatch.setattr(ops, "rejection_sample", forgetful)
    assert decoder.generate([[0]] * 20, **arguments) == kept_texts
    assert shapes == ({(5,)} if kind == "low rank" else {()}) and len(lengths) > 2


@pytest.mark.parametrize("verify", ["rejection", "exact"])
def test_the_law_holds_where_a_draft_token_is_several_of_the_drafters(verify: str) -> None:
    target, drafter = spelling_pair()
    kernel = rdk.MixKernel(0.5, torch.tensor([0.1, 0.1, 0.6, 0.2]))
    decoder = SpeculativeDecoder(target, drafter, "rdk", 3, rdk_kernel=kernel, verify=verify)
    counts = counts_of(decoder, [0, 3], length=3, trials=4000)
    assert not departs(counts, exact_law(target.law, (0, 3), 4, 3))


def test_the_context_is_what_the_drafter_would_write(monkeypatch: pytest.MonkeyPatch) -> None:
    target, drafter = spelling_pair()
    kernel = rdk.MixKernel(0.5, torch.tensor([0.1, 0.1, 0.6, 0.2]))
    decoder = SpeculativeDecoder(target, drafter, "rdk", 3, rdk_kernel=kernel)
    seen: list[tuple[int, ...]] = []
    begin = DraftContexts.begin

    def recording(self: DraftContexts, request: int) -> bool:
        seen.append(self.token_ids(request))
        return begin(self, request)

    monkeypatch.setattr(DraftContexts, "begin", recording)
    accepted_spelt = 0
    for seed in range(20):
        seen.clear()
        result = decoder.generate([0], max_new_tokens=16, seed=seed)
        written = drafter.encode_context([0, *result.token_ids])
        for context in seen:
            assert list(context) == written[: len(context)]
        accepted_spelt += result.token_ids.count(2)
        # What is in the drafter's cache is that context too, as far as it has been fed.
    assert accepted_spelt > 10
    assert decoder.stats.accepted > 0


def test_a_batch_gives_every_request_what_it_gets_alone() -> None:
    target, drafter = spelling_pair()
    kernel = rdk.MixKernel(0.5, torch.tensor([0.1, 0.1, 0.6, 0.2]))
    decoder = SpeculativeDecoder(target, drafter, "rdk", ConfidenceLookahead(0.2, 4), rdk_kernel=kernel)
    prompts = [[0, 2], [1], [3, 2, 0]]
    together = decoder.generate(prompts, max_new_tokens=12, seed=[1, 2, 3])
    for prompt, seed, result in zip(prompts, [1, 2, 3], together, strict=True):
        assert decoder.generate(prompt, max_new_tokens=12, seed=seed) == result


def test_greedy_drafts_are_not_redistributed() -> None:
    target, _ = make_pair()
    drafter = agreeing_drafter(target)
    decoder = SpeculativeDecoder(target, drafter, "rdk", 3, rdk_kernel=rdk.MixKernel(0.9, PRIOR))
    redistributed = decoder.generate([0, 2], max_new_tokens=20, temperature=0)
    plain = SpeculativeDecoder(target, drafter, "tli", 3)
    assert plain.generate([0, 2], max_new_tokens=20, temperature=0) == redistributed


def test_a_kernel_without_gain_is_left_out_and_said_so(tmp_path: Path) -> None:
    target, drafter = make_pair()
    kernel = rdk.MixKernel(0.4, PRIOR)
    kernel.calibration = {"fallback": "calibration found no gain"}
    kernel.save(tmp_path / "kernel.safetensors")
    decoder = SpeculativeDecoder(target, drafter, "rdk", 2, rdk_kernel=tmp_path / "kernel.safetensors")
    result = decoder.generate([0, 2], max_new_tokens=20, seed=3)
    assert result == SpeculativeDecoder(target, drafter, "tli", 2).generate([0, 2], max_new_tokens=20, seed=3)
    assert decoder.stats.notes == ["The RDK kernel is not used, drafts are plain TLI: calibration found no gain"]
    kernel.calibration = {"fallback": None}
    kernel.save(tmp_path / "kernel.safetensors")
    decoder = SpeculativeDecoder(target, drafter, "rdk", 2, rdk_kernel=str(tmp_path / "kernel.safetensors"))
    assert decoder.generate([0, 2], max_new_tokens=20, seed=3).token_ids != result.token_ids
    assert decoder.stats.notes == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "rdk"}, ValueError, "rdk_kernel must be a kernel or the path of one for method 'rdk', got None"),
        ({"rdk_kernel": rdk.MixKernel(0.4, PRIOR)}, ValueError, "rdk_kernel must be None for method 'tli'"),
        ({"method": "rdk", "rdk_kernel": 3}, TypeError, "rdk_kernel must be a kernel of hetero_spec.rdk or the path"),
        (
            {"method": "rdk", "rdk_kernel": rdk.MixKernel(0.4, torch.full((4,), 0.25))},
            ValueError,
            "rdk_kernel must be 5 ids wide, as the target is, got 4",
        ),
    ],
)
def test_a_kernel_that_does_not_fit_is_refused(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        SpeculativeDecoder(*make_pair(), **arguments)  # type: ignore[arg-type]


def test_a_kernel_fitted_for_other_kept_tokens_is_used_with_a_note() -> None:
    target, drafter = make_pair()
    num_shared = int((drafter.draft_to_target_ids >= 0).sum())
    kernel = rdk.MixKernel(0.4, PRIOR)
    kernel.calibration = {"num_kept_tokens": num_shared}
    decoder = SpeculativeDecoder(target, drafter, "rdk", 2, rdk_kernel=kernel)
    decoder.generate([0, 2], max_new_tokens=2)
    assert decoder.stats.notes == []
    kernel.calibration = {"num_kept_tokens": num_shared + 1}
    decoder = SpeculativeDecoder(target, drafter, "rdk", 2, rdk_kernel=kernel)
    decoder.generate([0, 2], max_new_tokens=2)
    assert [f"fitted for a drafter with {num_shared + 1} of" in note for note in decoder.stats.notes] == [True]


def test_a_kernel_of_another_tokenizer_is_refused() -> None:
    target, drafter = make_pair()
    kernel = rdk.MixKernel(0.4, PRIOR)
    kernel.drafter_sha256 = "0" * 64
    with pytest.raises(ValueError, match="rdk_kernel must be made for the drafter's tokenizer"):
        SpeculativeDecoder(target, drafter, "rdk", rdk_kernel=kernel)
