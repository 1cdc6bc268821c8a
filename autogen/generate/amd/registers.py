"""Read amdgpu's `include/asic_reg` headers: register offsets, segments and field masks, as text.

Source: `drivers/gpu/drm/amd/include/asic_reg/<block>/<block>_<version>_{offset,sh_mask}.h` and `.._smn.h`. They contain
only `#define NAME number`, so no preprocessor is needed; anything else is refused or listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.emit.register_facts import SEGMENT_UNKNOWN, FieldFacts, RegisterFacts
from ringup.errors import HeaderError

# How a register is accessed, by the prefix of its macro, and the bytes of one step of its offset. reg, mm:
# memory-mapped, dwords; smn: byte address on the management network; cfg: byte address in configuration space; ix:
# number of a register behind an index and data pair, without a unit.
UNIT_BYTES = {"reg": 4, "mm": 4, "smn": 1, "cfg": 1, "ix": 1}

_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)[uUlL]{0,3}[ \t]*(?://.*)?$", re.MULTILINE
)
_OTHER = re.compile(
    r"^(?![ \t]*(?://.*)?$)"
    r"(?![ \t]*#[ \t]*define[ \t]+\w+[ \t]+(?:0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)[uUlL]{0,3}[ \t]*(?://.*)?$).*$",
    re.MULTILINE,
)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_PREFIXED = re.compile(r"(reg|mm|smn|cfg|ix)(?=[A-Z0-9_])(\w+)")
_GUARD = re.compile(r"[ \t]*#[ \t]*(?:ifndef[ \t]+(\w+)|define[ \t]+(\w+)|(endif))[ \t]*(?://.*)?")
_NAMED = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)")


@dataclass(frozen=True)
class RegisterHeaders:
    """The contents of a block's headers: registers in order of first appearance, and what could not be read."""

    registers: tuple[RegisterFacts, ...]
    rejected: tuple[Rejected, ...]


def read_block(stem: Path) -> RegisterHeaders:
    """Read `<stem>_offset.h`, `<stem>_smn.h` and `<stem>_sh_mask.h`, as far as they exist.

    `stem` is the path without the ending. If none of them exists, that is an error.
    """
    offsets: dict[str, int] = {}
    rejected: list[Rejected] = []
    seen = False
    for ending in ("_offset.h", "_smn.h"):
        path = stem.with_name(stem.name + ending)
        if path.exists():
            seen = True
            for name, value in read_numbers(path, rejected).items():
                if offsets.setdefault(name, value) != value:
                    rejected.append(Rejected(name, path.name, f"{offsets[name]:#x} in another header, {value:#x} here"))
    masks_path = stem.with_name(stem.name + "_sh_mask.h")
    masks = read_numbers(masks_path, rejected) if masks_path.exists() else {}
    if not seen and not masks_path.exists():
        raise HeaderError(f"no register header {stem.name}_offset.h, _smn.h or _sh_mask.h in {stem.parent.name}/")
    places = _places(offsets, stem.name, rejected)
    fields, widths = _fields(masks, {name for name, _ in places}, masks_path.name, rejected)
    registers = [
        RegisterFacts(
            name,
            kind,
            offset,
            segment,
            UNIT_BYTES[kind],
            widths.get(name, 32),
            fields=fields.get(name, ()),
        )
        for (name, kind), (offset, segment) in places.items()
    ]
    placed = {name for name, _ in places}
    registers += [
        RegisterFacts(name, "", None, width_bits=widths.get(name, 32), fields=of_register)
        for name, of_register in fields.items()
        if name not in placed
    ]
    return RegisterHeaders(tuple(registers), tuple(rejected))


def read_numbers(path: Path, rejected: list[Rejected]) -> dict[str, int]:
    """Return every `#define NAME number` of a header; if a name is defined again, the last one, as in C.

    Conditional compilation other than the include guard, an `#include` or an `#undef` is an error: the header would
    then mean something else than its lines say.
    """
    try:
        text = path.read_text("latin-1")
    except OSError as error:
        raise HeaderError(f"register header {path.name} cannot be read: {error.strerror}") from error
    if "\\\n" in text:
        text = text.replace("\\\n", "  ")
    if "/*" in text:
        text = _COMMENT.sub(_blank, text)
    pairs = _DEFINE.findall(text)
    _check_the_rest(text, path.name, rejected)
    numbers = {name: int(value, 0) for name, value in pairs}
    if len(numbers) != len(pairs):
        _list_redefinitions(pairs, path.name, rejected)
    return numbers


def _blank(comment: re.Match[str]) -> str:
    """Replace a comment by as many line ends, so that line numbers stay the same."""
    return " " + "\n" * comment[0].count("\n")


