# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs, streams and waiting: what only a GPU shows. The loop itself is tested on the CPU too."""

from __future__ import annotations

import pytest
import torch

from hetero_spec import ops
from tests.gpu.decode_loop import DecodeLoop, Parameters

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
STEPS = 12
SETTINGS: dict[str, Parameters] = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "truncated": {"temperature": 0.9, "top_k": 50, "top_p": 0.9, "min_p": 0.01},
    "greedy": {"temperature": 0.0},
}


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_text_grows_by_what_is_emitted_and_drafts_are_kept_and_rejected(setting: str, rule: str) -> None:
    loop = DecodeLoop(CPU, parameters=SETTINGS[setting], rule=rule)
    texts, positions = loop.run(STEPS)
    assert [len(text) for text in texts] == positions
    assert all(STEPS < length < STEPS * (loop.max_draft_tokens + 1) for length in positions)
    assert loop.status.count_nonzero() == 0


@pytest.mark.parametrize("setting", ["plain", "greedy"])
def test_a_restored_loop_gives_the_same_text_again(setting: str) -> None:
    loop = DecodeLoop(CPU, parameters=SETTINGS[setting])
    before = tuple(tensor.clone() for tensor in loop.state())
    first = loop.run(STEPS)
    loop.restore(before)
    assert loop.run(STEPS) == first


@needs_gpu
@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_replays_of_a_graph_give_the_text_of_calls_and_of_the_cpu(setting: str, rule: str) -> None:
    loop = DecodeLoop(CUDA, parameters=SETTINGS[setting], rule=rule)
    start = tuple(tensor.clone() for tensor in loop.state())
    called = loop.run(STEPS)
    # float32 rounding may decide one uniform in thousands differently; a text differs from there on.
    on_cpu = DecodeLoop(CPU, parameters=SETTINGS[setting], rule=rule).run(STEPS)
    assert sum(one == other for one, other in zip(called[0], on_cpu[0], strict=True)) >= len(called[0]) - 1

    loop.restore(start)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        loop.step()  # warm up: memory is set aside before the capture
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loop.step()
    loop.restore(start)
    assert loop.run(STEPS, graph.replay) == called
    assert loop.status.count_nonzero().item() == 0


@needs_gpu
def test_no_op_waits_for_the_device() -> None:
    loop = DecodeLoop(CUDA, parameters=SETTINGS["truncated"])
    loop.step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loop.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
def test_ops_run_on_the_current_stream() -> None:
    logits = torch.randn(4, 151936, device="cuda", dtype=torch.bfloat16)
    expected = ops.row_stats(logits)
    stream = torch.cuda.Stream()
    late = torch.empty_like(logits)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # the logits come late: only an op of this stream sees them
        late.copy_(logits)
        stats = ops.row_stats(late)
    stream.synchronize()
    assert torch.equal(stats, expected)


@needs_gpu
def test_many_rows_reach_beyond_32_bits() -> None:
    vocab_size = 262_144
    rows = (1 << 31) // vocab_size + 3
    logits = torch.zeros(rows, vocab_size, device="cuda", dtype=torch.bfloat16)
    logits[-1, 77] = 30.0
    stats = ops.row_stats(logits, temperature=0.0)
    assert stats[-1].tolist()[2] == 77.0 and stats[-2].tolist()[2] == 0.0
