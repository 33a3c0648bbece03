# SPDX-License-Identifier: Apache-2.0
"""Public failures of other systems as tiny cases, under the numbers of the list that the project keeps.

Cases that are not in this file:

====================  ================================================================================================
7                     siblings of a tree: no op verifies trees yet 21                    documentation of case 2 26
(races), 59        need the CUDA kernels: race checker and graph capture; ids in range are checked here 40, 41, 43, 49,
50    the vocabulary map: tests/vocab 38, 42, 45            the laws are here, the maps and the re-encoding of context
tokens in tests/vocab and tests/decoding 54                    roles of special tokens: tests/vocab 47, 53
the decoding loop: tests/decoding 56                    seeds are given for every request or for none, so that they
cannot be mixed; the rest is here 68                    timing: perf/ 70                    published acceptance of
pruned drafters: a reading, not a test ====================
================================================================================================
"""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hetero_spec import ops
from hetero_spec.ops import Status
from hetero_spec.reference import inverse_cdf
from hetero_spec.reference.rejection_sample import rejection_sample_verdicts
from hetero_spec.reference.row_law import Parameters, logits_of, probs_of_row, stats_of_row
from tests.tools import chi_square
from tests.tools.compare import EPSILON, assert_verdicts_match
from tests.tools.inputs import generator, make_cu, make_logits, make_verification
from tests.tools.law import log_probs
from tests.tools.rank import emitted_token_ids

INF, NAN = math.inf, math.nan
RULES = ["token", "block"]
TRIALS = 200_000


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


def pairs(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 2)


def verify(target, draft_ids, uniforms, *, most=None, **keywords):
    """(ids, number accepted, status) of a batch of one; target may be laws or logits."""
    logits = target if isinstance(target, torch.Tensor) else log_probs(target)
    if isinstance(keywords.get("draft_logits"), list):
        keywords["draft_logits"] = log_probs(keywords["draft_logits"])
    most = len(draft_ids) if most is None else most
    out = ops.rejection_sample(
        logits, ids(*draft_ids), make_cu([len(draft_ids)]), most, uniform_samples=uniforms, **keywords
    )
    return out.output_token_ids[0].tolist(), int(out.num_accepted_tokens[0]), int(out.status[0])


def trial_batch(target, draft, draft_ids, *, trials=TRIALS, **keywords):
    """`trials` requests of one draft each, verified with seeds 0, 1, ...; draft None = one-hot."""
    logits = None if draft is None else log_probs([draft]).expand(trials, -1)
    return ops.rejection_sample(
        log_probs([target]).expand(2 * trials, -1),
        draft_ids.to(torch.int32),
        torch.arange(trials + 1, dtype=torch.int32),
        1,
        draft_logits=logits,
        seeds=torch.arange(trials),
        positions=torch.full((trials,), 3),
        **keywords,
    )


def draws(law, *, trials=TRIALS, seed=1):
    return torch.multinomial(torch.tensor(law), trials, replacement=True, generator=generator(seed)).to(torch.int32)


def first_counts(out, vocab_size):
    return torch.bincount(out.output_token_ids[:, 0], minlength=vocab_size).tolist()


def assert_share(hits, trials, probability):
    low, high = chi_square.hits_limits(trials, probability)
    assert low <= int(hits) <= high


# -- wrong output law


def test_case_01_proposal_and_verification_of_one_position_have_streams_of_their_own():
    target, draft = [0.1, 0.5, 0.4], [0.6, 0.3, 0.1]
    trials = 500_000
    logits = log_probs([draft]).expand(trials, -1)
    keys = {"seeds": torch.arange(trials), "positions": torch.full((trials,), 3)}
    proposal = ops.draft_sample(logits, ids(0, 1, 2), **keys)
    counts = first_counts(trial_batch(target, draft, proposal.target_token_ids, trials=trials), 3)
    assert not chi_square.departs(counts, target)
    # What one shared stream gives, the same statistic refuses.
    assert chi_square.departs([0.1 * trials, 0.448 * trials, 0.452 * trials], target)


