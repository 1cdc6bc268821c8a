"""Registers of a block: storage, hooks, banks, and the refusal of registers that no header names. Offsets are those of
Linux's headers.
"""

from __future__ import annotations

import pytest

from ringup.errors import GuestError, Unmodelled
from ringup.silicon.common.cells import Cells, RegisterSpace
from ringup.silicon.common.rows import Kind, Rows, behaviour, inert, unmodelled

MEMSIZE = (
    0xDE3 * 4
)  # regRCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE 0xc3 of nbio_4_3_0_offset.h, behind segment 2 of navi31 (0xd20)
MQD_BASE = (0x1260 + 0x1FA9) * 4  # regCP_MQD_BASE_ADDR 0x1fa9 of gc_11_0_0_offset.h, segment 0 (0x1260)


@pytest.fixture
def gc() -> Cells:
    return Cells("navi31", "gc", rows=Rows(()))


def test_a_register_lies_where_the_header_and_the_segment_base_put_it():
    assert Cells("navi31", "nbio").address("RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE") == MEMSIZE
    assert Cells("navi31", "gc").address("CP_MQD_BASE_ADDR") == MQD_BASE


def test_bus_and_block_see_the_same_storage(gc):
    gc.write(MQD_BASE, 0x1234_5600)
    assert gc["CP_MQD_BASE_ADDR"] == 0x1234_5600
    gc["CP_MQD_BASE_ADDR"] = 5
    assert gc.read(MQD_BASE) == 5


def test_an_address_no_header_names_is_refused_both_ways(gc):
    with pytest.raises(GuestError, match="no header of navi31 names it"):
        gc.read(2)
    with pytest.raises(GuestError, match="no header of navi31 names it"):
        gc.write(2, 0)


def test_hooks_answer_reads_and_receive_writes(gc):
    heard = []
    gc.on_write("CP_MQD_BASE_ADDR", heard.append)
    gc.on_read("CP_STAT", lambda: 0x8000_0000)
    gc.write(MQD_BASE, 3)
    # A write by the block itself does not call the hook.
    gc["CP_MQD_BASE_ADDR"] = 4
    assert heard == [3]
    assert gc.read(gc.address("CP_STAT")) == 0x8000_0000


def test_read_only_bits_keep_their_value(gc):
    gc["CP_MQD_BASE_ADDR"] = 0xF0
    gc.read_only("CP_MQD_BASE_ADDR", 0xFF)
    gc.write(MQD_BASE, 0xABCD)
    assert gc["CP_MQD_BASE_ADDR"] == 0xABF0


def test_a_written_one_clears_and_the_hook_hears_what_was_written(gc):
    heard = []
    gc.write_one_clears("CP_MQD_BASE_ADDR", 0xF)
    gc.on_write("CP_MQD_BASE_ADDR", heard.append)
    gc["CP_MQD_BASE_ADDR"] = 0xFF
    gc.write(MQD_BASE, 0x35)
    # Bits 3:0: 1111 less 0101. The other bits are stored.
    assert gc["CP_MQD_BASE_ADDR"] == 0x3A
    assert heard == [0x35]


def test_each_bank_has_its_value(gc):
    selected = [0]
    gc.bank(["CP_MQD_BASE_ADDR"], lambda: selected[0])
    gc.write(MQD_BASE, 11)
    selected[0] = 1
    assert gc.read(MQD_BASE) == 0
    gc.write(MQD_BASE, 22)
    assert (gc.of(0, "CP_MQD_BASE_ADDR"), gc.of(1, "CP_MQD_BASE_ADDR")) == (11, 22)
    gc.set_of(0, "CP_MQD_BASE_ADDR", 33)
    selected[0] = 0
    assert gc.read(MQD_BASE) == 33


