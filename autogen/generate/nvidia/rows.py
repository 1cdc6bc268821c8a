"""Rows by driver branch, merged from the available trees and the committed module.

The committed module holds every row in readable form. So rows from trees that are not available are read back from it,
and none is lost if only some trees are available.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ringup.autogen.generate.emit.facts import BitRange, Constant, Member, StructFacts, TypeRef
from ringup.autogen.generate.emit.structs import HEAD, History, constant_text, emit_history, python_name
from ringup.autogen.generate.nvidia.unit import ModuleFacts
from ringup.autogen.generate.nvidia.words import field_name, overlapping
from ringup.autogen.releases import apply_differences, release_key
from ringup.autogen.structs import SCALARS
from ringup.errors import HeaderError

Number = int | float | str | BitRange
_PLACE = re.compile(r"(\w+)((?:\[\d*\])*)@(\d+)(?:\.(\d+)\+(\d+))?")
_ENUM = re.compile(r"# enum (.+)|# macros")


@dataclass
class Rows:
    """One module over the branches. A name absent from a branch's dict is absent from that branch."""

    structs: dict[str, dict[str, StructFacts]] = field(default_factory=dict)  # by branch, by name
    constants: dict[str, dict[str, Constant]] = field(default_factory=dict)

    @property
    def branches(self) -> tuple[str, ...]:
        return tuple(sorted(self.structs, key=release_key))


# --------------------------------------------------------------------------------------------------------- reading back


def _member(name: str, place: str) -> Member:
    match = _PLACE.fullmatch(place)
    if match is None:
        raise ValueError(f"{name}:{place} is no member")
    base, dims, byte, bit, width = match.groups()
    lengths = tuple(int(text) if text else None for text in re.findall(r"\[(\d*)\]", dims))
    kind = TypeRef(base, lengths, base not in SCALARS)
    return Member(name, kind, int(byte) * 8 + int(bit or 0), int(width) if width else None)


def _struct(node: ast.ClassDef, branches: Sequence[str]) -> dict[str, StructFacts]:
    """Return the facts of one committed class by branch."""
    doc = ast.get_docstring(node) or ""
    c_name, _, where = doc.removesuffix(".").rpartition(": ")
    values: dict[str, Any] = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            values[statement.targets[0].id] = ast.literal_eval(statement.value)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
            values["SIZE"], values["ALIGN"] = ast.literal_eval(statement.value)
    size: int | None = values["SIZE"]
    members = dict(part.split(":", 1) for part in values["LAYOUT"].split())
    changes: dict[str, tuple[int, str] | None] = values.get("CHANGES", {})
    since = release_key(values.get("SINCE", "0"))
    out: dict[str, StructFacts] = {}
    for branch in branches:
        if branch in changes:
            row = changes[branch]
            size = None
            if row is not None:
                size, members = row[0], apply_differences(members, row[1])
        if size is not None and release_key(branch) >= since:
            listed = tuple(_member(name, place) for name, place in members.items())
            out[branch] = StructFacts(
                node.name, c_name.startswith("union "), size, values["ALIGN"], listed, where, c_name
            )
    return out


