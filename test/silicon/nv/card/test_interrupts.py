"""The interrupt tree from dev_vm.h: leaves, the top, messages, and how often they come."""

from __future__ import annotations

import pytest

LEAF, SET, CLEAR, TOP, TOP_SET, TOP_CLEAR, TRIGGER = (
    0xB81000,
    0xB81200,
    0xB81400,
    0xB81600,
    0xB81608,
    0xB81610,
    0xB81640,
)
EOI = 0x88704


@pytest.fixture
def tree(board):
    """A card whose messages go somewhere, with everything enabled for vector 129."""
    board.config.write(4, board.config.read(4, 2) | 4, 2)
    # MSI: address, data, enable
    board.config.write(0x6C, 0xFEE00000)
    board.config.write(0x6A, board.config.read(0x6A, 2) | 1, 2)
    board.bars[0].write32(SET + 4 * 4, 1 << 1)
    board.bars[0].write32(TOP_SET, 0xF)
    return board


def trigger(board, vector=129):
    board.bars[0].write32(TRIGGER, vector)
    board.settle()


def test_a_vector_sets_its_leaf_and_the_top_and_sends_a_message(tree):
    trigger(tree)
    assert tree.bars[0].read32(LEAF + 4 * 4) == 1 << 1
    assert tree.bars[0].read32(TOP) == 1 << 2
    assert tree.interrupts.count == 1


def test_a_disabled_vector_is_kept_and_comes_when_it_is_enabled(tree):
    trigger(tree, 130)
    assert (tree.bars[0].read32(LEAF + 4 * 4), tree.bars[0].read32(TOP), tree.interrupts.count) == (1 << 2, 0, 0)
    tree.bars[0].write32(SET + 4 * 4, 1 << 2)
    assert tree.bars[0].read32(TOP) == 1 << 2
    assert tree.interrupts.count == 1
    tree.bars[0].write32(CLEAR + 4 * 4, 1 << 2)
    assert tree.bars[0].read32(TOP) == 0


def test_a_level_stays_while_its_source_asks_and_leaves_nothing(tree):
    """Turing's GSP: nvidia.ko clears the leaf first, and then takes away why the GSP asked."""
    asks = [True]
    tree.tree_of_interrupts.levels[129] = lambda: asks[0]
    trigger(tree)
    tree.bars[0].write32(LEAF + 4 * 4, 1 << 1)
    assert (tree.bars[0].read32(LEAF + 4 * 4), tree.bars[0].read32(TOP)) == (1 << 1, 1 << 2)
    asks[0] = False
    assert (tree.bars[0].read32(LEAF + 4 * 4), tree.bars[0].read32(TOP)) == (0, 0)
    tree.bars[0].write32(EOI, 0)
    tree.settle()
    assert tree.interrupts.count == 1
    # one that still asks when the CPU has taken the last message sends another
    asks[0] = True
    tree.bars[0].write32(EOI, 0)
    tree.settle()
    assert tree.interrupts.count == 2


def test_the_next_message_comes_after_the_last_one_was_taken(tree):
    trigger(tree)
    trigger(tree)
    assert tree.interrupts.count == 1
    # the CPU's order: disable the top, clear the leaf, tell the bus interface, enable the top
    tree.bars[0].write32(TOP_CLEAR, 0xF)
    tree.bars[0].write32(LEAF + 4 * 4, 1 << 1)
    tree.bars[0].write32(EOI, 0)
    tree.bars[0].write32(TOP_SET, 0xF)
    tree.settle()
    assert (tree.interrupts.count, tree.bars[0].read32(TOP)) == (1, 0)
    trigger(tree)
    assert tree.interrupts.count == 2


def test_a_cause_that_stays_comes_back(tree):
    trigger(tree)
    tree.bars[0].write32(TOP_CLEAR, 0xF)
    tree.bars[0].write32(EOI, 0)
    # not cleared
    tree.bars[0].write32(TOP_SET, 0xF)
    tree.settle()
    assert tree.interrupts.count == 2


def test_the_gsp_interrupts_the_cpu_by_its_vector(tree):
    tree.gsp.riscv_irq_mask.value = tree.gsp.riscv_irq_destination.value = 0x40
    tree.bars[0].write32(SET + 6 * 4, 1)
    tree.settle()
    tree.gsp.raise_irq(0x40)
    assert tree.bars[0].read32(LEAF + 6 * 4) == 1
    assert tree.interrupts.count == 1
    # cleared in the leaf only: the falcon still asks, at once on Turing and when it is told to later
    tree.bars[0].write32(TOP_CLEAR, 0xF)
    tree.bars[0].write32(LEAF + 6 * 4, 1)
    if tree.chip.name != "tu102":
        assert tree.bars[0].read32(LEAF + 6 * 4) == 0
        tree.bars[0].write32(0x1103E8, 1)
    assert tree.bars[0].read32(LEAF + 6 * 4) == 1
    tree.bars[0].write32(0x110004, 0x40)
    tree.bars[0].write32(LEAF + 6 * 4, 1)
    assert tree.bars[0].read32(LEAF + 6 * 4) == 0


def test_pascals_tree_of_turing_is_enabled_by_two_registers_and_read_in_a_third(board):
    """intr_gp100.c: NV_PMC_INTR_EN_SET, NV_PMC_INTR_EN_CLEAR, NV_PMC_INTR_EN. Others have no model of it."""
    board.bars[0].write32(0x160, 0xF0F0)
    board.bars[0].write32(0x180, 0x00F0)
    board.bars[0].write32(0x140, 0xFFFF_0000)
    enabled = board.bars[0].read32(0x140)
    assert (enabled == 0xF000, not board.log.find("unmodelled")) == (board.chip.name == "tu102",) * 2
