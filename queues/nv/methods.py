"""Runs of methods: the words of a pushbuffer. A header names a subchannel, the first method and how many data words
follow.

Source: open-gpu-doc dev_pbdma.ref.txt and clc56f.h, "dma method formats".
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, TypeVar

from ringup.autogen.layout import Word
from ringup.autogen.nv import methods_host as host
from ringup.queues.dwords import ONES

W = TypeVar("W", bound=Word)

# the objects of a channel. The host executes methods below HOST_END itself, on every subchannel. A copy engine's object
# is on subchannel 4 on every runlist. Source: OGKM nvidia-uvm, uvm_push_macros.h
HOST, COMPUTE, COPY = 0, 1, 4
HOST_END = 0x100
# the method that binds a class to a subchannel; clc56f.h, NVC56F_SET_OBJECT
SET_OBJECT = 0
# fields of a header: data words in a run, bytes of methods, bits of an immediate
MAX_COUNT = (1 << host.DMA.FIELDS["method_count"].width) - 1
METHOD_END = 4 << host.DMA.FIELDS["method_address"].width
IMMEDIATE_BITS = host.DMA.FIELDS["immd_data"].width
# the universal no-operation: a header of 0. Source: dev_ram.ref.txt, NV_FIFO_DMA_NOP
PUSH_NOP = bytes(4)


def header(operation: int, subchannel: int, method: int, count: int) -> int:
    """Return the header of a run. `operation`: a DMA_SEC_OP; `method`: the first one's byte offset; `count`: how many
    data words follow, or an immediate value.
    """
    if not 0 <= subchannel < host.NUMBER_OF_SUBCHANNELS:
        raise ValueError(f"a channel has subchannels 0 to {host.NUMBER_OF_SUBCHANNELS - 1}, not {subchannel}")
    if method % 4 or not 0 <= method < METHOD_END:
        raise ValueError(f"a method is a multiple of 4 below {METHOD_END:#x}, not {method:#x}")
    if not 0 <= count <= MAX_COUNT:
        raise ValueError(f"a header counts 0 to {MAX_COUNT} words, not {count}")
    return int(host.DMA(sec_op=operation, method_count=count, method_subchannel=subchannel, method_address=method // 4))


def incrementing(subchannel: int, method: int, values: Sequence[int]) -> list[int]:
    """Give one value each to `method` and the methods behind it."""
    _check(values)
    if method + 4 * len(values) > METHOD_END:
        raise ValueError(f"{len(values)} methods from {method:#x} reach beyond {METHOD_END:#x}")
    return [header(host.DMA_SEC_OP_INC_METHOD, subchannel, method, len(values)), *values]


def non_incrementing(subchannel: int, method: int, values: Sequence[int]) -> list[int]:
    """Give all values to one method, in as many runs as that takes."""
    out: list[int] = []
    for at in range(0, len(values), MAX_COUNT):
        piece = values[at : at + MAX_COUNT]
        _check(piece)
        out += [header(host.DMA_SEC_OP_NON_INC_METHOD, subchannel, method, len(piece)), *piece]
    return out


def increment_once(subchannel: int, method: int, values: Sequence[int]) -> list[int]:
    """Give the first value to `method`, all others to the method behind it."""
    _check(values)
    return [header(host.DMA_SEC_OP_ONE_INC, subchannel, method, len(values)), *values]


def immediate(subchannel: int, method: int, value: int) -> list[int]:
    """Give a value of 13 bits to a method, in one word."""
    if not 0 <= value < 1 << IMMEDIATE_BITS:
        raise ValueError(f"an immediate holds {IMMEDIATE_BITS} bits, not {value:#x}")
    return [header(host.DMA_SEC_OP_IMMD_DATA_METHOD, subchannel, method, value)]


def _check(values: Sequence[int]) -> None:
    if not 1 <= len(values) <= MAX_COUNT:
        raise ValueError(f"a run has 1 to {MAX_COUNT} data words, not {len(values)}")
    if min(values) < 0 or max(values) > ONES:
        wrong = next(value for value in values if not 0 <= value <= ONES)
        raise ValueError(f"a data word has 32 bits, not {wrong:#x}")


def address(gpu_va: int, align: int, bits: int, what: str) -> tuple[int, int]:
    """Return the halves of an address, low first. Raises a `ValueError` that begins with `what` if the address is not a
    multiple of `align` bytes or has more than `bits` bits.
    """
    if gpu_va % align or not 0 <= gpu_va < 1 << bits:
        aligned = f" aligned to {align} bytes" if align > 1 else ""
        raise ValueError(f"{what} is an address of {bits} bits{aligned}, not {gpu_va:#x}")
    return gpu_va & ONES, gpu_va >> 32


class Methods:
    """The methods of one class on one subchannel. They are words of a generated module, such as
    `methods_copy.LAUNCH_DMA`.
    """

    def __init__(self, module: ModuleType, class_id: int, subchannel: int, *older: int) -> None:
        """`older`: classes whose methods this class has too, though its own header, cut down by its publisher, lacks
        some of them; the first of them lays out the words.
        """
        known: dict[int, dict[type[Word], int | tuple[int, int, int]]] = module.METHODS
        missing = [one for one in (class_id, *older) if one not in known]
        if missing:
            raise ValueError(f"{module.__name__} knows no class {missing[0]:#x}")
        self.class_id, self.subchannel = class_id, subchannel
        self._layout = older[0] if older else class_id
        self._places: dict[type[Word], int | tuple[int, int, int]] = {}
        for one in reversed((class_id, *older)):
            self._places |= known[one]
        self._words: dict[type[Word], Any] = {}

    def __getitem__(self, word: type[W]) -> type[W]:
        """Return a method's word as this class lays it out."""
        found = self._words.get(word)
        if found is None:
            found = self._words[word] = word.at(self._layout)
        return found

    def has(self, word: type[Word]) -> bool:
        """Tell whether the class has a method."""
        return (word.BASE or word) in self._places

    def place(self, word: type[Word], index: int = 0) -> int:
        """Return a method's byte offset. `index`: which one of an array of methods."""
        base = word.BASE or word
        try:
            place = self._places[base]
        except KeyError:
            raise ValueError(f"class {self.class_id:#x} has no method {base.__name__}") from None
        first, stride, count = place if isinstance(place, tuple) else (place, 0, 1)
        if not 0 <= index < (count or METHOD_END):
            raise ValueError(f"class {self.class_id:#x} has {count} methods {base.__name__}, not {index + 1}")
        return first + index * stride

    def run(self, *words: Word) -> list[int]:
        """Return methods with their values, in order. Methods that follow one another share a header; a value of 13
        bits that stands alone goes into the header.
        """
        out: list[int] = []
        first, values = -4, [0]
        for word in words:
            place = self.place(type(word))
            if place != first + 4 * len(values) or len(values) == MAX_COUNT:
                out += self._one_run(first, values)
                first, values = place, []
            values.append(int(word))
        return out + self._one_run(first, values)

    def _one_run(self, method: int, values: list[int]) -> list[int]:
        if method < 0:
            return []
        if len(values) == 1 and not values[0] >> IMMEDIATE_BITS:
            return immediate(self.subchannel, method, values[0])
        return incrementing(self.subchannel, method, values)

    def data(self, word: type[Word], values: Sequence[int]) -> list[int]:
        """Give all values to one method."""
        return non_incrementing(self.subchannel, self.place(word), values)

    def set_object(self, engine: int = 0) -> list[int]:
        """Bind the class to the subchannel, at the channel's start. `engine`: as the kernel driver names it, else 0."""
        return incrementing(self.subchannel, SET_OBJECT, [int(host.SET_OBJECT(nvclass=self.class_id, engine=engine))])
