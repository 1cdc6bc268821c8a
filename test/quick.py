"""`make quick`: runs the tests near a change, within a short time.

Changed files are those that differ from the branch `main`, committed or not. For each, in this order: the file itself
if it is a test, tests of the same name, tests that import the changed module, tests of the mirrored folder. Tests that
do not begin before the time is over are left to `make test`, and the last line counts them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "test"
# The time for tests; lint and collection take the rest of two minutes.
SECONDS = 60
# Collecting more files takes longer than running them.
MAX_FILES = 40
FOLDERS = (
    "array_api",
    "autogen",
    "compiler",
    "drivers",
    "firmware",
    "linalg",
    "nn",
    "optim",
    "queues",
    "silicon",
    "tools",
)
BASE = "main"
# Everything depends on these files: a few tests would not be enough.
EVERYTHING = {"pyproject.toml", "test/conftest.py", "errors.py", "__init__.py"}


def changed(base: str = BASE) -> list[str]:
    """Return the files that differ from the base, and those that git does not know yet. On the base itself, return the
    files of the last commit.
    """
    at_base = _git("rev-parse", "HEAD") == _git("rev-parse", base)
    found = _git("diff", "--name-only", "--diff-filter=d", f"{base}...HEAD").splitlines()
    found += _git("diff", "--name-only", "--diff-filter=d", "HEAD").splitlines()
    found += _git("ls-files", "--others", "--exclude-standard").splitlines()
    if at_base and not found:
        found = _git("diff", "--name-only", "--diff-filter=d", "HEAD~1", "HEAD").splitlines()
    return list(dict.fromkeys(found))


def tests_of(paths: list[str]) -> list[Path]:
    """Return test files for changed files, the nearest first."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py"))}
    found: dict[Path, int] = {}
    for name in paths:
        for rank, path in _of_one(name, sources):
            found[path] = min(found.get(path, rank), rank)
    return sorted(found, key=lambda path: (found[path], path))


def chosen(tests: list[Path]) -> list[Path]:
    """Return as many files as there is time for: half of them are the nearest ones, the others are spread over the
    rest.
    """
    if len(tests) <= MAX_FILES:
        return tests
    near, rest = tests[: MAX_FILES // 2], tests[MAX_FILES // 2 :]
    step = len(rest) / (MAX_FILES - len(near))
    return near + [rest[int(at * step)] for at in range(MAX_FILES - len(near))]


def _of_one(name: str, sources: dict[Path, str]) -> Iterator[tuple[int, Path]]:
    """Yield test files for one changed file, each with its distance from it."""
    path = ROOT / name
    if path in sources:
        yield 0, path
    elif name.startswith("test/"):
        # A conftest, a helper or data: the tests beside and below it.
        yield from ((1, one) for one in sources if path.parent in one.parents)
    elif name in EVERYTHING:
        yield from ((3, one) for one in sources)
    elif path.suffix == ".py" and path.parts[len(ROOT.parts)] in FOLDERS:
        module = "ringup." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        package, _, last = module.rpartition(".")
        imports = re.compile(
            rf"(from {re.escape(module)} |import {re.escape(module)}\b|from {re.escape(package)} import .*\b{last}\b)"
        )
        folder = TESTS / path.parent.relative_to(ROOT)
        for one, text in sources.items():
            if (
                re.fullmatch(rf"test_(\w+_)?{re.escape(path.stem)}(_\w+)?", one.stem)
                and folder.parts[: len(TESTS.parts) + 1] == one.parts[: len(TESTS.parts) + 1]
            ):
                yield 1, one
            elif imports.search(text):
                yield 2, one
            elif folder in one.parents:
                yield 3, one
    if not name.startswith("test/"):
        yield from ((4, one) for one in sources if one.parent == TESTS / "repo")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(words: list[str]) -> int:
    """Run the tests; return pytest's status, or 0 where no test is near."""
    paths = changed()
    near = tests_of(paths)
    tests = chosen(near)
    left = f" ({len(near) - len(tests)} more are left to `make test`)" if len(near) > len(tests) else ""
    print(f"{len(paths)} changed files, {len(tests)} test files{left}, up to {SECONDS} s", flush=True)
    if not tests:
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--quick-seconds", str(SECONDS), *words]
    return subprocess.run([*command, *map(str, tests)], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
