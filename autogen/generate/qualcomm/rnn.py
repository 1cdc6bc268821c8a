"""Read the Adreno register database (rules-ng-ng XML): domains, registers, bitsets, enums and their conditions.

Source: `drivers/gpu/drm/msm/registers` of Linux, `src/freedreno/registers` of Mesa; format: `rules-fd.txt`,
`rules-fd.xsd` there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.qualcomm.rnn_xml import Node, load
from ringup.errors import HeaderError

MAX_ELEMENTS = 1 << 16  # of one array
DEFAULT_VARSET = "chip"

# Types for numbers, floats, addresses and similar values; every other `type` names an enum or a bitset.
SCALARS = frozenset(("a3xx_regid", "boolean", "uint", "hex", "int", "fixed", "ufixed", "float", "address", "waddress"))  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: it holds for the members of enum `varset` in `variants`.

    `variants` is `A6XX`, `A6XX-`, `-A5XX` or `A2XX-A4XX`, or a comma-separated list of these.
    """

    varset: str
    variants: str


@dataclass(frozen=True, slots=True)
class EnumValue:
    """One named value and its condition."""

    name: str
    value: int
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Bits:
    """A bit-field. `name` is empty if the whole register is the field.

    `type` is a scalar's or an enum's name, or empty. The field holds the value shifted right by `shr`. `radix` is the
    number of fraction bits of a fixed-point number.
    """

    name: str
    hi: int
    lo: int
    type: str = ""
    shr: int = 0
    radix: int = 0
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Dimension:
    """An array around a register: `count` elements `stride` apart, or at `offsets` if those are listed."""

    stride: int
    count: int
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Register:
    """A register or packet dword.

    `offset` is that of element 0 in the domain's units. All `conditions` must hold.
    """

    domain: str
    name: str
    offset: int
    width_bits: int
    fields: tuple[Bits, ...]
    dimensions: tuple[Dimension, ...]
    conditions: tuple[Condition, ...]
    bitset: str
    where: str
    # False: an array without any register in it, so the source gives no width.
    described: bool = True


@dataclass(frozen=True)
class Database:
    """The contents of one file and its imports, in order of first appearance."""

    enums: dict[str, tuple[EnumValue, ...]]
    bitsets: dict[str, tuple[Bits, ...]]
    registers: tuple[Register, ...]
    rejected: tuple[Rejected, ...]

    def members(self, varset: str) -> list[str]:
        """Return the names of a varset in order."""
        if varset not in self.enums:
            raise HeaderError(f"varset {varset} is no enum of the register files")
        return [value.name for value in self.enums[varset]]

    def holds(self, condition: Condition | None, chosen: Mapping[str, str]) -> bool:
        """Return whether `condition` holds if each varset in `chosen` has that member. Other varsets are not
        checked.
        """
        if condition is None or condition.varset not in chosen:
            return True
        return chosen[condition.varset] in variant_names(condition.variants, self.members(condition.varset))

    def applies(self, register: Register, chosen: Mapping[str, str]) -> bool:
        """Return whether the register exists for `chosen`."""
        return all(self.holds(condition, chosen) for condition in register.conditions)


_RANGE = re.compile(r"(\w*)([-:]?)(\w*)")


def variant_names(text: str, members: list[str]) -> list[str]:
    """Return the members in a variants attribute; `-` includes the upper end of a range, `:` does not."""
    found: list[str] = []
    for part in re.split(r"[,\s]+", text.strip()):
        match = _RANGE.fullmatch(part)
        low, sign, high = match.groups() if match else ("", "", "")
        ends = [name for name in (low, high) if name]
        if not ends or any(name not in members for name in ends):
            raise HeaderError(f"variants {text!r} has no meaning among {', '.join(members)}")
        first = members.index(low) if low else 0
        last = first
        if sign:
            last = members.index(high) - (sign == ":") if high else len(members) - 1
        found += members[first : last + 1]
    return found


@dataclass(frozen=True, slots=True)
class _Scope:
    """What an element inherits from the elements around it."""

    domain: str
    varset: str
    conditions: tuple[Condition, ...] = ()
    prefix: str = ""
    offset: int = 0
    dimensions: tuple[Dimension, ...] = ()


