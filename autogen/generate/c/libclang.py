"""The libclang functions for reading headers, bound directly: ten times as fast as `clang.cindex`."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, Final

from cffi import FFI
from cffi.error import CDefError, FFIError

from ringup.errors import HeaderError

VERSION: Final = "18.1.1"

STRUCT_DECL, UNION_DECL, ENUM_DECL, FIELD_DECL, ENUM_CONSTANT, VAR_DECL, TYPEDEF_DECL = 2, 3, 5, 6, 7, 9, 20
PACKED_ATTRIBUTE, ALIGNED_ATTRIBUTE = 408, 441
MACRO_DEFINITION, INCLUSION = 501, 503
ERROR = 3  # diagnostics from this severity on
PARSE_RECORD, PARSE_SKIP_BODIES = 0x01, 0x40

_DECLARATIONS = """
typedef struct { int kind; int xdata; const void *data[3]; } CXCursor;
typedef struct { int kind; void *data[2]; } CXType;
typedef struct { const void *data[2]; unsigned offset; } CXSourceLocation;
typedef struct { const void *data[2]; unsigned begin, end; } CXSourceRange;
typedef struct { const void *data; unsigned flags; } CXString;
typedef struct { const char *Filename; const char *Contents; unsigned long Length; } CXUnsavedFile;
typedef struct { unsigned words[4]; void *data; } CXToken;
typedef void *CXFile;
typedef struct { unsigned count; CXSourceRange *ranges; } CXSourceRangeList;
CXString clang_getClangVersion(void);
const char *clang_getCString(CXString);
void clang_disposeString(CXString);
void *clang_createIndex(int, int);
void clang_disposeIndex(void *);
int clang_parseTranslationUnit2(void *, const char *, const char *const *, int, CXUnsavedFile *, unsigned, unsigned,
                                void **);
void clang_disposeTranslationUnit(void *);
unsigned clang_getNumDiagnostics(void *);
void *clang_getDiagnostic(void *, unsigned);
int clang_getDiagnosticSeverity(void *);
CXSourceLocation clang_getDiagnosticLocation(void *);
CXString clang_getDiagnosticSpelling(void *);
void clang_disposeDiagnostic(void *);
void *clang_getChildDiagnostics(void *);
unsigned clang_getNumDiagnosticsInSet(void *);
void *clang_getDiagnosticInSet(void *, unsigned);
CXCursor clang_getTranslationUnitCursor(void *);
unsigned clang_visitChildren(CXCursor, int (*)(CXCursor, CXCursor, void *), void *);
unsigned clang_Type_visitFields(CXType, int (*)(CXCursor, void *), void *);
CXString clang_getCursorSpelling(CXCursor);
CXSourceLocation clang_getCursorLocation(CXCursor);
CXSourceRange clang_getCursorExtent(CXCursor);
CXSourceLocation clang_getRangeStart(CXSourceRange);
CXSourceLocation clang_getRangeEnd(CXSourceRange);
void clang_getFileLocation(CXSourceLocation, CXFile *, unsigned *, unsigned *, unsigned *);
CXString clang_getFileName(CXFile);
CXFile clang_getFile(void *, const char *);
CXFile clang_getIncludedFile(CXCursor);
CXSourceRangeList *clang_getSkippedRanges(void *, CXFile);
void clang_disposeSourceRangeList(CXSourceRangeList *);
const char *clang_getFileContents(void *, CXFile, size_t *);
CXSourceLocation clang_getLocationForOffset(void *, CXFile, unsigned);
int clang_Location_isInSystemHeader(CXSourceLocation);
void clang_tokenize(void *, CXSourceRange, CXToken **, unsigned *);
CXString clang_getTokenSpelling(void *, CXToken);
void clang_disposeTokens(void *, CXToken *, unsigned);
unsigned clang_isCursorDefinition(CXCursor);
CXCursor clang_getCursorDefinition(CXCursor);
unsigned clang_Cursor_isMacroFunctionLike(CXCursor);
unsigned clang_Cursor_isAnonymous(CXCursor);
unsigned clang_Cursor_isBitField(CXCursor);
int clang_getFieldDeclBitWidth(CXCursor);
long long clang_Cursor_getOffsetOfField(CXCursor);
CXType clang_getCursorType(CXCursor);
CXType clang_getCanonicalType(CXType);
CXType clang_getTypedefDeclUnderlyingType(CXCursor);
CXType clang_getEnumDeclIntegerType(CXCursor);
CXType clang_getPointeeType(CXType);
CXType clang_getElementType(CXType);
CXType clang_getArrayElementType(CXType);
CXType clang_Type_getValueType(CXType);
long long clang_getNumElements(CXType);
long long clang_getArraySize(CXType);
CXCursor clang_getTypeDeclaration(CXType);
CXString clang_getTypeSpelling(CXType);
long long clang_Type_getSizeOf(CXType);
long long clang_Type_getAlignOf(CXType);
long long clang_getEnumConstantDeclValue(CXCursor);
unsigned long long clang_getEnumConstantDeclUnsignedValue(CXCursor);
int clang_Cursor_isNull(CXCursor);
CXCursor clang_Cursor_getVarDeclInitializer(CXCursor);
unsigned clang_isConstQualifiedType(CXType);
unsigned clang_isVolatileQualifiedType(CXType);
void *clang_Cursor_Evaluate(CXCursor);
int clang_EvalResult_getKind(void *);
unsigned clang_EvalResult_isUnsignedInt(void *);
unsigned long long clang_EvalResult_getAsUnsigned(void *);
long long clang_EvalResult_getAsLongLong(void *);
double clang_EvalResult_getAsDouble(void *);
void clang_EvalResult_dispose(void *);
"""

# cffi's CXCursor, CXType and similar types have no Python types of their own.
Cursor = Any
Type = Any


def _memory() -> Any:
    return FFI()


class Library:
    """libclang, loaded once; `lib` has the functions, `ffi` the memory."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("clang")
        folders = [Path(place) / "native" for place in (found.submodule_search_locations or ())] if found else []
        tried = [folder / name for folder in folders for name in ("libclang.so", "libclang.dylib", "libclang.dll")]
        there = next((path for path in tried if path.exists()), None)
        remedy = f"install it with: pip install libclang=={VERSION}"
        if there is None:
            looked = "the package `clang` is not installed" if not tried else f"no library in {tried[0].parent}"
            raise HeaderError(f"reading headers needs libclang {VERSION}: {looked}; {remedy}")
        self.ffi = _memory()
        try:
            self.ffi.cdef(_DECLARATIONS)
            self.lib = self.ffi.dlopen(str(there))
            version = self.text(self.lib.clang_getClangVersion())
        except (OSError, AttributeError, CDefError, FFIError) as error:
            raise HeaderError(
                f"reading headers needs libclang {VERSION}: {there} does not load: {error}; {remedy}"
            ) from error
        if f"version {VERSION}" not in version:
            raise HeaderError(f"reading headers needs libclang {VERSION}: {there} is {version!r}; {remedy}")

    def text(self, string: Any) -> str:
        """Return the text of a CXString and dispose of the string."""
        found = self.lib.clang_getCString(string)
        text = "" if found == self.ffi.NULL else self.ffi.string(found).decode("utf-8", "surrogateescape")
        self.lib.clang_disposeString(string)
        return str(text)

    def keep(self, cursor: Cursor) -> Cursor:
        """Return a copy of a cursor that outlives its visit."""
        return self.ffi.new("CXCursor *", cursor)[0]


@cache
def load() -> Library:
    """Return libclang of the pinned wheel. Raises a `HeaderError` that says where it was searched."""
    return Library()