def test_case_02_argmax_drafts_are_one_hot_and_not_draws_of_a_softmax():
    target, softmax = [0.6, 0.2, 0.1, 0.1], [0.7, 0.2, 0.05, 0.05]
    always_0 = torch.zeros(TRIALS)
    right = trial_batch(target, None, always_0)
    assert not chi_square.departs(first_counts(right, 4), target)
    assert_share(right.num_accepted_tokens.sum(), TRIALS, 0.6)
    wrong = first_counts(trial_batch(target, softmax, always_0), 4)
    assert chi_square.departs(wrong, target)
    assert not chi_square.departs(wrong, [0.6 / 0.7, 0.0, 0.1 / 1.4, 0.1 / 1.4])


def test_case_04_the_law_is_that_of_the_rounded_logits_that_were_drawn_from():
    rounded = torch.tensor([[10.00, 10.03]]).to(torch.bfloat16)
    draft = ops.draft_sample(rounded, ids(0, 1), uniform_samples=torch.tensor([0.499]).double())
    assert draft.probs.item() == 0.5
    target = log_probs([[0.25, 0.75]] * 2)
    for uniform, accepted in ((0.499, 1), (0.501, 0)):
        out = verify(target, [0], pairs([uniform, 0], [0, 0]), draft_logits=rounded, draft_stats=draft.stats)
        assert out[1] == accepted


@pytest.mark.parametrize("rule", RULES)
def test_case_06_acceptance_is_the_overlap_of_the_laws(rule):
    target, draft = [0.6, 0.2, 0.1, 0.1], [0.7, 0.2, 0.05, 0.05]
    out = trial_batch(target, draft, draws(draft), rule=rule)
    assert_share(out.num_accepted_tokens.sum(), TRIALS, 0.9)
    assert ops.acceptance_overlap(log_probs([target]), log_probs([draft])).item() == pytest.approx(0.9)


@pytest.mark.parametrize("rule", RULES)
def test_case_08_each_draft_is_tested_against_its_own_row(rule):
    target = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    assert verify(target, [0, 1], pairs(*[[0.5, 0.5]] * 3), rule=rule) == ([0, 1, 0], 2, 0)


@pytest.mark.parametrize("rule", RULES)
def test_case_09_a_uniform_of_zero_does_not_accept_the_impossible(rule):
    even = {"draft_logits": [[0.5, 0.5]], "rule": rule}
    assert verify([[0.0, 1.0]] * 2, [0], pairs([0.0, 0.0], [0.0, 0.0]), **even) == ([1, -1], 0, 0)
    for uniform in (1 - 2**-24, 1 - 2**-53):
        assert verify([[0.5, 0.5]] * 2, [0], pairs([uniform, 0.0], [0.0, 0.0]), **even)[1] == 1


@pytest.mark.parametrize("rule", RULES)
def test_case_10_equal_widths_do_not_mean_equal_ids(rule):
    draft = log_probs([[0.9, 0.1]])
    proposal = ops.draft_sample(draft, ids(1, 0), uniform_samples=torch.tensor([0.5]).double())
    assert proposal.target_token_ids.tolist() == [1]
    assert proposal.draft_token_ids.tolist() == [0]
    mapped = {"draft_logits": draft, "target_to_draft_ids": ids(1, 0), "rule": rule}
    for uniform, accepted in ((0.555, 1), (0.556, 0)):
        assert verify([[0.5, 0.5]] * 2, [1], pairs([uniform, 0], [0, 0]), **mapped)[1] == accepted


@pytest.mark.parametrize("rule", RULES)
def test_case_11_a_greedy_row_stays_greedy_after_a_rejection(rule):
    uniforms = torch.rand(1000, 2, generator=generator(1), dtype=torch.float64)
    for k in range(500):
        assert verify([[0.6, 0.4]] * 2, [1], uniforms[2 * k : 2 * k + 2], temperature=0.0, rule=rule)[0] == [0, -1]


@pytest.mark.parametrize(("rule", "mean"), [("token", 10 / 9), ("block", 11 / 9)])
def test_case_12_the_block_rule_is_not_the_token_rule(rule, mean):
    target, draft = [1 / 3, 2 / 3], [2 / 3, 1 / 3]
    out = ops.rejection_sample(
        log_probs([target]).expand(3 * TRIALS, -1),
        draws(draft, trials=2 * TRIALS),
        torch.arange(TRIALS + 1, dtype=torch.int32) * 2,
        2,
        draft_logits=log_probs([draft]).expand(2 * TRIALS, -1),
        seeds=torch.arange(TRIALS),
        positions=torch.zeros(TRIALS, dtype=torch.int64),
        rule=rule,
    )
    assert out.num_accepted_tokens.double().mean().item() == pytest.approx(mean, abs=6 / math.sqrt(TRIALS))
    assert not chi_square.departs(first_counts(out, 2), target)


