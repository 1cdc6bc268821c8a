"""Decoder of NVIDIA's queues: GPFIFO entries, the pushbuffer segments that they name, and launch descriptors.

It takes the stream of any client. A pushbuffer is a sequence of runs: a header, then the data of the methods that it
writes. Which class takes them depends on the subchannel; SET_OBJECT in the stream says so, before it the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ringup.autogen.nv import methods_host as host
from ringup.queues.decode import Fetch, Packet, Stream, Walk, dwords_of, leftover
from ringup.queues.nv.decode_classes import (
    HOST_END_BYTES,
    METHODS_END_BYTES,
    NAMED_AS,
    Classes,
    MethodRow,
    class_name,
    classes_of,
    methods_of,
)
from ringup.queues.nv.decode_launch import LAUNCH_METHODS, Launches
from ringup.queues.nv.decode_packet import Method, NvPacket
from ringup.queues.nv.decode_qmd import decode_descriptors

# last byte of a class id: the engines whose methods upload inline data or send descriptors
COMPUTE = 0xC0
UPLOADERS = (COMPUTE, 0x97, 0x40)
# methods on which later packets depend
REMEMBERED = frozenset(("SET_OBJECT", *LAUNCH_METHODS))
OPCODE_NAMES = {
    value: name.removeprefix("GP_ENTRY1_OPCODE_")
    for name, value in vars(host).items()
    if name.startswith("GP_ENTRY1_OPCODE_")
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of header: its name, how the address moves, and the bits that have no meaning in it.

    `steps`: "every" data word moves the address, "once" (the first one alone), or "none". `old` headers have their
    count and address at other bits.
    """

    name: str
    steps: str = ""
    old: bool = False
    reserved: int = 0


# clc56f.h, "dma method formats". By DMA_SEC_OP, or by DMA_SEC_OP and DMA_TERT_OP.
KINDS: dict[int | tuple[int, int], Kind] = {
    host.DMA_SEC_OP_INC_METHOD: Kind("INC_METHOD", "every", reserved=1 << 12),
    host.DMA_SEC_OP_NON_INC_METHOD: Kind("NON_INC_METHOD", "none", reserved=1 << 12),
    host.DMA_SEC_OP_IMMD_DATA_METHOD: Kind("IMMD_DATA_METHOD", reserved=1 << 12),
    host.DMA_SEC_OP_ONE_INC: Kind("ONE_INC", "once", reserved=1 << 12),
    host.DMA_SEC_OP_END_PB_SEGMENT: Kind("END_PB_SEGMENT", reserved=0x1FFF_FFFF),
    (host.DMA_SEC_OP_GRP0_USE_TERT, host.DMA_TERT_OP_GRP0_INC_METHOD): Kind(
        "GRP0_INC_METHOD", "every", old=True, reserved=3
    ),
    (host.DMA_SEC_OP_GRP0_USE_TERT, host.DMA_TERT_OP_GRP0_SET_SUB_DEV_MASK): Kind(
        "SET_SUB_DEV_MASK", reserved=0x1FFC_000F
    ),
    (host.DMA_SEC_OP_GRP0_USE_TERT, host.DMA_TERT_OP_GRP0_STORE_SUB_DEV_MASK): Kind(
        "STORE_SUB_DEV_MASK", reserved=0x1FFC_000F
    ),
    (host.DMA_SEC_OP_GRP0_USE_TERT, host.DMA_TERT_OP_GRP0_USE_SUB_DEV_MASK): Kind(
        "USE_SUB_DEV_MASK", reserved=0x1FFC_FFFF
    ),
    (host.DMA_SEC_OP_GRP2_USE_TERT, host.DMA_TERT_OP_GRP2_NON_INC_METHOD): Kind(
        "GRP2_NON_INC_METHOD", "none", old=True, reserved=3
    ),
}
MASKS = ("SET_SUB_DEV_MASK", "STORE_SUB_DEV_MASK")


@dataclass(slots=True)
class Run:
    """What is left of a run: where its next data word goes."""

    kind: Kind
    subchannel: int
    address_bytes: int
    count: int
    steps: str


