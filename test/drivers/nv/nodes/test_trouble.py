"""Mistakes of programs and trouble of the card, through NVIDIA's kernel driver: each is one clear error."""

import numpy as np
import pytest

import ringup
from ringup.compiler.isa.sass import assembly, cubin_write
from ringup.compiler.isa.sass.cubin import Generation
from ringup.drivers.select import start
from ringup.drivers.transport.nvidia.transport import open as open_path
from ringup.errors import DeviceFault, DeviceHung, DeviceTimeout
from ringup.queues.timeline import Point
from ringup.silicon import nvidia_kernel

NOWHERE = 0x7F_0000_0000


def submit(card, kernel, args, block=32):
    stream = card.compute.stream()
    stream.dispatch(kernel, 1, block, args)
    return card.compute.submit(stream)


def test_a_page_fault_names_address_and_channel(card, program):
    kernels = program(card)
    cell = card.alloc(4096, name="cell")
    with pytest.raises(DeviceFault, match=rf"\(compute\): Xid 31 .*FAULT_PDE at {NOWHERE:#x}: in no buffer") as seen:
        submit(card, kernels["counts"], [NOWHERE]).wait(1)
    assert card.name in str(seen.value)
    # all work is refused until the reset, with the same cause
    with pytest.raises(DeviceFault, match="Xid 31"):
        card.copy.fill(cell, 1)
    report = card.report()
    assert "Xid 31" in report.cause
    assert report.queues[0].submitted > report.queues[0].completed
    assert [rung.error for rung in card.reset()] == [""]
    card.copy.fill(cell, 0).wait()
    submit(card, kernels["counts"], [cell]).wait()
    assert card.copy.download_array(cell, "u4", 1)[0] == 32
    assert card.stats().faults == card.stats().resets == 1


def test_running_over_a_buffers_end_is_a_fault_that_names_it(ga102, program):
    buffer = ga102.alloc(4096, "host", name="short")
    with pytest.raises(DeviceFault, match="0x0 bytes behind the end of <Buffer 'short'"):
        submit(ga102, program(ga102)["counts"], [buffer.gpu_va + 4096]).wait(1)
    ga102.reset()


def test_a_fault_of_a_copy_names_its_engine(ga102):
    stream = ga102.copy.stream()
    stream.copy(NOWHERE, NOWHERE + 4096, 64)
    with pytest.raises(DeviceFault, match=r"copy engine 0 \(copy 0\): Xid 31"):
        ga102.copy.submit(stream).wait(1)
    ga102.reset()
    with ga102.alloc(4096) as buffer:
        ga102.copy.upload(buffer, b"after").wait()
        assert ga102.copy.download(buffer, None, 0, 5) == b"after"


def test_done_work_stays_done_and_undone_work_fails_with_the_cause(ga102, program):
    kernels = program(ga102)
    cell = ga102.alloc(4096)
    ga102.copy.fill(cell, 0).wait()
    before = submit(ga102, kernels["counts"], [cell])
    before.wait()
    wrong = submit(ga102, kernels["counts"], [NOWHERE])
    with pytest.raises(DeviceFault):
        wrong.wait(1)
    ga102.reset()
    before.wait()
    with pytest.raises(DeviceFault):
        wrong.wait(1)


def test_a_semaphore_that_never_comes_is_bounded_and_named(ga102):
    buffer = ga102.alloc(4096)
    stream = ga102.copy.stream()
    stream.wait_for(Point(ga102.compute.timeline, ga102.compute.timeline.last + 5))
    stream.fill(buffer.gpu_va, 1, 64)
    point = ga102.copy.submit(stream)
    with pytest.raises(DeviceTimeout, match=r"waiting for \d+ on .*copy 0: it stood at \d+ .* for 0.05 s") as seen:
        point.wait(0.05)
    notes = "\n".join(seen.value.__notes__)
    assert "channel 0 of copy engine 0 has fetched its GPFIFO's entries up to" in notes
    assert "a semaphore that waits for" in notes
    assert "(compute: pointers and timeline)" in notes
    assert "NON_STALL_INTERRUPT" in notes
    assert "a semaphore that waits for" in str(ga102.report())
    ga102.reset()
    with pytest.raises(DeviceHung, match="was reset before the work was done"):
        point.wait()
    ga102.copy.fill(buffer, 2).wait()


