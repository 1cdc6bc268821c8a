"""A block's registers: storage by address, with hooks where the model acts. Addresses that no header names are refused.

The block's table (`rows`) says which registers the model acts on, which are stored without effect, and which are not
modelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from functools import cache, partial
from importlib import import_module
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ringup.autogen.regdb import Chip, RegisterField, open_chip
from ringup.errors import GuestError, Unmodelled
from ringup.silicon.common.rows import Kind, Row, Rows

ALL = 0xFFFF_FFFF
PAGE_SHIFT = 12  # doors are looked up by page
RESERVED = re.compile("(RESERVED|RSVD|UNUSED)[0-9_]*", re.IGNORECASE)  # headers' names for bits without a meaning
# selects a bank, such as (me, pipe, queue)
Key = Hashable
# a register's address and bank; bank None for a register without banks
Place = tuple[int, Key]
T = TypeVar("T")


class Map(NamedTuple):
    """A block's registers in the card's register space (byte addresses)."""

    addresses: dict[str, int]
    names: dict[int, str]


@cache
def _chip(name: str) -> Chip:
    return open_chip(name)


class Spot(NamedTuple):
    """A register, or an element of an array: its segment, its offset there and the bytes of a unit of both."""

    name: str
    segment: int
    offset: int
    unit_bytes: int


@cache
def _spots(chip: str, block: str) -> tuple[Spot, ...]:
    """List the registers of a block that lie in a segment. Cached: a chip has up to sixteen instances of a block."""
    database = _chip(chip)
    place = next(place for place in database.row.places if place.block == block)
    file = database.file(place)
    found = []
    for index, name in enumerate(file.names()):
        offset, segment = file.place(index)
        # doors of other blocks cover indirect spaces and configuration space
        if segment is None or offset is None:
            continue
        row = file.row(index)
        found += [
            Spot(name if row.count <= 1 else f"{name}[{n}]", segment, offset + n * row.stride, row.unit_bytes)
            for n in range(max(1, row.count))
        ]
    return tuple(found)


@cache
def block_map(chip: str, block: str, instance: int) -> Map:
    """Map the registers of a block of a chip: those with an address relative to a segment base, arrays element by
    element.
    """
    place = next(place for place in _chip(chip).row.places if place.block == block)
    bases = dict(enumerate(place.bases[instance] if instance < len(place.bases) else ()))
    addresses: dict[str, int] = {}
    names: dict[int, str] = {}
    for name, segment, offset, unit_bytes in _spots(chip, block):
        if segment in bases:
            address = (bases[segment] + offset) * unit_bytes
            addresses.setdefault(name, address)
            names.setdefault(address, name)
    return Map(addresses, names)


@cache
def names_from(chip: str, block: str, instance: int, prefix: str) -> tuple[str, ...]:
    """List the registers of `block_map` whose names begin with `prefix`. Cached: every card asks for the same ones."""
    return tuple(name for name in block_map(chip, block, instance).addresses if name.startswith(prefix))


class Table(NamedTuple):
    """The rows of a block by address. `twins`: the names of registers with several. `may_set`: bits with a field, for
    registers written before.
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
    """Return a block's table from its vendor's models; an empty one makes the whole block unmodelled."""
    tables: dict[str, Rows] = import_module(f"ringup.silicon.{_chip(chip).row.vendor}.rows").TABLES
    return tables.get(block, Rows(()))


@cache
def _rows_by_name(chip: str, block: str, rows: Rows) -> dict[str, Row]:
    return rows.of(spot.name for spot in _spots(chip, block))


@cache
def table(chip: str, block: str, instance: int, rows: Rows) -> Table:
    """Find the row of every register of a block. Cached for each chip: cards are made often."""
    addresses = block_map(chip, block, instance).addresses
    named = {name: row for name, row in _rows_by_name(chip, block, rows).items() if name in addresses}
    twins: dict[int, list[str]] = {}
    for name, address in addresses.items():
        twins.setdefault(address, []).append(name)
    found: dict[int, Row] = {}
    # Some registers have two names; of two rows the more informative one applies.
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
    """Return the bits of a register that belong to a field with a meaning; all bits if the header lists no fields."""
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


