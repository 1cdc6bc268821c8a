"""What is sent through an enclosure before something else, since the bridge or the card acts in between: looked at in that very moment."""

import pytest

from ringup.drivers.amd.queue_set import WPTR_AT

BULK_OUT = 0x02
PLACE = 128 << 20  # in BAR 0: far from what the driver has taken


@pytest.fixture
def up(docks):
    made = docks()
    made.open()
    return made


def test_a_stream_is_armed_before_its_bytes_come_where_the_other_engine_had_the_endpoint(up, monkeypatch):
    """It takes what comes. Behind another stream they may come at once."""
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
    """Rings lie in VRAM here, behind the host data path; a copy engine polls its pointer there."""
    radeon, queue, seen = up.radeon, getattr(up.card, kind), []
    radeon.hdp.drain_us, radeon.hdp.forgives_left = None, False
    ring, polled = radeon.nbio.doorbell, kind == "copy"
    memory = [up.memory(buffer) for buffer in (queue.memory.ring, queue.memory.page)]

    def watched(index, value, size_bytes):
        if index == queue.memory.doorbell.index:
            pointer = int.from_bytes(memory[1][WPTR_AT : WPTR_AT + 8], "little")
            seen.append((radeon.hdp.holds, pointer if polled else value, value))
        ring(index, value, size_bytes)

    monkeypatch.setattr(radeon.nbio, "doorbell", watched)
    for _ in range(2):
        queue.submit(queue.stream()).wait()
    assert len(seen) == 2
    assert all(waits == 0 and pointer == value for waits, pointer, value in seen)