def test_fields_are_named_as_in_the_header(gc):
    # QUEUE_SIZE 5:0, PRIV_STATE 30: gc_11_0_0_sh_mask.h
    gc.put("CP_HQD_PQ_CONTROL", QUEUE_SIZE=9, PRIV_STATE=1)
    assert gc["CP_HQD_PQ_CONTROL"] == 0x4000_0009
    assert gc.get("CP_HQD_PQ_CONTROL", "queue_size") == 9
    with pytest.raises(ValueError, match="cannot hold 0x40"):
        gc.put("CP_HQD_PQ_CONTROL", QUEUE_SIZE=0x40)
    with pytest.raises(KeyError, match="no field NONE"):
        gc.get("CP_HQD_PQ_CONTROL", "NONE")


def test_reset_gives_reset_values_and_keeps_what_survives(gc):
    gc.resets_to("CP_STAT", 7)
    gc["CP_STAT"], gc["CP_MQD_BASE_ADDR"], gc["SCRATCH_REG0"] = 1, 2, 3
    gc.reset(keep=["SCRATCH_REG0"])
    assert (gc["CP_STAT"], gc["CP_MQD_BASE_ADDR"], gc["SCRATCH_REG0"]) == (7, 0, 3)


QUANTUM, PERFMON = "CP_HQD_QUANTUM", "CP_PERFMON_CNTL"
ROWS = Rows(
    (
        behaviour("CP_MQD_BASE_ADDR", "moves the queue", reset=0x100, read_only=0xF, spare=3),
        inert("CP_HQD_*", "share of time", "gfx_v11_0.c"),
        unmodelled("CP_PERFMON_CNTL", "performance counters", starts=("PERFMON_STATE=1", "SPM_PERFMON_STATE")),
        behaviour("CP_HQD_ACTIVE", "connects the queue"),
        inert("CP_HQD_QUANTUM", "of the second row of two, which counts for nothing", "none"),
    )
)


@pytest.fixture
def tabled():
    """The core's registers with a small table, on a bus whose log is `told`."""
    cells, told = Cells("navi31", "gc", rows=ROWS), []
    RegisterSpace(lambda block, kind, form, *values: told.append((block, kind, form.format(*values)))).attach(cells)
    return cells, told


def test_a_row_gives_reset_value_and_access(tabled):
    gc, _ = tabled
    assert gc.read(MQD_BASE) == 0x100
    gc.write(MQD_BASE, 0xABF3)
    assert gc["CP_MQD_BASE_ADDR"] == 0xABF0
    gc.reset()
    assert gc["CP_MQD_BASE_ADDR"] == 0x100


def test_an_exact_name_goes_before_a_pattern_and_of_patterns_the_first(tabled):
    gc, _ = tabled
    assert [gc.kind(name) for name in ("CP_HQD_ACTIVE", QUANTUM, "CP_HQD_VMID", PERFMON, "CP_STAT")] == [
        Kind.BEHAVIOUR, Kind.INERT, Kind.INERT, Kind.UNMODELLED, Kind.UNMODELLED,
    ]  # fmt: skip
    assert gc.row("CP_HQD_VMID").why == "share of time"
    assert gc.row("CP_STAT") is None


def test_what_is_not_modelled_is_kept_and_noted_once_each_way(tabled):
    gc, told = tabled
    place = gc.address("CP_STAT")
    gc.write(place, 0x200)
    gc.write(place, 0x400)
    assert [gc.read(place), gc.read(place)] == [0x400, 0x400]
    gc.write(gc.address(PERFMON), 0)
    gc.write(gc.address(QUANTUM), 1)
    gc.read(gc.address(QUANTUM))
    assert told == [
        ("gc", "unmodelled", "gc.CP_STAT = 0x200 is kept without effect"),
        ("gc", "unmodelled", "gc.CP_STAT is read as 0x400, without a model"),
        ("gc", "unmodelled", "gc.CP_PERFMON_CNTL = 0x0 is kept without effect: performance counters"),
    ]


def test_what_starts_something_that_is_lacking_raises_and_is_not_stored(tabled):
    gc, told = tabled
    # PERFMON_STATE 3:0, SPM_PERFMON_STATE 7:4: gc_11_0_0_sh_mask.h
    for value in (1, 1 << 4):
        with pytest.raises(
            Unmodelled, match=r"gc\.CP_PERFMON_CNTL\.(SPM_)?PERFMON_STATE was set to 0x1: performance counters"
        ):
            gc.write(gc.address(PERFMON), value)
    # It stops the counters, and none runs.
    gc.write(gc.address(PERFMON), 2)
    assert gc[PERFMON] == 2
    assert [text for _, _, text in told] == [
        "gc.CP_PERFMON_CNTL = 0x1 is refused: performance counters",
        "gc.CP_PERFMON_CNTL = 0x10 is refused: performance counters",
        "gc.CP_PERFMON_CNTL = 0x2 is kept without effect: performance counters",
    ]


