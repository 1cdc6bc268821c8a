"""The layout of PM4 packets: which dword holds which word or operand. Headers, templates and decoders use it.

Source: nvd.h, soc15d.h and PAL's f32_mec_pm4_packets headers for the order of dwords; words come from the facts with
their own sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from ringup.autogen.amd import gc_compute, pm4, pm4_queues
from ringup.autogen.layout import Word
from ringup.errors import NotSupported
from ringup.queues.amd.packets import Hole, Template, Version, numbered
from ringup.queues.dwords import to_bytes

# dwords after a header. Its count field holds one less; all ones means none
MAX_BODY = 0x3FFF
HEADER = pm4.HEADER
TYPE_0, TYPE_2, TYPE_3 = 0, 2, 3
_ONE_MORE = int(HEADER(count=1))
_COMPUTE = int(HEADER(shader_type=1))
_LONE = int(HEADER(type=TYPE_3, count=MAX_BODY))
_BASES = [int(HEADER(type=TYPE_3, opcode=opcode)) for opcode in range(256)]


def header(opcode: int, count_dwords: int, compute: bool = False) -> int:
    """Return the header of a packet with `count_dwords` dwords after it. Without any, its count is all ones, as in a
    NOP of one dword.
    """
    if not 0 <= count_dwords <= MAX_BODY:
        raise ValueError(f"a packet has at most {MAX_BODY} dwords after its header, not {count_dwords}")
    base = _BASES[opcode] + (_ONE_MORE * (count_dwords - 1) if count_dwords else _LONE - _BASES[0])
    return base + _COMPUTE if compute else base


class Part(NamedTuple):
    """An operand. `at`: its first dword; the header is 0. `size`: its dwords; 0 means all dwords to the packet's end,
    each an operand with an index in its name.

    `word`: the dword's fields. `align`: the value must be a multiple of it. `register`: the value is the dword address
    of a register.
    """

    name: str
    at: int
    size: int = 1
    word: type[Word] | None = None
    align: int = 1
    register: bool = False


class Either(NamedTuple):
    """Operands whose meaning depends on a field of a word: `parts` if the field has one of `values`, else
    `otherwise`.
    """

    word: type[Word]
    field: str
    values: tuple[int, ...]
    parts: tuple[Part, ...]
    otherwise: tuple[Part, ...]


def _word(word: type[Word], at: int = 0) -> Part:
    """Return a dword of fields. Without `at`, the facts say which dword it is."""
    return Part(word.__name__, at, word=word)


def _address(name: str, at: int, align: int = 4) -> Part:
    return Part(name, at, 2, align=align)


def _operands(first: int, *names: str) -> tuple[Part, ...]:
    return tuple(Part(name, at) for at, name in enumerate(names, first))


def _register(name: str, at: int) -> Part:
    return Part(name, at, register=True)


# of the SET_*_REG packets
REGISTERS = Part("registers", 2, 0)
# selectors of COPY_DATA and WRITE_DATA that mean memory
ADDRESSED = (1, 2, 5)
# the dwords of each packet, by the packet's name. A version has only the words whose place its facts give
PACKETS: Mapping[str, tuple[Part | Either, ...]] = {
    "NOP": (Part("data", 1, 0),),
    "SET_BASE": _operands(1, "base_index", "address_lo", "address_hi"),
    "CLEAR_STATE": _operands(1, "cmd"),
    "CONTEXT_CONTROL": _operands(1, "load_control", "shadow_enable"),
    "PREAMBLE_CNTL": _operands(1, "command"),
    "SET_SH_REG": (_word(pm4.SET_SH_REG_CONTROL), REGISTERS),
    "SET_SH_REG_INDEX": (_word(pm4.SET_SH_REG_CONTROL, 1), REGISTERS),
    "SET_UCONFIG_REG": (_word(pm4.SET_UCONFIG_REG_CONTROL), REGISTERS),
    "SET_UCONFIG_REG_INDEX": (_word(pm4.SET_UCONFIG_REG_CONTROL, 1), REGISTERS),
    "SET_CONFIG_REG": (_word(pm4.SET_CONFIG_REG_CONTROL), REGISTERS),
    "SET_CONTEXT_REG": (_word(pm4.SET_CONFIG_REG_CONTROL, 1), REGISTERS),
    "DISPATCH_DIRECT": (*_operands(1, "dim_x", "dim_y", "dim_z"), _word(pm4.DISPATCH_DIRECT_INITIATOR)),
    "DISPATCH_INDIRECT": (_address("addr", 1), _word(pm4.DISPATCH_DIRECT_INITIATOR, 3)),
    "ACQUIRE_MEM": (
        _word(pm4.ACQUIRE_MEM_COHER_CNTL),
        _word(pm4.ACQUIRE_MEM_PWS_2),
        Part("coher_size", 2),
        _word(pm4.ACQUIRE_MEM_COHER_SIZE_HI),
        Part("coher_base_lo", 4),
        _word(pm4.ACQUIRE_MEM_COHER_BASE_HI),
        _word(pm4.ACQUIRE_MEM_POLL_INTERVAL),
        _word(pm4.ACQUIRE_MEM_GCR_CNTL),
    ),
    "RELEASE_MEM": (
        _word(pm4.RELEASE_MEM_OP),
        _word(pm4.RELEASE_MEM_DATA),
        _address("address", 3),
        Part("data", 5, 2),
        Part("int_ctxid", 7),
    ),
    "EVENT_WRITE": (_word(pm4.EVENT_WRITE_CONTROL),),
    "WRITE_DATA": (
        _word(pm4.WRITE_DATA_CONTROL),
        Either(
            pm4.WRITE_DATA_CONTROL,
            "dst_sel",
            ADDRESSED,
            (_address("dst_addr", 2),),
            (_register("dst_register", 2), Part("dst_hi", 3)),
        ),
        Part("data", 4, 0),
    ),
    "WAIT_REG_MEM": (
        _word(pm4.WAIT_REG_MEM_CONTROL),
        Either(
            pm4.WAIT_REG_MEM_CONTROL,
            "mem_space",
            (0,),
            (_register("poll_register", 2), _register("second_register", 3)),
            (_address("poll_addr", 2),),
        ),
        *_operands(4, "reference", "mask"),
        _word(pm4.WAIT_REG_MEM_POLL),
    ),
    "WAIT_REG_MEM64": (
        _word(pm4.WAIT_REG_MEM_CONTROL, 1),
        Either(
            pm4.WAIT_REG_MEM_CONTROL,
            "mem_space",
            (0,),
            (_register("poll_register", 2), _register("second_register", 3)),
            (_address("poll_addr", 2, 8),),
        ),
        Part("reference", 4, 2),
        Part("mask", 6, 2),
        _word(pm4.WAIT_REG_MEM_POLL, 8),
    ),
    "COPY_DATA": (
        _word(pm4.COPY_DATA_CONTROL),
        Either(
            pm4.COPY_DATA_CONTROL,
            "src_sel",
            (0,),
            (_register("src_register", 2), Part("src_hi", 3)),
            (Part("src", 2, 2),),
        ),
        Either(
            pm4.COPY_DATA_CONTROL,
            "dst_sel",
            ADDRESSED,
            (_address("dst_addr", 4),),
            (_register("dst_register", 4), Part("dst_hi", 5)),
        ),
    ),
    "DMA_DATA": (
        _word(pm4.DMA_DATA_CONTROL),
        Either(
            pm4.DMA_DATA_CONTROL,
            "src_sel",
            (pm4.DMA_DATA_SRC_SEL_DATA,),
            _operands(2, "src_data", "src_hi"),
            (_address("src_addr", 2, 1),),
        ),
        _address("dst_addr", 4, 1),
        _word(pm4.DMA_DATA_COMMAND),
    ),
    "INDIRECT_BUFFER": (_address("ib_base", 1), _word(pm4.INDIRECT_BUFFER_CONTROL)),
    "COND_EXEC": (_address("addr", 1), _word(pm4.COND_EXEC_CONTROL), _word(pm4.COND_EXEC_COUNT)),
    "PRED_EXEC": (_word(pm4.PRED_EXEC_CONTROL),),
    "ATOMIC_MEM": (
        _word(pm4.ATOMIC_MEM_CONTROL),
        _address("addr", 2),
        Part("src_data", 4, 2),
        Part("cmp_data", 6, 2),
        _word(pm4.ATOMIC_MEM_LOOP),
    ),
    "REG_RMW": (_word(pm4.REG_RMW_CONTROL), *_operands(2, "and_mask", "or_mask")),
    "PFP_SYNC_ME": _operands(1, "dummy"),
    "FRAME_CONTROL": (_word(pm4.FRAME_CONTROL_CONTROL),),
    "INVALIDATE_TLBS": (_word(pm4.INVALIDATE_TLBS_CONTROL),),
    "SET_RESOURCES": (
        _word(pm4_queues.SET_RESOURCES_CONTROL),
        Part("queue_mask", 2, 2),
        Part("gws_mask", 4, 2),
        _word(pm4_queues.SET_RESOURCES_OAC_MASK),
        _word(pm4_queues.SET_RESOURCES_GDS),
    ),
    "MAP_QUEUES": (
        _word(pm4_queues.MAP_QUEUES_CONTROL),
        _word(pm4_queues.MAP_QUEUES_CONTROL2),
        _address("mqd_addr", 3),
        _address("wptr_addr", 5),
    ),
    "UNMAP_QUEUES": (
        _word(pm4_queues.UNMAP_QUEUES_CONTROL),
        _word(pm4_queues.UNMAP_QUEUES_CONTROL2),
        _word(pm4_queues.UNMAP_QUEUES_CONTROL3),
        _word(pm4_queues.UNMAP_QUEUES_CONTROL4),
        _word(pm4_queues.UNMAP_QUEUES_CONTROL5),
    ),
    "QUERY_STATUS": (
        _word(pm4_queues.QUERY_STATUS_CONTROL),
        _word(pm4_queues.QUERY_STATUS_CONTROL2),
        _address("addr", 3),
        Part("data", 5, 2),
    ),
    "RUN_LIST": (_address("ib_base", 1), _word(pm4_queues.RUN_LIST_CONTROL)),
}
# the dword address from which a packet's register offsets count
WINDOW_STARTS = {
    "SET_SH_REG": pm4.SET_SH_REG_START,
    "SET_SH_REG_INDEX": pm4.SET_SH_REG_START,
    "SET_UCONFIG_REG": pm4.SET_UCONFIG_REG_START,
    "SET_UCONFIG_REG_INDEX": pm4.SET_UCONFIG_REG_START,
    "SET_CONFIG_REG": pm4.SET_CONFIG_REG_START,
    "SET_CONTEXT_REG": pm4.SET_CONTEXT_REG_START,
}
# the dword addresses of the register segments, by generation. Source: the discovery tables of MI300, Navi 31, Navi 48
BASES: Mapping[int, tuple[int, int]] = {
    9: (0x2000, 0xA000),
    11: (0x1260, 0xA000),
    12: (0x1260, 0xA000),
}


class FieldAt(NamedTuple):
    """A field of a dword: `value >> lo & mask`."""

    name: str
    lo: int
    mask: int


class Place(NamedTuple):
    """A part in one version. `fields`: of its word; empty for an operand without a word. `rest`: the bits that no field
    covers.
    """

    part: Part
    fields: tuple[FieldAt, ...]
    rest: int


class Choice(NamedTuple):
    """An `Either` in one version. `at` and `field`: the dword and the field that choose."""

    at: int
    field: FieldAt
    values: tuple[int, ...]
    places: tuple[Place, ...]
    otherwise: tuple[Place, ...]


class Layout(NamedTuple):
    """A packet in one version. `body`: how many dwords its parts need after the header. `open_`: more may follow."""

    name: str
    parts: tuple[Place | Choice, ...]
    body: int
    open_: bool

    def places(self, dwords: Sequence[int], at: int, end: int) -> Iterator[Place]:
        """Yield the parts of the packet at `dwords[at]` that begin before `end`."""
        for one in self.parts:
            if isinstance(one, Place):
                chosen: tuple[Place, ...] = (one,)
            else:
                control = dwords[at + one.at] if at + one.at < end else 0
                chosen = one.places if control >> one.field.lo & one.field.mask in one.values else one.otherwise
            for place in chosen:
                if at + place.part.at < end:
                    yield place


def opcodes(version: Version) -> Mapping[int, str]:
    """Return the names of a version's packets by opcode. Raises `NotSupported` for a version without facts."""
    if version not in pm4.PLACES:
        known = ", ".join(map(str, pm4.PLACES))
        raise NotSupported(f"no packets are known for graphics core {version}; known: {known}")
    return pm4.OPCODES[version]


