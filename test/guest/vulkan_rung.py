"""A rung of the ladder: Vulkan compute through Mesa's RADV in the guest, and a page fault that the kernel reports.

`build` makes the programs, `run_all` runs every shader of `vulkan_cases` and judges its answers, `page_fault` has a shader store where
nothing is. Each returns what is wrong, in words; nothing when all is well.
"""

from __future__ import annotations

import base64
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import boot_files
import numpy as np
from machine import Guest, Result
from vulkan_cases import SHADERS, Case, Shader

SOURCES = boot_files.HERE / "vulkan"
FOLDER = "/run/guest/vulkan"  # in the guest: memory, in both of its roots
SHADER_S = 60  # TIMEOUT: each takes a second, the biggest some seconds, on an idle machine of two slow cores


@dataclass(frozen=True)
class Outcome:
    """How a shader fared."""

    shader: Shader
    wrong: str
    took_s: float


def build(folder: Path) -> Path:
    """Compile the program and the shaders into `folder`, with this machine's compiler and what is in Debian 13's root; return the folder."""
    root = boot_files.set_up("root.sh", boot_files.cache_folder() / "guest-root")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True, exist_ok=True)
    gcc = ["gcc", "-std=c17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    where = ["-idirafter", root / "usr/include", SOURCES / "dispatch.c", "-o", folder / "dispatch"]
    link = [
        "-L",
        libraries,
        "-l:libvulkan.so.1",
        "-Wl,--allow-shlib-undefined",
    ]  # that one wants the newer C library, which the guest has
    subprocess.run([*gcc, *where, *link], check=True)
    for source in sorted(SOURCES.glob("*.comp")):
        glslang = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries, root / "usr/bin/glslang", "--quiet"]
        subprocess.run([*glslang, "--target-env", "vulkan1.3", "-o", folder / f"{source.stem}.spv", source], check=True)
    return folder


def install(guest: Guest, folder: Path) -> None:
    """Copy what `build` made, and the shaders' inputs, into the guest."""
    for shader in SHADERS:
        for binding, buffer in enumerate(_case(shader).buffers):
            if not isinstance(buffer, int):
                (folder / _input(shader, binding)).write_bytes(np.ascontiguousarray(buffer).tobytes())
    guest.check(f"rm -rf {FOLDER} && mkdir -p {FOLDER} && cp {shlex.quote(str(folder))}/* {FOLDER}/")


def run_all(guest: Guest, folder: Path) -> list[str]:
    """Run every shader, and return what is wrong."""
    install(guest, folder)
    outcomes = [run(guest, shader) for shader in SHADERS]
    return [f"{outcome.shader.name}: {outcome.wrong}" for outcome in outcomes if outcome.wrong]


def run(guest: Guest, shader: Shader) -> Outcome:
    """Run one shader whose files are in the guest, and judge its answers."""
    case, started = _case(shader), time.monotonic()
    result = _dispatch(guest, shader, case)
    took_s = time.monotonic() - started
    if result.status:
        return Outcome(shader, f"status {result.status}: {result.output.strip()}", took_s)
    *_, packed = result.output.split("ANSWERS\n")
    answers = base64.b64decode(packed)
    wrong, at = [], 0
    for binding, (kind, judge) in case.judges.items():
        buffer = case.buffers[binding]
        size_bytes = buffer if isinstance(buffer, int) else buffer.nbytes
        answer = np.frombuffer(answers[at : at + size_bytes], kind)
        at += size_bytes
        if said := judge(answer):
            wrong.append(f"buffer {binding}: {said}")
    return Outcome(shader, "; ".join(wrong), took_s)


def _case(shader: Shader) -> Case:
    return shader.make(**shader.arguments)


def _input(shader: Shader, binding: int) -> str:
    return f"{shader.name.replace(' ', ',')}.{binding}"


def _dispatch(guest: Guest, shader: Shader, case: Case) -> Result:
    words = [f"{shader.file}.spv", *shader.options, *case.options, f"wait={SHADER_S}"]
    for binding, buffer in enumerate(case.buffers):
        if isinstance(buffer, int):
            words.append(f"zero={buffer}")
        else:
            words.append(f"{'uniform' if binding == case.uniform else 'in'}={_input(shader, binding)}")
        if binding in case.judges:
            words.append(f"out=out.{binding}")
    outputs = " ".join(f"out.{binding}" for binding in case.judges)
    command = f"cd {FOLDER} && ./dispatch {shlex.join(words)} && echo ANSWERS && cat {outputs} | base64 -w 0"
    return guest.trixie(command, timeout_s=SHADER_S + 20)
