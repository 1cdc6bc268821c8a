"""Memory of a whole card at its limits: exhaustion is reported and leaks nothing, faults name the buffer, repeated
cycles leak nothing.
"""

import gc
from collections import Counter
from itertools import count

import numpy as np
import pytest

import ringup
from ringup.errors import DeviceFault, OutOfMemory
from ringup.silicon import card as virtual

TARGETS = {"navi31": "gfx1100", "navi32": "gfx1101", "navi33": "gfx1102"}
MIB = 1 << 20
SOURCE = """
typedef __global uint *U;
__kernel void store(U o, ulong at) { if (__builtin_amdgcn_workitem_id_x() == 0) ((__global uchar *)o)[at] = 1; }
__kernel void load(U o, U a, ulong at) { if (__builtin_amdgcn_workitem_id_x() == 0) o[0] = ((__global uchar *)a)[at]; }
__kernel void storm(U o) { o[(__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x()) * 4096] = 1; }
__kernel void stack(U o, uint n) {
  uint a[512], s = 0;
  for (uint i = 0; i < 512; i++) a[i] = i * n;
  for (uint i = 0; i < n; i++) s += a[i * 37 & 511];
  o[0] = s;
}
"""
DRIVERS = ("ringup.drivers", "ringup.queues", "ringup.firmware")
NOWHERE = 0x7000_0000_0000  # a user-space address where nothing is mapped


def connect(radeon):
    return ringup.open(radeon.name, transport={"card": radeon})


def works(card):
    data = np.arange(5000, dtype=np.uint32)
    with card.alloc(data.nbytes, "vram") as source, card.alloc(data.nbytes, "host") as target:
        card.copy.wait_for(card.copy.upload(source, data))
        card.copy.copy_buffer(target, source)
        return np.array_equal(card.copy.download_array(target, np.uint32, 5000), data)


def state(radeon, card):
    """Return what is in use: VRAM, addresses of both spaces, pieces of host memory."""
    spaces = card.spaces
    return spaces.vram.free_bytes, spaces.user.va.free_bytes, spaces.system.va.free_bytes, len(radeon.host._bases)


@pytest.fixture
def radeon(virtual_card):
    return virtual_card("navi31", vram_bytes=512 * MIB)


# --- exhaustion -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("visible", "place"), [(False, "VRAM beyond the CPU window"), (True, "VRAM in the CPU window")]
)
def test_exhausted_vram_says_asked_free_largest_and_holders_and_is_whole_again(radeon, visible, place):
    with connect(radeon) as card:
        card.copy.upload(card.alloc(4096, name="first"), bytes(4096)).wait()
        before, held = state(radeon, card), []
        with pytest.raises(OutOfMemory) as told:
            held.extend(card.alloc(24 * MIB, visible=visible, name=("weights", "inputs")[n % 2]) for n in count())
        text = str(told.value)
        assert f"{place}: 24 MiB asked for" in text
        for part in (" free, the largest piece ", "most is held by: ", "weights ", "inputs "):
            assert part in text
        assert (len(held) + 1) * 24 * MIB > (256 if visible else 512) * MIB - 100 * MIB
        # A smaller buffer still fits.
        small = card.alloc(4096, visible=visible)
        assert works(card) or visible
        card.spaces.user.free(small, *held)
        assert state(radeon, card) == before
        assert works(card)


def test_exhausted_addresses_are_reported_and_leak_nothing(radeon):
    with connect(radeon) as card:
        works(card)
        va = card.spaces.user.va
        all_of_it = []
        while va.largest_bytes > MIB:
            all_of_it.append(va.alloc(va.largest_bytes, 4096, "a test"))
        before = state(radeon, card)
        for where in ("vram", "host"):
            with pytest.raises(OutOfMemory, match=r"addresses of the card: .* asked for big.*most is held by: a test "):
                card.alloc(4 * MIB, where, name="big")
        assert state(radeon, card) == before
        for start in all_of_it:
            va.free(start)
        assert works(card)


def test_scratch_that_does_not_fit_is_reported_and_the_stream_stays_unchanged(virtual_card, opencl):
    with connect(virtual_card(vram_bytes=64 * MIB)) as card, card.alloc(4096) as out:
        program = card.load(opencl(SOURCE, "gfx1100"))
        stream = card.compute.stream()
        stream.dispatch(program["store"], 1, 32, [out, 0])
        size, free = stream.size_bytes, card.spaces.vram.free_bytes
        with pytest.raises(OutOfMemory, match=r"384 MiB asked for compute 0: scratch.*most is held by: "):
            stream.dispatch(program["stack"], 1, 32, [out, 3])
        assert (stream.size_bytes, card.spaces.vram.free_bytes) == (size, free)
        card.compute.submit(stream).wait()
        assert works(card)


def test_thousands_of_faulting_lanes_are_one_error_and_the_card_works_on(radeon, opencl):
    with connect(radeon) as card:
        stream = card.compute.stream()
        stream.dispatch(card.load(opencl(SOURCE, "gfx1100"))["storm"], 64, 64, [NOWHERE])
        with pytest.raises(DeviceFault, match=r"TCP wrote page .* more faults followed.* in no buffer"):
            card.compute.submit(stream).wait(1)
        card.reset()
        assert works(card)
    # The test caused these faults.
    radeon.violations.clear()


