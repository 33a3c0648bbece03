# SPDX-License-Identifier: Apache-2.0
"""Results in tensors of the caller: the argument `out`, and the overloads `torch.ops.hetero_spec.<op>.out`."""

import re

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.tools.calls import NAMES, make_call


def op_of(name):
    return re.split("[/+]", name)[0]


WITH_OUT = [name for name in NAMES if "out" in getattr(torch.ops.hetero_spec, op_of(name)).overloads()]


def filled(results):
    """Tensors like the results, of the same kind, that hold none of them."""
    return type(results)(*(None if tensor is None else torch.full_like(tensor, 77) for tensor in results))


def tensors(results):
    return [tensor for tensor in results if tensor is not None]


def same(one, other):
    pairs = zip(tensors(one), tensors(other), strict=True)
    return all(torch.equal(a.nan_to_num(123.0), b.nan_to_num(123.0)) for a, b in pairs)


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
    assert {op_of(name) for name in WITH_OUT} == {
        "draft_sample",
        "rejection_sample",
        "rejection_sample_probs",
    }


@pytest.mark.parametrize("vocab_size", [17, 9001])
@pytest.mark.parametrize("name", WITH_OUT)
def test_results_land_in_the_tensors_given(name, vocab_size):
    call, expected = results_of(name, vocab_size=vocab_size)
    out = filled(expected)
    assert not any(torch.equal(a, b) for a, b in zip(tensors(out), tensors(expected), strict=True))
    assert call.function(**call.arguments, out=out) is out
    assert same(out, expected)


@pytest.mark.parametrize("name", WITH_OUT)
def test_nothing_else_is_written(name):
    """Neighbours of the results in one allocation, as an engine keeps them, stay as they are."""
    call, expected = results_of(name)
    results = tensors(expected)
    buffers = [torch.full((tensor.shape[0] + 2, *tensor.shape[1:]), 77, dtype=tensor.dtype) for tensor in results]
    inner = [buffer[1 : 1 + len(tensor)] for buffer, tensor in zip(buffers, results, strict=True)]
    call.function(**call.arguments, out=type(expected)(*inner))
    for buffer, tensor in zip(buffers, results, strict=True):
        assert same([buffer[1 : 1 + len(tensor)]], [tensor])
        assert (buffer[0] == 77).all() and (buffer[1 + len(tensor)] == 77).all()


@pytest.mark.parametrize("name", WITH_OUT)
def test_opcheck_passes(name):
    call, expected = results_of(name, vocab_size=17)
    overload, args, kwargs = recorded_call(call, expected)
    torch.library.opcheck(overload, args, kwargs)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiles_without_a_graph_break():
    cases = [results_of(name, vocab_size=17) for name in WITH_OUT]

    def everything(arguments, outs):
        return [
            tensor + 0
            for (call, _), changed, out in zip(cases, arguments, outs, strict=True)
            for tensor in tensors(call.function(**{**call.arguments, **changed}, out=out))
        ]

    arguments = [call.tensors() for call, _ in cases]
    outs = [filled(expected) for _, expected in cases]
    returned = torch.compile(everything, fullgraph=True, backend="aot_eager")(arguments, outs)
    for out, (_, expected) in zip(outs, cases, strict=True):
        assert same(out, expected)
    assert same(returned, [tensor for out in outs for tensor in tensors(out)])


@pytest.mark.parametrize("name", WITH_OUT)
def test_tensors_that_do_not_fit_are_named_before_anything_is_written(name):
    call, expected = results_of(name)
    for field, tensor in expected._asdict().items():
        if tensor is None:
            wrongs = [(ValueError, torch.zeros(4))]
        else:
            wrongs = [
                (TypeError, tensor.double()),
                (TypeError, None),
                (ValueError, torch.cat([tensor, tensor[:1]])),
                (ValueError, tensor.new_zeros((2 * len(tensor), *tensor.shape[1:]))[::2]),
                (ValueError, tensor.to("meta")),
            ]
        for error, wrong in wrongs:
            out = filled(expected)
            with pytest.raises(error, match=rf"^{op_of(name)}: out\.{field} must be"):
                call.function(**call.arguments, out=out._replace(**{field: wrong}))
            assert all((tensor == 77).all() for tensor in tensors(out))
    with pytest.raises(TypeError, match="out must be a"):
        call.function(**call.arguments, out=tuple(expected))


@pytest.mark.parametrize("name", WITH_OUT)
def test_the_overload_checks_what_it_is_given(name):
    """Whoever calls torch.ops directly is held to the same shapes."""
    call, expected = results_of(name)
    overload, args, _ = recorded_call(call, expected)
    for field, tensor in expected._asdict().items():
        if tensor is None:
            continue
        wrong = filled(expected)._replace(**{field: torch.zeros(3 + len(tensor), 9, dtype=torch.int32)})
        with pytest.raises(RuntimeError, match=rf"{op_of(name)}: {field} must be"):
            overload(*args, **wrong._asdict())


def test_results_of_logits_that_require_a_gradient():
    call, expected = results_of("rejection_sample_probs/token", vocab_size=17)
    arguments = {**call.arguments, "target_probs": call.arguments["target_probs"].requires_grad_()}
    assert same(call.function(**arguments, out=filled(expected)), expected)


def test_an_empty_batch_writes_nothing():
    for name in WITH_OUT:
        call, expected = results_of(name, batch_size=0)
        assert call.function(**call.arguments, out=filled(expected))[0].shape[0] == 0
