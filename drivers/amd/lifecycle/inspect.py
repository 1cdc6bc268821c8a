"""A card as it is found: configuration space, registers, memory, its blocks. Nothing is started or stopped.

For commands that show what a card is, read the memory of a card that was left running, or shut one down. A card that
another process holds is read through a device that refuses writes; then only what lies in the windows can be seen.
"""

from __future__ import annotations

from functools import cached_property

from ringup.drivers.amd.board import mark
from ringup.drivers.amd.board.mark import Mark, State
from ringup.drivers.amd.bus.discovery import BLOCKS, Ips, discover, memory
from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.lifecycle.bringup import decode_memory
from ringup.drivers.amd.memory.layout import Layout
from ringup.drivers.amd.psp.ring import mailbox_of
from ringup.drivers.amd.smu import published as smu_published
from ringup.drivers.left import HELD, AsFound
from ringup.drivers.transport.seam import Device
from ringup.errors import NotSupported

AMD = 0x1002
COLD, CLEAN, LEFT, FOREIGN = (
    "cold: nothing runs on it",
    "at rest: its last driver closed it, and left its firmware for the next start",
    "left running: the process that drove it is gone",
    "running: another driver's firmware is on it",
)


class Bare(AsFound):
    """One card as found. One that this process holds is read through index registers too, which reach beyond the
    windows.
    """

    VENDOR, MAKER = AMD, "AMD"

    def __init__(self, device: Device, *, own: bool = True) -> None:
        """Wake the card if this process holds it. Raises `DeviceLost`, `NotSupported` for another vendor's card or one
        without its own memory.
        """
        super().__init__(device, own=own)
        self.registers = Registers(device)

    def _wake(self) -> None:
        decode_memory(self.device)

    @cached_property
    def window(self) -> VramWindow:
        """The card's memory."""
        return memory(self.device, self.registers)

    @cached_property
    def ips(self) -> Ips:
        """The card's blocks. Raises `NotSupported` where only the card's holder may read their table."""
        if not self.own and self.window.visible_bytes < self.window.size_bytes:
            raise NotSupported(
                f"{self.device.name}: its table of blocks lies beyond the window of {self.window.visible_bytes >> 20} MiB, where only its "
                "holder may look; switch resizable BAR on, or wait for the holder"
            )
        return discover(self.device, self.registers)[0]

    @property
    def secure_os(self) -> bool:
        """Whether a secure OS runs: some driver has started the card since its last reset."""
        block = self.ips.block("mp0")
        return int(block.read(mailbox_of(block.version).sign_of_life)) != 0

    @property
    def core_awake(self) -> bool:
        """Whether the graphics core's registers may be read: a read may hang when the core is switched off.

        Nothing switches off a core that was not started, and ringup leaves it on. UNKNOWN: another driver may have left
        it off, which no register outside the core shows; it is read all the same, as by every start. The core of a card
        that another process drives is read if that process runs ringup.
        """
        return self.own or self.published is not None

    def mark(self) -> Mark | None:
        """Return the mark of ringup. Only where a secure OS runs: the graphics core may be off without one."""
        return mark.read(self.ips.cores[0])

    @property
    def published(self) -> smu_published.Published | None:
        """The metrics that the card's holder read last from its power controller; None when there are none."""
        page = Layout(self.window.size_bytes).metrics
        if page + smu_published.PAGE_BYTES > self.window.visible_bytes:
            return None
        return smu_published.published(self.window, page)

    def state(self) -> str:
        """Return in which state the card was found."""
        if not self.own:
            return HELD
        if not self.secure_os:
            return COLD
        left = self.mark()
        if left is None:
            return FOREIGN
        return CLEAN if left.state == State.CLEAN else LEFT

    def versions(self) -> dict[str, str]:
        """Return the version of every block that the driver knows by name."""
        table = self.ips.table
        seen = {name: table.find(hw_id) for name, (hw_id, *_) in BLOCKS.items()}
        return {name: ".".join(map(str, ips[0].version)) for name, ips in seen.items() if ips}
