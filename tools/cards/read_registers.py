"""Registers of a present card, for `ringup regs`: read by name, written only if asked for.

Some reads have side effects: a read of a data register may advance its index, a read may take a semaphore. Such
registers are refused without `--write`. Registers that no database describes are always refused. The addresses come
from the card's discovery table.
"""

from __future__ import annotations

import argparse
import re

from ringup.autogen.regdb import Chip, Register, open_chip
from ringup.drivers.amd.bus.discovery import BLOCKS
from ringup.drivers.amd.bus.registers import REGISTER_BAR
from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.drivers.left import LeftCard
from ringup.drivers.nv.left import LeftNvidia
from ringup.errors import HeaderError, NotSupported
from ringup.tools.cards import regs
from ringup.tools.cards.attach import attached
from ringup.tools.common.json_text import json_text
from ringup.tools.common.wrong_usage import WrongUsage

NAMED = re.compile(r"(?P<name>[^=\[\]]+)(?:\[(?P<element>\d+)\])?(?:=(?P<value>.*))?")
# MMVM_INVALIDATE_ENG17_SEM: gmc_v11_0.c, a read that gives 1 has taken it
TAKEN_BY_READING = re.compile(r"_SEM$|SEMAPHORE|MUTEX")
# of the database: a block's registers behind segments, and a card's own address space
KINDS = ("reg", "mmio")
# NVIDIA's falcons have these each, from their own start on. Source: OGKM dev_falcon_v4.h, dev_riscv_pri.h
RELATIVE = ("NV_PFALCON", "NV_PRISCV")
INDEXES = ("INDEX", "ADDR")  # index registers that reads of DATA registers advance, such as SQ_IND_INDEX
SECURITY, POWER = "mp0", "mp1"  # processors that share one header for their registers


def run(args: argparse.Namespace, card_name: str, query: str | None) -> int:
    """Read the register that `query` names, or write it where it is NAME=VALUE. Raises `WrongUsage`, `NotSupported`,
    `HeaderError`.
    """
    match = NAMED.fullmatch(query or "")
    if match is None:
        raise WrongUsage(
            "a register of a card is NAME, NAME[ELEMENT] or NAME=VALUE; use the chip's name instead of the card's to "
            "show many at once"
        )
    wanted = match["value"]
    if wanted is not None and not args.write:
        raise WrongUsage(
            f"{query} would write to {card_name}: add --write; or decode the value with the chip's "
            "name instead of the card's"
        )
    with attached(card_name, change=wanted is not None) as found:
        card = _known(found.card)
        chip = open_chip(_database(card))
        register = _one(chip, match["name"], args.block)
        element = int(match["element"] or 0)
        at = _address(card, chip, register, element, acting=args.write)
        if wanted is not None:
            try:
                value = regs.value_of(wanted, register)
            except ValueError as error:
                raise WrongUsage(str(error)) from error
            card.registers.write(at, value)
        seen = card.registers.read(at)
        name = card.device.name
    document = regs.register_json(chip, register, seen) | {"card": name, "address": at, "element": element}
    if args.json:
        print(json_text([document], indent=1))
    else:
        print(
            f"{name}, byte {at:#x} of the registers"
            + (f": {int(wanted, 0):#x} was written" if wanted is not None else "")
        )
        print("\n".join(regs.register_text(register, seen)))
    return 0


def _one(chip: Chip, name: str, block: str | None) -> Register:
    """Return the register of exactly that name. Raises `WrongUsage` if several blocks have it, `HeaderError` if
    none has.
    """
    found = [one for one in regs.exactly(chip, name, block) if one.row.kind in KINDS and one.row.width_bits == 32]
    blocks = list(dict.fromkeys(one.place.block for one in found))
    if not found:
        raise HeaderError(
            f"{chip.row.name} has no register {name} that a 32-bit read reaches; `ringup regs {chip.row.name} {name}`"
        )
    if len(blocks) > 1:
        raise WrongUsage(f"{name} is a register of {' and '.join(blocks)}: choose one with --block")
    return found[0]


def _known(card: LeftCard) -> Bare | LeftNvidia:
    if not isinstance(card, (Bare, LeftNvidia)):
        raise NotSupported(f"registers of {card.device.name}: no vendor's card whose registers are known")
    return card


def _database(card: Bare | LeftNvidia) -> str:
    """Return the chip of the register database that has a card's registers."""
    return card.ips.chip.name if isinstance(card, Bare) else card.registers.chip.facts


def _address(card: Bare | LeftNvidia, chip: Chip, register: Register, element: int, *, acting: bool) -> int:
    """Return a register's byte address on this card. `acting`: its reads may have side effects."""
    row, name = register.row, register.name
    if not 0 <= element < max(1, row.count):
        raise WrongUsage(f"{name} has {max(1, row.count)} elements, numbered from 0; there is no element {element}")
    why = _acts(chip, register)
    if why and not acting:
        raise WrongUsage(f"reading {name} {why}: add --write to do it")
    if isinstance(card, LeftNvidia):
        if register.offset is None or name.startswith(RELATIVE):
            raise NotSupported(
                f"{name} is in several engines, at {register.offset or 0:#x} from each one's start; `ringup report` shows "
                "those of GSP and SEC2"
            )
        return (register.offset + element * row.stride) * row.unit_bytes
    return _in_segment(card, register, element)


def _in_segment(bare: Bare, register: Register, element: int) -> int:
    """Return the byte address of a Radeon's register, by the segments of its discovery table."""
    row, name, block = register.row, register.name, register.place.block
    if block == "mp":
        block = POWER if name.startswith("MP1_") else SECURITY
    if block not in BLOCKS or register.offset is None or register.segment is None:
        raise NotSupported(f"the address of {name} of block {block} on a card is not known")
    if block in ("gc", "sdma0", "sdma1") and not bare.core_awake:
        raise NotSupported(
            f"{bare.device.name}: the graphics core may be without power, and reading {name} would hang the host"
        )
    bases = bare.ips.block(block).bases
    if not 0 <= register.segment < len(bases):
        raise NotSupported(
            f"{name} is in segment {register.segment} of {block}, but the card has only {len(bases)} segments of it"
        )
    at = (bases[register.segment] + register.offset + element * row.stride) * row.unit_bytes
    if not bare.own and at >= bare.device.bars[REGISTER_BAR].size_bytes:
        raise NotSupported(f"{name} is at {at:#x}, beyond the register BAR: only the card's holder can read it")
    return at


def _acts(chip: Chip, register: Register) -> str:
    """Return the side effect of reading a register; empty if there is none."""
    name = register.name
    if TAKEN_BY_READING.search(name):
        return "takes it from its holder"
    stem, data, tail = name.rpartition("MEMD")
    if data and not tail:
        return f"may advance {stem}MEMC"
    stem, data, tail = name.rpartition("DATA")
    if data and not tail.strip("_LOHI0123456789"):
        for index in INDEXES:
            if chip.registers(f"{stem}{index}", register.place.block):
                return f"may advance {stem}{index}"
    return ""
