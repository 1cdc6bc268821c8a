"""`ringup decode`: show the packets of a ring or an indirect buffer in a file."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from ringup.autogen.regdb import Chip, open_chip
from ringup.errors import NotSupported
from ringup.queues.amd.decode_aql import AqlDecoder
from ringup.queues.amd.decode_pm4 import Pm4Decoder
from ringup.queues.amd.decode_sdma import SdmaDecoder
from ringup.queues.amd.packets import Version
from ringup.queues.amd.umr_text import document, lines
from ringup.queues.decode import Decoder
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text
from ringup.tools.common.wrong_usage import BadInput

LOG = logging.getLogger(__name__)
LIMIT_BYTES = 64 << 20  # the size limit of a file: the largest ring is 8 MiB, the largest indirect buffer 4 MiB
# copy engine by graphics core, if the register database has no block for it; amdgpu's IP discovery tables
SDMA_OF = {
    (11, 0, 0): (6, 0, 0),
    (11, 0, 1): (6, 0, 1),
    (11, 0, 2): (6, 0, 2),
    (11, 0, 3): (6, 0, 3),
    (11, 5, 0): (6, 1, 0),
    (11, 5, 1): (6, 1, 1),
    (12, 0, 0): (7, 0, 0),
    (12, 0, 1): (7, 0, 1),
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser("decode", help="show the packets of a stream in a file", description=__doc__)
    parser.add_argument("language", choices=("pm4", "sdma", "aql"), help="packet format")
    parser.add_argument("file", help="dwords, low byte first; - reads standard input")
    parser.add_argument("--chip", default="navi31", help="such as navi31 (the default); `ringup regs` lists them")
    parser.add_argument("--hex", action="store_true", help="the file is text: hexadecimal dwords, # begins a comment")
    parser.add_argument("--all", action="store_true", help="also show fields that are zero")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON document")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the packets to standard output; return 0, or 1 when the file holds no stream."""
    chip = open_chip(args.chip)
    decoder = _decoder(args.language, chip)
    try:
        data = _read(args.file)
        stream: bytes | list[int] = _dwords(data) if args.hex else data
    except ValueError as error:
        raise BadInput(f"{args.file}: {error}") from error
    packets = decoder.decode(stream)
    LOG.info("%d packets in %d bytes", len(packets), len(data))
    names = RegisterNames(chip)
    if args.json:
        print(json_text([document(packet, names.find) for packet in packets], indent=1))
    else:
        for line in lines(packets, names.find, everything=args.all):
            print(line)
    return 0


def _decoder(language: str, chip: Chip) -> Decoder:
    versions: dict[str, Version] = {}
    for place in chip.row.places:
        numbers = place.version.split(".")
        if place.block in ("gc", "sdma") and len(numbers) == 3 and all(number.isdigit() for number in numbers):
            versions.setdefault(place.block, (int(numbers[0]), int(numbers[1]), int(numbers[2])))
    core = versions.get("gc")
    if core is None:
        raise NotSupported(f"{chip.row.name} has no graphics core with known packets")
    if language != "sdma":
        return Pm4Decoder(core) if language == "pm4" else AqlDecoder(core)
    engine = versions.get("sdma") or SDMA_OF.get(core)
    if engine is None:
        raise NotSupported(f"{chip.row.name} has no copy engine with known packets")
    return SdmaDecoder(engine)


def _read(name: str) -> bytes:
    if name == "-":
        data = files.read_input(LIMIT_BYTES)
    else:
        with Path(name).open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    if len(data) > LIMIT_BYTES:
        raise ValueError(f"more than {LIMIT_BYTES >> 20} MiB are not a ring")
    return data


def _dwords(data: bytes) -> list[int]:
    """Read hexadecimal dwords from text, with or without 0x; commas and colons are separators like blanks."""
    found = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        for text in line.partition("#")[0].replace(",", " ").replace(":", " ").split():
            try:
                value = int(text, 16)
            except ValueError:
                raise ValueError(f"line {number}: {text[:20]!r} is not a hexadecimal dword") from None
            if value < 0 or value >> 32:
                raise ValueError(f"line {number}: {text[:20]!r} is wider than 32 bits")
            found.append(value)
    return found


class RegisterNames:
    """Names and fields of a chip's graphics core by dword address, read at the first use."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self.find = lru_cache(maxsize=None)(self._find)
        self._names: dict[int, str] = {}

    def _find(self, address_dwords: int) -> tuple[str, Iterable[tuple[str, int, int]]] | None:
        if not self._names:
            for one in self._chip.find("*", "gc"):
                at = one.address()
                if at is not None and one.row.kind == "reg":
                    for element in range(one.row.count):
                        suffix = f"[{element}]" if one.row.count > 1 else ""
                        self._names.setdefault(at // 4 + element * one.row.stride, f"{one.name}{suffix}")
        name = self._names.get(address_dwords)
        if name is None:
            return None
        register = self._chip.registers(name.partition("[")[0], "gc")[0]
        return name, tuple((field.name, field.lo, field.mask) for field in register.fields)
