"""`ringup decode`: show the packets of a ring, an indirect buffer or a pushbuffer in a file."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from ringup.autogen.nv.methods_host import NUMBER_OF_SUBCHANNELS
from ringup.autogen.regdb import Chip, open_chip
from ringup.errors import NotSupported
from ringup.queues.amd.decode_aql import AqlDecoder
from ringup.queues.amd.decode_pm4 import Pm4Decoder
from ringup.queues.amd.decode_sdma import SdmaDecoder
from ringup.queues.amd.packets import Version
from ringup.queues.amd.umr_text import document, lines
from ringup.queues.decode import Decoder, Packet, Stream
from ringup.queues.nv import decode_text
from ringup.queues.nv.decode import NvDecoder
from ringup.queues.nv.decode_classes import class_by_name
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text
from ringup.tools.common.wrong_usage import BadInput, WrongUsage

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
AMD_CHIP, NVIDIA_CHIP = "navi31", "ga102"
# what a file for NVIDIA holds, by --what
NVIDIA_FILES: dict[str, Callable[[NvDecoder, Stream], list[Packet]]] = {
    "pushbuffer": NvDecoder.decode,
    "gpfifo": NvDecoder.decode_gpfifo,
    "qmd": NvDecoder.decode_descriptors,
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser("decode", help="show the packets of a stream in a file", description=__doc__)
    parser.add_argument("language", choices=("pm4", "sdma", "aql", "nvidia"), help="packet format")
    parser.add_argument("file", help="dwords, low byte first; - reads standard input")
    parser.add_argument(
        "--chip",
        help=f"such as navi31, the default, which `ringup regs` lists; nvidia: such as {NVIDIA_CHIP}, the default",
    )
    parser.add_argument(
        "--what",
        choices=tuple(NVIDIA_FILES),
        help="nvidia: what the file holds: method runs (the default), GPFIFO entries, or launch descriptors",
    )
    parser.add_argument(
        "--class",
        dest="classes",
        action="append",
        metavar="SUBCHANNEL=CLASS",
        help="nvidia: what stands on a subchannel before the stream binds a class, such as 4=0xc7b0",
    )
    parser.add_argument("--hex", action="store_true", help="the file is text: hexadecimal dwords, # begins a comment")
    parser.add_argument("--all", action="store_true", help="also show fields that are zero")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON document")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the packets to standard output; return 0, or 1 when the file holds no stream."""
    if args.language == "nvidia":
        return _run_nvidia(args)
    if args.what or args.classes:
        raise WrongUsage(f"--what and --class are for nvidia, not for {args.language}")
    chip = open_chip(args.chip or AMD_CHIP)
    decoder = _decoder(args.language, chip)
    packets = decoder.decode(_stream(args))
    names = RegisterNames(chip)
    _show(args, (document(one, names.find) for one in packets), lines(packets, names.find, everything=args.all))
    return 0


def _run_nvidia(args: argparse.Namespace) -> int:
    decoder = NvDecoder(args.chip or NVIDIA_CHIP, _classes(args.classes or ()))
    packets = NVIDIA_FILES[args.what or "pushbuffer"](decoder, _stream(args))
    _show(args, map(decode_text.document, packets), decode_text.lines(packets, everything=args.all))
    return 0


def _classes(words: Iterable[str]) -> dict[int, int]:
    """Read SUBCHANNEL=CLASS; a class is a number or the vendor's name."""
    found = {}
    for word in words:
        subchannel, _, name = word.partition("=")
        class_id = class_by_name(name)
        try:
            number, value = int(subchannel, 0), int(name, 0) if class_id is None else class_id
        except ValueError:
            raise WrongUsage(f"--class takes SUBCHANNEL=CLASS such as 4=0xc7b0, not {word!r}") from None
        if not (0 <= number < NUMBER_OF_SUBCHANNELS and 0 <= value <= 0xFFFF):
            raise WrongUsage(f"--class {word}: subchannels are 0 to {NUMBER_OF_SUBCHANNELS - 1}, classes have 16 bits")
        found[number] = value
    return found


def _show(args: argparse.Namespace, documents: Iterable[object], text: Iterable[str]) -> None:
    if args.json:
        print(json_text(list(documents), indent=1))
    else:
        for line in text:
            print(line)


def _stream(args: argparse.Namespace) -> Stream:
    try:
        data = _read(args.file)
        stream: Stream = _dwords(data) if args.hex else data
    except ValueError as error:
        raise BadInput(f"{args.file}: {error}") from error
    LOG.info("%d bytes", len(data))
    return stream


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
