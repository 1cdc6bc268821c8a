"""Run the manifest: read what is wanted and return the fact modules. `emit/output.py` writes them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ringup.autogen.generate.emit.facts import BitRange, Constant, Rejected, Unit
from ringup.autogen.generate.emit.output import REJECTED, rejected_table
from ringup.autogen.generate.emit.structs import closure, emit_module, missing, nameable
from ringup.autogen.generate.manifest import CModule, Manifest, packages_of
from ringup.autogen.generate.sources import Sources
from ringup.autogen.structs import near
from ringup.errors import HeaderError

if TYPE_CHECKING:
    from ringup.autogen.generate.c.clang import Reading

ALL_ONES = (1 << 64) - 1
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+[<"]([^>"]+)[>"]', re.MULTILINE)
NO_VALUE = "the body is empty"  # include guards and switches: nothing was rejected
UAPI = Path("include/uapi")
_INTS = [
    (f"{sign}{bits}", f"{'un' * (sign == 'u')}signed {name}")
    for bits, name in ((8, "char"), (16, "short"), (32, "int"))
    for sign in "us"
]
# Definitions that a header expects.
PRELUDES = {
    "stdint": "".join(f"typedef {c} {'u' * (name[0] == 'u')}int{name[1:]}_t;\n" for name, c in _INTS)
    + "typedef long int64_t;\ntypedef unsigned long uint64_t, uintptr_t, size_t;\n#define bool _Bool\n",
    "kernel": "".join(f"typedef {c} {name}, __{name};\n" for name, c in _INTS)
    + "typedef long long s64, __s64;\ntypedef unsigned long long u64, __u64;\n"
    + "".join(
        f"typedef unsigned {c} __le{bits}, __be{bits};\n" for bits, c in ((16, "short"), (32, "int"), (64, "long long"))
    ),
    "attributes": "#define __packed __attribute__((packed))\n#define __counted_by(member)\n"
    "#define DECLARE_FLEX_ARRAY(type, name) struct { struct { } __empty_##name; type name[]; }\n",
    "uapi": "#define __user\n#define __counted_by(member)\n",  # and include folders, see `parse_module`
}

Say = Callable[[str], None]


@dataclass
class Output:
    """The result of one run: file contents by path below `autogen/`, rejections by module, CPU seconds by module or
    set.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    rejected: dict[str, tuple[Rejected, ...]] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # module or set: the package that is missing


def generate(sources: Sources, only: Sequence[str] = (), say: Say = lambda text: None, strict: bool = True) -> Output:
    """Read every module and set of the manifest, or those whose name matches a glob of `only`.

    With `strict` a missing header package raises `HeaderError`. Otherwise modules and sets that need it are listed in
    `left_out`.
    """
    manifest, out = sources.manifest, Output()
    chosen = _chosen(manifest, only)
    for name, module in {m.module: m for m in manifest.modules}.items():
        if name in chosen and _is_available(sources, name, packages_of(module), strict, out):
            with _timed(out, name, say):
                out.files[f"{name}.py"], out.rejected[name] = read_module(module, sources)
    for group in manifest.sets:
        if group.name in chosen and _is_available(sources, group.name, group.packages, strict, out):
            with _timed(out, group.name, say):
                made, rejected = run_set(
                    group.reader, [sources.root(p) for p in group.packages], _optional(sources, group.optional)
                )
                out.files |= made
                out.rejected[group.name] = rejected
    if not only and not out.left_out:
        out.files[REJECTED] = rejected_table(out.rejected)
    return out


def _chosen(manifest: Manifest, only: Sequence[str]) -> set[str]:
    names = [m.module for m in manifest.modules] + [s.name for s in manifest.sets]
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise HeaderError(f"the manifest has no module or set {pattern}{near(pattern, dict.fromkeys(names))}")
    return {name for name in names if not only or any(fnmatchcase(name, pattern) for pattern in only)}


def _is_available(sources: Sources, name: str, packages: Iterable[str], strict: bool, out: Output) -> bool:
    for label in packages:
        if strict:
            sources.root(label)
        elif sources.find(label) is None:
            out.left_out[name] = label
            return False
    return True


def _optional(sources: Sources, labels: Iterable[str]) -> dict[str, Path]:
    found = {label: sources.find(label) for label in labels}
    return {label: root for label, root in found.items() if root is not None}


@contextmanager
def _timed(out: Output, name: str, say: Say) -> Iterator[None]:
    say(name)
    # includes programs that a reader runs
    start = sum(os.times()[:4])
    yield
    out.cpu_s[name] = sum(os.times()[:4]) - start


