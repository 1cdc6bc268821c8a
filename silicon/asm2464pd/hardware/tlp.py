"""The TLP engine: XDATA registers B210 to B298, through which firmware, or a host by way of it, sends one-dword PCI
Express requests.

Source: usb-to-pcie-re ASM2x6x/tools (working code), asm2464pd-firmware registers.h and pcie_pio.h. Fields are
big-endian bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.silicon.asm2464pd.hardware import timing
from ringup.silicon.asm2464pd.hardware.fabric import NO_COMPLETION, SUCCESS, UNSUPPORTED, Fabric
from ringup.silicon.asm2464pd.hardware.faults import strikes
from ringup.silicon.asm2464pd.hardware.xdata import Xdata
from ringup.silicon.common.clock import Timer, VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog

FORMAT, LENGTH, ENABLES, ADDRESS, ADDRESS_HIGH, DATA, COMPLETION = (
    0xB210,
    0xB213,
    0xB217,
    0xB218,
    0xB21C,
    0xB220,
    0xB224,
)
EXECUTE, CARRIED_DATA, STATUS = 0xB254, 0xB284, 0xB296
ERROR, DONE, SEND, RESET = 1, 2, 4, 8  # bits of B296
GO = 0x0F
HAS_DATA, WIDE = 0x40, 0x20  # bits of the format byte
CONFIG_READS, CONFIG_WRITES = {0x04: 0, 0x05: 1}, {0x44: 0, 0x45: 1}
MEMORY_READS, MEMORY_WRITES = (0x00, 0x20), (0x40, 0x60)
CPL, CPLD = 0x0A, 0x4A
# UNKNOWN: whether B296 may have other bits besides done; here its bit 2 is set in one of so many completions
LINGERS_EVERY = 8
# registers that must be written between a reset of the chip and a request
REQUIRED = (FORMAT, ENABLES, *range(ADDRESS, ADDRESS + 4))


class TlpEngine:
    """Sends a request from its registers once B254 = 0F and B296 bit 2 have both been written, in either order.

    Done and error stay set until a 1 is written to them; a posted request sets neither. UNKNOWN: what happens to a
    request while the slot's link is down; here every request with a completion ends with the error bit.
    """

    def __init__(self, xdata: Xdata, fabric: Fabric, clock: VirtualClock, faults: Faults, log: EventLog) -> None:
        self._xdata, self._fabric, self._clock, self._faults, self._log = xdata, fabric, clock, faults, log
        self.sent = 0  # requests so far
        self._flight: Timer | None = None
        self._armed: set[int] = set()
        self._given: set[int] = set()
        xdata.storage(FORMAT, COMPLETION + 11)
        for address in (CARRIED_DATA, *range(COMPLETION, COMPLETION + 12)):
            xdata.read_only(address)
        for address in REQUIRED:
            xdata.on_write(address, self._note_field(address))
        xdata.write_one_clears(STATUS, ERROR | DONE)
        xdata.on_write(STATUS, self._status_written)
        xdata.on_write(EXECUTE, self._execute_written)

    def reset(self) -> None:
        """Drop the request in flight, and the record of written registers."""
        if self._flight is not None:
            self._flight.cancel()
        self._flight = None
        self._armed.clear()
        self._given.clear()

    def _note_field(self, address: int) -> Callable[[int], None]:
        return lambda value: self._given.add(address)

    # --- the registers --------------------------------------------------------------------------------------------
    def _status_written(self, value: int) -> None:
        if value & RESET:
            self.reset()
            self._xdata.put(STATUS, 0)
            return
        self._xdata.put(STATUS, self._xdata.get(STATUS) & (ERROR | DONE))
        if value & SEND:
            self._arm(STATUS)

    def _execute_written(self, value: int) -> None:
        if value == GO:
            self._arm(EXECUTE)
            # ready, waits for the bit to send
            if self._armed:
                self._xdata.put(STATUS, self._xdata.get(STATUS) | SEND)

    def _arm(self, register: int) -> None:
        self._armed.add(register)
        if len(self._armed) == 2:
            self._armed.clear()
            self._send()

    def address(self) -> int:
        """Return the address in the registers; the upper half only for 64-bit formats."""
        low = int.from_bytes(self._xdata.get_bytes(ADDRESS, 4), "big")
        if not self._xdata.get(FORMAT) & WIDE:
            return low
        return int.from_bytes(self._xdata.get_bytes(ADDRESS_HIGH, 4), "big") << 32 | low

    def _send(self) -> None:
        xdata = self._xdata
        if self._flight is not None:
            self._log.note("bridge", "violation", "a request was sent while another was in flight")
            self._flight.cancel()
            self._flight = None
        kind, enables, address = xdata.get(FORMAT), xdata.get(ENABLES), self.address()
        wrong = self._wrong(kind, enables, address)
        if wrong:
            self._log.note("bridge", "violation", "the TLP engine was given {}", wrong)
            self._fail_later(timing.TLP_US)
            return
        self.sent += 1
        value = int.from_bytes(xdata.get_bytes(DATA, 4), "big") if kind & HAS_DATA else None
        if kind in MEMORY_WRITES:
            assert value is not None
            if not self._fabric.write(address, enables, value):
                self._unclaimed(address, "written")
            return
        fault = self.fault()
        if fault == "tlp_hang":
            return
        if fault in ("tlp_timeout", "tlp_glitch") or not self._fabric.linked:
            self._fail_later(timing.COMPLETION_TIMEOUT_US if fault == "tlp_timeout" else timing.TLP_US)
            return
        self._flight = self._clock.after(timing.TLP_US, lambda: self._complete(kind, enables, address, value, fault))

    def _wrong(self, kind: int, enables: int, address: int) -> str:
        if missing := [register for register in REQUIRED if register not in self._given]:
            return f"no value in {missing[0]:04X}"
        if self._xdata.get(LENGTH) != 1:
            return f"a length of {self._xdata.get(LENGTH)} dwords; it sends one"
        if kind not in (*CONFIG_READS, *CONFIG_WRITES, *MEMORY_READS, *MEMORY_WRITES):
            return f"format {kind:#04x}, which it does not send"
        if address & 3 or enables > 0xF:
            return f"address {address:#x} with byte enables {enables:#x}"
        return ""

    def _complete(self, kind: int, enables: int, address: int, value: int | None, fault: str) -> None:
        self._flight = None
        status, data = self.perform(kind, enables, address, value) if not fault else (UNSUPPORTED, 0)
        if status == NO_COMPLETION:
            self._fail_later(timing.COMPLETION_TIMEOUT_US)
            return
        self._answer(kind, enables, address, status, data)

    def perform(self, kind: int, enables: int, address: int, value: int | None) -> tuple[int, int]:
        """Execute a request that has a completion; return (status, dword)."""
        if kind in CONFIG_READS:
            return self._fabric.config(CONFIG_READS[kind], address, enables, None)
        if kind in CONFIG_WRITES:
            return self._fabric.config(CONFIG_WRITES[kind], address, enables, value)
        status, data = self._fabric.read(address, enables)
        if status == UNSUPPORTED:
            self._unclaimed(address, "read")
        return status, data

    def _answer(self, kind: int, enables: int, address: int, status: int, data: int) -> None:
        """Store the completion: its header in B224 to B22F, its data in B220 to B223."""
        xdata = self._xdata
        carries = status == SUCCESS and not kind & HAS_DATA
        count = 4 if kind & 0x04 else max(1, enables.bit_length() - (enables & -enables).bit_length() + 1)
        lower = address & 0x7C | max(0, (enables & -enables).bit_length() - 1) if kind in MEMORY_READS else 0
        header = (
            (CPLD if carries else CPL) << 24 | (1 if carries else 0),
            status << 13 | count,
            lower,
        )
        xdata.put_bytes(COMPLETION, b"".join(word.to_bytes(4, "big") for word in header))
        xdata.put(CARRIED_DATA, int(carries))
        if carries:
            xdata.put_bytes(DATA, data.to_bytes(4, "big"))
        lingers = SEND if self.sent % LINGERS_EVERY == 0 else 0
        xdata.put(STATUS, xdata.get(STATUS) & (ERROR | DONE) | DONE | lingers)

    def _fail_later(self, delay_us: float) -> None:
        def fail() -> None:
            self._flight = None
            self._xdata.put(STATUS, self._xdata.get(STATUS) & (ERROR | DONE) | ERROR)

        self._flight = self._clock.after(delay_us, fail)

    def _unclaimed(self, address: int, verb: str) -> None:
        self._log.note("pci", "unclaimed", "{:#x} was {} and no function claims it", address, verb)

    def fault(self) -> str:
        """Return the fault for this request, empty for none. Only requests with a completion have faults: the link
        layer repeats a damaged posted write, unseen by its sender. Source: PCI Express 4.0, 3.6.
        """
        for name in ("tlp_timeout", "tlp_hang", "tlp_glitch", "unsupported_request"):
            if strikes(self._faults, name):
                return name
        return ""

    # --- many dwords ------------------------------------------------------------------------------------------------
    def stream_write(self, data: bytes) -> None:
        """Send `data` as one-dword memory writes, starting at the address in the registers, which advances."""
        xdata, address = self._xdata, self.address()
        for at, count in self._runs(address, len(data)):
            claim = self._fabric.claim(at)
            chunk = data[at - address : at - address + count]
            self.sent += count // 4
            if claim is not None and self._fabric.is_memory(claim):
                self._fabric.store_run(claim, at, chunk)
                continue
            for offset in range(0, count, 4):
                value = int.from_bytes(chunk[offset : offset + 4], "little")
                if not self._fabric.write(at + offset, 0xF, value):
                    self._unclaimed(at + offset, "written")
        xdata.put_bytes(DATA, data[-4:][::-1])
        self._advance(address + len(data))

    def stream_read(self, size_bytes: int) -> bytes | None:
        """Read memory with one-dword requests, starting at the address in the registers, which advances; return None if
        the last request never ends.

        QUIRK: the loop does not distinguish an error from a completion: a failed request returns the old contents of
        the data registers.
        """
        xdata, address, parts = self._xdata, self.address(), []
        last = xdata.get_bytes(DATA, 4)[::-1]
        for at, count in self._runs(address, size_bytes):
            claim = self._fabric.claim(at)
            if claim is not None and self._fabric.is_memory(claim) and not self._striking:
                run = self._fabric.load_run(claim, at, count)
                self.sent += count // 4
                if run is not None:
                    parts.append(run)
                    last = run[-4:]
                    continue
            for offset in range(0, count, 4):
                self.sent += 1
                fault = self.fault()
                if fault == "tlp_hang":
                    return None
                status, value = (UNSUPPORTED, 0) if fault else self._fabric.read(at + offset, 0xF)
                if status == SUCCESS:
                    last = value.to_bytes(4, "little")
                elif status == UNSUPPORTED and not fault:
                    self._unclaimed(at + offset, "read")
                parts.append(last)
        xdata.put_bytes(DATA, last[::-1])
        xdata.put(STATUS, xdata.get(STATUS) | DONE)
        self._advance(address + size_bytes)
        return b"".join(parts)

    @property
    def _striking(self) -> bool:
        return any(
            self._faults.get(name) is not None
            for name in ("tlp_timeout", "tlp_hang", "tlp_glitch", "unsupported_request")
        )

    def _runs(self, address: int, size_bytes: int) -> list[tuple[int, int]]:
        """Split a range of addresses where the claim may change: every 4 KiB."""
        runs, at, end = [], address, address + size_bytes
        while at < end:
            stop = min(end, (at | 0xFFF) + 1)
            runs.append((at, stop - at))
            at = stop
        return runs

    def _advance(self, address: int) -> None:
        self._xdata.put_bytes(ADDRESS, (address & 0xFFFF_FFFF).to_bytes(4, "big"))
        self._xdata.put_bytes(ADDRESS_HIGH, (address >> 32 & 0xFFFF_FFFF).to_bytes(4, "big"))
