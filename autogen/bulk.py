"""Pack or unpack all leaves of a struct with one call of the `struct` module; bit-fields are joined and split around
it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ringup.autogen.structs import SCALARS, Struct, element_size, nested_type

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]

BYTES = ("u8", "char")  # arrays of these are one `bytes` value
# name, first bit, bits, letter; "" marks an unsigned bit-field, None a signed one
Leaf = tuple[str, int, int, str | None]


class Bulk:
    """Packs and unpacks all leaves of a struct in one call of the `struct` module."""

    __slots__ = ("_bits", "_code", "_owner", "_texts", "names")

    def __init__(self, owner: type[Struct]) -> None:
        self._owner = owner
        leaves = _without_overlaps(sorted(_leaves(owner, "", 0), key=lambda leaf: leaf[1]))
        letters, names, at = ["<"], [], 0
        self._bits: list[tuple[int, list[tuple[int, int, bool]]]] | None = None
        groups: list[tuple[int, list[tuple[int, int, bool]]]] = []
        for name, start, width, letter in leaves:
            names.append(name)
            # An ordinary leaf.
            if letter:
                letters.append(f"{start // 8 - at}x{letter}" if start // 8 > at else letter)
                at = (start + width) // 8
                groups.append((0, []))
                continue
            signed = letter is None
            # It shares its first byte with the bit-field before it.
            if start // 8 < at:
                size, parts = groups[-1]
                first = at - size
            else:
                letters.append(f"{start // 8 - at}x")
                first, size, parts = start // 8, 0, []
                groups.append((0, parts))
                letters.append("")
            end = (start + width + 7) // 8
            parts.append((start - first * 8, width, signed))
            groups[-1] = end - first, parts
            letters[-1] = f"{end - first}s"
            at = end
        letters.append(f"{owner.SIZE - at}x")
        self.names = tuple(names)
        self._texts = [(i, leaf[2] // 8) for i, leaf in enumerate(leaves) if leaf[3] and leaf[3].endswith("s")]
        if any(size for size, _ in groups):
            self._bits = groups
        else:
            native = "@" + "".join(letters[1:])
            if struct.calcsize(native) == owner.SIZE and sys.byteorder == "little" and _aligned(leaves):
                # The places are the same, and the module's native codes are faster.
                letters = [native]
        self._code = struct.Struct("".join(letters))

    def pack(self, values: tuple[Any, ...]) -> bytes:
        out = bytearray(self._owner.SIZE)
        self.packer()(out, 0, *values)
        return bytes(out)

    def packer(self) -> Callable[..., None]:
        """Return `f(buffer, offset_bytes, *values)`.

        For plain numbers it costs little more than the `struct` module's own call.
        """
        pack_into, refuse, join = self._code.pack_into, self._refuse, self._join

        # One tuple, passed on unchanged: naming its parts would copy it twice.
        def pack_numbers(*given: Any) -> None:
            try:
                inside = given[1] >= 0
                if inside:
                    pack_into(*given)
            except (struct.error, TypeError, IndexError) as error:
                refuse(given, error)
            else:
                if not inside:
                    refuse(given, None)

        def pack_any(*given: Any) -> None:
            pack_numbers(*given[:2], *join(given[2:]))

        return pack_any if self._bits is not None or self._texts else pack_numbers

    def unpack(self, buffer: Buffer, offset_bytes: int) -> tuple[Any, ...]:
        try:
            values = self._code.unpack_from(buffer, offset_bytes) if offset_bytes >= 0 else None
        except struct.error:
            values = None
        if values is None:
            name, size = self._owner.__name__, self._owner.SIZE
            raise ValueError(f"{name} takes {size} bytes from byte {offset_bytes}, which the buffer lacks")
        return values if self._bits is None else tuple(self._split(values))

    def _refuse(self, given: tuple[Any, ...], error: Exception | None) -> None:
        """Raise an error that says why `pack_into(*given)` failed."""
        name = self._owner.__name__
        if len(given) < 2:
            raise TypeError(f"{name}.pack_into takes a buffer, an offset and {len(self.names)} values") from None
        flat, offset_bytes, *values = memoryview(given[0]), *given[1:]
        if flat.readonly:
            raise ValueError(f"{name} needs a writable buffer") from None
        if offset_bytes < 0 or flat.nbytes - offset_bytes < self._owner.SIZE:
            raise ValueError(
                f"{name} takes {self._owner.SIZE} bytes from byte {offset_bytes}, which the buffer lacks"
            ) from None
        if self._bits is None and len(values) != len(self.names):
            raise ValueError(f"{name} has {len(self.names)} leaves, not {len(values)}") from None
        raise ValueError(f"{name}: {error}") from None

    def _join(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(values) != len(self.names):
            raise ValueError(f"{self._owner.__name__} has {len(self.names)} leaves, not {len(values)}")
        for at, size in self._texts:
            if len(values[at]) > size:
                raise ValueError(f"{self._owner.__name__}.{self.names[at]} holds {size} bytes, not {values[at]!r}")
        if self._bits is None:
            return values
        out: list[Any] = []
        at = 0
        for size, parts in self._bits:
            if not size:
                out.append(values[at])
                at += 1
                continue
            word = 0
            for bit, width, signed in parts:
                value = values[at]
                if value >> width - signed not in ((0, -1) if signed else (0,)):
                    raise ValueError(f"{self._owner.__name__}.{self.names[at]} holds {width} bits, not {value:#x}")
                word |= (value & (1 << width) - 1 if signed else value) << bit
                at += 1
            out.append(word.to_bytes(size, "little"))
        return tuple(out)

    def _split(self, values: tuple[Any, ...]) -> Iterator[Any]:
        for (size, parts), value in zip(self._bits or (), values, strict=True):
            if not size:
                yield value
                continue
            word = int.from_bytes(value, "little")
            for bit, width, signed in parts:
                part = word >> bit & (1 << width) - 1
                yield part - (1 << width) if signed and part >> width - 1 else part


def _leaves(owner: type[Struct], prefix: str, base: int) -> Iterator[Leaf]:
    """Yield every scalar of the struct, nested ones included, with its place in bits from the outermost start."""
    for row in owner.members().values():
        start = base + row.byte * 8 + row.bit
        name = prefix + row.name
        if row.width:
            yield name, start, row.width, None if SCALARS[row.base][1] else ""
            continue
        if row.flexible:
            continue
        count = 1
        for length in row.dims:
            count *= length
        if row.base in BYTES and row.dims:
            yield name, start, count * 8, f"{count}s"
            continue
        size = element_size(owner, row)
        for i, index in enumerate(_indices(row.dims)):
            if row.base in SCALARS:
                yield name + index, start + i * size * 8, size * 8, SCALARS[row.base][2]
            else:
                yield from _leaves(nested_type(owner, row.base), f"{name}{index}.", start + i * size * 8)


def _indices(dims: tuple[int, ...]) -> Iterator[str]:
    if not dims:
        yield ""
        return
    for i in range(dims[0]):
        for rest in _indices(dims[1:]):
            yield f"[{i}]{rest}"


def _without_overlaps(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Drop overlaps: of leaves that share bits keep the one that begins first, or is first in the header."""
    kept: list[Leaf] = []
    end = 0
    for leaf in leaves:
        if leaf[1] >= end and leaf[2]:
            kept.append(leaf)
            end = leaf[1] + leaf[2]
    return kept


def _aligned(leaves: Iterable[Leaf]) -> bool:
    return all(leaf[3] is not None and (leaf[3].endswith("s") or leaf[1] % leaf[2] == 0) for leaf in leaves)
