"""Run an independent disassembler (llvm-mc) on many words, and parse its text into mnemonic, operands and modifiers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile

from ringup.errors import HeaderError

BATCH = 10_000  # probes in one call of the tool
# TIMEOUT: a batch takes 2 s on one slow core; a tool that hangs must not hang the generator.
TIMEOUT_S = 300
_MARK = 0xBF80_0000  # s_nop, the same word on every target
_PLAIN_MODIFIERS = frozenset((
    "glc", "slc", "dlc", "sc0", "sc1", "nt", "lds", "gds", "tfe", "lwe", "unorm", "clamp", "idxen", "offen", "addr64", "r128", "a16",
    "d16", "done", "vm", "row_en", "high", "nv", "scale_offset", "row_mirror", "row_half_mirror",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand's text: `core` is the register or value, `marks` its modifiers (neg, abs, sext, lo, hi)."""

    core: str
    marks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decoded:
    """One instruction as the disassembler shows it.

    `registers` are those of its internal operand list, in order, repeated if tied.
    """

    text: str
    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: tuple[tuple[str, str], ...]
    registers: tuple[str, ...]
    internal_name: str


def llvm_mc(root: Path) -> list[str]:
    """Return the command for llvm-mc 22 in an unpacked Debian root, with that root's own loader and libraries."""
    program = root / "usr/lib/llvm-22/bin/llvm-mc"
    if not program.is_file():
        raise HeaderError(f"no llvm-mc 22 in {root}: `ringup headers fetch llvm-22`")
    return [*loader(root, program), str(program)]


