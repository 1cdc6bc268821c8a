"""Finds the launch descriptors that a pushbuffer sends: inline in methods, uploaded by it before, or in memory."""

from __future__ import annotations

from collections import OrderedDict

from ringup.errors import RingupError
from ringup.queues.decode import MAX_DWORDS, Fetch, dwords_of
from ringup.queues.nv.decode_classes import MethodRow
from ringup.queues.nv.decode_packet import NvPacket
from ringup.queues.nv.decode_qmd import ADDRESS_SHIFT, decode_descriptor, most_dwords

# how many uploads are remembered, and the longest of them: libcuda uploads two descriptors of 384 bytes for one launch
MAX_UPLOADS = 64
MAX_UPLOAD_DWORDS = 1 << 14
# clcbc0.h, SET_INLINE_QMD_ADDRESS_A_INLINE_SIZE: 256 or 384 bytes; classes without that field have 256
SHORT_DWORDS, LONG_DWORDS = 64, 96
# what `Launches.write` takes; of other methods it has no use
LAUNCH_METHODS = (
    "LOAD_INLINE_DATA",
    "OFFSET_OUT_UPPER",
    "OFFSET_OUT",
    "LAUNCH_DMA",
    "LOAD_INLINE_QMD_DATA",
    "SET_INLINE_QMD_ADDRESS_A",
    "SEND_PCAS_A",
)
NOT_SHOWN = "descriptor not shown: the limit of what is read is reached"


class Launches:
    """What the compute and inline-upload methods of one stream have written so far, as far as launches need it."""

    def __init__(self, fetch: Fetch | None) -> None:
        self._fetch, self._left = fetch, MAX_DWORDS
        self._inline: dict[int, int] = {}
        self._inline_dwords = SHORT_DWORDS
        self._registers: dict[tuple[int, str], int] = {}
        self._uploads: OrderedDict[int, list[int]] = OrderedDict()
        self._open: dict[int, list[int]] = {}

    def write(
        self, subchannel: int, compute_class: int | None, row: MethodRow, values: tuple[int, ...]
    ) -> tuple[NvPacket | None, str]:
        """Take one method, or data words of several; return the descriptor that it sends, and a note.

        `compute_class` is None on the other engines that take inline data: 2D, 3D and the inline engine.
        """
        name = row.name
        if name == "LOAD_INLINE_DATA":
            self._load(subchannel, values)
        elif name in ("OFFSET_OUT_UPPER", "OFFSET_OUT"):
            self._registers[subchannel, name] = values[-1]
        elif name == "LAUNCH_DMA":
            self._launch_dma(subchannel)
        elif compute_class is None:
            return None, ""
        elif name == "LOAD_INLINE_QMD_DATA":
            return self._load_descriptor(compute_class, row.index or 0, values)
        elif name == "SET_INLINE_QMD_ADDRESS_A":
            self._inline.clear()
            long = row.fields(values[-1])[0].get("inline_size")
            self._inline_dwords = LONG_DWORDS if long else SHORT_DWORDS
        elif name == "SEND_PCAS_A":
            return self._send(compute_class, values[-1] << ADDRESS_SHIFT)
        return None, ""

    def _launch_dma(self, subchannel: int) -> None:
        upper, lower = (self._registers.get((subchannel, name), 0) for name in ("OFFSET_OUT_UPPER", "OFFSET_OUT"))
        data: list[int] = []
        self._open[subchannel] = self._uploads[upper << 32 | lower] = data
        self._uploads.move_to_end(upper << 32 | lower)
        if len(self._uploads) > MAX_UPLOADS:
            self._uploads.popitem(last=False)

    def _load(self, subchannel: int, values: tuple[int, ...]) -> None:
        data = self._open.get(subchannel)
        if data is not None:
            data.extend(values[: MAX_UPLOAD_DWORDS - len(data)])

    def _load_descriptor(self, compute_class: int, index: int, values: tuple[int, ...]) -> tuple[NvPacket | None, str]:
        """Take a part of an inline descriptor; its last dword starts the launch."""
        self._inline.update(enumerate(values, index))
        if index + len(values) < self._inline_dwords:
            return None, ""
        missing = self._inline_dwords - len(self._inline)
        dwords = tuple(self._inline.get(i, 0) for i in range(self._inline_dwords))
        self._inline.clear()
        packet, note = self._shown(dwords, compute_class)
        return packet, f"{missing} dwords of the descriptor were not loaded" if missing > 0 else note

    def _send(self, compute_class: int, gpu_va: int) -> tuple[NvPacket | None, str]:
        """Find the descriptor at an address: in what the stream uploaded, else in memory."""
        size = most_dwords(compute_class)
        for start, data in reversed(self._uploads.items()):
            if start <= gpu_va < start + len(data) * 4:
                skip = (gpu_va - start) // 4
                return self._shown(tuple(data[skip : skip + size]), compute_class)
        if self._fetch is None:
            return None, ""
        if self._left < size:
            return None, NOT_SHOWN
        try:
            dwords, _ = dwords_of(self._fetch(gpu_va, size * 4))
        # the errors that a fetch function raises for memory that it cannot read
        except (RingupError, LookupError, OSError, ValueError) as error:
            return None, f"descriptor not shown: {error}"
        return self._shown(dwords[:size], compute_class)

    def _shown(self, dwords: tuple[int, ...], compute_class: int) -> tuple[NvPacket | None, str]:
        if self._left < len(dwords):
            return None, NOT_SHOWN
        self._left -= len(dwords)
        return decode_descriptor(dwords, compute_class), ""
