"""A queue connected to a slot: its parser, its running grids, the actions that wait for them, and how it is
disconnected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING

from ringup.errors import GuestError, RingupError
from ringup.silicon.amd.common.parts import VmFault
from ringup.silicon.amd.gc.cp.pm4_decode import PacketError
from ringup.silicon.amd.gc.dispatch import Grid, Order
from ringup.silicon.amd.gc.hqd import COMPUTE, Hqd
from ringup.silicon.common.clock import Timer

if TYPE_CHECKING:
    from ringup.silicon.amd.gc.cp.pm4_parser import Parser
    from ringup.silicon.amd.gc.cp.processor import Cp

WAKE_US = 0.2  # from a doorbell to the first fetch
END_OF_PIPE_US = 0.5
# how often a stopping queue is checked
STOP_US, STOP_LIMIT_US = 2.0, 100.0


NO_FETCHER = (
    "its slot had an earlier queue and CP_HQD_EOP_RPTR.init_fetcher was not written: the end of work goes unnoticed"
)


class EopFetcher(Enum):
    """The EOP fetcher, which gives a slot of the compute micro engine the ends of its work, in the order of the EOP
    buffer at CP_HQD_EOP_BASE_ADDR.
    """

    # the micro engine was reset and no work has ended since
    FRESH = auto()
    # it has a position in a queue's buffer
    USED = auto()
    # it has a position in the buffer of a queue that is gone: it sees no ends
    LOST = auto()


class Stop(IntEnum):
    """How a queue is disconnected: CP_HQD_DEQUEUE_REQUEST.dequeue_req. Source: amdkfd, KFD_PREEMPT_TYPE_WAVEFRONT_* and
    hqd_destroy.
    """

    DRAIN = 1
    RESET = 2
    SAVE = 3


@dataclass(slots=True)
class Saved:
    """The state of a queue that was disconnected with its waves: its grids, and the actions that wait for them."""

    grids: list[Grid]
    work: deque[tuple[list[Grid], Callable[[Queue], None]]]
    # the process, by MES's name for it; 0: unknown
    owner: int = 0

    def drop(self) -> None:
        """Discard it: the queue does not come back."""
        for grid in self.grids:
            grid.kill()


class Queue:
    """One slot's queue. While disconnected it does nothing."""

    def __init__(self, cp: Cp, hqd: Hqd) -> None:
        self.cp, self.hqd = cp, hqd
        self.connected = False
        self.draining = False
        self.hung = ""  # why it makes no progress
        self.fetcher = EopFetcher.FRESH
        self.grids: list[Grid] = []
        self.parser: Parser | None = None
        self._work: deque[tuple[list[Grid], Callable[[Queue], None]]] = deque()
        self._steps: Iterator[float | None] | None = None
        self._timer: Timer | None = None
        self._stop_timer: Timer | None = None
        self._stepping = False

    # --- running ------------------------------------------------------------------------------------------------
    def connect(self, saved: Saved | None = None) -> None:
        """Start to execute from the slot's registers, and continue the `saved` work."""
        self.connected, self.draining, self.hung = True, False, ""
        self.parser, self._steps = self.cp.program(self)
        if saved is not None:
            self.grids, self._work = saved.grids, saved.work
            for grid in self.grids:
                grid.adopt(self.hqd.slot, self.hqd.vmid or grid.order.vmid, self.hqd.doorbell_id, self._ended)
                grid.thaw()
            self._work_done()
        self.wake()

    def wake(self) -> None:
        """Look for work: the write pointer moved, or the engine was started."""
        if self.connected and not self.hung and self._timer is None and not self._stepping:
            self._timer = self.cp.board.clock.after(WAKE_US, self._step)

    def _step(self) -> None:
        self._timer = None
        cp, slot = self.cp, self.hqd.slot
        if self._steps is None or self.hung or not cp.may_run(slot):
            return
        self._stepping, board = True, cp.board
        board.doing = self._doing
        try:
            delay = next(self._steps)
            while delay is not None and self._steps is not None and board.clock.go_on(delay):
                if self.hung or not cp.may_run(slot):
                    return
                delay = next(self._steps)
        except PacketError as error:
            self._hang(error)
            self.cp.bad_packet(self, error)
            return
        except VmFault as error:
            self._fault(error)
            return
        # the model lacks something, or a register exists on no card: the caller that lets time pass gets the error
        except RingupError as error:
            self.hung = str(error)
            raise
        # an interrupted step cannot be resumed; a reset of the queue starts again
        except KeyboardInterrupt:
            self.hung = "the user interrupted it within a step"
            raise
        finally:
            self._stepping, board.doing = False, None
        if delay is not None and self._steps is not None:
            self._timer = self.cp.board.clock.after(delay, self._step)

    def _doing(self) -> str:
        packet = self.parser.packet if self.parser is not None else None
        return f"queue {self.hqd.slot}, {packet or 'between packets'}"

    @property
    def busy(self) -> bool:
        """Whether it has work, or is stuck."""
        if not self.connected:
            return False
        return bool(self.hung or self.grids or self._work or self._timer or (self.parser and not self.parser.resting))

    @property
    def settled(self) -> bool:
        """Whether all grids have ended and all actions that waited for them are done."""
        return not (self.grids or self._work)

    def _hang(self, reason: Exception) -> None:
        """Stop for good. After a page fault the text names the packet; other errors name it themselves."""
        packet = self.parser.packet if self.parser is not None and isinstance(reason, VmFault) else None
        within = "" if packet is None else f"{packet}: "
        self.hung = f"{within}{reason}"
        self.cp.board.log.note("cp", "violation", "queue {} stops: {}{}", self.hqd.slot, within, reason)

    def _fault(self, error: VmFault) -> None:
        fetching = self.parser is None or self.parser.packet is None
        if self.hqd.names is COMPUTE:
            in_buffer = self.parser is not None and bool(self.parser.buffers)
            field = "tc_utcl1_error" if not fetching else "ib_utcl1_error" if in_buffer else "pq_utcl1_error"
            self.hqd.put("CP_HQD_ERROR", **{field: 1})
        else:
            self.cp.cells.put("CP_GFX_ERROR", **{"rb_fetcher_utcl1_error" if fetching else "me_tc_utcl1_error": 1})
        self._hang(error)

    # --- work on the cores --------------------------------------------------------------------------------------
    def dispatch(self, dimensions: tuple[int, int, int], initiator: int) -> None:
        """Start a grid with the slot's COMPUTE_* registers; the parser continues meanwhile."""
        assert self.parser is not None  # only its packets come here
        hqd = self.hqd
        order = Order(hqd.slot, self.parser.vmid, dimensions, initiator, hqd.doorbell_id, hqd.logic_xcc)
        grid = self.cp.dispatcher.start(order, self._ended)
        if grid is not None:
            self.grids.append(grid)

    def _ended(self, grid: Grid) -> None:
        self.grids.remove(grid)
        self._work_done()

    def after_work(self, action: Callable[[Queue], None]) -> None:
        """Do `action` at the end of the pipe: when all earlier grids have ended and all earlier actions are done.

        Its argument is the queue, which may be connected to another slot by then.
        """
        self._work.append((list(self.grids), action))
        self._work_done()

    def start_fetcher(self, *, asked: bool) -> None:
        """Take over the slot's fetcher for the queue that is about to connect.

        GUESS: the only description is "Start the EOP fetcher" (amdgpu_amdkfd_gfx_v11.c, hqd_load_v11, which writes
        CP_HQD_EOP_RPTR.init_fetcher for every queue that it loads by registers). A driver that resets the micro engine
        before it reuses a slot does not need it (tinygrad, AM_GFX.reset_mec). So it must be `asked` for on a slot that
        has had a queue since the reset.
        """
        if self.fetcher is EopFetcher.USED and not asked:
            self.fetcher = EopFetcher.LOST
        elif asked:
            self.fetcher = EopFetcher.FRESH

    def _work_done(self) -> None:
        if self._work and self.fetcher is EopFetcher.LOST:
            self._hang(GuestError(NO_FETCHER))
        elif self._work and not any(grid in self.grids for grid in self._work[0][0]):
            self.cp.board.clock.after(END_OF_PIPE_US, self._act)

    def _act(self) -> None:
        if not self._work or any(grid in self.grids for grid in self._work[0][0]):
            return
        action, board = self._work.popleft()[1], self.cp.board
        board.doing = lambda: f"queue {self.hqd.slot}, at the end of the pipe"
        self.fetcher = EopFetcher.USED
        try:
            action(self)
        except VmFault as error:
            if self.hqd.names is COMPUTE:
                self.hqd.put("CP_HQD_ERROR", eop_utcl1_error=1)
            self._hang(error)
            return
        finally:
            board.doing = None
        self._work_done()

    # --- disconnecting ------------------------------------------------------------------------------------------
    def stop(self, how: Stop) -> None:
        """Disconnect as soon as `how` allows; then ACTIVE falls. A hung queue never drains."""
        if not self.connected:
            return
        if how == Stop.SAVE and (
            self.hqd.names is not COMPUTE or not self.hqd.field("CP_HQD_PERSISTENT_STATE", "qswitch_mode")
        ):
            how = Stop.DRAIN
        self.draining = True
        if how == Stop.RESET:
            self._drop_work()
        elif how == Stop.SAVE:
            for grid in self.grids:
                grid.freeze()
        if self._stop_timer is not None:
            self._stop_timer.cancel()
        self._stop_timer = self.cp.board.clock.after(STOP_US, lambda: self._try_stop(how, STOP_US))

    def _try_stop(self, how: Stop, waited_us: float) -> None:
        self._stop_timer = None
        if not self.connected:
            return
        at_rest = self.parser is None or (self.parser.can_stop and not self.hung)
        drained = at_rest and (how == Stop.SAVE or self.settled)
        if how != Stop.RESET and not drained:
            wait = min(waited_us * 1.5, STOP_LIMIT_US)
            self._stop_timer = self.cp.board.clock.after(wait, lambda: self._try_stop(how, wait))
            return
        saved = Saved(self.grids, self._work)
        self.grids, self._work = [], deque()
        if how == Stop.RESET and self.parser is not None and self.hqd.names is COMPUTE:
            self.hqd.put("CP_HQD_IB_CONTROL", ib_size=0, processing_ib=0)
        unfinished = bool(saved.grids or saved.work)
        if self.hqd.names is COMPUTE:
            self.hqd.put("CP_HQD_PERSISTENT_STATE", relaunch_waves=int(unfinished))
        self.disconnect(save=True)
        if unfinished:
            self.cp.saved[self.hqd.mqd_address] = saved

    def kill_waves(self, vmid: int | None = None) -> None:
        """Drop the queue's waves, all or those of a VMID; the parser continues as if they had ended."""
        killed = [grid for grid in self.grids if vmid in (None, grid.order.vmid)]
        for grid in killed:
            grid.kill()
        self.grids = [grid for grid in self.grids if grid not in killed]
        self._work_done()

    def disconnect(self, save: bool) -> None:
        """Drop everything at once. With `save`, write the registers back to the MQD."""
        self._drop_work()
        for timer in (self._timer, self._stop_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._stop_timer = self._steps = None
        self.connected = self.draining = False
        self.hqd.active = False
        self.hqd.set(self.hqd.names.dequeue, 0)
        if save and self.hqd.mqd_address:
            try:
                if self.parser is not None:
                    self.parser.report()
                self.hqd.save(self.cp.hub, "CPC")
            except VmFault as error:
                self.cp.board.log.note(
                    "cp", "violation", "queue {}: its MQD is not written back: {}", self.hqd.slot, error
                )
        self.parser = None

    def _drop_work(self) -> None:
        for grid in self.grids:
            grid.kill()
        self.grids = []
        self._work.clear()
