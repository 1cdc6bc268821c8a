"""Configuration space of a PCI function through a file of the kernel: registers, capabilities, power state, what is
restored after a reset.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ringup.autogen.linux import pci
from ringup.drivers.transport.seam import Clock, ConfigSpace
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceLost, DeviceTimeout

# the value of reads from a function that does not exist
ABSENT = 0xFFFF_FFFF
GONE = "is gone from the bus; check power and cable, then open it again"  # what is said of one
# TIMEOUT: a function answers within 1 s of a reset. Source: PCI Express base specification, "Conventional Reset"
ANSWER_US = 1_000_000
POLL_US = 1_000
# D3hot to D0. Source: PCI power management specification 1.2, table 5-6
WAKE_US = 10_000
# the other bits are reserved and read as zero. Source: PCI local bus specification 3.0, 6.2.2
COMMAND_BITS = 0x07FF
# the registers of a function's header that a reset clears, in the order in which they are restored
HEADER_KEPT = (
    *range(pci.PCI_BASE_ADDRESS_0, pci.PCI_BASE_ADDRESS_5 + 4, 4),
    pci.PCI_ROM_ADDRESS,
    pci.PCI_CACHE_LINE_SIZE,  # its dword: cache line size, latency timer
    pci.PCI_INTERRUPT_LINE,
    # ORDER: last, because it enables decoding
    pci.PCI_COMMAND,
)


class NodeConfig:
    """The seam's `ConfigSpace` over `config` of sysfs or a region of VFIO. A failed call means that nothing answers."""

    def __init__(self, node: int, start: int = 0) -> None:
        self._node, self._start = node, start

    def read(self, offset: int, size_bytes: int = 4) -> int:
        """Read 1, 2 or 4 bytes inside a dword; all ones when nothing answers."""
        self._check(offset, size_bytes)
        try:
            data = os.pread(self._node, size_bytes, self._start + offset)
        except OSError:
            data = b""
        return int.from_bytes(data, "little") if len(data) == size_bytes else (1 << 8 * size_bytes) - 1

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Write 1, 2 or 4 bytes inside a dword."""
        self._check(offset, size_bytes)
        data = value.to_bytes(size_bytes, "little")
        try:
            os.pwrite(self._node, data, self._start + offset)
        # the write was not accepted: the next read shows it
        except OSError:
            return

    def _check(self, offset: int, size_bytes: int) -> None:
        if size_bytes not in (1, 2, 4) or offset % size_bytes or not 0 <= offset < pci.PCI_CFG_SPACE_EXP_SIZE:
            raise ValueError(f"configuration space has no {size_bytes} bytes at {offset:#x}")


def answers(config: ConfigSpace) -> bool:
    """Whether a function is there and answers.

    QUIRK: its class and revision show that, not its vendor: VFIO returns the ids from a copy, also for a function that
    is gone. Source: Linux vfio_pci_config.c, init_pci_cap_basic_perm
    """
    return config.read(pci.PCI_CLASS_REVISION) != ABSENT


def ask(config: ConfigSpace, offset: int, size_bytes: int = 4, doing: str = "reading configuration space") -> int:
    """Read 1, 2 or 4 bytes of a function that must be there. A lost function reads as all ones, so all ones are
    checked.

    Raises `DeviceLost` when nothing answers. Use it for every read whose value decides something or is written back.
    """
    value = config.read(offset, size_bytes)
    if value != (1 << 8 * size_bytes) - 1:
        return value
    if not answers(config):
        raise DeviceLost(
            f"{doing}: register {offset:#x} reads {value:#x} and nothing answers at its place on the bus: the card {GONE}"
        )
    # the link may have been away for a moment: what it read as then is no value of the register's
    return config.read(offset, size_bytes)


def capabilities(config: ConfigSpace) -> Iterator[tuple[int, int]]:
    """Yield (id, offset) of the standard capabilities. A loop, or a pointer outside the header, ends the walk: a card's
    list may be broken.

    Raises `DeviceLost` for a function that does not answer.
    """
    doing = "looking for a capability"
    if not ask(config, pci.PCI_STATUS, 2, doing) & pci.PCI_STATUS_CAP_LIST:
        return
    at = ask(config, pci.PCI_CAPABILITY_LIST, 1, doing) & ~3
    seen: set[int] = set()
    while at >= pci.PCI_STD_HEADER_SIZEOF and at not in seen:
        seen.add(at)
        yield ask(config, at + pci.PCI_CAP_LIST_ID, 1, doing), at
        at = ask(config, at + pci.PCI_CAP_LIST_NEXT, 1, doing) & ~3


def find_capability(config: ConfigSpace, wanted: int) -> int | None:
    """Return the offset of a standard capability, None where the function has none."""
    return next((at for kind, at in capabilities(config) if kind == wanted), None)


def wake(config: ConfigSpace, clock: Clock) -> None:
    """Bring the function to D0, so that it decodes memory requests. Raises `DeviceTimeout` when it stays asleep,
    `DeviceLost` when gone.
    """
    at = find_capability(config, pci.PCI_CAP_ID_PM)
    if at is None:
        return
    control = ask(config, at + pci.PCI_PM_CTRL, 2, "waking the card")
    if not control & pci.PCI_PM_CTRL_STATE_MASK:
        return
    config.write(at + pci.PCI_PM_CTRL, control & ~pci.PCI_PM_CTRL_STATE_MASK, 2)
    clock.sleep_us(WAKE_US)
    control = ask(config, at + pci.PCI_PM_CTRL, 2, "waking the card")
    if control & pci.PCI_PM_CTRL_STATE_MASK:
        raise DeviceTimeout(
            f"waking the card: PCI_PM_CTRL read {control:#06x} (D{control & pci.PCI_PM_CTRL_STATE_MASK}) after {WAKE_US / 1000:g} ms"
        )


def change_command(config: ConfigSpace, *, on: int = 0, off: int = 0) -> None:
    """Switch bits of the command register on and off. Raises `DeviceLost` and writes nothing when the function does not
    answer.
    """
    command = ask(config, pci.PCI_COMMAND, 2, "changing the command register")
    config.write(pci.PCI_COMMAND, command & COMMAND_BITS & ~off | on, 2)


def set_master(config: ConfigSpace, *, on: bool) -> None:
    """Switch the function's bus mastering. Raises `DeviceLost`, and writes nothing, for a function that is gone."""
    master = pci.PCI_COMMAND_MASTER
    change_command(config, on=master if on else 0, off=0 if on else master)


