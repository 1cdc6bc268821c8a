"""The bridge as a USB mass storage device: standard and class requests, and the choice between the two transports.

Source: USB 3.2, 9.4 (standard requests); Bulk-Only Transport 1.0, 3 (class requests).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ringup.silicon.asm2464pd.hardware.chip import Chip
from ringup.silicon.asm2464pd.hardware.running_firmware import Answer, Descriptors, Setup, Silence
from ringup.silicon.asm2464pd.hardware.timing import Speed
from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.asm2464pd.storage.scsi import Commands
from ringup.silicon.asm2464pd.storage.scsi_bot import BulkOnly
from ringup.silicon.asm2464pd.storage.scsi_descriptors import COMMAND, DATA_IN, DATA_OUT, STATUS
from ringup.silicon.asm2464pd.storage.scsi_uas import AttachedScsi

# GUESS: CPU time, in addition to that of every control transfer
REQUEST_US = 2.0
UAS_MODE = 0x9000  # XDATA, bit 0
OUT, IN = 0x00, 0x80
DEVICE, INTERFACE, ENDPOINT, CLASS_INTERFACE = 0, 1, 2, 0x21
GET_STATUS, CLEAR_FEATURE, SET_FEATURE, SET_ADDRESS, GET_DESCRIPTOR = 0, 1, 3, 5, 6
GET_CONFIGURATION, SET_CONFIGURATION, GET_INTERFACE, SET_INTERFACE, SET_SEL, SET_ISOCH_DELAY = 8, 9, 10, 11, 48, 49
DEVICE_TYPE, CONFIGURATION_TYPE, STRING_TYPE, BOS_TYPE = 1, 2, 3, 15
ENGLISH = 0x0409
ENDPOINT_HALT, FUNCTION_SUSPEND = 0, 0
# U1, U2 and latency messages: number of the feature, its bit in the device status
SLEEPS = {48: 4, 49: 8, 50: 16}
SELF_POWERED = 1
BULK_ONLY_RESET, GET_MAX_LUN = 0xFF, 0xFE


class MassStorage:
    """Endpoint 0 of a mass storage firmware, and its transports. `describe` returns the descriptors at a speed."""

    def __init__(
        self, chip: Chip, commands: Commands, describe: Callable[[Speed], Descriptors], *, attached_scsi: bool
    ) -> None:
        self._chip, self._describe = chip, describe
        self._settings = 2 if attached_scsi else 1
        out, into = chip.out(DATA_OUT), chip.into(DATA_IN)
        self._bot = BulkOnly(out, into, commands, chip.cpu, chip.log)
        self._uas = AttachedScsi(chip.out(COMMAND), chip.into(STATUS), into, out, commands, chip.cpu)
        self._configuration = self._setting = 0
        self._sleeps = 0
        self._requests: dict[tuple[int, int], Callable[[Setup, bytes], Answer]] = {
            (IN | DEVICE, GET_STATUS): lambda setup, data: struct.pack("<H", SELF_POWERED | self._sleeps),
            (IN | INTERFACE, GET_STATUS): lambda setup, data: bytes(2),
            (IN | ENDPOINT, GET_STATUS): self._endpoint_status,
            (OUT | DEVICE, SET_FEATURE): lambda setup, data: self._sleep(setup, on=True),
            (OUT | DEVICE, CLEAR_FEATURE): lambda setup, data: self._sleep(setup, on=False),
            (OUT | INTERFACE, SET_FEATURE): self._function_feature,
            (OUT | INTERFACE, CLEAR_FEATURE): self._function_feature,
            (OUT | ENDPOINT, SET_FEATURE): lambda setup, data: self._halt(setup, on=True),
            (OUT | ENDPOINT, CLEAR_FEATURE): lambda setup, data: self._halt(setup, on=False),
            (OUT | DEVICE, SET_ADDRESS): lambda setup, data: b"",
            (OUT | DEVICE, SET_SEL): lambda setup, data: b"",
            (OUT | DEVICE, SET_ISOCH_DELAY): lambda setup, data: b"",
            (IN | DEVICE, GET_DESCRIPTOR): self._descriptor,
            (IN | DEVICE, GET_CONFIGURATION): lambda setup, data: bytes([self._configuration]),
            (OUT | DEVICE, SET_CONFIGURATION): self._set_configuration,
            (IN | INTERFACE, GET_INTERFACE): lambda setup, data: (
                bytes([self._setting]) if self._configuration else Silence.STALL
            ),
            (OUT | INTERFACE, SET_INTERFACE): self._set_interface,
            (OUT | CLASS_INTERFACE, BULK_ONLY_RESET): self._bulk_only_reset,
            (IN | CLASS_INTERFACE, GET_MAX_LUN): self._max_lun,
        }

    def bus_reset(self) -> None:
        """Return to the unconfigured state, after the host has reset the device."""
        self._sleeps = 0
        self._configure(0, 0)

    def control(self, setup: Setup, data: bytes) -> Job[Answer]:
        """Answer a control request; unknown requests are stalled."""
        yield REQUEST_US
        request = self._requests.get((setup.request_type, setup.request))
        answer: Answer = Silence.STALL if request is None else request(setup, data)
        return answer if isinstance(answer, Silence) else answer[: setup.length]

    def _configure(self, configuration: int, setting: int) -> None:
        """Reset the endpoints and give them to the transport of a setting."""
        chip, uas = self._chip, setting == 1
        self._bot.stop()
        self._uas.stop()
        for endpoint in chip.endpoints.values():
            endpoint.reset()
        self._configuration, self._setting = configuration, setting
        chip.xdata.put(UAS_MODE, chip.xdata.get(UAS_MODE) & ~1 | uas)
        if configuration and uas:
            self._uas.start(streams=chip.speed.super_speed)
        elif configuration:
            self._bot.start(chip.speed.packet_bytes)

    # --- standard requests -------------------------------------------------------------------------------------------
    def _descriptor(self, setup: Setup, data: bytes) -> Answer:
        described, kind, index = self._describe(self._chip.speed), setup.value >> 8, setup.value & 0xFF
        if kind == STRING_TYPE:
            text = struct.pack("<H", ENGLISH) if not index else described.strings.get(index, "").encode("utf-16-le")
            return bytes([2 + len(text), STRING_TYPE]) + text if text else Silence.STALL
        if index:
            return Silence.STALL
        return {
            DEVICE_TYPE: described.device,
            CONFIGURATION_TYPE: described.configuration,
            BOS_TYPE: described.bos,
        }.get(kind) or Silence.STALL

    def _set_configuration(self, setup: Setup, data: bytes) -> Answer:
        if setup.value > 1:
            return Silence.STALL
        self._configure(setup.value, 0)
        return b""

    def _set_interface(self, setup: Setup, data: bytes) -> Answer:
        if not self._configuration or setup.index or setup.value >= self._settings:
            return Silence.STALL
        self._configure(1, setup.value)
        return b""

    def _sleep(self, setup: Setup, *, on: bool) -> Answer:
        bit = SLEEPS.get(setup.value) if self._chip.speed.super_speed and self._configuration else None
        if bit is None:
            return Silence.STALL
        self._sleeps = self._sleeps | bit if on else self._sleeps & ~bit
        return b""

    def _function_feature(self, setup: Setup, data: bytes) -> Answer:
        return b"" if self._chip.speed.super_speed and setup.value == FUNCTION_SUSPEND else Silence.STALL

    def _endpoint_status(self, setup: Setup, data: bytes) -> Answer:
        endpoint = self._chip.endpoints.get(setup.index & 0xFF)
        halted = endpoint is not None and endpoint.halted
        return struct.pack("<H", halted) if endpoint is not None or not setup.index & 0x0F else Silence.STALL

    def _halt(self, setup: Setup, *, on: bool) -> Answer:
        address = setup.index & 0xFF
        endpoint = self._chip.endpoints.get(address)
        if setup.value != ENDPOINT_HALT or (endpoint is None and address & 0x0F):
            return Silence.STALL
        if endpoint is None:
            return b""
        if on:
            endpoint.halt()
            return b""
        endpoint.halted = False
        if self._configuration:
            (self._uas if self._setting else self._bot).cleared(address)
        endpoint.on_ready()
        return b""

    # --- class requests ----------------------------------------------------------------------------------------------
    def _bulk_only_reset(self, setup: Setup, data: bytes) -> Answer:
        if not self._configuration or self._setting or setup.value or setup.index or setup.length:
            return Silence.STALL
        self._bot.reset()
        return b""

    def _max_lun(self, setup: Setup, data: bytes) -> Answer:
        if not self._configuration or self._setting or setup.value or setup.index or setup.length != 1:
            return Silence.STALL
        return b"\0"  # LUN 0 is the only one
