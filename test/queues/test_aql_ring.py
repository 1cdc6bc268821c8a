"""The ring of an HSA queue: the order of its stores, slots that are used again, and what a reset leaves."""

import pytest

from ringup.errors import DeviceTimeout
from ringup.queues.amd import aql
from ringup.queues.amd.aql_ring import AqlRing
from ringup.queues.timeline import Point, Timeline

SIZE = 512  # eight packets


class Machine:
    """A ring in memory with an engine that takes packets when a test says so."""

    def __init__(self):
        self.memory, self.stores, self.published, self.asked = bytearray(b"\xff" * SIZE), [], [], []
        self.done = self.taken = 0
        self.ring = AqlRing("ring", SIZE, self.write, self.published.append, self.consumed)
        self.timeline = Timeline("timeline", lambda: self.done, 0, self, self)
        self.stores.clear()

    def write(self, at, data):
        self.stores.append((at, bytes(data)))
        self.memory[at : at + len(data)] = data

    def consumed(self, packets, timeout_s):
        self.asked.append(packets)
        if self.taken < packets:
            raise DeviceTimeout("not taken")
        return self.taken

    def wait(self, timeline, value, timeout_us):
        if self.done < value:
            raise DeviceTimeout("not done")

    def put(self, count):
        """Store packets with their number in the last byte, and return their point."""
        data = b"".join(aql.barrier_and()[:-1] + bytes([number]) for number in range(count))
        self.ring.reserve(len(data), 1)
        self.timeline.last += 1
        point = Point(self.timeline, self.timeline.last)
        self.ring.put_whole(data, point, 0)
        return point


@pytest.fixture
def machine():
    return Machine()


def types(machine):
    return [machine.memory[at] for at in range(0, SIZE, 64)]


def test_every_slot_is_invalid_before_it_holds_a_packet(machine):
    assert types(machine) == [aql.PacketType.INVALID] * 8
    machine.put(3)
    assert types(machine) == [aql.PacketType.BARRIER_AND] * 3 + [aql.PacketType.INVALID] * 5


def test_the_first_header_is_stored_last_and_alone(machine):
    machine.put(3)
    assert machine.stores[-1] == (0, aql.barrier_and()[:4])
    assert not any(at < 4 for at, data in machine.stores[:-1] if data)
    assert machine.published == [192]


def test_packets_that_wrap_are_there_before_the_first_header(machine):
    machine.put(6)
    machine.done, machine.taken = 1, 6
    machine.put(1)
    machine.done, machine.taken = 2, 7
    machine.stores.clear()
    machine.put(4)
    stores = [store for store in machine.stores if store[1]]
    assert stores[-1] == (448, aql.barrier_and()[:4])
    assert [at for at, _ in stores] == [0, 452, 448]
    assert [machine.memory[at + 63] for at in (448, 0, 64, 128)] == [0, 1, 2, 3]


def test_a_slot_is_used_again_only_when_the_engine_has_counted_it(machine):
    machine.put(4)
    machine.done, machine.taken = 1, 1
    machine.put(3)
    with pytest.raises(DeviceTimeout, match="not taken"):
        machine.put(2)
    assert machine.ring.wptr == 7 * 64
    # the engine counts late: it has to have counted the slots that are used again, and no more
    machine.taken = 2
    machine.put(2)
    assert machine.asked[-2:] == [2, 2]
    assert machine.ring.limit // 64 == 9
    machine.done = 2
    with pytest.raises(DeviceTimeout, match="not taken"):
        machine.put(1)
    machine.taken = 9
    machine.put(4)


def test_the_packet_that_signals_is_not_free_with_its_own_point(machine):
    """The engine may still store INVALID in its slot when the point is seen."""
    machine.put(7)
    machine.done, machine.taken = 1, 7
    machine.put(6)
    with pytest.raises(DeviceTimeout, match="not done"):
        machine.put(1)


def test_a_restart_empties_the_ring(machine):
    machine.put(5)
    machine.ring.restart()
    assert types(machine) == [aql.PacketType.INVALID] * 8
    assert machine.ring.wptr == 0
    machine.put(7)
    assert machine.published[-1] == 448
