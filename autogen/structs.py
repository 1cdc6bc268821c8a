"""C structs in memory shared with a device or the kernel: layouts from generated rows, access at C speed.

A view is a cffi object, so reading a member costs no Python call. Some layouts cannot be expressed in cffi (a bit-field
that no aligned unit inside the struct covers). `plain_view.PlainView` serves those from the same rows, more slowly but
otherwise alike.
"""

from __future__ import annotations

import sys
from functools import partial

TYPE_CHECKING = False  # `typing` costs 2 ms; a block's module may cost 3
if TYPE_CHECKING:
    from collections.abc import Buffer, Callable, Iterator, Mapping  # type: ignore[attr-defined]
    from typing import Any, ClassVar, Protocol, Self, TypeVar

    from ringup.autogen.bulk import Bulk

    Element = TypeVar("Element", covariant=True)

    class Array(Protocol[Element]):
        """The interface of a member declared `T name[n]`: checked indices, iteration, slice assignment."""

        def __getitem__(self, index: int, /) -> Element: ...
        def __setitem__(self, index: int | slice, value: Any, /) -> None: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Element]: ...
else:

    class Array:
        """Stand-in for the type checker's protocol of the same name; views hold cffi arrays."""


# Layout type: (bytes, signed, letter of the struct module, cffi's name).
SCALARS = {
    "u8": (1, False, "B", "uint8_t"),
    "u16": (2, False, "H", "uint16_t"),
    "u32": (4, False, "I", "uint32_t"),
    "u64": (8, False, "Q", "uint64_t"),
    "i8": (1, True, "b", "int8_t"),
    "i16": (2, True, "h", "int16_t"),
    "i32": (4, True, "i", "int32_t"),
    "i64": (8, True, "q", "int64_t"),
    "f32": (4, True, "f", "float"),
    "f64": (8, True, "d", "double"),
    "char": (1, True, "b", "int8_t"),
    "bool": (1, False, "?", "_Bool"),
    "ptr": (8, False, "Q", "uint64_t"),
}


# Types kept for one struct with a flexible array, one for each length.
KEPT_TAILS = 32


class Row:
    """One member of a layout: name, type, place.

    `dims` are array lengths, -1 for a flexible one; `width` is a bit-field's, else 0.
    """

    __slots__ = ("base", "bit", "byte", "dims", "name", "width")

    def __init__(self, text: str) -> None:
        """Read `name:TYPE[dims]@BYTE` or `name:TYPE@BYTE.BIT+WIDTH`."""
        self.name, _, rest = text.partition(":")
        kind, _, place = rest.partition("@")
        byte, _, bits = place.partition(".")
        bit, _, width = bits.partition("+")
        self.base, *dims = kind.replace("]", "").split("[")
        self.dims = tuple(int(n) if n else -1 for n in dims)
        self.byte, self.bit, self.width = int(byte), int(bit or 0), int(width or 0)

    @property
    def flexible(self) -> bool:
        return self.dims[:1] == (-1,)


class _PackInto:
    """Returns a struct's packing function. This costs less than passing 200 values through one more call."""

    def __get__(self, instance: object, owner: type[Struct]) -> Callable[..., None]:
        return _plan(owner).packer


