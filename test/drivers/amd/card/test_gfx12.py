"""Cards of gfx12 at work: kernels on queues of PM4 and of HSA, a fault, resets of a queue and of the whole card."""

import struct

import pytest

import ringup
from ringup.errors import DeviceFault
from ringup.silicon import card as virtual

TARGETS = {"navi44": "gfx1200", "navi48": "gfx1201"}
STORE = """
__kernel void store(__global uint *out, uint value) { out[__builtin_amdgcn_workitem_id_x()] = value; }
"""


@pytest.fixture(params=TARGETS)
def up(request, opencl):
    """`(virtual card, card, code)` for each chip in turn; at the end the card must have recorded no violation."""
    radeon = virtual(request.param, vram_bytes=512 << 20)
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        yield radeon, card, opencl(STORE, TARGETS[request.param])
    assert radeon.violations == []


def stores(card, code, value):
    """Tell whether a kernel stores a value on each kind of queue, and a copy queue fetches it."""
    program = card.load(code, "store")
    for queue in (card.compute, card.aql):
        with card.alloc(128) as out:
            card.copy.fill(out, 0).wait()
            stream = queue.stream()
            stream.dispatch(program["store"], 1, 32, [out, value])
            card.copy.wait_for(queue.submit(stream))
            if card.copy.download(out) != struct.pack("<I", value) * 32:
                return False
    return True


def test_kernels_run_on_queues_of_both_kinds(up):
    _, card, code = up
    assert card.info.target in TARGETS.values()
    assert stores(card, code, 77)


@pytest.mark.parametrize("first", ["queue", "engine", "mode1"])
def test_it_works_again_after_a_reset(up, first):
    _, card, code = up
    assert [(rung.name, rung.error) for rung in card.reset(first)] == [(first, "")]
    assert stores(card, code, 5)


def test_a_fault_is_reported_with_its_address_and_a_reset_ends_it(up):
    radeon, card, code = up
    program = card.load(code, "store")
    stream = card.compute.stream()
    stream.dispatch(program["store"], 1, 32, [0x7000_0000_0000, 1])
    with pytest.raises(DeviceFault, match="0x700000000000"):
        card.compute.submit(stream).wait(1)
    card.reset()
    radeon.violations.clear()  # the fault itself
    assert stores(card, code, 6)
