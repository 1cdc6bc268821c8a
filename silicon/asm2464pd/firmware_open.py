"""The open firmware: vendor control requests for XDATA, TLPs, streams and SRAM transfers, on one interface of class FF.

Source: asm2464pd-firmware handmade/src/main.c (handle_usb_control, handle_usb_bulk_data, pcie_power_on), usb.h,
pcie_pio.h. It never stalls. It does not answer unknown requests, except those without a data stage, which it
acknowledges.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from ringup.silicon.asm2464pd.hardware import timing, tlp
from ringup.silicon.asm2464pd.hardware.chip import Chip
from ringup.silicon.asm2464pd.hardware.running_firmware import Answer, Descriptors, Setup, Silence
from ringup.silicon.asm2464pd.hardware.timing import Speed
from ringup.silicon.asm2464pd.hardware.xdata import Job

OUT, IN = 0x02, 0x81
BUFFER = 0x9E00  # the buffer of endpoint 0
STANDARD = {  # (bmRequestType, bRequest) of requests that reset streams and endpoints
    (0x00, 9): "SET_CONFIGURATION",
    (0x01, 11): "SET_INTERFACE",
}
SET_ADDRESS, CLEAR_FEATURE, GET_DESCRIPTOR = (0x00, 5), (0x02, 1), (0x80, 6)
DEVICE, CONFIGURATION, STRING, BOS = 1, 2, 3, 15
TLP_TAG = 0xB216
NVME_DOORBELL, SECTOR_HIGH, FIRST_SLOT, END_SLOT, SECTORS, CONTROL, PARAMETER = (
    0xC42A, 0xC422, 0xC414, 0xC415, 0xC426, 0xC412, 0xC429,
)  # fmt: skip
# E764: training continues until a card answers
KEEPS_TRYING = 0x1C
POWER_ON = (  # (page, register, value or bits to set): rails, lanes and training, in this order
    (0, 0xB431, 0x0C), (0, 0xB403, 0x01), (0, 0xB480, 0x01), (0, 0xB430, 0x00), (1, 0x6025, 0x80), (0, 0xC656, 0x20), (0, 0xC659, 0x01),
    (0, 0xE764, KEEPS_TRYING), (0, 0xB298, 0x10), (0, 0xB480, 0x00),
)  # fmt: skip
KEEPS = {0xC656, 0xC659}  # registers whose other bits are kept
POWER_OFF = ((0xB480, 0x01), (0xB430, 0x00), (0xE764, 0x00))
LTSSM, L0, SAMPLES, STABLE, SAMPLE_US = 0xB450, 0x78, 20, 3, 100_000
# CPU time of work that takes almost none
IDLE_US = 0.5
# request F4: XDATA, TLP, SRAM, power, streams; and whether the device runs at SuperSpeed
CAPABILITIES, SUPER_SPEED = 0x8F, 0x40


@dataclass(frozen=True, slots=True)
class Profile:
    """The differences between versions of the firmware. `boots_linked`: it powers and trains the slot before it appears
    on USB.
    """

    vendor_id: int
    product: str
    boots_linked: bool
    # it knows requests C0 and F4, and stalls unknown requests
    knows_more: bool = False
    bus_reset_clears_dma: bool = False  # Source: asm2464pd-firmware pull request 75


PROFILES = {
    "custom": Profile(0xADD1, "custom v0.1", boots_linked=True),
    "later": Profile(0x3801, "6fd5e0b1", boots_linked=False, knows_more=True, bus_reset_clears_dma=True),
}


def _endpoint(address: int, packet_bytes: int, *, burst: int | None = None, streams: int = 0, usage: int = 0) -> bytes:
    data = struct.pack("<BBBBHB", 7, 5, address, 2, packet_bytes, 0)
    if burst is not None:
        data += struct.pack("<BBBBH", 6, 0x30, burst, streams, 0)
    return data + (bytes((4, 0x24, usage, 0)) if usage else b"")


def _interface(alternate: int, *endpoints: bytes) -> bytes:
    return bytes((9, 4, 0, alternate, len(endpoints), 0xFF, 0xFF, 0xFF, 0)) + b"".join(endpoints)


def _configuration(*interfaces: bytes) -> bytes:
    body = b"".join(interfaces)
    return struct.pack("<BBHBBBBB", 9, 2, 9 + len(body), 1, 1, 0, 0xC0, 0) + body


HIGH = _configuration(_interface(0, *(_endpoint(address, 512) for address in (0x81, 0x02, 0x83, 0x04))))
SUPER = _configuration(
    _interface(0, _endpoint(0x81, 1024, burst=15), _endpoint(0x02, 1024, burst=15)),
    _interface(
        1,
        _endpoint(0x81, 1024, burst=15, streams=5, usage=3),
        _endpoint(0x02, 1024, burst=15, streams=5, usage=4),
        _endpoint(0x83, 1024, burst=15, streams=5, usage=2),
        _endpoint(0x04, 1024, burst=0, usage=1),
    ),
)
BOS_BYTES = (
    struct.pack("<BBHB", 5, 15, 22, 2)
    + struct.pack("<BBBI", 7, 16, 2, 2)
    + struct.pack("<BBBBHBBH", 10, 16, 3, 0, 0x000E, 3, 0, 0)
)


class OpenFirmware:
    """The open firmware on a chip. `serial`: the four bytes of the flash's OTP area; all ones if it was never
    written.
    """

    def __init__(
        self, chip: Chip, profile: str = "custom", *, serial: bytes = b"\xff" * 4, boots_linked: bool | None = None
    ) -> None:
        if profile not in PROFILES:
            raise ValueError(f"the open firmware is {' or '.join(PROFILES)}, not {profile!r}")
        self.profile = PROFILES[profile]
        self.boots_linked = self.profile.boots_linked if boots_linked is None else boots_linked
        self._chip, self._serial = chip, serial
        # dwords left of the current stream
        self._left = 0
        self._vendor = {
            (0xC0, 0xE4): self._read_xdata,
            (0x40, 0xE5): self._write_xdata,
            (0x40, 0xF0): self._request,
            (0xC0, 0xF0): self._completion,
            (0x40, 0xF2): self._sram,
            (0x40, 0xF3): self._power,
        }
        if self.profile.knows_more:
            self._vendor |= {(0xC0, 0xC0): self._supply, (0xC0, 0xF4): self._capabilities}

    # --- the device -------------------------------------------------------------------------------------------------
    def descriptors(self, speed: Speed) -> Descriptors:
        """Return the device's descriptors at a speed."""
        usb, ep0 = (0x0320, 9) if speed.super_speed else (0x0200, 64)
        device = struct.pack("<BBHBBBBHHHBBBB", 18, 1, usb, 0, 0, 0, ep0, self.profile.vendor_id, 1, 1, 1, 2, 3, 1)
        strings = {1: "tiny", 2: self.profile.product, 3: self._serial.hex()}
        return Descriptors(device, SUPER if speed.super_speed else HIGH, strings, BOS_BYTES)

    def boot(self) -> Job[bool]:
        """Set up the TLP engine, then the slot, then USB."""
        xdata, link = self._chip.xdata, self._chip.link
        link.trained_code, link.training_codes, link.generation, link.lanes = L0, (KEEPS_TRYING,), 3, 4
        self._left = 0
        xdata.write(tlp.LENGTH, 1)
        xdata.write(TLP_TAG, 0x20)
        self._power_off()
        yield IDLE_US
        if self.boots_linked:
            yield from self._power_on()
        return True

    def bus_reset(self) -> None:
        """Reset the SRAM engine, in later firmware only."""
        if self.profile.bus_reset_clears_dma:
            self._chip.sram_engine.reset()

    # --- endpoint 0 -------------------------------------------------------------------------------------------------
    def after_status_us(self, setup: Setup) -> float:
        """Return how long F0 still runs after its status, which SuperSpeed sends before F0 begins. Source: main.c,
        USB_CTRL_PHASE_STAT_IN.
        """
        late = (setup.request_type, setup.request) == (0x40, 0xF0) and self._chip.speed.ep0_bytes > 64
        return timing.AFTER_STATUS_US if late else 0.0

    def control(self, setup: Setup, data: bytes) -> Job[Answer]:
        """Answer a control request."""
        self._chip.xdata.put_bytes(BUFFER, data[:512])
        key = setup.request_type, setup.request
        handler = self._vendor.get(key)
        if handler is not None:
            return (yield from handler(setup))
        yield IDLE_US
        if key == GET_DESCRIPTOR:
            return self._descriptor(setup)
        if key == SET_ADDRESS:
            return b""
        if key in STANDARD:
            self._drop(OUT, IN)
            return b""
        if key == CLEAR_FEATURE and not setup.value & 0xFF:
            self._drop(setup.index & 0xFF)
            return b""
        if self.profile.knows_more:
            return Silence.STALL
        return b"" if setup.length == 0 else Silence.NO_REPLY

    def _drop(self, *addresses: int) -> None:
        """Reset endpoints and drop the stream."""
        for address in addresses:
            if address in (OUT, IN):
                self._chip.endpoints[address].reset()
        self._left = 0

    def _descriptor(self, setup: Setup) -> Answer:
        texts = self.descriptors(self._chip.speed)
        kind, index = setup.value >> 8, setup.value & 0xFF
        if kind == STRING:
            body = struct.pack("<H", 0x0409) if index == 0 else texts.strings.get(index, "").encode("utf-16-le")
            whole = bytes((2 + len(body), STRING)) + body
        else:
            found = {DEVICE: texts.device, CONFIGURATION: texts.configuration, BOS: texts.bos}.get(kind)
            if found is None:
                return Silence.NO_REPLY
            whole = found
        return whole[: setup.length]

    # --- XDATA --------------------------------------------------------------------------------------------------------
    def _read_xdata(self, setup: Setup) -> Job[Answer]:
        """E4: read bytes one by one. Stores by the card or an engine meanwhile may appear in some of them."""
        xdata, data = self._chip.xdata, bytearray()
        yield IDLE_US
        for at in range(min(setup.length, self._chip.speed.ep0_bytes)):
            data.append(xdata.read(setup.value + at, setup.index >> 8))
            yield timing.XDATA_BYTE_US
        xdata.put_bytes(BUFFER, bytes(data))
        return bytes(data)

    def _write_xdata(self, setup: Setup) -> Job[Answer]:
        yield IDLE_US
        self._chip.xdata.write(setup.value, setup.index & 0xFF, setup.index >> 8)
        return b""

    # --- PCI Express --------------------------------------------------------------------------------------------------
    def _request(self, setup: Setup) -> Job[Answer]:
        """F0 OUT: send one request, or begin a stream."""
        xdata, kind = self._chip.xdata, setup.value & 0xFF
        buffer = xdata.get_bytes(BUFFER, 12)
        self._left = 0
        xdata.write(tlp.FORMAT, kind)
        xdata.write(tlp.ENABLES, setup.value >> 8)
        for at in range(4):
            xdata.write(tlp.ADDRESS + at, buffer[3 - at])
            xdata.write(tlp.ADDRESS_HIGH + at, buffer[7 - at])
        mode = setup.index & 3
        if mode:
            self._left = int.from_bytes(buffer[8:12], "little")
            if self._left and mode == 1:
                self._arm_out()
            if self._left and mode == 2:
                yield from self._send_chunk()
            yield IDLE_US
            return b""
        if kind & tlp.HAS_DATA:
            for at in range(4):
                xdata.write(tlp.DATA + at, buffer[11 - at])
        for value in (tlp.ERROR, tlp.DONE, tlp.SEND):
            xdata.write(tlp.STATUS, value)
        xdata.write(tlp.EXECUTE, tlp.GO)
        yield timing.TLP_US
        return b""

    def _completion(self, setup: Setup) -> Job[Answer]:
        """F0 IN: wait for the completion of the last request and return it."""
        xdata, waited_us, step_us = self._chip.xdata, 0.0, IDLE_US
        reply = bytes(7) + b"\xff"
        while waited_us < timing.POLL_LIMIT_US:
            status = xdata.read(tlp.STATUS)
            if status & tlp.ERROR:
                xdata.write(tlp.STATUS, tlp.ERROR)
                reply = bytes(7) + b"\x01"
                break
            if status & tlp.DONE:
                header = (
                    xdata.read(tlp.COMPLETION + 6),
                    xdata.read(tlp.COMPLETION + 7),
                    xdata.read(tlp.CARRIED_DATA),
                    0,
                )
                reply = bytes(xdata.read(tlp.DATA + 3 - at) for at in range(4)) + bytes(header)
                break
            yield step_us
            waited_us += step_us
            step_us = min(2 * step_us, 1_000.0)
        yield IDLE_US
        return reply[: setup.length]

    def _arm_out(self) -> None:
        self._chip.out(OUT).arm(self._chip.speed.packet_bytes, self._packet_came)

    def _packet_came(self, data: bytes, complete: bool, more: bool) -> None:
        self._chip.cpu.run(self._write_chunk(data))

    def _write_chunk(self, data: bytes) -> Job[None]:
        """Write the dwords of a packet. A packet with more than is left is dropped, and the endpoint is not armed
        again.
        """
        count = len(data) // 4
        if count > self._left:
            yield IDLE_US
            return
        yield IDLE_US + timing.STREAM_WRITE_US * count
        self._chip.tlp.stream_write(data[: 4 * count])
        self._left -= count
        if self._left:
            self._arm_out()

    def _send_chunk(self) -> Job[None]:
        """Read the next dwords of a stream and give them to the IN endpoint, which asks for more when they are sent."""
        count = min(self._left, self._chip.speed.packet_bytes // 4)
        yield timing.STREAM_READ_US * count
        data = self._chip.tlp.stream_read(4 * count)
        if data is None:
            # the firmware's loop waits for a bit that is never set
            yield math.inf
            return
        self._left -= count
        self._chip.into(IN).send(data, done=self._chunk_gone)

    def _chunk_gone(self) -> None:
        if self._left:
            self._chip.cpu.run(self._send_chunk())

    # --- SRAM and the slot --------------------------------------------------------------------------------------------
    def _sram(self, setup: Setup) -> Job[Answer]:
        """F2: arm the SRAM engine for one bulk transfer."""
        xdata, first, slots = self._chip.xdata, setup.index & 0xFF, setup.index >> 8 or 1
        to_host, sectors = setup.value >> 15, setup.value & 0x7FFF
        for register, value in (
            (NVME_DOORBELL, 0), (SECTOR_HIGH, 2), (SECTOR_HIGH + 1, 0), (FIRST_SLOT, 0x80 | first), (END_SLOT, first + slots & 0xFF),
            (SECTORS, sectors >> 8), (SECTORS + 1, sectors & 0xFF), (CONTROL, 2 | (0 if to_host else 1)), (PARAMETER, first),
        ):  # fmt: skip
            xdata.write(register, value)
        yield IDLE_US
        return b""

    def _power(self, setup: Setup) -> Job[Answer]:
        """F3: switch the slot's power. The request is acknowledged whether or not the link comes up."""
        if setup.value & 1:
            yield from self._power_on()
        else:
            self._power_off()
            yield IDLE_US
        return b""

    def _power_on(self) -> Job[None]:
        xdata = self._chip.xdata
        for page, register, value in POWER_ON:
            xdata.write(register, value | (xdata.read(register, page) if register in KEEPS else 0), page)
        stable = 0
        for _ in range(SAMPLES):
            stable = stable + 1 if xdata.read(LTSSM) == L0 else 0
            yield SAMPLE_US
            if stable == STABLE:
                return

    def _power_off(self) -> None:
        xdata = self._chip.xdata
        for register, value in POWER_OFF:
            xdata.write(register, value)
        xdata.write(0xC659, xdata.read(0xC659) & ~0x01)
        xdata.write(0xC656, xdata.read(0xC656) & ~0x20)

    # --- later firmware -----------------------------------------------------------------------------------------------
    def _supply(self, setup: Setup) -> Job[Answer]:
        """C0: return the readings of the board's power monitor, in mV and mA."""
        yield IDLE_US
        return struct.pack("<Hh", 12_000, 7_250 if self._chip.link.up else 300)[: setup.length]

    def _capabilities(self, setup: Setup) -> Job[Answer]:
        """F4: return the firmware's capabilities."""
        yield IDLE_US
        able = CAPABILITIES | (SUPER_SPEED if self._chip.speed.super_speed else 0)
        return (b"TG24" + struct.pack("<BBBBII", 1, 0, 16, 0, able, 1))[: setup.length]
