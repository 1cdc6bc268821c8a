"""`make mutants`: does a test fail when a line that matters is gone?

Each mutation of `list.toml` is made in a copy of the tree, and its tests run. It is a file, a piece of text that stands
in it once, and what stands there instead; `tests` are the few that ought to notice. Those that no test notices are in
`survivors.toml` with the reason. Status 1: one more survived, or one of those is noticed by now.

    .venv/bin/python test/mutants/run.py [--jobs N] [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TIMEOUT_S = 900  # of one mutation's tests; one that makes them run for ever is noticed, too
KILLED, SURVIVED, BROKEN = "killed", "survived", "broken"
PASSED, FAILED = 0, 1  # statuses of pytest; others: nothing was tested


@dataclass(frozen=True)
class Mutation:
    """One change. `tests` are words for pytest: paths, and `-k` with an expression."""

    name: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]

    def apply(self, tree: Path) -> str:
        """Change the file in a tree; return what it held."""
        path = tree / self.file
        before = path.read_text()
        if before.count(self.text) != 1:
            raise SystemExit(
                f"mutants: {self.name}: {self.file} has {self.text!r} {before.count(self.text)} times, not once"
            )
        path.write_text(before.replace(self.text, self.instead))
        return before


def mutations() -> list[Mutation]:
    """Read the list."""
    rows = tomllib.loads((HERE / "list.toml").read_text())["mutation"]
    return [
        Mutation(one["name"], one["file"], one["text"], one.get("instead", ""), tuple(one["tests"])) for one in rows
    ]


def survivors() -> dict[str, str]:
    """Read which are known to survive, and why."""
    reasons: dict[str, str] = tomllib.loads((HERE / "survivors.toml").read_text())
    return reasons


def copy_tree(to: Path) -> Path:
    """Copy what git knows of the tree, as it is now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60)
    for name in filter(None, listed.stdout.decode().split("\0")):
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink() or (ROOT / name).exists():
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return to


def run_tests(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run tests of a tree, on that tree's code; return pytest's status and its last lines."""
    # The copy comes before the installed package, and no stale byte code of a file that was changed within a second
    environment = os.environ | {"PYTHONPATH": str(tree / ".typing"), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            argv, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"no end within {TIMEOUT_S} s"
    return done.returncode, "\n".join(done.stdout.splitlines()[-4:])


def judge(tree: Path, mutation: Mutation) -> tuple[str, str]:
    """Say whether the tests notice a mutation."""
    before = mutation.apply(tree)
    try:
        status, said = run_tests(tree, mutation.tests)
    finally:
        (tree / mutation.file).write_text(before)
    return {PASSED: SURVIVED, FAILED: KILLED}.get(status, BROKEN), said


def run(chosen: list[Mutation], jobs: int) -> dict[str, str]:
    """Judge mutations, `jobs` at a time, each in a copy of its own; print each as it is known."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="ringup-mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            trees.put(copy_tree(Path(folder) / str(number)))

        def one(mutation: Mutation) -> None:
            tree, began = trees.get(), time.monotonic()
            try:
                found[mutation.name], said = judge(tree, mutation)
            finally:
                trees.put(tree)
            print(f"{found[mutation.name]:9} {time.monotonic() - began:6.1f} s  {mutation.name}", flush=True)
            if found[mutation.name] == BROKEN:
                print(said, flush=True)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, chosen))
    return found


def sound(chosen: list[Mutation]) -> bool:
    """Run the tests without any mutation: those that fail by themselves would notice everything."""
    for tests in dict.fromkeys(mutation.tests for mutation in chosen):
        status, said = run_tests(ROOT, tests)
        if status != PASSED:
            print(f"mutants: without a mutation {' '.join(tests)} does not pass:\n{said}")
            return False
    return True


def main() -> int:
    """Run the list or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations whose names begin so (default: all)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time (default: %(default)d)"
    )
    parser.add_argument("--unproven", action="store_true", help="do not run the tests without a mutation first")
    args = parser.parse_args()
    known = survivors()
    chosen = [one for one in mutations() if not args.names or one.name.startswith(tuple(args.names))]
    if not args.unproven and not sound(chosen):
        return 1
    found = run(chosen, max(1, args.jobs))
    left = [name for name, verdict in found.items() if verdict == SURVIVED]
    wrong = {name: "survived: no test notices it" for name in left if name not in known}
    wrong |= {
        name: "killed: take it from survivors.toml"
        for name, verdict in found.items()
        if verdict == KILLED and name in known
    }
    wrong |= {name: "its tests could not run" for name, verdict in found.items() if verdict == BROKEN}
    print(f"{len(found)} mutations: {list(found.values()).count(KILLED)} killed, {len(left)} survived")
    for name in left:
        print(f"  survived: {name}: {known.get(name, 'no reason is known')}")
    for name, why in wrong.items():
        print(f"mutants: {name}: {why}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
