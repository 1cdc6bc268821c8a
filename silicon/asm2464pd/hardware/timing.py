"""How long things take on a virtual enclosure: USB generations, the bridge's engines and its CPU, the PCI Express side.

Rates are bytes per microsecond (MB/s), times microseconds. What no source measured is marked GUESS.
"""

from __future__ import annotations

from dataclasses import dataclass

# of a SuperSpeed data packet: framing, header, link control word, CRC-32. Source: USB 3.2, 7.2.1 and 7.2.2
HEADER_BYTES = 40
FLOW_CONTROL = 0.935  # GUESS: what credits, acknowledgements and skip ordered sets leave


def _payload(signalling: float, coding: float, lanes: int = 1) -> float:
    """Return bytes of payload a microsecond; `signalling` in Mb/s a lane."""
    return lanes * signalling / 8 * coding * 1024 / (1024 + HEADER_BYTES) * FLOW_CONTROL


@dataclass(frozen=True, slots=True)
class Speed:
    """One way a USB link can run."""

    name: str
    number: int  # LIBUSB_SPEED_*
    code: int  # bits 1:0 of XDATA 9100. Source: registers.h, REG_USB_LINK_STATUS
    packet_bytes: int  # of a bulk endpoint
    ep0_bytes: int
    bytes_per_us: float
    control_us: float  # a control transfer without data on the wire, the CPU's part left out
    data_stage_us: float

    @property
    def super_speed(self) -> bool:
        """Whether it is USB 3."""
        return self.packet_bytes == 1024


SPEEDS = {
    speed.name: speed
    for speed in (
        # 13 packets of 512 bytes in a microframe of 125 us are the most that fits (53 MB/s); hosts schedule 10. Source:
        # USB 2.0, table 5-10
        Speed("high", 3, 1, 512, 64, 40.0, 243.0, 0.0),
        Speed("super", 4, 2, 1024, 512, _payload(5_000, 8 / 10), 5.0, 2.0),
        Speed("super_plus", 5, 3, 1024, 512, _payload(10_000, 128 / 132), 5.0, 2.0),
        Speed("super_plus_by2", 6, 3, 1024, 512, _payload(10_000, 128 / 132, 2), 5.0, 2.0),
    )
}

# --- the host -----------------------------------------------------------------------------------------------------
TURNAROUND_US = 8.0  # GUESS: from a completion to the thread that waits, and its next request to the wire
BULK_START_US = 3.0  # GUESS: a bulk transfer on an endpoint that had nothing to do
ENUMERATION_US = 150_000  # GUESS: debounce, reset, address and descriptors after a device attached

# --- the bridge's CPU -----------------------------------------------------------------------------------------------
# GUESS: the interrupt and the handler of one control request; with the wire 12 us, 14 us with data
CONTROL_CPU_US = 7.0
TLP_US = 2.0  # GUESS: one request of the TLP engine to its completion
STREAM_WRITE_US = 1.1  # a dword: 3.6 MB/s. Source: asm2464pd-firmware README
STREAM_READ_US = 2.2  # a dword: 1.8 MB/s. Source: asm2464pd-firmware README
XDATA_BYTE_US = 0.3  # GUESS: a turn of the loop that copies one byte for `E4`
# GUESS: the rest of F0's handler, which begins by letting the host have its status. Source: main.c, handle_usb_control
AFTER_STATUS_US = 6.0
# GUESS: 500,000 rounds of the loop that waits for a completion. Source: main.c, handle_usb_control
POLL_LIMIT_US = 300_000

# --- the bridge's SRAM --------------------------------------------------------------------------------------------
# so that one request of 512 KiB, waits included, moves 700 MB/s. Source: asm2464pd-firmware README (measured)
SRAM_BYTES_PER_US = 730.0
SRAM_LANDING_US = 15.0  # GUESS: the last byte is taken from USB before it is in the memory

# --- PCI Express ------------------------------------------------------------------------------------------------------
COMPLETION_TIMEOUT_US = 10_000.0  # GUESS: within range A of PCI Express 4.0, 7.5.3.16
# a GPU answers Detect 20 to 50 ms after its 3.3 V came. Source: asm2464pd-firmware pull request 81 (measured)
DETECT_US = 50_000.0
TRAINING_US = 20_000.0  # GUESS: from Detect to L0
RETRY_STATUS_US = 80_000.0  # GUESS: how long a card answers configuration requests with a retry after its link came up

# --- the whole chip ---------------------------------------------------------------------------------------------------
# from a CPU restart to the firmware's first instruction that matters. Source: registers.h, CC31 (measured)
RESTART_US = 320_000.0
