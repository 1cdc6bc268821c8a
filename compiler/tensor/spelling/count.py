"""The number of elements as NumPy and PyTorch ask for it: `t.size` a number, `t.size()` and `t.size(0)` sizes."""

from __future__ import annotations

from ringup.compiler.graph.index import Expr, Int


class Count(int):
    """A number of elements that may be called for the sizes of axes."""

    _shape: tuple[Int, ...]

    def __call__(self, axis: int | None = None, *, dim: int | None = None) -> Int | tuple[Int, ...]:
        """Return the sizes of all axes, or that of one."""
        return _of_axis(self._shape, dim if axis is None else axis)


class OpenCount(Expr):
    """A number of elements that depends on symbolic sizes; it may be called too."""

    __slots__ = ("_shape",)

    def __init__(self, value: Expr, shape: tuple[Int, ...]) -> None:
        super().__init__(value.constant, value.terms)
        self._shape = shape

    __hash__ = Expr.__hash__

    def __call__(self, axis: int | None = None, *, dim: int | None = None) -> Int | tuple[Int, ...]:
        """Return the sizes of all axes, or that of one."""
        return _of_axis(self._shape, dim if axis is None else axis)

    def plain(self) -> Expr:
        """Return it as a size like any other, which shapes are made of."""
        return Expr(self.constant, self.terms)


def _of_axis(shape: tuple[Int, ...], axis: int | None) -> Int | tuple[Int, ...]:
    if axis is None:
        return shape
    if not -len(shape) <= axis < len(shape):
        raise IndexError(f"axis {axis} of a tensor of shape {list(shape)}: there are {len(shape)}")
    return shape[axis]


def counted(size: Int, shape: tuple[Int, ...]) -> Count | OpenCount:
    """Return a number of elements that knows the sizes of axes."""
    if not isinstance(size, int):
        return OpenCount(size, shape)
    made = Count(size)
    made._shape = shape
    return made
