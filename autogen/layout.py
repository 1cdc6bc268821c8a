"""Bit layouts at run time: `Word` for registers, packets and descriptors, `Struct` for C structs in shared memory."""

from __future__ import annotations

import functools
import operator
import sys
import types

from ringup.autogen.structs import Array, Struct, near

TYPE_CHECKING = False  # `typing` costs 2 ms; a block's module may cost 3
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, ClassVar, Self, overload

    Version = tuple[int, ...] | str | int
    Value = int | Sequence[int]  # of a field; a sequence for a field with `count`

__all__ = ["Array", "Field", "Struct", "Word"]


def _getter(lo: int, mask: int) -> Callable[[int], int]:
    """Return the function that reads the bits from `lo` up; `mask` is as wide as the field and not shifted."""
    if lo == 0:
        return lambda word: word & mask
    return lambda word: word >> lo & mask


def _array_getter(lo: int, mask: int, count: int, stride: int) -> Callable[[int], tuple[int, ...]]:
    places = range(lo, lo + count * stride, stride)
    return lambda word: tuple(word >> place & mask for place in places)


class _Once(type):
    """Makes one object for each set of arguments: the thousands of fields of a block have only a few hundred places."""

    if not TYPE_CHECKING:
        __call__ = functools.cache(type.__call__)


class Field(property, metaclass=_Once):
    """Bits `hi` down to `lo`, both inclusive, as in headers; one bit if `lo` is left out.

    With `count`, element i is `i * stride` bits higher and the value is a tuple. A field is a `property`, so reading
    one costs one call.
    """

    hi: int
    lo: int
    count: int | None
    stride: int
    mask: int  # every bit of the field in place, for all elements

    def __init__(self, hi: int, lo: int | None = None, *, count: int | None = None, stride: int = 0) -> None:
        if lo is None:
            lo = hi
        if not 0 <= lo <= hi:
            raise ValueError(f"a field's high bit comes first and none is negative: {hi}:{lo}")
        one = (2 << hi - lo) - 1
        if count is None:
            property.__init__(self, _getter(lo, one))
            self.mask = one << lo
        else:
            width = hi - lo + 1
            if count < 1 or stride < width:
                raise ValueError(f"{count} elements of {width} bits do not lie {stride} bits apart")
            property.__init__(self, _array_getter(lo, one, count, stride))
            self.mask = sum(one << lo + i * stride for i in range(count))
        self.hi = hi
        self.lo = lo
        self.count = count
        self.stride = stride

    # For type checkers; at run time `property` does this.
    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type | None = None, /) -> Self: ...
        @overload
        def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...
        def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...

    @property
    def width(self) -> int:
        """Bits of one element."""
        return self.hi - self.lo + 1

    def put(self, word: int, value: Value, owner: str) -> int:
        """Return `word` with this field replaced. Errors about `value` name `owner` (`WORD.field`)."""
        if self.count is None:
            return word & ~self.mask | self._fitting(value, owner) << self.lo
        if isinstance(value, int) or not hasattr(value, "__len__") or len(value) != self.count:
            raise ValueError(f"{owner} takes {self.count} values, not {value!r}")
        word &= ~self.mask
        for i, element in enumerate(value):
            word |= self._fitting(element, f"{owner}[{i}]") << self.lo + i * self.stride
        return word

    def _fitting(self, value: object, owner: str) -> int:
        number = _integer(value, owner)
        if number < 0 or number >> self.width:
            raise ValueError(f"{owner} holds {self.width} bits, not {number:#x}")
        return number


class _Absent(Field):
    """A field that the chosen version of a register lacks."""

    def __init__(self, name: str) -> None:
        def refuse(word: Word) -> int:
            raise AttributeError(f"{type(word).__name__} of this version has no field {name}")

        property.__init__(self, refuse)