@pytest.mark.parametrize("after", range(6))
def test_refused_host_memory_is_reported_and_leaves_nothing_half_made(radeon, after):
    with connect(radeon) as card:
        assert works(card)
        before, give, left = state(radeon, card), radeon.alloc_host, after

        def refuse(size_bytes):
            nonlocal left
            left -= 1
            if left < 0:
                raise OutOfMemory(f"the system gives no {size_bytes} bytes that a card may reach")
            return give(size_bytes)

        radeon.alloc_host = refuse
        made = []
        with pytest.raises(OutOfMemory, match="that a card may reach"):
            made.extend(card.new_compute_queue() for _ in range(2))
        radeon.alloc_host = give
        for queue in card.queues[2:]:
            queue.close()
        assert state(radeon, card) == before
        assert works(card)


# A start allocates host memory eleven times.
@pytest.mark.parametrize("after", range(11))
def test_a_start_without_host_memory_leaves_nothing_and_the_next_one_works(radeon, after):
    give, left = radeon.alloc_host, after

    def refuse(size_bytes):
        nonlocal left
        left -= 1
        if left < 0:
            raise OutOfMemory("the system gives no memory that a card may reach")
        return give(size_bytes)

    radeon.alloc_host = refuse
    with pytest.raises(OutOfMemory, match=r"virtual:navi31: .*: the system gives no memory"):
        connect(radeon)
    radeon.alloc_host = give
    assert not radeon.host._bases
    assert not radeon.gpu.masters_bus
    with connect(radeon) as card:
        assert works(card)


# --- faults -----------------------------------------------------------------------------------------------------------
def behind_the_end(card, program, write):
    buffer = card.alloc(3 * 4096, name="weights")
    return buffer.gpu_va + 3 * 4096 + 64, r"0x0 bytes behind the end of <Buffer 'weights', 12288 bytes of vram at 0x"


def freed(card, program, write):
    buffer = card.alloc(8192, "host", name="inputs")
    at = buffer.gpu_va + 5000
    buffer.free()
    return at, r"byte 0x1000 of 'inputs', which was freed \(8192 bytes at 0x"


def never_mapped(card, program, write):
    return NOWHERE + 12, r"in no buffer \(0x700000000000\)"


def read_only(card, program, write):
    buffer = card.spaces.user.alloc(8192, "vram", name="constants", writable=False)
    return buffer.gpu_va + 4100, r"byte 0x1000 of <Buffer 'constants', 8192 bytes of vram at 0x"


FAULTS = [(place, write) for place in (behind_the_end, freed, never_mapped) for write in (False, True)]
FAULTS.append((read_only, True))


@pytest.mark.parametrize("engine", ["compute", "copy"])
@pytest.mark.parametrize(
    ("place", "write"), FAULTS, ids=[f"{place.__name__} {'write' if write else 'read'}" for place, write in FAULTS]
)
@pytest.mark.parametrize("chip", TARGETS)
@pytest.mark.sweep(10)
def test_a_fault_names_client_direction_and_buffer_and_the_card_works_on(chip, place, write, engine, opencl):
    radeon = virtual(chip, vram_bytes=512 * MIB)
    with connect(radeon) as card:
        program, out = card.load(opencl(SOURCE, TARGETS[chip])), card.alloc(4096, name="out")
        at, where = place(card, program, write)
        if engine == "compute":
            stream = card.compute.stream()
            args = [at, 0] if write else [out, at, 0]
            stream.dispatch(program["store" if write else "load"], 1, 32, args)
            point = card.compute.submit(stream)
        else:
            stream = card.copy.stream()
            stream.copy(*((at, out.gpu_va) if write else (out.gpu_va, at)), 16)
            point = card.copy.submit(stream)
        client = "TCP" if engine == "compute" else "SDMA0"
        verb = "wrote" if write else "read"
        with pytest.raises(DeviceFault, match=rf"gfxhub: {client} {verb} page 0x[0-9a-f]+ of vmid 8: .*{where}"):
            point.wait(1)
        assert "verified" in str(card.reset()[-1])
        assert works(card)
    # The test caused these faults.
    radeon.violations.clear()


# --- cycles -----------------------------------------------------------------------------------------------------------
def objects():
    """Count the live Python objects of each of the driver's types. The virtual card is left out: its log grows."""
    gc.collect()
    counts = Counter(type(one) for one in gc.get_objects())
    return Counter({kind.__qualname__: n for kind, n in counts.items() if str(kind.__module__).startswith(DRIVERS)})


def grown(before, after):
    """Return the types with more objects than before. Points stay in rings until their bytes are needed again: at most
    as many as fit a ring and a staging memory.
    """
    assert after.pop("Point", 0) < 4096
    return {name: after[name] - before[name] for name in after if after[name] - before[name] > 3}


def test_cycles_of_programs_and_buffers_leave_nothing(radeon, opencl):
    code = opencl(SOURCE, "gfx1100")
    with connect(radeon) as card:

        def cycle(number):
            program = card.load(code)
            with card.alloc(1000 + number, ("vram", "host")[number % 2]) as buffer:
                stream = card.compute.stream()
                stream.dispatch(program["store"], 1, 32, [buffer, 999])
                kept = card.compute.keep(stream)
                kept.submit().wait()
                kept.free()
            program.free()

        # The driver remembers freed buffers for a while, to name them in faults.
        for number in range(300):
            cycle(number)
        before, types = state(radeon, card), objects()
        for number in range(400):
            cycle(number)
        assert state(radeon, card) == before
        assert not grown(types, objects())


def test_opens_and_closes_of_a_card_leave_nothing(radeon):
    def cycle():
        with connect(radeon) as card:
            free = card.spaces.vram.free_bytes
            card.new_compute_queue().submit(card.compute.stream()).wait()
            return free

    for _ in range(3):
        free = cycle()
    types = objects()
    for _ in range(60):
        assert cycle() == free
        assert not radeon.host._bases
    assert not grown(types, objects())
