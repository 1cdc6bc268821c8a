"""Encoding formats of AMD's shader instructions, from the ISA documents' "Microcode Formats" chapters.

One row per format: name, width in bits, the bits that identify it, fields with their bit ranges. `ext:` formats are the
dword that follows a base format if its `src0` (or NSA bit) selects it; their bits count from that dword's own bit 0.
Sources: RDNA3 (Feb 2023), RDNA3.5 and RDNA4 ISA chapter 15, CDNA3 and CDNA4 ISA chapter 13; field names are the
documents', in lower case. The generator checks every bit against LLVM's disassembler. If the two disagree, the row
follows LLVM and `ERRATA` says what the document has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SCALAR = """
SOP2    32 31:30=10         op[29:23] sdst[22:16] ssrc1[15:8] ssrc0[7:0]
SOPK    32 31:28=1011       op[27:23] sdst[22:16] simm16[15:0]
SOP1    32 31:23=101111101  sdst[22:16] op[15:8] ssrc0[7:0]
SOPC    32 31:23=101111110  op[22:16] ssrc1[15:8] ssrc0[7:0]
SOPP    32 31:23=101111111  op[22:16] simm16[15:0]
"""
_VECTOR = """
VOP2    32 31:31=0          op[30:25] vdst[24:17] vsrc1[16:9] src0[8:0]
VOP1    32 31:25=0111111    vdst[24:17] op[16:9] src0[8:0]
VOPC    32 31:25=0111110    op[24:17] vsrc1[16:9] src0[8:0]
"""
_VOP3_RDNA = """
VOP3    64 31:26=110101     op[25:16] {clamp}[15] opsel[14:11] abs[10:8] vdst[7:0] neg[63:61] omod[60:59]
        src2[58:50] src1[49:41] src0[40:32]
VOP3SD  64 31:26=110101     op[25:16] {clamp}[15] sdst[14:8] vdst[7:0] neg[63:61] omod[60:59] src2[58:50]
        src1[49:41] src0[40:32]
VOP3P   64 31:24=11001100   op[22:16] {clamp}[15] opsel_hi2[14] opsel[13:11] neg_hi[10:8] vdst[7:0] neg[63:61]
        opsel_hi[60:59] src2[58:50] src1[49:41] src0[40:32]
VOPD    64 31:26=110010     opx[25:22] opy[21:17] vsrcx1[16:9] srcx0[8:0] vdstx[63:56] vdsty[55:49]
        vsrcy1[48:41] srcy0[40:32]
VINTERP 64 31:24=11001101   op[{vinterp}:16] {clamp}[15] opsel[14:11] waitexp[10:8] vdst[7:0] neg[63:61]
        src2[58:50] src1[49:41] src0[40:32]
"""
_DPP_RDNA = """
ext:DPP16 32 - row_mask[31:28] bank_mask[27:24] src1_abs[23] src1_neg[22] src0_abs[21] src0_neg[20] bc[19]
        fi[18] dpp_ctrl[16:8] src0[7:0]
ext:DPP8  32 - lane_sel7[31:29] lane_sel6[28:26] lane_sel5[25:23] lane_sel4[22:20] lane_sel3[19:17]
        lane_sel2[16:14] lane_sel1[13:11] lane_sel0[10:8] src0[7:0]
"""
_RDNA3 = (
    _SCALAR
    + """
SMEM    64 31:26=111101     op[25:18] glc[14] dlc[13] sdata[12:6] sbase[5:0] soffset[63:57] offset[52:32]
"""
    + _VECTOR
    + _VOP3_RDNA.format(clamp="clmp", vinterp=22)
    + _DPP_RDNA
    + """
LDSDIR  32 31:24=11001110   op[21:20] wait_va[19:16] attr[15:10] attr_chan[9:8] vdst[7:0]
DS      64 31:26=110110     op[25:18] gds[17] offset1[15:8] offset0[7:0] vdst[63:56] data1[55:48] data0[47:40]
        addr[39:32]