def test_case_14_a_bonus_is_drawn_and_is_not_the_largest():
    out = ops.rejection_sample(
        log_probs([[0.5, 0.3, 0.2]]).expand(300, -1),
        ids(),
        torch.zeros(301, dtype=torch.int32),
        0,
        seeds=torch.arange(300),
        positions=torch.zeros(300, dtype=torch.int64),
    )
    assert set(out.output_token_ids.flatten().tolist()) == {0, 1, 2}


def test_case_15_the_ratio_accepts_all_where_an_equality_test_accepts_half():
    even = [0.5, 0.5]
    ratio = trial_batch(even, even, draws(even))
    assert int(ratio.num_accepted_tokens.sum()) == TRIALS
    equality = trial_batch(even, None, draws(even))
    assert_share(equality.num_accepted_tokens.sum(), TRIALS, 0.5)
    for out in (ratio, equality):
        assert not chi_square.departs(first_counts(out, 2), even)


@pytest.mark.parametrize("rule", RULES)
def test_case_16_a_one_hot_draft_is_accepted_with_the_targets_probability(rule):
    out = trial_batch([0.3, 0.7], None, torch.zeros(TRIALS), rule=rule)
    assert_share(out.num_accepted_tokens.sum(), TRIALS, 0.3)
    rejected = out.num_accepted_tokens == 0
    assert set(out.output_token_ids[rejected, 0].tolist()) == {1}


@pytest.mark.parametrize("rule", RULES)
def test_case_17_verification_honours_the_sampling_parameters(rule):
    target = [0.5, 0.3, 0.15, 0.05]
    out = trial_batch(target, None, draws([0.25] * 4), top_p=0.75, rule=rule)
    assert not chi_square.departs(first_counts(out, 4), [0.625, 0.375, 0.0, 0.0])
    for uniform in (0.0, 0.5):
        assert verify([target] * 2, [2], pairs([uniform, uniform], [0, 0]), top_p=0.75, rule=rule)[1] == 0


@pytest.mark.parametrize("rule", RULES)
def test_case_19_the_same_filter_on_both_sides_accepts_everything(rule):
    law = [0.4, 0.3, 0.3]
    keywords = {"top_k": 1, "rule": rule, "draft_logits": [law]}
    assert verify([law] * 2, [0], pairs([1 - 2**-53, 0.99], [0, 0.99]), **keywords) == ([0, 0], 1, 0)


def test_case_20_no_other_device_falls_back_to_something_else():
    for name in ("row_stats", "remap_probs", "draft_sample", "rejection_sample", "acceptance_overlap"):
        for key in ("XPU", "MPS", "PrivateUse1", "CompositeImplicitAutograd", "CompositeExplicitAutograd"):
            assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"hetero_spec::{name}", key), (name, key)


# -- numerics


@pytest.mark.parametrize("rule", RULES)
def test_case_22_an_all_nan_row_is_flagged_and_its_neighbour_is_untouched(rule):
    vocab_size = 20_000
    target = torch.cat([torch.full((2, vocab_size), NAN), make_logits(2, vocab_size, seed=1)])
    draft = make_logits(2, vocab_size, seed=2)
    uniforms = torch.rand(4, 2, generator=generator(3), dtype=torch.float64)
    out = ops.rejection_sample(
        target, ids(5, 6), make_cu([1, 1]), 1, draft_logits=draft, uniform_samples=uniforms, rule=rule
    )
    assert out.status[0] & Status.TARGET_NAN
    assert 0 <= out.output_token_ids[0, 0] < vocab_size
    alone = ops.rejection_sample(
        target[2:], ids(6), make_cu([1]), 1, draft_logits=draft[1:], uniform_samples=uniforms[2:], rule=rule
    )
    for batch, single in zip(out, alone, strict=True):
        assert torch.equal(batch[1:], single)