def test_reserved_bits_are_noted_once_unless_the_row_knows_them(tabled):
    gc, told = tabled
    # VMID 3:0, IB_VMID 11:8, VQID 25:16
    gc.write(gc.address("CP_HQD_VMID"), 0xF)
    assert told == []
    gc.write(gc.address("CP_HQD_VMID"), 0x8000_0001)
    gc.write(gc.address("CP_HQD_VMID"), 0x8000_0002)
    # BASE_ADDR 31:2, and two spare bits.
    gc.write(MQD_BASE, 0x1003)
    assert told == [
        (
            "gc",
            "reserved",
            "gc.CP_HQD_VMID = 0x80000001: reserved bits 0x80000000 written, which belong to no field of the header",
        )
    ]


def test_the_register_space_finds_the_block_and_refuses_the_rest():
    space, nbio = RegisterSpace(), Cells("navi31", "nbio")
    space.attach(nbio)
    space.write(0x53 * 4, 0x200)  # BIOS_SCRATCH_7
    assert nbio["BIF_BX0_BIOS_SCRATCH_7"] == 0x200
    assert space.name(MEMSIZE) == "nbio.RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE"
    with pytest.raises(GuestError, match=r"dword 0x3ffff\): no block"):
        space.read(0xFFFFC)


def test_a_door_stands_before_the_registers_of_its_range():
    space, seen = RegisterSpace(), []
    space.attach(Cells("navi31", "nbio"))
    space.door(0x7F000, 0x1000, lambda address: address, lambda address, value: seen.append((address, value)))
    space.write(0x7F004, 1)
    assert seen == [(0x7F004, 1)]
    assert space.read(0x7F008) == 0x7F008


def test_what_is_derived_is_made_again_once_a_register_of_it_changes(gc):
    gc.bank(["CP_MQD_BASE_ADDR"], lambda: 7)
    made = []

    def total():
        made.append(gc.of(7, "CP_MQD_BASE_ADDR") + gc["CP_MEC_CNTL"])
        return made[-1]

    derived = gc.derived(total)
    assert (derived(), derived(), made) == (0, 0, [0])
    gc.write(MQD_BASE, 4)
    assert (derived(), derived()) == (4, 4)
    # The value does not change.
    gc.write(MQD_BASE, 4)
    # The register belongs to another bank.
    gc.set_of(8, "CP_MQD_BASE_ADDR", 9)
    # The function does not read this register.
    gc["CP_MEC_ME1_HEADER_DUMP"] = 1
    assert (derived(), made) == (4, [0, 4])
    gc["CP_MEC_CNTL"] = 2
    assert derived() == 6
    gc.reset()
    assert (derived(), made) == (0, [0, 4, 6, 0])


def test_what_is_derived_of_what_is_derived_changes_with_it(gc):
    inner = gc.derived(lambda: gc["CP_MEC_CNTL"] + 1)
    outer = gc.derived(lambda: 10 * inner())
    assert (inner(), outer()) == (1, 10)
    gc["CP_MEC_CNTL"] = 2
    assert outer() == 30


def test_what_cannot_be_derived_is_tried_again(gc):
    def share():
        return 100 // gc["CP_MEC_CNTL"]

    derived = gc.derived(share)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            derived()
    gc["CP_MEC_CNTL"] = 20
    assert derived() == 5


def test_a_reader_sees_what_is_stored_and_what_a_reset_leaves(gc):
    gc.resets_to("CP_MEC_CNTL", 3)
    read = gc.reader("CP_MEC_CNTL")
    assert read() == 3
    gc["CP_MEC_CNTL"] = 8
    assert read() == 8
    gc.reset()
    assert read() == 3
