"""Write struct facts and constants as a Python module: one `Struct` class each, and rows for differences by release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ringup.autogen.generate.emit.facts import BitRange, Constant, Member, Rejected, StructFacts, TypeRef, Unit
from ringup.autogen.generate.emit.spelling import HEAD, member_name, python_name, takes
from ringup.autogen.releases import apply_differences, release_key
from ringup.autogen.structs import near
from ringup.errors import HeaderError

__all__ = ["HEAD", "python_name"]  # for emitters of modules with structs and other content
PYTHON_TYPE = {"bool": "bool", "f32": "float", "f64": "float"}  # every other scalar is an int


@dataclass(frozen=True, slots=True)
class History:
    """One struct over the releases: (branch, facts) oldest first, None where a branch lacks it."""

    name: str
    rows: tuple[tuple[str, StructFacts | None], ...]


def type_text(kind: TypeRef) -> str:
    """Return the type in the layout grammar of docs/autogen.md."""
    base, dims = python_name(kind.base) if kind.is_struct else kind.base, list(kind.dims)
    if _is_pair(kind):
        base, dims = f"{base[0]}64", [*dims, 2]
    return base + "".join(f"[{'' if n is None else n}]" for n in dims)


def _is_pair(kind: TypeRef) -> bool:
    """Return whether a type is shown as two words, since the view has no scalar of its width."""
    return not kind.is_struct and kind.base in ("u128", "i128")


def layout_rows(facts: StructFacts) -> dict[str, str]:
    """Return member name to `TYPE@PLACE`, in the header's order."""
    rows: dict[str, str] = {}
    for member in facts.members:
        byte, bit = divmod(member.offset_bits, 8)
        kind = member.type
        if kind.dims and 0 in kind.dims:
            if kind.dims[0] != 0 or byte != facts.size_bytes:
                # an array of length 0 inside a struct holds no data
                continue
            # the old form of a flexible array
            kind = TypeRef(kind.base, (None, *kind.dims[1:]), kind.is_struct)
        place = f"{byte}.{bit}+{member.width_bits}" if member.width_bits is not None else str(byte)
        rows[member_name(member.name)] = f"{type_text(kind)}@{place}"
    return rows


def layout_text(facts: StructFacts) -> str:
    """Return the LAYOUT row of a struct."""
    return " ".join(f"{name}:{place}" for name, place in layout_rows(facts).items())


