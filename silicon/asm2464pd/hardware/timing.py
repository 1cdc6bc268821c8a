"""Durations and rates of a virtual enclosure: USB generations, the bridge's engines and CPU, the PCI Express side.

Rates are bytes per microsecond (MB/s), times are microseconds. Values that no source measured are marked GUESS.
"""

from __future__ import annotations

from dataclasses import dataclass

# of a SuperSpeed data packet: framing, header, link control word, CRC-32. Source: USB 3.2, 7.2.1 and 7.2.2
HEADER_BYTES = 40
# GUESS: share left by credits, acknowledgements and skip ordered sets
FLOW_CONTROL = 0.935


def _payload(signalling: float, coding: float, lanes: int = 1) -> float:
    """Return bytes of payload in a microsecond; `signalling` in Mb/s per lane."""
    return lanes * signalling / 8 * coding * 1024 / (1024 + HEADER_BYTES) * FLOW_CONTROL


@dataclass(frozen=True, slots=True)
class Speed:
    """One speed of a USB link."""

    name: str
    number: int  # LIBUSB_SPEED_*
    # bits 1:0 of XDATA 9100. Source: registers.h, REG_USB_LINK_STATUS
    code: int
    packet_bytes: int  # of a bulk endpoint
    ep0_bytes: int
    bytes_per_us: float
    # wire time of a control transfer without data
    control_us: float
    data_stage_us: float

    @property
    def super_speed(self) -> bool:
        """Whether it is USB 3."""
        return self.packet_bytes == 1024


SPEEDS = {
    speed.name: speed
    for speed in (
        # a microframe of 125 us fits at most 13 packets of 512 bytes (53 MB/s); hosts schedule 10. Source: USB 2.0,
        # table 5-10
        Speed("high", 3, 1, 512, 64, 40.0, 243.0, 0.0),
        Speed("super", 4, 2, 1024, 512, _payload(5_000, 8 / 10), 5.0, 2.0),
        Speed("super_plus", 5, 3, 1024, 512, _payload(10_000, 128 / 132), 5.0, 2.0),
        Speed("super_plus_by2", 6, 3, 1024, 512, _payload(10_000, 128 / 132, 2), 5.0, 2.0),
    )
}

# --- the host -----------------------------------------------------------------------------------------------------
# GUESS: from a completion to the waiting thread, and its next request to the wire
TURNAROUND_US = 8.0
# GUESS: start of a bulk transfer on an idle endpoint
BULK_START_US = 3.0
# GUESS: debounce, reset, address and descriptors of a new device
ENUMERATION_US = 150_000

# --- the bridge's CPU -----------------------------------------------------------------------------------------------
# GUESS: interrupt and handler of one control request; including the wire 12 us, or 14 us with data
CONTROL_CPU_US = 7.0
# GUESS: from a request of the TLP engine to its completion
TLP_US = 2.0
# per dword: 3.6 MB/s. Source: asm2464pd-firmware README
STREAM_WRITE_US = 1.1
# per dword: 1.8 MB/s. Source: asm2464pd-firmware README
STREAM_READ_US = 2.2
XDATA_BYTE_US = 0.3  # GUESS: one iteration of `E4`'s copy loop
# GUESS: the rest of F0's handler, which first sends its status to the host. Source: main.c, handle_usb_control
AFTER_STATUS_US = 6.0
# GUESS: 500,000 iterations of the loop that waits for a completion. Source: main.c, handle_usb_control
POLL_LIMIT_US = 300_000

# --- the bridge's SRAM --------------------------------------------------------------------------------------------
# chosen so that one request of 512 KiB, including waits, moves 700 MB/s. Source: asm2464pd-firmware README (measured)
SRAM_BYTES_PER_US = 730.0
# GUESS: from the last byte on USB until it is in memory
SRAM_LANDING_US = 15.0

# --- PCI Express ------------------------------------------------------------------------------------------------------
# GUESS: within range A of PCI Express 4.0, 7.5.3.16
COMPLETION_TIMEOUT_US = 10_000.0
# a GPU answers Detect 20 to 50 ms after 3.3 V is on. Source: asm2464pd-firmware pull request 81 (measured)
DETECT_US = 50_000.0
TRAINING_US = 20_000.0  # GUESS: from Detect to L0
# GUESS: how long after link up a card answers configuration requests with a retry
RETRY_STATUS_US = 80_000.0

# --- the whole chip ---------------------------------------------------------------------------------------------------
# from a CPU restart to the firmware's first instruction that matters. Source: registers.h, CC31 (measured)
RESTART_US = 320_000.0
