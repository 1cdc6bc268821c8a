"""The foundation security processor (FSP) of Hopper and Blackwell: it checks GSP's first code and boots GSP with it
("chain of trust").

Messages are packets of MCTP with NVIDIA's own type (NVDM), up to 1 KiB in FSP's external memory (EMEM): the driver
writes a packet and then the queue's tail and head; FSP empties the queue, and answers in the message queue's. Source:
OGKM kern_fsp_gh100.c, kfspSendPacket_GH100, kfspReadPacket_GH100, kfspProcessCommandResponse_GH100,
kfspPrepareBootCommands_GH100; Linux nova-core fsp.rs, falcon/fsp.rs.
"""

from __future__ import annotations

import struct as packing
from dataclasses import dataclass

from ringup.autogen.nv import fsp
from ringup.autogen.nv.boot import NV_THERM_I2CS_SCRATCH_FSP_BOOT_COMPLETE
from ringup.autogen.nv.engines import (
    NV_PFSP_EMEMC,
    NV_PFSP_EMEMD,
    NV_PFSP_MSGQ_HEAD,
    NV_PFSP_MSGQ_TAIL,
    NV_PFSP_QUEUE_HEAD,
    NV_PFSP_QUEUE_TAIL,
)
from ringup.autogen.structs import memory as bytes_of
from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.gsp.layout import FRTS_BYTES, MIB
from ringup.drivers.nv.gsp.releases import struct
from ringup.drivers.transport.wait import until
from ringup.errors import DeviceHung, FirmwareError
from ringup.firmware.nv.fmc import Fmc

# TIMEOUT: kfspWaitForSecureBoot_GB202: memory training alone takes up to 3 s
BOOT_US, BOOT_POLL_US = 5_000_000, 1_000
# TIMEOUT: nova-core falcon/fsp.rs, FSP_MSG_TIMEOUT_MS
ANSWER_US, ANSWER_POLL_US = 2_000_000, 500
BOOT_COMPLETE = 0xFF
CHANNEL = 0
CHANNEL_BYTES = 1024
HEADERS_BYTES = 8
VENDOR_PCI, NVIDIA = 0x7E, 0x10DE
COT, RESPONSE = 0x14, 0x15
FRTS_ALIGN = 2 * MIB
# GSP_DMA_TARGET_* in gspifpub.h: memory that OGKM maps cached, and uncached
COHERENT_SYSTEM, NONCOHERENT_SYSTEM = 1, 2


@dataclass(frozen=True, slots=True)
class CotPlaces:
    """Where the chain-of-trust message's parts lie in the host's memory."""

    fmc: int
    boot_arguments: int