def replaced(chip: str, block: str, name: str, value: int, **fields: int) -> int:
    """Return `value` with fields of a block's register changed. Raises `ValueError` for a value that does not fit."""
    for field, number in fields.items():
        facts = _field(chip, block, name, field)
        moved = number << facts.lo
        if number < 0 or moved & ~facts.mask:
            raise ValueError(f"{name}.{field} cannot hold {number:#x}")
        value = value & ~facts.mask | moved
    return value


class Note(Protocol):
    """`EventLog.note`."""

    def __call__(self, block: str, kind: str, form: str, *values: object) -> None:
        """Add an event."""
        ...


class Derived(Generic[T]):
    """A cached result of `make`, computed from stored registers, and computed again after one of them has changed.
    Registers with a bank are read with `of`.
    """

    __slots__ = ("_cells", "_make", "_places", "_value", "fresh")

    def __init__(self, cells: Cells, make: Callable[[], T]) -> None:
        self._cells, self._make = cells, make
        self._places: set[Place] = set()
        self._value: T
        self.fresh = False

    def __call__(self) -> T:
        """Return the result."""
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
    """The registers of one block instance. Values are stored by address and bank; names are the header's.

    `cells["NAME"]` reads and stores without hooks: that is for the block itself. `read` and `write` are for the bus.
    `rows` is the block's table, by default its vendor's. Only registers whose row says that the model acts on them have
    hooks, except in tests.
    """

    def __init__(self, chip: str, block: str, instance: int = 0, rows: Rows | None = None) -> None:
        self.chip, self.block, self.instance = chip, block, instance
        self.map = block_map(chip, block, instance)
        # the log, set by `RegisterSpace.attach`
        self.note: Note | None = None
        self._table = table(chip, block, instance, rows or rows_of(chip, block))
        # by address: bits that may be written without checking the row; registers whose reads have been logged
        self._checked: dict[int, int] = {}
        self._reads_logged: set[int] = set()
        self._addresses = self.map.addresses
        self._values: dict[Place, int] = {}
        self._reset = dict(self._table.resets)
        # the places read while a `Derived` is computed
        self.reads: set[Place] | None = None
        self._watched: dict[Place, set[Derived[Any]]] = {}
        self._read: dict[int, Callable[[], int]] = {}
        self._write: dict[int, Callable[[int], None]] = {}
        # bits that bus writes cannot change; bits that writing 1 clears
        self._fixed, self._clears = dict(self._table.read_only), dict(self._table.clears)
        self._bank: dict[int, Callable[[], Key]] = {}

    # --- setup by the block, once -------------------------------------------------------------------------------
    def address(self, name: str) -> int:
        """Return the byte address of a register. Raises `KeyError` for a name that this version lacks."""
        return self.map.addresses[name]

    def names_from(self, prefix: str) -> tuple[str, ...]:
        """List the registers whose names begin with `prefix`; all for an empty prefix."""
        return names_from(self.chip, self.block, self.instance, prefix)

    def on_read(self, name: str, hook: Callable[[], int]) -> None:
        """Return `hook()` for bus reads of `name`."""
        self._read[self.map.addresses[name]] = hook

    def on_write(self, name: str, hook: Callable[[int], None]) -> None:
        """Call `hook(value)` with the stored value after each bus write."""
        self._write[self.map.addresses[name]] = hook

    def read_only(self, name: str, bits: int = ALL) -> None:
        """Protect `bits` from bus writes."""
        self._fixed[self.map.addresses[name]] = bits

    def write_one_clears(self, name: str, bits: int = ALL) -> None:
        """Make a bit clear when a 1 is written, and stay when a 0 is written."""
        self._clears[self.map.addresses[name]] = bits

    def resets_to(self, name: str, value: int) -> None:
        """Set a register's reset value (0 by default), and its current value."""
        self._reset[self.map.addresses[name]] = value
        self._forget_derived()

    def bank(self, names: Iterable[str], key: Callable[[], Key]) -> None:
        """Store each of `names` once for every bank; `key()` returns the bank that the bus accesses now."""
        for name in names:
            self._bank[self.map.addresses[name]] = key

    def row(self, name: str) -> Row | None:
        """Return the row of a register; None: it has no row and is not modelled."""
        return self._table.rows.get(self.map.addresses[name])

    def kind(self, name: str) -> Kind:
        """Return how the model treats a register."""
        row = self.row(name)
        return Kind.UNMODELLED if row is None else row.kind

    def hooked(self, name: str) -> bool:
        """Return whether a register has a hook for reads or writes."""
        address = self.map.addresses[name]
        return address in self._read or address in self._write

    # --- accesses by the block ----------------------------------------------------------------------------------
    def __getitem__(self, name: str) -> int:
        return self.peek(self.map.addresses[name])

    def __setitem__(self, name: str, value: int) -> None:
        address = self._addresses[name]
        bank = self._bank.get(address)
        self.store((address, None if bank is None else bank()), value & ALL)

    def __contains__(self, name: str) -> bool:
        return name in self.map.addresses

    def of(self, key: Key, name: str) -> int:
        """Return a register of a bank."""
        return self.load((self._addresses[name], key))

    def set_of(self, key: Key, name: str, value: int) -> None:
        """Store a register of a bank."""
        self.store((self._addresses[name], key), value & ALL)

    def place(self, name: str, key: Key = None) -> Place:
        """Return the place of a register of a bank, for `load` and `store`."""
        return self._addresses[name], key

    def load(self, place: Place) -> int:
        """Return the value at a place."""
        if self.reads is not None:
            self.reads.add(place)
        value = self._values.get(place)
        return self._reset.get(place[0], 0) if value is None else value

    def reader(self, name: str, key: Key = None) -> Callable[[], int]:
        """Return a function that reads a register like `of`, but faster; not for use in a `Derived`. Set the reset
        value before.
        """
        place = self.place(name, key)
        return partial(self._values.get, place, self._reset.get(place[0], 0))  # type: ignore[return-value]

    def store(self, place: Place, value: int) -> None:
        """Store 32 bits at a place."""
        if place in self._watched and value != self.load(place):
            for one in self._watched[place]:
                one.fresh = False
        self._values[place] = value

    # --- results computed from registers ------------------------------------------------------------------------
    def derived(self, make: Callable[[], T]) -> Derived[T]:
        """Cache the result of `make()`, computed from this block's stored registers, until one of them changes."""
        return Derived(self, make)

    def watch(self, derived: Derived[Any], places: Iterable[Place]) -> None:
        """Invalidate `derived` when the value at one of the places changes."""
        for place in places:
            self._watched.setdefault(place, set()).add(derived)

    def _forget_derived(self) -> None:
        for watchers in self._watched.values():
            for one in watchers:
                one.fresh = False

    def get(self, name: str, field: str) -> int:
        """Return a field of a register; the field's name is the header's, in either case."""
        return _field(self.chip, self.block, name, field).of(self[name])

    def put(self, name: str, **fields: int) -> None:
        """Change fields of a register and keep its other bits."""
        self[name] = self.replace(name, self[name], **fields)

    def has_field(self, name: str, field: str) -> bool:
        """Return whether this version's register has a field."""
        try:
            _field(self.chip, self.block, name, field)
        except KeyError:
            return False
        return True

    def field(self, name: str, field: str, value: int) -> int:
        """Return `field` of `value`, taken as a value of register `name`."""
        return _field(self.chip, self.block, name, field).of(value)

    def replace(self, name: str, value: int, **fields: int) -> int:
        """Return `value` with fields of register `name` changed. Raises `ValueError` for a value that does not fit."""
        return replaced(self.chip, self.block, name, value, **fields)

    def reset(self, keep: Iterable[str] = ()) -> None:
        """Set every register to its reset value, except those in `keep`."""
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
        if address not in self._reads_logged:
            self._reads_logged.add(address)
            row = self._table.rows.get(address)
            if row is None or row.kind is Kind.UNMODELLED:
                self._log(address, "unmodelled", "{} is read as {:#x}, without a model{}", value, _why(row))
        return value

    def peek(self, address: int) -> int:
        """Return the value at a byte address, without a hook. Raises `GuestError` if no header names the address."""
        if address not in self.map.names:
            raise GuestError(f"reading {self.block} register {address:#x}: no header of {self.chip} names it")
        return self.load((address, self._key(address)))

    def write(self, address: int, value: int) -> None:
        """Write a register by its byte address, as the bus does."""
        if address not in self.map.names:
            raise GuestError(
                f"writing {value:#x} to {self.block} register {address:#x}: no header of {self.chip} names it"
            )
        checked = self._checked.get(address)
        if checked is None or value & ALL & ~checked or address in self._table.starts:
            self._check(address, value & ALL)
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

    def _check(self, address: int, value: int) -> None:
        """Check a write against the register's row. Raises `Unmodelled` if it starts something that the model lacks."""
        table = self._table
        row = table.rows.get(address)
        if address in table.starts and row is not None:
            self._refuse(address, value, row)
        if address not in self._checked and (row is None or row.kind is Kind.UNMODELLED):
            self._log(address, "unmodelled", "{} = {:#x} is kept without effect{}", value, _why(row))
        checked = self._checked.get(address, 0)
        if value & ~checked:
            checked = self._may_set(address, row)
            if extra := value & ~checked:
                text = "{} = {:#x}: reserved bits {:#x} written, which belong to no field of the header"
                self._log(address, "reserved", text, value, extra)
                checked = ALL
        self._checked[address] = checked

    def _may_set(self, address: int, row: Row | None) -> int:
        """Return the bits of a register that belong to a field, or that known drivers set."""
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
            # not every version has each of a row's fields
            if field != "*" and not self.has_field(name, field):
                continue
            found = value if field == "*" else self.field(name, field, value)
            if found and (not wanted or found == int(wanted, 0)):
                what = "" if field == "*" else f".{field}"
                self._log(address, "unmodelled", "{} = {:#x} is refused{}", value, _why(row))
                raise Unmodelled(f"{self.block}.{name}{what} was set to {found:#x}: {row.why}")

    def _log(self, address: int, kind: str, form: str, *values: object) -> None:
        """Log an event about a register; callers do so once."""
        if self.note is not None:
            self.note(self.block, kind, form, f"{self.block}.{self.map.names[address]}", *values)

    def _key(self, address: int) -> Key:
        bank = self._bank.get(address)
        return None if bank is None else bank()