def read_module(module: CModule, sources: Sources) -> tuple[bytes, tuple[Rejected, ...]]:
    """Read one C module's headers; return its text, and the names that its globs match but that could not be read."""
    reading = parse_module(module, sources)
    unit = reading.unit
    ranges, unbounded = _helper_ranges(
        reading, _wanted(module.helpers, unit, unit.helpers, "function-like macro", module)
    )
    constants = [unit.constants[name] for name in _wanted(module.constants, unit, unit.constants, "constant", module)]
    structs, constants, unnamed = nameable(
        closure(unit, _wanted(module.structs, unit, unit.structs, "struct", module)), [*constants, *ranges]
    )
    globs = (*module.structs, *module.constants)
    for r in unnamed:
        if r.name in globs:
            raise HeaderError(f"{module.module}: {r.name} at {r.where} was refused: {r.reason}")
    text = emit_module(module.doc, f"{module.package}: {_names(module)}", structs, constants)
    rejected = unbounded + tuple(
        r for r in unit.rejected if r.reason != NO_VALUE and any(fnmatchcase(r.name, glob) for glob in globs)
    )
    return text.encode(), (*rejected, *unnamed)


def parse_module(module: CModule, sources: Sources) -> Reading:
    """Parse the headers of a C module, and keep what they define themselves, not what they include."""
    from ringup.autogen.generate.c.clang import read  # loads libclang

    root = sources.root(module.package)
    headers = [root / header for header in module.headers]
    for header in headers:
        if not header.is_file():
            raise HeaderError(
                f"{module.module}: {module.package} has no {header.relative_to(root)}; is it the version the manifest names?"
            )
    stubs, system = dict.fromkeys(module.stubs, ""), []
    if module.macros_only:
        stubs |= {name: "" for header in headers for name in _INCLUDE.findall(header.read_text("utf-8", "replace"))}
    if "uapi" in module.types:
        kernel = sources.root("linux") / UAPI
        system = [kernel]
        stubs["linux/compiler_types.h"] = ""  # the kernel's build strips this include from its user headers
        # The kernel's build also makes such forwarding headers of asm/*.h.
        for generic in sorted((kernel / "asm-generic").glob("*.h")):
            stubs[f"asm/{generic.name}"] = f"#include <asm-generic/{generic.name}>\n"
    return read(
        headers,
        include=[root / path for path in module.include],
        system=system,
        defines=module.defines,
        prelude="".join(_prelude(module, name) for name in module.types) + module.prelude,
        stubs=stubs,
        language=module.language,
        want_structs=(lambda name: False) if module.macros_only else None,
        from_files=headers,
        tolerate=[".*"] if module.macros_only else [],
    )


def _helper_ranges(reading: Reading, names: Iterable[str]) -> tuple[list[Constant], tuple[Rejected, ...]]:
    """Return the bits in which helpers such as `AMDGPU_PTE_FRAG(x)` and `F(flags, x)` place their last argument."""
    from ringup.autogen.generate.c.macros import Unreadable

    ranges, refused = [], []
    for name in names:
        helper = reading.unit.helpers[name]
        flags = (0,) * (len(helper.params) - 1)
        try:
            nothing, mask = reading.macros.call(name, *flags, 0), reading.macros.call(name, *flags, ALL_ONES)
        except Unreadable as error:
            refused.append(Rejected(name, helper.where, str(error)))
            continue
        low = (mask & -mask).bit_length() - 1 if isinstance(mask, int) else -1
        if not isinstance(mask, int) or nothing != 0 or mask != (1 << mask.bit_length()) - (1 << low):
            refused.append(Rejected(name, helper.where, "it places no run of bits"))
        elif mask.bit_length() == ALL_ONES.bit_length():
            refused.append(
                Rejected(name, helper.where, f"it shifts by {low} and masks nothing: the field's width is not said")
            )
        else:
            ranges.append(Constant(name, BitRange(mask.bit_length() - 1, low), helper.where))
    return ranges, tuple(refused)


def _prelude(module: CModule, name: str) -> str:
    if name not in PRELUDES:
        raise HeaderError(f"manifest: {module.module}: unknown types {name}; known: {', '.join(PRELUDES)}")
    return PRELUDES[name]


def _wanted(globs: Sequence[str], unit: Unit, names: Mapping[str, object], kind: str, module: CModule) -> list[str]:
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            raise HeaderError(f"{module.module}: {missing(unit, names, kind, glob, _names(module))}")
    return [name for name in names if any(fnmatchcase(name, glob) for glob in globs)]


def _names(module: CModule) -> str:
    return ", ".join(Path(header).name for header in module.headers)


def run_set(
    reader: str, roots: Sequence[Path], optional: Mapping[str, Path]
) -> tuple[dict[str, bytes], tuple[Rejected, ...]]:
    """Call the reader `module:function` of a set. It returns file contents by path, with or without its rejections."""
    module, _, function = reader.partition(":")
    try:
        read = getattr(import_module(module), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise HeaderError(f"manifest: there is no reader {reader}: {error}") from error
    made = read(*roots, **({"optional": optional} if optional else {}))
    files, rejected = made if isinstance(made, tuple) else (made, ())
    return {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}, tuple(rejected)
