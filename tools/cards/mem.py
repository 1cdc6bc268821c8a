"""`ringup mem`: read and write a card's memory, by offset in VRAM or by GPU virtual address. Nothing is started."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ringup
from ringup.drivers.amd.memory.spaces import USER_VMID
from ringup.drivers.amd.observe.gpu_memory import GpuMemory
from ringup.drivers.left import LeftMemory
from ringup.errors import DeviceFault
from ringup.tools.cards import nvidia
from ringup.tools.cards.attach import Attached, attached, radeon
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common import files, numbers
from ringup.tools.common.files import Input
from ringup.tools.common.json_text import json_text
from ringup.tools.common.wrong_usage import WrongUsage

READ, WRITE, LIST = "read", "write", "list"
VRAM, GPU = "vram", "gpu"
SHOWN_BYTES = 1 << 20  # the size limit of a dump; more must go to a file
CHUNK_BYTES = 4 << 20
USAGE = """ringup mem [CARD] read ADDRESS SIZE [--space {vram,gpu}] [--vmid N] [--out FILE]
       ringup mem [CARD] write ADDRESS HEX | --from FILE [--space {vram,gpu}] [--vmid N]
       ringup mem [CARD] list"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "mem",
        usage=USAGE,
        help="read and write a card's memory, list its buffers",
        description="Read and write a card's memory; nothing is started. `list` starts the card and lists the buffers "
        "of the start by address. Addresses are offsets in VRAM, "
        "or GPU virtual addresses, "
        "translated by the page tables that a driver left. Of a card that another process drives only the part in the "
        "window can be read. "
        "A virtual card exists only in this process: writes are lost at its end. NVIDIA's driver shows no process "
        "another's memory: with it there is only `list`.",
    )
    parser.add_argument(
        "words", nargs="+", metavar="[CARD] read|write|list [ADDRESS [SIZE|HEX]]", help="sizes such as 64, 0x40, 4K, 1M"
    )
    add_card_arguments(parser, positional=False)
    parser.add_argument("--space", choices=(VRAM, GPU), default=VRAM, help="address space (default: %(default)s)")
    parser.add_argument(
        "--vmid",
        type=int,
        default=USER_VMID,
        metavar="N",
        help="address space of GPU virtual addresses (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the bytes to a file")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="file with the bytes to write")


def run(args: argparse.Namespace) -> int:
    if args.words[-1] == LIST and len(args.words) <= 2:
        args.card = args.words[0] if len(args.words) > 1 else None
        return _list(card_name(args), as_json=args.json)
    action, start, rest = _parts(args)
    if nvidia.through_driver(name := card_name(args)):
        raise nvidia.no_memory(name)
    files.check_outputs(args.out)
    source = _source(args.source, rest) if action == WRITE else None
    size_bytes = source.size_bytes if source else _size(rest, to_file=args.out is not None)
    data = b""
    with attached(name, change=action == WRITE) as found:
        memory, name = found.card.memory, found.card.device.name
        pieces = list(_pieces(found, args.space, args.vmid, start, size_bytes))
        if source:
            _write(name, memory, pieces, source.read())
        elif args.out:
            with files.writing(args.out) as draft, draft.open("wb") as file:
                for piece in pieces:
                    file.write(memory.read(*piece))
        else:
            data = b"".join(memory.read(*piece) for piece in pieces)
    shown = {"card": name, "space": args.space, "address": start, "size_bytes": size_bytes}
    if args.json:
        more = {"file": str(args.out)} if args.out else {"data": data.hex()} if action == READ else {"written": True}
        print(json_text(shown | more))
    elif action == READ and not args.out:
        print("\n".join(numbers.hexdump(data, start)))
    else:
        where = f"of {name}'s {args.space} memory at {start:#x}"
        print(
            f"{size_bytes} bytes {where}: "
            + (f"read to {args.out}" if action == READ else "written, and read back equal")
        )
    return 0