def loader(root: Path, program: Path) -> list[str]:
    """Return the command prefix for a program of an unpacked Debian root: that root's loader with its libraries."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    return [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", f"{libraries}:{program.parents[1] / 'lib'}"]


class Disassembler:
    """A disassembler for one target.

    `command` starts llvm-mc (a list: a newer one may need its own loader); `cpu` and `features` select the target.
    """

    def __init__(self, command: Sequence[str], cpu: str, features: str = "") -> None:
        self._argv = [*command, "-triple=amdgcn", f"-mcpu={cpu}", "-disassemble", "-show-inst"]
        if features:
            self._argv.append(f"-mattr={features}")
        self.cpu = cpu
        # Words that crashed the tool: they count as illegal.
        self.crashed: list[bytes] = []

    def decode(self, probes: Sequence[bytes]) -> list[Decoded | None]:
        """Return for each probe the one instruction that uses exactly its bytes, or None."""
        found: list[Decoded | None] = []
        for start in range(0, len(probes), BATCH):
            found += self._batch(probes[start : start + BATCH])
        return found

    def _batch(self, probes: Sequence[bytes]) -> list[Decoded | None]:
        lines = []
        for i, probe in enumerate(probes):
            # The brackets keep an instruction from reading the next line's bytes.
            lines.append(f"[{','.join(map(hex, probe))}]")
            lines.append(f"[{','.join(map(hex, _mark(i)))}]")
        done = self._run(self._argv, lines)
        bad = {int(line) for line in re.findall(rb"^<stdin>:(\d+):\d+: warning: invalid", done.stderr, re.MULTILINE)}
        found: list[Decoded | None] = []
        pending: list[list[str]] = []
        for instruction in _instructions(done.stdout.decode().rpartition("\n")[0]):  # a crash cuts the last line
            pending.append(instruction)
            if len(pending) < 2 or len(found) == len(probes):
                continue
            first, second = _mark_numbers(len(found))
            if _is_nop(pending[-1], second) and _is_nop(pending[-2], first):
                # a complaint: bytes were left over
                whole = len(pending) == 3 and 2 * len(found) + 1 not in bad
                found.append(_decoded(pending[0]) if whole else None)
                pending = []
        # LLVM crashes on a few words: find which one, and continue after it.
        if done.returncode < 0 and len(found) < len(probes):
            if len(probes) == 1:
                self.crashed.append(probes[0])
                return [None]
            head = probes[len(found) : len(found) + 32]
            middle = max(1, len(head) // 2)
            parts = (head[:middle], head[middle:], probes[len(found) + len(head) :])
            return found + [answer for part in parts if part for answer in self._batch(part)]
        if len(found) != len(probes):
            complaint = done.stderr.decode(errors="replace").strip().splitlines()[:1]
            raise HeaderError(
                f"disassembling for {self.cpu}: {len(found)} answers to {len(probes)} probes (exit status {done.returncode},"
                f" {complaint or 'no message'}); is this LLVM new enough for {self.cpu}?"
            )
        return found

    def _run(self, argv: list[str], lines: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Run the tool, with files for input and output: through pipes it writes a few bytes at a time."""
        with TemporaryFile() as asked, TemporaryFile() as said, TemporaryFile() as complaints:
            asked.write("\n".join(lines).encode())
            asked.seek(0)
            try:
                done = subprocess.run(argv, stdin=asked, stdout=said, stderr=complaints, timeout=TIMEOUT_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise HeaderError(
                    f"asking about {self.cpu}: {argv[0]} did not run: {error}; install llvm-22"
                ) from error
            said.seek(0)
            complaints.seek(0)
            return subprocess.CompletedProcess(argv, done.returncode, said.read(), complaints.read())

    def accepts(self, texts: Sequence[str]) -> list[bool]:
        """Return for each text whether the assembler accepts it: it is stricter about operands than the
        disassembler.
        """
        argv = [part for part in self._argv if part not in ("-disassemble", "-show-inst")] + ["-o", "/dev/null"]
        good = [True] * len(texts)
        done = self._run(argv, texts)
        for match in re.finditer(rb"^<stdin>:(\d+):\d+: error", done.stderr, re.MULTILINE):
            good[int(match[1]) - 1] = False
        return good


def _mark_numbers(i: int) -> tuple[int, int]:
    """Return the operands of the two s_nop that close probe `i`. No single probe decodes to them."""
    return i & 0xFFFF, ~i & 0xFFFF


def _mark(i: int) -> bytes:
    return b"".join((_MARK | number).to_bytes(4, "little") for number in _mark_numbers(i))


def _is_nop(group: list[str], number: int) -> bool:
    words = group[0].split()
    return words[0] == "s_nop" and int(words[1], 0) == number


def _instructions(output: str) -> Iterator[list[str]]:
    """Group the tool's lines by instruction: its text line first."""
    group: list[str] = []
    for line in output.splitlines():
        if line.startswith("\t") and not line.lstrip().startswith((";", ".")):
            if group:
                yield group
            group = [line]
        elif group:
            group.append(line)
    if group:
        yield group


def _decoded(group: list[str]) -> Decoded:
    text = " ".join(group[0].split(";", 1)[0].split())
    internal, registers = "", []
    for line in group:
        if "<MCInst #" in line:
            internal = line.split("<MCInst #", 1)[1].split()[1].rstrip(">")
        elif "<MCOperand Reg:" in line:
            registers.append(line.split("Reg:", 1)[1].rstrip(">"))
    mnemonic, operands, modifiers = parse(text)
    return Decoded(text, mnemonic, operands, modifiers, tuple(registers), internal)


@lru_cache(maxsize=200_000)
def parse(text: str) -> tuple[str, tuple[Operand, ...], tuple[tuple[str, str], ...]]:
    """Split one instruction's text into mnemonic, operands and (name, value) modifiers."""
    mnemonic, _, rest = text.partition(" ")
    operands: list[Operand] = []
    modifiers: list[tuple[str, str]] = []
    if mnemonic.startswith("s_") and not re.match(
        r"s_(load|store|buffer|scratch|atomic|dcache|gl1|prefetch|atc|memtime|memreal)", mnemonic
    ):
        # Scalar ALU text has no modifiers; `vmcnt(0) expcnt(0)` is one operand.
        chunks = [[part] for part in _split(rest, ",")]
    else:
        chunks = [_split(part, " ") for part in _split(rest, ",")]
        if mnemonic in ("exp", "export") and chunks:
            chunks[:1] = [[part] for part in chunks[0]]
    for chunk in chunks:
        for i, part in enumerate(chunk):
            name, colon, value = _cut(part)
            # the accumulation register; the modifier comes after an operand
            register = part == "a16" and i == 0
            if (part in _PLAIN_MODIFIERS and not register) or colon or (i > 0 and re.match(r"[a-z_]+\d*\(", part)):
                modifiers.append((name, value))
            # Scattered image addresses.
            elif part.startswith("["):
                operands += map(_operand, _split(part[1:-1], ","))
            else:
                operands.append(_operand(part))
    return mnemonic, tuple(operands), tuple(modifiers)


def _split(text: str, separator: str) -> list[str]:
    if "(" not in text and "[" not in text:
        return [part for part in map(str.strip, text.split(separator)) if part]
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _cut(part: str) -> tuple[str, str, str]:
    """Split `offset:4` at its colon; a colon inside brackets is a register range."""
    match = re.match(r"([a-z][a-z0-9_]*):(?!:)(.*)", part) if ":" in part else None
    return (match[1], ":", match[2]) if match else (part, "", "")


@lru_cache(maxsize=10_000)
def _operand(part: str) -> Operand:
    marks = set()
    while True:
        if part.startswith("-") and not re.match(r"-(\d|0x)", part):
            marks.add("neg")
            part = part[1:]
        elif part.startswith("|") and part.endswith("|"):
            marks.add("abs")
            part = part[1:-1]
        elif match := re.fullmatch(r"(neg|abs|sext)\((.*)\)", part):
            marks.add(match[1])
            part = match[2]
        else:
            break
    if match := re.fullmatch(r"(v\d+)\.([lh])", part):
        marks.add("lo" if match[2] == "l" else "hi")
        part = match[1]
    return Operand(part, frozenset(marks))