MTBUF   64 31:26=111010     format[25:19] op[18:15] glc[14] dlc[13] slc[12] offset[11:0] soffset[63:56]
        idxen[55] offen[54] tfe[53] srsrc[52:48] vdata[47:40] vaddr[39:32]
MUBUF   64 31:26=111000     op[25:18] glc[14] dlc[13] slc[12] offset[11:0] soffset[63:56] idxen[55] offen[54]
        tfe[53] srsrc[52:48] vdata[47:40] vaddr[39:32]
MIMG    64 31:26=111100     op[25:18] d16[17] a16[16] r128[15] glc[14] dlc[13] slc[12] dmask[11:8] unrm[7]
        dim[4:2] nsa[0] ssamp[62:58] lwe[54] tfe[53] srsrc[52:48] vdata[47:40] vaddr[39:32]
ext:NSA 32 - addr4[31:24] addr3[23:16] addr2[15:8] addr1[7:0]
FLAT    64 31:26,17:16=11011100 op[24:18] slc[15] glc[14] dlc[13] offset[12:0] vdst[63:56] sve[55] saddr[54:48]
        data[47:40] addr[39:32]
SCRATCH 64 31:26,17:16=11011101 op[24:18] slc[15] glc[14] dlc[13] offset[12:0] vdst[63:56] sve[55] saddr[54:48]
        data[47:40] addr[39:32]
GLOBAL  64 31:26,17:16=11011110 op[24:18] slc[15] glc[14] dlc[13] offset[12:0] vdst[63:56] sve[55] saddr[54:48]
        data[47:40] addr[39:32]
EXP     64 31:26=111110     row[13] done[11] target[9:4] en[3:0] vsrc3[63:56] vsrc2[55:48] vsrc1[47:40] vsrc0[39:32]
"""
)
_FLAT_RDNA4 = "op[21:14] saddr[6:0] vsrc[62:55] th[54:52] scope[51:50] sve[49] vdst[39:32] ioffset[95:72] vaddr[71:64]"
_RDNA4 = (
    _SCALAR
    + """
SMEM    64 31:26=111101     th[24:23] scope[22:21] op[18:13] sdata[12:6] sbase[5:0] soffset[63:57] ioffset[55:32]
"""
    + _VECTOR
    + _VOP3_RDNA.format(clamp="cm", vinterp=20)
    + _DPP_RDNA
    + f"""
VDSDIR  32 31:24=11001110   wait_vmvsrc[23] op[21:20] wait_va[19:16] attr[15:10] attr_chan[9:8] vdst[7:0]
VDS     64 31:26=110110     op[25:18] offset1[15:8] offset0[7:0] vdst[63:56] data1[55:48] data0[47:40] addr[39:32]
VBUFFER 96 31:26=110001     tfe[22] op[21:14] soffset[6:0] idxen[63] offen[62] format[61:55] th[54:52]
        scope[51:50] rsrc[49:41] vdata[39:32] ioffset[95:72] vaddr[71:64]
VIMAGE  96 31:26=110100     dmask[25:22] op[21:14] a16[6] d16[5] r128[4] dim[2:0] vaddr4[63:56] tfe[55]
        th[54:52] scope[51:50] rsrc[49:41] vdata[39:32] vaddr3[95:88] vaddr2[87:80] vaddr1[79:72] vaddr0[71:64]
VSAMPLE 96 31:26=111001     dmask[25:22] op[21:14] unrm[13] a16[6] d16[5] r128[4] tfe[3] dim[2:0] samp[63:55]
        th[54:52] scope[51:50] rsrc[49:41] lwe[40] vdata[39:32] vaddr3[95:88] vaddr2[87:80] vaddr1[79:72] vaddr0[71:64]
VFLAT   96 31:24=11101100   {_FLAT_RDNA4}
VGLOBAL 96 31:24=11101110   {_FLAT_RDNA4}
VSCRATCH 96 31:24=11101101  {_FLAT_RDNA4}
VEXPORT 64 31:26=111110     row[13] done[11] target[9:4] en[3:0] vsrc3[63:56] vsrc2[55:48] vsrc1[47:40] vsrc0[39:32]
"""
)
_FLAT_CDNA = (
    "sc1[25] op[24:18] nt[17] sc0[16] lds[13] offset[12:0] vdst[63:56] acc[55] saddr[54:48] data[47:40] addr[39:32]"
)
_SDWA_SOURCES = "s1[31] src1_abs[29] src1_neg[28] src1_sext[27] src1_sel[26:24] s0[23] src0_abs[21] src0_neg[20] src0_sext[19] src0_sel[18:16]"
_CDNA3 = (
    _SCALAR
    + """
