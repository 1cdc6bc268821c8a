"""A card that goes away, calls that signals interrupt, refusals at odd places: what the kernel driver answers then."""

import errno
import os
import struct

import pytest

from ringup.autogen.nv import rm, status
from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.drivers.select import start
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.system import Happened, LinuxSystem, ModelSystem
from ringup.errors import DeviceLost, NotSupported, OutOfMemory
from ringup.queues.timeline import Point
from ringup.silicon import nvidia_kernel

CONTROL_AT, STATUS_AT = 8, 28  # of NVOS54_PARAMETERS


class WatchedSystem(ModelSystem):
    """System calls that a test looks at, and may answer itself: `answers(node, escape, data)` returns True then."""

    def __init__(self, answers=lambda node, escape, data: False):
        super().__init__(nvidia_kernel("ga102"), owned=True)
        self.seen, self.hung_up = [], False
        self.answers = answers
        self.ioctl = self._ioctl

    def _ioctl(self, node, request, data):
        self.seen.append((request & 0xFF, bytes(data)))
        if not self.answers(node, request & 0xFF, data):
            self.model.ioctl(node, request, data)

    def poll(self, nodes, timeout_ms):
        return Happened.GONE if self.hung_up else super().poll(nodes, timeout_ms)

    def controls(self):
        return [
            struct.unpack_from("<I", data, CONTROL_AT)[0]
            for escape, data in self.seen
            if escape == rm.NV_ESC_RM_CONTROL
        ]


def opened(system):
    return start(NvidiaDevice("nvidia:0", 0, system))


def never(card):
    """Submit work that waits for a point which never comes; return its point."""
    stream = card.copy.stream()
    stream.wait_for(Point(card.compute.timeline, card.compute.timeline.last + 5))
    return card.copy.submit(stream)


def test_a_node_that_hangs_up_means_a_lost_card_at_once():
    system = WatchedSystem()
    card = opened(system)
    point = never(card)
    system.hung_up = True
    before_us = system.clock.now_us
    with pytest.raises(DeviceLost, match="its node hangs up"):
        point.wait(10)
    assert system.clock.now_us - before_us < 1_000_000
    with pytest.raises(DeviceLost):
        card.copy.submit(card.copy.stream())
    assert "is gone" in str(card.report())
    card.close()


def test_a_card_that_is_gone_is_told_by_the_control_node():
    """nvidia_ioctl answers EINVAL on the node of a card that was removed."""
    gone = []

    def answers(node, escape, data):
        if gone and escape == rm.NV_ESC_CARD_INFO:
            data[:] = bytes(len(data))
            return True
        if gone and escape == rm.NV_ESC_RM_ALLOC_MEMORY:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return False

    card = opened(WatchedSystem(answers))
    gone.append(True)
    with pytest.raises(DeviceLost, match="no longer has the card"):
        card.pin(bytearray(8192))
    card.close()


def test_refused_and_late_answers_are_no_lost_card():
    busy = []

    def answers(node, escape, data):
        if (
            busy
            and escape == rm.NV_ESC_RM_CONTROL
            and struct.unpack_from("<I", data, CONTROL_AT)[0] == fifo.NV2080_CTRL_CMD_TIMER_GET_TIME
        ):
            struct.pack_into("<I", data, STATUS_AT, status.NV_ERR_TIMEOUT)
            return True
        return False

    card = opened(WatchedSystem(answers))
    point = never(card)
    busy.append(True)
    # the wait's own error, not that of asking the card
    with pytest.raises(Exception, match=r"it stood at \d+") as seen:
        point.wait(0.01)
    assert not isinstance(seen.value, DeviceLost)
    card.reset()
    card.close()


def test_notifications_of_the_host_are_switched_on():
    """Up to 575, listeners of the host hear nothing otherwise: OGKM intr.c, activeFifoEventMthdNotifiers."""
    system = WatchedSystem()
    opened(system).close()
    assert fifo.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION in system.controls()


def test_host_memory_is_mapped_snooped():
    """nvos.h, NVOS46_FLAGS_CACHE_SNOOP: bit 4; without it the card may read what memory held before."""
    system = WatchedSystem()
    card = opened(system)
    system.seen.clear()
    card.alloc(4096, "host").free()
    flags = [
        struct.unpack_from("<I", data, 32)[0] for escape, data in system.seen if escape == rm.NV_ESC_RM_MAP_MEMORY_DMA
    ]
    assert flags == [1 << 4]
    card.close()


