"""Crash reports of GSP's processor: packets as nv-crashcat.h lays them out, and the queue that registers point to."""

from __future__ import annotations

import json
import struct

import pytest

from ringup.drivers import select
from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.gsp.crash_report import MAX_REPORTS, decode
from ringup.drivers.nv.lifecycle.inspect import Found
from ringup.drivers.transport.linux.readonly import ReadOnly
from ringup.errors import DeviceHung

# nv-crashcat.h, NV_CRASHCAT_PACKET_HEADER: signature 0xdead in 15:0, version 1 in 19:16, units of 8 bytes in 21:20, the
# number of words minus 1 in 31:22, the type in 39:32; in bits 42:40 the mode: 2 the kernel's, 3 a task's
REPORT, CSRS, GPRS = 0x0181_DEAD, 0x201_0181_DEAD, 0x202_0781_DEAD
STACK, IO = 0x303_0081_DEAD, 0x204_0041_DEAD
# NvCrashCatReport_V1: "LIBOS3.1"; partition 2, microcode 5, machine mode, no task; version 3.1 (0x123456) at 77 s; a
# task's mode, task 4; an exception that the task contains; where; a load page fault
EXCEPTION = (0x4C49424F53332E31, 0xFF01_0502, 77 << 32 | 0x3112_3456, 0x0403_FFFF, 0x30, 0x8_0000_1234, 0xD)
# libos_v2_crashcat.h: "LIBOS2.0"; the kernel's mode; a panic that nothing contains, for a failed assertion (0xc)
PANIC = (0x4C49424F53322E30, 0xFF01_0000, 0x2000_0001, 0xFF02_FFFF, 0xC << 32 | 0xF2, 0x4000, 0x99)
GSP = 0x11_0000
# dev_falcon_v4.h, relative to GSP: NV_PFALCON_FALCON_DEBUGINFO, _COMMON_SCRATCH_GROUP_1(0), _DMEMC(0), _DMEMD(0);
# dev_gsp.h: NV_PGSP_EMEMC(0), NV_PGSP_EMEMD(0)
DEBUGINFO, SCRATCH, DMEMC, DMEMD, EMEMC, EMEMD = 0x094, 0x310, 0x1C0, 0x1C4, 0xAC0, 0xAC4
# NV_CRASHCAT_WAYFINDER_L0: version 1, at scratch group C (3)
WAYFINDER = 3 << 20 | 1 << 16 | 0xDEAD


def packed(*words):
    return struct.pack(f"<{len(words)}Q", *words)


def test_an_exception_with_registers_and_a_stack_is_decoded():
    (report,), lost = decode(
        packed(REPORT, *EXCEPTION, CSRS, *range(1, 8), GPRS, *range(101, 132), STACK, 0x1000, 0x2000, 0x3000)
        + packed(IO, 0x1400_0000_0007, 0x1404_0000_0008)
    )
    assert str(report) == (
        "task exception: load page fault at 0x800001234 (data 0xd) in partition 2, microcode 5, task 4; LIBOS3.1 3.1 "
        "(1193046), contained in task"
    )
    assert report.time_s == 77
    # NvCrashCatRiscv64CsrState_V1, NvCrashCatRiscv64GprState_V1: in their order
    assert [report.registers[name] for name in ("sstatus", "sie", "sip", "sepc", "stval", "scause", "sscratch")] == [
        *range(1, 8)
    ]
    assert [report.registers[name] for name in ("ra", "sp", "t0", "s0", "a0", "a7", "s2", "s11", "t3", "t6")] == [
        101, 102, 105, 108, 110, 117, 118, 127, 128, 131,
    ]  # fmt: skip
    (trace,) = report.traces
    assert (trace.kind, trace.mode, trace.addresses) == ("stack", "task", (0x1000, 0x2000, 0x3000))
    assert report.io == {"external I/O": {0x1400: 7, 0x1404: 8}}
    assert list(report.lines())[1:] == ["stack trace: 0x1000 0x2000 0x3000"]
    assert not report.damaged
    assert not lost


