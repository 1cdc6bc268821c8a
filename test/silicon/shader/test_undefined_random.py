"""Random programs that compute with unwritten registers: both engines stop at the same instruction, for the same lane
or bits.
"""

import re

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.amd.translator.translations import THOROUGH

CDNA = ("gfx942", "gfx950")
OUT = 0x30_0000
INSTRUCTIONS = 24
VECTORS, SCALARS = range(2, 12), range(8, 20)
TWO = (
    "v_add_nc_u32_e32",
    "v_max_u32_e32",
    "v_and_b32_e32",
    "v_or_b32_e32",
    "v_cvt_pk_rtz_f16_f32_e32",
    "v_xor_b32_e32",
    "v_mul_f32_e32",
    "v_lshlrev_b32_e32",
)
THREE = (
    "v_lshl_or_b32",
    "v_and_or_b32",
    "v_or3_b32",
    "v_bfi_b32",
    "v_alignbit_b32",
    "v_add3_u32",
    "v_perm_b32",
    "v_mad_u32_u24",
)
SCALAR_TWO = (
    "s_add_u32", "s_sub_i32", "s_mul_i32", "s_and_b32", "s_or_b32", "s_xor_b32", "s_and_not1_b32", "s_nor_b32", "s_lshl_b32", "s_lshr_b32",
    "s_ashr_i32", "s_max_u32", "s_bfe_u32", "s_addc_u32", "s_cselect_b32", "s_pack_ll_b32_b16", "s_lshl2_add_u32", "s_bfm_b32", "s_mul_hi_u32",
)  # fmt: skip
SCALAR_WIDE = ("s_and_b64", "s_or_b64", "s_cselect_b64", "s_xnor_b64")
# Spellings of RDNA3, and those of CDNA3.
CDNA3_SPELLINGS = (
    (r"v_add_nc_u32", "v_add_u32"), (r"v_cvt_pk_rtz_f16_f32_e32", "v_cvt_pkrtz_f16_f32"),
    (r"s_mov_b32 vcc_lo, (\S+)", r"s_mov_b32 vcc_lo, \1\ns_mov_b32 vcc_hi, \1"), (r"(v_mad_u64_u32 \S+) null", r"\1 s[40:41]"),
)  # fmt: skip
ACCUMULATED = range(4)


