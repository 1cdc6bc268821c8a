"""One parse by libclang: its files, its diagnostics, its top-level cursors. Always for x86-64 Linux, on any host."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ringup.autogen.generate.c import libclang as lc
from ringup.autogen.generate.c.libclang import Cursor, Type
from ringup.autogen.generate.c.watch import bounded
from ringup.errors import HeaderError

STUBS = "/ringup-stubs"  # a folder that exists only for libclang
UMBRELLA = "<headers>"  # the text that includes the wanted headers; not a file on disk
_TOO_LARGE = re.compile(r"enumeration values exceed range of largest|not representable in the largest integer type")
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
_CHARACTERS = "latin-1"  # one character per byte, so that libclang's offsets apply


@cache
def builtin_includes() -> tuple[str, ...]:
    """Return gcc's folder of compiler headers (stddef.h, stdarg.h); libclang's wheel has none. Empty without gcc."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return ()
    asked = subprocess.run([gcc, "-print-file-name=include"], capture_output=True, text=True, check=False)
    folder = asked.stdout.strip()
    return (folder,) if asked.returncode == 0 and Path(folder).is_dir() else ()


class _Visitor:
    """A function that libclang calls.

    Its exception stops the visit and is raised again afterwards, since C cannot pass it on.
    """

    def __init__(self, library: lc.Library, signature: str, function: Callable[..., int]) -> None:
        ffi = library.ffi
        raised: list[BaseException] = []

        def keep(_kind: object, error: BaseException, _traceback: object) -> None:
            raised.append(error)

        self._raised, self._null = raised, ffi.NULL
        # QUIRK: in libclang 18, despite its documentation
        self._always_true = library.lib.clang_Type_visitFields
        self._callback = ffi.callback(signature, function, error=0, onerror=keep)

    def __call__(self, visit: Callable[..., int], start: Any) -> None:
        stopped = visit(start, self._callback, self._null)
        if self._raised:
            raise self._raised.pop()
        if stopped and visit is not self._always_true:
            raise HeaderError("libclang's walk through the header was cut short; try again")


