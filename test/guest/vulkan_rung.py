"""A rung of the ladder: Vulkan compute through Mesa's drivers in the guest, and a page fault that the kernel reports.

`build` makes the programs, `run_all` runs every shader of `vulkan/shaders.py` and checks its answers, `page_fault`
makes a shader store to an unmapped address. Each returns what is wrong, in words; nothing when all is well.
"""

from __future__ import annotations

import base64
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import boot_files
import numpy as np
from machine import Guest
from vulkan.case import COMPUTE, Case, Shader
from vulkan.shaders import MORE, SHADERS

from ringup.tools.common.paths import cache_folder

SOURCES = boot_files.HERE / "vulkan"
FOLDER = "/run/guest/vulkan"  # in the guest: memory, in both of its roots


@dataclass(frozen=True)
class Driver:
    """One of Mesa's drivers in the guest."""

    # a word of the devices' names
    word: str
    description: str
    # where its libraries are, if they are not the system's
    libraries: str = ""
    # what it does not run, with the reason, by file; and the same on one chip
    lacks: Mapping[str, str] = field(default_factory=dict)
    lacks_on: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def environment(self) -> str:
        """What makes the Vulkan library load this driver, and no other: on an emulated processor each takes seconds."""
        libraries = f"LD_LIBRARY_PATH={self.libraries} " if self.libraries else ""
        return f"{libraries}VK_DRIVER_FILES={self.description}"


RADV = Driver("RADV", "/usr/share/vulkan/icd.d/radeon_icd.json")
WIDE = "wave=64"  # NVIDIA's waves have 32 lanes
# By file, the types of factors and sums (VkComponentTypeKHR) of the programs that multiply by matrix instructions.
MATRICES = {"matrix16": "0 0 1 1", "matrix8": "3 3 5 5"}
# A half that another kind of unit reads takes 8 cycles (Mesa's sm75_instr_latencies.rs).
NVK_EARLY = "its compiler leaves 6 cycles between HADD2 and F2F or PRMT, where Mesa since 25.2 leaves 8 on Turing"
# Debian 13's, of Mesa 25.0.7
NVK = Driver(
    "NVK",
    "/usr/share/vulkan/icd.d/nouveau_icd.json",
    lacks={
        **dict.fromkeys(MATRICES, "its compiler has no matrix instructions"),
        "atomics": "its compiler makes ATOMS.ADD of a type that the instruction lacks; nvdisasm prints it as INVALID3",
    },
    lacks_on={"tu102": {"float16": NVK_EARLY, "lanesf": NVK_EARLY}},
)
# Its compiler rounds between product and sum of a precise fma(), as Vulkan allows.
NVK_UNFUSED = ("float16", "float32", "float64")
WILD = 0x1234_5678_9ABC  # a gpu_va of 47 bits where the driver puts nothing
LOST = 4  # status of `dispatch`
# TIMEOUT: the kernel gives a job of the graphics ring 10 s, then kills its waves.
JOB_S = 40
# TIMEOUT: each shader takes a second, the biggest some seconds, on an idle machine of two slow cores.
SHADER_S = 180
ANSWERS = "answers"  # a file in the guest: what the jobs of a process have computed, one after the other


@dataclass(frozen=True)
class Outcome:
    """The result of one shader."""

    shader: Shader
    wrong: str
    # in the guest, and the compiler's part of it
    took_s: float = 0.0
    compiling_s: float = 0.0
    # whether the driver lost its device
    lost: bool = False


