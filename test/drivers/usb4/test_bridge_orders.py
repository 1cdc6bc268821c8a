"""Accesses through an enclosure whose order matters because the bridge or the card acts between them. Each test checks
the state at that very moment.
"""

import pytest

from ringup.autogen.amd.gc_vm import GCVM_CONTEXT0_CNTL
from ringup.autogen.amd.mmhub import MMVM_CONTEXT0_CNTL
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gfx.hqd import Hqd
from ringup.drivers.amd.gfx.sdma import SdmaQueue
from ringup.drivers.amd.memory.firmware_door import FirmwareDoor
from ringup.drivers.amd.submission.queue_memory import WPTR_AT
from ringup.queues.amd.decode_sdma import decode_sdma

BULK_OUT = 0x02
PLACE = 128 << 20  # in BAR 0, far from what the driver uses


@pytest.fixture
def up(docks):
    made = docks()
    made.open()
    return made


def test_a_stream_is_armed_before_its_bytes_come_where_the_other_engine_had_the_endpoint(up, monkeypatch):
    """The armed engine takes whatever comes. After another stream, the bytes may follow at once."""
    submit, controls, early = up.host.submit, [], []

    def watched(handle, endpoint, payload, **options):
        if endpoint == BULK_OUT:
            early.append(sum(not one.done for one in controls))
        transfer = submit(handle, endpoint, payload, **options)
        if not endpoint:
            controls.append(transfer)
        return transfer

    up.upload(1, 4096)  # through the bridge's memory
    monkeypatch.setattr(up.host, "submit", watched)
    window = up.card.device.bars[0]
    window.write_block(PLACE, bytes(range(256)) * 32)
    assert early[0] == 0
    early.clear()
    window.write_block(PLACE, bytes(8192))
    assert early


@pytest.mark.parametrize("kind", ["compute", "copy"])
def test_work_and_its_pointer_are_in_the_cards_memory_when_the_doorbell_arrives(up, monkeypatch, kind):
    """Rings are in VRAM here, behind the host data path. A copy engine polls its pointer there."""
    radeon, queue, seen = up.radeon, getattr(up.card, kind), []
    radeon.hdp.drain_us, radeon.hdp.forgives_left = None, False
    ring, polled = radeon.nbio.doorbell, kind == "copy"
    memory = [up.memory(buffer) for buffer in (queue.memory.ring, queue.memory.page)]

    def watched(index, value, size_bytes):
        if index == queue.doorbell.index:
            pointer = int.from_bytes(memory[1][WPTR_AT : WPTR_AT + 8], "little")
            seen.append((radeon.hdp.holds, pointer if polled else value, value))
        ring(index, value, size_bytes)

    monkeypatch.setattr(radeon.nbio, "doorbell", watched)
    for _ in range(2):
        queue.submit(queue.stream()).wait()
    assert len(seen) == 2
    assert all(waits == 0 and pointer == value for waits, pointer, value in seen)


def test_a_queues_pointers_are_in_the_cards_memory_when_the_queue_is_mapped(up, monkeypatch):
    """An active engine reads them there, and the memory held other values before."""
    radeon, card, seen = up.radeon, up.card, []

    def waits(gpu_va):
        """Tell whether 8 bytes of VRAM wait in the host data path."""
        leaf = card.spaces.user.tables.walk(gpu_va)
        page, at = divmod(leaf.address + gpu_va - leaf.gpu_va, 4096)
        held = radeon.hdp._held.get(page)
        return held is not None and any(held[1][at : at + 8])

    for kind in (SdmaQueue, Hqd):

        def watched(hardware, real=kind.map):
            radeon.settle()
            spec = hardware.spec
            seen.append((waits(spec.rptr_va), waits(spec.wptr_va)))
            real(hardware)

        monkeypatch.setattr(kind, "map", watched)
    radeon.hdp.drain_us = None
    card.new_copy_queue()
    card.new_compute_queue()
    assert seen == [(False, False)] * 2
    for rung in ("queue", "engine"):
        card.reset(rung)
    assert len(seen) > 4
    assert set(seen) == {(False, False)}


