"""Structs and unions with libclang's layout, flattened to what C code can name."""

from __future__ import annotations

import re
from typing import NamedTuple

from ringup.autogen.generate.c import libclang as lc
from ringup.autogen.generate.c.libclang import Cursor, Type
from ringup.autogen.generate.c.tokens import Unreadable
from ringup.autogen.generate.c.translation import Translation
from ringup.autogen.generate.emit.facts import Member, Rejected, StructFacts, TypeRef

# libclang's CXTypeKind, of canonical types.
_POINTERS = {101: "pointer", 102: "block", 109: "object pointer"}
RECORD, ENUM, FUNCTION_NO_PROTO, FUNCTION, ARRAY, FLEXIBLE = 105, 106, 110, 111, 112, 114
COMPLEX, VECTOR, EXT_VECTOR, ATOMIC = 100, 113, 176, 177
BOOL, CHAR_U, CHAR_S = 3, 4, 13
FLOAT, DOUBLE, LONG_DOUBLE = 21, 22, 23
UNSIGNED = {5: "u8", 8: "u16", 9: "u32", 10: "u64", 11: "u64", 12: "u128"}
SIGNED = {14: "i8", 15: "i32", 16: "i16", 17: "i32", 18: "i64", 19: "i64", 20: "i128"}
_PLAIN = {**UNSIGNED, **SIGNED, BOOL: "bool", CHAR_U: "char", CHAR_S: "char", FLOAT: "f32", DOUBLE: "f64"}
_NESTING_MAX = 64
_NUMBER = re.compile(r"\(\s*(0[xX][0-9a-fA-F]+|[1-9][0-9]*)\s*\)")


class Field(NamedTuple):
    """A named member, including those of anonymous aggregates: offset from the start of the outermost record."""

    name: str
    type: Type
    offset_bits: int
    width_bits: int | None