def read_back(text: str, name: str) -> Rows:
    """Return the rows of a committed module. Raises `HeaderError` if it was edited and cannot be read back."""
    try:
        tree = ast.parse(text)
        assigned: dict[str, tuple[Any, int]] = {}
        classes: list[ast.ClassDef] = []
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                assigned[node.targets[0].id] = (ast.literal_eval(node.value), node.lineno)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                assigned[node.target.id] = (ast.literal_eval(node.value), node.lineno)
            elif (
                isinstance(node, ast.ClassDef) and isinstance(node.bases[0], ast.Name) and node.bases[0].id == "Struct"
            ):
                classes.append(node)
        branches: tuple[str, ...] = assigned.pop("BRANCHES")[0]
        for said_again in ("READ_FROM", "EXACT"):
            assigned.pop(said_again, None)
        since: dict[str, str] = assigned.pop("SINCE", ({}, 0))[0]
        changes: dict[str, dict[str, Any]] = assigned.pop("ROWS", ({}, 0))[0]
        rows = Rows({branch: {} for branch in branches}, {branch: {} for branch in branches})
        for node in classes:
            for branch, facts in _struct(node, branches).items():
                rows.structs[branch][node.name] = facts
        _constants_back(rows, text, assigned, since, changes)
    except (SyntaxError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise HeaderError(
            f"the committed facts {name} cannot be read back ({error}); restore the file, it is never edited by hand"
        ) from error
    return rows


def _constants_back(
    rows: Rows,
    text: str,
    assigned: Mapping[str, tuple[Any, int]],
    since: Mapping[str, str],
    changes: Mapping[str, Mapping[str, Any]],
) -> None:
    lines = text.split("\n")
    first = {name: branch for branch, names in since.items() for name in names.split()}
    enum, at = "", 0
    for name, (value, line) in assigned.items():
        for above in lines[at : line - 1]:
            if mark := _ENUM.fullmatch(above):
                enum = mark[1] or ""
        at = line - 1
        start = release_key(first.get(name, "0"))
        now: Any = value
        for branch in rows.branches:
            if release_key(branch) < start:
                continue
            now = changes.get(branch, {}).get(name, now)
            if now is not None:
                rows.constants[branch][name] = Constant(
                    name, BitRange(*now) if isinstance(now, tuple) else now, "", enum
                )


# -------------------------------------------------------------------------------------------------------------- merging


def merge(path: str, wanted: Iterable[str], fresh: Mapping[str, ModuleFacts], committed: Rows | None) -> Rows:
    """Return rows for every wanted branch: from its tree if available, else from the committed module.

    Raises `HeaderError` if a branch has neither: later code would silently use an older layout.
    """
    rows = Rows()
    for branch in wanted:
        if branch in fresh:
            rows.structs[branch] = dict(fresh[branch].structs)
            rows.constants[branch] = dict(fresh[branch].constants)
        elif committed is not None and branch in committed.structs:
            rows.structs[branch] = committed.structs[branch]
            rows.constants[branch] = committed.constants[branch]
        else:
            raise HeaderError(
                f"autogen/nv/{path}.py: branch {branch} is wanted, no tree of it is given and no row of it is committed"
            )
    return rows


def _order(by_branch: Iterable[Iterable[str]]) -> list[str]:
    """Return all names in the oldest branch's order; each name that appears later follows its predecessor there."""
    names: list[str] = []
    known: set[str] = set()
    for branch in by_branch:
        new = [name for name in branch if name not in known]
        names += new
        known.update(new)
    return names


def _inner_first(histories: Mapping[str, History]) -> list[str]:
    """Return structs in an order in which each comes after those inside it in any branch."""
    inner: dict[str, dict[str, None]] = {}
    for name, history in histories.items():
        rows = [facts for _, facts in history.rows if facts is not None]
        inner[name] = {python_name(m.type.base): None for facts in rows for m in facts.members if m.type.is_struct}
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in done:
            return
        for other in inner.get(name, ()):
            visit(other)
        done[name] = None

    for name in histories:
        visit(name)
    return list(done)


# -------------------------------------------------------------------------------------------------------------- writing


def emit_rows(
    doc: str, source: str, rows: Rows, words: Sequence[str], releases: Mapping[str, str], exact: bool = False
) -> str:
    """Return the module: constants and their changes, words made of bit ranges, structs with their rows."""
    branches = rows.branches
    by_name = {
        branch: {python_name(n): replace(f, name=python_name(n)) for n, f in rows.structs[branch].items()}
        for branch in branches
    }
    constants = {
        branch: {python_name(n): replace(c, name=python_name(n)) for n, c in rows.constants[branch].items()}
        for branch in branches
    }
    names = _order(by_name[branch] for branch in branches)
    histories = {
        name: History(name, _canonical([(branch, by_name[branch].get(name)) for branch in branches])) for name in names
    }
    classes = [emit_history(histories[name], branches[0]) for name in _inner_first(histories)]
    shown = _order(constants[branch] for branch in branches)
    first = {name: next(branch for branch in branches if name in constants[branch]) for name in shown}
    values = {name: constants[first[name]][name] for name in shown}
    word_texts = _words(values, words)
    used = [name for name in ("Array", "Field", "Struct", "Word") if _uses(name, classes, word_texts)]
    parts = [HEAD.format(doc=doc, source=source), "\nfrom __future__ import annotations\n"]
    if used:
        parts.append(f"\nfrom ringup.autogen.layout import {', '.join(used)}\n")
    parts.append(f"\nBRANCHES = {_tuple(branches)}\n")
    parts.append(f"READ_FROM = {_tuple([releases[branch] for branch in branches])}\n")
    if exact:
        parts.append("EXACT = True  # layouts move within a branch: only the releases READ_FROM are served\n")
    parts.append(_constant_lines(values.values()))
    parts.append(_since(first, branches))
    parts.append(_changes(constants, first, values, branches))
    parts += [f"\n\n{text}" for text in (*word_texts, *classes)]
    return "".join(parts)


def _canonical(rows: Sequence[tuple[str, StructFacts | None]]) -> tuple[tuple[str, StructFacts | None], ...]:
    """Return rows whose text does not depend on which of them were read back.

    All rows after the first list members by place and name.
    """
    out: list[tuple[str, StructFacts | None]] = []
    seen = False
    for branch, facts in rows:
        if facts is not None and seen:
            facts = replace(
                facts, members=tuple(sorted(facts.members, key=lambda m: (m.offset_bits, python_name(m.name))))
            )
        seen = seen or facts is not None
        out.append((branch, facts))
    return tuple(out)


def _uses(name: str, classes: Sequence[str], words: Sequence[str]) -> bool:
    if name == "Array":
        return any(": Array[" in text for text in classes)
    return bool(words) if name in ("Field", "Word") else bool(classes)


def _tuple(texts: Sequence[str]) -> str:
    return "(" + ", ".join(f'"{text}"' for text in texts) + (",)" if len(texts) == 1 else ")")


def _constant_lines(constants: Iterable[Constant]) -> str:
    lines, enum = [], ""
    for constant in constants:
        if constant.enum != enum:
            enum = constant.enum
            lines.append(f"# enum {enum}" if enum else "# macros")
        lines.append(f"{constant.name} = {constant_text(constant.value)}")
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def _wrapped(names: Iterable[str]) -> str:
    lines, line = [], ""
    for name in names:
        if line and len(line) + len(name) > 108:
            lines.append(line)
            line = ""
        line += f"{name} "
    return "\n".join(f'        "{text}"' for text in (*lines, line.rstrip()))


def _since(first: Mapping[str, str], branches: Sequence[str]) -> str:
    later = {branch: [name for name, since in first.items() if since == branch] for branch in branches[1:]}
    rows = [f'    "{branch}": (\n{_wrapped(names)}\n    ),\n' for branch, names in later.items() if names]
    return "\nSINCE = {  # constants that appear later than the first branch\n" + "".join(rows) + "}\n" if rows else ""


def _changes(
    constants: Mapping[str, Mapping[str, Constant]],
    first: Mapping[str, str],
    values: Mapping[str, Constant],
    branches: Sequence[str],
) -> str:
    now: dict[str, Number | None] = {}
    rows = []
    for branch in branches:
        cells = []
        for name, since in first.items():
            if release_key(branch) < release_key(since):
                continue
            here = constants[branch].get(name)
            value = None if here is None else here.value
            if branch == since:
                now[name] = values[name].value
            elif value != now[name] or type(value) is not type(now[name]):
                now[name] = value
                cells.append(f'        "{name}": {"None" if value is None else constant_text(value)},\n')
        if cells:
            rows.append(f'    "{branch}": {{\n{"".join(cells)}    }},\n')
    if not rows:
        return ""
    return "\nROWS: dict[str, dict[str, object]] = {  # constants that change; None: gone\n" + "".join(rows) + "}\n"


def _words(values: Mapping[str, Constant], stems: Sequence[str]) -> list[str]:
    """Return a `Word` for each stem, with the ranges whose longest stem it is as fields; the numbers remain
    constants.
    """
    # "STEM=NAME" if the stem itself names a struct
    called = dict(stem.partition("=")[::2] for stem in stems)
    fields: dict[str, list[tuple[str, str, BitRange]]] = {stem: [] for stem in called}
    longest_first = sorted(called, key=len, reverse=True)
    for name, constant in values.items():
        if isinstance(constant.value, BitRange):
            stem = next((stem for stem in longest_first if name.startswith(f"{stem}_")), None)
            if stem is not None:
                fields[stem].append((field_name(name, stem), name, constant.value))
    texts = []
    for stem, found in fields.items():
        if not found:
            raise HeaderError(f"no bit range is called {stem}_…; wanted_nvidia.toml asks for a word of it")
        overlaps = ", overlaps=True" if overlapping((bits.hi, bits.lo) for _, _, bits in found) else ""
        lines = [f"    {short} = Field(*{name})" for short, name, _ in found]
        texts.append(f"class {called[stem] or stem}(Word{overlaps}):\n" + "\n".join(lines) + "\n")
    return texts
