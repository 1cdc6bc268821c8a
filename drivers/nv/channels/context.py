"""Contexts of the graphics engine: the buffers in which it keeps a channel's state, and those that channels share.

The card needs a picture of a fresh context ("golden"): GSP-RM makes it when the first object of the 3D class is made on
a channel that has all buffers. Channels are made of it afterwards. Source: Linux nouveau gr/r535.c, r535_gr_oneinit and
r535_gr_promote_ctx; OGKM kernel_graphics.c, kgraphicsCreateGoldenImageChannel; ctrl2080gpu.h,
NV2080_CTRL_CMD_GPU_PROMOTE_CTX.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_ctrl_0080 as properties
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.drivers.memory.vram import PAGE_BYTES
from ringup.drivers.nv.channels.objects import CardObjects
from ringup.drivers.nv.memory.space import PrivateMemory, Space
from ringup.drivers.nv.rm.facts import ENGINE_GRAPHICS
from ringup.errors import DeviceHung

# by compute class: the 3D class of the same generation. Source: OGKM g_gpu_class_list.c
GRAPHICS_CLASSES = {
    nv.TURING_COMPUTE_A: nv.TURING_A,
    nv.AMPERE_COMPUTE_A: nv.AMPERE_A,
    nv.AMPERE_COMPUTE_B: nv.AMPERE_B,
    nv.ADA_COMPUTE_A: nv.ADA_A,
    nv.HOPPER_COMPUTE_A: nv.HOPPER_A,
    nv.BLACKWELL_COMPUTE_A: nv.BLACKWELL_A,
    nv.BLACKWELL_COMPUTE_B: nv.BLACKWELL_B,
}
# headers of the subcontexts behind the main buffer. Source: r535_gr_oneinit
SUBCONTEXTS_BYTES = 64 * PAGE_BYTES
# physAttr of an entry: memory of the card. Source: r535_gr_promote_ctx
IN_VRAM = 4
# a limit of ours for one buffer
MAX_BUFFER_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of buffer: its number among the engine's properties, its number in a promotion, whether channels share
    it, whether it is initialized (and zeroed before), whether the engine only reads it, whether it has an address.
    """

    property: int
    number: int
    shared: bool
    initialized: bool
    read_only: bool = False
    mapped_in_golden: bool = True
    golden_only: bool = False


def _kind(
    what: str,
    number: int,
    *,
    shared: bool,
    initialized: bool,
    read_only: bool = False,
    mapped_in_golden: bool = True,
    golden_only: bool = False,
) -> Kind:
    found: int = getattr(properties, f"NV0080_CTRL_FIFO_GET_ENGINE_CONTEXT_PROPERTIES_ENGINE_ID_{what}")
    return Kind(found, number, shared, initialized, read_only, mapped_in_golden, golden_only)


MAIN = gpu.NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_MAIN
ATTRIBUTES = gpu.NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_ATTRIBUTE_CB
KINDS = (
    _kind("GRAPHICS", MAIN, shared=False, initialized=True),
    _kind("GRAPHICS_PATCH", gpu.NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_PATCH, shared=False, initialized=True),
    _kind(
        "GRAPHICS_BUNDLE_CB",
        gpu.NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_BUFFER_BUNDLE_CB,
        shared=True,
        initialized=False,
    ),
    _kind("GRAPHICS_PAGEPOOL", gpu.NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_PAGEPOOL, shared=True, initialized=False),
    _kind("GRAPHICS_ATTRIBUTE_CB", ATTRIBUTES, shared=True, initialized=False),
    _kind(
        "GRAPHICS_RTV_CB_GLOBAL",
        gpu.NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_RTV_CB_GLOBAL,
        shared=True,
        initialized=False,
    ),
    _kind("GRAPHICS_FECS_EVENT", gpu.NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_FECS_EVENT, shared=True, initialized=True),
    _kind(
        "GRAPHICS_PRIV_ACCESS_MAP",
        gpu.NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_PRIV_ACCESS_MAP,
        shared=True,
        initialized=True,
        read_only=True,
        mapped_in_golden=False,
    ),
    _kind(
        "GRAPHICS_PRIV_ACCESS_MAP",
        gpu.NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_UNRESTRICTED_PRIV_ACCESS_MAP,
        shared=True,
        initialized=True,
        read_only=True,
        golden_only=True,
    ),
)


@dataclass(slots=True)
class ContextBuffer:
    """A kind with its size on this card, and the memory that channels share."""

    kind: Kind
    size_bytes: int
    align: int
    shared: PrivateMemory | None = None