def build(folder: Path) -> Path:
    """Compile the program and the shaders into `folder`, with this machine's compiler and the files of Debian 13's
    root; return the folder.
    """
    root = boot_files.set_up("root.sh", cache_folder() / "guest-root")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True, exist_ok=True)
    gcc: list[str | Path] = ["gcc", "-std=c17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    where: list[str | Path] = ["-idirafter", root / "usr/include", SOURCES / "dispatch.c", "-o", folder / "dispatch"]
    # QUIRK: the library needs a newer C library than this machine's; the guest has it.
    link: list[str | Path] = ["-L", libraries, "-l:libvulkan.so.1", "-Wl,--allow-shlib-undefined"]
    subprocess.run([*gcc, *where, *link], check=True)
    for source in sorted(SOURCES.glob("*.comp")):
        glslang: list[str | Path] = [
            libraries / "ld-linux-x86-64.so.2",
            "--library-path",
            libraries,
            root / "usr/bin/glslang",
        ]
        subprocess.run(
            [*glslang, "--quiet", "--target-env", "vulkan1.3", "-o", folder / f"{source.stem}.spv", source], check=True
        )
    return folder


def later_nvk(suite: str) -> Driver:
    """Return the NVK of a later Debian suite. It is fetched if it is missing."""
    cache = cache_folder()
    root = boot_files.set_up("root.sh", cache / "guest-root")
    folder = boot_files.set_up("modules/mesa.sh", cache / f"guest-mesa-{suite}", suite, root)
    lacks = {
        "atomics": "its compiler stops at a floating-point atomic in shared memory",
        "fetching": "it reads texels by TLD.SCR, whose meaning no public source says; the card refuses it",
    }
    return Driver("NVK", f"{folder}/nouveau_icd.json", f"{folder}/usr/lib/x86_64-linux-gnu", lacks)


def for_nvk(chip: str, driver: Driver = NVK, offered: Iterable[str] = ()) -> list[Shader]:
    """Return the shaders that NVK can run on a chip, as it can run them. `offered`: the lines of `dispatch matrices`;
    a program of matrices is run with each shape of its types.
    """
    lacks = {**driver.lacks, **driver.lacks_on.get(chip, {})}
    chosen: dict[str, Shader] = {}
    for shader in (*SHADERS, *MORE):
        if shader.file in lacks or WIDE in shader.options:
            continue
        # It has one family of queues, for graphics and compute.
        options = tuple(option for option in shader.options if option != COMPUTE)
        arguments = {**shader.arguments, "fused": False} if shader.file in NVK_UNFUSED else shader.arguments
        own = [replace(shader, options=options, arguments=arguments)]
        if shader.file in MATRICES:
            own = [_of_shape(own[0], shape) for shape in _shapes(offered, MATRICES[shader.file])]
        for one in own:
            chosen.setdefault(one.name, one)
    return list(chosen.values())


def _shapes(offered: Iterable[str], types: str) -> list[tuple[int, int, int]]:
    """Return rows, columns and depth of the products of some types."""
    found = (re.fullmatch(rf"MATRIX (\d+) (\d+) (\d+) {types}", line) for line in offered)
    return [(int(one[1]), int(one[2]), int(one[3])) for one in found if one]


def _of_shape(shader: Shader, shape: tuple[int, int, int]) -> Shader:
    variant = "x".join(map(str, shape))
    return replace(shader, arguments={**shader.arguments, "shape": shape}, variant=variant)


def install(guest: Guest, folder: Path, shaders: Iterable[Shader] = SHADERS) -> None:
    """Copy what `build` made, and the shaders' inputs, into the guest."""
    for shader in shaders:
        for binding, buffer in enumerate(_case(shader).buffers):
            if not isinstance(buffer, int):
                (folder / _input(shader, binding)).write_bytes(np.ascontiguousarray(buffer).tobytes())
    guest.check(f"rm -rf {FOLDER} && mkdir -p {FOLDER} && cp {shlex.quote(str(folder))}/* {FOLDER}/")


def run_all(guest: Guest, folder: Path, not_judged: Mapping[str, str]) -> list[str]:
    """Run every shader on RADV but those of these files, and return what is wrong."""
    install(guest, folder)
    return complaints(run(guest, [shader for shader in SHADERS if shader.file not in not_judged]))


def run_on_nvk(guest: Guest, folder: Path, chip: str, driver: Driver = NVK) -> list[str]:
    """Run the shaders on NVK that it can run on a chip, and return what is wrong."""
    offered: list[str] = []
    if not MATRICES.keys() <= driver.lacks.keys():
        install(guest, folder, ())
        told = guest.trixie(f"cd {FOLDER} && {driver.environment} ./dispatch matrices device={driver.word}")
        if told.status:
            return [f"the matrices of the device: status {told.status}: {told.output.strip()}"]
        offered = told.output.splitlines()
    chosen = for_nvk(chip, driver, offered)
    missing = MATRICES.keys() - driver.lacks.keys() - {shader.file for shader in chosen}
    install(guest, folder, chosen)
    wrong = [f"{file}: the device has no such matrices" for file in sorted(missing)]
    return wrong + complaints(run(guest, chosen, driver))


def complaints(outcomes: Iterable[Outcome]) -> list[str]:
    """Return what is wrong, with the names of the shaders."""
    return [f"{outcome.shader.name}: {outcome.wrong}" for outcome in outcomes if outcome.wrong]


def run(guest: Guest, shaders: Sequence[Shader], driver: Driver = RADV) -> list[Outcome]:
    """Run shaders whose files are in the guest, on the card of a driver, and check their answers.

    One process runs them all, because on an emulated processor a driver takes seconds to start. If a shader fails,
    another process runs those after it.

    TIMEOUT: nouveau gives a job 10 s of the clock on the wall. The translation of a big program may take them on a busy
    computer. It is kept, so such a job gets one more try.
    """
    outcomes: list[Outcome] = []
    tried_again: set[str] = set()
    while len(outcomes) < len(shaders):
        some = _run_some(guest, shaders[len(outcomes) :], driver)
        last = some[-1]
        may_try = last.lost and driver.word == NVK.word and last.shader.name not in tried_again
        if may_try and "job timeout" in guest.dmesg():
            tried_again.add(last.shader.name)
            some.pop()
        outcomes += some
    return outcomes


def _run_some(guest: Guest, shaders: Sequence[Shader], driver: Driver) -> list[Outcome]:
    """Run shaders up to the first one that fails."""
    cases = [_case(shader) for shader in shaders]
    jobs = [shlex.join(_job(shader, case, driver)) for shader, case in zip(shaders, cases, strict=True)]
    tell = "RADV_DEBUG=shaderstats,nocache " if driver is RADV and any(shader.uses for shader in shaders) else ""
    program = f"{driver.environment} {tell}./dispatch {' -- '.join(jobs)}"
    command = f"cd {FOLDER}; : >{ANSWERS}; {program}; s=$?; echo ANSWERS; base64 -w 0 {ANSWERS}; exit $s"
    result = guest.trixie(command, timeout_s=SHADER_S + 20 * len(shaders))
    told, _, packed = result.output.partition("ANSWERS\n")
    answers = base64.b64decode(packed)
    outcomes: list[Outcome] = []
    _, *parts = re.split(r"^JOB \d+ .*\n", told, flags=re.MULTILINE)
    for shader, case, said in zip(shaders, cases, parts, strict=False):
        took = re.search(r"^TOOK (\S+) s, compiling (\S+) s$", said, re.MULTILINE)
        if took is None:
            return [*outcomes, Outcome(shader, f"status {result.status}: {said.strip()}", lost=result.status == LOST)]
        wrong, size_bytes = _judge(case, answers)
        answers = answers[size_bytes:]
        if driver is RADV and shader.uses and not any(map(int, re.findall(rf"{shader.uses}: (\d+)", said))):
            wrong.append(f"the compiler made no use of what the shader is for: {shader.uses}")
        outcomes.append(Outcome(shader, "; ".join(wrong), float(took[1]), float(took[2])))
    return outcomes or [Outcome(shaders[0], f"status {result.status}: {told.strip()}")]


def _judge(case: Case, answers: bytes) -> tuple[list[str], int]:
    """Check a shader's answers, at the start of these bytes; return what is wrong, and their size."""
    wrong, at = [], 0
    for binding, (kind, judge) in sorted(case.judges.items()):
        buffer = case.buffers[binding]
        size_bytes = buffer if isinstance(buffer, int) else buffer.nbytes
        answer = np.frombuffer(answers[at : at + size_bytes], kind)
        at += size_bytes
        if said := judge(answer):
            wrong.append(f"buffer {binding}: {said}")
    return wrong, at


def page_fault(guest: Guest) -> list[str]:
    """Make a shader store to an unmapped address, and return what is wrong. The files of `install` must be in the
    guest.

    The kernel must report the fault with the page and the process, the job must fail, and the card must continue to
    work.
    """
    guest.dmesg()
    command = f"cd {FOLDER} && (./dispatch wild.spv zero=64 out=out.wild push=u64:{WILD:#x} wait={JOB_S} & echo PID $!; wait $!)"
    result = guest.trixie(command, timeout_s=JOB_S + 20)
    told = guest.dmesg()
    pid = re.findall(r"PID (\d+)", result.output)[0]
    expected = {
        "the kind of fault": r"\[gfxhub\] page fault \(src_id:0 ring:\d+ vmid:[1-9]\d* pasid:[1-9]\d*\)",
        "the process": rf"in process dispatch pid {pid} thread dispatch pid {pid}\)",
        "the page": rf"in page starting at address {WILD & ~0xFFF:#018x} from client 10",
        "the block": r"Faulty UTCL2 client ID: TCP \(0x8\)",
        "the direction": r"RW: 0x1",
        # Waves that are not gone within 10 ms, as on a busy computer, make the kernel reset the ring.
        "the job's end": r"ring gfx_\S+ timeout, (but soft recovered|signaled seq)",
    }
    wrong = [f"the kernel does not tell {what}" for what, words in expected.items() if not re.search(words, told)]
    if "GPU reset begin" in told:
        wrong.append("the kernel resets the whole card, not the ring")
    if result.status != LOST:
        wrong.append(f"the job that faults ends with {result.status}, not {LOST}")
    if wrong:
        wrong.append(f"the program: {result.output.strip()}; the kernel: {told}")
    wrong += [f"after the fault, {words}" for words in complaints(run(guest, SHADERS[:1]))]
    if still := re.findall(r".*(?:page fault|timeout|reset|ERROR).*", guest.dmesg()):
        wrong += ["after the fault, the kernel still complains:", *still]
    return wrong


def _case(shader: Shader) -> Case:
    return shader.make(**shader.arguments)


def _input(shader: Shader, binding: int) -> str:
    return f"{shader.name.replace(' ', ',')}.{binding}"


def _job(shader: Shader, case: Case, driver: Driver) -> list[str]:
    """Return a job's words for `dispatch`."""
    words = [f"{shader.file}.spv", *shader.options, *case.options, f"device={driver.word}", f"wait={SHADER_S}"]
    for binding, buffer in enumerate(case.buffers):
        if isinstance(buffer, int):
            words.append(f"zero={buffer}")
        else:
            words.append(f"{'uniform' if binding == case.uniform else 'in'}={_input(shader, binding)}")
        if binding in case.judges:
            words.append(f"out={ANSWERS}")
        image = case.images.get(binding)
        if image is not None:
            words += [image] if isinstance(image, str) else image.options
        if binding in case.arrays:
            words.append(f"array={case.arrays[binding]}")
    return words
