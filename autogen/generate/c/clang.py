"""Read C headers into facts: structs, enumerators, constants and macros, as gcc 12 for x86-64 Linux has them.

Objective-C headers are read as clang for the same machine would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict, Unpack

from ringup.autogen.generate.c import libclang as lc
from ringup.autogen.generate.c.definitions import Defined, define_all
from ringup.autogen.generate.c.dialect import STDINT, absent, gcc_options, refuse_foreign
from ringup.autogen.generate.c.libclang import Cursor
from ringup.autogen.generate.c.macros import Macros, Unreadable
from ringup.autogen.generate.c.names import TranslationNames
from ringup.autogen.generate.c.records import RECORD, Records
from ringup.autogen.generate.c.translation import STUBS, UMBRELLA, SourceFile, Translation, builtin_includes
from ringup.autogen.generate.c.variables import read_variable
from ringup.autogen.generate.c.watch import check_files
from ringup.autogen.generate.emit.facts import Constant, Helper, Rejected, Unit
from ringup.errors import HeaderError

Language = Literal["c", "objective-c"]
Wanted = Callable[[str], bool]

# Arguments with which a function-like macro is tried, to see whether it can be evaluated.
_TRIALS = (1, 0, 2)


class Reading(NamedTuple):
    """The facts of a set of headers, and its macros.

    Callers evaluate helpers with the macros: `macros.call("PACKET3", 1, 2)`.
    """

    unit: Unit
    macros: Macros


class Options(TypedDict, total=False):
    """How headers are read. A missing option is empty, or all."""

    include: Sequence[Path]  # folders for both kinds of include
    system: Sequence[Path]  # further ones, whose headers give no facts
    defines: Sequence[str]  # `NAME` or `NAME=BODY`
    prelude: str  # C text before the first header; it gives no facts
    stubs: Mapping[str, str]  # missing headers, by the name in their #include
    language: Language
    want_structs: Wanted | None  # by name; structs inside a wanted struct are included
    want_constants: Wanted | None
    # Files or folders that facts may come from; None means all but system headers.
    from_files: Sequence[Path] | None
    tolerate: Sequence[str]  # patterns of libclang's messages


def parse(headers: Sequence[Path], **options: Unpack[Options]) -> Unit:
    """Read `headers`, in this order, as one translation unit.

    Raises `HeaderError` for a missing header, for a missing libclang, for a header that only gcc or only clang lays out
    as written, if libclang takes more time or memory than `watch` allows, and for the first error whose message no
    pattern in `tolerate` matches.
    """
    return read(headers, **options).unit


def read(headers: Sequence[Path], **options: Unpack[Options]) -> Reading:
    """Like `parse`, but also return the evaluator, which keeps the parse in memory."""
    if unknown := sorted(options.keys() - Options.__annotations__.keys()):
        raise TypeError(f"read() knows no option {unknown[0]}; it knows {', '.join(Options.__annotations__)}")
    check_files(headers)
    system, language = options.get("system", ()), options.get("language", "c")
    from_files, want_constants = options.get("from_files"), options.get("want_constants")
    arguments = _arguments(options.get("include", ()), system, language)
    text = _umbrella(headers, options.get("defines", ()), options.get("prelude", ""))
    chosen = _Chosen(None if from_files is None else [path.resolve() for path in from_files])
    own: dict[str, str] = {} if system or language != "c" else STDINT
    virtual = {f"{STUBS}/{name}": body for name, body in {**own, **options.get("stubs", {})}.items()}
    unit = Translation(text, arguments, virtual)
    unit.check(options.get("tolerate", ()))
    unit.gather()
    refuse_foreign(unit)
    records = Records(unit)
    names = TranslationNames(unit, records)
    macros = Macros(names)
    missing = absent() if language == "c" else []
    defined = define_all(unit, macros, chosen, missing, lambda more: Translation(text + more, arguments, virtual))
    reader = _Reader(unit, records, names, macros, chosen)
    reader.structs(options.get("want_structs"))
    reader.constants(defined, want_constants)
    return Reading(reader.unit(), macros)


def _arguments(include: Sequence[Path], system: Sequence[Path], language: Language) -> list[str]:
    options = ["-x", language, "-std=gnu11", "--target=x86_64-linux-gnu", "-nostdinc", "-ferror-limit=0"]
    # The only warning that reports values which clang does not keep.
    options += ["-Wno-everything", "-Wenum-too-large"]
    # Clang's own language: its headers query clang's features.
    if language == "objective-c":
        options += ["-fblocks"] if system else ["-fblocks", "-ffreestanding"]
    else:
        options += gcc_options()
    options += [f"-I{folder}" for folder in include]
    for folder in (STUBS, *builtin_includes(), *system):
        options += ["-isystem", str(folder)]
    return options


def _umbrella(headers: Sequence[Path], defines: Sequence[str], prelude: str) -> str:
    lines = []
    for define in defines:
        name, _, body = define.partition("=")
        lines.append(f"#define {name} {body if '=' in define else '1'}")
    lines.append(prelude)
    for header in headers:
        if set(str(header)) & set('"\n\\'):
            raise HeaderError(
                f"{str(header)!r}: a header's path with quotes, backslashes or newlines cannot be included"
            )
        lines.append(f'#include "{header.absolute()}"')
    return "\n".join(lines) + "\n"


class _Chosen:
    """Which files give facts."""

    def __init__(self, places: Sequence[Path] | None) -> None:
        self._places = places
        self._known: dict[str, bool] = {}

    def __call__(self, file: SourceFile | None) -> bool:
        if file is None or file.path == UMBRELLA:
            return False
        if self._places is None:
            return not file.system
        known = self._known.get(file.path)
        if known is None:
            path = Path(file.path).resolve()
            known = any(path == place or place in path.parents for place in self._places)
            self._known[file.path] = known
        return known


class _Reader:
    """Collects the facts of one translation."""

    def __init__(
        self, unit: Translation, records: Records, names: TranslationNames, macros: Macros, chosen: _Chosen
    ) -> None:
        self._unit = unit
        self._records = records
        self._names = names
        self._macros = macros
        self._chosen = chosen
        self._constants: dict[str, Constant] = {}
        self._helpers: dict[str, Helper] = {}
        self._rejected: list[Rejected] = []
        self._nameless: list[Cursor] = []

    def structs(self, want: Wanted | None) -> None:
        lib = self._unit.lib
        todo = list(reversed(self._unit.declarations))
        while todo:
            cursor = todo.pop()
            if cursor.kind == lc.ENUM_DECL or not self._chosen(self._unit.locate(cursor)[0]):
                continue
            if cursor.kind == lc.TYPEDEF_DECL:
                self._typedef(cursor, want)
            elif cursor.kind in (lc.STRUCT_DECL, lc.UNION_DECL) and lib.clang_isCursorDefinition(cursor):
                inner = [
                    child for child in self._unit.children(cursor) if child.kind in (lc.STRUCT_DECL, lc.UNION_DECL)
                ]
                todo += reversed([child for child in inner if self._records.name_of(child)[0]])
                name = self._records.name_of(cursor)[0]
                if not name:
                    self._nameless.append(cursor)
                elif want is None or want(name):
                    self._try(name, cursor)
        if want is None:
            self._reject_nameless()

    def _reject_nameless(self) -> None:
        """List the records without any name: no tag, no typedef, and no member that holds them."""
        for cursor in self._nameless:
            if not self._records.knows(cursor):
                where = self._unit.where(cursor)
                self._rejected.append(
                    Rejected(f"record at {where}", where, "it has neither a tag nor a typedef's name")
                )

    def _try(self, name: str, cursor: Cursor) -> None:
        try:
            self._records.read(cursor, name)
        except Unreadable as reason:
            self._records.rejected.setdefault(name, Rejected(name, self._unit.where(cursor), str(reason)))

    def _typedef(self, cursor: Cursor, want: Wanted | None) -> None:
        lib = self._unit.lib
        kind = lib.clang_getCursorType(cursor)
        canonical = lib.clang_getCanonicalType(kind)
        if canonical.kind != RECORD or lib.clang_Type_getSizeOf(canonical) < 0:
            return
        name = self._unit.spelling(cursor)
        if want is not None and not want(name):
            return
        if self._records.name_of(lib.clang_getTypeDeclaration(canonical))[0] == name:
            return
        try:
            self._records.alias(name, cursor, kind)
        except Unreadable as reason:
            self._records.rejected.setdefault(name, Rejected(name, self._unit.where(cursor), str(reason)))

    def constants(self, defined: Defined, want: Wanted | None) -> None:
        """Read macros first, then enumerators; if both have a name, the enumerator's fact is used, since it knows its
        enum.
        """
        macros, constants = self._macros, self._constants
        self._rejected += [other for other in defined.rejected if want is None or want(other.name)]
        for name in defined.names:
            macro = macros.get(name)
            # Undefined again, or not wanted.
            if macro is None or not (want is None or want(name)):
                continue
            try:
                if macro.params is None:
                    constants[name] = Constant(name, macros.value(name), macro.where)
                else:
                    self._helpers[name] = self._helper(name, macro.params, macro.where)
            except Unreadable as reason:
                self._rejected.append(Rejected(name, macro.where, str(reason)))
        self._enumerators(want)
        self._variables(want)

    def _helper(self, name: str, params: tuple[str, ...], where: str) -> Helper:
        first: Unreadable | None = None
        for trial in _TRIALS:
            try:
                self._macros.call(name, *[trial] * len(params))
                return Helper(name, params, where)
            except Unreadable as reason:
                first = first or reason
        raise first or Unreadable("takes nothing")

    def _enumerators(self, want: Wanted | None) -> None:
        todo = list(reversed(self._unit.declarations))
        while todo:
            cursor = todo.pop()
            if cursor.kind == lc.TYPEDEF_DECL or not self._chosen(self._unit.locate(cursor)[0]):
                continue
            if cursor.kind != lc.ENUM_DECL:
                if self._unit.lib.clang_isCursorDefinition(cursor):
                    kinds = (lc.STRUCT_DECL, lc.UNION_DECL, lc.ENUM_DECL)
                    todo += reversed([child for child in self._unit.children(cursor) if child.kind in kinds])
                continue
            enum = self._records.name_of(cursor)[0]
            where = self._unit.where(cursor)
            try:
                enumerators = self._names.enumerators(cursor)
            except Unreadable as reason:
                names = [name for name in self._names.enumerator_names(cursor) if want is None or want(name)]
                self._rejected += [Rejected(name, where, str(reason)) for name in names]
                continue
            for name, value, _ in enumerators:
                known = self._constants.get(name)
                if (want is None or want(name)) and (known is None or known.value == value):
                    self._constants[name] = Constant(name, value, where, enum)

    def _variables(self, want: Wanted | None) -> None:
        for cursor in self._unit.variables:
            if not self._chosen(self._unit.locate(cursor)[0]):
                continue
            name = self._unit.spelling(cursor)
            if (want is None or want(name)) and name not in self._constants:
                found = read_variable(self._unit, cursor)
                if isinstance(found, Constant):
                    self._constants[name] = found
                elif found is not None:
                    self._rejected.append(found)

    def unit(self) -> Unit:
        structs = self._records.readable()
        rejected = [*self._records.rejected.values(), *self._rejected]
        return Unit(structs, self._constants, self._helpers, tuple(rejected))