@pytest.mark.parametrize("uniform", [0.0, 0.3, 0.6, 1 - 2**-53])
def test_case_23_a_nan_probability_is_flagged_and_never_sampled(uniform):
    target = torch.tensor([[0.2, 0.2, 0.2, NAN, 0.2]] * 2)
    for draft_ids in ([], [0], [3]):
        out = ops.rejection_sample_probs(
            target[: len(draft_ids) + 1],
            None,
            ids(*draft_ids),
            make_cu([len(draft_ids)]),
            1,
            uniform_samples=torch.full((len(draft_ids) + 1, 2), uniform, dtype=torch.float64),
        )
        assert out.status.item() & Status.TARGET_NAN
        assert 3 not in out.output_token_ids


def test_case_24_an_empty_residual_gives_a_valid_flagged_id():
    out = ops.rejection_sample_probs(
        torch.zeros(2, 4), torch.eye(4)[2:3], ids(2), make_cu([1]), 1, uniform_samples=pairs([0.5, 0.5], [0, 0])
    )
    assert out.status.item() & Status.TARGET_EMPTY
    assert out.output_token_ids.tolist() == [[0, -1]]
    law = torch.tensor([[0.3, 0.3, 0.4]])
    for rule in RULES:
        out = ops.rejection_sample_probs(
            law.expand(2, -1),
            law,
            ids(0),
            make_cu([1]),
            1,
            uniform_samples=pairs([1 - 2**-53, 1 - 2**-53], [0, 1 - 2**-53]),
            rule=rule,
        )
        assert out.output_token_ids.tolist() == [[0, 2]]
        assert out.status.tolist() == [0]


def test_case_25_a_huge_top_k_is_off():
    target = torch.full((1, 32_000), -INF)
    target[0, 1] = 0.0
    for uniform in (0.0, 0.5, 1 - 2**-53):
        assert verify(target, [], pairs([0, uniform]), top_k=2**30, top_p=1.0)[0] == [1]


def test_case_26_ids_are_in_range_for_many_draws_of_a_wide_row():
    logits = make_logits(1, 32_000, seed=1).expand(500, -1)
    draft = ops.draft_sample(logits, torch.arange(32_000, dtype=torch.int32), uniform_samples=torch.rand(500).double())
    assert ((draft.draft_token_ids >= 0) & (draft.draft_token_ids < 32_000)).all()


def test_case_28_top_p_between_adjacent_floats_ends():
    value = torch.tensor(1.0)
    above = torch.nextafter(value, value + 1)
    row = torch.stack([value, above, value, above]).reshape(1, 4)
    assert ops.row_stats(row, top_p=0.5 - 1e-4)[0, 3] == above
    assert ops.row_stats(row, top_p=0.75)[0, 3] == value


@pytest.mark.parametrize(("case", "vocab_size", "gap"), [(29, 262_145, 20.5), (30, 262_145, 18.0), (31, 1000, 20.0)])
def test_case_29_30_31_tails_are_drawn_at_their_true_rate(case, vocab_size, gap):
    logits = torch.zeros(1, vocab_size)
    logits[0, 0] = gap
    tail = (vocab_size - 1) * math.exp(-gap)
    tail /= 1.0 + tail
    # The tail is the end of the CDF: each of these uniforms is one id of it, at a place that is known.
    shares = (torch.arange(32, dtype=torch.float64) + 0.5) / 32
    uniforms = 1.0 - tail * (1.0 - shares)
    identity = torch.arange(vocab_size, dtype=torch.int32)
    draft = ops.draft_sample(logits.expand(32, -1), identity, uniform_samples=uniforms)
    wanted = 1 + shares * (vocab_size - 1)
    # Two units in the last place of a float32 near 1 is what a sum may lose, and the chunk of the large logit may
    # lose all of its share of the tail.
    allowed = vocab_size * 2**-22 / tail + (4096 if vocab_size > 4096 else 0)
    torch.testing.assert_close(draft.draft_token_ids.double(), wanted, rtol=0.0, atol=allowed)
    # And the package's own numbers reach it as often as they should.
    trials = 400_000
    two = log_probs([[1.0 - tail, tail]]).expand(trials, -1)
    own = ops.draft_sample(two, ids(0, 1), seeds=torch.full((trials,), case), positions=torch.arange(trials))
    assert_share(own.draft_token_ids.sum(), trials, tail)


@pytest.mark.parametrize("rule", RULES)
def test_case_32_the_same_uniforms_give_the_ids_of_the_float64_reference(rule):
    case = make_verification(vocab_size=4097, seed=32, batch_size=8)
    keywords = {**case.keywords, "rule": rule}
    out = ops.rejection_sample(*case.positional, **keywords)
    assert_verdicts_match(out, rejection_sample_verdicts, case.positional, keywords)


