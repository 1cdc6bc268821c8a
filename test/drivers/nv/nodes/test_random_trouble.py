"""A program's run through NVIDIA's kernel driver with trouble at a random place: a call refused by the system or by the
resource manager, an interruption by ctrl-C, an event that does not come, an engine that stops, a fault of the
program's own. Whatever comes, the run ends with one error of the tree and within its bounds, done work has its bytes,
and after the end the driver has nothing left of the process.
"""

import errno
import os
import random
import struct

import pytest
from nvidia_code import sass_programs

from ringup.autogen.nv import rm, status
from ringup.drivers.select import start
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.system import ModelSystem
from ringup.errors import RingupError
from ringup.silicon import nvidia_kernel

CHIPS = ("tu102", "ga100", "ga102", "ad102")
# calls of a whole run, about
CALLS = 420
ERRNOS = (errno.ENOMEM, errno.EINTR, errno.EIO, errno.ENODEV, errno.EPERM, errno.EINVAL, errno.EAGAIN, errno.EFAULT)
STATUSES = (
    status.NV_ERR_NO_MEMORY,
    status.NV_ERR_INSUFFICIENT_RESOURCES,
    status.NV_ERR_GPU_IS_LOST,
    status.NV_ERR_INVALID_STATE,
    status.NV_ERR_TIMEOUT,
    status.NV_ERR_NOT_SUPPORTED,
    status.NV_ERR_INSUFFICIENT_PERMISSIONS,
    status.NV_ERR_GENERIC,
    0x7FFF_FFFF,
)
# nv_escape.h: where the answer of an escape has its status, in 535
STATUS_AT = {
    rm.NV_ESC_RM_ALLOC: 28,
    rm.NV_ESC_RM_CONTROL: 28,
    rm.NV_ESC_RM_FREE: 12,
    rm.NV_ESC_RM_MAP_MEMORY: 40,
    rm.NV_ESC_RM_UNMAP_MEMORY: 24,
    rm.NV_ESC_RM_MAP_MEMORY_DMA: 48,
    rm.NV_ESC_RM_UNMAP_MEMORY_DMA: 32,
}
NOWHERE = 0x7F_0000_0000


class Interrupted(KeyboardInterrupt):
    """Ctrl-C at a place of the test's choice."""


class TroubledSystem(ModelSystem):
    """System calls, one of which goes wrong in one of several ways."""

    def __init__(self, model, rng):
        super().__init__(model, owned=True)
        self.calls, self.at = 0, rng.randrange(CALLS)
        self.way = rng.choice(("errno", "status", "interrupt before", "interrupt after", "none", "none"))
        self.errno, self.status = rng.choice(ERRNOS), rng.choice(STATUSES)
        # a call that goes wrong for ever after may be what ends a process' use of the card
        self.for_ever = rng.random() < 0.3 and self.way in ("errno", "status")
        self.open, self.ioctl = self._open, self._ioctl

    def _due(self):
        self.calls += 1
        return self.calls - 1 == self.at or (self.for_ever and self.calls > self.at)

    def _fail(self):
        raise OSError(self.errno, os.strerror(self.errno))

    def _open(self, path):
        due = self._due()
        if due and self.way == "errno":
            self._fail()
        if due and self.way == "interrupt before":
            raise Interrupted
        return self.model.open(path)

    def _ioctl(self, node, request, data):
        due = self._due()
        if due and self.way == "errno":
            self._fail()
        if due and self.way == "interrupt before":
            raise Interrupted
        place = STATUS_AT.get(request & 0xFF)
        if due and self.way == "status" and place is not None:
            struct.pack_into("<I", data, place, self.status)
            return
        self.model.ioctl(node, request, data)
        if due and self.way == "interrupt after":
            raise Interrupted

    def map(self, node, size_bytes, kind):
        if self._due() and self.way == "errno":
            self._fail()
        return super().map(node, size_bytes, kind)


def use(card, rng):
    """Copy, launch, wait, profile, keep: what a program does. Return what went wrong with bytes; nothing if all did."""
    kernels = card.load(sass_programs.cubin(card.target))
    data = rng.randbytes(4096)
    a, b = card.alloc(4096, rng.choice(("vram", "host"))), card.alloc(4096, visible=rng.random() < 0.5)
    card.copy.upload(a, data).wait(2)
    card.copy.copy_buffer(b, a).wait(2)
    if card.copy.download(b) != data:
        return "a copy lost bytes"
    if rng.random() < 0.2:
        a.free()
        a = card.alloc(8192)
    stream = card.compute.stream()
    wild = rng.random() < 0.15
    stream.dispatch(kernels["add"], 8, 128, [b, b, NOWHERE if wild else b, 1024])
    kept = card.compute.keep(stream) if rng.random() < 0.5 else None
    (kept.submit() if kept is not None else card.compute.submit(stream)).wait(2)
    seen, want = struct.unpack("<1024I", card.copy.download(b)), struct.unpack("<1024I", data)
    if [2 * one & 0xFFFF_FFFF for one in want] != list(seen):
        return "a kernel lost words"
    if rng.random() < 0.3:
        mine = bytearray(5000)
        pinned = card.pin(mine)
        card.copy.fill(pinned, 0x11111111, 0, 4996).wait(2)
        if set(mine[:4996]) != {0x11}:
            return "pinned memory lost bytes"
        pinned.free()
    card.stats()
    str(card.report())
    return ""


@pytest.mark.seeds(24)
def test_trouble_anywhere_ends_in_one_error_and_leaves_nothing(seed):
    rng = random.Random(seed)
    model = nvidia_kernel(rng.choice(CHIPS))
    system = TroubledSystem(model, rng)
    if rng.random() < 0.1:
        model.card.faults.inject("engine_stuck", rng.randrange(1, 4))
    card = wrong = None
    try:
        card = start(NvidiaDevice("nvidia:0", 0, system))
        wrong = use(card, rng)
        if rng.random() < 0.3:
            card.reset()
            wrong = wrong or use(card, rng)
    except (RingupError, Interrupted):
        if card is not None and rng.random() < 0.5:
            try:
                card.reset()
                wrong = use(card, rng)
            except (RingupError, Interrupted, ValueError):
                pass
    assert not wrong
    if card is not None:
        try:
            card.close()
        except Interrupted:
            card.device.close()
        card.close()
    assert model.files == {}
    assert model.owners == {}
