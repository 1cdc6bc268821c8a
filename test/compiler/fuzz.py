"""Random programs on a virtual card beside NumPy, by the thousand: `python test/compiler/fuzz.py graphs --count 10000`.

Failures are lines of JSON with the seed, which gives the same program again. Status 1 if there were any.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

import ringup
from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import device
from ringup.silicon.shader.interpreter import Interpreter
from ringup.tools.progress import Progress

sys.path.insert(0, str(Path(__file__).parent))

import random_assignments
import random_attention
import random_graphs
import random_networks
import random_steps

CHECKS = {
    "graphs": random_graphs.check,
    "networks": random_networks.check,
    "attention": random_attention.check,
    "steps": random_steps.check,
    "assignments": random_assignments.check,
}


def failure(check, seed):
    """Return what went wrong with a seed as plain values, None if nothing did."""
    try:
        check(seed)
    except Exception as problem:  # noqa: BLE001 - anything that is raised is a finding, whatever it is
        where = traceback.extract_tb(problem.__traceback__)[-1]
        said = " ".join(str(problem).split())[:600]
        return {
            "seed": seed,
            "error": type(problem).__name__,
            "said": said,
            "at": f"{Path(where.filename).name}:{where.lineno}",
        }
    return None


def main():
    """Run the seeds asked for; print failures and, at last, how many were right."""
    parser = argparse.ArgumentParser(description="Random programs on a virtual card in strict mode, beside NumPy.")
    parser.add_argument("kind", choices=CHECKS)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default 0)")
    parser.add_argument("--count", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--card", default="virtual:navi31", help="a virtual card (default virtual:navi31)")
    asked = parser.parse_args()
    wrong, started = 0, time.monotonic()
    with (
        ringup.open(asked.card, transport={"engine": Interpreter()}) as card,
        device(Device(card)),
        Progress(asked.kind, asked.count) as progress,
    ):
        for seed in range(asked.first, asked.first + asked.count):
            found = failure(CHECKS[asked.kind], seed)
            if found is not None:
                wrong += 1
                sys.stdout.write(json.dumps(found) + "\n")
                sys.stdout.flush()
            progress.advance()
    seconds = round(time.monotonic() - started)
    right = asked.count - wrong
    summary = {"kind": asked.kind, "first": asked.first, "right": right, "wrong": wrong, "seconds": seconds}
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
