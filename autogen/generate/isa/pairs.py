"""(encoding, text) pairs from LLVM's own tests, to check the instruction facts against.

Source: LLVM 22, `llvm/test/MC/AMDGPU` and `llvm/test/MC/Disassembler/AMDGPU`, Apache-2.0 WITH LLVM-exception.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterable
from pathlib import Path

from ringup.errors import HeaderError

ORIGIN = "# LLVM 22 test/MC/AMDGPU and test/MC/Disassembler/AMDGPU; Apache-2.0 WITH LLVM-exception"
# Our target: the processors whose tests apply to it.
CPUS = {
    "gfx1100": ("gfx1100",),
    "gfx1151": ("gfx1150", "gfx1151"),
    "gfx1201": ("gfx1200", "gfx1201"),
    "gfx942": ("gfx942", "gfx940"),
    "gfx950": ("gfx950",),
}


def pairs(folders: Iterable[Path], cpus: Iterable[str]) -> list[tuple[str, str]]:
    """Return the sorted distinct (hex in memory order, text) of every check line used by a RUN line with one of
    `cpus`.
    """
    found: set[tuple[str, str]] = set()
    wanted = tuple(cpus)
    files = [file for folder in folders for file in sorted(folder.iterdir()) if file.suffix in (".s", ".txt")]
    if not files:
        raise HeaderError(
            f"no LLVM tests in {', '.join(folder.name for folder in folders)}; unpack llvm/test/MC of LLVM 22"
        )
    for file in files:
        source = file.read_text(errors="replace")
        prefixes = _prefixes(source, wanted)
        if prefixes:
            names = "|".join(map(re.escape, sorted(prefixes)))
            line = re.compile(
                rf"^(?://|#|;|/\*)?\s*(?:{names})(?:-NEXT|-SAME)?: *(.*?)\s*(?:;|//) encoding: \[([0-9a-fx, ]+)\]", re.M
            )
            for text, encoding in line.findall(source):
                if "{{" not in text and "[[" not in text:
                    found.add((bytes(int(part, 16) for part in encoding.split(",")).hex(), " ".join(text.split())))
    return sorted(found)


def _prefixes(source: str, cpus: tuple[str, ...]) -> set[str]:
    """Return the check prefixes of the RUN lines that successfully assemble or disassemble for one of `cpus`."""
    prefixes: set[str] = set()
    for run in re.findall(r"RUN:(.*)", source):
        if re.search(r"\bnot\b", run) or not re.search(rf"-mcpu=({'|'.join(cpus)})\b", run):
            continue
        given = re.findall(r"-check-prefix(?:es)?[= ]([\w,-]+)", run)
        prefixes |= {name for names in given for name in names.split(",")} or {"CHECK"}
    return prefixes


def pack(rows: Iterable[tuple[str, str]]) -> bytes:
    """Return the rows as the committed gzip file: origin line, then hex, tab, text; always the same bytes."""
    text = "\n".join([ORIGIN, *("\t".join(row) for row in rows)]) + "\n"
    out = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, out, mtime=0) as file:
        file.write(text.encode())
    return out.getvalue()