def _list(name: str, *, as_json: bool) -> int:
    """List the buffers of a started card by address."""
    # every driver's memory has its table of buffers
    opened: Any = ringup.open(name)
    with opened as card:
        rows = [
            {
                "gpu_va": held.buffer.gpu_va,
                "size_bytes": held.buffer.size_bytes,
                "where": held.buffer.where,
                "name": held.buffer.name,
            }
            for held in sorted(card.memory.table, key=lambda held: held.buffer.gpu_va)
        ]
    if as_json:
        print(json_text({"card": name, "buffers": rows}))
        return 0
    for row in rows:
        end = row["gpu_va"] + row["size_bytes"]
        print(f"{row['gpu_va']:#014x} to {end:#014x}  {row['size_bytes']:10}  {row['where']:4}  {row['name']}")
    print(f"{len(rows)} buffers, {sum(row['size_bytes'] for row in rows)} bytes")
    return 0


def _parts(args: argparse.Namespace) -> tuple[str, int, list[str]]:
    """Split the words into action, address and the rest; a card in front goes where `card_name` expects it."""
    words = list(args.words)
    args.card = None if words[0] in (READ, WRITE) else words.pop(0)
    if not words or words[0] not in (READ, WRITE):
        raise WrongUsage(f"{words[0] if words else args.card!r} is neither {READ} nor {WRITE} nor {LIST}")
    if len(words) < 2:
        raise WrongUsage(f"{words[0]} needs an address")
    if (words[0] == READ and args.source) or (words[0] == WRITE and args.out):
        raise WrongUsage("--from is for write, --out for read")
    try:
        return words[0], numbers.address(words[1]), words[2:]
    except argparse.ArgumentTypeError as error:
        raise WrongUsage(str(error)) from error


def _size(rest: list[str], *, to_file: bool) -> int:
    if len(rest) != 1:
        raise WrongUsage("read needs an address and one size")
    try:
        size_bytes = numbers.size(rest[0])
    except argparse.ArgumentTypeError as error:
        raise WrongUsage(str(error)) from error
    if not size_bytes:
        raise WrongUsage("nothing to read: the size is 0")
    if size_bytes > SHOWN_BYTES and not to_file:
        raise WrongUsage(f"{size_bytes} bytes are too many to show: --out FILE")
    return size_bytes


def _source(path: Path | None, rest: list[str]) -> Input:
    if (path is None) == (not rest) or len(rest) > 1:
        raise WrongUsage("write needs its bytes once: as hex in one word, or --from FILE")
    try:
        source = files.find(path) if path else _words(bytes.fromhex(rest[0].removeprefix("0x")))
    except ValueError:
        raise WrongUsage(f"{rest[0]!r} is not bytes in hex, such as 00112233, in memory order") from None
    if not source.size_bytes:
        raise WrongUsage("nothing to write")
    return source


def _words(data: bytes) -> Input:
    return Input(Path("the command line"), len(data), data)


def _pieces(found: Attached, space: str, vmid: int, start: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (vram_pa, size_bytes) of the range, in pieces that fit into host memory."""
    if space == GPU:
        try:
            runs = GpuMemory(radeon(found, "GPU virtual addresses"), vmid).pieces(start, size_bytes)
        except ValueError as error:
            raise WrongUsage(str(error)) from error
    else:
        memory, own = found.card.memory, found.card.own
        total = memory.size_bytes if own else memory.visible_bytes
        if start + size_bytes > total:
            seen = "VRAM" if own else "the window, beyond which only the card's holder reads,"
            raise WrongUsage(f"{size_bytes:#x} bytes at {start:#x} end beyond {seen} of {total:#x} bytes")
        runs = iter([(start, size_bytes)])
    for at, size in runs:
        for begun in range(0, size, CHUNK_BYTES):
            yield at + begun, min(CHUNK_BYTES, size - begun)


def _write(name: str, memory: LeftMemory, pieces: list[tuple[int, int]], data: bytes) -> None:
    """Store bytes and read them back. Raises `DeviceFault` if they differ."""
    done = 0
    for at, size in pieces:
        memory.write(at, data[done : done + size])
        if memory.read(at, size) != data[done : done + size]:
            raise DeviceFault(f"{name}: VRAM at {at:#x} reads back different bytes; its memory or link is faulty")
        done += size