def test_parts_of_a_card_are_named():
    def answers(node, escape, data):
        if (
            escape == rm.NV_ESC_RM_CONTROL
            and struct.unpack_from("<I", data, CONTROL_AT)[0] == gr.NV2080_CTRL_CMD_GR_GET_INFO_V2
        ):
            struct.pack_into("<I", data, STATUS_AT, status.NV_ERR_INVALID_STATE)
            return True
        return False

    with pytest.raises(NotSupported, match="MIG"):
        opened(WatchedSystem(answers))


@pytest.mark.parametrize(("times", "ends"), [(3, False), (1000, True)])
def test_a_signal_before_a_call_does_not_end_it(tmp_path, times, ends):
    calls = []

    def ioctl(node, request, data):
        calls.append(request)
        if len(calls) <= times:
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
        return 0

    system = LinuxSystem(Kernel(tmp_path, ioctl))
    if ends:
        with pytest.raises(InterruptedError):
            system.ioctl(3, 0, bytearray(4))
    else:
        system.ioctl(3, 0, bytearray(4))
        assert len(calls) == times + 1


def test_a_hung_up_pipe_is_a_lost_card():
    """The same bits as nvidia_poll gives: POLLHUP."""
    read, write = os.pipe()
    try:
        assert LinuxSystem().poll([read], 0) is Happened.NOTHING
        os.write(write, b"x")
        assert LinuxSystem().poll([read], 0) is Happened.EVENT
        os.read(read, 1)
        os.close(write)
        assert LinuxSystem().poll([read], 0) is Happened.GONE
    finally:
        os.close(read)


def test_an_interrupted_allocation_leaves_no_object():
    """Ctrl-C right behind the call: the driver has made the object, and nobody knows its handle."""
    due = []

    class Interrupting(WatchedSystem):
        def _ioctl(self, node, request, data):
            super()._ioctl(node, request, data)
            if due and request & 0xFF == rm.NV_ESC_RM_ALLOC:
                due.clear()
                raise KeyboardInterrupt

    system = Interrupting()
    card = opened(system)
    card.alloc(1 << 20).free()
    before = card.stats().memory["vram"].free_bytes
    due.append(True)
    with pytest.raises(KeyboardInterrupt):
        card.alloc(1 << 20)
    assert card.stats().memory["vram"].free_bytes == before
    card.close()
    assert not system.model.owners


class Stopping(WatchedSystem):
    """System calls of which the nth from `stop_at` on is interrupted when it is done."""

    def __init__(self):
        super().__init__()
        self.left, self._closing = -1, self.close
        self.close = self._closed

    def stop_at(self, count):
        self.left = count

    def _done(self):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt

    def _ioctl(self, node, request, data):
        super()._ioctl(node, request, data)
        self._done()

    def _closed(self, node):
        self._closing(node)
        self._done()


@pytest.mark.parametrize("count", [1, 7, 20, 40, 41, 42, 43, 44])
def test_an_interrupted_close_gives_everything_back(count):
    """From the first call to those that close the three nodes."""
    system = Stopping()
    card = opened(system)
    system.stop_at(count)
    with pytest.raises(KeyboardInterrupt):
        card.close()
    assert not system.model.files
    assert not system.model.owners
    card.close()


def test_an_interrupt_while_a_failed_start_is_undone_leaves_no_node():
    system = Stopping()

    def refuse(node, escape, data):
        if escape == rm.NV_ESC_RM_ALLOC:
            # when the first node is closed
            system.stop_at(1)
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return False

    system.answers = refuse
    with pytest.raises(KeyboardInterrupt):
        opened(system)
    assert not system.model.files


def test_a_reset_goes_on_where_one_failed_before():
    """The driver refuses to take one channel off; the reset after that makes all of them anew."""
    refused = []

    def answers(node, escape, data):
        if refused and escape == rm.NV_ESC_RM_FREE:
            refused.pop()
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return False

    system = WatchedSystem(answers)
    card = opened(system)
    queues = card.compute, card.copy
    refused.append(True)
    with pytest.raises(OutOfMemory, match="freeing object"):
        card.reset()
    with pytest.raises(OutOfMemory):
        card.copy.submit(card.copy.stream())
    card.reset()
    for queue in queues:
        queue.submit(queue.stream()).wait(1)
    assert not system.model.card.violations
    card.close()


@pytest.mark.parametrize("count", range(1, 16, 3))
def test_a_reset_goes_on_where_one_was_interrupted(count):
    system = Stopping()
    card = opened(system)
    system.stop_at(count)
    with pytest.raises(KeyboardInterrupt):
        card.reset()
    card.reset()
    for queue in (card.compute, card.copy):
        queue.submit(queue.stream()).wait(1)
    assert not system.model.card.violations
    card.close()
    assert not system.model.files
