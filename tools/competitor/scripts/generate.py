"""Runs inside tinygrad's environment: its header generator over files that the job names. One job on stdin, one answer
on stdout, both JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from typing import Any

KEPT = ("rules", "anon_names", "macros", "patterns")  # parts of a recipe that do not name files


def recipe(module: str, name: str) -> dict[str, Any]:
    """Return what tinygrad's recipe would load: `files` and the generator's arguments. Nothing is read or written."""
    found: dict[str, Any] = {}

    def catch(name: str, files: Any, **arguments: Any) -> None:
        found.update(arguments, files=files)

    recipes = importlib.import_module(module)
    # the recipes call it by its name in their module
    recipes.__dict__["load"] = catch
    recipes.__getattr__(name)
    return found


def c_headers(job: dict[str, Any]) -> tuple[float, str]:
    """Generate from C headers with the recipe's rules; `root` stands where the recipe has its source's folder."""
    generator = importlib.import_module("tinygrad.runtime.support.autogen")
    how = recipe("tinygrad.runtime.autogen", job["recipe"]) if job["recipe"] else {}
    kept = {key: how[key] for key in KEPT if key in how}
    if "anon_names" in kept:
        kept["anon_names"] = {place.format(job["root"]): name for place, name in kept["anon_names"].items()}
    start = time.process_time()
    text = generator.gen(job["name"], job["files"], args=job["args"], **kept)
    return time.process_time() - start, text


def register_tables(job: dict[str, Any]) -> tuple[float, str]:
    """Generate tinygrad's own register tables from the kernel tree in `root`."""
    how = recipe("tinygrad.runtime.autogen.am", "regs")
    files = [file.format(job["root"]) for file in how["files"]]
    start = time.process_time()
    text = how["gen"]("regs", files)
    return time.process_time() - start, text


def main() -> None:
    job = json.load(sys.stdin)
    # the generator reports each macro it skips
    with contextlib.redirect_stdout(sys.stderr):
        cpu_s, text = {"c": c_headers, "registers": register_tables}[job["task"]](job)
    registers = sum(line.startswith(("  'reg", "  'mm")) for line in text.splitlines())
    print(json.dumps({"cpu_s": cpu_s, "bytes": len(text), "registers": registers}))


if __name__ == "__main__":
    main()