def unspliced(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return `text` with continued lines joined, and each joint's place with the number of characters removed up to
    it.
    """
    if "\\" not in text:
        return text, []
    joints, parts, at, taken = [], [], 0, 0
    for match in _SPLICE.finditer(text):
        parts.append(text[at : match.start()])
        taken += match.end() - match.start()
        at = match.end()
        joints.append((at - taken, taken))
    return "".join([*parts, text[at:]]), joints


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the parse: its path, its text with one character per byte, and whether it is from a system folder."""

    path: str
    name: str
    text: str
    system: bool


class MacroPlace(NamedTuple):
    """The place of a `#define`: file, line, and byte offsets from the macro's name to the end of its body."""

    file: Any
    line: int
    start: int
    end: int


class Translation:
    """A parsed translation unit. Cursors and types must not outlive it: it owns libclang's memory."""

    def __init__(self, text: str, options: Sequence[str], stubs: Mapping[str, str]) -> None:
        self.text = text
        self.library = lc.load()
        self.ffi: Any = self.library.ffi
        self.lib = self.library.lib
        self.macros: list[MacroPlace] = []
        self.builtin_macros: list[Cursor] = []
        self.declarations: list[Cursor] = []
        self.variables: list[Cursor] = []
        # Places of enums with values that no single type holds.
        self.too_large: set[tuple[str, int]] = set()
        self._files: dict[Any, SourceFile] = {}
        self._inclusions: dict[Any, None] = {}
        self._found: list[Cursor] = []
        ffi = self.ffi
        self._file, self._line = ffi.new("CXFile *"), ffi.new("unsigned *")
        self._start, self._end = ffi.new("unsigned *"), ffi.new("unsigned *")
        # no reference to self: a cycle would delay freeing
        found, keep = self._found, self.library.keep

        def collect(cursor: Cursor, _parent: Cursor, _data: Any) -> int:
            found.append(keep(cursor))
            return 1

        def collect_field(cursor: Cursor, _data: Any) -> int:
            found.append(keep(cursor))
            return 1

        self._collect = _Visitor(self.library, "int(CXCursor, CXCursor, void *)", collect)
        self._collect_field = _Visitor(self.library, "int(CXCursor, void *)", collect_field)
        # libclang's own functions free the memory, not Python code: a Ctrl-C in a finaliser would be lost.
        index = ffi.gc(self.lib.clang_createIndex(0, 0), self.lib.clang_disposeIndex)
        unit = self._parse(index, {UMBRELLA: text, **stubs}, options)
        self._unit = ffi.gc(unit, self.lib.clang_disposeTranslationUnit)
        self._index = index

    def _parse(self, index: Any, texts: Mapping[str, str], options: Sequence[str]) -> Any:
        ffi = self.ffi
        names = [ffi.new("char[]", name.encode("utf-8", "surrogateescape")) for name in texts]
        bodies = [text.encode("utf-8", "surrogateescape") for text in texts.values()]
        contents = [ffi.new("char[]", body) for body in bodies]
        unsaved = ffi.new("CXUnsavedFile[]", len(names))
        for at, body in enumerate(bodies):
            unsaved[at].Filename, unsaved[at].Contents, unsaved[at].Length = names[at], contents[at], len(body)
        arguments = [ffi.new("char[]", option.encode("utf-8", "surrogateescape")) for option in options]
        flags = lc.PARSE_SKIP_BODIES | lc.PARSE_RECORD
        unit = ffi.new("void **")

        # `_kept` keeps what libclang reads alive until the call ends, even after we abandon it.
        def parse(_kept: object = contents) -> int:
            count = len(arguments)
            return int(
                self.lib.clang_parseTranslationUnit2(
                    index, names[0], arguments, count, unsaved, len(names), flags, unit
                )
            )

        status = bounded(parse)
        if status != 0 or unit[0] == ffi.NULL:
            reasons = {1: "failed", 2: "crashed", 3: "refused its arguments", 4: "could not write its syntax tree"}
            raise HeaderError(
                f"libclang {reasons.get(status, 'failed')} while parsing {texts[UMBRELLA].strip()[-200:]!r}"
            )
        return unit[0]

    def check(self, tolerate: Sequence[str]) -> None:
        """Raise one `HeaderError` for the first error of the parse whose message no pattern of `tolerate` matches."""
        patterns = [re.compile(pattern) for pattern in tolerate]
        for at in range(self.lib.clang_getNumDiagnostics(self._unit)):
            diagnostic = self.lib.clang_getDiagnostic(self._unit, at)
            serious = self.lib.clang_getDiagnosticSeverity(diagnostic) >= lc.ERROR
            message = self.library.text(self.lib.clang_getDiagnosticSpelling(diagnostic))
            if not serious and _TOO_LARGE.search(message):
                self.too_large.add(self._spot(self.lib.clang_getDiagnosticLocation(diagnostic)))
            place = self._blamed(diagnostic) if serious else ""
            self.lib.clang_disposeDiagnostic(diagnostic)
            if serious and not any(pattern.search(message) for pattern in patterns):
                raise HeaderError(f"{place}: the header does not parse: {message}")

    def _blamed(self, diagnostic: Any) -> str:
        """Return the place of the error.

        For an error noticed only after the header's end it is the place of its first note (`to match this '{'`).
        """
        place = self._place(self.lib.clang_getDiagnosticLocation(diagnostic))
        # belongs to the diagnostic; not disposed
        notes = self.lib.clang_getChildDiagnostics(diagnostic)
        if place.startswith(UMBRELLA) and self.lib.clang_getNumDiagnosticsInSet(notes):
            note = self.lib.clang_getDiagnosticInSet(notes, 0)
            place = self._place(self.lib.clang_getDiagnosticLocation(note))
        return place

    def place(self, cursor: Cursor) -> tuple[str, int]:
        """Return file and byte offset of a declaration's name."""
        return self._spot(self.lib.clang_getCursorLocation(cursor))

    def _spot(self, location: Any) -> tuple[str, int]:
        null = self.ffi.NULL
        self.lib.clang_getFileLocation(location, self._file, null, null, self._start)
        path = "" if self._file[0] == null else self.library.text(self.lib.clang_getFileName(self._file[0]))
        return path, self._start[0]

    def _place(self, location: Any) -> str:
        """Return `file:line` with the file's whole path, since headers often share a name."""
        self.lib.clang_getFileLocation(location, self._file, self._line, self.ffi.NULL, self._start)
        if self._file[0] == self.ffi.NULL:
            return "command line"
        return f"{self.library.text(self.lib.clang_getFileName(self._file[0]))}:{self._line[0]}"

    def gather(self) -> None:
        """Fill `macros`, `builtin_macros`, `variables` and `declarations` (records, enums, typedefs) in source
        order.
        """
        lib, null = self.lib, self.ffi.NULL
        locate, extent, range_end = lib.clang_getFileLocation, lib.clang_getCursorExtent, lib.clang_getRangeEnd
        location, keep = lib.clang_getCursorLocation, self.library.keep
        file, line, start, end = self._file, self._line, self._start, self._end
        macros, builtin, declarations = self.macros, self.builtin_macros, self.declarations
        inclusions, variables = self._inclusions, self.variables
        wanted = (lc.STRUCT_DECL, lc.UNION_DECL, lc.ENUM_DECL, lc.TYPEDEF_DECL)

        def visit(cursor: Cursor, _parent: Cursor, _data: Any) -> int:
            kind = cursor.kind
            if kind == lc.MACRO_DEFINITION:
                locate(location(cursor), file, line, null, start)
                if file[0] == null:
                    builtin.append(keep(cursor))
                else:
                    locate(range_end(extent(cursor)), null, null, null, end)
                    macros.append(MacroPlace(file[0], line[0], start[0], end[0]))
            elif kind == lc.INCLUSION:
                if included := lib.clang_getIncludedFile(cursor):
                    inclusions[included] = None
            elif kind == lc.VAR_DECL:
                variables.append(keep(cursor))
            elif kind in wanted:
                declarations.append(keep(cursor))
            return 1

        visitor = _Visitor(self.library, "int(CXCursor, CXCursor, void *)", visit)
        visitor(lib.clang_visitChildren, lib.clang_getTranslationUnitCursor(self._unit))

    def children(self, cursor: Cursor) -> list[Cursor]:
        """Return the direct children of a declaration."""
        self._found.clear()
        self._collect(self.lib.clang_visitChildren, cursor)
        return self._found.copy()

    def fields(self, record: Type) -> list[Cursor]:
        """Return the members of a record type, including unnamed ones."""
        self._found.clear()
        self._collect_field(self.lib.clang_Type_visitFields, record)
        return self._found.copy()

    def spelling(self, cursor: Cursor) -> str:
        return self.library.text(self.lib.clang_getCursorSpelling(cursor))

    def type_spelling(self, kind: Type) -> str:
        return self.library.text(self.lib.clang_getTypeSpelling(kind))

    def key(self, cursor: Cursor) -> int:
        """Return a number that identifies a declaration."""
        return int(self.ffi.cast("uintptr_t", cursor.data[0]))

    def locate(self, cursor: Cursor) -> tuple[SourceFile | None, int]:
        """Return file and line of a declaration; no file for the compiler's own."""
        place = self.lib.clang_getCursorLocation(cursor)
        self.lib.clang_getFileLocation(place, self._file, self._line, self.ffi.NULL, self._start)
        if self._file[0] == self.ffi.NULL:
            return None, 0
        return self.file(self._file[0], place), self._line[0]

    def where(self, cursor: Cursor) -> str:
        file, line = self.locate(cursor)
        return f"{file.name}:{line}" if file else "compiler"

    def source(self, cursor: Cursor) -> str:
        """Return the text of a declaration or attribute, as in the file."""
        extent = self.lib.clang_getCursorExtent(cursor)
        null = self.ffi.NULL
        self.lib.clang_getFileLocation(self.lib.clang_getRangeStart(extent), self._file, null, null, self._start)
        self.lib.clang_getFileLocation(self.lib.clang_getRangeEnd(extent), null, null, null, self._end)
        return "" if self._file[0] == null else self.file(self._file[0]).text[self._start[0] : self._end[0]]

    def file(self, handle: Any, place: Any = None) -> SourceFile:
        """Return the file of libclang's handle.

        `place` is any location in it, to determine whether it is a system header.
        """
        known = self._files.get(handle)
        if known is None:
            path = self.library.text(self.lib.clang_getFileName(handle))
            size = self.ffi.new("size_t *")
            contents = self.lib.clang_getFileContents(self._unit, handle, size)
            text = "" if contents == self.ffi.NULL else self.ffi.unpack(contents, size[0]).decode(_CHARACTERS)
            if place is None:
                place = self.lib.clang_getLocationForOffset(self._unit, handle, 0)
            system = bool(self.lib.clang_Location_isInSystemHeader(place))
            known = self._files[handle] = SourceFile(path, Path(path).name, text, system)
        return known

    def files(self) -> list[SourceFile]:
        """Return every file that is a header of the parse or included by one."""
        return [self.file(handle) for handle in self._inclusions]

    def skipped(self, path: str) -> list[tuple[int, int]]:
        """Return the byte ranges of a file that its conditions leave out."""
        null, found = self.ffi.NULL, []
        ranges = self.lib.clang_getSkippedRanges(self._unit, self.lib.clang_getFile(self._unit, path.encode()))
        for at in range(ranges.count):
            start, end = (
                end_of(ranges.ranges[at]) for end_of in (self.lib.clang_getRangeStart, self.lib.clang_getRangeEnd)
            )
            self.lib.clang_getFileLocation(start, null, null, null, self._start)
            self.lib.clang_getFileLocation(end, null, null, null, self._end)
            found.append((self._start[0], self._end[0]))
        self.lib.clang_disposeSourceRangeList(ranges)
        return found

    def builtin_text(self, cursor: Cursor) -> str:
        """Return the text of a macro that the compiler defines: `NAME BODY` or `NAME(x) BODY`."""
        tokens, count = self.ffi.new("CXToken **"), self.ffi.new("unsigned *")
        self.lib.clang_tokenize(self._unit, self.lib.clang_getCursorExtent(cursor), tokens, count)
        parts = [
            self.library.text(self.lib.clang_getTokenSpelling(self._unit, tokens[0][at])) for at in range(count[0])
        ]
        self.lib.clang_disposeTokens(self._unit, tokens[0], count[0])
        joint = "" if self.lib.clang_Cursor_isMacroFunctionLike(cursor) else " "
        return joint.join([parts[0], " ".join(parts[1:])])