def test_a_panic_and_an_unknown_makers_report_are_told_apart():
    other = (0x1, 0x0201, 0x77, 0x0002_0304, 0x41, 0x5000, 0x6)
    (panic, unknown), _ = decode(packed(REPORT, *PANIC, REPORT, *other))
    assert str(panic) == (
        "kernel panic: assertion failed at 0x4000 (data 0x99) in partition 0, microcode 0; LIBOS2.0 2.0 (1), contained "
        "in nothing"
    )
    # without an implementation that is known, only the common fields are read
    assert str(unknown) == (
        "kernel timeout at 0x5000 (data 0x6) in partition 4, microcode 3; 0x1 0x77, contained in the core"
    )


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (0x2, "illegal instruction"),
        (0x1F, "exception 31"),
        (1 << 63 | 5, "supervisor timer interrupt"),
        (1 << 63 | 11, "machine external interrupt"),
        (1 << 63 | 2, "interrupt 2"),
    ],
)
def test_causes_are_those_of_risc_v(cause, said):
    (report,), _ = decode(packed(REPORT, *EXCEPTION[:-1], cause))
    assert report.reason == said


def test_damaged_bytes_are_said_and_bounded():
    assert decode(b"") == ([], [])
    assert decode(b"\xff" * 7) == ([], [])
    assert decode(packed(1))[1] == ["no packet begins at byte 0x0 (0x0000000000000001); 8 bytes are lost"]
    # version 2
    assert "no packet begins" in decode(packed(REPORT + 0x1_0000, *EXCEPTION))[1][0]
    # 1024 units of 64 KiB
    assert decode(packed(0xFFF1_DEAD, 0))[1] == ["a packet of 67108864 bytes at byte 0x0 has 8"]
    assert decode(packed(STACK, 1, 2, 3))[1] == ["a packet of type 3 comes before any report"]
    # a report of 6 words
    assert decode(packed(0x0141_DEAD, *EXCEPTION[:-1]))[1] == ["a packet of type 0 has 6 words, not 7"]
    (report,), lost = decode(packed(REPORT, *EXCEPTION, CSRS, 1))
    assert report.damaged == ["a packet of 56 bytes at byte 0x40 has 8"]
    (report,), _ = decode(packed(REPORT, *EXCEPTION, 0x77_0001_DEAD, 1))
    assert report.damaged == ["a packet of type 119 (1 words), which is not known"]
    reports, lost = decode(packed(REPORT, *EXCEPTION) * 100)
    assert len(reports) == MAX_REPORTS
    assert lost == [f"more than 16 reports; {64 * 84} bytes are not read"]
    json.dumps([str(one) for one in reports])


@pytest.fixture
def told(monkeypatch):
    """`told(memory, wayfinder, scratch)` lets GSP's registers say where crash reports are, and its memory have them."""
    values, memory, place = {}, bytearray(), [0]
    read, write = Registers.read, Registers.write

    def reading(self, address):
        if address - GSP in (DMEMD, EMEMD) and memory:
            place[0] += 4
            return int.from_bytes(memory[place[0] - 4 : place[0]], "little")
        return values[address - GSP] if address - GSP in values else read(self, address)

    def writing(self, address, value):
        if address - GSP in (DMEMC, EMEMC) and memory:
            # bit 25: the place counts up when it is read. Source: dev_falcon_v4.h of TU102
            assert value & ~0xFF_FFFC == 1 << 25
            place[0] = value & 0xFF_FFFC
            return
        write(self, address, value)

    monkeypatch.setattr(Registers, "read", reading)
    monkeypatch.setattr(Registers, "write", writing)

    def tell(data, wayfinder, *scratch):
        memory[:] = data
        values[DEBUGINFO] = wayfinder
        values.update({SCRATCH + 4 * index: value for index, value in enumerate(scratch)})

    return tell