@cache
def layouts(version: Version) -> dict[int, Layout]:
    """Return the packets of a version whose dwords are known, by opcode. Raises as `opcodes` does."""
    names = opcodes(version)
    return {opcode: _layout(name, PACKETS[name], version) for opcode, name in names.items() if name in PACKETS}


def _layout(name: str, parts: tuple[Part | Either, ...], version: Version) -> Layout:
    found: list[Place | Choice] = []
    for part in parts:
        if isinstance(part, Either):
            found.append(_choice(part, version))
        elif part.word is None or _has(part.word, version):
            found.append(_place(part, version))
    every = [p for one in found for p in ((one,) if isinstance(one, Place) else (*one.places, *one.otherwise))]
    body = max(place.part.at + max(place.part.size, 0) - 1 for place in every)
    return Layout(name, tuple(found), body, any(place.part.size == 0 for place in every))


def _has(word: type[Word], version: Version) -> bool:
    module = pm4_queues if word.__module__ == pm4_queues.__name__ else pm4
    return word in module.PLACES[version]


def _choice(either: Either, version: Version) -> Choice:
    field = either.word.at(version).FIELDS[either.field]
    taken = FieldAt(either.field, field.lo, (1 << field.width) - 1)
    # a control word is the first dword after the header
    at = 1
    yes, no = (tuple(_place(part, version) for part in parts) for parts in (either.parts, either.otherwise))
    return Choice(at, taken, either.values, yes, no)


