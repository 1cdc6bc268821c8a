"""A block's registers: storage by address, with hooks where the block acts. What no header names is refused.

The block's table (`rows`) says which registers it acts on, which are kept without effect, and which are not modelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from functools import cache, partial
from importlib import import_module
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ringup.autogen.regdb import Chip, Register, RegisterField, open_chip
from ringup.errors import GuestError, Unmodelled
from ringup.silicon.common.rows import Kind, Row, Rows

ALL = 0xFFFF_FFFF
PAGE_SHIFT = 12  # doors are found by page
RESERVED = re.compile("(RESERVED|RSVD|UNUSED)[0-9_]*", re.IGNORECASE)  # how headers name bits without a meaning
Key = Hashable  # what selects a bank, such as (me, pipe, queue)
Place = tuple[int, Key]  # a register's address, and the bank; None for one without banks
T = TypeVar("T")


class Map(NamedTuple):
    """Where a block's registers lie in the card's register space (byte addresses)."""

    addresses: dict[str, int]
    names: dict[int, str]


@cache
def _chip(name: str) -> Chip:
    return open_chip(name)


@cache
def block_map(chip: str, block: str, instance: int) -> Map:
    """Lay out the registers of a block of a chip: those that the header places relative to a segment base, arrays
    element by element.
    """
    database = _chip(chip)
    addresses: dict[str, int] = {}
    names: dict[int, str] = {}
    place = next(place for place in database.row.places if place.block == block)
    file = database.file(place)
    for index, name in enumerate(file.names()):
        register = Register(file, index, place)
        if register.segment is None:  # indirect spaces and configuration space are other blocks' doors
            continue
        row = register.row
        for element in range(max(1, row.count)):
            address = register.address(instance, element)
            if address is not None:
                spelled = name if row.count <= 1 else f"{name}[{element}]"
                addresses.setdefault(spelled, address)
                names.setdefault(address, spelled)
    return Map(addresses, names)


@cache
def names_from(chip: str, block: str, instance: int, prefix: str) -> tuple[str, ...]:
    """List the registers of `block_map` whose names begin so. Every card asks for the same ones."""
    return tuple(name for name in block_map(chip, block, instance).addresses if name.startswith(prefix))


class Table(NamedTuple):
    """The rows of a block by address. `twins`: names of a register that has several. `may_set`: bits that some field
    has, of registers that were written before.
    """

    rows: dict[int, Row]
    resets: dict[int, int]
    read_only: dict[int, int]
    clears: dict[int, int]
    starts: dict[int, tuple[str, ...]]
    twins: dict[int, list[str]]
    may_set: dict[int, int]


@cache
def rows_of(chip: str, block: str) -> Rows:
    """Return a block's table, which its vendor's models have; an empty one makes the whole block unmodelled."""
    tables: dict[str, Rows] = import_module(f"ringup.silicon.{_chip(chip).row.vendor}.rows").TABLES
    return tables.get(block, Rows(()))


@cache
def table(chip: str, block: str, instance: int, rows: Rows) -> Table:
    """Find the row of every register of a block. Cards are made often: this happens once for each chip."""
    addresses = block_map(chip, block, instance).addresses
    named = rows.of(addresses)
    twins: dict[int, list[str]] = {}
    for name, address in addresses.items():
        twins.setdefault(address, []).append(name)
    found: dict[int, Row] = {}
    # Some registers have two names; the row that says most has both.
    for kind in (Kind.UNMODELLED, Kind.INERT, Kind.BEHAVIOUR):
        found |= {addresses[name]: row for name, row in named.items() if row.kind is kind}
    return Table(
        found,
        {address: row.reset for address, row in found.items() if row.reset},
        {address: row.read_only for address, row in found.items() if row.read_only},
        {address: row.clears for address, row in found.items() if row.clears},
        {address: row.starts for address, row in found.items() if row.starts},
        {address: names for address, names in twins.items() if len(names) > 1},
        {},
    )


def _named_bits(chip: str, block: str, names: Iterable[str]) -> int:
    """Return the bits of a register that its header gives a field with a meaning; all of them where it lists no
    fields.
    """
    found = (register for name in names for register in _chip(chip).registers(name.partition("[")[0], block))
    fields = [one for register in found for one in register.fields]
    bits = 0
    for one in fields:
        if not RESERVED.fullmatch(one.name):
            bits |= one.mask
    return bits if fields else ALL


@cache
def _field(chip: str, block: str, name: str, field: str) -> RegisterField:
    wanted = field.upper()
    for register in _chip(chip).registers(name.partition("[")[0], block):
        for one in register.fields:
            if one.name.upper() == wanted:
                return one
    raise KeyError(f"{name} has no field {field}")


class Note(Protocol):
    """`EventLog.note`."""

    def __call__(self, block: str, kind: str, form: str, *values: object) -> None:
        """Add an event."""
        ...


class Derived(Generic[T]):
    """What a function makes of stored registers, made again only once one of them has changed. Those with a bank it
    reads by `of`.
    """

    __slots__ = ("_cells", "_make", "_places", "_value", "fresh")

    def __init__(self, cells: Cells, make: Callable[[], T]) -> None:
        self._cells, self._make = cells, make
        self._places: set[Place] = set()
        self._value: T
        self.fresh = False

    def __call__(self) -> T:
        """Return it."""
        cells = self._cells
        if not self.fresh:
            outer, cells.reads = cells.reads, set()
            try:
                self._value = self._make()
                self._places = cells.reads
            finally:
                cells.reads = outer
            cells.watch(self, self._places)
            self.fresh = True
        if cells.reads is not None:
            cells.reads |= self._places
        return self._value


class Cells:
    """The registers of one block instance. Values are kept by address and bank; names are the header's.

    `cells["NAME"]` reads and stores without hooks: that is the block's own hand. `read` and `write` are the bus.
    `rows` is the block's table, its vendor's when left out. A hook is for a register whose row says that it acts; only
    tests have others.
    """

    def __init__(self, chip: str, block: str, instance: int = 0, rows: Rows | None = None) -> None:
        self.chip, self.block, self.instance = chip, block, instance
        self.map = block_map(chip, block, instance)
        self.note: Note | None = None  # where the log is; `RegisterSpace.attach` says
        self._table = table(chip, block, instance, rows or rows_of(chip, block))
        # by address: bits that may be written without a look at the row; registers whose reads have been told of
        self._quiet: dict[int, int] = {}
        self._heard: set[int] = set()
        self._addresses = self.map.addresses
        self._values: dict[Place, int] = {}
        self._reset = dict(self._table.resets)
        self.reads: set[Place] | None = None  # what is read while a `Derived` is made
        self._watched: dict[Place, set[Derived[Any]]] = {}
        self._read: dict[int, Callable[[], int]] = {}
        self._write: dict[int, Callable[[int], None]] = {}
        # bits the bus cannot change, bits that a written 1 clears
        self._fixed, self._clears = dict(self._table.read_only), dict(self._table.clears)
        self._bank: dict[int, Callable[[], Key]] = {}

    # --- setting up, once, by the block -------------------------------------------------------------------------
    def address(self, name: str) -> int:
        """Return the byte address of a register; a name this version lacks is a `KeyError`."""
        return self.map.addresses[name]

    def names_from(self, prefix: str) -> tuple[str, ...]:
        """List the registers whose names begin so; all of them for an empty prefix."""
        return names_from(self.chip, self.block, self.instance, prefix)

    def on_read(self, name: str, hook: Callable[[], int]) -> None:
        """Answer bus reads of `name` with what `hook()` returns."""
        self._read[self.map.addresses[name]] = hook

    def on_write(self, name: str, hook: Callable[[int], None]) -> None:
        """Call `hook(value)` after a bus write was stored; the value is the one stored."""
        self._write[self.map.addresses[name]] = hook

    def read_only(self, name: str, bits: int = ALL) -> None:
        """Make bus writes leave `bits` alone."""
        self._fixed[self.map.addresses[name]] = bits

    def write_one_clears(self, name: str, bits: int = ALL) -> None:
        """Make a written 1 clear the bit, and a written 0 leave it."""
        self._clears[self.map.addresses[name]] = bits

    def resets_to(self, name: str, value: int) -> None:
        """Give a register its value after reset; 0 for those not named. It takes that value at once."""
        self._reset[self.map.addresses[name]] = value
        self._forget_derived()

    def bank(self, names: Iterable[str], key: Callable[[], Key]) -> None:
        """Keep a value of each of `names` for every bank; `key()` tells the bank that the bus sees now."""
        for name in names:
            self._bank[self.map.addresses[name]] = key

    def row(self, name: str) -> Row | None:
        """Return the row of a register; None: it has none, and is not modelled."""
        return self._table.rows.get(self.map.addresses[name])

    def kind(self, name: str) -> Kind:
        """Return what a register is to the model."""
        row = self.row(name)
        return Kind.UNMODELLED if row is None else row.kind

    def hooked(self, name: str) -> bool:
        """Say whether the block answers reads of a register, or hears of writes."""
        address = self.map.addresses[name]
        return address in self._read or address in self._write

    # --- the block's own hand -----------------------------------------------------------------------------------
    def __getitem__(self, name: str) -> int:
        return self.peek(self.map.addresses[name])

    def __setitem__(self, name: str, value: int) -> None:
        address = self._addresses[name]
        bank = self._bank.get(address)
        self.store((address, None if bank is None else bank()), value & ALL)

    def __contains__(self, name: str) -> bool:
        return name in self.map.addresses

    def of(self, key: Key, name: str) -> int:
        """Return a register of a given bank."""
        return self.load((self._addresses[name], key))

    def set_of(self, key: Key, name: str, value: int) -> None:
        """Store a register of a given bank."""
        self.store((self._addresses[name], key), value & ALL)

    def place(self, name: str, key: Key = None) -> Place:
        """Return where a register of a given bank is kept, for `load` and `store`."""
        return self._addresses[name], key

    def load(self, place: Place) -> int:
        """Return what is stored at a place."""
        if self.reads is not None:
            self.reads.add(place)
        value = self._values.get(place)
        return self._reset.get(place[0], 0) if value is None else value

    def reader(self, name: str, key: Key = None) -> Callable[[], int]:
        """Return what is `of` a register, but faster and not for what is `Derived`. What it resets to must be known."""
        place = self.place(name, key)
        return partial(self._values.get, place, self._reset.get(place[0], 0))  # type: ignore[return-value]

    def store(self, place: Place, value: int) -> None:
        """Store 32 bits at a place."""
        if place in self._watched and value != self.load(place):
            for one in self._watched[place]:
                one.fresh = False
        self._values[place] = value

    # --- what follows from registers ----------------------------------------------------------------------------
    def derived(self, make: Callable[[], T]) -> Derived[T]:
        """Keep what `make()` makes of stored registers of this block, until one of them changes."""
        return Derived(self, make)

    def watch(self, derived: Derived[Any], places: Iterable[Place]) -> None:
        """Let something be made again once what is stored at one of these places changes."""
        for place in places:
            self._watched.setdefault(place, set()).add(derived)

    def _forget_derived(self) -> None:
        for watchers in self._watched.values():
            for one in watchers:
                one.fresh = False

    def get(self, name: str, field: str) -> int:
        """Return a field of a register, by the header's name in either case."""
        return _field(self.chip, self.block, name, field).of(self[name])

    def put(self, name: str, **fields: int) -> None:
        """Store fields of a register and keep its other bits."""
        self[name] = self.replace(name, self[name], **fields)

    def field(self, name: str, field: str, value: int) -> int:
        """Return what `value`, taken as a value of register `name`, has in `field`."""
        return _field(self.chip, self.block, name, field).of(value)

    def replace(self, name: str, value: int, **fields: int) -> int:
        """Return `value` with fields of register `name` changed; one that does not fit is a `ValueError`."""
        for field, number in fields.items():
            facts = _field(self.chip, self.block, name, field)
            moved = number << facts.lo
            if number < 0 or moved & ~facts.mask:
                raise ValueError(f"{name}.{field} cannot hold {number:#x}")
            value = value & ~facts.mask | moved
        return value

    def reset(self, keep: Iterable[str] = ()) -> None:
        """Give every register its reset value, except those of `keep`."""
        kept = {self.map.addresses[name] for name in keep}
        for place in [place for place in self._values if place[0] not in kept]:
            del self._values[place]
        self._forget_derived()

    # --- the bus ------------------------------------------------------------------------------------------------
    def read(self, address: int) -> int:
        """Read a register by its byte address, as the bus does."""
        hook = self._read.get(address)
        if hook is not None:
            return hook() & ALL
        value = self.peek(address)
        if address not in self._heard:
            self._heard.add(address)
            row = self._table.rows.get(address)
            if row is None or row.kind is Kind.UNMODELLED:
                self._tell(address, "unmodelled", "{} is read as {:#x}, without a model{}", value, _why(row))
        return value

    def peek(self, address: int) -> int:
        """Return what is stored at a byte address, without a hook; one that no header names is a `GuestError`."""
        if address not in self.map.names:
            raise GuestError(f"reading {self.block} register {address:#x}: no header of {self.chip} names it")
        return self.load((address, self._key(address)))

    def write(self, address: int, value: int) -> None:
        """Write a register by its byte address, as the bus does."""
        if address not in self.map.names:
            raise GuestError(
                f"writing {value:#x} to {self.block} register {address:#x}: no header of {self.chip} names it"
            )
        quiet = self._quiet.get(address)
        if quiet is None or value & ALL & ~quiet or address in self._table.starts:
            self._look(address, value & ALL)
        place = (address, self._key(address))
        old, new = self.load(place), value & ALL
        if clears := self._clears.get(address, 0):
            new = new & ~clears | old & ~new & clears
        if fixed := self._fixed.get(address, 0):
            new = new & ~fixed | old & fixed
        self.store(place, new)
        hook = self._write.get(address)
        if hook is not None:
            hook(new if not clears else value & ALL)

    def _look(self, address: int, value: int) -> None:
        """Compare a write with the register's row. One that starts what the model lacks raises `Unmodelled`."""
        table = self._table
        row = table.rows.get(address)
        if address in table.starts and row is not None:
            self._refuse(address, value, row)
        if address not in self._quiet and (row is None or row.kind is Kind.UNMODELLED):
            self._tell(address, "unmodelled", "{} = {:#x} is kept without effect{}", value, _why(row))
        quiet = self._quiet.get(address, 0)
        if value & ~quiet:
            quiet = self._may_set(address, row)
            if extra := value & ~quiet:
                text = "{} = {:#x}: reserved bits {:#x} written, which no field of the header has"
                self._tell(address, "reserved", text, value, extra)
                quiet = ALL
        self._quiet[address] = quiet

    def _may_set(self, address: int, row: Row | None) -> int:
        """Return the bits of a register that some field has, or that known drivers set."""
        known = self._table.may_set.get(address)
        if known is None:
            names = self._table.twins.get(address, [self.map.names[address]])
            known = _named_bits(self.chip, self.block, names) | (row.spare if row else 0)
            self._table.may_set[address] = known
        return known

    def _refuse(self, address: int, value: int, row: Row) -> None:
        name = self.map.names[address]
        for start in row.starts:
            field, _, wanted = start.partition("=")
            found = value if field == "*" else self.field(name, field, value)
            if found and (not wanted or found == int(wanted, 0)):
                what = "" if field == "*" else f".{field}"
                self._tell(address, "unmodelled", "{} = {:#x} is refused{}", value, _why(row))
                raise Unmodelled(f"{self.block}.{name}{what} was set to {found:#x}: {row.why}")

    def _tell(self, address: int, kind: str, form: str, *values: object) -> None:
        """Note something about a register; the callers do so once."""
        if self.note is not None:
            self.note(self.block, kind, form, f"{self.block}.{self.map.names[address]}", *values)

    def _key(self, address: int) -> Key:
        bank = self._bank.get(address)
        return None if bank is None else bank()