def layout_differences(base: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Return the differences from the members of `base` to those of `other`, in the grammar of CHANGES."""
    gone = [f"-{name}" for name in base if name not in other]
    changed = [f"{name}:{place}" for name, place in other.items() if base.get(name) != place]
    return " ".join(gone + changed)


def closure(unit: Unit, names: Iterable[str]) -> list[StructFacts]:
    """Return the structs called `names` and all structs inside them, inner ones first.

    Raises `HeaderError` for a name that the headers do not define.
    """
    done: dict[str, StructFacts] = {}

    def visit(name: str, wanted_by: str) -> None:
        if name in done:
            return
        facts = unit.structs.get(name)
        if facts is None:
            raise HeaderError(f"{missing(unit, unit.structs, 'struct', name)}; {wanted_by} wants it")
        for member in facts.members:
            if member.type.is_struct:
                visit(member.type.base, facts.name)
        done[name] = facts

    for name in names:
        visit(name, "the manifest")
    return list(done.values())


def missing(unit: Unit, known: Mapping[str, object], kind: str, glob: str, headers: str = "the headers") -> str:
    """Return a message that says why nothing in `known` matches `glob`.

    The name was rejected, with the place and reason, or it is in none of the headers.
    """
    for rejected in unit.rejected:
        if fnmatchcase(rejected.name, glob):
            return f"{kind} {rejected.name} was refused at {rejected.where}: {rejected.reason}"
    return f"no {kind} {glob} in {headers}{near(glob, known)}"


def nameable(
    structs: Sequence[StructFacts], constants: Iterable[Constant]
) -> tuple[list[StructFacts], list[Constant], list[Rejected]]:
    """Return the structs and constants that a module can name, and the rest with reasons. `structs` come inner ones
    first.

    A constant with the name of a struct, or of an earlier constant, gets a trailing underscore: C distinguishes them,
    Python does not.
    """
    taken: dict[str, str] = {}  # Python's name: its origin
    refused: dict[str, Rejected] = {}
    for facts in structs:
        reason = _no_class(facts, taken, refused)
        if reason:
            refused[facts.name] = Rejected(facts.name, facts.where, reason)
        else:
            taken[python_name(facts.name)] = facts.where
    kept = [facts for facts in structs if facts.name not in refused]
    named, rejected = [], list(refused.values())
    for constant in constants:
        name = python_name(constant.name)
        if name in taken:
            name += "_"
        if not takes(name):
            rejected.append(Rejected(constant.name, constant.where, "its name is none in Python"))
        elif name in taken:
            rejected.append(Rejected(constant.name, constant.where, f"{name} is also from {taken[name]}"))
        else:
            taken[name] = constant.where
            named.append(replace(constant, name=name))
    return kept, named, rejected


def _no_class(facts: StructFacts, taken: Mapping[str, str], refused: Mapping[str, Rejected]) -> str:
    """Return why a struct can have no class; empty if it can."""
    if not takes(facts.name):
        return "its name is none in Python"
    if other := taken.get(python_name(facts.name)):
        return f"{python_name(facts.name)} is also from {other}"
    names: set[str] = set()
    for member in facts.members:
        name = member_name(member.name)
        if not takes(name):
            return f"the name of member {member.name} is none in Python"
        if name in names:
            return f"two members are {name} in Python"
        if member.type.is_struct and member.type.base in refused:
            return f"member {member.name}: {member.type.base} was refused"
        names.add(name)
    return ""


def emit_struct(facts: StructFacts) -> str:
    """Return the class of a struct that is the same in every release."""
    return emit_history(History(facts.name, (("", facts),)))


def emit_history(history: History, first: str = "") -> str:
    """Return the class of a struct: the oldest row in full, later rows as differences.

    `first` is the oldest branch of the module.
    """
    start = next((i for i, (_, facts) in enumerate(history.rows) if facts is not None), None)
    if start is None:
        raise HeaderError(f"struct {history.name} is in none of the releases")
    (since, base), later = history.rows[start], history.rows[start + 1 :]
    assert base is not None  # `start` says so
    rows = layout_rows(base)
    kind = "union" if base.is_union else "struct"
    lines = [
        f"class {python_name(history.name)}(Struct):",
        f'    """{base.c_name or kind + " " + history.name}: {base.where}."""',
        "",
    ]
    if since != first:
        lines.append(f'    SINCE = "{since}"')
    lines.append(f"    SIZE, ALIGN = {base.size_bytes}, {base.align_bytes}")
    lines.append(f'    LAYOUT = "{layout_text(base)}"')
    changes, kinds = [], _annotations(base)
    size: int | None = base.size_bytes
    for branch, facts in later:
        if facts is None:
            if size is not None:
                changes.append(f'"{branch}": None')
            size = None
            continue
        differences = layout_differences(rows, layout_rows(facts))
        if differences or facts.size_bytes != size:
            changes.append(f'"{branch}": ({facts.size_bytes}, "{differences}")')
            rows, size = apply_differences(rows, differences), facts.size_bytes
            kinds |= {name: kind for name, kind in _annotations(facts).items() if name not in kinds}
    if changes:
        lines.append(f"    CHANGES = {{{', '.join(changes)}}}")
    lines += [f"    {name}: {kind}" for name, kind in kinds.items()]
    return "\n".join(lines) + "\n"


def _annotations(facts: StructFacts) -> dict[str, str]:
    rows = layout_rows(facts)
    return {member_name(m.name): _annotation(m) for m in facts.members if member_name(m.name) in rows}


def _annotation(member: Member) -> str:
    kind = member.type
    base = python_name(kind.base) if kind.is_struct else PYTHON_TYPE.get(kind.base, "int")
    if kind.base == "char" and kind.dims and not kind.is_struct:
        base = "bytes"
    dims = len(kind.dims) + _is_pair(kind)
    return "Array[" * dims + base + "]" * dims


def constant_text(value: int | float | str | BitRange) -> str:
    """Return a constant as Python source."""
    if isinstance(value, BitRange):
        return f"({value.hi}, {value.lo})"
    if isinstance(value, int) and not isinstance(value, bool) and value > 9:
        return f"{value:#x}"
    return repr(value)


def emit_constants(constants: Iterable[Constant]) -> str:
    """Return assignments; enumerators follow a line that names their enum."""
    lines, enum = [], ""
    for constant in constants:
        if constant.enum != enum:
            enum = constant.enum
            lines.append(f"# enum {enum}" if enum else "# macros")
        lines.append(f"{python_name(constant.name)} = {constant_text(constant.value)}")
    return "\n".join(lines) + "\n" if lines else ""


def emit_module(
    doc: str,
    source: str,
    structs: Sequence[StructFacts | History] = (),
    constants: Sequence[Constant] = (),
    branches: Sequence[str] = (),
) -> str:
    """Return a whole module. `branches` are the releases its rows apply to, oldest first, if they differ by release."""
    parts = [HEAD.format(doc=doc, source=source)]
    if structs:
        parts.append("from __future__ import annotations\n")
        uses_arrays = any(m.type.dims or _is_pair(m.type) for s in structs for f in _all_facts(s) for m in f.members)
        parts.append(f"from ringup.autogen.layout import {'Array, ' if uses_arrays else ''}Struct\n")
    if branches:
        parts.append(f"BRANCHES = {tuple(sorted(branches, key=release_key))!r}\n".replace("'", '"'))
    text = emit_constants(constants)
    if text:
        parts.append(text)
    first = min(branches, key=release_key) if branches else ""
    classes = [emit_history(s, first) if isinstance(s, History) else emit_struct(s) for s in structs]
    out = "\n".join(parts)
    return out + "".join(f"\n\n{text}" for text in classes)


def _all_facts(struct: StructFacts | History) -> list[StructFacts]:
    return [struct] if isinstance(struct, StructFacts) else [facts for _, facts in struct.rows if facts is not None]
