"""The first tests for a real card: it starts twice, keeps counting, moves bytes, computes, reports a fault and a hang,
and works again.

`pytest --card pci:0000:03:00.0` runs these and the other tests marked `metal` on that card; `docs/driver.md` says how.
"""

import numpy as np
import pytest

from ringup.errors import DeviceFault, DeviceTimeout

pytestmark = pytest.mark.metal
SOURCE = """
__kernel void spin(__global volatile uint *flag) { while (flag[0] == 0) ; }
__kernel void square(__global uint *out, __global const uint *in, uint count) {
    uint at = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
    if (at < count) out[at] = in[at] * in[at]; }
"""
COUNT = 100_003


@pytest.fixture
def program(metal_card, opencl):
    loaded = metal_card.load(opencl(SOURCE, metal_card.info.target), "metal")
    yield loaded
    loaded.free()


def squares(card, program):
    """Tell whether a kernel's squares equal NumPy's; the copy queue moves its input and output."""
    data = np.random.default_rng(3).integers(0, 1 << 32, COUNT, np.uint32)
    with card.alloc(4 * COUNT) as source, card.alloc(4 * COUNT) as target:
        stream = card.compute.stream()
        stream.wait_for(card.copy.upload(source, data))
        stream.dispatch(program["square"], -(-COUNT // 64), 64, [target, source, COUNT])
        card.copy.wait_for(card.compute.submit(stream))
        return np.array_equal(card.copy.download_array(target, np.uint32, COUNT), data * data)


def test_it_comes_up_and_again_after_it_was_closed(card_name, open_metal):
    seen = []
    for _ in range(2):
        with open_metal(card_name) as card:
            seen.append((card.info.chip, card.info.vram_bytes, card.info.compute_units))
            assert card.stages
            assert not any(stage.error for stage in card.stages)
            assert card.report().cause == ""
    first, second = seen
    assert first == second
    chip, vram_bytes, units = first
    # 6 x 8, 3 x 10, 2 x 8 WGPs by amdgpu's own tables; AMD's specifications of the RX 9060 XT, 9070 XT and MI300X
    assert units <= {"navi31": 96, "navi32": 60, "navi33": 32, "navi44": 32, "navi48": 64, "mi300x": 304}[chip]
    assert vram_bytes >= 1 << 30


def test_it_computes_what_numpy_does(metal_card, program):
    assert squares(metal_card, program)


def test_points_count_on_and_order_queues(metal_card):
    card = metal_card
    other = card.new_compute_queue()
    with card.alloc(4096) as buffer:
        card.copy.fill(buffer, 0).wait()
        point, before = None, card.compute.timeline.last
        for value in range(1, 51):
            queue = (card.compute, other)[value % 2]
            stream = queue.stream()
            if point is not None:
                stream.wait_for(point)
            stream.append(stream.pm4.write_data(buffer.gpu_va, value))
            point = queue.submit(stream)
        point.wait(1)
        # Each submission waits for the one before it, on either queue.
        assert card.copy.download_array(buffer, np.uint32, 1)[0] == 50
        assert card.compute.timeline.completed == card.compute.timeline.last == before + 25
    other.close()


def test_a_kept_stream_runs_with_new_arguments(metal_card, program):
    card = metal_card
    data = np.arange(64, dtype=np.uint32)
    with card.alloc(256) as source, card.alloc(256) as target:
        card.copy.upload(source, data).wait()
        stream = card.compute.stream()
        stream.dispatch(program["square"], 1, 64, [target, source, 0])
        kept = card.compute.keep(stream)
        for count in (1, 33, 64):
            card.copy.fill(target, 0xFFFF_FFFF).wait()
            kept.patch_args(program["square"].arg_offset(2), np.uint32(count))
            kept.submit().wait(1)
            wanted = np.where(data < count, data * data, 0xFFFF_FFFF)
            assert np.array_equal(card.copy.download_array(target, np.uint32, 64), wanted)
        kept.free()


def test_its_measurements_are_plausible(metal_card):
    """A card on a desk. The bounds hold for every working card."""
    first, second = metal_card.stats(), metal_card.stats()
    for metrics in (first.metrics, second.metrics):
        # the firmware of an MI300X measures no edge: MetricsTableX_t of smu_v13_0_6_pmfw.h
        lowest_c = metrics.edge_temperature_c if metal_card.info.chip != "mi300x" else metrics.memory_temperature_c
        assert 0 < lowest_c < 120
        assert metrics.edge_temperature_c <= metrics.hotspot_temperature_c
        assert 0 < metrics.hotspot_temperature_c < 120
        assert 0 <= metrics.power_w < 1000
        assert metrics.gfx_clock_mhz < 4000
    assert second.at_us >= first.at_us
    assert (second.faults, second.interrupt_overflows) == (0, 0)


def test_a_fault_names_the_buffer_and_the_queue_works_again(card_name, open_metal, opencl):
    with open_metal(card_name) as card:
        program = card.load(opencl(SOURCE, card.info.target), "metal")
        source, out = card.alloc(4096, name="in"), card.alloc(4096, name="out")
        stream = card.compute.stream()
        stream.dispatch(program["square"], 1, 64, [out, source, 64])
        out.free()
        with pytest.raises(DeviceFault, match="byte 0x0 of 'out', which was freed"):
            card.compute.submit(stream).wait(1)
        assert card.report().cause.startswith("DeviceFault")
        assert "queue" in str(card.reset()[-1])
        assert squares(card, program)


def test_a_kernel_that_hangs_is_named_and_the_queue_works_again(card_name, open_metal, opencl):
    with open_metal(card_name) as card:
        program = card.load(opencl(SOURCE, card.info.target), "metal")
        flag = card.alloc(4096, name="flag")
        card.copy.fill(flag, 0).wait()
        stream = card.compute.stream()
        stream.dispatch(program["spin"], 1, 32, [flag])
        with pytest.raises(DeviceTimeout, match="waiting for"):
            card.compute.submit(stream).wait(0.02)
        assert any("spin+0x" in wave for wave in card.report().waves)
        assert "queue" in str(card.reset()[-1])
        assert squares(card, program)