def _place(part: Part, version: Version) -> Place:
    if part.word is None:
        return Place(part, (), 0)
    word = part.word.at(version)
    at = part.at or part.word.place(version)[0]
    covered = 0
    for field in word.FIELDS.values():
        covered |= field.mask
    fields = tuple(FieldAt(name, field.lo, (1 << field.width) - 1) for name, field in word.FIELDS.items())
    return Place(part._replace(at=at), fields, ~covered & 0xFFFF_FFFF)


@cache
def register_names(version: Version) -> dict[int, str]:
    """Return the names of the dispatch registers by dword address."""
    bases = BASES[version[0]]
    return {
        bases[at[1]] + at[0]: word.__name__ for word, at in gc_compute.PLACES[version].items() if at[1] < len(bases)
    }


def template(dwords: Sequence[int], version: Version) -> Template:
    """Return a stream of builders' packets as bytes, with the places of its operands.

    An operand is called `DISPATCH_DIRECT.dim_x`. A register that a SET packet writes is called by its own name,
    `COMPUTE_USER_DATA_0`, or by its dword address. From the second of a name on, the name has an index:
    `WRITE_DATA.data[1]`.
    """
    known, named = layouts(version), register_names(version)
    found: list[tuple[str, Hole]] = []
    at = 0
    while at < len(dwords):
        head = HEADER(dwords[at])
        end = at + 1 + (0 if head.count == MAX_BODY and head.opcode == pm4.NOP else head.count + 1)
        layout = known.get(head.opcode)
        if head.type != TYPE_3 or layout is None or end > len(dwords):
            raise ValueError(f"dword {at} of the stream, {dwords[at]:#010x}, begins no packet whose operands are known")
        found += _holes(layout, dwords, at, end, named)
        at = end
    return Template(to_bytes(dwords), numbered(found))


def _holes(
    layout: Layout, dwords: Sequence[int], at: int, end: int, named: Mapping[int, str]
) -> Iterator[tuple[str, Hole]]:
    for place in layout.places(dwords, at, end):
        part = place.part
        if part.word is not None:
            continue
        where = (at + part.at) * 4
        if part is REGISTERS:
            first = WINDOW_STARTS[layout.name] + (dwords[at + 1] & 0xFFFF)
            for i in range(end - at - part.at):
                yield named.get(first + i, f"{first + i:#x}"), Hole(where + 4 * i)
        elif part.size == 0:
            for i in range(end - at - part.at):
                yield f"{layout.name}.{part.name}", Hole(where + 4 * i)
        else:
            yield f"{layout.name}.{part.name}", Hole(where, 4 * part.size, part.align)
