"""What the model does with each register: the tables are complete and true, they are quiet about known drivers, and
their rows are counted.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from ringup.autogen.regdb import open_chip
from ringup.errors import Unmodelled
from ringup.silicon import card
from ringup.silicon.amd.rows import TABLES, unnamed
from ringup.silicon.common.cells import Cells, block_map
from ringup.silicon.common.rows import ALL, Kind

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "silicon/amd"
CHIPS = ("navi31", "navi32", "navi33", "navi44", "navi48", "mi300x")
UNKNOWN_PART = r"[A-Z0-9_]*"
EVERY_ROW = [(block, row) for block, table in TABLES.items() for row in table.rows]


@cache
def texts(module: str) -> re.Pattern[str]:
    """Return all strings of a module as one pattern. Inserted values may be anything, and a string may be the end of a
    name.
    """
    found = set()
    tree = ast.parse((MODEL / module).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else UNKNOWN_PART for part in node.values
            ]
            if sum(len(part) for part in parts if part != UNKNOWN_PART) > 3:
                found.add("".join(parts))
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch("[A-Z0-9_]{4,}", node.value)
        ):
            found.add(re.escape(node.value))
    return re.compile(f"{UNKNOWN_PART}(?:{'|'.join(sorted(found))})(?:_LO|_HI)?")


@cache
def virtual(chip: str):
    """Return a card to look at."""
    return card(chip, vram_bytes=64 << 20)


def is_constant(row) -> bool:
    return row.why.startswith("a constant: ") and row.read_only == ALL


def modules(row) -> list[str]:
    """Return the modules that a row of behaviour names first."""
    return re.findall(r"((?:\w+/)*\w+\.py)", row.why.partition(":")[0])


def blocks_of(chip: str) -> list[str]:
    """List the blocks of a chip that have a table."""
    return [place.block for place in open_chip(chip).row.places if place.block in TABLES]


@pytest.mark.parametrize(
    ("chip", "block"), [(chip, block) for chip in ("navi31", "navi48", "mi300x") for block in blocks_of(chip)]
)
def test_what_acts_has_a_hook_or_is_looked_at_by_the_module_that_its_row_names(chip, block):
    owners = set(virtual(chip).board.space._owner.values())
    cells = next(one for one in owners if one.block == block and not one.instance)
    idle = [
        f"{name}: {row.why}"
        for name, row in TABLES[block].of(cells.map.addresses).items()
        if row.kind is Kind.BEHAVIOUR
        and not cells.hooked(name)
        and not is_constant(row)
        and not any(texts(module).fullmatch(name) for module in modules(row))
    ]
    assert idle == []


@pytest.mark.parametrize("chip", CHIPS)
def test_only_what_a_row_says_to_act_has_a_hook(chip):
    hooked = [
        f"{cells.block}.{name}"
        for cells in set(virtual(chip).board.space._owner.values())
        for name in cells.map.names.values()
        if cells.hooked(name) and cells.kind(name) is not Kind.BEHAVIOUR
    ]
    assert hooked == []


def test_every_row_says_why_and_whose_word_that_is():
    for block, row in EVERY_ROW:
        assert row.why, (block, row)
        if row.kind is Kind.BEHAVIOUR and not is_constant(row):
            assert modules(row), (block, row)
            assert all((MODEL / name).exists() for name in modules(row)), (block, row)
        if row.kind is Kind.INERT:
            assert re.match(r"Mesa |LLVM |\w+\.[ch]\b", row.source), (block, row)


def test_every_name_of_every_row_is_a_register_of_some_chip():
    for block, table in TABLES.items():
        claimed = set()
        for chip in CHIPS:
            if block not in blocks_of(chip):
                continue
            names = block_map(chip, block, 0).addresses
            claimed |= {id(row) for row in table.of(names).values()}
        assert [row for row in table.rows if id(row) not in claimed] == [], block


def test_every_field_that_starts_something_is_one_of_some_chip():
    for block, table in TABLES.items():
        missing = {(id(row), start): row for row in table.rows for start in row.starts if start != "*"}
        for chip in CHIPS:
            if block not in blocks_of(chip):
                continue
            cells = Cells(chip, block)
            for name, row in table.of(cells.map.addresses).items():
                for start in row.starts:
                    if cells.has_field(name, start.partition("=")[0]):
                        missing.pop((id(row), start), None)
        assert list(missing.values()) == [], block


def test_a_field_that_a_version_lacks_starts_nothing():
    """COMPUTE_PGM_RSRC3 of gc_12_0_0_sh_mask.h: INST_PREF_SIZE takes the place of TRAP_ON_START and TRAP_ON_END."""
    cells = Cells("navi48", "gc")
    address = cells.address("COMPUTE_PGM_RSRC3")
    cells.write(address, 0xFF << 4)
    assert cells.read(address) == 0xFF << 4


def known_writes():
    """Return what Linux's amdgpu writes to each register while it brings a navi31 up, from the log of a virtual
    machine.
    """
    for path in sorted((ROOT / "test/data/amdgpu-ladder").glob("rung_*.log")):
        for found in re.finditer(r" write +(\w+)\.(\w+) = (0x\w+)", path.read_text(encoding="utf-8")):
            yield found[1], found[2], int(found[3], 16)


def test_nothing_that_amdgpu_writes_starts_what_is_lacking_or_sets_reserved_bits():
    told, blocks, count = [], {}, 0
    for block, name, value in known_writes():
        if block not in blocks:
            blocks[block] = Cells("navi31", block)
            blocks[block].note = lambda block, kind, form, *values: told.append((kind, form.format(*values)))
        blocks[block].write(blocks[block].address(name), value)
        count += 1
    assert count > 1300
    assert [text for kind, text in told if kind != "unmodelled"] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # clearstate_gfx11.h, as for the next two.
        ("CB_RMI_GL2_CACHE_CONTROL", 0x0055_0055),
        ("DB_RMI_L2_CACHE_CONTROL", 0x0015_0055),
        ("PA_SC_CONSERVATIVE_RASTERIZATION_CNTL", 0x0010_0000),
        ("CP_HQD_HQ_SCHEDULER0", 1 << 14 | 1 << 29),  # kfd_mqd_manager_v11.c, init_mqd
        ("COMPUTE_MISC_RESERVED", 7),  # gfx_v11_0.c, compute_mqd_init
        ("GCVM_CONTEXT0_CNTL", 0x1FF_FE07),  # tinygrad am/ip.py, AM_GMC
        ("TCP_CNTL", 0x2000_0000),  # gfx_v11_0.c, golden_settings_gc_11_0
        ("COMPUTE_DISPATCH_INTERLEAVE", 256),  # Mesa ac_cmdbuf.c, init_compute_preamble_state
    ],
)
def test_values_of_other_known_drivers_set_no_reserved_bits(navi31, name, value):
    cells = navi31.gc.grbm.cells
    cells.write(cells.address(name), value)
    assert navi31.log.find("reserved") == []


@pytest.mark.parametrize("block", ["gc", "mmhub", "mp", "hdp", "osssys", "smuio", "thm", "athub", "lsdma", "vcn"])
def test_every_register_without_a_model_is_noted_or_refused(navi31, block):
    """The test writes one bit to each register that has no model. Registers for drawing and GDS are among them."""
    space = navi31.board.space
    cells = next(one for one in space._owner.values() if one.block == block)
    names = [name for address, name in cells.map.names.items() if space.owner(address) is cells]
    names = [name for name in names if cells.kind(name) is Kind.UNMODELLED]
    for name in names:
        with suppress(Unmodelled):
            space.write(cells.address(name), 1)
    assert {f"{block}.{name}" for name in names} == {event.values[0] for event in navi31.log.find("unmodelled", block)}
    assert navi31.violations == []
    if block == "gc":
        assert len(names) > 4000
        assert sum(name.startswith(("GDS_", "PA_SC_", "DB_", "CB_")) for name in names) == 581


def test_a_register_kept_without_effect_is_quiet_and_keeps_its_value(navi31):
    cells = navi31.gc.grbm.cells
    cells.write(cells.address("CP_HQD_QUANTUM"), 0x111)
    cells.write(cells.address("RLC_CGCG_CGLS_CTRL"), 0x3)
    assert cells.read(cells.address("RLC_CGCG_CGLS_CTRL")) == 0x3
    assert navi31.log.find("unmodelled") == navi31.log.find("reserved") == []


# Fields are those of gc_11_0_0_sh_mask.h, and of the same header of the other blocks.
STARTERS = (
    ("gc", "CP_PERFMON_CNTL", 1), ("gc", "CP_PERFMON_CNTL", 1 << 4), ("gc", "RLC_PERFMON_CNTL", 1),
    ("gc", "GCMC_VM_L2_PERFCOUNTER_RSLT_CNTL", 1 << 24), ("mmhub", "DAGB0_PERFCOUNTER_RSLT_CNTL", 1 << 24),
    ("gc", "SQ_THREAD_TRACE_CTRL", 1), ("gc", "GDS_VMID1_SIZE", 0x1000), ("gc", "GDS_GWS_VMID3", 1 << 16),
    ("gc", "GDS_OA_VMID2", 1), ("gc", "GDS_WR_DATA", 5), ("gc", "VGT_DRAW_INITIATOR", 2), ("gc", "RLC_PG_CNTL", 1),
    ("gc", "COMPUTE_DISPATCH_INITIATOR", 1), ("gc", "RLC_LX6_IRAM_DATA", 0xC000), ("gc", "TCP_WATCH0_CNTL", 1 << 31),
    ("gc", "SPI_GDBG_PER_VMID_CNTL", 1), ("gc", "SDMA0_QUEUE0_RB_AQL_CNTL", 1), ("lsdma", "LSDMA_PIO_COMMAND", 1),
)  # fmt: skip


@pytest.mark.parametrize(("block", "name", "value"), STARTERS)
def test_what_starts_a_feature_that_is_lacking_is_refused_by_name(navi31, block, name, value):
    address = block_map("navi31", block, 0).addresses[name]
    with pytest.raises(Unmodelled, match=rf"{block}\.{name}.* was set to 0x\w+: "):
        navi31.board.space.write(address, value)


def test_a_packet_that_starts_counters_tells_whoever_lets_time_pass(core, mec):
    set_uconfig_reg, first = 0xC001_7900, 0xC000  # nvd.h
    with pytest.raises(Unmodelled, match=r"gc\.CP_PERFMON_CNTL\.PERFMON_STATE was set to 0x1"):
        mec.run(set_uconfig_reg, core.cells.address("CP_PERFMON_CNTL") // 4 - first, 1)


def test_dwords_without_a_name_answer_0_and_keep_nothing(navi31):
    """The rows say that metal's answer is not public. The test checks the model's own answer."""
    space, places = navi31.board.space, block_map("navi31", "gc", 0)
    first, last = (places.addresses[name] for name in ("CP_MQD_BASE_ADDR", "CP_HQD_PQ_WPTR_HI"))
    holes = [at for at in range(first, last, 4) if at not in places.names]
    holes += [unnamed.BASE_ZERO, places.addresses["GRBM_STATUS2"] + 0x1800]
    assert len(holes) > 2
    for address in holes:
        space.write(address, 0xFFFF_FFFF)
        assert space.read(address) == 0
    assert navi31.violations == []


def counts(chip: str) -> dict[str, tuple[int, int, int, int]]:
    """Return the number of registers of each block: all, and by kind."""
    found = {}
    for block in blocks_of(chip):
        cells = Cells(chip, block)
        kinds = Counter(cells.kind(name) for name in cells.map.names.values())
        found[block] = (len(cells.map.names), *(kinds[kind] for kind in Kind))
    return found


def test_the_documents_count_what_the_tables_say():
    text = (ROOT / "docs/silicon.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", text, re.MULTILINE)
    assert {block: tuple(int(one.replace(",", "")) for one in numbers) for block, *numbers in rows} == counts("navi31")


def test_making_another_card_looks_no_row_up_again(monkeypatch):
    card("navi31", vram_bytes=64 << 20)
    monkeypatch.setattr(
        "ringup.silicon.common.rows.Rows.of", lambda rows, names: pytest.fail("rows are looked up again")
    )
    card("navi31", vram_bytes=64 << 20)
