"""What `__array_namespace_info__` tells: devices, data types, what is supported."""

from __future__ import annotations

from typing import Any

from ringup.array_api.types import DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INTEGER, KINDS
from ringup.compiler.graph import dtypes as types
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import realize
from ringup.errors import CompileError


class Info:
    """The namespace's description of itself."""

    def capabilities(self) -> dict[str, bool | int | None]:
        """Return what is supported. Masks and results whose shape depends on values read these on the host."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Any:
        """Return what `ringup.device` or `ringup.use` chose, None where nothing was chosen."""
        try:
            return realize.current([])
        except CompileError:
            return None

    def devices(self) -> tuple[Any, ...]:
        """Return the devices that are open in this context: the chosen one. Others are opened by `ringup.open`."""
        return (self.default_device(),)

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Return the default types by kind."""
        return {
            "real floating": DEFAULT_FLOAT,
            "complex floating": DEFAULT_COMPLEX,
            "integral": DEFAULT_INTEGER,
            "indexing": DEFAULT_INTEGER,
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """Return the standard's types by name, those of a kind or of several kinds if one is given."""
        wanted = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for one in wanted:
            if one not in KINDS:
                raise ValueError(f"there is no kind of data types {one!r}; there are {', '.join(KINDS)}")
        found = [kind for one in wanted for kind in KINDS[one]]
        return {one.name: one for one in types.EVERY if one in found}