def place_of(aperture, at, kibibytes=1):
    """NV_CRASHCAT_WAYFINDER_L1_V1: the memory in 2:0, units of 1 KiB in 4:3, their number minus 1 in 9:6, where in KiB
    from bit 10 on.
    """
    return aperture | 1 << 3 | kibibytes - 1 << 6 | at


@pytest.mark.parametrize(("chip", "aperture"), [("tu102", 2), ("ga102", 2), ("gh100", 3)])
def test_a_crash_is_told_with_the_error_and_in_the_report(bare, told, chip, aperture):
    card = bare(chip)
    before = card.report()
    assert (before.crashes, before.unread) == ((), ())
    data = packed(REPORT, *PANIC, STACK, 1, 2, 3)
    told(bytes(0x800) + data, WAYFINDER, place_of(aperture, 0x800), 0, len(data), 0)
    card.device.faults.inject("gsp_crash", 1)
    with pytest.raises(DeviceHung, match=r"has stopped; .*; it reports: kernel panic: assertion failed at 0x4000"):
        card.new_copy_queue(1)
    report = card.report()
    assert "GSP crashed: kernel panic: assertion failed at 0x4000" in str(report)
    assert "  stack trace: 0x1 0x2 0x3" in str(report)
    assert json.loads(json.dumps(report.as_dict()))["crashes"][0]["traces"][0]["addresses"] == [1, 2, 3]
    # after the end, too
    card.close()
    assert card.report().crashes == report.crashes


def test_a_queue_that_wraps_is_read_in_order(bare, told):
    data = packed(REPORT, *EXCEPTION)
    told(data[24:] + bytes(1024 - 64) + data[:24], WAYFINDER, place_of(2, 0), 0, 40, 1000)
    card = bare()
    assert [one.pc for one in card.report().crashes] == [EXCEPTION[5]]


# what registers say, and the line that comes of it
UNREADABLE = (
    (WAYFINDER + 0x1_0000, (0, 0, 0, 0), "reports of version 2 at place 3"),
    # the mailboxes, whose reading needs writes
    (1 << 20 | 0x1_DEAD, (0, 0, 0, 0), "at place 1, which ringup does not read"),
    (WAYFINDER, (place_of(0, 0x1000), 0, 8, 0), "reports at 0x1000 of memory 0, which the host does not read"),
    (WAYFINDER, (place_of(2, 0), 0, 1024, 0), "a queue of 1024 bytes with reports from byte 0x0 to 0x400"),
    (WAYFINDER, (place_of(2, 0), 0, 9, 0), "from byte 0x0 to 0x9, which cannot be"),
    # units of 8 bytes, which a queue cannot have; 16 units of 64 KiB
    (WAYFINDER, (2, 0, 0, 0), "a queue of 8 bytes"),
    (WAYFINDER, (0x3DA, 0, 0xF_0000, 0), "more than 16384 bytes of reports"),
    (WAYFINDER, (place_of(2, 0x400_0000), 0, 8, 0), "lies beyond what NV_PFALCON_FALCON_DMEMC"),
    (0xBADF_5040, (), ""),
    (0xFFFF_FFFF, (), ""),
)


def test_what_cannot_be_read_is_one_line(bare, told):
    card = bare()
    for wayfinder, scratch, said in UNREADABLE:
        told(b"", wayfinder, *scratch)
        report = card.report()
        assert not report.crashes
        assert [said in line for line in report.unread] == [True] * bool(said), report.unread


def test_a_card_that_was_left_after_a_crash_tells_it(bench, told):
    one = bench("ga102")
    one.start().running.gsp.reset()
    one.card.kill_holder()
    data = packed(REPORT, *PANIC, STACK, 1, 2, 3)
    told(bytes(0x800) + data, WAYFINDER, place_of(2, 0x800), 0, len(data), 0)
    report = select.left(one.card).examine()
    assert report.state == Found.DIRTY.value
    assert "kernel panic: assertion failed at 0x4000" in report.faults[0]
    seen = select.left(ReadOnly.of(one.card), own=False).examine("process 4711")
    assert (seen.faults, "a port that belongs to the card's holder" in seen.unknown[0]) == ([], True)
