"""The `onnx` package of the Python package index, which reads and checks files. It is imported on use only."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

from ringup.errors import missing_package

OWN_FOLDER = Path(__file__).resolve().parent


def library() -> ModuleType:
    """Return the `onnx` package; a NotSupported that says what to install where there is none.

    A program that runs in the folder of a checkout has ringup's own package on its path under that name. It is passed
    over.
    """
    found = sys.modules.get("onnx")
    if found is not None and not _is_own(getattr(found, "__file__", None)):
        return _whole(found)
    path = [one for one in sys.path if not _is_own(str(Path(one or ".") / "onnx" / "__init__.py"))]
    spec = PathFinder.find_spec("onnx", path)
    if spec is None or spec.loader is None:
        reason = missing_package(ModuleNotFoundError("no onnx", name="onnx"), "ringup.onnx")
        assert reason is not None
        raise reason
    module = module_from_spec(spec)
    sys.modules["onnx"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["onnx"]
        raise
    return _whole(module)


def _is_own(file: str | None) -> bool:
    return file is not None and Path(file).resolve().parent == OWN_FOLDER


def _whole(module: ModuleType) -> ModuleType:
    """Return it with the modules that it imports only where they are asked for."""
    from importlib import import_module

    for name in ("checker", "external_data_helper", "inliner", "numpy_helper", "parser", "shape_inference"):
        import_module(f"onnx.{name}")
    return module
