"""Generating facts from headers: the same files through our readers and through tinygrad's generator, in CPU seconds
of fresh processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ringup.autogen.generate.amd.chips import ASIC_REG
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.timing import median

RUNS = 3
OURS = "ringup.tools.bench.ours"
C_MODULES = (  # header, our module, tinygrad's recipe
    ("include/uapi/linux/kfd_ioctl.h", "amd/kfd", "kfd"),
    ("include/uapi/drm/amdgpu_drm.h", "amd/drm", "amdgpu_drm"),
)
UAPI = "include/uapi"
GC = "gc/gc_11_0_0"
TABLES = (  # the blocks of which tinygrad ships register tables
    *(f"gc/gc_{v}" for v in ("9_4_3", "11_0_0", "11_0_3", "11_5_0", "12_0_0")),
    *(f"mmhub/mmhub_{v}" for v in ("1_8_0", "3_0_0", "3_0_1", "3_0_2", "3_3_0", "4_1_0")),
    *(f"nbio/nbio_{v}" for v in ("4_3_0", "7_2_0", "7_7_0", "7_9_0", "7_11_0")),
    "nbif/nbif_6_3_1",
    *(f"mp/mp_{v}" for v in ("11_0", "13_0_0", "14_0_2")),
    *(f"hdp/hdp_{v}" for v in ("4_4_2", "6_0_0", "7_0_0")),
    *(f"oss/osssys_{v}" for v in ("4_4_2", "6_0_0", "6_1_0", "7_0_0")),
    "sdma/sdma_4_4_2",
)
NVIDIA = "nvidia-555"
SDK = "src/common/sdk/nvidia/inc"
UNIX = "src/nvidia/arch/nvalloc/unix/include"
NVIDIA_FIRST = f"{SDK}/nvtypes.h"
NVIDIA_INCLUDE = ("src/common/inc", "kernel-open/nvidia-uvm", "kernel-open/common/inc", SDK, UNIX, f"{SDK}/ctrl")
NVIDIA_FILES = (  # tinygrad's list for release 580, by path below the tree; a release lacks some
    "kernel-open/common/inc/nvmisc.h",
    *(
        f"{SDK}/class/cl{c}.h"
        for c in ("0000", "0070", "0080", "2080", "2080_notification", "c56f", "c86f", "c96f", "c761")
    ),
    *(f"{SDK}/class/cl{c}.h" for c in ("83de", "b2cc", "c6c0", "cdc0")),
    *(f"kernel-open/nvidia-uvm/{name}.h" for name in ("clc6b5", "clc9b5", "clcfb0", "uvm_ioctl", "uvm_linux_ioctl")),
    "kernel-open/nvidia-uvm/hwref/ampere/ga100/dev_fault.h",
    *(
        f"{UNIX}/nv{name}.h"
        for name in ("_escape", "-ioctl", "-ioctl-numbers", "-ioctl-numa", "-unix-nvos-params-wrappers")
    ),
    f"{SDK}/alloc/alloc_channel.h",
    f"{SDK}/nvos.h",
    *(f"{SDK}/ctrl/ctrl{name}.h" for name in ("c36f", "cb33", "a06c", "90f1", "a06f/ctrla06fgpfifo")),
    *(f"{SDK}/ctrl/ctrl{c}/*.h" for c in ("0000", "0080", "2080", "83de", "b0cc")),
    "kernel-open/common/inc/nvstatus.h",
    "src/nvidia/generated/g_allclasses.h",
)
MANIFEST_GOAL_S = 30.0

Answer = Mapping[str, Any]


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure every set of headers with both. Raises `HeaderError` if a header package is missing."""
    linux = bench.sources.root("linux")
    for header, module, recipe in C_MODULES:
        ours = {"task": "c", "module": module, **_places(bench)}
        peer = _c_job(recipe, linux, [linux / header], [f"-I{linux / UAPI}"])
        yield _both(bench, Path(header).name, ours, peer, RUNS)
    asic_reg = linux / ASIC_REG
    for what, ending in (("offsets", "_offset.h"), ("masks", "_sh_mask.h")):
        ours = {"task": "registers", "stems": [str(asic_reg / GC)], "only": ending}
        peer = _c_job("", linux, [asic_reg / f"{GC}{ending}"], [])
        yield _both(bench, f"gc_11_0_0 {what}", ours, peer, RUNS, Goal("ratio", 5))
    yield from _tables(bench, linux)
    yield _nvidia(bench)
    yield _manifest(bench, "the whole manifest, headers", disassembler=False, goal=Goal("ours", MANIFEST_GOAL_S))
    yield _manifest(bench, "instruction facts, by a disassembler", disassembler=True, goal=None)


