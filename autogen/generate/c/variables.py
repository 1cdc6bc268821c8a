"""Numbers that a header defines as C objects, `static const int K = 5;`, rather than as macros or enumerators."""

from __future__ import annotations

from ringup.autogen.generate.c import records as rc
from ringup.autogen.generate.c.libclang import Cursor
from ringup.autogen.generate.c.tokens import Unreadable
from ringup.autogen.generate.c.translation import Translation
from ringup.autogen.generate.emit.facts import Constant, Rejected

_NUMBERS = {*rc.UNSIGNED, *rc.SIGNED, rc.BOOL, rc.CHAR_U, rc.CHAR_S, rc.ENUM, rc.FLOAT, rc.DOUBLE}
_EVALUATED_INT, _EVALUATED_FLOAT = 1, 2


def read_variable(unit: Translation, cursor: Cursor) -> Constant | Rejected | None:
    """Return the value of a constant object, or why it has none; None if it may change or is defined elsewhere."""
    lib = unit.lib
    type_ = lib.clang_getCanonicalType(lib.clang_getCursorType(cursor))
    if not lib.clang_isConstQualifiedType(type_) or lib.clang_Cursor_isNull(
        lib.clang_Cursor_getVarDeclInitializer(cursor)
    ):
        return None
    name, where = unit.spelling(cursor), unit.where(cursor)
    try:
        return Constant(name, _value(unit, cursor), where)
    except Unreadable as reason:
        return Rejected(name, where, str(reason))


def _value(unit: Translation, cursor: Cursor) -> int | float:
    lib = unit.lib
    type_ = lib.clang_getCanonicalType(lib.clang_getCursorType(cursor))
    if type_.kind not in _NUMBERS:
        raise Unreadable(f"a constant of type {unit.type_spelling(type_)}")
    if lib.clang_isVolatileQualifiedType(type_):
        raise Unreadable("a volatile object")
    if lib.clang_Type_getSizeOf(type_) > 8:
        raise Unreadable("a number of more than 64 bits")
    result = lib.clang_Cursor_Evaluate(cursor)
    if result == unit.ffi.NULL:
        raise Unreadable("its value is not known before the program runs")
    try:
        kind = lib.clang_EvalResult_getKind(result)
        if kind == _EVALUATED_INT:
            unsigned = lib.clang_EvalResult_isUnsignedInt(result)
            read = lib.clang_EvalResult_getAsUnsigned if unsigned else lib.clang_EvalResult_getAsLongLong
            return int(read(result))
        if kind != _EVALUATED_FLOAT:
            raise Unreadable("its value is no number")
        number = float(lib.clang_EvalResult_getAsDouble(result))
        if number - number != 0:
            raise Unreadable("is not finite")
        return number
    finally:
        lib.clang_EvalResult_dispose(result)
