"""The scalar ALU compared with strings of bits and Python's integers, and the instructions without a value function."""

import random

import pytest

from ringup.autogen import isa
from ringup.silicon.shader.amd.interpreter.value_table import VALUES, base_mnemonic

M32, M64 = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF


def signed(value, bits=32):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def pairs(bits, seed):
    rng = random.Random(f"{bits} {seed}")
    special = [
        0,
        1,
        31,
        32,
        63,
        64,
        (1 << bits) - 1,
        1 << bits - 1,
        (1 << bits - 1) - 1,
        0x0010_0004,
        0x0020_001F,
        0x0040_0000,
    ]
    pick = [lambda: rng.choice(special) & (1 << bits) - 1, lambda: rng.getrandbits(bits)]
    return [(rng.choice(pick)(), rng.choice(pick)()) for _ in range(200)]


def text(value, bits):
    return f"{value & (1 << bits) - 1:0{bits}b}"


def field(a, b, bits, is_signed):
    """Return the bits [offset + width - 1 : offset] of a number that extends to the left for ever."""
    offset, width = b & bits - 1, b >> 16 & 0x7F
    number = signed(a, bits) >> offset if is_signed else a >> offset
    if width == 0:
        return 0
    width = min(width, bits)
    part = number & (1 << width) - 1
    return signed(part, width) if is_signed else part


UNARY = {
    "s_mov_b": lambda a, n: a, "s_brev_b": lambda a, n: int(text(a, n)[::-1], 2), "s_not_b": lambda a, n: ~a,
    "s_ctz_i32_b": lambda a, n: text(a, n)[::-1].find("1"), "s_clz_i32_u": lambda a, n: text(a, n).find("1"),
    "s_bcnt0_i32_b": lambda a, n: text(a, n).count("0"), "s_bcnt1_i32_b": lambda a, n: text(a, n).count("1"),
    "s_quadmask_b": lambda a, n: int("".join("01"[part != "0000"] for part in quads(a, n)), 2),
    "s_wqm_b": lambda a, n: int("".join("1111" if part != "0000" else part for part in quads(a, n)), 2),
}  # fmt: skip
WITHOUT_SCC = ("s_mov", "s_brev", "s_ctz", "s_clz", "s_cls", "s_sext", "s_bfm", "s_mul", "s_bitreplicate")


def quads(a, bits):
    digits = text(a, bits)
    return [digits[i : i + 4] for i in range(0, bits, 4)]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("bits", [32, 64])
def test_one_source(alu, name, bits):
    mask = M32 if "_i32_" in name else (1 << bits) - 1
    for a, _ in pairs(bits, name):
        wanted = UNARY[name](a, bits) & mask
        assert alu(f"{name}{bits}", a) == (wanted, None if name.startswith(WITHOUT_SCC) else int(wanted != 0)), hex(a)