def test_case_33_offsets_of_rows_have_64_bits():
    # Three rows far apart in 4.4 GB of address space, of which only the rows are ever touched: the last begins past
    # 2**31 elements and past 2**32 bytes.
    width, stride = 1003, 1_100_000_000
    storage = torch.empty(2 * stride + width, dtype=torch.bfloat16)
    far = storage.as_strided((3, width), (stride, 1))
    near = make_logits(3, width, seed=33, dtype=torch.bfloat16)
    far.copy_(near)
    assert torch.equal(ops.row_stats(far), ops.row_stats(near))
    uniforms = torch.full((3, 2), 0.7, dtype=torch.float64)
    for rule in RULES:
        one, other = (
            ops.rejection_sample(logits, ids(0, 1), make_cu([2]), 2, uniform_samples=uniforms, rule=rule)
            for logits in (far, near)
        )
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    same_ids = torch.arange(width, dtype=torch.int32)
    randomness = {"uniform_samples": uniforms[:, 0].contiguous()}
    one, other = (ops.draft_sample(logits, same_ids, **randomness)[:-1] for logits in (far, near))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 1.0, 1e30])
def test_case_34_a_masked_logit_is_never_drawn_at_any_temperature(temperature):
    assert verify(torch.tensor([[-INF, 1.0]]), [], pairs([0, 0.0]), temperature=temperature) == ([1], 0, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_case_35_a_tiny_temperature_does_not_overflow(dtype):
    logits = torch.tensor([[30.0, 20.0]], dtype=dtype)
    assert ops.remap_probs(logits, ids(0, 1), 2, temperature=1e-6).tolist() == [[1.0, 0.0]]
    assert verify(logits, [], pairs([0, 1 - 2**-53]), temperature=1e-6) == ([0], 0, 0)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_case_37_a_row_with_everything_masked_is_flagged(temperature, rule):
    out = verify(torch.full((2, 5), -INF), [3], pairs([0, 0], [0, 0]), temperature=temperature, rule=rule)
    assert out == ([0, -1], 0, Status.TARGET_EMPTY)


# -- vocabulary: the laws


def test_case_38_padded_ids_are_never_proposed_and_stay_possible_only_for_the_target():
    # Tokenizers of 4 on both sides; the drafter's logits are padded to 5, the target's to 6.
    draft = torch.tensor([[0.0, 0.0, 0.0, 0.0, 9.0]])
    draft_to_target, target_to_draft = ids(0, 1, 2, 3, -1), ids(0, 1, 2, 3, -1, -1)
    assert ops.remap_probs(draft, draft_to_target, 6).tolist() == [[0.25] * 4 + [0.0] * 2]
    target = torch.tensor([[0.0, 0.0, 0.0, 0.0, -INF, -INF]]).expand(2, -1)
    for uniform in (0.0, 0.3, 0.6, 1 - 2**-53):
        proposal = ops.draft_sample(draft, draft_to_target, uniform_samples=torch.tensor([uniform]).double())
        assert proposal.target_token_ids.item() == int(uniform * 4)
        out = verify(
            target,
            proposal.target_token_ids.tolist(),
            pairs([uniform, uniform], [0, uniform]),
            draft_logits=draft,
            target_to_draft_ids=target_to_draft,
        )
        assert out == ([int(uniform * 4)] * 2, 1, 0)


@pytest.mark.parametrize("rule", RULES)
def test_case_42_a_drafter_with_other_tokens_keeps_the_targets_law(rule):
    target, draft = [0.4, 0.3, 0.2, 0.1], [0.5, 0.2, 0.3]
    draft_to_target, target_to_draft = ids(0, 1, -1), ids(0, 1, -1, -1)
    logits = log_probs([draft]).expand(TRIALS, -1)
    keys = {"seeds": torch.arange(TRIALS), "positions": torch.full((TRIALS,), 3)}
    proposal = ops.draft_sample(logits, draft_to_target, **keys)
    counts = torch.bincount(proposal.target_token_ids, minlength=4).tolist()
    assert not chi_square.departs(counts, [5 / 7, 2 / 7, 0.0, 0.0])
    out = trial_batch(
        target,
        draft,
        proposal.target_token_ids,
        target_to_draft_ids=target_to_draft,
        draft_stats=proposal.stats,
        rule=rule,
    )
    assert not chi_square.departs(first_counts(out, 4), target)
    overlap = ops.acceptance_overlap(log_probs([target]), log_probs([draft]), target_to_draft_ids=target_to_draft)
    assert overlap.item() == pytest.approx(0.4 + 2 / 7)
    assert_share(out.num_accepted_tokens.sum(), TRIALS, 0.4 + 2 / 7)
    rejected = out.output_token_ids[out.num_accepted_tokens == 0, 0]
    residual = torch.tensor([0.0, 0.3 - 2 / 7, 0.2, 0.1], dtype=torch.float64)
    assert not chi_square.departs(torch.bincount(rejected, minlength=4).tolist(), (residual / residual.sum()).numpy())


def test_case_45_another_width_without_a_map_is_an_error():
    uniforms = torch.zeros(2, 2, dtype=torch.float64)
    for width in (3, 5):
        with pytest.raises(ValueError, match="draft_logits must be"):
            ops.rejection_sample(
                torch.zeros(2, 4), ids(0), make_cu([1]), 1, draft_logits=torch.zeros(1, width), uniform_samples=uniforms
            )
        with pytest.raises(ValueError, match="draft_logits must be"):
            ops.acceptance_overlap(torch.zeros(1, 4), torch.zeros(1, width))


# -- seeds and ranks


def seeded(seeds, *, rows=16):
    return ops.rejection_sample(
        torch.zeros(rows, 1000),
        ids(),
        torch.zeros(rows + 1, dtype=torch.int32),
        0,
        seeds=torch.tensor(seeds),
        positions=torch.arange(rows),
    ).output_token_ids.flatten()


def test_case_55_seeds_matter_and_repeat():
    assert torch.equal(seeded([1] * 16), seeded([1] * 16))
    assert (seeded([1] * 16) != seeded([2] * 16)).sum() > 12
    assert (seeded([0] * 16) != seeded([2**32] * 16)).sum() > 12  # seed 0 is a seed, and high bits count
    assert len(set(seeded([0] * 16).tolist())) > 12  # positions count


def test_case_56_a_requests_numbers_do_not_depend_on_the_other_requests():
    mixed = seeded([1, 7] * 8)
    assert torch.equal(mixed[::2], seeded([1] * 16)[::2])
    assert torch.equal(mixed[1::2], seeded([7] * 16)[1::2])


def test_case_57_two_processes_emit_the_same_tokens():
    program = (
        "import torch; torch.manual_seed(5); torch.set_num_threads(2);"
        "from tests.tools.rank import emitted_token_ids; print(emitted_token_ids())"
    )
    root = Path(__file__).resolve().parents[1]
    other = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(emitted_token_ids())


# -- edges and capacity


@pytest.mark.parametrize("rule", RULES)
def test_case_60_minus_one_padding_is_never_read_as_a_token(rule):
    target = torch.zeros(6, 2)
    uniforms = torch.zeros(6, 2, dtype=torch.float64)
    out = ops.rejection_sample(
        target,
        ids(1, 0, 1, -1, -1),
        make_cu([5]),
        5,
        uniform_samples=uniforms,
        draft_logits=torch.zeros(5, 2),
        rule=rule,
    )
    assert out.output_token_ids.tolist() == [[1, 0, 1, 0, -1, -1]]
    limited = ops.rejection_sample(
        target, ids(1, 0, 1, 1, 1), make_cu([5]), 3, uniform_samples=uniforms, draft_logits=torch.zeros(5, 2), rule=rule
    )
    assert limited.output_token_ids.tolist() == [[1, 0, 1, 0]]
    assert out.num_accepted_tokens.item() == limited.num_accepted_tokens.item() == 3


@pytest.mark.parametrize("rule", RULES)
def test_case_62_no_draft_is_one_sample_and_token_0_is_a_draft_like_any_other(rule):
    assert verify([[0.0, 1.0]], [], pairs([0.0, 0.5]), most=2, rule=rule) == ([1, -1, -1], 0, 0)
    assert verify([[1.0, 0.0], [0.0, 1.0]], [0], pairs([0.9, 0.9], [0.9, 0.9]), rule=rule) == ([0, 1], 1, 0)


@pytest.mark.parametrize("rule", RULES)
def test_case_63_an_empty_batch_and_a_batch_of_empty_drafts(rule):
    nothing = torch.zeros(0, 2, dtype=torch.float64)
    out = ops.rejection_sample(torch.zeros(0, 4), ids(), ids(0), 2, uniform_samples=nothing, rule=rule)
    assert [tuple(tensor.shape) for tensor in out] == [(0, 3), (0,), (0,)]
    uniforms = torch.full((3, 2), 0.5, dtype=torch.float64)
    target = log_probs(torch.eye(3))
    out = ops.rejection_sample(target, ids(), make_cu([0, 0, 0]), 2, uniform_samples=uniforms, rule=rule)
    assert out.output_token_ids.tolist() == [[0, -1, -1], [1, -1, -1], [2, -1, -1]]


@pytest.mark.parametrize("rule", RULES)
def test_case_64_only_minus_one_pads_and_the_vocabulary_size_is_no_id(rule):
    for seed in range(5):
        case = make_verification(vocab_size=17, seed=seed, batch_size=8)
        out = ops.rejection_sample(*case.positional, **case.keywords, rule=rule)
        assert out.output_token_ids.max() < 17
        for row, accepted in zip(out.output_token_ids.tolist(), out.num_accepted_tokens.tolist(), strict=True):
            assert min(row[: accepted + 1]) >= 0
            assert set(row[accepted + 1 :]) <= {-1}
    assert verify([[0.5, 0.5]] * 2, [2], pairs([0, 0], [0, 0]), rule=rule)[2] == Status.DRAFT_OUT_OF_RANGE


@pytest.mark.parametrize("rule", RULES)
def test_case_66_disjoint_laws_emit_one_token_of_the_target(rule):
    trials = 50_000
    out = ops.rejection_sample(
        log_probs([[0.0, 0.0, 0.5, 0.5]]).expand(4 * trials, -1),
        draws([0.5, 0.5], trials=3 * trials),
        torch.arange(trials + 1, dtype=torch.int32) * 3,
        3,
        draft_logits=log_probs([[0.5, 0.5, 0.0, 0.0]]).expand(3 * trials, -1),
        seeds=torch.arange(trials),
        positions=torch.zeros(trials, dtype=torch.int64),
        rule=rule,
    )
    assert int(out.num_accepted_tokens.sum()) == 0
    assert (out.output_token_ids[:, 1:] == -1).all()
    assert not chi_square.departs(first_counts(out, 4), [0.0, 0.0, 0.5, 0.5])


def test_case_69_stats_of_two_shards_merge_into_the_stats_and_the_draw_of_the_row():
    logits = make_logits(4, 3000, seed=69)
    halves = [ops.row_stats(half, temperature=0.75) for half in (logits[:, :1500], logits[:, 1500:])]
    maxima = torch.stack([half[:, 0] for half in halves])
    largest = maxima.amax(0)
    shifted = torch.stack([half[:, 2].double() for half in halves]) + (maxima - largest).double() / 0.75
    merged = torch.stack([largest, halves[0][:, 1], shifted.logsumexp(0).float(), halves[0][:, 3]], dim=1)
    torch.testing.assert_close(merged, ops.row_stats(logits, temperature=0.75), rtol=1e-6, atol=1e-6)
    # A draft that was drawn on shards is verified as if its stats were those of the whole row.
    target = make_logits(5, 3000, seed=70)
    uniforms = torch.rand(5, 2, generator=generator(1), dtype=torch.float64)
    arguments = (target, ids(0, 1, 2, 3), make_cu([4]), 4)
    keywords = {"draft_logits": logits, "uniform_samples": uniforms}
    one = ops.rejection_sample(*arguments, **keywords, draft_stats=merged)
    other = ops.rejection_sample(*arguments, **keywords, draft_stats=ops.row_stats(logits, temperature=0.75))
    assert torch.equal(one.num_accepted_tokens, other.num_accepted_tokens)
    last = int(one.num_accepted_tokens)
    values = logits_of(target, last)
    law = probs_of_row(values, stats_of_row(values, Parameters(1.0, 0, 1.0, 0.0)))
    near = one.output_token_ids[0, last] == other.output_token_ids[0, last]
    assert near or int(one.output_token_ids[0, last]) in inverse_cdf.ids_near(law, float(uniforms[last, 1]), EPSILON)
