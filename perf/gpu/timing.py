# SPDX-License-Identifier: Apache-2.0
"""Times of one call on a GPU: replays of a captured graph between two events, behind a flush of the cache.

A graph leaves out what Python and launches cost, for every way alike. A way that can't be captured is timed as it is
called, which its entry says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_FLUSH_BYTES = 256 << 20  # several times the last-level cache
_SECONDS_A_WAY = 0.06
_LEAST, _MOST = 5, 60


def summary(seconds: list[float]) -> dict[str, Any]:
    """Median, 20th and 80th percentile in microseconds."""
    low, median, high = np.percentile(np.asarray(seconds) * 1e6, [20, 50, 80])
    return {
        "median_us": round(float(median), 2),
        "p20_us": round(float(low), 2),
        "p80_us": round(float(high), 2),
        "repeats": len(seconds),
    }


class Timer:
    """Times calls on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flush = torch.empty(_FLUSH_BYTES if device.type == "cuda" else 1, dtype=torch.uint8, device=device)

    def _capture(self, way: Callable[[], Any]) -> Callable[[], Any] | None:
        """The way as a graph's replay, or None."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                way()
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        return graph.replay

    def _on_gpu(self, way: Callable[[], Any]) -> tuple[list[float], bool]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                way()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        replay = self._capture(way)
        call = replay or way
        seconds: list[float] = []
        spent, repeats = 0.0, _LEAST
        while len(seconds) < repeats:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self._flush.zero_()
            events[0].record()
            call()
            events[1].record()
            torch.cuda.synchronize()
            seconds.append(events[0].elapsed_time(events[1]) / 1e3)
            spent += seconds[-1]
            if len(seconds) == _LEAST:
                repeats = int(np.clip(_SECONDS_A_WAY / (spent / _LEAST), _LEAST, _MOST))
        return seconds, replay is not None

    def _on_cpu(self, way: Callable[[], Any]) -> list[float]:
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - start)
        return seconds

    def __call__(self, way: Callable[[], Any]) -> dict[str, Any]:
        """Times of a way, and whether they are of a graph."""
        if self.device.type != "cuda":
            return {**summary(self._on_cpu(way)), "is_graph": False}
        seconds, is_graph = self._on_gpu(way)
        return {**summary(seconds), "is_graph": is_graph}

    def copy_of(self, num_bytes: int) -> dict[str, Any]:
        """Time of copying so many bytes on the device: as many are read as written."""
        source = torch.empty(num_bytes, dtype=torch.uint8, device=self.device).random_()
        target = torch.empty_like(source)
        return self(lambda: target.copy_(source))

    def copy_bandwidth_gb_s(self) -> float:
        """Bytes read and written in a large copy, in 10^9 a second."""
        num_bytes = 2 << 30 if self.device.type == "cuda" else 1 << 20
        return float(2 * num_bytes / self.copy_of(num_bytes)["median_us"] / 1e3)