class Struct:
    """A C struct or union; subclasses are generated.

    Calling a subclass allocates zeroed memory; `view` uses a buffer. The result of either is a cffi object, which no
    `isinstance` recognises. Its members are attributes. Integers are range-checked (`OverflowError`), arrays are
    indexed, an array of `char` takes `bytes`, a nested struct takes a dict or a sequence, pointers are integers.
    `memory` returns the bytes for system calls.

    Keep the outer view while you use a member that is a struct or an array: such members refer to its memory and do not
    keep it alive.
    """

    SIZE: ClassVar[int]
    ALIGN: ClassVar[int]
    LAYOUT: ClassVar[str]
    CHANGES: ClassVar[Mapping[str, tuple[int, str] | None]] = {}
    SINCE: ClassVar[str | None] = None  # the first release that has the struct; None: the oldest of its module
    # In a struct made by `at`: the class it was made from, and the release.
    BASE: ClassVar[type[Struct] | None] = None
    RELEASE: ClassVar[str | None] = None

    def __new__(cls, /, **values: Any) -> Self:
        made: Any = _plan(cls).fresh()
        for name, value in values.items():
            try:
                setattr(made, name, value)
            except AttributeError:
                raise TypeError(f"{cls.__name__} has no member {name}{near(name, cls.members())}") from None
            except (OverflowError, IndexError) as error:
                raise ValueError(f"{cls.__name__}.{name} cannot hold {value!r}: {error}") from None
        return made  # type: ignore[no-any-return]

    @classmethod
    def view(cls, buffer: Buffer, offset_bytes: int = 0) -> Self:
        """Return a view of the struct in writable `buffer` from `offset_bytes`.

        A flexible array takes the rest of the buffer. Raises `ValueError` if the buffer is too short or read-only.
        """
        return _plan(cls).view(buffer, offset_bytes)  # type: ignore[no-any-return]

    @classmethod
    def pack(cls, *values: int | float | bytes) -> bytes:
        """Return the struct's bytes from the values of all leaves, in the order of `leaves`; other bytes are zero."""
        return _plan(cls).bulk.pack(values)

    if TYPE_CHECKING:

        @classmethod
        def pack_into(cls, buffer: Buffer, offset_bytes: int, /, *values: int | float | bytes) -> None:
            """Fill the struct at `offset_bytes` of `buffer` with the values of all leaves, in the order of `leaves`.

            Padding becomes zero.
            """
    else:
        pack_into = _PackInto()

    @classmethod
    def unpack(cls, buffer: Buffer, offset_bytes: int = 0) -> tuple[Any, ...]:
        """Read every leaf at once, in the order of `leaves`."""
        return _plan(cls).bulk.unpack(buffer, offset_bytes)

    @classmethod
    def leaves(cls) -> tuple[str, ...]:
        """Return the names of the values of `pack` and `unpack`: `body.x`, `tail[3]`.

        Of members that overlap only the first is a leaf. A byte array is one leaf.
        """
        return _plan(cls).bulk.names

    @classmethod
    def members(cls) -> dict[str, Row]:
        """Return the members by name, in header order; members that a later release added come last."""
        return {row.name: row for row in map(Row, cls.LAYOUT.split())}

    @classmethod
    def offset_of(cls, name: str) -> int:
        """Return the byte offset of a member."""
        return cls.members()[name].byte

    @classmethod
    def at(cls, release: str) -> type[Self]:
        """Return the struct with the layout of driver `release` ("580.142"): the newest row that is not newer than it.

        A struct without differences is the same in every release. Raises `NotSupported` for a release that lacks the
        struct, or that the module has no facts about.
        """
        # needed only for facts of released drivers
        from ringup.autogen.releases import struct_at

        return struct_at(cls, release)  # type: ignore[return-value]


def _window(memory: memoryview, offset_bytes: int, size_bytes: int) -> Buffer:
    """Return a part of `memory` for cffi.

    QUIRK: CPython crashes if its collector clears a memoryview while cffi uses it, which any error that a variable
    keeps can cause: its traceback and the variable are a cycle. It clears arrays of ctypes in any order.
    """
    import ctypes

    return (ctypes.c_char * size_bytes).from_buffer(memory, offset_bytes)


