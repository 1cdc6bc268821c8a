"""A Hopper card behind NVIDIA's kernel driver: page tables of version 3, and another class of everything. Its model has
no shader cores, so copies stand for all work.
"""

import pytest
from nvidia_code.copies import copies_and_keeps_the_rest

from ringup.errors import DeviceFault, DeviceHung
from ringup.queues.timeline import Point

MIB = 1 << 20


@pytest.fixture
def gh100(opened):
    return opened("gh100")


def test_it_says_what_it_is(gh100):
    info = gh100.info
    # GH100 of an H100 PCIe: 114 SMs of 132
    assert (info.chip, info.target, info.pci_id, info.compute_units) == ("gh100", "sm_90", "10de:2331", 114)


# pages of 4 KiB, 64 KiB and 2 MiB, and a table's end between them
@pytest.mark.parametrize("size", [1, 4097, 65536, 3 * MIB + 13, 9 * MIB])
@pytest.mark.parametrize("where", ["vram", "host"])
def test_copies_move_every_byte_and_no_other(gh100, size, where):
    copies_and_keeps_the_rest(gh100, size, where)


def test_kept_streams_run_again_and_rings_wrap(gh100):
    with gh100.alloc(4096) as source, gh100.alloc(4096) as target:
        stream = gh100.copy.stream()
        stream.copy(target.gpu_va, source.gpu_va, 4096)
        kept = gh100.copy.keep(stream)
        for turn in range(300):
            gh100.copy.fill(source, turn)
            last = kept.submit()
        last.wait()
        assert gh100.copy.download(target) == (299).to_bytes(4, "little") * 1024
    Point(gh100.copy.timeline, gh100.copy.timeline.last).wait()


def test_running_over_a_buffers_end_is_a_fault_that_names_it(gh100):
    with gh100.alloc(4096, "host", name="cell") as cell, gh100.alloc(4 * MIB) as room:
        stream = gh100.copy.stream()
        stream.copy(room.gpu_va, cell.gpu_va, 2 * MIB)
        with pytest.raises(DeviceFault, match=r"0x0 bytes behind the end of <Buffer 'cell'"):
            gh100.copy.submit(stream).wait()
        gh100.reset()
        gh100.copy.upload(room, b"again").wait()
        assert gh100.copy.download(room, None, 0, 5) == b"again"
    gh100.device.system.model.card.violations.clear()


def test_a_launch_is_an_error_of_its_channel(gh100, program):
    kernel = program(gh100)["add"]
    with gh100.alloc(4096) as data:
        stream = gh100.compute.stream()
        stream.dispatch(kernel, 1, 32, [data, data, data, 32])
        with pytest.raises(DeviceHung, match="GR_CLASS_ERROR"):
            gh100.compute.submit(stream).wait()
        gh100.reset()
        gh100.copy.upload(data, b"again").wait()