BINARY = {
    "and_b": lambda a, b, n: a & b, "or_b": lambda a, b, n: a | b, "xor_b": lambda a, b, n: a ^ b, "nand_b": lambda a, b, n: ~(a & b),
    "nor_b": lambda a, b, n: ~(a | b), "xnor_b": lambda a, b, n: ~(a ^ b), "and_not1_b": lambda a, b, n: a & ~b,
    "or_not1_b": lambda a, b, n: a | ~b, "lshl_b": lambda a, b, n: a << b % n, "lshr_b": lambda a, b, n: a >> b % n,
    "ashr_i": lambda a, b, n: signed(a, n) >> b % n, "bfe_u": lambda a, b, n: field(a, b, n, False),
    "bfe_i": lambda a, b, n: field(a, b, n, True),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("bits", [32, 64])
def test_two_sources(alu, name, bits):
    for a, b in pairs(bits, name):
        wanted = BINARY[name](a, b, bits) & (1 << bits) - 1
        assert alu(f"s_{name}{bits}", a, b) == (wanted, int(wanted != 0)), (hex(a), hex(b))


def test_sums_say_carry_or_overflow(alu):
    for a, b in pairs(32, "sums"):
        for scc in (0, 1):
            assert alu("s_add_u32", a, b, scc=scc) == (a + b & M32, int(a + b > M32))
            assert alu("s_addc_u32", a, b, scc=scc) == (a + b + scc & M32, int(a + b + scc > M32))
            assert alu("s_sub_u32", a, b, scc=scc) == (a - b & M32, int(b > a))
            assert alu("s_subb_u32", a, b, scc=scc) == (a - b - scc & M32, int(b + scc > a))
        for mnemonic, total in (("s_add_i32", signed(a) + signed(b)), ("s_sub_i32", signed(a) - signed(b))):
            assert alu(mnemonic, a, b) == (total & M32, int(not -(1 << 31) <= total < 1 << 31))
        immediate = signed(b, 16)
        total = signed(a) + immediate
        assert alu("s_addk_i32", a, immediate & M64) == (total & M32, int(not -(1 << 31) <= total < 1 << 31))
        assert alu("s_mulk_i32", a, immediate & M64) == (signed(a) * immediate & M32, None)
        for count in (1, 2, 3, 4):
            total = (a << count) + b
            assert alu(f"s_lshl{count}_add_u32", a, b) == (total & M32, int(total > M32))


def test_products_and_packing(alu):
    for a, b in pairs(32, "products"):
        assert alu("s_mul_i32", a, b) == (a * b & M32, None)
        assert alu("s_mul_hi_u32", a, b) == (a * b >> 32, None)
        assert alu("s_mul_hi_i32", a, b) == (signed(a) * signed(b) >> 32 & M32, None)
        low_a, high_a, low_b, high_b = a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16
        for mnemonic, halves in (
            ("ll", (low_a, low_b)),
            ("lh", (low_a, high_b)),
            ("hh", (high_a, high_b)),
            ("hl", (high_a, low_b)),
        ):
            assert alu(f"s_pack_{mnemonic}_b32_b16", a, b) == (halves[0] | halves[1] << 16, None)
        for bits in (32, 64):
            width, offset = a % bits, b % bits
            assert alu(f"s_bfm_b{bits}", a, b) == (((1 << width) - 1 << offset) & (1 << bits) - 1, None)


def test_smaller_and_larger(alu):
    for a, b in pairs(32, "order"):
        assert alu("s_min_u32", a, b) == (min(a, b), int(a < b))
        assert alu("s_max_u32", a, b) == (max(a, b), int(a > b))
        assert alu("s_min_i32", a, b) == (min(a, b, key=signed), int(signed(a) < signed(b)))
        assert alu("s_max_i32", a, b) == (max(a, b, key=signed), int(signed(a) > signed(b)))


def test_the_documents_examples(alu):
    rows = [
        (2, 5, 3),
        (M32, 0, 1),
        (0x8000_0000, 0, 0x8000_0000),
        (0x8000_0000, 1, 0x7FFF_FFFF),
        (0x8000_0000, M32, 0x7FFF_FFFF),
    ]
    assert [alu("s_absdiff_i32", a, b)[0] for a, b, _ in rows] == [row[2] for row in rows]
    rows = [(1, 1), (0x7FFF_FFFF, 0x7FFF_FFFF), (0x8000_0000, 0x8000_0000), (0x8000_0001, 0x7FFF_FFFF), (M32, 1)]
    assert [alu("s_abs_i32", a)[0] for a, _ in rows] == [row[1] for row in rows]
    rows = [
        (0, M32),
        (0x4000_0000, 1),
        (0x8000_0000, 1),
        (0x0FFF_FFFF, 4),
        (0xFFFF_0000, 16),
        (0xFFFF_FFFE, 31),
        (M32, M32),
    ]
    assert [alu("s_cls_i32", a)[0] for a, _ in rows] == [row[1] for row in rows]
    assert alu("s_cls_i32_i64", 1 << 62)[0] == 1
    assert alu("s_sext_i32_i8", 0x80) == (0xFFFF_FF80, None)
    assert alu("s_sext_i32_i16", 0x1_8000) == (0xFFFF_8000, None)
    assert alu("s_bitreplicate_b64_b32", 0x8000_0005) == (0xC000_0000_0000_0033, None)


COMPARES = {"eq": int.__eq__, "lg": int.__ne__, "gt": int.__gt__, "ge": int.__ge__, "lt": int.__lt__, "le": int.__le__}


@pytest.mark.parametrize("name", COMPARES)
def test_comparisons(alu, name):
    for a, b in [*pairs(32, name), (7, 7), (M32, M32)]:
        assert alu(f"s_cmp_{name}_u32", a, b) == (None, int(COMPARES[name](a, b)))
        assert alu(f"s_cmp_{name}_i32", a, b) == (None, int(COMPARES[name](signed(a), signed(b))))
        unsigned, extended = b & 0xFFFF, signed(b, 16)
        assert alu(f"s_cmpk_{name}_u32", a, unsigned) == (None, int(COMPARES[name](a, unsigned)))
        assert alu(f"s_cmpk_{name}_i32", a, extended & M64) == (None, int(COMPARES[name](signed(a), extended)))


def test_wide_comparisons_and_single_bits(alu):
    for a, b in [*pairs(64, "wide"), (M64, M64), (1 << 32, 0)]:
        assert alu("s_cmp_eq_u64", a, b) == (None, int(a == b))
        assert alu("s_cmp_lg_u64", a, b) == (None, int(a != b))
        for bits in (32, 64):
            value = a & (1 << bits) - 1
            index = b % bits
            digit = text(value, bits)[::-1][index]
            assert alu(f"s_bitcmp0_b{bits}", value, b & M32) == (None, int(digit == "0"))
            assert alu(f"s_bitcmp1_b{bits}", value, b & M32) == (None, int(digit == "1"))
            cleared, full = alu(f"s_bitset0_b{bits}", value, b & M32)[0], alu(f"s_bitset1_b{bits}", value, b & M32)[0]
            assert (full - cleared, value in (full, cleared)) == (1 << index, True)


def test_selection_by_scc(alu, operand):
    assert alu("s_cselect_b32", 1, 2, scc=1) == (1, None)
    assert alu("s_cselect_b64", 1 << 40, 2, scc=0) == (2, None)
    target = [operand("sdst", "both", "b32", 32)]
    assert alu("s_cmov_b32", 1, 2, scc=1, operands=target) == (2, None)
    assert alu("s_cmov_b32", 1, 2, scc=0, operands=target) == (None, None)
    assert alu("s_cmovk_i32", 1, signed(0x8000, 16) & M64, scc=1, operands=target) == (0xFFFF_8000, None)
    assert alu("s_movk_i32", signed(0x8000, 16) & M64) == (0xFFFF_8000, None)


SAVES = {
    "and": lambda s, e: s & e, "or": lambda s, e: s | e, "xor": lambda s, e: s ^ e, "nand": lambda s, e: ~(s & e), "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e), "and_not0": lambda s, e: ~s & e, "or_not0": lambda s, e: ~s | e, "and_not1": lambda s, e: s & ~e,
    "or_not1": lambda s, e: s | ~e,
}  # fmt: skip


@pytest.mark.parametrize("name", SAVES)
@pytest.mark.parametrize("bits", [32, 64])
def test_exec_is_saved_and_changed(alu, name, bits):
    mask = (1 << bits) - 1
    for source, old in pairs(bits, f"exec {name}"):
        new = SAVES[name](source, old) & mask
        assert alu(f"s_{name}_saveexec_b{bits}", source, exec_mask=old) == (old, int(new != 0), new)
        if name.startswith("and_not"):
            assert alu(f"s_{name}_wrexec_b{bits}", source, exec_mask=old) == (new, int(new != 0), new)


# Instructions whose meaning is no function of values, and where the meaning is.
ELSEWHERE = {
    "the program counter": {"s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_rfe_b64", "s_call_b64", "s_subvector_loop_begin",
                            "s_subvector_loop_end"},
    "hardware registers and messages": {
        "s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32", "s_version", "s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64",
    },
    "waits": {"s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_expcnt", "s_waitcnt_lgkmcnt"},
    "registers chosen by M0": {
        "s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64", "s_movrelsd_2_b32", "v_movreld_b32", "v_movrels_b32",
        "v_movrelsd_b32", "v_movrelsd_2_b32", "v_swaprel_b32",
    },
}  # fmt: skip
FORMATS = ("SOP1", "SOP2", "SOPC", "SOPK", "VOP1", "VOP2", "VOP3", "VOP3SD", "VOP3P", "VOPC", "VOPDX", "VOPDY")


def test_every_alu_instruction_has_a_value_or_a_reason():
    there = {base_mnemonic(row.mnemonic) for row in isa.target("gfx1100").instructions if row.format in FORMATS}
    assert there - set(VALUES) == set().union(*ELSEWHERE.values())