class Plan:
    """How one struct is served; made from its rows on first use."""

    __slots__ = ("_backend", "_bulk", "_ctypes", "_packer", "_pointer", "_struct", "flexible", "fresh", "plain", "rows")

    plain: bool  # PlainView serves it
    fresh: Callable[[], Any]  # returns a view over its own zeroed memory

    def __init__(self, owner: type[Struct]) -> None:
        import _cffi_backend

        # loaded here: code that only reads LAYOUT does not need it
        self._backend: Any = _cffi_backend
        self._struct = owner
        self.rows = tuple(owner.members().values())
        nested = [_plan(nested_type(owner, row.base)) for row in self.rows if row.base not in SCALARS]
        self.plain = any(plan.plain for plan in nested) or any(
            _unit(row, owner.SIZE) is None for row in self.rows if row.width
        )
        self.flexible = next((row for row in self.rows if row.flexible), None)
        self._ctypes: dict[int, tuple[Any, Any]] = {}
        self._bulk: Bulk | None = None
        self._packer: Callable[..., None] | None = None
        if self.plain or self.flexible:
            self._pointer, self.fresh = None, lambda: self.view(bytearray(owner.SIZE), 0)
        else:
            self._pointer = self.ctype(0)[1]
            self.fresh = partial(self._backend.newp, self._pointer)

    @property
    def bulk(self) -> Bulk:
        if self._bulk is None:
            # needed only to pack or unpack
            from ringup.autogen.bulk import Bulk

            self._bulk = Bulk(self._struct)
        return self._bulk

    @property
    def packer(self) -> Callable[..., None]:
        if self._packer is None:
            self._packer = self.bulk.packer()
        return self._packer

    def view(self, buffer: Buffer, offset_bytes: int) -> Any:
        """Return a view of the struct in `buffer`; see `Struct.view`."""
        flat = memoryview(buffer)
        if flat.readonly or offset_bytes < 0 or flat.nbytes - offset_bytes < self._struct.SIZE:
            self._refuse(flat, offset_bytes)
        if self.plain or self.flexible:
            return self._odd_view(flat.cast("B")[offset_bytes:])
        if offset_bytes or isinstance(buffer, memoryview):
            buffer = _window(flat, offset_bytes, self._struct.SIZE)
        return self._backend.from_buffer(self._pointer, buffer)

    def _odd_view(self, memory: memoryview) -> Any:
        if self.flexible and not self.plain:
            length = max(memory.nbytes - self.flexible.byte, 0) // element_size(self._struct, self.flexible)
            if length:
                return self._backend.from_buffer(self.ctype(length)[1], _window(memory, 0, memory.nbytes))
        from ringup.autogen.plain_view import PlainView

        return PlainView(memory, self._struct)

    def _refuse(self, flat: memoryview, offset_bytes: int) -> None:
        name = self._struct.__name__
        if flat.readonly:
            raise ValueError(f"{name} needs a writable buffer")
        left = max(flat.nbytes - offset_bytes, 0)
        raise ValueError(f"{name} takes {self._struct.SIZE} bytes, the buffer has {left} from byte {offset_bytes}")

    def ctype(self, tail: int) -> tuple[Any, Any]:
        """Return the cffi struct type and its pointer type; `tail` is the length of a flexible array."""
        if tail not in self._ctypes:
            made = self._backend.new_struct_type(f"struct {self._struct.__name__}")
            size = self._struct.SIZE
            if self.flexible:
                size = max(size, self.flexible.byte + tail * element_size(self._struct, self.flexible))
            # cffi checks no index of `[0]`.
            fields = [self._cffi_field(row, tail) for row in self.rows if not row.flexible or tail]
            if len(self._ctypes) >= KEPT_TAILS:
                self._ctypes.clear()
            self._backend.complete_struct_or_union(made, fields, None, size, 1, 0, 0)
            self._ctypes[tail] = made, self._backend.new_pointer_type(made)
        return self._ctypes[tail]

    def _cffi_field(self, row: Row, tail: int) -> tuple[str, Any, int, int]:
        """Return the cffi field of a member at a fixed place.

        A bit-field is a nameless struct of one unit, padded up to the field's lowest bit. An integer of 32 bits or less
        is a bit-field of its whole width, which cffi stores a quarter faster.
        """
        backend = self._backend
        whole = not row.dims and not row.width and row.base in SCALARS and SCALARS[row.base][2] in "BHIbhi"
        if (row.width and row.width < 64) or whole:
            width = row.width or SCALARS[row.base][0] * 8
            unit = (width // 8, row.byte, 0) if whole else _unit(row, self._struct.SIZE)
            assert unit is not None  # `plain` would be set
            unit_bytes, byte, bit = unit
            letter = "int" if row.base in SCALARS and SCALARS[row.base][1] else "uint"
            holder = backend.new_primitive_type(f"{letter}{unit_bytes * 8}_t")
            part = backend.new_struct_type("struct")
            padding = [("", holder, bit, -1)] if bit else []
            backend.complete_struct_or_union(part, [*padding, (row.name, holder, width, -1)], None, unit_bytes, 1, 0, 0)
            return "", part, -1, byte
        if row.base in SCALARS:
            bytes_name = row.base == "char" and row.dims
            made = backend.new_primitive_type("char" if bytes_name else SCALARS[row.base][3])
        else:
            made = _plan(nested_type(self._struct, row.base)).ctype(0)[0]
        for length in reversed(row.dims):
            made = backend.new_array_type(backend.new_pointer_type(made), tail if length < 0 else length)
        return row.name, made, -1, row.byte


def _unit(row: Row, size_bytes: int) -> tuple[int, int, int] | None:
    """Return (bytes, first byte, bit) of the smallest unit inside the struct that holds a bit-field; None if there is
    none.

    The unit need not be aligned.
    """
    if row.width == 64 and row.bit == 0:
        return 8, row.byte, 0  # served as an ordinary member
    for unit in (1, 2, 4, 8):
        byte = min(row.byte, size_bytes - unit)
        bit = (row.byte - byte) * 8 + row.bit
        if byte >= 0 and bit + row.width <= unit * 8 and row.width < 64:
            return unit, byte, bit
    return None


def element_size(owner: type[Struct], row: Row) -> int:
    """Return the bytes of one element of a member, or of the member itself if it is not an array."""
    if row.base in SCALARS:
        return SCALARS[row.base][0]
    return nested_type(owner, row.base).SIZE


def nested_type(owner: type[Struct], name: str) -> type[Struct]:
    """Return the struct called `name` in the module of `owner`, in the release that `owner` is laid out for."""
    found: type[Struct] = getattr(sys.modules[owner.__module__], name)
    return found.at(owner.RELEASE) if owner.RELEASE else found


_PLANS: dict[type, Plan] = {}  # one for each struct, made on first use


def _plan(owner: type[Struct]) -> Plan:
    try:
        return _PLANS[owner]
    except KeyError:
        if not hasattr(owner, "LAYOUT"):
            raise TypeError(f"{owner.__name__} has no layout: use one of the generated structs") from None
        plan = _PLANS[owner] = Plan(owner)
        return plan


def memory(view: Any) -> memoryview:
    """Return the writable bytes of a struct, for `fcntl.ioctl`, `os.write` or `bytes`.

    They keep the view's memory alive.
    """
    import _cffi_backend as backend

    from ringup.autogen.plain_view import PlainView, memory_of

    if isinstance(view, PlainView):
        return memory_of(view)
    kind = backend.typeof(view)
    # A nested struct.
    if kind.kind == "struct":
        view = backend.rawaddressof(backend.new_pointer_type(kind), view, 0)
    flat: memoryview = memoryview(backend.buffer(view)).cast("B")
    return flat


def near(name: str, known: Mapping[str, object]) -> str:
    """Return `; near: …` with the known names that are similar to `name`, or nothing."""
    from difflib import get_close_matches  # needed only for an error

    found = get_close_matches(name, known, 3)
    return f"; near: {', '.join(found)}" if found else ""