class Word(int):
    """A register, packet or descriptor of `WIDTH` bits: an immutable integer whose bits have names.

    Subclasses list `Field`s in any order. `class X(Word, width=64)` is wider than the usual 32 bits. `overlaps=True`
    allows fields that share bits, for headers that describe one register in several ways. `X(value, field=…)` replaces
    fields of `value`.
    """

    __slots__ = ()

    FIELDS: ClassVar[dict[str, Field]] = {}
    WIDTH: ClassVar[int] = 32
    # In a variant made by `at`: the class it was made from, and the version.
    BASE: ClassVar[type[Word] | None] = None
    VERSION: ClassVar[Version | None] = None
    # A field with such a name gets a trailing underscore.
    RESERVED: ClassVar[frozenset[str]] = frozenset(("at", "place", "replace"))

    def __init_subclass__(cls, *, width: int | None = None, overlaps: bool = False) -> None:
        if width is not None:
            cls.WIDTH = width
        own = {name: field for name, field in cls.__dict__.items() if isinstance(field, Field)}
        fields = cls.FIELDS = (
            {name: f for name, f in (cls.FIELDS | own).items() if type(f) is Field} if cls.FIELDS else own
        )
        taken = total = 0
        for field in fields.values():
            taken |= field.mask
            total += field.mask
        if taken >> cls.WIDTH or (taken != total and not overlaps) or not cls.RESERVED.isdisjoint(own):
            cls._refuse_layout(overlaps)

    @classmethod
    def _refuse_layout(cls, overlaps: bool) -> None:
        """Raise an error that names the field which makes the layout impossible."""
        for name, field in cls.FIELDS.items():
            if name in cls.RESERVED:
                raise TypeError(f"{cls.__name__}.{name} would hide Word.{name}; call the field {name}_")
            if field.mask >> cls.WIDTH:
                bit = field.mask.bit_length() - 1
                raise TypeError(f"{cls.__name__}.{name} reaches bit {bit} of a word of {cls.WIDTH}")
            shared = [other for other, f in cls.FIELDS.items() if other != name and f.mask & field.mask]
            if shared and not overlaps:
                raise TypeError(f"{cls.__name__}: fields {name} and {shared[0]} share bits")

    def __new__(cls, value: int = 0, /, **fields: Value) -> Self:
        value = _integer(value, cls.__name__)
        for name, given in fields.items():
            try:
                field = cls.FIELDS[name]
            except KeyError:
                raise TypeError(f"{cls.__name__} has no field {name}{near(name, cls.FIELDS)}") from None
            value = field.put(value, given, f"{cls.__name__}.{name}")
        if value < 0 or value >> cls.WIDTH:
            raise ValueError(f"{cls.__name__} holds {cls.WIDTH} bits, not {value:#x}")
        return int.__new__(cls, value)

    def replace(self, /, **fields: Value) -> Self:
        """Return the word with `fields` replaced."""
        return type(self)(int(self), **fields)

    def __repr__(self) -> str:
        named, parts = 0, []
        for name, field in self.FIELDS.items():
            if self & field.mask:
                value = field.__get__(self)
                parts.append(f"{name}={value:#x}" if isinstance(value, int) else f"{name}={value}")
                named |= field.mask
        rest = int(self) & ~named
        return f"{type(self).__name__}({', '.join([hex(rest)] * bool(rest or not parts) + parts)})"

    __str__ = __repr__

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: take word.replace({name}=…)")

    def __reduce__(self) -> tuple[Callable[..., Word], tuple[object, ...]]:
        return _rebuild, (self.BASE or type(self), self.VERSION, int(self))

    @classmethod
    def at(cls, version: Version) -> type[Self]:
        """Return the class with the layout of `version`, from the module's PLACES (or METHODS) and CHANGES rows.

        Versions are the keys of those rows: an IP version, a chip's name, a class id. Raises `ValueError` for an
        unknown one.
        """
        base = cls.BASE or cls
        module, rows = _rows(base)
        if version not in rows:
            raise ValueError(f"{base.__module__} knows versions {', '.join(map(str, rows))}, not {version}")
        changes: Mapping[str, tuple[int, ...] | None] | None = module.CHANGES.get(version, {}).get(base)
        if not changes:
            return base  # type: ignore[return-value]
        key = (base, version)
        if key not in _VARIANTS:
            body: dict[str, object] = {"__module__": base.__module__, "__slots__": (), "BASE": base, "VERSION": version}
            body |= {name: _Absent(name) if row is None else _field(row) for name, row in changes.items()}
            _VARIANTS[key] = _subclass(base, body)
        found: type[Self] = _VARIANTS[key]
        return found

    @classmethod
    def place(cls, version: Version) -> Any:
        """Return the word's place in `version`: the row of its module's PLACES or METHODS.

        Raises `ValueError` for a version that the module does not know, or that lacks the word.
        """
        base = cls.BASE or cls
        _, rows = _rows(base)
        if base not in rows.get(version, ()):
            have = [str(known) for known, row in rows.items() if base in row]
            raise ValueError(f"{base.__name__} has a place in {', '.join(have) or 'no version'}, not in {version}")
        return rows[version][base]


# Classes made by `Word.at`, one for each word and version.
_VARIANTS: dict[tuple[type[Word], Version], Any] = {}


def _rows(base: type[Word]) -> tuple[Any, Mapping[Version, Any]]:
    """Return a word's module and its rows by version.

    Rows are PLACES of registers or METHODS of classes; there are none in a module without either.
    """
    module = sys.modules[base.__module__]
    return module, getattr(module, "PLACES", None) or getattr(module, "METHODS", {})


def _rebuild(base: type[Word], version: Version | None, value: int) -> Word:
    """Unpickle a word."""
    return (base if version is None else base.at(version))(value)


def _integer(value: object, owner: str) -> int:
    if type(value) is int:
        return value
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{owner} takes an integer, not {value!r}") from None


def _subclass(cls: type[Word], body: dict[str, object]) -> type[Word]:
    return types.new_class(cls.__name__, (cls,), {"overlaps": True}, lambda namespace: namespace.update(body))


def _field(row: tuple[int, ...]) -> Field:
    hi, lo, *array = row
    return Field(hi, lo, count=array[0], stride=array[1]) if array else Field(hi, lo)