def test_tables_are_in_the_cards_memory_when_an_address_space_is_switched_on(docks, monkeypatch):
    """This includes the tables through which the security processor fetches its firmware from the bridge."""
    dock, seen, write = docks(), [], Block.write
    radeon = dock.radeon
    radeon.hdp.drain_us = None

    def watched(block, word, *args):
        if isinstance(word, (MMVM_CONTEXT0_CNTL, GCVM_CONTEXT0_CNTL)) and word.enable_context:
            # It was answered: everything sent before it has arrived.
            block.read(type(word), *args)
            seen.append(radeon.hdp.holds)
        write(block, word, *args)

    monkeypatch.setattr(Block, "write", watched)
    # Small ones, too.
    monkeypatch.setattr(FirmwareDoor, "takes", lambda door, size_bytes: size_bytes <= door.size_bytes)
    dock.open()
    assert seen
    assert not any(seen)


def test_a_doorbell_goes_on_its_way_though_nobody_asks_for_anything_behind_it(up, monkeypatch):
    radeon, queue, rung = up.radeon, up.card.compute, []
    ring = radeon.nbio.doorbell

    def watched(index, value, size_bytes):
        rung.append(index)
        ring(index, value, size_bytes)

    monkeypatch.setattr(radeon.nbio, "doorbell", watched)
    point = queue.submit(queue.stream())
    up.clock.sleep_us(10_000)
    assert queue.doorbell.index in rung
    point.wait()


def test_fills_are_armed_before_their_bytes_and_one_ahead_at_most(up, monkeypatch):
    """Two fills in line are known to work. Nothing is known of more: docs/asm2464pd.md."""
    submit, controls, bulk, seen = up.host.submit, [], [], []

    def watched(handle, endpoint, payload, **options):
        if endpoint == BULK_OUT:
            seen.append((sum(not one.done for one in controls), sum(not one.done for one in bulk)))
        transfer = submit(handle, endpoint, payload, **options)
        {BULK_OUT: bulk, 0: controls}.get(endpoint, []).append(transfer)
        return transfer

    monkeypatch.setattr(up.host, "submit", watched)
    for _ in range(4):
        up.card.device.bulk.fill(0, bytes(64 << 10))
    up.card.device.bulk.settle(0)
    assert len(seen) == 4
    assert all(unarmed == 0 and ahead <= 1 for unarmed, ahead in seen)


def test_the_engine_signals_a_copy_when_the_copy_has_ended(up, monkeypatch):
    """A fence alone does not wait, but an empty packet does. Source: radv_barrier of Mesa's radv_cmd_buffer.c."""
    queue, submit, streams = up.card.copy, up.card.copy.submit, []

    def watched(stream, *args, **options):
        streams.append(bytes(stream.body))
        return submit(stream, *args, **options)

    monkeypatch.setattr(queue, "submit", watched)
    size = 3 * up.card.device.bulk.size_bytes
    up.upload(1, size)
    up.download(2, size)
    told = 0
    for body in streams:
        names = [packet.name for packet in decode_sdma(body, up.card.blocks.ips.version("sdma0"))]
        since = []
        for name in names:
            if name == "FENCE" and any(one.startswith("COPY") for one in since):
                last = max(at for at, one in enumerate(since) if one.startswith("COPY"))
                assert "NOP" in since[last:], names
                told += 1
                since = []
            since.append(name)
    assert told >= 6


def test_a_stream_goes_behind_what_is_sent_to_the_bridges_memory(up, monkeypatch):
    """Both use the same endpoint: the engine of the bridge's memory would take the stream's bytes."""
    submit, bulk, ahead = up.host.submit, [], []

    def watched(handle, endpoint, payload, **options):
        if endpoint == BULK_OUT:
            ahead.append(sum(not one.done for one in bulk))
        transfer = submit(handle, endpoint, payload, **options)
        if endpoint == BULK_OUT:
            bulk.append(transfer)
        return transfer

    monkeypatch.setattr(up.host, "submit", watched)
    up.card.device.bulk.fill(0, bytes(64 << 10))
    up.card.device.bars[0].write_block(PLACE, bytes(8192))
    assert ahead == [0, 0]