class Records:
    """Reads records of one translation. `facts` holds the readable ones, inner ones first."""

    def __init__(self, unit: Translation) -> None:
        self.unit = unit
        self.facts: dict[str, StructFacts] = {}
        self.rejected: dict[str, Rejected] = {}
        # By declaration. Failed ones are included, so that their reason is found again.
        self._names: dict[int, str] = {}
        self._nesting = 0

    def fields(self, record: Type) -> list[Field]:
        """Return the named members of a record type, flattened."""
        found: list[Field] = []
        self._flatten(record, 0, found)
        return found

    def _flatten(self, record: Type, base_bits: int, found: list[Field]) -> None:
        lib = self.unit.lib
        for cursor in self.unit.fields(record):
            name = self.unit.spelling(cursor)
            bit_field = bool(lib.clang_Cursor_isBitField(cursor))
            kind = lib.clang_getCanonicalType(lib.clang_getCursorType(cursor))
            anonymous = not name or "(" in name
            if bit_field:
                self._refuse_disputed(cursor, kind, name)
            if anonymous and (bit_field or kind.kind != RECORD):
                continue
            offset = lib.clang_Cursor_getOffsetOfField(cursor)
            if offset < 0:
                raise Unreadable(f"member {name or '(anonymous)'} has no offset")
            if anonymous:
                self._flatten(kind, base_bits + offset, found)
            else:
                width = lib.clang_getFieldDeclBitWidth(cursor) if bit_field else None
                found.append(Field(name, kind, base_bits + offset, width))

    def _refuse_disputed(self, field: Cursor, kind: Type, name: str) -> None:
        """Refuse a bit-field with its own alignment if gcc may place it differently than clang.

        QUIRK: under `pragma pack` clang ignores such an alignment if it exceeds the pack's, and it lets the aligned
        field straddle units of its type; gcc does neither. If clang's place is aligned and straddles nothing, both
        agree.
        """
        lib = self.unit.lib
        disputed = Unreadable(
            f"bit-field {name or '(unnamed)'} has an alignment of its own; compilers differ on its place"
        )
        # The alignments differ when a typedef sets one.
        if lib.clang_Type_getAlignOf(lib.clang_getCursorType(field)) != lib.clang_Type_getAlignOf(kind):
            raise disputed
        attributes = self.unit.children(field)
        aligned = [child for child in attributes if child.kind == lc.ALIGNED_ATTRIBUTE]
        if not aligned:
            return
        at, width = lib.clang_Cursor_getOffsetOfField(field), lib.clang_getFieldDeclBitWidth(field)
        numbers = [_NUMBER.search(self.unit.source(attribute)) for attribute in aligned]
        alignment = max(int(number[1], 0) for number in numbers if number) if all(numbers) else 0
        unit_bits = 8 * lib.clang_Type_getSizeOf(kind)
        packed = any(child.kind == lc.PACKED_ATTRIBUTE for child in attributes)
        straddles = at % unit_bits + width > unit_bits
        if not alignment or at % (8 * alignment) or (straddles and not packed):
            raise disputed

    def name_of(self, declaration: Cursor) -> tuple[str, str]:
        """Return the name of a record's facts and the type in C; empty if it has neither tag nor typedef."""
        spelling = self.unit.type_spelling(self.unit.lib.clang_getCursorType(declaration))
        return ("", "") if "(" in spelling else (spelling.split()[-1], spelling)

    def knows(self, declaration: Cursor) -> bool:
        """Return whether this record has been read, or found unreadable, before."""
        return self.unit.key(declaration) in self._names

    def read(self, declaration: Cursor, name: str = "") -> str:
        """Read one complete record and all it contains; return the name of its facts. Raises `Unreadable`."""
        key = self.unit.key(declaration)
        known = self._names.get(key)
        if known is None:
            own, spelling = self.name_of(declaration)
            known = self._names[key] = own or name
            self._read(declaration, known, spelling)
        if known in self.rejected:
            raise Unreadable(f"{known} is not readable: {self.rejected[known].reason}")
        return known

    def alias(self, name: str, declaration: Cursor, type_: Type) -> None:
        """Add a record again under a typedef's name, with the alignment that the typedef may have changed."""
        lib = self.unit.lib
        record = self.read(lib.clang_getTypeDeclaration(lib.clang_getCanonicalType(type_)))
        facts = self.facts[record]
        size, align = self._size(type_)
        self._add(StructFacts(name, facts.is_union, size, align, facts.members, self.unit.where(declaration), name))

    def _read(self, declaration: Cursor, name: str, spelling: str) -> None:
        where = self.unit.where(declaration)
        self._nesting += 1
        try:
            record = self.unit.lib.clang_getCursorType(declaration)
            size, align = self._size(record)
            members = tuple(self._member(name, field) for field in self.fields(record))
            is_union = declaration.kind == lc.UNION_DECL
            self._add(StructFacts(name, is_union, size, align, members, where, spelling))
        except Unreadable as reason:
            self.rejected.setdefault(name, Rejected(name, where, str(reason)))
        finally:
            self._nesting -= 1

    def _add(self, facts: StructFacts) -> None:
        other = self.facts.get(facts.name)
        if other is not None and (other.members, other.size_bytes) != (facts.members, facts.size_bytes):
            del self.facts[facts.name]
            reason = f"two records of this name differ: at {other.where} and {facts.where}"
            self.rejected[facts.name] = Rejected(facts.name, facts.where, reason)
        elif other is None and facts.name not in self.rejected:
            self.facts[facts.name] = facts

    def readable(self) -> dict[str, StructFacts]:
        """Return the accepted facts, without records that only a rejected record contains: C could not reach those.

        If a record's name turns out to be taken, records that contain it are rejected too.
        """
        standing: dict[str, StructFacts] = {}
        # inner records come before outer ones
        for name, facts in self.facts.items():
            lost = next((m for m in facts.members if m.type.is_struct and m.type.base in self.rejected), None)
            if lost is not None and name not in self.rejected:
                why = f"member {lost.name}: {lost.type.base} is not readable: {self.rejected[lost.type.base].reason}"
                self.rejected[name] = Rejected(name, facts.where, why)
            if name not in self.rejected:
                standing[name] = facts
        held: set[str] = set()
        # outer records come before inner ones
        for facts in reversed(standing.values()):
            if facts.c_name or facts.name in held:
                held.update(member.type.base for member in facts.members if member.type.is_struct)
        return {name: facts for name, facts in standing.items() if facts.c_name or name in held}

    def _size(self, record: Type) -> tuple[int, int]:
        size, align = self.unit.lib.clang_Type_getSizeOf(record), self.unit.lib.clang_Type_getAlignOf(record)
        if size < 0 or align < 1:
            raise Unreadable("the type is incomplete")
        return size, align

    def _member(self, outer: str, field: Field) -> Member:
        try:
            type_ref = self.type_ref(field.type, f"{outer}__{field.name}")
        except Unreadable as reason:
            raise Unreadable(f"member {field.name}: {reason}") from None
        if field.width_bits is not None and type_ref.base == "char":
            type_ref = TypeRef("i8")
        return Member(field.name, type_ref, field.offset_bits, field.width_bits)

    def type_ref(self, kind: Type, nested_name: str) -> TypeRef:
        """Return a member's type; a record without a name of its own gets `nested_name`."""
        lib = self.unit.lib
        dims: list[int | None] = []
        kind = lib.clang_getCanonicalType(kind)
        while kind.kind in (ARRAY, FLEXIBLE, ATOMIC):
            if kind.kind == ATOMIC:
                kind = lib.clang_Type_getValueType(kind)
            else:
                dims.append(lib.clang_getArraySize(kind) if kind.kind == ARRAY else None)
                kind = lib.clang_getArrayElementType(kind)
            kind = lib.clang_getCanonicalType(kind)
        code = kind.kind
        if (plain := _PLAIN.get(code)) is not None:
            return TypeRef(plain, tuple(dims))
        if code in _POINTERS:
            return TypeRef("ptr", tuple(dims))
        if code == RECORD:
            if self._nesting > _NESTING_MAX:
                raise Unreadable(f"structs nested more than {_NESTING_MAX} deep")
            return TypeRef(self.read(lib.clang_getTypeDeclaration(kind), nested_name), tuple(dims), is_struct=True)
        if code == ENUM:
            integer = lib.clang_getEnumDeclIntegerType(lib.clang_getTypeDeclaration(kind))
            base = _PLAIN.get(lib.clang_getCanonicalType(integer).kind)
            if base is None:
                raise Unreadable(f"{self.unit.type_spelling(kind)} is incomplete")
            return TypeRef(base, tuple(dims))
        if code in (COMPLEX, VECTOR, EXT_VECTOR):
            return self._several(kind, dims)
        if code == LONG_DOUBLE:
            return TypeRef("u8", (*dims, lib.clang_Type_getSizeOf(kind)))
        raise Unreadable(f"the type {self.unit.type_spelling(kind)} is not supported")

    def _several(self, kind: Type, dims: list[int | None]) -> TypeRef:
        """Return complex numbers and vectors as arrays of their parts."""
        lib = self.unit.lib
        element = lib.clang_getElementType(kind)
        size = lib.clang_Type_getSizeOf(element)
        inner = self.type_ref(element, "")
        return TypeRef(inner.base, (*dims, lib.clang_Type_getSizeOf(kind) // size, *inner.dims))
