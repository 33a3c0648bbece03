# SPDX-License-Identifier: Apache-2.0
"""Results in tensors of the caller: the argument `out`, and the overloads `torch.ops.hetero_spec.<op>.out`."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.tools.calls import NAMES, make_call
from tests.tools.inputs import DTYPES

WITH_OUT = [name for name in NAMES if "out" in getattr(torch.ops.hetero_spec, name.partition("/")[0]).overloads()]


def filled(results):
    """Tensors like the results, of the same kind, that hold none of them."""
    return type(results)(*(torch.full_like(tensor, 77) for tensor in results))


def same(one, other):
    return all(torch.equal(a.nan_to_num(123.0), b.nan_to_num(123.0)) for a, b in zip(one, other, strict=True))


def results_of(name, **changes):
    call = make_call(name, **changes)
    return call, call.function(**call.arguments)


class Recorder(TorchDispatchMode):
    """Keeps the calls of .out overloads with their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.overload_name == "out":
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def recorded_call(call, expected):
    """(overload, arguments, results by name) that a call with `out` comes down to."""
    with Recorder() as recorder:
        call.function(**call.arguments, out=filled(expected))
    (recorded,) = recorder.calls
    return recorded


def test_the_hot_ops_have_it():
    assert {name.partition("/")[0] for name in WITH_OUT} == {
        "draft_sample",
        "rejection_sample",
        "rejection_sample_probs",
    }


@pytest.mark.parametrize("vocab_size", [17, 9001])
@pytest.mark.parametrize("name", WITH_OUT)
def test_results_land_in_the_tensors_given(name, vocab_size):
    call, expected = results_of(name, vocab_size=vocab_size)
    out = filled(expected)
    assert not any(torch.equal(a, b) for a, b in zip(out, expected, strict=True) if a.numel())
    assert call.function(**call.arguments, out=out) is out
    assert same(out, expected)


@pytest.mark.parametrize("name", WITH_OUT)
def test_nothing_else_is_written(name):
    """Neighbours of the results in one allocation, as an engine keeps them, stay as they are."""
    call, expected = results_of(name)
    buffers = [torch.full((tensor.shape[0] + 2, *tensor.shape[1:]), 77, dtype=tensor.dtype) for tensor in expected]
    call.function(
        **call.arguments,
        out=type(expected)(*(buffer[1 : 1 + len(tensor)] for buffer, tensor in zip(buffers, expected, strict=True))),
    )
    for buffer, tensor in zip(buffers, expected, strict=True):
        assert same([buffer[1 : 1 + len(tensor)]], [tensor])
        assert (buffer[0] == 77).all() and (buffer[1 + len(tensor)] == 77).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", WITH_OUT)
def test_opcheck_passes(name, dtype):
    call, expected = results_of(name, dtype=dtype, vocab_size=17)
    overload, args, kwargs = recorded_call(call, expected)
    torch.library.opcheck(overload, args, kwargs)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiles_without_a_graph_break():
    cases = [results_of(name, vocab_size=17) for name in WITH_OUT]

    def everything(arguments, outs):
        return [
            tensor + 0
            for (call, _), changed, out in zip(cases, arguments, outs, strict=True)
            for tensor in call.function(**{**call.arguments, **changed}, out=out)
        ]

    arguments = [call.tensors() for call, _ in cases]
    outs = [filled(expected) for _, expected in cases]
    returned = torch.compile(everything, fullgraph=True)(arguments, outs)
    for out, (_, expected) in zip(outs, cases, strict=True):
        assert same(out, expected)
    assert same(returned, [tensor for out in outs for tensor in out])


@pytest.mark.parametrize("name", WITH_OUT)
def test_tensors_that_do_not_fit_are_named_before_anything_is_written(name):
    call, expected = results_of(name)
    for field, tensor in expected._asdict().items():
        for error, wrong in (
            (TypeError, tensor.double()),
            (TypeError, None),
            (ValueError, torch.cat([tensor, tensor[:1]]) if len(tensor) else tensor.new_zeros(1)),
            (ValueError, tensor.new_zeros((2 * len(tensor), *tensor.shape[1:]))[::2]),
            (ValueError, tensor.to("meta")),
        ):
            if wrong is not None and wrong.numel() == 0 == tensor.numel() and wrong.device == tensor.device:
                continue  # nothing of nothing is contiguous
            out = filled(expected)
            with pytest.raises(error, match=rf"^{name.partition('/')[0]}: out\.{field} must be"):
                call.function(**call.arguments, out=out._replace(**{field: wrong}))
            assert all((tensor == 77).all() for tensor in out)
    with pytest.raises(TypeError, match="out must be a"):
        call.function(**call.arguments, out=tuple(expected))


@pytest.mark.parametrize("name", WITH_OUT)
def test_the_overload_checks_what_it_is_given(name):
    """Whoever calls torch.ops directly is held to the same shapes."""
    call, expected = results_of(name)
    overload, args, _ = recorded_call(call, expected)
    for field, tensor in expected._asdict().items():
        wrong = filled(expected)._replace(**{field: torch.zeros(3 + len(tensor), 9, dtype=torch.int32)})
        with pytest.raises(RuntimeError, match=rf"{name.partition('/')[0]}: {field} must be"):
            overload(*args, **wrong._asdict())


def test_results_of_logits_that_require_a_gradient():
    call, expected = results_of("rejection_sample_probs/token", vocab_size=17)
    arguments = {**call.arguments, "target_probs": call.arguments["target_probs"].requires_grad_()}
    assert same(call.function(**arguments, out=filled(expected)), expected)


def test_an_empty_batch_writes_nothing():
    for name in WITH_OUT:
        call, expected = results_of(name, batch_size=0)
        assert call.function(**call.arguments, out=filled(expected))[0].shape[0] == 0
