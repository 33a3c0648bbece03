# SPDX-License-Identifier: Apache-2.0
"""What the device compiler made of the CUDA kernels: registers, shared memory, spills, width of loads.

    python -m tools.cuda_report [BUILD]    # a build folder (default build/cuda, as `make cuda` leaves it) or an object

Reads the machine code of every kernel for every architecture (cuobjdump, of a toolkit or of the package
nvidia-cuda-cuobjdump), writes perf/cuda_resources.md and .json, and exits with 1 where

* a kernel spills: it has a stack frame, or loads or stores of local memory;
* a kernel that reads vocabulary rows does not stream them by 16 bytes: no innermost loop has two 128-bit loads of
  global memory, or one has many 16-bit loads (logits one by one) and not these.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "perf" / "cuda_resources"

# Every kernel streams rows of a vocabulary, but for these: names, or patterns of names with their template arguments. A
# new kernel is held to the rule unless it is here.
NOT_STREAMING = {
    "invert_map_kernel": "one thread an id of the map",
    "mask_from_map_kernel": "one thread an id of the map",
    "mask_from_inverse_map_kernel": "one thread an id of the map",
    "remap_write_kernel": "writes in order, and reads each logit where the map says",
    "leaked_mass_kernel": "reads each logit where the map says, and the leaks of the kernel beside it",
    "overlap_leaked_mass_kernel": "the same",
    "overlap_kernel<*, 1>": "the same for every id, one pack of the target's row at a time",
    "overlap_kernel<*, 2>": "one lane a factor for the weights, and one pack of the target's row at a time",
    "redistribute_kernel": "the same, for the token drawn",
    "rdk_leaked_kernel": "float32 laws that are there already, four bytes a lane",
    "rdk_mix_kernel": "the same, one thread an id",
    "low_rank_parts_kernel": "one thread a factor, and a law that is read where the map says",
    "low_rank_masses_kernel": "one lane a factor",
    "low_rank_totals_kernel": "a number for each chunk",
    "low_rank_probs_kernel": "one lane a factor, of one id",
    "low_rank_draw_kernel": "one lane a factor, of one chunk",
    "rdk_finish_kernel": "float32 laws that are there already, four bytes a lane",
}
LEAST_WIDE_LOADS = 2  # in a loop: so many are in flight together, or latency is not hidden
# A pack of logits read one by one, as a row's end may be (with wide loads beside it in the same loop). Fewer are single
# logits, such as a draft token's, in code that the compiler has moved inside a loop's addresses.
MANY_NARROW_LOADS = 8
THREADS_PER_BLOCK = 256
# Registers, threads and bytes of shared memory of one multiprocessor.
LIMITS = {
    "sm_80": (65536, 2048, 164 << 10),
    "sm_90": (65536, 2048, 228 << 10),
    "sm_100": (65536, 2048, 228 << 10),
    "sm_120": (65536, 1536, 100 << 10),
}


@dataclass
class Kernel:
    """One kernel, instantiated and compiled for one architecture."""

    name: str  # with its template arguments, as C++ spells them
    arch: str
    registers: int = 0
    shared_bytes: int = 0  # static; what the system reserves included
    stack_bytes: int = 0
    local_bytes: int = 0
    local_accesses: int = 0  # instructions that load or store local memory
    wide_loads: int = 0  # 128-bit loads of global memory
    streaming_loops: int = 0  # innermost loops with at least LEAST_WIDE_LOADS of them
    wide_loads_a_loop: int = 0  # the least of any streaming loop
    narrow_loops: int = 0  # innermost loops that read logits one by one

    @property
    def base_name(self) -> str:
        return self.name.partition("<")[0]

    @property
    def streams_rows(self) -> bool:
        """Whether the rule about wide loads holds for it."""
        return not any(self.base_name == key or fnmatchcase(self.name, key) for key in NOT_STREAMING)

    @property
    def blocks_per_multiprocessor(self) -> int:
        """Blocks of THREADS_PER_BLOCK that fit; 0 for an architecture that is not listed."""
        if self.arch not in LIMITS:
            return 0
        registers, threads, shared = LIMITS[self.arch]
        by_registers = registers // (-(-max(self.registers, 1) // 8) * 8 * THREADS_PER_BLOCK)
        by_shared = shared // self.shared_bytes if self.shared_bytes else threads
        return min(by_registers, threads // THREADS_PER_BLOCK, by_shared)

    def faults(self) -> list[str]:
        """What the gate has against it, in words."""
        where = f"{self.name} for {self.arch}"
        found = []
        if self.stack_bytes or self.local_bytes or self.local_accesses:
            found.append(
                f"{where} spills: {self.stack_bytes} bytes of stack, {self.local_bytes} of local memory, "
                f"{self.local_accesses} instructions"
            )
        if not self.streams_rows:
            return found
        if self.streaming_loops == 0:
            found.append(
                f"{where} must read rows by 16 bytes: of {self.wide_loads} 128-bit loads "
                f"no {LEAST_WIDE_LOADS} lie in one innermost loop"
            )
        if self.narrow_loops:
            found.append(f"{where} must read rows by 16 bytes: {self.narrow_loops} loops read 16-bit logits one by one")
        return found


_ARCH = re.compile(r"^arch = (\w+)")
_FUNCTION = re.compile(r"^\s*Function\s*:?\s+([\w.$]+?):?\s*$")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
_WIDE_LOAD = re.compile(r"LDG\.(?:\w+\.)*128\b")
_NARROW_LOAD = re.compile(r"LDG?\.(?:\w+\.)*[US]16\b")
_LOCAL = re.compile(r"(LDL|STL)\b")
_TARGET = re.compile(r"0x([0-9a-f]+)\s*$")


def parse_usage(lines: Iterable[str]) -> dict[tuple[str, str], Kernel]:
    """Kernels by (mangled name, architecture), from the text of `cuobjdump --dump-resource-usage`."""
    kernels: dict[tuple[str, str], Kernel] = {}
    arch = name = ""
    for line in lines:
        if found := _ARCH.match(line):
            arch = found[1]
        elif found := _FUNCTION.match(line):
            name = found[1]
        elif found := _USAGE.search(line):
            registers, stack, shared, local = map(int, found.groups())
            kernels[name, arch] = Kernel(name, arch, registers, shared, stack, local)
    return kernels


class _Body:
    """Addresses of a kernel that matter here."""

    def __init__(self) -> None:
        self.wide: list[int] = []
        self.narrow: list[int] = []
        self.loops: set[tuple[int, int]] = set()  # (first, last): a branch back ends a loop

    def add_branch(self, address: int, target: int) -> None:
        if target < address:  # a kernel ends with a branch to itself, which is no loop
            self.loops.add((target, address))

    def innermost(self) -> list[tuple[int, int]]:
        def holds(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
            return outer != inner and outer[0] <= inner[0] and inner[1] <= outer[1]

        return [loop for loop in self.loops if not any(holds(loop, other) for other in self.loops)]

    def count_into(self, kernel: Kernel) -> None:
        def within(addresses: list[int], loop: tuple[int, int]) -> int:
            return sum(loop[0] <= address <= loop[1] for address in addresses)

        counts = [(within(self.wide, loop), within(self.narrow, loop)) for loop in self.innermost()]
        streaming = [wide for wide, _ in counts if wide >= LEAST_WIDE_LOADS]
        kernel.wide_loads = len(self.wide)
        kernel.streaming_loops = len(streaming)
        kernel.wide_loads_a_loop = min(streaming, default=0)
        kernel.narrow_loops = sum(wide < LEAST_WIDE_LOADS and narrow >= MANY_NARROW_LOADS for wide, narrow in counts)


def parse_code(lines: Iterable[str], kernels: dict[tuple[str, str], Kernel]) -> None:
    """Fill in what the instructions show, from the text of `cuobjdump --dump-sass`."""
    kernel: Kernel | None = None
    body = _Body()
    arch = ""
    for line in lines:
        if found := _INSTRUCTION.match(line):
            if kernel is None:
                continue
            address, opcode, operands = int(found[1], 16), found[2], found[3]
            if _WIDE_LOAD.match(opcode):
                body.wide.append(address)
            elif _NARROW_LOAD.match(opcode):
                body.narrow.append(address)
            elif _LOCAL.match(opcode):
                kernel.local_accesses += 1
            elif opcode.partition(".")[0] == "BRA" and (target := _TARGET.search(operands)):
                body.add_branch(address, int(target[1], 16))
        elif found := _ARCH.match(line):
            arch = found[1]
        elif found := _FUNCTION.match(line):
            if kernel is not None:
                body.count_into(kernel)
            body = _Body()
            kernel = kernels.get((found[1], arch))
            if kernel is not None:
                kernel.local_accesses = 0  # a template compiled in two files comes twice
    if kernel is not None:
        body.count_into(kernel)


def demangle(names: list[str]) -> list[str]:
    """C++ names without the namespace, the result and the parameters; unchanged where there is no c++filt."""
    filt = shutil.which("c++filt")
    if filt is None or not names:
        return names
    done = subprocess.run([filt], input="\n".join(names), capture_output=True, text=True, check=True)
    out = []
    for name in done.stdout.splitlines():
        short = name.replace("(anonymous namespace)::", "").replace("hetero_spec::", "").partition("(")[0]
        out.append(short.removeprefix("void ").replace("__nv_bfloat16", "bfloat16").replace("__half", "half"))
    return out


def _tools() -> dict[str, str]:
    """The environment in which cuobjdump and nvdisasm are found."""
    packaged = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
    path = os.pathsep.join([os.environ.get("PATH", ""), str(packaged)])
    missing = [name for name in ("cuobjdump", "nvdisasm") if shutil.which(name, path=path) is None]
    if missing:
        raise SystemExit(
            f"cuda_report: {' and '.join(missing)} not found; "
            f"pip install --no-deps --constraint constraints.txt nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
        )
    return {**os.environ, "PATH": path}


def read_library(library: Path) -> list[Kernel]:
    """Every kernel of an object, archive or module, sorted by name and architecture."""
    environment = _tools()

    def lines(option: str) -> Iterable[str]:
        command = ["cuobjdump", option, str(library)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield from process.stdout
        if process.returncode != 0:
            raise SystemExit(f"cuda_report: {' '.join(command)} failed with exit status {process.returncode}")

    kernels = parse_usage(lines("--dump-resource-usage"))
    parse_code(lines("--dump-sass"), kernels)
    mangled = sorted({name for name, _ in kernels})
    readable = dict(zip(mangled, demangle(mangled), strict=True))
    for kernel in kernels.values():
        kernel.name = readable[kernel.name]
    return sorted(kernels.values(), key=lambda kernel: (kernel.name, _number(kernel.arch)))


def _number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def compiler_of(build: Path) -> str:
    """The version of nvcc that a CMake build folder was configured with."""
    for path in sorted(build.glob("CMakeFiles/*/CMakeCUDACompiler.cmake")):
        if found := re.search(r'CMAKE_CUDA_COMPILER_VERSION "([\d.]+)"', path.read_text()):
            return found[1]
    return "unknown"


def markdown(kernels: list[Kernel], compiler: str) -> str:
    """The table: one row a kernel, architectures side by side."""
    archs = sorted({kernel.arch for kernel in kernels}, key=_number)
    lines = [
        "# What nvcc made of the kernels",
        "",
        f"Written by `make cuda` (nvcc {compiler}), which fails if a kernel spills or does not stream vocabulary",
        f"rows by 128-bit loads. Registers a thread, and in brackets how many blocks of {THREADS_PER_BLOCK} threads",
        f"fit on a multiprocessor. Shared memory as on {archs[0]}, in bytes (from sm_90 on the system adds 1 KiB).",
        "Spilled: bytes of stack and local memory, the most of any architecture. Streaming: innermost loops with two",
        "or more 128-bit loads of global memory x the least number of such loads in one, over all architectures; -",
        "where a kernel streams no rows.",
        "",
        "| kernel | " + " | ".join(archs) + " | shared | spilled | streaming |",
        "|---" * (len(archs) + 4) + "|",
    ]
    names = sorted({kernel.name for kernel in kernels})
    for name in names:
        of_arch = {kernel.arch: kernel for kernel in kernels if kernel.name == name}
        cells = []
        for arch in archs:
            kernel = of_arch.get(arch)
            cells.append("" if kernel is None else f"{kernel.registers} ({kernel.blocks_per_multiprocessor})")
        some = next(iter(of_arch.values()))
        spilled = max(kernel.stack_bytes + kernel.local_bytes for kernel in of_arch.values())
        loops, loads = (
            min(getattr(kernel, key) for kernel in of_arch.values()) for key in ("streaming_loops", "wide_loads_a_loop")
        )
        shown = "-" if not some.streams_rows else f"{loops} x {loads}"
        lines.append(f"| `{name}` | " + " | ".join(cells) + f" | {some.shared_bytes} | {spilled} | {shown} |")
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text)
    os.replace(unfinished, path)


def main(arguments: list[str] | None = None) -> int:
    """Write the table, print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "build", nargs="?", type=Path, default=ROOT / "build" / "cuda", help="folder, or an object file"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="without its suffix")
    options = parser.parse_args(arguments)
    library = options.build / "libhetero_spec_cuda.a" if options.build.is_dir() else options.build
    if not library.exists():
        raise SystemExit(f"cuda_report: {library} not found; `make cuda` builds it")
    kernels = read_library(library)
    if not kernels:
        raise SystemExit(f"cuda_report: {library} holds no kernel")
    compiler = compiler_of(options.build)
    rows = [{**asdict(kernel), "blocks_per_multiprocessor": kernel.blocks_per_multiprocessor} for kernel in kernels]
    _write(options.output.with_suffix(".json"), json.dumps({"nvcc": compiler, "kernels": rows}, indent=1) + "\n")
    _write(options.output.with_suffix(".md"), markdown(kernels, compiler))
    faults = [fault for kernel in kernels for fault in kernel.faults()]
    for fault in faults:
        print(fault, file=sys.stderr)
    archs = sorted({kernel.arch for kernel in kernels}, key=_number)
    print(
        f"{len({kernel.name for kernel in kernels})} kernels for {', '.join(archs)}: at most "
        f"{max(kernel.registers for kernel in kernels)} registers, {len(faults)} faults; "
        f"{os.path.relpath(options.output.with_suffix('.md'))}"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