class NvDecoder:
    """Decodes the streams of one chip's channels.

    `classes` says what stands on a subchannel before the stream binds a class to it; the default suits libcuda and NVK.
    `fetch(gpu_va, size_bytes)` returns the bytes of a pushbuffer segment or of a launch descriptor; without it they are
    not followed.
    """

    def __init__(self, chip: str, classes: Mapping[int, int] | None = None, fetch: Fetch | None = None) -> None:
        """Raise `NotSupported` for a chip without a row."""
        self.chip, self.fetch = classes_of(chip), fetch
        self.name = chip
        self.subchannels = self.chip.by_subchannel() | dict(classes or {})

    def decode(self, data: Stream) -> list[Packet]:
        """Return the packets of a pushbuffer, given as bytes or dwords; every dword belongs to one of them."""
        return Walk(self._channel().packet, None).packets(data)

    def decode_gpfifo(self, data: Stream) -> list[Packet]:
        """Return the entries of a GPFIFO. The packets of a segment that was fetched are in its entry's `inner`."""
        channel = self._channel()
        walk = Walk(channel.packet, self.fetch)
        return list(channel.entries(data, walk))

    def decode_descriptors(self, data: Stream) -> list[Packet]:
        """Return launch descriptors that stand one after the other."""
        dwords, rest = dwords_of(data)
        return [*decode_descriptors(dwords, self.chip.compute), *leftover(len(dwords), rest)]

    def _channel(self) -> _Channel:
        return _Channel(self.name, self.chip, dict(self.subchannels), self.fetch)