class _Reader:
    """Collects definitions over all files; enums and bitsets first, since they are global wherever they are."""

    def __init__(self) -> None:
        self.enums: dict[str, tuple[EnumValue, ...]] = {}
        self.bitsets: dict[str, tuple[Bits, ...]] = {}
        self.registers: list[Register] = []
        self.rejected: list[Rejected] = []

    def globals(self, node: Node, varset: str) -> None:
        inner = node.attributes.get("varset", varset)
        if node.tag == "enum":
            self._enum(node, inner)
        elif node.tag == "bitset":
            fields = tuple(_bits(child, 32, inner, limit=64) for child in node.each("bitfield"))
            if self.bitsets.setdefault(node.text("name"), fields) != fields:
                node.refuse(f"bitset {node.text('name')} is defined a second time, differently")
        for child in node.children:
            self.globals(child, inner)

    def _enum(self, node: Node, varset: str) -> None:
        values: list[EnumValue] = []
        for child in node.each("value"):
            if "value" in child.attributes:
                values.append(EnumValue(_name(child), child.number("value"), _condition(child, varset)))
            else:
                self.rejected.append(Rejected(_name(child), child.where, f"no value= in enum {node.text('name')}"))
        if self.enums.setdefault(node.text("name"), tuple(values)) != tuple(values):
            node.refuse(f"enum {node.text('name')} is defined a second time, differently")

    def domains(self, node: Node) -> None:
        if node.tag == "domain":
            varset = node.attributes.get("varset", DEFAULT_VARSET)
            scope = _Scope(_name(node), varset, _conditions((), node, varset))
            for child in node.children:
                self._placed(child, scope)
            return
        for child in node.children:
            self.domains(child)

    def _placed(self, node: Node, scope: _Scope) -> None:
        """Read a register, array or stripe."""
        varset = node.attributes.get("varset", scope.varset)
        conditions = _conditions(scope.conditions, node, varset)
        if node.tag == "stripe":
            inner = replace(scope, varset=varset, conditions=conditions, offset=scope.offset + node.number("offset", 0))
            for child in node.children:
                self._placed(child, inner)
        elif node.tag == "array":
            self._array(node, replace(scope, varset=varset, conditions=conditions))
        elif node.tag in ("reg32", "reg64"):
            width = int(node.tag[3:])
            bitset, fields = self._fields(node, width, varset)
            dimensions = scope.dimensions
            if "stride" in node.attributes:
                dimensions += (_dimension(node),)
            name = scope.prefix + _name(node)
            offset = scope.offset + node.number("offset")
            self.registers.append(
                Register(scope.domain, name, offset, width, fields, dimensions, conditions, bitset, node.where)
            )
        elif node.tag not in ("doc", "brief", "enum", "bitset", "import"):
            self.rejected.append(Rejected(node.attributes.get("name", node.tag), node.where, f"element <{node.tag}>"))

    def _array(self, node: Node, scope: _Scope) -> None:
        dimension = _dimension(node)
        name = scope.prefix + (_name(node) if "name" in node.attributes else "")
        offset = scope.offset + (0 if dimension.offsets else node.number("offset"))
        dimensions = (*scope.dimensions, dimension)
        inner = replace(scope, prefix=f"{name}_", offset=offset, dimensions=dimensions)
        before = len(self.registers)
        for child in node.children:
            self._placed(child, inner)
        if len(self.registers) == before:
            self.registers.append(
                Register(scope.domain, name, offset, 32, (), dimensions, scope.conditions, "", node.where, False)
            )

    def _fields(self, node: Node, width: int, varset: str) -> tuple[str, tuple[Bits, ...]]:
        """Return the bitset's name, if one describes the register, and all fields."""
        kind = node.attributes.get("type", "")
        fields: tuple[Bits, ...] = ()
        bitset = ""
        if kind in self.bitsets:
            bitset, fields = kind, self.bitsets[kind]
        elif {"type", "high", "low", "pos", "shr", "radix"} & node.attributes.keys():
            fields = (_bits(node, width, varset, whole=True),)
        fields += tuple(_bits(child, width, varset) for child in node.each("bitfield"))
        for bits in fields:
            if bits.hi >= width:
                node.refuse(f"field {bits.name or node.text('name')} reaches bit {bits.hi} of {width}")
            if bits.type and bits.type not in SCALARS and bits.type not in self.enums:
                self.rejected.append(
                    Rejected(bits.name, node.where, f"type {bits.type} is neither enum nor known scalar")
                )
        return bitset, fields


def _name(node: Node) -> str:
    name = node.text("name")
    if not _NAME.fullmatch(name):
        node.refuse(f"name {name!r} of <{node.tag}> is no identifier")
    return name


def _condition(node: Node, varset: str) -> Condition | None:
    variants = node.attributes.get("variants")
    return Condition(varset, variants) if variants else None


def _conditions(outer: tuple[Condition, ...], node: Node, varset: str) -> tuple[Condition, ...]:
    condition = _condition(node, varset)
    return outer if condition is None else (*outer, condition)


def _dimension(node: Node) -> Dimension:
    count = node.number("length")
    if not 1 <= count <= MAX_ELEMENTS:
        node.refuse(f"an array of {count} elements")
    offsets: tuple[int, ...] = ()
    if "offsets" in node.attributes:
        try:
            offsets = tuple(int(text, 0) for text in node.text("offsets").split(","))
        except ValueError:
            node.refuse(f"offsets={node.text('offsets')!r} is no list of numbers")
        if len(offsets) != count:
            node.refuse(f"{len(offsets)} offsets of {count} elements")
    return Dimension(node.number("stride"), count, offsets)


def _bits(node: Node, width: int, varset: str, whole: bool = False, limit: int = 0) -> Bits:
    """Read the bit range of a field, or of a register that is one field; without a range it has all `width` bits."""
    varset = node.attributes.get("varset", varset)
    if "pos" in node.attributes:
        hi = lo = node.number("pos")
    else:
        hi, lo = node.number("high", width - 1), node.number("low", 0)
    if not lo <= hi < (limit or width):
        node.refuse(f"bits {hi}:{lo} of {node.text('name')} do not lie within {limit or width}, high bit first")
    shr, radix = node.number("shr", 0), node.number("radix", 0)
    # a register's own variants are its condition
    condition = None if whole else _condition(node, varset)
    return Bits("" if whole else _name(node), hi, lo, node.attributes.get("type", ""), shr, radix, condition)


def read(root: Path, names: tuple[str, ...]) -> Database:
    """Read register files `names` below `root` (the base of import paths) and all they import."""
    trees: dict[str, Node] = {}
    for name in names:
        for tree in load(root, name):
            trees.setdefault(tree.where.partition(":")[0], tree)
    reader = _Reader()
    for tree in trees.values():
        reader.globals(tree, DEFAULT_VARSET)
    for tree in trees.values():
        reader.domains(tree)
    return Database(reader.enums, reader.bitsets, tuple(reader.registers), tuple(reader.rejected))