def power_state(config: ConfigSpace) -> int:
    """Return the function's power state: 0 for D0, 3 for D3hot; 0 for one without power management. Raises
    `DeviceLost`.
    """
    at = find_capability(config, pci.PCI_CAP_ID_PM)
    if at is None:
        return 0
    return ask(config, at + pci.PCI_PM_CTRL, 2, "reading the power state") & pci.PCI_PM_CTRL_STATE_MASK


def save(config: ConfigSpace, doing: str = "saving the header") -> dict[int, int]:
    """Return the header registers that a reset loses. Raises `DeviceLost` when one cannot be read: ones must never be
    written back.
    """
    saved = {offset: ask(config, offset, 4, doing) for offset in HEADER_KEPT}
    for offset, value in saved.items():
        # none can be: a BAR's low bits are its kind, the others hold a pin, a header's type or reserved bits
        if value == ABSENT:
            raise DeviceLost(
                f"{doing}: register {offset:#x} reads {value:#x} twice, and no function's does: its link is failing; "
                "check power and cable, then open the card again"
            )
    command = saved[pci.PCI_COMMAND] & 0xFFFF
    if command & ~COMMAND_BITS:
        raise DeviceLost(
            f"{doing}: the command register reads {command:#06x}, which no function has: its link is failing; "
            "check power and cable, then open the card again"
        )
    return saved


def restore(config: ConfigSpace, saved: dict[int, int], *, always: bool = False) -> None:
    """Write back what differs, or all of it. The status half of the command register stays: ones would clear it."""
    for offset, value in saved.items():
        if offset == pci.PCI_COMMAND:
            config.write(offset, value & 0xFFFF, 2)
        elif always or config.read(offset) != value:
            config.write(offset, value)


def wait_for_answer(config: ConfigSpace, clock: Clock, doing: str) -> None:
    """Wait until the function answers after a reset. Raises `DeviceLost` when it does not within a second."""
    if not poll(lambda: answers(config), bool, clock=clock, timeout_us=ANSWER_US, poll_us=POLL_US):
        raise DeviceLost(
            f"{doing}: its class and revision read {ABSENT:#x} for {ANSWER_US / 1000:g} ms; switch the card's power off and on"
        )
