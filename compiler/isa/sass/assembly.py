"""Text of kernels to and from their code: directives, labels, and one instruction a line.

    .target sm_86
    .global table 64 0a0b0c  ; 64 bytes of global memory: 0a 0b 0c and zeros; c[0x4][table+4] is where the address
    .kernel add_one          ; of its fifth byte is
    .registers 8
    .parameter 8            ; bytes; the next one is behind it, aligned to its size
      [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
    loop:
      [B------:R-:W-:Y:S05] @!P0 BRA loop

`;`, `//` and `#` begin comments. Without a control word an instruction waits for nothing and stalls one cycle. The
directives are `.target`, `.global`, `.address`, `.kernel`, `.registers`, `.barriers`, `.shared`, `.frame` and
`.parameter`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ringup.autogen.isa.sass import CHIPS
from ringup.compiler.isa.sass import control
from ringup.compiler.isa.sass.control import Control
from ringup.compiler.isa.sass.cubin import ADDRESS_BYTES, PARAMETERS_AT, Address, Cubin, Data, Kernel, Parameter
from ringup.compiler.isa.sass.machine import WORD_BYTES, Machine, machine
from ringup.errors import CompileError

MAX_ERRORS = 20
_LABEL = re.compile(r"([A-Za-z_.$][\w.$]*):\s*")
_COMMENT = re.compile(r"\s*(?:;.*|//.*|#.*)$")
_CONTROLLED = re.compile(r"(\[[^\]]*\])\s*(.*)")
# The operand that is an address to go to, as the decoder writes it.
_TARGET = re.compile(r"(?<=[ ,])(-?0x[0-9a-f]+)$")
# What may go to an address in its last operand.
BRANCHES = ("BRA", "BSSY", "CALL", "RET")
_GOES = re.compile(rf"(?:^|\s)(?:{'|'.join(BRANCHES)})\b")
_OPERAND = re.compile(r"U?[RP](?:\d+|Z|T)|B\d+")
# An address of global memory, in the bank of constants that holds them.
_ADDRESS = re.compile(r"(?<=c\[0x4\]\[)([A-Za-z_.$][\w.$]*)(?:\+(0x[0-9a-f]+|\d+))?(?=\])")
_BANK = re.compile(r"(?<=c\[0x4\]\[)(?:0x[0-9a-f]+|RZ)(?=\])")
DATA_ALIGN, MAX_DATA_BYTES = 16, 1 << 31
_NUMBERS = (".registers", ".barriers", ".shared", ".frame")


class Assembled(NamedTuple):
    """The kernels of a text, the chip that it names, its global memory, and the addresses in constant bank 4."""

    chip: str
    kernels: tuple[Kernel, ...]
    data: tuple[Data, ...] = ()
    addresses: tuple[Address, ...] = ()


@dataclass
class _Line:
    number: int
    text: str


@dataclass
class _Open:
    """A kernel that is being read."""

    kernel: Kernel
    lines: list[_Line] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


class _Text:
    """One text being read; errors are collected."""

    def __init__(self, what: str, chip: str) -> None:
        self.what, self.chip, self.errors = what, chip, list[str]()
        self.kernels: list[_Open] = []
        self.data: dict[str, Data] = {}
        self.addresses: dict[Address, int] = {}

    def complain(self, number: int, why: str) -> None:
        """Note an error of a line."""
        self.errors.append(f"{self.what}:{number}: {why}")

    def check(self) -> None:
        """Raise the errors, if there are any."""
        if self.errors:
            more = f"\n({len(self.errors)} errors)" if len(self.errors) > 1 else ""
            raise CompileError("\n".join(self.errors[:MAX_ERRORS]) + more)

    def read(self, number: int, line: str) -> None:
        """Read one line as far as is possible before all labels are known."""
        text = _COMMENT.sub("", line).strip()
        while (label := _LABEL.match(text)) is not None:
            self._label(number, label[1])
            text = text[label.end() :]
        if text.startswith("."):
            self._directive(number, text)
        elif text and self.kernels:
            self.kernels[-1].lines.append(_Line(number, text))
        elif text:
            self.complain(number, "an instruction before .kernel NAME")

    def _label(self, number: int, name: str) -> None:
        if not self.kernels:
            self.complain(number, f"{name}: a label before .kernel NAME")
        elif name in self.kernels[-1].labels:
            self.complain(number, f"{name} is a label twice")
        else:
            self.kernels[-1].labels[name] = len(self.kernels[-1].lines) * WORD_BYTES

    def _directive(self, number: int, text: str) -> None:
        name, *values = text.split()
        if name == ".global":
            self._global(number, values)
            return
        if len(values) != 1:
            self.complain(number, f"{name} needs one value")
            return
        value = values[0]
        try:
            if name == ".target" and not self.kernels:
                self._target(value)
            elif name == ".kernel" and all(each.kernel.name != value for each in self.kernels):
                self.kernels.append(_Open(Kernel(value, b"", 0)))
            elif name == ".address":
                # Its entry of constant bank 4 is the next one, used or not.
                self.with_addresses(f"c[0x4][{value}]")
            elif name in _NUMBERS and self.kernels:
                self.kernels[-1].numbers[name] = int(value, 0)
            elif name == ".parameter" and self.kernels:
                self.kernels[-1].kernel = with_parameter(self.kernels[-1].kernel, int(value, 0))
            else:
                self.complain(number, f"{text}: no directive, or not at this place, or a second one")
        except ValueError as error:
            self.complain(number, str(error))

    def _global(self, number: int, values: list[str]) -> None:
        try:
            name, size, *given = values
            content, size_bytes = bytes.fromhex("".join(given)), int(size, 0)
        except ValueError:
            self.complain(number, ".global needs a name, a size in bytes, and perhaps bytes as hexadecimal digits")
            return
        if name in self.data or not 0 < size_bytes <= MAX_DATA_BYTES or len(content) > size_bytes:
            self.complain(number, f".global {name}: there are two, or {size_bytes} bytes are no size for it")
            return
        self.data[name] = Data(name, size_bytes, DATA_ALIGN, content)

    def with_addresses(self, line: str) -> str:
        """Return a line with places in constant bank 4 for the names of addresses. Raises ValueError."""

        def place(match: re.Match[str]) -> str:
            if match[1] not in self.data:
                raise ValueError(f"there is no .global {match[1]}")
            address = Address(match[1], int(match[2] or "0", 0))
            return f"{self.addresses.setdefault(address, len(self.addresses) * ADDRESS_BYTES):#x}"

        return _ADDRESS.sub(place, line)

    def _target(self, chip: str) -> None:
        if chip not in CHIPS:
            raise ValueError(f"there are no instructions of {chip}; there are {', '.join(CHIPS)}")
        if self.chip and chip != self.chip:
            raise ValueError(f"the text is for {chip}, not {self.chip}")
        self.chip = chip


def with_parameter(kernel: Kernel, size_bytes: int) -> Kernel:
    """Return the kernel with one more parameter of that size, aligned to it (to 16 bytes at most)."""
    if size_bytes <= 0:
        raise ValueError(f"a parameter of {size_bytes} bytes")
    align = min(16, size_bytes & -size_bytes)
    offset = (kernel.parameter_bytes + align - 1) // align * align
    one = Parameter(len(kernel.parameters), offset, size_bytes)
    return replace(kernel, parameters=(*kernel.parameters, one), parameter_bytes=offset + size_bytes)


def assemble(source: str, what: str = "the text", chip: str = "") -> Assembled:
    """Return the kernels of a text. `chip`: the one to assemble for, that of `.target` if empty. Raises `CompileError`
    with up to twenty errors, each with its line.
    """
    text = _Text(what, chip)
    for number, line in enumerate(source.splitlines(), 1):
        text.read(number, line)
    if not text.chip:
        text.complain(1, "no .target, such as .target sm_86")
    elif not text.kernels:
        text.complain(1, "no .kernel NAME")
    text.check()
    isa = machine(text.chip)
    kernels = tuple(_finish(text, each, isa) for each in text.kernels)
    text.check()
    return Assembled(text.chip, kernels, tuple(text.data.values()), tuple(text.addresses))


def _finish(text: _Text, opened: _Open, isa: Machine) -> Kernel:
    words, exits = [], []
    for index, line in enumerate(opened.lines):
        address = index * WORD_BYTES
        try:
            word = instruction(isa, text.with_addresses(line.text), address, opened.labels)
        except ValueError as error:
            text.complain(line.number, str(error))
            continue
        words.append(word)
        if re.search(r"(?:^|\s)EXIT\b", line.text):
            exits.append(address)
    registers, barriers, shared, frame = (opened.numbers.get(name, 0) for name in _NUMBERS)
    kernel = replace(
        opened.kernel,
        registers=registers,
        barriers=barriers,
        shared_bytes=shared,
        frame_bytes=frame,
        code=b"".join(word.to_bytes(WORD_BYTES, "little") for word in words),
        exits=tuple(exits),
        parameters_at=PARAMETERS_AT[int(text.chip.removeprefix("sm_"))],
    )
    if not kernel.registers:
        text.complain(opened.lines[0].number if opened.lines else 1, f"{kernel.name} has no .registers N")
    return kernel


def instruction(isa: Machine, text: str, address: int = 0, labels: dict[str, int] | None = None) -> int:
    """Return the word of an instruction with or without a control word before it. Raises ValueError."""
    found, rest = Control(), 0
    match = _CONTROLLED.fullmatch(text)
    if match is not None:
        found, rest = control.parse(match[1])
        text = match[2]
    last = re.split(r"[ ,]", text)[-1]
    if labels is not None and last in labels:
        text = text[: -len(last)] + f"{labels[last]:#x}"
    elif (
        labels is not None
        and _GOES.search(text)
        and re.fullmatch(r"[A-Za-z_.$][\w.$]*", last)
        and not _OPERAND.fullmatch(last)
    ):
        raise ValueError(f"there is no label {last}")
    return isa.encode(text, found, address) ^ rest


def lines(
    kernel: Kernel, isa: Machine, *, places: bool = True, addresses: Mapping[int, Address] | None = None
) -> Iterator[str]:
    """Yield the text of a kernel, which assembles to the same code. `places`: with offsets and words as comments.
    `addresses`: what constant bank 4 holds. What is no instruction that ringup knows is shown as a comment, and does
    not assemble.
    """

    def named(match: re.Match[str]) -> str:
        found = (addresses or {}).get(0 if match[0] == "RZ" else int(match[0], 16))
        return match[0] if found is None else _named(found)

    yield f".kernel {kernel.name}"
    yield f".registers {kernel.registers}"
    sizes = ((".barriers", kernel.barriers), (".shared", kernel.shared_bytes), (".frame", kernel.frame_bytes))
    yield from (f"{name} {value}" for name, value in sizes if value)
    yield from (f".parameter {each.size_bytes}" for each in kernel.parameters)
    words = [
        int.from_bytes(kernel.code[at : at + WORD_BYTES], "little") for at in range(0, len(kernel.code), WORD_BYTES)
    ]
    texts = [isa.line(word, index * WORD_BYTES) if isa.knows(word) else "" for index, word in enumerate(words)]
    targets = {_goes_to(text) for text in texts} & set(range(0, len(kernel.code), WORD_BYTES))
    for index, (word, text) in enumerate(zip(words, texts, strict=True)):
        address = index * WORD_BYTES
        if address in targets:
            yield f"L{address:x}:"
        if not text:
            yield f"  // {address:06x}: {word:032x} no instruction of {isa.chip} that ringup knows"
            continue
        goes = _goes_to(text)
        if goes in targets:
            text = _TARGET.sub(f"L{goes:x}", text)
        text = _BANK.sub(named, text)
        yield f"  {text:70} // {address:06x}: {word:032x}" if places else f"  {text}"


def _named(address: Address) -> str:
    return address.name + (f"+{address.addend:#x}" if address.addend else "")


def _goes_to(text: str) -> int:
    """Return the address that an instruction's text ends with, -1 if it goes nowhere."""
    match = _TARGET.search(text)
    if match is None or not any(f" {name}" in text for name in BRANCHES):
        return -1
    return int(match[1], 16)


def cubin_lines(found: Cubin, isa: Machine, only: str = "", *, places: bool = True) -> Iterator[str]:
    """Yield the text of all kernels of a cubin, or of one."""
    yield f".target {found.chip}"
    for each in found.data:
        yield f".global {each.name} {each.size_bytes} {each.content.hex()}".rstrip()
    known = {}
    for place in itertools.takewhile(found.addresses.__contains__, itertools.count(0, ADDRESS_BYTES)):
        known[place] = found.addresses[place]
        yield f".address {_named(known[place])}"
    for kernel in found.kernels.values():
        if only in ("", kernel.name):
            yield ""
            yield from lines(kernel, isa, places=places, addresses=known)