def _tables(bench: Bench, linux: Path) -> Iterator[Figure]:
    """Measure the tables of `TABLES`: in total and per register, because the two keep different registers."""
    ours = {"task": "registers", "stems": [str(linux / ASIC_REG / stem) for stem in TABLES], "only": ""}
    name = f"{len(TABLES)} AMD register tables"
    mine, theirs = _run(bench, name, ours, {"task": "registers", "root": str(linux)}, RUNS)
    note = f"ours: all {mine[0]['registers']} registers with all fields" + (
        f"; peer: the {theirs[0]['registers']} registers it chose" if theirs else ""
    )
    yield Figure(name, "CPU s", _cpu_s(mine), _cpu_s(theirs) if theirs else None, note=note)
    mine_us = _cpu_s(mine) / mine[0]["registers"] * 1e6
    theirs_us = _cpu_s(theirs) / theirs[0]["registers"] * 1e6 if theirs else None
    yield Figure(f"{name}, for each register", "CPU us", mine_us, theirs_us, Goal("ratio", 5), note=note)


def _nvidia(bench: Bench) -> Figure:
    root = bench.sources.root(NVIDIA)
    files = [path for name in NVIDIA_FILES for path in sorted(root.glob(name))]
    include = [str(root / folder) for folder in NVIDIA_INCLUDE]
    first = str(root / NVIDIA_FIRST)
    ours = {"task": "headers", "files": [str(file) for file in files], "first": [first], "include": include}
    peer = _c_job("nv_580", root, files, ["-include", first, *(f"-I{folder}" for folder in include)])
    name = f"NVIDIA set, {len(files)} headers"
    if bench.quick:
        return _both(
            bench,
            name,
            ours,
            None,
            RUNS,
            Goal("ratio", 20),
            note="--quick: tinygrad takes more than a minute and was not asked",
        )
    return _both(bench, name, ours, peer, 1, Goal("ratio", 20))


def _manifest(bench: Bench, name: str, *, disassembler: bool, goal: Goal | None) -> Figure:
    bench.say(name)
    made = bench.fresh.call(OURS, {"task": "manifest", "disassembler": disassembler, **_places(bench)})
    note = f"{made['files']} files"
    if made["left_out"]:
        lacking = ", ".join(dict.fromkeys(made["left_out"].values()))
        note += f", without what needs header package {lacking}"
        print(f"ringup bench: the manifest ran without {', '.join(made['left_out'])}: no {lacking}", file=sys.stderr)
    return Figure(name, "CPU s", made["cpu_s"], goal=goal, note=note)


def _places(bench: Bench) -> dict[str, Any]:
    """The header packages, as a job names them."""
    trees = {name: str(folder.absolute()) for name, folder in bench.sources.trees.items()}
    return {"manifest": str(bench.manifest), "cache": str(bench.sources.cache.absolute()), "trees": trees}


def _c_job(recipe: str, root: Path, files: list[Path], arguments: list[str]) -> dict[str, Any]:
    name = files[0].stem if len(files) == 1 else recipe
    return {
        "task": "c",
        "recipe": recipe,
        "name": name,
        "root": str(root),
        "files": [str(file) for file in files],
        "args": arguments,
    }


def _both(
    bench: Bench,
    name: str,
    ours: Mapping[str, Any],
    peer: Mapping[str, Any] | None,
    runs: int,
    goal: Goal | None = None,
    note: str = "",
) -> Figure:
    mine, theirs = _run(bench, name, ours, peer, runs)
    return Figure(name, "CPU s", _cpu_s(mine), _cpu_s(theirs) if theirs else None, goal, note=note)


def _run(
    bench: Bench, name: str, ours: Mapping[str, Any], peer: Mapping[str, Any] | None, runs: int
) -> tuple[list[Answer], list[Answer]]:
    """Run both sides in turn, `runs` times each; return their answers, none from tinygrad if it is missing or fails."""
    mine, theirs = [], []
    for _ in range(runs):
        bench.say(name)
        mine.append(bench.fresh.call(OURS, ours))
        if peer is not None:
            bench.say(f"{name}: tinygrad")
            answer = bench.peer.call("generate", peer)
            theirs += [] if answer is None else [answer]
    return mine, theirs


def _cpu_s(answers: list[Answer]) -> float:
    return float(median([answer["cpu_s"] for answer in answers]))
