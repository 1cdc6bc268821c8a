"""The macros of one parse: their definitions at its end, their files, and those that cannot be determined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ringup.autogen.generate.c.macros import Macros
from ringup.autogen.generate.c.translation import UMBRELLA, SourceFile, Translation, unspliced
from ringup.autogen.generate.emit.facts import Rejected
from ringup.errors import HeaderError

_DEFINE = re.compile(r"([A-Za-z_$][\w$]*+)(?!\\[uU]|[^\x00-\x7f])(\([^)]*\))?", re.ASCII)
_OTHER_NAME = re.compile(r"[^\s(]+")
_LAYOUT_NOISE = re.compile(r"/\*.*?\*/|\\\r?\n|\s+", re.DOTALL)
_UNDEF = re.compile(r"undef(?:\s|/\*.*?\*/)++([A-Za-z_$][\w$]*)", re.ASCII | re.DOTALL)
_POP = re.compile(r"\bpop_macro[ \t]*\([ \t]*(?:L?\\*\"([^\"\\\n]*))?", re.ASCII)
POPPED = "its definition may come back by #pragma pop_macro, which is not followed"

Chosen = Callable[[SourceFile], bool]
Parse = Callable[[str], Translation]  # the same headers, with text after the last one


class Defined(NamedTuple):
    """Macros from chosen files by first appearance, and those whose names have letters that the evaluator does not
    support.
    """

    names: list[str]
    rejected: list[Rejected]


def define_all(unit: Translation, macros: Macros, chosen: Chosen, absent: Sequence[str], parse: Parse) -> Defined:
    """Fill `macros` with the definitions at the end of the translation. `absent` are undefined before it starts."""
    wanted: dict[str, None] = {}
    other: dict[str, Rejected] = {}
    for cursor in unit.builtin_macros:
        _define_one(macros, unit.builtin_text(cursor), "compiler")
    for gone in absent:
        macros.undefine(gone)
    handle, file, take = None, None, False
    for place in unit.macros:
        if place.file != handle or file is None:
            handle, file = place.file, unit.file(place.file)
            take = chosen(file)
        text, where = file.text[place.start : place.end], f"{file.name}:{place.line}"
        name = _define_one(macros, text, where)
        if name is None:
            if take and (found := _OTHER_NAME.match(text)):
                spelled = found[0].encode("latin-1").decode("utf-8", "backslashreplace")
                other[spelled] = Rejected(spelled, where, "a name with letters outside ASCII")
        elif take:
            wanted[name] = None
        else:
            wanted.pop(name, None)
    texts = [unspliced(file.text)[0] for file in unit.files()]
    popped = list(_popped(texts, unit.files()))
    undefined = (name for text in texts if "undef" in text for name in _UNDEF.findall(text))
    _settle(macros, [name for name in dict.fromkeys([*undefined, *popped]) if name in macros], parse)
    for name in popped:
        macros.refuse(name, POPPED)
    return Defined(list(wanted), list(other.values()))


def _define_one(macros: Macros, text: str, where: str) -> str | None:
    match = _DEFINE.match(text)
    if match is None:
        return None
    name, given = match.groups()
    params: tuple[str, ...] | None = None
    if given is not None:
        inside = _LAYOUT_NOISE.sub("", given[1:-1])
        params = tuple(inside.split(",")) if inside else ()
    macros.define(name, params, text[match.end() :], where)
    return name


def _popped(texts: Sequence[str], files: Sequence[SourceFile]) -> Iterator[str]:
    for text, file in zip(texts, files, strict=True):
        for name in _POP.findall(text) if "pop_macro" in text else ():
            if not name:
                raise HeaderError(
                    f"{file.path}: pop_macro of a name that is put together is not followed; leave it out"
                )
            yield name


def _settle(macros: Macros, candidates: Sequence[str], parse: Parse) -> None:
    """Remove macros that an `#undef` removed for good.

    libclang does not record `#undef`, so a second parse tests every candidate.
    """
    if not candidates:
        return
    probes = [f"#ifdef {name}\nringup_defined\n#endif\n" for name in candidates]
    second = parse("\n" + "".join(probes))
    # Latin-1 gives one character per byte; libclang counts bytes.
    text = second.text.encode("utf-8", "surrogateescape").decode("latin-1")
    skipped = {text.rfind("#ifdef ", 0, end) for _, end in second.skipped(UMBRELLA)}
    at = len(text) - sum(map(len, probes))
    for name, probe in zip(candidates, probes, strict=True):
        if at in skipped:
            macros.undefine(name)
        at += len(probe)
