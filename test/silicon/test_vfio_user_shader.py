"""A served card whose shader cores wait for a translation. The server answers all the while."""

import threading

import numpy as np
import pytest

from ringup.silicon.amd.gc.dispatch import Grid, Order
from ringup.silicon.amd.gc.grbm import Slot
from ringup.silicon.shader.common.state import Dispatch, Region
from ringup.silicon.shader.host.beside import Beside

SCRATCH = 0x53 * 4  # SCRATCH_7: plain storage
CODE = 0x10_0000
PROGRAM = (0x7E02_0281, 0xBFB0_0000)  # v_mov_b32 v1, 1; s_endpgm


class Code:
    """Memory that holds only the program."""

    epoch = 0

    def __init__(self):
        self.raw = np.array(PROGRAM, np.uint32)

    def region(self, gpu_va, write, execute=False):
        assert (gpu_va, write) == (CODE, False)
        return Region(CODE, self.raw.nbytes, self.raw.ctypes.data)


class Served:
    """A card, its peer, and the thread that translates for the card. The thread is busy until `go`."""

    def __init__(self, bench, beside):
        self.bench, self.ended = bench, []
        self.card = bench.card(beside=beside)
        self.peer = bench.peer()
        self._gate = threading.Event()
        beside.submit(self._gate.wait, 60)
        self.go = self._gate.set

    def start(self):
        dispatcher = self.card.gc.dispatcher
        grid = Grid(dispatcher, Order(Slot(1, 0, 0), 0, (1, 1, 1), 1, 0), self.ended.append)
        dispatch = Dispatch(CODE, 32, (32, 1, 1), (1, 1, 1), 8)
        grid.run = dispatcher.engine.start(dispatch, Code(), None)
        grid.thaw()
        return grid

    def pass_time(self, ms):
        """Let the card's time pass while registers are read."""
        end_ns = self.bench.clock.now_ns + ms * 1_000_000

        def passed():
            assert self.peer.get32(5, SCRATCH) == 77
            return self.bench.clock.now_ns >= end_ns

        self.bench.until(passed)


@pytest.fixture
def served(bench):
    with Beside() as beside:
        made = Served(bench, beside)
        made.peer.put32(5, SCRATCH, 77)
        yield made
        made.go()


def test_registers_are_read_and_time_passes_while_a_program_is_translated(bench, served):
    grid = served.start()
    served.pass_time(100)
    assert grid.run.waiting
    served.go()
    bench.until(lambda: served.ended)
    assert served.ended == [grid]
    assert served.card.gc.busy_ns == 2


def test_a_server_closes_while_a_program_is_translated(bench, served):
    served.start()
    served.pass_time(1)
    bench.server.close()
    assert not served.ended