class _Channel:
    """The state of one channel while its stream is decoded: bound classes, a run that goes on in the next segment."""

    def __init__(self, name: str, chip: Classes, subchannels: dict[int, int], fetch: Fetch | None) -> None:
        self._name, self._chip, self._bound = name, chip, subchannels
        self._launches = Launches(fetch)
        self._run: Run | None = None
        self._base = 0

    # --- a GPFIFO

    def entries(self, data: Stream, walk: Walk) -> Iterator[Packet]:
        """Yield the entries of a GPFIFO, with the segments that they name. Entries of zeros follow as one."""
        dwords, rest = dwords_of(data)
        at, whole = 0, len(dwords) // 2 * 2
        while at < whole:
            zeros = at
            while zeros < whole and not dwords[zeros] | dwords[zeros + 1]:
                zeros += 2
            if zeros > at:
                note = f"{(zeros - at) // 2} entries of zeros: no operation"
                yield NvPacket(at, "GP_ENTRY", {}, dwords[at:zeros], note)
                at = zeros
                continue
            yield self._entry(at, dwords[at], dwords[at + 1], walk)
            at += 2
        if whole < len(dwords):
            yield NvPacket(whole, "GP_ENTRY", {}, dwords[whole:], "half an entry")
        yield from leftover(len(dwords), rest)

    def _entry(self, at: int, low: int, high: int, walk: Walk) -> Packet:
        """Return one entry: a segment's address and length, or with length 0 an operation. Source: clc56f.h."""
        first, second = host.GP_ENTRY0(low), host.GP_ENTRY1(high)
        notes: list[str] = []
        inner: tuple[Packet, ...] = ()
        if second.length == 0:
            opcode = second.opcode
            fields = {"opcode": opcode, "operand": first.operand, "sync": second.sync}
            names = {"opcode": OPCODE_NAMES[opcode]} if opcode in OPCODE_NAMES else {}
            if opcode == host.GP_ENTRY1_OPCODE_SET_PB_SEGMENT_EXTENDED_BASE:
                notes += self._set_base(low)
            elif opcode == host.GP_ENTRY1_OPCODE_ILLEGAL or not names:
                notes.append("an illegal opcode")
        else:
            gpu_va = self._base | second.get_hi << 32 | first.get << 2
            fields = {
                "gpu_va": gpu_va,
                "length": second.length,
                "level": second.level,
                "sync": second.sync,
                "fetch": first.fetch,
            }
            names = {"level": "SUBROUTINE"} if second.level else {}
            if second.sync:
                names["sync"] = "WAIT"
            if first.fetch:
                names["fetch"] = "CONDITIONAL"
            inner, note = walk.called(gpu_va, second.length)
            notes += [note] if note else []
            if not inner:
                # what the segment holds is not known, so neither is the rest of a run that began before it
                self._run = None
        if (low & 2 and second.length) or high & 1 << 8:
            notes.append("reserved bits are set")
        return NvPacket(at, "GP_ENTRY", fields, (low, high), "; ".join(notes), inner=inner, names=names)

    def _set_base(self, low: int) -> list[str]:
        operand = host.GP_ENTRY0.at(self._chip.host).FIELDS.get("pb_extended_base_operand")
        if operand is None:
            return [f"an illegal opcode on {self._name}"]
        # clc86f.h: bits 56:40 of the addresses in the entries that follow
        self._base = (low & operand.mask) >> operand.lo << 40
        return []

    # --- a pushbuffer

    def packet(self, dwords: tuple[int, ...], at: int, walk: Walk) -> Packet:
        """Return the packet that begins at dword `at`: a header with its data, or the rest of the run before."""
        if self._run is not None:
            return self._data(self._run, dwords, at, at, {}, ["goes on from the segment before"])
        head = dwords[at]
        if head == host.DMA_NOP:
            end = at + 1
            while end < len(dwords) and dwords[end] == host.DMA_NOP:
                end += 1
            return NvPacket(at, "NOP", {"count": end - at}, dwords[at:end])
        word = host.DMA(head)
        kind = KINDS.get(word.sec_op) or KINDS.get((word.sec_op, word.tert_op))
        if kind is None:
            return NvPacket(at, "ILLEGAL", {"sec_op": word.sec_op, "tert_op": word.tert_op}, (head,), "no such header")
        notes = [f"reserved header bits {head & kind.reserved:#x}"] if head & kind.reserved else []
        if kind.name == "IMMD_DATA_METHOD":
            return self._immediate(word, kind, at, notes)
        if not kind.steps:
            fields = {"subdevice_mask": word.subdevice_mask} if kind.name in MASKS else {}
            if kind.name == "END_PB_SEGMENT":
                notes.append("the rest of the segment is not run")
            return NvPacket(at, kind.name, fields, (head,), "; ".join(notes))
        if kind.old:
            address, count = word.method_address_old * 4, word.method_count_old
        else:
            address, count = word.method_address * 4, word.method_count
        run = Run(kind, word.method_subchannel, address, count, kind.steps)
        fields = {"subchannel": run.subchannel, "address": address, "count": count}
        return self._data(run, dwords, at, at + 1, fields, notes)

    def _immediate(self, word: host.DMA, kind: Kind, at: int, notes: list[str]) -> Packet:
        """Return the packet of a header that carries its one data word itself."""
        subchannel, address = word.method_subchannel, word.method_address * 4
        fields = {"subchannel": subchannel, "address": address, "data": word.immd_data}
        methods, inner = self._methods(Run(kind, subchannel, address, 1, "none"), (word.immd_data,))
        notes += _summary(methods)
        target = self._target(subchannel, address)
        return NvPacket(at, kind.name, fields, (int(word),), "; ".join(notes), (), inner, target, methods)

    def _data(
        self, run: Run, dwords: tuple[int, ...], at: int, start: int, fields: dict[str, int], notes: list[str]
    ) -> Packet:
        """Return the packet of a run, or of the rest of one; its data begin at dword `start`."""
        values = dwords[start : start + run.count]
        said, first = run.count, run.address_bytes
        methods, inner = self._methods(run, values)
        target = self._target(run.subchannel, first)
        if len(values) < said:
            notes.append(f"truncated: {len(values)} of {said} data words are in this segment")
            self._run = run
        else:
            self._run = None
        notes += _summary(methods)
        raw = dwords[at : start + len(values)]
        return NvPacket(at, run.kind.name, fields, raw, "; ".join(notes), (), inner, target, methods)

    def _target(self, subchannel: int, address: int) -> str:
        """Return who takes a run that begins at a method; SET_OBJECT (0) is the host's, but about the bound class."""
        bound = self._chip.host if 0 < address < HOST_END_BYTES else self._bound.get(subchannel)
        return f"{subchannel} {class_name(bound)}" if bound is not None else f"{subchannel}"

    def _methods(self, run: Run, values: tuple[int, ...]) -> tuple[tuple[Method, ...], tuple[Packet, ...]]:
        """Return the methods that data words of a run write, and the descriptors that they send. Moves the run on."""
        methods: list[Method] = []
        inner: list[Packet] = []
        at = 0
        while at < len(values):
            address = run.address_bytes
            row = self._row(run.subchannel, address)
            count = self._together(run, row, len(values) - at)
            part = values[at : at + count]
            at += count
            self._move(run, count)
            elements = count if run.steps == "every" else 1
            method = self._method(run.subchannel, address, row, part, elements)
            if row is not None and row.name in REMEMBERED:
                packet, note = self._effects(run.subchannel, row, address, part)
                if packet is not None:
                    inner.append(packet)
                if note:
                    both = "; ".join(filter(None, (method.note, note)))
                    method = Method(address, method.name, part, method.fields, method.names, both)
            methods.append(method)
        return tuple(methods), tuple(inner)

    def _row(self, subchannel: int, address: int) -> MethodRow | None:
        bound = self._chip.host if address < HOST_END_BYTES else self._bound.get(subchannel)
        table = None if bound is None else methods_of(bound)
        return None if table is None else table.get(address)

    def _together(self, run: Run, row: MethodRow | None, left: int) -> int:
        """Return how many data words of a run are shown as one method: data, or what no table knows."""
        if row is not None and not row.plain:
            return 1
        if run.steps == "none":
            return left
        if run.steps == "once":
            return 1
        count = 1
        if row is None:
            # as far as the next known method, or where another note is due
            while count < left:
                next_one = run.address_bytes + 4 * count
                if next_one in (HOST_END_BYTES, METHODS_END_BYTES) or self._row(run.subchannel, next_one) is not None:
                    break
                count += 1
        elif row.index is not None:
            while count < left:
                after = self._row(run.subchannel, run.address_bytes + 4 * count)
                if after is None or after.name != row.name or after.index != row.index + count:
                    break
                count += 1
        return count

    @staticmethod
    def _move(run: Run, count: int) -> None:
        run.count -= count
        if run.steps == "every":
            run.address_bytes += 4 * count
        elif run.steps == "once":
            run.address_bytes += 4
            run.steps = "none"

    def _method(
        self, subchannel: int, address: int, row: MethodRow | None, part: tuple[int, ...], elements: int
    ) -> Method:
        """Return what data words do to one method, or to so many elements of an array of methods."""
        if row is None:
            return Method(address, f"UNKNOWN_{address:#06x}", part, note=self._unknown(subchannel, address))
        name = row.name
        if row.index is not None:
            name += f"[{row.index}..{row.index + elements - 1}]" if elements > 1 else f"[{row.index}]"
        if row.plain:
            return Method(address, name, part)
        fields, names = row.fields(part[0])
        note = f"reserved bits {fields['reserved']:#x}" if "reserved" in fields else ""
        if row.name == "SET_OBJECT":
            names, note = names | {"nvclass": class_name(fields["nvclass"])}, note or self._bind_note(fields["nvclass"])
        return Method(address, name, part, fields, names, note)

    def _unknown(self, subchannel: int, address: int) -> str:
        if address >= METHODS_END_BYTES:
            return f"past the last method {METHODS_END_BYTES - 4:#06x}"
        if address < HOST_END_BYTES:
            return f"no method of {class_name(self._chip.host)}"
        bound = self._bound.get(subchannel)
        if bound is None:
            return f"no class is bound to subchannel {subchannel}"
        known = methods_of(bound) is not None
        return f"no method of {class_name(bound)}" if known else f"no table of methods for class {class_name(bound)}"

    def _bind_note(self, class_id: int) -> str:
        """Return what is special about a class that SET_OBJECT binds."""
        own = self._chip.own(class_id)
        if methods_of(class_id) is None:
            return f"no table of methods for class {class_id:#06x}"
        if own != class_id and own is not None:
            return f"{self._name} has class {class_name(own)} instead"
        return f"its methods are named as in {class_name(NAMED_AS[class_id])}" if class_id in NAMED_AS else ""

    def _effects(
        self, subchannel: int, row: MethodRow, address: int, part: tuple[int, ...]
    ) -> tuple[Packet | None, str]:
        """Take over what later packets depend on."""
        if row.name == "SET_OBJECT" and address == 0:
            self._bound[subchannel] = host.SET_OBJECT(part[-1]).nvclass
            return None, ""
        bound = self._bound.get(subchannel, 0)
        if address < HOST_END_BYTES or bound & 0xFF not in UPLOADERS:
            return None, ""
        compute = bound if bound & 0xFF == COMPUTE else None
        return self._launches.write(subchannel, compute, row, part)


def _summary(methods: tuple[Method, ...]) -> list[str]:
    """Return the note of a packet about its methods that no table knows."""
    unknown = sum(len(method.values) for method in methods if method.name.startswith("UNKNOWN_"))
    return [f"{unknown} unknown methods"] if unknown else []


def decode_nv(
    data: Stream, chip: str, classes: Mapping[int, int] | None = None, fetch: Fetch | None = None
) -> list[Packet]:
    """Decode one pushbuffer of a chip's channel."""
    return NvDecoder(chip, classes, fetch).decode(data)
