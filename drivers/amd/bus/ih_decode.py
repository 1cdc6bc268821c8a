"""What an entry of the interrupt ring says: eight dwords, by whom, about what.

Source: amdgpu amdgpu_ih.c, amdgpu_ih_decode_iv_helper; soc15_ih_clientid.h; gmc_v11_0_process_interrupt;
gfx_v11_0_eop_irq; sdma_v6_0_process_trap_irq; amdkfd soc15_int.h and kfd_int_process_v11.c (shader interrupts). Of the
older clients, which cards with GFX9 have: sdma_v4_4_2_process_trap_irq, gmc_v9_0_process_interrupt,
kfd_int_process_v9.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ringup.autogen.amd import ih
from ringup.autogen.layout import Field, Word
from ringup.drivers.amd.bus.registers import Version

ENTRY_BYTES = 32
_DWORDS = struct.Struct("<8I")


class Entry(Word, width=128):
    """The first four dwords of an entry. Source: amdgpu_ih_decode_iv_helper."""

    client_id = Field(7, 0)
    source_id = Field(15, 8)
    ring_id = Field(23, 16)
    vmid = Field(27, 24)
    vmid_source = Field(31)  # 1: the VMID is one of MMHUB
    timestamp = Field(79, 32)
    timestamp_source = Field(95)
    pasid = Field(111, 96)
    node_id = Field(119, 112)


class CpRing(Word):
    """Which queue of the command processor: ring_id of its entries. Source: gfx_v11_0_eop_irq."""

    pipe = Field(1, 0)
    me = Field(3, 2)
    queue = Field(6, 4)


class SdmaRing(Word):
    """Which queue of which SDMA engine: ring_id of its entries. Source: sdma_v6_0_process_trap_irq."""

    queue = Field(3, 0)
    engine = Field(7, 4)


class FaultData(Word, width=64):
    """Data 0 and 1 of a page fault. Source: gmc_v11_0_process_interrupt."""

    page_number = Field(35, 0)
    write = Field(32 + 5)
    retry = Field(32 + 7)


class ShaderData(Word, width=64):
    """Data 0 and 1 of an interrupt of the shader cores. Source: kfd_int_process_v11.c, SQ_INTERRUPT_WORD_*."""

    error_type = Field(24, 21)
    encoding = Field(32 + 7, 32 + 6)


class OldShaderData(Word, width=64):
    """The same of GFX9. Source: kfd_int_process_v9.c, KFD_CONTEXT_ID_GET_SQ_INT_DATA."""

    encoding = Field(27, 26)
    error_type = Field(32 + 7, 32 + 4)


class Interrupt(NamedTuple):
    """One entry of the ring. `client` and `source` are numbers, `kind` is our name for the pair; `timestamp` counts the
    100 MHz clock. `node`: of a card of several dies, the die: 4 for each I/O die, and 1 or 2 more for a die of the
    graphics core on it. `old`: the client is one of GFX9's. `xcc`: the die of the graphics core, by logical number.
    """

    kind: str
    client: int
    source: int
    ring: int
    vmid: int
    hub: str
    pasid: int
    timestamp: int
    data: tuple[int, int, int, int]
    node: int = 0
    old: bool = False
    xcc: int | None = None

    @property
    def client_name(self) -> str:
        """The vendor's name of the client."""
        names = OLD_CLIENTS if self.old else CLIENTS
        return names.get(self.client, f"client {self.client:#x}")

    @property
    def queue(self) -> tuple[int, int, int]:
        """Micro engine, pipe and queue of an entry of the command processor."""
        place = CpRing(self.ring)
        return place.me, place.pipe, place.queue

    @property
    def sdma_queue(self) -> tuple[int, int]:
        """Engine and queue of an entry of SDMA; the engine's physical number where dies have engines each."""
        place = SdmaRing(self.ring)
        if self.old:
            return _OLD_ENGINES[self.client] + len(_OLD_ENGINES) * (self.node // NODES_OF_DIE), place.queue
        return place.engine, place.queue

    @property
    def fault_va(self) -> int:
        """The page that faulted, of a "page fault"."""
        return int(self._fault.page_number) * 4096

    @property
    def fault_write(self) -> bool:
        """Whether the access that faulted was a write, of a "page fault"."""
        return bool(self._fault.write)

    @property
    def _fault(self) -> FaultData:
        return FaultData(self.data[0] | self.data[1] << 32)

    @property
    def text(self) -> str:
        """What happened, in a line."""
        return _TEXTS.get(self.kind, _plain)(self)


def _plain(entry: Interrupt) -> str:
    data = " ".join(f"{word:#x}" for word in entry.data)
    return (
        f"{entry.kind}: {entry.client_name} source {entry.source:#x} ring {entry.ring:#x} vmid {entry.vmid} data {data}"
    )


def _command_processor(entry: Interrupt) -> str:
    me, pipe, queue = entry.queue
    return f"{entry.kind}: queue {me}.{pipe}.{queue}{_die(entry)} vmid {entry.vmid} data {entry.data[0]:#x}"


def _die(entry: Interrupt) -> str:
    return "" if entry.xcc is None else f" of XCC {entry.xcc}"


def _sdma(entry: Interrupt) -> str:
    engine, queue = entry.sdma_queue
    return f"{entry.kind}: SDMA{engine} queue {queue} vmid {entry.vmid} data {entry.data[0]:#x}"


def _page_fault(entry: Interrupt) -> str:
    how = "wrote" if entry.fault_write else "read"
    return f"page fault: {entry.hub}{_die(entry)} vmid {entry.vmid} {how} page {entry.fault_va:#x}"


_SHADER_ENCODINGS = {0: "thread trace", 1: "wave", 2: "error"}
_SHADER_ERRORS = {0: "uncorrectable memory error", 1: "illegal instruction", 2: "memory violation", 3: "poisoned data"}


def _shader(entry: Interrupt) -> str:
    word = (OldShaderData if entry.old else ShaderData)(entry.data[0] | entry.data[1] << 32)
    what = _SHADER_ENCODINGS.get(word.encoding, f"encoding {word.encoding}")
    if what == "error":
        what = _SHADER_ERRORS.get(word.error_type, f"error {word.error_type}")
    return f"shader{_die(entry)}: {what}, vmid {entry.vmid} data {entry.data[0]:#x} {entry.data[1]:#x}"


_CP, _GFX = ih.SOC21_IH_CLIENTID_GRBM_CP, ih.SOC21_IH_CLIENTID_GFX
_THM, _SMUIO, _SMU = ih.SOC21_IH_CLIENTID_THM, ih.SOC21_IH_CLIENTID_ROM_SMUIO, ih.SOC21_IH_CLIENTID_MP1
SMU_TO_DRIVER = 0xFE  # Source: smu_v13_0.c, smu_v13_0_irq_process, src_id of SOC15_IH_CLIENTID_MP1

# (client, source): our name for it
KINDS: Mapping[tuple[int, int], str] = {
    (_CP, ih.GFX_11_0_0__SRCID__CP_EOP_INTERRUPT): "end of pipe",
    (_CP, ih.GFX_11_0_0__SRCID__CP_GENERIC_INT): "generic",
    (_CP, ih.GFX_11_0_0__SRCID__CP_PM4_PKT_RSVD_BIT_ERROR): "reserved bit in packet",
    (_CP, ih.GFX_11_0_0__SRCID__CP_BAD_OPCODE_ERROR): "bad opcode",
    (_CP, ih.GFX_11_0_0__SRCID__CP_PRIV_REG_FAULT): "privileged register",
    (_CP, ih.GFX_11_0_0__SRCID__CP_PRIV_INSTR_FAULT): "privileged instruction",
    (_CP, ih.GFX_11_0_0__SRCID__CP_CTX_EMPTY_INTERRUPT): "context empty",
    (_CP, ih.GFX_11_0_0__SRCID__CP_CTX_BUSY_INTERRUPT): "context busy",
    (_CP, ih.GFX_11_0_0__SRCID__CP_ECC_ERROR): "command processor ECC error",
    (_CP, ih.GFX_11_0_0__SRCID__CP_GPF): "general protection fault",
    (_CP, ih.GFX_11_0_0__SRCID__CP_ME_WAIT_REG_MEM_POLL_TIMEOUT): "poll timeout",
    (_CP, ih.GFX_11_0_0__SRCID__SQ_INTERRUPT_ID): "shader",
    (_CP, ih.GFX_11_0_0__SRCID__GRBM_RD_TIMEOUT_ERROR): "register read timeout",
    (_GFX, ih.GFX_11_0_0__SRCID__SQ_INTERRUPT_ID): "shader",
    (_GFX, ih.GFX_11_0_0__SRCID__UTCL2_FAULT): "page fault",
    (_GFX, ih.GFX_11_0_0__SRCID__UTCL2_DATA_POISONING): "poisoned data",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_TRAP): "SDMA trap",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_SRBMWRITE): "SDMA illegal register write",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_CTXEMPTY): "SDMA queue empty",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_DOORBELL_INVALID): "SDMA invalid doorbell",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_QUEUE_HANG): "SDMA queue hang",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_POLL_TIMEOUT): "SDMA poll timeout",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_PAGE_TIMEOUT): "SDMA page timeout",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_PAGE_NULL): "SDMA null page",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_PAGE_FAULT): "SDMA page fault",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_VM_HOLE): "SDMA address in the VM hole",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_ECC): "SDMA ECC error",
    (_GFX, ih.GFX_11_0_0__SRCID__SDMA_FROZEN): "SDMA frozen",
    (_GFX, ih.GFX_11_0_0__SRCID__RLC_GC_FED_INTERRUPT): "fatal error in the graphics core",
    (ih.SOC21_IH_CLIENTID_VMC, ih.VMC_1_0__SRCID__VM_FAULT): "page fault",
    (_THM, ih.THM_9_0__SRCID__THM_DIG_THERM_L2H): "temperature above its limit",
    (_THM, ih.THM_9_0__SRCID__THM_DIG_THERM_H2L): "temperature below its limit again",
    (_SMUIO, ih.SMUIO_9_0__SRCID__SMUIO_GPIO19): "critical temperature",
    (_SMU, SMU_TO_DRIVER): "SMU event",
    (ih.SOC21_IH_CLIENTID_BIF, ih.NBIF_7_4__SRCID__DOORBELL_INTERRUPT): "doorbell",
    (ih.SOC21_IH_CLIENTID_BIF, ih.NBIF_7_4__SRCID__RAS_CONTROLLER_INTERRUPT): "RAS controller",
    (ih.SOC21_IH_CLIENTID_BIF, ih.NBIF_7_4__SRCID__ERREVENT_ATHUB_INTERRUPT): "fatal error event",
}
# the clients of the copy engines of an I/O die, by place
_OLD_ENGINES = {
    ih.SOC15_IH_CLIENTID_SDMA0: 0,
    ih.SOC15_IH_CLIENTID_SDMA1: 1,
    ih.SOC15_IH_CLIENTID_SDMA2: 2,
    ih.SOC15_IH_CLIENTID_SDMA3: 3,
}
_OLD_SDMA = {
    ih.SDMA0_4_0__SRCID__SDMA_TRAP: "SDMA trap",
    ih.SDMA0_4_0__SRCID__SDMA_CTXEMPTY: "SDMA queue empty",
    ih.SDMA0_4_0__SRCID__SDMA_DOORBELL_INVALID: "SDMA invalid doorbell",
    ih.SDMA0_4_0__SRCID__SDMA_POLL_TIMEOUT: "SDMA poll timeout",
    ih.SDMA0_4_0__SRCID__SDMA_PAGE_NULL: "SDMA null page",
    ih.SDMA0_4_0__SRCID__SDMA_PAGE_FAULT: "SDMA page fault",
    ih.SDMA0_4_0__SRCID__SDMA_VM_HOLE: "SDMA address in the VM hole",
    ih.SDMA0_4_0__SRCID__SDMA_ECC: "SDMA ECC error",
    ih.SDMA0_4_0__SRCID__SDMA_FROZEN: "SDMA frozen",
}
_OLD_SHADERS = (
    ih.SOC15_IH_CLIENTID_SE0SH,
    ih.SOC15_IH_CLIENTID_SE1SH,
    ih.SOC15_IH_CLIENTID_SE2SH,
    ih.SOC15_IH_CLIENTID_SE3SH,
)
# of the older clients; command processor, sensors and bus have the same numbers
OLD_KINDS: Mapping[tuple[int, int], str] = {
    **{pair: kind for pair, kind in KINDS.items() if pair[0] != _GFX},
    (ih.SOC15_IH_CLIENTID_UTCL2, ih.UTCL2_1_0__SRCID__FAULT): "page fault",
    **{(client, ih.GFX_9_0__SRCID__SQ_INTERRUPT_ID): "shader" for client in _OLD_SHADERS},
    **{(client, source): kind for client in _OLD_ENGINES for source, kind in _OLD_SDMA.items()},
}
OLD_BEFORE = 6  # the major version of the interrupt block from which on clients have their new numbers
# numbers that an I/O die and what is on it have. Source: amdgpu_irq.h, interrupt_node_id_per_aid
NODES_OF_DIE, NODES_OF_XCC = 4, 2
UNKNOWN = "unknown"
_OF_CP = (
    "end of pipe",
    "generic",
    "reserved bit in packet",
    "bad opcode",
    "privileged register",
    "privileged instruction",
)
_TEXTS: Mapping[str, Callable[[Interrupt], str]] = {
    **dict.fromkeys(_OF_CP, _command_processor),
    **{kind: _sdma for kind in KINDS.values() if kind.startswith("SDMA")},
    "page fault": _page_fault,
    "shader": _shader,
}
CLIENTS: Mapping[int, str] = {
    ih.SOC21_IH_CLIENTID_IH: "IH",
    ih.SOC21_IH_CLIENTID_ATHUB: "ATHUB",
    ih.SOC21_IH_CLIENTID_BIF: "BIF",
    ih.SOC21_IH_CLIENTID_DCN: "DCN",
    ih.SOC21_IH_CLIENTID_ISP: "ISP",
    ih.SOC21_IH_CLIENTID_MP3: "MP3",
    ih.SOC21_IH_CLIENTID_RLC: "RLC",
    ih.SOC21_IH_CLIENTID_GFX: "GFX",
    ih.SOC21_IH_CLIENTID_IMU: "IMU",
    ih.SOC21_IH_CLIENTID_VCN1: "VCN1",
    ih.SOC21_IH_CLIENTID_THM: "THM",
    ih.SOC21_IH_CLIENTID_VCN: "VCN",
    ih.SOC21_IH_CLIENTID_VMC: "VMC",
    ih.SOC21_IH_CLIENTID_GRBM_CP: "GRBM_CP",
    ih.SOC21_IH_CLIENTID_ROM_SMUIO: "ROM_SMUIO",
    ih.SOC21_IH_CLIENTID_DF: "DF",
    ih.SOC21_IH_CLIENTID_VPE: "VPE",
    ih.SOC21_IH_CLIENTID_PWR: "PWR",
    ih.SOC21_IH_CLIENTID_LSDMA: "LSDMA",
    ih.SOC21_IH_CLIENTID_MP0: "MP0",
    ih.SOC21_IH_CLIENTID_MP1: "MP1",
}
OLD_CLIENTS: Mapping[int, str] = {
    **{client: CLIENTS[client] for client in (_CP, _THM, _SMUIO, _SMU, ih.SOC15_IH_CLIENTID_IH)},
    ih.SOC15_IH_CLIENTID_BIF: "BIF",
    ih.SOC15_IH_CLIENTID_VMC: "VMC",
    ih.SOC15_IH_CLIENTID_UTCL2: "UTCL2",
    ih.SOC15_IH_CLIENTID_DF: "DF",
    **{client: f"SDMA{place}" for client, place in _OLD_ENGINES.items()},
    **{client: f"SE{place}SH" for place, client in enumerate(_OLD_SHADERS)},
}
TOO_HOT = KINDS[_THM, ih.THM_9_0__SRCID__THM_DIG_THERM_L2H]
# what no later work of the same queue survives. A hang that SDMA's watchdog tells of may be a long wait: not one of
# them
FATAL = frozenset(
    (
        "bad opcode",
        "reserved bit in packet",
        "privileged register",
        "privileged instruction",
        "general protection fault",
        "page fault",
        "SDMA page fault",
        "SDMA invalid doorbell",
        "fatal error in the graphics core",
        "critical temperature",
    )
)


