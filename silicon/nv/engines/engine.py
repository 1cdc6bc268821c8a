"""What all engine classes share: methods by address, their data, and how a run of methods is taken.

Source: the class headers of open-gpu-doc (cl*b5.h, cl*c0.h, cl*97.h, cl902d.h, cla140.h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ringup.autogen.layout import Word
from ringup.autogen.nv import error_notifier as errors
from ringup.silicon.nv.compute.launch import Core
from ringup.silicon.nv.memory import windows
from ringup.silicon.nv.memory.space import AddressSpace, PageFault

if TYPE_CHECKING:
    from ringup.silicon.nv.engines.macros import Memory

# what an action takes: microseconds until each next step; None if it takes none
Progress = Iterator[float] | None
Table = Mapping[type[Word], int | tuple[int, int, int]]
DWORD = 4


class Refused(Exception):  # an event of the card
    """Work that the engine does not do. `code`: ROBUST_CHANNEL_*, as the GSP reports it; None: that of the engine."""

    kind = "violation"

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class Lacking(Refused):
    """Work that the real engine does, and this model lacks: the channel stops, rather than going on wrongly."""

    kind = "unmodelled"


@dataclass(slots=True)
class MacroEngine:
    """What the objects of a context have in common: the memories of the macro engine, made at first use."""

    memory: Memory | None = None


@dataclass(slots=True)
class State:
    """What an object remembers: data by method, and the macros of its context."""

    values: dict[int, int] = field(default_factory=dict)
    macros: MacroEngine = field(default_factory=MacroEngine)


@dataclass(frozen=True, slots=True)
class Context:
    """What an engine knows of its channel and its card.

    `privileged`: it may use physical addresses. `notify` sends the engine's interrupt that does not stall. `note` adds
    an event of a kind to the card's log. `core` returns the shader cores, None if the card has none. `replays` returns
    whether accesses of shaders wait where they fault; `faulted` whether software is asked to handle a page fault.
    `state` may be another object's too.
    """

    space: AddressSpace
    memory: windows.Memory
    privileged: bool
    now_ns: Callable[[], int]
    notify: Callable[[], None]
    note: Callable[[str, str], None]
    core: Callable[[], Core | None]
    replays: Callable[[], bool]
    faulted: Callable[[PageFault], bool]
    state: State = field(default_factory=State)


class Engine(Protocol):
    """An object of an engine class on one subchannel."""

    def run(self, address: int, step: int, data: Sequence[int]) -> Iterator[float]:
        """Take a run of methods, and yield the microseconds until each next step.

        `step`: 0 if all data are for `address`, 1 if each is for the next method, 2 if the first is for `address` and
        the others are for the next one. Raises `Refused` or `PageFault`.
        """
        ...


class Array(NamedTuple):
    """Where the methods of one name are."""

    first: int
    stride: int
    elements: int


@cache
def _places(
    module_table: tuple[tuple[type[Word], int | tuple[int, int, int]], ...],
) -> tuple[dict[str, Array], dict[int, str]]:
    firsts = sorted(place if isinstance(place, int) else place[0] for _, place in module_table)
    arrays: dict[str, Array] = {}
    names: dict[int, str] = {}
    for word, place in module_table:
        array = Array(place, DWORD, 1) if isinstance(place, int) else Array(*place)
        if not array.elements:
            # an array without a count, of elements that may be arrays themselves: it ends before the next method
            end = next((one for one in firsts if one > array.first), array.first + array.stride)
            array = Array(array.first, DWORD, (end - array.first) // DWORD)
        arrays[word.__name__] = array
        for index in range(array.elements):
            names.setdefault(array.first + index * array.stride, word.__name__)
    return arrays, names


def field_of(word: Word, name: str) -> int:
    """Return a field of a word; 0 if the class lacks it."""
    return int(getattr(word, name)) if name in word.FIELDS else 0


class Methods:
    """The methods of one class: their names by address, and the data that each was last given."""

    def __init__(self, table: Table, values: dict[int, int]) -> None:
        self._arrays, self.names = _places(tuple(table.items()))
        self.values = values

    def has(self, name: str) -> bool:
        """Return whether the class has a method."""
        return name in self._arrays

    def place(self, name: str, index: int = 0) -> int:
        """Return the address of a method."""
        array = self._arrays[name]
        return array.first + index * array.stride

    def array(self, name: str) -> Array:
        """Return where the methods of a name are."""
        return self._arrays[name]

    def get(self, name: str, index: int = 0) -> int:
        """Return the data of a method; 0 if it was never given any, or the class lacks it."""
        array = self._arrays.get(name)
        return 0 if array is None else self.values.get(array.first + index * array.stride, 0)

    def pair(self, upper: str, lower: str) -> int:
        """Return 64 bits of two methods."""
        return self.get(upper) << 32 | self.get(lower)


def repeated(
    what: Callable[[], Progress], faulted: Callable[[PageFault], bool], *, again: bool = True
) -> Iterator[float]:
    """Do something, and do it again from its start for as often as software handles its page fault.

    Raises the `PageFault` that nobody handles, and `Lacking` if it cannot be done `again`. GUESS: metal goes on in the
    middle of a copy.
    """
    while True:
        try:
            progress = what()
            if progress is not None:
                yield from progress
        except PageFault as fault:
            if not faulted(fault):
                raise
            # the channel is off its runlist until then
            yield 0.0
            if not again:
                code = errors.ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
                raise Lacking(f"{fault}: replaying an access is not modelled", code) from fault
        else:
            return


class ClassEngine:
    """One object: keeps the data of its methods, and acts on some of them. `code`: what its errors are called.

    `repeats`: what an action does may be done again after a page fault. `actions` by address get a method's data.
    `streams` by address get the data of a run that does not increment.
    """

    repeats = False

    def __init__(self, class_id: int, table: Table, context: Context, code: int) -> None:
        self.class_id, self.methods, self.context, self.code = (
            class_id,
            Methods(table, context.state.values),
            context,
            code,
        )
        self.actions: dict[int, Callable[[int], Progress]] = {}
        self.streams: dict[int, Callable[[Sequence[int]], Progress]] = {}

    def act(self, name: str, action: Callable[[int], Progress]) -> None:
        """Call an action for each method of a name, if the class has it."""
        if self.methods.has(name):
            first, stride, count = self.methods.array(name)
            for address in range(first, first + stride * count, stride):
                self.actions[address] = action

    def stream(self, name: str, action: Callable[[Sequence[int]], Progress]) -> None:
        """Call an action with all data of a method, if the class has it."""
        if self.methods.has(name):
            first, stride, count = self.methods.array(name)
            for address in range(first, first + stride * count, stride):
                self.streams[address] = action
                self.actions[address] = lambda data: action((data,))

    def run(self, address: int, step: int, data: Sequence[int]) -> Iterator[float]:
        """Take a run of methods; see `Engine`."""
        try:
            yield from self._run(address, step, data)
        except Refused as error:
            if error.code is None:
                error.code = self.code
            raise

    def _run(self, address: int, step: int, data: Sequence[int]) -> Iterator[float]:
        names, values, actions = self.methods.names, self.methods.values, self.actions
        if step == 0 and address in self.streams and data:
            values[address] = data[-1]
            yield from self.streams[address](data) or ()
            return
        for index, value in enumerate(data):
            at = address + DWORD * (index if step == 1 else min(index, 1) if step else 0)
            if at not in names:
                raise Refused(f"method {at:#x} is none of class {self.class_id:#x}")
            values[at] = value
            if (action := actions.get(at)) is not None:
                yield from repeated(partial(action, value), self.context.faulted, again=self.repeats)
            if step == 2 and index == 0 and at + DWORD in self.streams and len(data) > 1:
                values[at + DWORD] = data[-1]
                yield from self.streams[at + DWORD](data[1:]) or ()
                return
