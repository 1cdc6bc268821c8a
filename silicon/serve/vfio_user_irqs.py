"""Interrupts from a served function to its peer: the peer's eventfds, by kind and vector.

A vector that is raised while it has no eventfd is kept: when an interrupt moves to another processor, monitors remove
the whole set and add it again while the machine runs. The possible requests for each kind, and the errors, are those of
Linux's vfio-pci. Sources: linux/vfio.h, VFIO_DEVICE_SET_IRQS; drivers/vfio/vfio_main.c,
vfio_set_irqs_validate_and_prepare; vfio_pci_intrs.c.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Sequence

from ringup.autogen.linux import vfio
from ringup.silicon.serve.vfio_user_wire import Refused

INTX, MSI, MSIX = vfio.VFIO_PCI_INTX_IRQ_INDEX, vfio.VFIO_PCI_MSI_IRQ_INDEX, vfio.VFIO_PCI_MSIX_IRQ_INDEX
KINDS = vfio.VFIO_PCI_REQ_IRQ_INDEX + 1
NAMES = ("INTx", "MSI", "MSI-X", "ERR", "REQ")
NONE, BOOL, EVENTFD = vfio.VFIO_IRQ_SET_DATA_NONE, vfio.VFIO_IRQ_SET_DATA_BOOL, vfio.VFIO_IRQ_SET_DATA_EVENTFD
MASK, UNMASK = vfio.VFIO_IRQ_SET_ACTION_MASK, vfio.VFIO_IRQ_SET_ACTION_UNMASK
TRIGGER = vfio.VFIO_IRQ_SET_ACTION_TRIGGER
KNOWN = vfio.VFIO_IRQ_SET_DATA_TYPE_MASK | vfio.VFIO_IRQ_SET_ACTION_TYPE_MASK
ONE = (1).to_bytes(8, "little")  # the value written to an eventfd: eventfd(2)


class Irqs:
    """The eventfds of one peer. INTx is a level: sending it masks it, and after an unmask it is sent again while its
    line is asserted.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        """`counts`: the number of vectors of each kind."""
        self.counts = tuple(counts)
        self._eventfds: dict[tuple[int, int], int] = {}
        self._kept: set[tuple[int, int]] = set()
        self._intx_masked = False
        self.intx_up = False

    def flags(self, index: int) -> int:
        """Return the flags of a kind."""
        if not self.counts[index]:
            return 0
        if index == INTX:
            return vfio.VFIO_IRQ_INFO_EVENTFD | vfio.VFIO_IRQ_INFO_MASKABLE | vfio.VFIO_IRQ_INFO_AUTOMASKED
        return vfio.VFIO_IRQ_INFO_EVENTFD | vfio.VFIO_IRQ_INFO_NORESIZE

    def set(self, index: int, start: int, count: int, flags: int, data: bytes, descriptors: list[int]) -> None:
        """Execute a peer's request for a range of vectors; descriptors that are kept are removed from the list. Raises
        `Refused` without any change.
        """
        kind, action = flags & vfio.VFIO_IRQ_SET_DATA_TYPE_MASK, flags & vfio.VFIO_IRQ_SET_ACTION_TYPE_MASK
        if kind not in (NONE, BOOL, EVENTFD) or flags & ~KNOWN:
            raise Refused(errno.EINVAL, f"interrupts with flags {flags:#x}")
        if index >= KINDS or start >= self.counts[index] or start + count > self.counts[index]:
            raise Refused(errno.EINVAL, f"interrupts {start} to {start + count} of kind {index}")
        if kind == BOOL and not 0 < count <= len(data):
            raise Refused(errno.EINVAL, f"{len(data)} booleans for {count} interrupts")
        if kind == EVENTFD and descriptors and (len(descriptors) != count or not all(map(_is_eventfd, descriptors))):
            raise Refused(errno.EINVAL, f"{len(descriptors)} descriptors, eventfds or not, for {count} interrupts")
        chosen = [number for number in range(start, start + count) if kind != BOOL or data[number - start]]
        if action == TRIGGER:
            self._trigger(index, chosen, kind, descriptors, count)
        elif action in (MASK, UNMASK) and index == INTX and kind != EVENTFD:
            if count != 1 or not self._armed(INTX):
                raise Refused(
                    errno.EINVAL, f"{count} masks for INTx, which is {'' if self._armed(INTX) else 'not '}set up"
                )
            if chosen:
                self._intx_masked = action == MASK
                self._update_intx()
        else:
            raise Refused(errno.ENOTTY, f"{NAMES[index]} cannot be masked in that way")

    def _trigger(self, index: int, chosen: list[int], kind: int, descriptors: list[int], count: int) -> None:
        if kind == EVENTFD:
            if not count:
                raise Refused(errno.EINVAL, "eventfds for 0 interrupts")
            self._arm(index, chosen, descriptors)
        # without data: all of the kind, even if none is set up
        elif not count:
            self._release(key for key in tuple(self._eventfds) if key[0] == index)
        elif not self._armed(index):
            raise Refused(errno.EINVAL, f"{NAMES[index]} is not set up and cannot be triggered")
        else:
            for number in chosen:
                if (index, number) in self._eventfds:
                    self.signal(index, number)

    def _armed(self, index: int) -> bool:
        return any(key[0] == index for key in self._eventfds)

    def _arm(self, index: int, chosen: list[int], descriptors: list[int]) -> None:
        self._release((index, number) for number in chosen)
        for number in chosen if descriptors else ():
            self._eventfds[index, number] = descriptors.pop(0)
            if index == INTX:
                self._intx_masked = False
                self._update_intx()
            elif (index, number) in self._kept:
                self._kept.remove((index, number))
                self.signal(index, number)

    def _release(self, keys: Iterable[tuple[int, int]]) -> None:
        for key in tuple(keys):
            if key in self._eventfds:
                os.close(self._eventfds.pop(key))

    def signal(self, index: int, number: int) -> None:
        """Send a vector, or keep it until it has an eventfd."""
        descriptor = self._eventfds.get((index, number))
        if descriptor is None:
            if index != INTX:
                self._kept.add((index, number))
            return
        # ORDER: right before the write: the peer shares the file, and can fill it and make it blocking at any time
        os.set_blocking(descriptor, False)
        # the counter is at its maximum: the peer has not read it and finds it set
        with contextlib.suppress(BlockingIOError):
            os.write(descriptor, ONE)

    def intx(self, up: bool) -> None:
        """Assert or deassert the INTx line."""
        self.intx_up = up
        self._update_intx()

    def _update_intx(self) -> None:
        if self.intx_up and not self._intx_masked and (INTX, 0) in self._eventfds:
            self._intx_masked = True
            self.signal(INTX, 0)

    def forget(self) -> None:
        """Drop kept vectors: the function was reset."""
        self._kept.clear()
        self.intx_up = False

    def close(self) -> None:
        """Close every descriptor."""
        self._release(tuple(self._eventfds))
        self.forget()


def _is_eventfd(descriptor: int) -> bool:
    """Whether a descriptor is an eventfd: only there does a write of 8 bytes add to a counter without blocking."""
    named = os.readlink(f"/proc/self/fd/{descriptor}")
    # with O_PATH a descriptor only names the file
    return named == "anon_inode:[eventfd]" and not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_PATH