def kinds(version: Version) -> Mapping[tuple[int, int], str]:
    """Return our names of what a version of the interrupt block reports, by client and source."""
    return OLD_KINDS if version[0] < OLD_BEFORE else KINDS


def decode(entry: bytes | memoryview, version: Version = (OLD_BEFORE, 0, 0), xccs: Sequence[int] = ()) -> Interrupt:
    """Decode one entry of 32 bytes. `version`: of the interrupt block; `xccs`: the dies of the graphics core, if there
    are several, by logical number the physical one.
    """
    if len(entry) != ENTRY_BYTES:
        raise ValueError(f"an interrupt entry has {ENTRY_BYTES} bytes, not {len(entry)}")
    words = _DWORDS.unpack(entry)
    head = Entry(words[0] | words[1] << 32 | words[2] << 64 | words[3] << 96)
    old = version[0] < OLD_BEFORE
    of_memory = head.client_id == ih.SOC15_IH_CLIENTID_VMC if old else bool(head.vmid_source)
    return Interrupt(
        kind=kinds(version).get((head.client_id, head.source_id), UNKNOWN),
        client=head.client_id,
        source=head.source_id,
        ring=head.ring_id,
        vmid=head.vmid,
        hub="mmhub" if of_memory else "gfxhub",
        pasid=head.pasid,
        timestamp=head.timestamp,
        data=words[4:8],
        node=head.node_id if old else 0,
        old=old,
        xcc=_logical(head.node_id, xccs) if old else None,
    )


def _logical(node: int, xccs: Sequence[int]) -> int | None:
    """Return the logical number of the die of the graphics core that a node is. Source: gfx_v9_4_3_ih_to_xcc_inst."""
    xcc = node // NODES_OF_XCC
    return xccs.index(xcc) if node % NODES_OF_DIE and xcc in xccs else None