SMEM    64 31:26=110000     op[25:18] imm[17] glc[16] nv[15] soe[14] sdata[12:6] sbase[5:0] soffset[63:57]
        offset[52:32]
"""
    + _VECTOR
    + f"""
VOP3A   64 31:26=110100     op[25:16] clmp[15] opsel[14:11] abs[10:8] vdst[7:0] neg[63:61] omod[60:59]
        src2[58:50] src1[49:41] src0[40:32]
VOP3B   64 31:26=110100     op[25:16] clmp[15] sdst[14:8] vdst[7:0] neg[63:61] omod[60:59] src2[58:50]
        src1[49:41] src0[40:32]
VOP3P   64 31:23=110100111  op[22:16] clmp[15] opsel_hi2[14] opsel[13:11] neg_hi[10:8] vdst[7:0] neg[63:61]
        opsel_hi[60:59] src2[58:50] src1[49:41] src0[40:32]
VOP3P-MAI 64 31:23=110100111 op[22:16] acc_cd[15] abid[14:11] cbsz[10:8] vdst[7:0] blgp[63:61] acc[60:59]
        src2[58:50] src1[49:41] src0[40:32]
ext:DPP 32 - row_mask[31:28] bank_mask[27:24] src1_abs[23] src1_neg[22] src0_abs[21] src0_neg[20] bc[19]
        dpp_ctrl[16:8] src0[7:0]
ext:SDWA 32 - {_SDWA_SOURCES} omod[15:14] clmp[13] dst_u[12:11] dst_sel[10:8] src0[7:0]
ext:SDWAB 32 - {_SDWA_SOURCES} sd[15] sdst[14:8] src0[7:0]
DS      64 31:26=110110     acc[25] op[24:17] gds[16] offset1[15:8] offset0[7:0] vdst[63:56] data1[55:48]
        data0[47:40] addr[39:32]
MTBUF   64 31:26=111010     nfmt[25:23] dfmt[22:19] op[18:15] sc0[14] idxen[13] offen[12] offset[11:0]
        soffset[63:56] acc[55] nt[54] sc1[53] srsrc[52:48] vdata[47:40] vaddr[39:32]
MUBUF   64 31:26=111000     op[24:18] nt[17] lds[16] sc1[15] sc0[14] idxen[13] offen[12] offset[11:0]
        soffset[63:56] acc[55] srsrc[52:48] vdata[47:40] vaddr[39:32]
FLAT    64 31:26,15:14=11011100 {_FLAT_CDNA}
SCRATCH 64 31:26,15:14=11011101 {_FLAT_CDNA}
GLOBAL  64 31:26,15:14=11011110 {_FLAT_CDNA}
"""
)
_CDNA4 = (
    _CDNA3
    + """
VOP3PX2 128 95:87,31:16=1101001111101001110101100 op[86:80] acc_cd[79] abid[78:75] cbsz[74:72] vdst[71:64]
        blgp[127:125] acc[124:123] src2[122:114] src1[113:105] src0[104:96] scale_opsel[13:11] scale_opsel_hi[60:59]
        scale_src1[49:41] scale_src0[40:32]
