"""A user's Python file with a function that builds tensors, for the commands that compile: FILE.py[:NAME]."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ringup.compiler.graph.nodes import Node
from ringup.compiler.target import DEFAULT, TARGETS
from ringup.compiler.tensor import Tensor
from ringup.compiler.tensor.order import finals, prepared
from ringup.compiler.tuning import Tuning
from ringup.errors import CompileError
from ringup.tools.common import files
from ringup.tools.common.paths import cache_folder

LIMIT_BYTES = 64 << 20  # the size limit of a source
DEFAULT_NAMES = ("main", "model")
TUNING_FILE = "tuning.json"


def add_arguments(parser: argparse.ArgumentParser, *, tuned: bool = True) -> None:
    """Add the file, the target and the tuning file."""
    parser.add_argument(
        "file",
        metavar="FILE.py[:NAME]",
        help="a Python file and its function without arguments that returns tensors (default: main or model)",
    )
    parser.add_argument("--target", choices=tuple(TARGETS), default=DEFAULT, help=f"processor (default: {DEFAULT})")
    parser.add_argument(
        "--tuning",
        type=Path,
        metavar="FILE",
        help=f"shapes that `ringup tune` found (default: {TUNING_FILE} in ringup's cache folder)",
    )
    if tuned:
        parser.add_argument(
            "--untuned", action="store_true", help="use heuristic shapes, not those that `ringup tune` found"
        )


def tuning_of(args: argparse.Namespace) -> Tuning | None:
    """Return the shapes found so far, or None if they are not wanted."""
    return None if getattr(args, "untuned", False) else Tuning(args.tuning or cache_folder() / TUNING_FILE)


def outputs_of(text: str) -> list[Node]:
    """Run the file and its function; return the nodes of its tensors, as a card would get them.

    Raises CompileError in one line, with file and line of the error in the user's code.
    """
    path, name = _split(text)
    module = _run_file(path)
    function = _function(module, path, name)
    found = _guarded(path, function)
    if inspect.iscoroutine(found):
        found.close()
        raise CompileError(f"{path}: {function.__name__} is asynchronous; write a plain function that returns tensors")
    tensors = list(found) if isinstance(found, (tuple, list)) else [found]
    for one in tensors:
        if not isinstance(one, Tensor):
            raise CompileError(
                f"{path}: {function.__name__}() returned {type(one).__name__}; it has to be a "
                "Tensor, or a tuple of them"
            )
    if not tensors:
        raise CompileError(f"{path}: {function.__name__}() returned no tensors")
    nodes = [one.node for one in tensors]
    return prepared(list(dict.fromkeys([*nodes, *finals(nodes).values()])))


def path_of(text: str) -> Path:
    """Return the named file and function, if one is named."""
    return _split(text)[0]


def _split(text: str) -> tuple[Path, str | None]:
    front, colon, name = text.rpartition(":")
    if colon and name.isidentifier() and not Path(text).exists():
        return Path(front), name
    return Path(text), None


def _run_file(path: Path) -> ModuleType:
    """Run a file as its own module. Imports find files next to it, as for a script."""
    source = files.read_program(str(path), LIMIT_BYTES)
    spec = importlib.util.spec_from_loader(f"ringup_file_{path.stem}", None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        _guarded(path, lambda: exec(compile(source, str(path), "exec"), module.__dict__))
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    return module


def _guarded(path: Path, work: Callable[[], Any]) -> Any:
    """Run code of the user. An exception becomes one line with its place. A ringup error keeps its class."""
    try:
        return work()
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise CompileError(f"{error.filename or path}{line}: {type(error).__name__}: {error.msg}") from error
    except SystemExit as error:
        # a file of graphs must not end the command
        raise CompileError(f"{_place(path, error)}: it exits Python ({type(error).__name__}: {error.code})") from error
    except Exception as error:
        place = _place(path, error)
        words = " ".join(str(error).split())
        raise CompileError(
            f"{place}: {type(error).__name__}: {words}" if words else f"{place}: {type(error).__name__}"
        ) from error


def _place(path: Path, error: BaseException) -> str:
    """Return file and line of the innermost frame of the user: in the file itself, else in one next to or below it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if one.filename == str(path)]
    return f"{path}:{own[-1].lineno}" if own else str(path)


def _function(module: ModuleType, path: Path, name: str | None) -> Callable[[], Any]:
    wanted: Sequence[str] = (name,) if name else DEFAULT_NAMES
    found = next((getattr(module, one) for one in wanted if hasattr(module, one)), None)
    if found is None:
        there = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        other = f"it has {', '.join(there)}: name one, as in {path}:{there[0]}" if there else "it has none at all"
        raise CompileError(f"{path} has no function {' or '.join(wanted)}; {other}")
    if not callable(found):
        raise CompileError(f"{path}: {name or found} is {type(found).__name__}, not a function that returns tensors")
    missing = [
        one.name
        for one in inspect.signature(found).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if missing:
        raise CompileError(
            f"{path}: {getattr(found, '__name__', name)} needs {', '.join(missing)}; write a function without "
            "arguments that makes its tensors"
        )
    return found  # type: ignore[no-any-return]
