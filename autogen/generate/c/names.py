"""The meaning of a translation's typedefs, tags and enumerators for the macro evaluator; looked up on first use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from ringup.autogen.generate.c import ctype as ct
from ringup.autogen.generate.c import libclang as lc
from ringup.autogen.generate.c import records as rc
from ringup.autogen.generate.c.ctype import CType, Place
from ringup.autogen.generate.c.libclang import Cursor, Type
from ringup.autogen.generate.c.records import Records
from ringup.autogen.generate.c.tokens import Unreadable
from ringup.autogen.generate.c.translation import Translation

_KEYWORDS = {lc.STRUCT_DECL: "struct", lc.UNION_DECL: "union", lc.ENUM_DECL: "enum"}
_PLAIN = {
    2: ct.VOID, rc.BOOL: ct.BOOL, rc.CHAR_U: ct.CHAR, rc.CHAR_S: ct.CHAR, 5: ct.UCHAR, 8: ct.USHORT, 9: ct.UINT,
    10: ct.ULONG, 11: ct.ULLONG, 12: ct.UINT128, 14: ct.SCHAR, 15: ct.INT, 16: ct.SHORT, 17: ct.INT, 18: ct.LONG,
    19: ct.LLONG, 20: ct.INT128, rc.FLOAT: ct.FLOAT, rc.DOUBLE: ct.DOUBLE, rc.LONG_DOUBLE: ct.LONG_DOUBLE,
}  # fmt: skip


class TranslationNames:
    """The names of one parse, as `ctype.Names`."""

    def __init__(self, unit: Translation, records: Records) -> None:
        self._unit = unit
        self._records = records
        self._types: dict[str, CType | None] = {}
        # Enumerators whose enum has no readable values; filled with `_enumerators`.
        self._refused: dict[str, str] = {}

    def typedef(self, name: str) -> CType | None:
        cursor = self._typedefs.get(name)
        if cursor is None:
            return None
        if name not in self._types:
            lib = self._unit.lib
            self._types[name] = self.type_of(
                lib.clang_getTypedefDeclUnderlyingType(cursor), lib.clang_getCursorType(cursor)
            )
        return self._types[name]

    def tag(self, keyword: str, name: str) -> CType | None:
        cursor = self._tags.get((keyword, name))
        return None if cursor is None else self.type_of(self._unit.lib.clang_getCursorType(cursor))

    def enumerator(self, name: str) -> tuple[int, CType] | None:
        found = self._enumerators.get(name)
        if found is None and name in self._refused:
            raise Unreadable(f"enumerator {name}: {self._refused[name]}")
        return found

    @cached_property
    def _typedefs(self) -> dict[str, Cursor]:
        declarations = self._unit.declarations
        return {self._unit.spelling(cursor): cursor for cursor in declarations if cursor.kind == lc.TYPEDEF_DECL}

    @cached_property
    def _tags(self) -> dict[tuple[str, str], Cursor]:
        found: dict[tuple[str, str], Cursor] = {}
        todo = list(reversed(self._unit.declarations))
        while todo:
            cursor = todo.pop()
            if cursor.kind in _KEYWORDS and self._unit.lib.clang_isCursorDefinition(cursor):
                found[_KEYWORDS[cursor.kind], self._unit.spelling(cursor)] = cursor
                if cursor.kind != lc.ENUM_DECL:
                    todo += reversed(self._unit.children(cursor))
        return found

    @cached_property
    def _enumerators(self) -> dict[str, tuple[int, CType]]:
        found: dict[str, tuple[int, CType]] = {}
        todo = list(reversed(self._unit.declarations))
        while todo:
            cursor = todo.pop()
            if cursor.kind == lc.ENUM_DECL:
                try:
                    for name, value, own in self.enumerators(cursor):
                        found[name] = value, own
                except Unreadable as reason:
                    self._refused |= dict.fromkeys(self.enumerator_names(cursor), str(reason))
            elif cursor.kind in _KEYWORDS and self._unit.lib.clang_isCursorDefinition(cursor):
                todo += reversed(self._unit.children(cursor))
        return found

    def enumerators(self, enum: Cursor) -> list[tuple[str, int, CType]]:
        """Return name, value and type of each enumerator; its type is int if int can hold it.

        A forward declaration has none. Raises `Unreadable` for an enum if no integer type holds all its values.
        """
        lib = self._unit.lib
        if not lib.clang_isCursorDefinition(enum):
            return []
        if self._unit.too_large and any(
            self._unit.place(cursor) in self._unit.too_large for cursor in (enum, *self._unit.children(enum))
        ):
            raise Unreadable("no integer type holds all enumerators of its enum; compilers differ on their values")
        own = _PLAIN[lib.clang_getCanonicalType(lib.clang_getEnumDeclIntegerType(enum)).kind]
        read = lib.clang_getEnumConstantDeclValue if own.signed else lib.clang_getEnumConstantDeclUnsignedValue
        found = []
        for cursor in self._unit.children(enum):
            if cursor.kind == lc.ENUM_CONSTANT:
                value = int(read(cursor))
                found.append((self._unit.spelling(cursor), value, ct.INT if -(1 << 31) <= value < 1 << 31 else own))
        return found

    def enumerator_names(self, enum: Cursor) -> list[str]:
        """Return the names that an enum declares, whether or not it can be read."""
        children = self._unit.children(enum)
        return [self._unit.spelling(cursor) for cursor in children if cursor.kind == lc.ENUM_CONSTANT]

    def type_of(self, type_: Type, measured: Type | None = None) -> CType:
        """Return our type for libclang's. `measured` is the typedef, which may have its own alignment."""
        lib = self._unit.lib
        kind = lib.clang_getCanonicalType(type_)
        code = kind.kind
        if (plain := _PLAIN.get(code)) is not None:
            return plain
        if code in (101, 102, 109):
            return ct.pointer(self.type_of(lib.clang_getPointeeType(kind)) if code == 101 else ct.VOID)
        if code == rc.ENUM:
            return self.type_of(lib.clang_getEnumDeclIntegerType(lib.clang_getTypeDeclaration(kind)))
        if code == rc.ARRAY:
            return ct.array(self.type_of(lib.clang_getArrayElementType(kind)), lib.clang_getArraySize(kind))
        if code == rc.RECORD:
            return self._record(kind, kind if measured is None else measured)
        if code in (rc.FUNCTION, rc.FUNCTION_NO_PROTO):
            return ct.FUNCTION
        size, align = lib.clang_Type_getSizeOf(kind), lib.clang_Type_getAlignOf(kind)
        return CType("record", self._unit.type_spelling(kind), size, max(align, 1))

    def _record(self, kind: Type, measured: Type) -> CType:
        lib = self._unit.lib
        spelling = self._unit.type_spelling(kind)
        size, align = lib.clang_Type_getSizeOf(measured), lib.clang_Type_getAlignOf(measured)

        def members() -> Mapping[str, Place]:
            if size < 0:
                raise Unreadable(f"{spelling} is incomplete")
            return {
                field.name: Place(field.offset_bits // 8, self.type_of(field.type), field.width_bits)
                for field in self._records.fields(kind)
            }

        return CType("record", spelling, size, max(align, 1), members=members)