def _why(row: Row | None) -> str:
    return "" if row is None else f": {row.why}"


class Door(NamedTuple):
    """A range of register addresses that functions implement."""

    first: int
    end: int
    read: Callable[[int], int]
    write: Callable[[int, int], None]


class RegisterSpace:
    """All registers of a card by byte address; finds the block of a bus access."""

    def __init__(self, note: Note | None = None) -> None:
        """`note`: the card's log, which gets one event for each unmodelled register that is accessed."""
        self._note = note
        self._owner: dict[int, Cells] = {}
        self._doors: dict[int, list[Door]] = {}  # by page of addresses

    def attach(self, cells: Cells) -> None:
        """Put a block's registers on the bus; an address named by two blocks belongs to the one attached first."""
        cells.note = self._note
        self._owner = dict.fromkeys(cells.map.names, cells) | self._owner

    def door(self, first: int, size_bytes: int, read: Callable[[int], int], write: Callable[[int, int], None]) -> Door:
        """Map a range of addresses to functions (remapped pages, aliases), which get the full byte address."""
        door = Door(first, first + size_bytes, read, write)
        for page in range(first >> PAGE_SHIFT, (door.end - 1 >> PAGE_SHIFT) + 1):
            self._doors.setdefault(page, []).append(door)
        return door

    def close(self, door: Door) -> None:
        """Remove a door; a door already removed is ignored."""
        for page in range(door.first >> PAGE_SHIFT, (door.end - 1 >> PAGE_SHIFT) + 1):
            if door in (doors := self._doors.get(page, [])):
                doors.remove(door)

    def has(self, block: str, instance: int) -> bool:
        """Return whether a block is on the bus."""
        return any((cells.block, cells.instance) == (block, instance) for cells in set(self._owner.values()))

    def owner(self, address: int) -> Cells | None:
        """Return the block that an address belongs to."""
        return self._owner.get(address)

    def answers(self, address: int) -> bool:
        """Return whether a block or a door has an address now."""
        return address in self._owner or any(
            door.first <= address < door.end for door in self._doors.get(address >> PAGE_SHIFT, ())
        )

    def name(self, address: int) -> str:
        """Return `block.REGISTER` for an address, or the address itself."""
        cells = self._owner.get(address)
        return f"{address:#x}" if cells is None else f"{cells.block}.{cells.map.names[address]}"

    def read(self, address: int) -> int:
        """Read a register. Raises `GuestError` if no block has the address."""
        for door in self._doors.get(address >> PAGE_SHIFT, ()):
            if door.first <= address < door.end:
                return door.read(address)
        cells = self._owner.get(address)
        if cells is None:
            raise GuestError(f"reading register {address:#x} (dword {address // 4:#x}): no block of this card has it")
        return cells.read(address)

    def write(self, address: int, value: int) -> None:
        """Write a register. Raises `GuestError` if no block has the address."""
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