"""
)

_ERRATA_RDNA3 = (
    "SMEM: the document prints dlc at bit 14 and glc at bit 16; LLVM reads 13 and 14, and 15 to 17 mean nothing",
    "VOP3: the document lists v_readfirstlane_b32 (386), LLVM does not decode it",
    "in LLVM and not in the document: s_subvector_loop_begin, s_subvector_loop_end, s_waitcnt_depctr, s_ttracedata, s_ttracedata_imm,"
    " s_atc_probe, s_atc_probe_buffer, ds_gws_*",
    "MIMG: addr3 and addr4 of the NSA dword are LLVM's; the field table stops at addr2",
)
_ERRATA_CDNA = (
    "SCRATCH: bit 13 is `lds` in the field table and SVE in the text of chapter 10; LLVM reads it as SVE",
    "VOP3A: the document's table has VOP1's instructions from opcode 384 on; its chapter 12.8.1 says from 320 on, as LLVM",
    "in LLVM and not in the document: s_rfe_restore_b64, s_endpgm_ordered_ps_done, s_atc_probe, s_atc_probe_buffer,"
    " v_screen_partition_4se_b32, v_exp_legacy_f32, v_log_legacy_f32; CDNA4 also ds_gws_* and v_mfma_ld_scale_b32 alone",
    "VOP3P: the document prints a nine-bit encoding for bits 31:24; it lies in 31:23",
)
# For each target: where a document and LLVM disagree, or the document is silent.
ERRATA = {
    "gfx1100": (
        *_ERRATA_RDNA3,
        "LDSDIR: the RDNA3 document prints opcodes 0 and 1 swapped; RDNA3.5's and LLVM have lds_param_load at 0",
    ),
    "gfx1151": _ERRATA_RDNA3,
    "gfx1201": (
        "VOP1: the document prints op at 15:9; LLVM reads 16:9",
        "VIMAGE: the document prints vaddr4 as 56:63; it is 63:56",
        "VFLAT, VGLOBAL, VSCRATCH: the document's field table prints op at 20:13; its own opcode tables and LLVM want 21:14",
        "VOP3: the document lists v_readfirstlane_b32 (386), LLVM does not decode it",
        "in LLVM and not in the document: s_barrier_init, s_barrier_join, s_barrier_leave, s_ttracedata, s_ttracedata_imm, s_atc_probe,"
        " s_atc_probe_buffer",
    ),
    "gfx942": _ERRATA_CDNA,
    "gfx950": (
        *_ERRATA_CDNA,
        "VOP3PX2: the document gives the first two dwords in prose; abid bit 0 is set in LLVM's encoding",
    ),
}
TARGETS = ("gfx1100", "gfx1151", "gfx1201", "gfx942", "gfx950")
_TABLES = {"gfx1100": _RDNA3, "gfx1151": _RDNA3, "gfx1201": _RDNA4, "gfx942": _CDNA3, "gfx950": _CDNA4}


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    `mask` and `value` are the bits that identify it, `fields` maps a name to (hi, lo), `op` names the opcode fields.
    """

    name: str
    width_bits: int
    mask: int
    value: int
    fields: dict[str, tuple[int, int]]
    extension: bool

    def put(self, values: dict[str, int]) -> int:
        """Return the word with `values` in its fields and the identifying bits set."""
        word = self.value
        for name, value in values.items():
            hi, lo = self.fields[name]
            word |= (value & (1 << hi - lo + 1) - 1) << lo
        return word


def formats(target: str) -> dict[str, Format]:
    """Return the formats of `target`, in the documents' order."""
    # an indented line continues the previous row
    lines = re.sub(r"\n +", " ", _TABLES[target]).splitlines()
    return {row.name: row for row in map(_format, filter(None, lines))}


def _format(line: str) -> Format:
    name, width, identity, *fields = line.split()
    mask = value = 0
    if identity != "-":
        ranges, bits = identity.split("=")
        for part in ranges.split(","):
            hi, lo = map(int, part.split(":"))
            count = hi - lo + 1
            mask |= (1 << count) - 1 << lo
            value |= int(bits[:count], 2) << lo
            bits = bits[count:]
    places: dict[str, tuple[int, int]] = {}
    for field in fields:
        match = re.fullmatch(r"(\w+)\[(\d+)(?::(\d+))?\]", field)
        if match is None:
            raise ValueError(f"format {name}: {field} is no field")
        places[match[1]] = (int(match[2]), int(match[3] or match[2]))
    return Format(name.removeprefix("ext:"), int(width), mask, value, places, name.startswith("ext:"))