class Program:
    """Straight code. Some of its registers are written before it, some only in a part of the lanes. Results are stored
    at the end.
    """

    def __init__(self, seed, target="gfx1100"):
        self.random, self.is_cdna = np.random.default_rng(seed), target in CDNA
        self.is_cdna4 = target == "gfx950"
        self.lines = ["v_lshlrev_b32_e32 v1, 2, v0", "s_mov_b32 vcc_lo, 0x0f0f3355"]
        for one in VECTORS:
            if self.random.integers(3):
                self.masked([f"v_add_nc_u32_e32 v{one}, {one}, v0"])
        for one in SCALARS:
            if self.random.integers(3):
                self.lines.append(f"s_mov_b32 s{one}, {int(self.random.integers(1 << 32)):#x}")
        self.lines.append("s_cmp_eq_u32 s0, 0")
        for _ in range(INSTRUCTIONS):
            self.masked([self.instruction()])
        for one in VECTORS:
            self.lines.append(f"global_store_b32 v1, v{one}, s[0:1]")
        for one in SCALARS:
            self.lines += [f"v_mov_b32_e32 v2, s{one}", "global_store_b32 v1, v2, s[0:1]"]

    def masked(self, lines):
        """Append lines; one time in three only some lanes run them."""
        if self.random.integers(3):
            self.lines += lines
            return
        self.lines += [
            f"s_mov_b32 exec_lo, {int(self.random.integers(1, 1 << 32)):#x}",
            *lines,
            "s_mov_b32 exec_lo, -1",
        ]

    def v(self):
        return f"v{self.random.choice(VECTORS)}"

    def s(self):
        return f"s{self.random.choice(SCALARS)}"

    def mask(self):
        """Return a lane mask: a pair on CDNA3, whose waves have 64 lanes."""
        if self.is_cdna:
            return self.random.choice([self.pair("s"), "vcc"])
        return self.random.choice([self.s(), "vcc_lo"])

    def text(self, lines):
        """Return the program."""
        text = "\n".join([*lines, "s_endpgm"])
        if not self.is_cdna:
            return text
        for old, new in CDNA3_SPELLINGS:
            text = re.sub(old, new, text)
        return text

    def pair(self, what):
        first = int(self.random.choice((VECTORS if what == "v" else SCALARS)[:-1:2]))
        return f"{what}[{first}:{first + 1}]"

    def instruction(self):
        v, s, pick = self.v, self.s, self.random.choice
        how = int(self.random.integers(19 if self.is_cdna else 15))
        if how < 2:
            return f"{pick(TWO)} {v()}, {pick([v(), s(), '3'])}, {v()}"
        if how < 4:
            return f"{pick(THREE)} {v()}, {v()}, {pick([v(), s(), '7'])}, {pick([v(), '0x3c'][:1])}"
        if how == 4:
            return f"v_cmp_{pick(['gt', 'eq', 'le'])}_u32_e64 {self.mask()}, {v()}, {v()}"
        if how == 5:
            return f"v_cndmask_b32_e64 {v()}, {v()}, {v()}, {self.mask()}"
        if how == 6:
            return f"v_mad_u64_u32 {self.pair('v')}, null, {v()}, {pick([v(), s()])}, {self.pair('v')}"
        if how == 7:
            name = pick(["v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64"])
            near = f"{pick(['0', '3', '8', '24', '35', v()])}, {self.pair(pick(['v', 's']))}"
            return f"{name} {self.pair('v')}, {pick([near, f'{s()}, ' + self.pair('v')])}"
        if how == 8:
            lane = int(self.random.integers(32))
            return f"v_readlane_b32 {s()}, {v()}, {lane}\n v_readfirstlane_b32 {s()}, {v()}\n v_swap_b32 {v()}, {v()}"
        if how == 9:
            target, data = v(), v()
            line = f"ds_bpermute_b32 {target}, v1, {data} offset:{int(self.random.integers(32)) * 4}"
            return f"{pick([line, f'ds_swizzle_b32 {target}, {data} offset:0x401f'])}\n s_waitcnt lgkmcnt(0)"
        if how == 10:
            how = f"row_ror:{int(self.random.integers(1, 16))} row_mask:0xf bank_mask:{pick(['0xf', '0x5'])}"
            return f"v_add_nc_u32_dpp {v()}, {v()}, {v()} {how}"
        if how == 11:
            wide = f"{pick(SCALAR_WIDE)} {self.pair('s')}, {self.pair('s')}, {self.pair('s')}"
            return f"{pick(['s_lshr_b64', 's_ashr_i64', 's_lshl_b64'])} {self.pair('s')}, {self.pair('s')}, 5\n {wide}"
        if how == 12:
            return f"s_cmp_{pick(['eq', 'lt'])}_u32 {s()}, {s()}\n s_cselect_b32 {s()}, {s()}, {s()}"
        if how == 13:
            return self.indexed() if self.is_cdna else self.by_m0()
        if how > 14:
            return self.of_cdna4() if self.is_cdna4 and how > 16 else self.of_cdna()
        return f"{pick(SCALAR_TWO)} {s()}, {s()}, {pick([s(), '9'])}"

    def of_cdna(self):
        """Return an instruction that only CDNA3 has."""
        pick, v = self.random.choice, self.v
        a = f"a{pick(ACCUMULATED)}"
        parts = [f"{one}_sel:{pick(['BYTE_1', 'WORD_1', 'DWORD'])}" for one in ("src0", "src1")]
        unused = pick(["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
        first, last = ACCUMULATED[0], ACCUMULATED[-1]
        selects = f"op_sel:[{pick([0, 1])},{pick([0, 1])}]"
        return pick([
            f"v_accvgpr_write_b32 {a}, {v()}",
            f"v_accvgpr_read_b32 {v()}, {a}",
            f"v_accvgpr_mov_b32 {a}, a{pick(ACCUMULATED)}",
            f"v_writelane_b32 {v()}, {self.s()}, {int(self.random.integers(64))}",
            f"v_mov_b64 {self.pair('v')}, {self.pair('v')}",
            f"v_pk_add_f32 {self.pair('v')}, {self.pair('v')}, {self.pair('v')} {selects}",
            f"v_pk_mov_b32 {self.pair('v')}, {self.pair('v')}, {self.pair('s')} {selects}",
            f"v_add_u32_sdwa {v()}, {v()}, {v()} dst_sel:{pick(['BYTE_2', 'DWORD'])} dst_unused:{unused} {' '.join(parts)}",
            f"v_mfma_f32_4x4x4_16b_f16 a[{first}:{last}], {self.pair('v')}, {self.pair('v')}, {pick(['0', f'a[{first}:{last}]'])}",
            f"v_mfma_f64_4x4x4_4b_f64 {self.pair('v')}, {self.pair('v')}, {self.pair('v')}, {pick(['0', self.pair('v')])}",
        ])  # fmt: skip

    def of_cdna4(self):
        """Return an instruction that CDNA3 does not have."""
        pick, v = self.random.choice, self.v
        a, b = (4 * int(self.random.integers(2)) + VECTORS[0] for _ in range(2))
        first, last = ACCUMULATED[0], ACCUMULATED[-1]
        added = pick(["0", f"a[{first}:{last}]"])
        flags = pick(["", " bound_ctrl:1", " fi:1"])
        to, other = pick(VECTORS, 2, replace=False)
        return pick([
            f"v_permlane{pick([16, 32])}_swap_b32{'_e64' if flags else ''} v{to}, v{other}{flags}",
            f"v_bitop3_b32 {v()}, {v()}, {v()}, {self.s()} bitop3:{int(self.random.integers(256))}",
            f"v_prng_b32 {v()}, {v()}",
            f"v_ashr_pk_u8_i32 {v()}, {v()}, {v()}, {pick(['3', v()])}{pick(['', ' op_sel:[0,0,0,1]'])}",
            f"v_cvt_scalef32_pk_fp4_f32 {v()}, {v()}, {v()}, {v()} op_sel:[0,0,{pick([0, 1])},0]",
            f"v_cvt_scalef32_pk_f32_fp8 {self.pair('v')}, {v()}, {v()}",
            f"v_cvt_scalef32_f16_bf8 {v()}, {v()}, {v()}",
            f"v_cvt_pk_bf16_f32 {v()}, {v()}, {v()}",
            f"v_cvt_f32_bf16 {v()}, {v()}",
            f"v_mfma_f32_16x16x32_f16 a[{first}:{last}], v[{a}:{a + 3}], v[{b}:{b + 3}], {added}",
            f"v_mfma_scale_f32_16x16x128_f8f6f4 a[{first}:{last}], v[{a}:{a + 3}], v[{b}:{b + 3}], {added}, {v()}, {v()} cbsz:4 blgp:4",
            f"v_smfmac_f32_16x16x64_bf16 a[{first}:{last}], v[{a}:{a + 3}], v[2:9], {v()}",
            f"v_add_u32 v{to}, 0x80, v1\n ds_read_b64_tr_b8 {self.pair('v')}, v{to}\n s_waitcnt lgkmcnt(0)",
            f"ds_write_b32 v1, {v()}\n ds_read_b64_tr_b16 {self.pair('v')}, v1\n s_waitcnt lgkmcnt(0)",
        ])  # fmt: skip

    def indexed(self):
        """Return a move of a register that M0 picks among those that all moves use, or into one."""
        first, other = (int(one) for one in self.random.integers(len(VECTORS), size=2))
        by = int(self.random.integers(len(VECTORS) - max(first, other)))
        what = self.random.choice(["SRC0", "DST", "SRC0,DST"])
        move = f"v_mov_b32_e32 v{VECTORS[first]}, v{VECTORS[other]}"
        return f"s_mov_b32 s42, {by}\n s_set_gpr_idx_on s42, gpr_idx({what})\n {move}\n s_set_gpr_idx_off"

    def by_m0(self):
        """Return a move whose registers M0 picks among those that all moves use."""
        pick = self.random.choice
        first, other = (int(one) for one in self.random.integers(len(VECTORS), size=2))
        by = int(self.random.integers(len(VECTORS) - max(first, other)))
        target, source = f"v{VECTORS[first]}", f"v{VECTORS[other]}"
        vector = [
            f"v_movreld_b32 {target}, {pick([source, self.s(), '7'])}",
            f"v_movrels_b32 {target}, {source}",
            f"v_movrelsd_b32 {target}, {source}",
            f"v_movreld_b32_dpp {target}, {source} row_ror:3 row_mask:0xf bank_mask:0xf",
        ]
        pair = [f"v_movrelsd_2_b32 {target}, {source}", f"v_swaprel_b32 {target}, {source}"]
        scalar = SCALARS[0] + 2 * int(self.random.integers(3))
        to, of = pick([scalar, scalar + 2], 2)
        scalars = [
            f"s_movrels_b32 s{to}, s{of}",
            f"s_movreld_b32 s{to}, s{of}",
            f"s_movreld_b64 s[{to}:{to + 1}], s[{of}:{of + 1}]",
            f"s_movrels_b64 s[{to}:{to + 1}], s[{of}:{of + 1}]",
        ]
        kind = int(self.random.integers(3))
        if kind == 1:
            return f"s_mov_b32 m0, {by | int(self.random.integers(len(VECTORS) - first)) << 16:#x}\n {pick(pair)}"
        return (
            f"s_mov_b32 m0, {by if kind else int(self.random.integers(6))}\n {pick(scalars if kind == 0 else vector)}"
        )


def outcome(machine, engine, text):
    """Return where an engine stops and why, without the origin of the value, and what it had stored by then."""
    machine.arena.regions.clear()
    out = machine.buffer(OUT, np.zeros(64))
    run = machine.start(
        text, engine=engine, user_sgprs=(OUT, 0), enable_group_id=(False, False, False), lds_size_bytes=256,
        acc_count=len(ACCUMULATED) if engine.target in CDNA else 0,
    )  # fmt: skip
    run.step(10_000)
    stopped = [
        (one.kind, one.pc, one.detail.split(" is undefined")[0].split(" was never")[0]) for one in run.violations
    ]
    return [(kind, pc - machine.code_end, said) for kind, pc, said in stopped], out[:32].tolist()


@pytest.mark.seeds(2)
def test_engines_agree_where_an_undefined_value_decides(machine_of_each, seed):
    machine, target = machine_of_each, machine_of_each.engine.target
    program = Program(seed, target)
    lines = program.lines
    # The first violation hides later ones. The test removes the first store and runs the rest again.
    for _ in range(2):
        text = program.text(lines)
        expected, *found = (
            outcome(machine, one, text)
            for one in (
                Interpreter(target=target),
                Translator(target=target),
                Translator(level=THOROUGH, target=target),
            )
        )
        assert found == [expected] * 2
        if not expected[0]:
            return
        stored = next(at for at, line in enumerate(lines) if line.startswith("global_store"))
        del lines[stored : stored + 3]
