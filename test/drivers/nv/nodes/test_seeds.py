"""Seeded histories on cards behind NVIDIA's kernel driver: copies, kernels, kept streams, resets, while system calls
are refused, the driver answers statuses, engines stop, the node hangs up or Ctrl-C comes.

Each failure is one error of ours, no byte is lost that was said to be done, nothing hangs, the driver keeps nothing of
a closed card, and the card is opened again.
"""

import errno
import os
from functools import partial

import pytest
from nvidia_code.seeds import MISTAKES, Seed, interrupt

from ringup.autogen.nv import rm, status
from ringup.drivers.nv.verbs import CHANNEL_RUNG
from ringup.drivers.select import start
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.system import Happened, ModelSystem
from ringup.silicon import nvidia_kernel

# How many seeds each run of the suite takes, by chip. The run's number is its seed.
RUNS = {"ga102": 8, "tu102": 1, "ad102": 1}
SEEDS = range(100_000)
RELEASE = "535.261.03"
ERRNOS = (errno.ENOMEM, errno.EIO, errno.ENODEV, errno.EINVAL, errno.EAGAIN, errno.EBUSY, errno.EPERM, errno.ENOTTY)
STATUSES = (
    status.NV_ERR_GENERIC, status.NV_ERR_NO_MEMORY, status.NV_ERR_GPU_IS_LOST, status.NV_ERR_TIMEOUT,
    status.NV_ERR_RESET_REQUIRED, status.NV_ERR_INVALID_STATE, status.NV_ERR_NOT_SUPPORTED,
    status.NV_ERR_INSUFFICIENT_PERMISSIONS, status.NV_ERR_STATE_IN_USE, 0xDEAD,
)  # fmt: skip
# where each escape's request has its status
STATUS_OF = {
    rm.NV_ESC_RM_ALLOC: (rm.NVOS21_PARAMETERS, "status"),
    rm.NV_ESC_RM_CONTROL: (rm.NVOS54_PARAMETERS, "status"),
    rm.NV_ESC_RM_FREE: (rm.NVOS00_PARAMETERS, "status"),
    rm.NV_ESC_RM_MAP_MEMORY: (rm.nv_ioctl_nvos33_parameters_with_fd, "params.status"),
    rm.NV_ESC_RM_UNMAP_MEMORY: (rm.NVOS34_PARAMETERS, "status"),
    rm.NV_ESC_RM_MAP_MEMORY_DMA: (rm.NVOS46_PARAMETERS, "status"),
    rm.NV_ESC_RM_ALLOC_MEMORY: (rm.nv_ioctl_nvos02_parameters_with_fd, "params.status"),
    rm.NV_ESC_ALLOC_OS_EVENT: (rm.nv_ioctl_alloc_os_event_t, "Status"),
    rm.NV_ESC_FREE_OS_EVENT: (rm.nv_ioctl_free_os_event_t, "Status"),
}
# faults of the card itself
OF_CARD = ("engine_stuck", "lost_interrupt", "invalidate_stuck")
KINDS = (*3 * ("errno", "status", "interrupt"), "hang up", *OF_CARD, *MISTAKES)
# how many system calls the phases take, at least
CALLS = {"start": 100, "work": 80, "reset": 40, "close": 60}
# calls in turn that are refused
IN_TURN = (1, 1, 2, 5, 1_000_000)


class TroubledSystem(ModelSystem):
    """System calls at whose moments something happens: before the call and behind it; only behind those that close a
    node, as a signal in a system call comes.
    """

    def __init__(self, kernel, moments):
        super().__init__(kernel)
        self.moments = moments
        self._open, self._close = self.open, self.close
        self.open, self.close, self.ioctl = self._opened, self._closed, self._called
        self.heal()

    def heal(self):
        # how many calls to come are refused, and with which number
        self.refused = {"errno": (0, 0), "status": (0, 0)}
        self.hung_up = False

    def refuse(self, how, code, count):
        self.refused[how] = count, code

    def hang_up(self):
        self.hung_up = True

    def _refusal(self, how):
        """Return the number that a call is refused with, 0 where it is not."""
        count, code = self.refused[how]
        if not count:
            return 0
        self.refused[how] = count - 1, code
        return code

    def _begin(self):
        self.moments()
        if code := self._refusal("errno"):
            raise OSError(code, os.strerror(code))

    def _opened(self, path):
        self._begin()
        return self._open(path)

    def _closed(self, node):
        self._close(node)
        self.moments()

    def _called(self, node, request, data):
        self._begin()
        place = STATUS_OF.get(request & 0xFF)
        if place is not None and (code := self._refusal("status")):
            layout, path = place
            *above, name = path.split(".")
            view = layout.at(RELEASE).view(data)
            for part in above:
                view = getattr(view, part)
            setattr(view, name, code)
            return
        self.model.ioctl(node, request, data)
        self.moments()

    def map(self, node, size_bytes, kind):
        self._begin()
        return super().map(node, size_bytes, kind)

    def poll(self, nodes, timeout_ms):
        self.moments()
        return Happened.GONE if self.hung_up else super().poll(nodes, timeout_ms)


class NodesSeed(Seed):
    """What happens to a card behind the kernel's driver."""

    def __init__(self, chip, seed):
        self.kernel = nvidia_kernel(chip, release=RELEASE)
        super().__init__(seed, self.kernel.card.clock, (CHANNEL_RUNG,), CALLS)
        self.system = TroubledSystem(self.kernel, self.moments)
        self.plan()

    def fault(self):
        kind = self.rng.choice(KINDS)
        if kind in OF_CARD:
            return kind, partial(self.kernel.card.faults.inject, kind, self.rng.choice((1, 2, -1)))
        if kind in ("errno", "status"):
            code = self.rng.choice(ERRNOS if kind == "errno" else STATUSES)
            return f"{kind} {code:#x}", partial(self.system.refuse, kind, code, self.rng.choice(IN_TURN))
        return kind, {"interrupt": interrupt, "hang up": self.system.hang_up}.get(kind)

    def heal(self):
        self.moments.forget()
        self.system.heal()
        self.kernel.card.faults.clear()

    def open(self, *, healed=False):
        return start(NvidiaDevice("nvidia:0", 0, ModelSystem(self.kernel) if healed else self.system))

    def check_left(self):
        assert not self.kernel.files, "nodes stayed open"
        assert not self.kernel.owners
        assert self.kernel.card.violations == []


@pytest.mark.parametrize("chip", RUNS)
def test_seeded_trouble_is_errors_and_leaves_nothing(chip, sample):
    for seed in sample(SEEDS, few=RUNS[chip], spread=False):
        one = NodesSeed(chip, seed)
        try:
            one.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            one.kernel.end()