def test_a_kernel_that_never_ends_is_bounded_and_ended_by_a_reset(ga102, program):
    kernels = program(ga102)
    cell = ga102.alloc(4096, "host", visible=True)
    point = submit(ga102, kernels["spin"], [cell], block=1)
    with pytest.raises(DeviceTimeout, match="compute"):
        point.wait(0.01)
    ga102.reset()
    with pytest.raises(DeviceHung):
        point.wait()
    submit(ga102, kernels["counts"], [cell]).wait()
    assert int.from_bytes(cell.view[:4], "little") == 32


def test_a_launch_beyond_the_chip_is_refused_before_it_is_sent(ga102, program):
    kernels = program(ga102)
    stream = ga102.compute.stream()
    for grid, block, shared, said in (
        (1, 2000, 0, "1024"),
        (1, (1, 1, 65), 0, "64"),
        ((1, 70000), 32, 0, "65535"),
        (1, 32, 200_000, "shared"),
    ):
        with pytest.raises(ValueError, match=said):
            stream.dispatch(kernels["counts"], grid, block, [0], dynamic_lds_bytes=shared)
    assert not stream.fixups


EARLY = """
.target sm_86
.kernel early
.registers 8
.parameter 8
  MOV R3, 0x4
  [B------:R-:W-:Y:S05] IADD3 R3, R3, 0x1, RZ
  [B------:R-:W-:Y:S05] EXIT
"""


def test_what_a_virtual_card_saw_is_told_with_the_error():
    """An instruction reads a register too early: a real card computes something, a virtual one says which."""
    made = assembly.assemble(EARLY, "early")
    code = cubin_write.write(made.kernels, "sm_86", Generation.CUDA_12, made.data, made.addresses)
    with ringup.open("virtual:ga102@nvidia") as card:
        with pytest.raises(DeviceFault, match="Xid 13") as seen:
            submit(card, card.load(code).only(), [0]).wait(1)
        note = "\n".join(seen.value.__notes__)
        assert "R3 is read 1 cycles after MOV R3, 0x4 began to write it" in note
        assert card.mistakes == card.report().mistakes
        assert "the virtual card saw: " in str(card.report())


def test_another_reset_is_refused(ga102):
    with pytest.raises(ValueError, match="it has channel"):
        ga102.reset("mode1")


def test_two_processes_do_not_harm_each_other(program):
    """Two clients on one driver: a fault of one leaves the other's channels running."""
    kernel = nvidia_kernel("ga102")
    one, other = (start(open_path("0", model=kernel, name=f"nvidia:{name}")) for name in ("one", "other"))
    cells = [card.alloc(4096) for card in (one, other)]
    for card, cell in zip((one, other), cells, strict=True):
        card.copy.fill(cell, 0).wait()
    with pytest.raises(DeviceFault):
        submit(one, program(one)["counts"], [NOWHERE]).wait(1)
    submit(other, program(other)["counts"], [cells[1]]).wait()
    assert (other.copy.download_array(cells[1], "u4", 1) == np.uint32(32)).all()
    # the first process dies without a word: its files are closed by the system
    for descriptor in sorted(file for file in kernel.files):
        if kernel.files[descriptor] in _files_of(kernel, one):
            kernel.close(descriptor)
    submit(other, program(other)["counts"], [cells[1]]).wait()
    other.close()
    assert not kernel.owners
    kernel.end()


def _files_of(kernel, card):
    device = card.device
    nodes = (device.calls.node, device.calls._card, device.interrupts.node)
    return [kernel.files[node] for node in nodes if node in kernel.files]
