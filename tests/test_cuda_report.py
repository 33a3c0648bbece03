# SPDX-License-Identifier: Apache-2.0
"""The gate on what nvcc made of the kernels: its parser on text like cuobjdump's, and the committed table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools import cuda_report
from tools.cuda_report import Kernel, parse_code, parse_usage

ROOT = Path(__file__).resolve().parent.parent

USAGE = """
Fatbin elf code:
================
arch = {arch}
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
 Function _Z4rowsPKt:
  REG:64 STACK:{stack} SHARED:1072 LOCAL:0 CONSTANT[0]:528 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
HEAD = """
arch = {arch}
	code for {arch}
		Function : _Z4rowsPKt
	.headerflags	@"EF_CUDA_SM80"
"""
# Of each instruction the second line holds the rest of its encoding.
LINE = "        /*{at:04x}*/                   {code} ;          /* 0x0a00ff01 */\n{blank}/* 0x000fe400078e00ff */\n"
WIDE = "LDG.E.128.CONSTANT R4, desc[UR4][R2.64+0x200]"
NARROW = "@!P0 LDG.E.U16.CONSTANT R9, desc[UR4][R2.64]"
TO_START = "@P0 BRA 0x0"
END = "BRA {at:#x}"  # the branch to itself behind a kernel


def kernel_of(*instructions: str, arch: str = "sm_90", stack: int = 0) -> Kernel:
    code = HEAD.format(arch=arch)
    for number, instruction in enumerate([*instructions, "EXIT", END]):
        at = 16 * number
        code += LINE.format(at=at, code=instruction.format(at=at), blank=" " * 90)
    kernels = parse_usage(USAGE.format(arch=arch, stack=stack).splitlines())
    parse_code(code.splitlines(), kernels)
    return kernels["_Z4rowsPKt", arch]


def test_usage_is_read():
    kernel = kernel_of(WIDE, WIDE, TO_START, stack=16)
    assert (kernel.arch, kernel.registers, kernel.shared_bytes, kernel.stack_bytes) == ("sm_90", 64, 1072, 16)


def test_two_wide_loads_in_a_loop_pass():
    kernel = kernel_of("MOV R1, c[0x0][0x28]", WIDE, WIDE, TO_START)
    assert (kernel.wide_loads, kernel.streaming_loops, kernel.wide_loads_a_loop) == (2, 1, 2)
    assert kernel.faults() == []


@pytest.mark.parametrize("spelling", ["LDG.E.128 R4, [R2.64]", "LDG.E.EF.128 R4, [R2.64]", "@P1 " + WIDE])
def test_every_spelling_of_a_wide_load_counts(spelling):
    assert kernel_of(spelling, spelling, TO_START).faults() == []


@pytest.mark.parametrize(
    "instructions",
    [
        (WIDE, WIDE),  # no loop
        (TO_START, WIDE, WIDE),  # behind it
        (WIDE, TO_START),  # one at a time
        ("LDG.E.64 R4, [R2.64]", "LDG.E R4, [R2.64]", TO_START),
        ("LDS.128 R4, [R2]", "LDS.128 R4, [R2]", TO_START),
    ],
)
def test_rows_that_are_not_streamed_by_16_bytes_are_faults(instructions):
    (fault,) = kernel_of(*instructions).faults()
    assert "must read rows by 16 bytes" in fault and "for sm_90" in fault


def test_a_loop_that_reads_logits_one_by_one_is_a_fault_beside_one_that_does_not():
    scalar = [NARROW] * cuda_report.MANY_NARROW_LOADS
    assert kernel_of(WIDE, WIDE, *scalar, TO_START).faults() == []  # the end of a row
    (fault,) = kernel_of(WIDE, WIDE, TO_START, *scalar, "@P1 BRA 0x30").faults()
    assert "one by one" in fault


def test_only_innermost_loops_count():
    scalar = [NARROW] * cuda_report.MANY_NARROW_LOADS
    kernel = kernel_of(WIDE, WIDE, *scalar, f"@P1 BRA {0x20:#x}", "@P2 BRA 0x0")
    assert kernel.streaming_loops == 0 and len(kernel.faults()) == 2


@pytest.mark.parametrize("instruction", ["LDL R1, [R2]", "STL.64 [R1+0x8], R4", "@P3 LDL.LU.64 R4, [R1]"])
def test_local_memory_is_a_fault(instruction):
    (fault,) = kernel_of(WIDE, WIDE, instruction, TO_START).faults()
    assert "spills" in fault


def test_a_stack_frame_is_a_fault():
    (fault,) = kernel_of(WIDE, WIDE, TO_START, stack=8).faults()
    assert "8 bytes of stack" in fault


def test_kernels_that_stream_no_rows_need_no_wide_loads_but_may_not_spill():
    kernel = kernel_of(NARROW, TO_START)
    kernel.name = f"{next(iter(cuda_report.NOT_STREAMING))}<256>"
    assert kernel.faults() == []
    kernel.stack_bytes = 4
    assert len(kernel.faults()) == 1


def test_one_instance_of_a_kernel_can_be_left_out() -> None:
    assert Kernel("overlap_kernel<float, 0>", "sm_90").streams_rows
    assert not Kernel("overlap_kernel<float, 1>", "sm_90").streams_rows


def test_blocks_that_fit_are_the_least_of_the_limits():
    assert Kernel("k", "sm_90", registers=64).blocks_per_multiprocessor == 4
    assert Kernel("k", "sm_90", registers=65).blocks_per_multiprocessor == 3
    assert Kernel("k", "sm_120", registers=12).blocks_per_multiprocessor == 6
    assert Kernel("k", "sm_80", registers=12, shared_bytes=100 << 10).blocks_per_multiprocessor == 1


def test_names_lose_namespace_result_and_parameters():
    (name,) = cuda_report.demangle(["_ZN11hetero_spec14overlap_kernelI13__nv_bfloat16EEvNS_16OverlapArgumentsE"])
    assert name == "overlap_kernel<bfloat16>"


# -- the committed table


def committed() -> list[Kernel]:
    rows = json.loads(cuda_report.OUTPUT.with_suffix(".json").read_text())["kernels"]
    return [Kernel(**{key: value for key, value in row.items() if key in Kernel.__dataclass_fields__}) for row in rows]


def test_committed_table_has_every_kernel_for_every_architecture_and_no_fault():
    kernels = committed()
    assert [fault for kernel in kernels for fault in kernel.faults()] == []
    sources = [path.read_text() for path in (ROOT / "csrc").rglob("*.cuh") if "simt" not in path.parts]
    declared = {name for text in sources for name in re.findall(r"__global__ void[^;{]*?(\w+_kernel)\(", text)}
    assert {kernel.base_name for kernel in kernels} == declared, "make cuda writes the table"
    archs = {kernel.arch for kernel in kernels}
    assert archs >= {"sm_80", "sm_90", "sm_100", "sm_120"}
    assert len(kernels) == len(archs) * len({kernel.name for kernel in kernels})
