# SPDX-License-Identifier: Apache-2.0
"""What every op promises, whatever it computes."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hetero_spec import ops
from tests.tools.calls import NAMES, make_call, verification_arguments
from tests.tools.inputs import DTYPES, make_verification

RULES = ["token", "block"]


def op_of(name: str) -> str:
    return name.partition("+")[0].partition("/")[0]


def same(one, other) -> bool:
    """Equal bits, NaN included."""
    return all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and a.contiguous().view(torch.uint8).equal(b.contiguous().view(torch.uint8))
        if a.dim()
        else torch.equal(a, b)
        for a, b in zip(one, other, strict=True)
    )


class Recorder(TorchDispatchMode):
    """Collects the calls of registered ops of this package with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple, dict]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "hetero_spec":
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_opcheck_passes(name, dtype):
    with Recorder() as recorder:
        make_call(name, dtype=dtype, vocab_size=17)()
    assert [func.overloadpacket.__name__ for func, _, _ in recorder.calls][-1:] == [op_of(name)]
    for func, args, kwargs in recorder.calls:
        torch.library.opcheck(func, args, kwargs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_unchanged(name, dtype):
    call = make_call(name, dtype=dtype)
    before = {key: value.clone() for key, value in call.tensors().items()}
    call()
    for key, value in call.tensors().items():
        assert same([value], [before[key]]), key


@pytest.mark.parametrize("vocab_size", [17, 4097, 20000])
@pytest.mark.parametrize("name", NAMES)
def test_result_does_not_depend_on_the_number_of_threads(name, vocab_size):
    call = make_call(name, vocab_size=vocab_size, batch_size=7)
    expected = call()
    for threads in (2, 3):
        torch.set_num_threads(threads)
        assert same(call(), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_result_does_not_depend_on_where_rows_lie_in_memory(name, dtype):
    call = make_call(name, dtype=dtype, vocab_size=4099)
    expected = call()
    for layout in ({"row_padding": 1}, {"misalignment": 1}, {"row_padding": 13, "misalignment": 3}):
        assert same(call.laid_out(**layout)(), expected), layout


@pytest.mark.parametrize("name", ["row_stats", "remap_probs", "draft_sample", "acceptance_overlap"])
def test_a_row_alone_gives_the_same_bits_as_in_a_batch(name):
    call = make_call(name, vocab_size=4099, batch_size=6)
    batch = call()
    shared = {"draft_to_target_ids", "target_to_draft_ids"}
    for row in range(6):
        changes = {key: value[row : row + 1].clone() for key, value in call.tensors().items() if key not in shared}
        assert same(call(**changes), [tensor[row : row + 1] for tensor in batch])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("one_hot", [False, True])
def test_a_request_alone_gives_the_same_bits_as_in_a_batch(one_hot, rule):
    call = make_call(f"rejection_sample/{rule}")
    case = make_verification(vocab_size=4099, seed=2, batch_size=8, parameters="per_request", one_hot=one_hot)
    case.target_logits[int(case.cu_num_draft_tokens[2]) + 2] = torch.nan  # a broken neighbour is nobody else's business
    batch = call.function(**verification_arguments(case), rule=rule)
    assert batch.status[2] != 0
    for index in range(8):
        alone = call.function(**verification_arguments(case.request(index)), rule=rule)
        assert same(alone, [tensor[index : index + 1] for tensor in batch])


@pytest.mark.parametrize("name", NAMES)
def test_empty_batch_gives_empty_results(name):
    for tensor in make_call(name, batch_size=0)():
        assert tensor.shape[0] == 0


@pytest.mark.parametrize("name", NAMES)
def test_seeds_alone_decide_and_not_the_global_generator(name):
    call = make_call(name)
    torch.manual_seed(1)
    first = call()
    torch.manual_seed(2)
    assert same(call(), first)


@pytest.mark.parametrize("name", NAMES)
def test_tensors_on_another_device_are_refused(name):
    call = make_call(name)
    for key, value in call.tensors().items():
        if key in ("draft_to_target_ids", "target_to_draft_ids", "seeds", "cu_num_draft_tokens"):
            with pytest.raises(Exception, match=f"{op_of(name)}: {key} must be"):
                call(**{key: value.to("meta")})


# Inductor imports a part of torch that uses what torch itself has deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_all_ops_compile_without_a_graph_break():
    calls = [make_call(name, vocab_size=17) for name in NAMES]

    def everything(arguments):
        results = []
        for call, changed in zip(calls, arguments, strict=True):
            results += call(**changed)
        return results

    arguments = [call.tensors() for call in calls]
    compiled = torch.compile(everything, fullgraph=True, backend="inductor")
    assert same(compiled(arguments), everything(arguments))


def test_compiled_ops_take_batches_of_any_size():
    """From the second size on, sizes are symbols: nothing in a wrapper may need their numbers."""
    shared = torch.arange(17, dtype=torch.int32)

    def loop(target, draft, seeds, positions, temperature, length):
        drawn = ops.draft_sample(draft, shared, temperature=temperature, seeds=seeds, positions=positions)
        cu = torch.arange(seeds.shape[0] + 1, dtype=torch.int32) * length
        out = ops.rejection_sample(
            target, drawn.target_token_ids, cu, 1, draft_logits=draft, seeds=seeds, positions=positions
        )
        overlap = ops.acceptance_overlap(draft, draft, temperature=temperature)
        return drawn.probs, out.output_token_ids, ops.remap_probs(draft, shared, 20), overlap

    compiled = torch.compile(loop, fullgraph=True, backend="eager")
    generator = torch.Generator().manual_seed(3)
    for batch_size in (4, 5, 7):
        target = torch.randn(2 * batch_size, 17, generator=generator)
        draft = torch.randn(batch_size, 17, generator=generator)
        seeds = torch.arange(batch_size)
        arguments = (target, draft, seeds, seeds + 5, torch.rand(batch_size, generator=generator) + 0.1, 1)
        for got, expected in zip(compiled(*arguments), loop(*arguments), strict=True):
            assert torch.equal(got, expected)