def _why(row: Row | None) -> str:
    return "" if row is None else f": {row.why}"


class Door(NamedTuple):
    """A range of register addresses that functions answer."""

    first: int
    end: int
    read: Callable[[int], int]
    write: Callable[[int, int], None]


class RegisterSpace:
    """All registers of a card by byte address: finds the block that a bus access is for."""

    def __init__(self, note: Note | None = None) -> None:
        """`note`: of the card's log, which is told once of each register that is accessed and not modelled."""
        self._note = note
        self._owner: dict[int, Cells] = {}
        self._doors: dict[int, list[Door]] = {}  # by page of addresses

    def attach(self, cells: Cells) -> None:
        """Put a block's registers on the bus; an address that two blocks name belongs to the one attached first."""
        cells.note = self._note
        self._owner = dict.fromkeys(cells.map.names, cells) | self._owner

    def door(self, first: int, size_bytes: int, read: Callable[[int], int], write: Callable[[int, int], None]) -> Door:
        """Give a range of addresses to functions instead (remapped pages, aliases): they get the full byte address."""
        door = Door(first, first + size_bytes, read, write)
        for page in range(first >> PAGE_SHIFT, (door.end - 1 >> PAGE_SHIFT) + 1):
            self._doors.setdefault(page, []).append(door)
        return door

    def close(self, door: Door) -> None:
        """Take a door away again; one that is closed already is ignored."""
        for page in range(door.first >> PAGE_SHIFT, (door.end - 1 >> PAGE_SHIFT) + 1):
            if door in (doors := self._doors.get(page, [])):
                doors.remove(door)

    def owner(self, address: int) -> Cells | None:
        """Return the block an address belongs to."""
        return self._owner.get(address)

    def answers(self, address: int) -> bool:
        """Tell whether a block or a door has an address now."""
        return address in self._owner or any(
            door.first <= address < door.end for door in self._doors.get(address >> PAGE_SHIFT, ())
        )

    def name(self, address: int) -> str:
        """Return `block.REGISTER` of an address, or its number."""
        cells = self._owner.get(address)
        return f"{address:#x}" if cells is None else f"{cells.block}.{cells.map.names[address]}"

    def read(self, address: int) -> int:
        """Read a register; one that no block has is a `GuestError`."""
        for door in self._doors.get(address >> PAGE_SHIFT, ()):
            if door.first <= address < door.end:
                return door.read(address)
        cells = self._owner.get(address)
        if cells is None:
            raise GuestError(f"reading register {address:#x} (dword {address // 4:#x}): no block of this card has it")
        return cells.read(address)

    def write(self, address: int, value: int) -> None:
        """Write a register; one that no block has is a `GuestError`."""
        for door in self._doors.get(address >> PAGE_SHIFT, ()):
            if door.first <= address < door.end:
                door.write(address, value)
                return
        cells = self._owner.get(address)
        if cells is None:
            raise GuestError(
                f"writing {value:#x} to register {address:#x} (dword {address // 4:#x}): no block of this card has it"
            )
        cells.write(address, value)