class GraphicsContexts:
    """The contexts of one card's graphics engine."""

    def __init__(self, objects: CardObjects, space: Space) -> None:
        self._objects, self._space = objects, space
        self._buffers: list[ContextBuffer] = []

    @property
    def ready(self) -> bool:
        """Whether the card has the picture of a fresh context."""
        return bool(self._buffers)

    @property
    def graphics_class(self) -> int:
        """The 3D class of the card."""
        return GRAPHICS_CLASSES[self._objects.facts.row.compute_class]

    def make_golden(self, channel: int, own: list[PrivateMemory]) -> None:
        """Let GSP-RM make the picture of a fresh context on a channel that is not used for anything else.

        What goes into `own` is free once the channel is, also after an error.
        """
        buffers = self._sizes()
        self._promote(channel, buffers, own, golden=True)
        client = self._objects.client
        client.free(client.alloc(channel, self.graphics_class, None, "making the first context of the graphics engine"))
        kept = [one.shared for one in buffers if one.shared is not None]
        own[:] = [piece for piece in own if piece not in kept]
        self._buffers = buffers

    def enter(self, channel: int, own: list[PrivateMemory]) -> None:
        """Give a channel a context. Its memory goes into `own`, and stays mapped until the channel is freed."""
        self._promote(channel, self._buffers, own, golden=False)

    def _sizes(self) -> list[ContextBuffer]:
        objects = self._objects
        told = objects.internal.ask(
            objects.running.static.subdevice,
            internal.NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO,
            internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO_PARAMS,
            "asking for the buffers of a context",
        )
        listed = told.engineContextBuffersInfo[0].engine
        found = []
        for kind in KINDS:
            size: int = listed[kind.property].size
            if size > MAX_BUFFER_BYTES:
                raise DeviceHung(
                    f"GSP-RM asks for a context buffer of {size} bytes (kind {kind.number}); reset the card"
                )
            if kind.number == MAIN:
                size = -(-size // PAGE_BYTES) * PAGE_BYTES + SUBCONTEXTS_BYTES
            if not size:
                continue
            align = PAGE_BYTES if kind.number != ATTRIBUTES else 1 << (size - 1).bit_length()
            found.append(ContextBuffer(kind, size, max(align, PAGE_BYTES)))
        return found

    def _promote(self, channel: int, buffers: list[ContextBuffer], own: list[PrivateMemory], *, golden: bool) -> None:
        """Tell GSP-RM of a channel's buffers; what is allocated for it goes into `own`."""
        client = self._objects.client
        params = client.make(
            gpu.NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS,
            engineType=ENGINE_GRAPHICS,
            hChanClient=client.root,
            hObject=channel,
        )
        for one in buffers:
            kind = one.kind
            if kind.golden_only and not golden:
                continue
            entry = params.promoteEntry[params.entryCount]
            entry.bufferId = kind.number
            if golden or not kind.shared:
                piece = self._alloc(one, mapped=not golden or kind.mapped_in_golden)
                own.append(piece)
                if kind.shared:
                    one.shared = piece
                if kind.initialized:
                    entry.bInitialize, entry.physAttr = 1, IN_VRAM
                    entry.gpuPhysAddr, entry.size = piece.vram_pa, one.size_bytes
            else:
                piece = self._shared(one)
            entry.gpuVirtAddr, entry.bNonmapped = piece.gpu_va, int(not piece.gpu_va)
            params.entryCount += 1
        client.control(
            self._objects.subdevice, gpu.NV2080_CTRL_CMD_GPU_PROMOTE_CTX, params, "giving a channel its context"
        )

    def _shared(self, one: ContextBuffer) -> PrivateMemory:
        """Return a buffer that channels share, with an address."""
        piece = one.shared
        if piece is None:
            raise ValueError("a context is made of the first one, and there is none yet")
        if not piece.gpu_va:
            gpu_va = self._space.map_private(
                piece.vram_pa, piece.size_bytes, "context buffers", align=one.align, read_only=one.kind.read_only
            )
            piece = one.shared = PrivateMemory(piece.vram_pa, gpu_va, piece.size_bytes)
        return piece

    def _alloc(self, one: ContextBuffer, *, mapped: bool) -> PrivateMemory:
        kind, space = one.kind, self._space
        if not mapped:
            return PrivateMemory(space.alloc_vram(one.size_bytes, "context buffers"), 0, _whole(one.size_bytes))
        return space.alloc_private(
            one.size_bytes, "context buffers", align=one.align, read_only=kind.read_only, zeroed=kind.initialized
        )


def _whole(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