class Fsp:
    """FSP of one card. It runs by itself from power-on."""

    def __init__(self, registers: Registers) -> None:
        self._registers, self._block = registers, Block(registers, "FSP")
        self._family = registers.chip.family

    def wait_booted(self) -> None:
        """Wait until FSP has set the card up. Raises `DeviceTimeout`."""
        self._block.wait(
            NV_THERM_I2CS_SCRATCH_FSP_BOOT_COMPLETE,
            lambda seen: int(seen) == BOOT_COMPLETE,
            BOOT_US,
            "waiting for FSP to boot",
            poll_us=BOOT_POLL_US,
            advice="; reset the card's slot, or power it off and on",
        )

    def boot_gsp(self, fmc: Fmc, places: CotPlaces) -> None:
        """Have FSP boot GSP with its first code. Raises `FirmwareError` if FSP refuses it, `DeviceTimeout`."""
        end = self._family.frts_from_end_bytes
        if self._family.pmu_bytes:
            end = -(-(end + self._family.pmu_bytes) // FRTS_ALIGN) * FRTS_ALIGN
        payload = fsp.NVDM_PAYLOAD_COT(
            version=self._family.cot_version,
            size=fsp.NVDM_PAYLOAD_COT.SIZE,
            gspFmcSysmemOffset=places.fmc,
            frtsVidmemOffset=end,
            frtsVidmemSize=FRTS_BYTES,
            gspBootArgsSysmemOffset=places.boot_arguments,
        )
        raw = bytearray(bytes_of(payload))
        for member, data in (("hash384", fmc.hash384), ("publicKey", fmc.public_key), ("signature", fmc.signature)):
            at = fsp.NVDM_PAYLOAD_COT.offset_of(member)
            raw[at : at + len(data)] = data
        self.command(COT, bytes(raw), f"booting GSP with {fmc.name}")

    def command(self, kind: int, payload: bytes, doing: str) -> bytes:
        """Send a command and return what follows the answer's head. Raises `FirmwareError` for an error code."""
        mctp = int(fsp.MCTP_TRANSPORT_HEADER(som=1, eom=1))
        nvdm = int(fsp.MCTP_MSG_HEADER(type=VENDOR_PCI, vendor_id=NVIDIA, nvdm_type=kind))
        self._send(packing.pack("<II", mctp, nvdm) + payload, doing)
        answer = self._receive(doing)
        size = fsp.NVDM_PAYLOAD_COMMAND_RESPONSE.SIZE
        if len(answer) < HEADERS_BYTES + size:
            raise DeviceHung(f"{doing}: FSP answered with {len(answer)} bytes; reset the card")
        head, message = (
            fsp.MCTP_TRANSPORT_HEADER(packing.unpack_from("<I", answer)[0]),
            fsp.MCTP_MSG_HEADER(packing.unpack_from("<I", answer, 4)[0]),
        )
        task, command, error = packing.unpack_from("<III", answer, HEADERS_BYTES)
        if not (head.som and head.eom) or message.nvdm_type != RESPONSE or command != kind:
            raise DeviceHung(
                f"{doing}: FSP answered with {head!r}, {message!r} to command {command:#x}, not to {kind:#x}; "
                "reset the card"
            )
        if error:
            raise FirmwareError(
                f"{doing}: FSP refused it with error {error:#x} (task {task:#x}); take firmware files made for this "
                "card, and reset it"
            )
        return answer[HEADERS_BYTES + size :]

    def wait_free(self, doing: str) -> None:
        """Wait until FSP has taken the last packet. Raises `DeviceTimeout`; a dead process may have left half a one."""
        block = self._block
        until(
            lambda: (int(block.read(NV_PFSP_QUEUE_HEAD, CHANNEL)), int(block.read(NV_PFSP_QUEUE_TAIL, CHANNEL))),
            lambda seen: seen[0] == seen[1],
            clock=self._registers.clock,
            timeout_us=ANSWER_US,
            poll_us=ANSWER_POLL_US,
            doing=f"{doing}: FSP does not take the packet before",
            describe=lambda seen: f"its queue's head and tail read {seen[0]:#x}, {seen[1]:#x}",
            advice="; reset the card",
        )

    def _send(self, packet: bytes, doing: str) -> None:
        if len(packet) > CHANNEL_BYTES:
            raise ValueError(f"a packet for FSP has at most {CHANNEL_BYTES} bytes, not {len(packet)}")
        self.wait_free(doing)
        block = self._block
        # an answer that nobody has read
        head = int(block.read(NV_PFSP_MSGQ_HEAD, CHANNEL))
        if head != int(block.read(NV_PFSP_MSGQ_TAIL, CHANNEL)):
            block.set(NV_PFSP_MSGQ_TAIL, head, CHANNEL)
        padded = packet.ljust(-(-len(packet) // 4) * 4, b"\0")
        block.set(NV_PFSP_EMEMC, 0, CHANNEL, aincw=1)
        at = block.address(NV_PFSP_EMEMD, CHANNEL)
        self._registers.write_run([(at, value) for (value,) in packing.iter_unpack("<I", padded)])
        # the tail is the last dword written. ORDER: the head's write starts FSP
        block.set(NV_PFSP_QUEUE_TAIL, len(padded) - 4, CHANNEL)
        block.set(NV_PFSP_QUEUE_HEAD, 0, CHANNEL)

    def _receive(self, doing: str) -> bytes:
        block = self._block
        head, tail = until(
            lambda: (int(block.read(NV_PFSP_MSGQ_HEAD, CHANNEL)), int(block.read(NV_PFSP_MSGQ_TAIL, CHANNEL))),
            lambda seen: seen[0] != seen[1],
            clock=self._registers.clock,
            timeout_us=ANSWER_US,
            poll_us=ANSWER_POLL_US,
            doing=f"{doing}: waiting for FSP's answer",
            describe=lambda seen: f"its message queue's head and tail read {seen[0]:#x}",
            advice="; reset the card",
        )
        size = tail - head + 4
        if not 0 < size <= CHANNEL_BYTES or size % 4:
            raise DeviceHung(f"{doing}: FSP's message queue has head {head:#x} and tail {tail:#x}; reset the card")
        block.set(NV_PFSP_EMEMC, 0, CHANNEL, aincr=1)
        words = [int(block.read(NV_PFSP_EMEMD, CHANNEL)) for _ in range(size // 4)]
        block.set(NV_PFSP_MSGQ_TAIL, head, CHANNEL)
        block.set(NV_PFSP_MSGQ_HEAD, head, CHANNEL)
        return packing.pack(f"<{len(words)}I", *words)


def boot_arguments(metadata: int, libos: int, release: str) -> bytes:
    """Return `GSP_FMC_BOOT_PARAMS`: where GSP's first code finds the firmware's metadata and LIBOS' arguments."""
    made = struct(fsp.GSP_FMC_BOOT_PARAMS, release)()
    boot, rm = made.bootGspRmParams, made.gspRmParams
    boot.target, boot.gspRmDescSize, boot.gspRmDescOffset, boot.bIsGspRmBoot = COHERENT_SYSTEM, 256, metadata, 1
    # Source: Linux nouveau gsp/gh100.c, gh100_gsp_init; OGKM kernel_gsp_gh100.c, _kgspMemdescToDmaTarget
    rm.target, rm.bootArgsOffset = NONCOHERENT_SYSTEM, libos
    return bytes(bytes_of(made))