def _check_the_rest(text: str, header: str, rejected: list[Rejected]) -> None:
    """Accept the include guard among the lines that define no number; list or refuse the others."""
    guard, depth, line, at = "", 0, 1, 0
    for other in _OTHER.finditer(text):
        line += text.count("\n", at, other.start())
        at = other.start()
        found = _GUARD.fullmatch(other[0])
        if found and found[1] and not guard:
            guard, depth = found[1], 1
        elif found and found[3] and depth == 1:
            depth = 0
        elif found and found[2] == guard and guard:
            pass
        elif named := _NAMED.match(other[0]):
            value = other[0][named.end() :].strip()
            rejected.append(Rejected(named[1], f"{header}:{line}", f"not a number: {value[:40]!r}"))
        elif other[0].lstrip().startswith("#"):
            raise HeaderError(
                f"{header}:{line}: {other[0].strip()[:60]!r} is more than the include guard and plain numbers we read"
            )
        else:
            rejected.append(Rejected(other[0].strip()[:40], f"{header}:{line}", "neither a comment nor a #define"))
    if depth:
        raise HeaderError(f"{header}: the include guard {guard} has no #endif: the file is cut short")


def _list_redefinitions(pairs: Iterable[tuple[str, str]], header: str, rejected: list[Rejected]) -> None:
    last: dict[str, int] = {}
    for name, text in pairs:
        value = int(text, 0)
        if last.get(name, value) != value:
            rejected.append(Rejected(name, header, f"{last[name]:#x} is defined again as {value:#x}, which counts"))
        last[name] = value


def _places(
    offsets: dict[str, int], block: str, rejected: list[Rejected]
) -> dict[tuple[str, str], tuple[int, int | None]]:
    """Return offset and segment by (register name, kind)."""
    places: dict[tuple[str, str], tuple[int, int | None]] = {}
    for macro, value in offsets.items():
        if macro.endswith("_BASE_IDX"):
            if macro[:-9] not in offsets:
                rejected.append(Rejected(macro, block, "segment of a register that has no offset"))
            continue
        prefixed = _PREFIXED.fullmatch(macro)
        if prefixed is None:
            rejected.append(Rejected(macro, block, f"{value:#x} under a name without a register's prefix"))
            continue
        segment = offsets.get(macro + "_BASE_IDX")
        if segment is None and prefixed[1] in ("reg", "mm"):
            segment = SEGMENT_UNKNOWN
            rejected.append(Rejected(macro, block, f"offset {value:#x} without a segment"))
        places[prefixed[2], prefixed[1]] = (value, segment)
    return places


def _fields(
    numbers: dict[str, int], registers: set[str], header: str, rejected: list[Rejected]
) -> tuple[dict[str, tuple[FieldFacts, ...]], dict[str, int]]:
    """Return the fields of each register, lowest bit first, and the width of registers wider than 32 bits."""
    masks: dict[str, int] = {}
    shifts: dict[str, int] = {}
    for macro, value in numbers.items():
        if macro.endswith("__SHIFT"):
            shifts[macro[:-7]] = value
        elif macro.endswith("_MASK") and "__" in macro:
            masks[macro[:-5]] = value
        else:
            rejected.append(Rejected(macro, header, f"{value:#x} is neither the shift nor the mask of a field"))
    for stem in shifts.keys() - masks.keys():
        rejected.append(Rejected(stem, header, f"shift {shifts[stem]} without a mask: its width is not known"))
    found: dict[str, list[FieldFacts]] = {}
    widths: dict[str, int] = {}
    interned: dict[tuple[str, int], FieldFacts] = {}
    for stem, mask in masks.items():
        register, name = _split(stem, registers)
        if not mask or mask >> 64:
            rejected.append(Rejected(stem, header, f"mask {mask:#x} names no bit of a register"))
            continue
        lo = (mask & -mask).bit_length() - 1
        if shifts.get(stem, lo) != lo:
            rejected.append(
                Rejected(f"{stem}__SHIFT", header, f"shift {shifts[stem]} beside mask {mask:#x}, which counts")
            )
        key = (name, mask)
        if key not in interned:
            hi = mask.bit_length() - 1
            interned[key] = FieldFacts(name, hi, lo, None if mask == (2 << hi) - (1 << lo) else mask)
        if mask >> 32:
            widths[register] = 64
        found.setdefault(register, []).append(interned[key])
    rejected.sort(key=lambda one: (one.where, one.name))
    return {register: tuple(sorted(fields, key=lambda f: f.lo)) for register, fields in found.items()}, widths


def _split(stem: str, registers: set[str]) -> tuple[str, str]:
    """Split `REGISTER__FIELD`. Either part may contain `__`; the longest known register wins."""
    register, _, field = stem.partition("__")
    if "__" not in field and register in registers:
        return register, field
    for at in range(len(stem) - 3, 0, -1):
        if stem.startswith("__", at) and stem[:at] in registers:
            return stem[:at], stem[at + 2 :]
    return register, field
