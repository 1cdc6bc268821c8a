"""Our decoder compared with LLVM 22: the same bytes are instructions, with the same mnemonic and operands. Every
difference has a reason.
"""

import gzip
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from ringup.autogen import isa
from ringup.autogen.generate.isa.instructions import FEATURES
from ringup.autogen.generate.isa.probe import Disassembler, llvm_mc, parse
from ringup.autogen.generate.isa.rows import base_name
from ringup.silicon.shader.amd.decoding.decode import LONGEST_BYTES, IllegalInstruction, decode, of_wave
from ringup.silicon.shader.amd.decoding.generations import generation
from ringup.silicon.shader.amd.decoding.text import text

PAIRS = Path(__file__).parents[2] / "autogen/isa"
# gfx1200 decodes as gfx1201 does.
PROCESSORS = ("gfx1100", "gfx1151", "gfx1201", "gfx942", "gfx950")
WAVE64 = ("gfx942", "gfx950")
# LLVM takes three times as long for a word of gfx942, and gfx1151 differs little from gfx1100, so they get a part of
# them. `make fuzz` has more seeds.
SHARE = {"gfx942": 4, "gfx1151": 8, "gfx950": 8}

# Reasons why LLVM prints an instruction that our decoder refuses: a pattern of LLVM's text, and a pattern of our
# decoder's message.
REASONS = {
    "LLVM remarks that the operand is none of its kind": (r"/\*\s*Invalid", r""),
    "a lane permutation of another GFX9": (r"not supported|only supports row_newbcast", r""),
    "a source that RDNA3 reserves": (r"src_flat_scratch_base|src_pops_exiting", r""),
    "registers past v255": (r"", r"registers from"),
    "a source that is a VGPR by its encoding only": (r"src_|null|v_interp", r"src\d \d+, no VGPR"),
    "a special source where SGPRs are read": (r"^s_(movrels|rfe|setpc)", r""),
    "a special value as the destination": (r"src_", r"with s?vdst|with sdst"),
    "a special source of a matrix": (r"v_wmma.*src_", r"with src2"),
    "a lane mask in VGPRs": (r"v_(add|sub|subrev)_co_ci|v_(addc|subb|subbrev)_co|v_cndmask", r"with src2"),
    "LLVM's assembler wants a VGPR as src1 of a permuted instruction": (
        r"dpp|quad_perm|row_",
        r"lane permutation and src1",
    ),
    "GFX9's encoding of the mixed multiply-add, which LLVM takes for later ones too": (
        r"^v_fma_mix",
        r"^....a[0-2]d3\w+ is no instruction|^image_",
    ),
    "a barrier's number in an SGPR, which RDNA4 reserves": (r"^s_(barrier|get_barrier)", r"with ssrc0"),
    "named barriers, whose opcodes RDNA4 reserves": (r"^s_barrier_(init|join|leave)", r"is no instruction"),
    "a resource that is null": (r"null", r"with (rsrc|samp) 124$"),
    "M0 and one that GFX9 does not have are next to each other": (
        r"null|m0",
        r"with (ssrc|src|sdst|sdata|soffset)\d? 12[45]$",
    ),
    "more scalars than GFX9 reads in one instruction: VCC or a literal besides": (
        r"^v_(cndmask|fmaak|fmamk|madak|madmk|addc|subb|subbrev|div_fmas)",
        r"with src\d (1[01]\d|12[0-7]|\d\d?)$",
    ),
    "a pair of scratch memory or retries is split": (r"flat_scratch|xnack_mask", r"registers from"),
    "data of the global data share in accumulation registers": (r"^ds_gws.*a\d", r""),
    "a literal or a special value of the old forks of branches": (r"^s_cbranch_(join|g_fork)", r""),
    "a special value moved between accumulation registers": (r"^v_accvgpr_mov.*src_", r""),
    "SDWA fills the rest of the register in a reserved way": (r"UNUSED_PAD", r"reserved fields of SDWA"),
    "the first half of a scaled matrix product, which AMD's document does not have alone": (r"^v_mfma_ld_scale", r""),
    "SDWA or a permutation of an instruction without a source, whose field LLVM does not read": (
        r"^v_(nop|clrexcp)$",
        r"with an? (SDWA|DPP) source|with dpp_ctrl|reserved fields of SDWA",
    ),
    "a special source of two floats": (r"^v_cvt_scalef32_sr_pk_fp4_f32 .*src_", r"with src0"),
    "a literal where an inline constant may be, but no literal": (r"0x", r"with (src\d|soffset) 255$"),
}
SOURCES = (0, 5, 104, 105, 106, 107, 108, 123, 124, 125, 126, 127, 128, 192, 193, 208, 209, 230, 233, 234, 235, 238, 239, 240,
           247, 248, 249, 250, 251, 252, 253, 254, 255, 256, 384, 511)  # fmt: skip


@pytest.fixture(scope="module", params=PROCESSORS)
def llvm(request, headers):
    return Disassembler(llvm_mc(headers("llvm-22")), request.param, FEATURES[request.param])


def ours(data, processor):
    try:
        return of_wave(decode(data, 0, generation(processor)), 64 if processor in WAVE64 else 32)
    except IllegalInstruction as error:
        return error


def reason(llvm_text, error):
    return next(
        (
            name
            for name, (shown, said) in REASONS.items()
            if re.search(shown, llvm_text) and re.search(said, str(error))
        ),
        None,
    )


def lacked(ins):
    """Return whether LLVM 22 lacks an instruction: a float atomic that returns to an accumulation register and has a
    scalar address.
    """
    has_scalar = any(one.field == "saddr" and one.kind == "sgpr" for one in ins.operands)
    is_float = re.match(r"global_atomic_(pk_)?(add|min|max)_b?f", ins.mnemonic)
    return bool(is_float and has_scalar and ins.fields["acc"] and ins.fields["glc"]) if "acc" in ins.fields else False


def differences(llvm, probes):
    """Return how many words are instructions for both, and the differences without a reason."""
    found = [ours(probe, llvm.cpu) for probe in probes]
    asked = [
        (i, size)
        for i, one in enumerate(found)
        for size in ((4, 8, 12, 16) if isinstance(one, Exception) else (one.size_bytes,))
    ]
    answers = {}
    for (i, _), answer in zip(asked, llvm.decode([probes[i][:size] for i, size in asked]), strict=True):
        if answer is not None:
            answers.setdefault(i, answer.text)
    crashed = set(llvm.crashed)
    same, wrong = 0, []
    for i, one in enumerate(found):
        shown = answers.get(i)
        if isinstance(one, Exception):
            if shown is not None and reason(shown, one) is None:
                wrong.append((probes[i].hex(), shown, str(one)))
        elif shown is None:
            if probes[i][: one.size_bytes] not in crashed and not lacked(one):
                wrong.append((probes[i].hex(), None, one.spelling))
        elif [base_name(half.split(" ")[0]) for half in shown.split(" :: ")] != one.spelling.split(" :: "):
            wrong.append((probes[i].hex(), shown, one.spelling))
        else:
            same += 1
    return same, wrong


# LLVM answers a few thousand words a second, so these are few; `make fuzz` asks about new ones.
@pytest.mark.seeds(1, first=1100)
def test_random_words_are_instructions_for_both_or_for_neither(llvm, seed):
    draw = random.Random(seed)
    count = 8_000 // SHARE.get(llvm.cpu, 1)
    same, wrong = differences(llvm, [draw.randbytes(LONGEST_BYTES) for _ in range(count)])
    assert wrong == []
    assert same > 3 * count // 8


@pytest.mark.seeds(1, first=11)
def test_every_opcode_with_random_fields(llvm, seed):
    draw = random.Random(seed)
    target, share = isa.target(llvm.cpu), SHARE.get(llvm.cpu, 1)
    formats = [fmt for fmt in target.formats.values() if not fmt.is_extension]
    opcodes = {fmt.name: [row.op for row in target.instructions if row.format == fmt.name] for fmt in formats}
    probes = [probe(draw, fmt, op) for fmt in formats for op in opcodes[fmt.name] * max(4 // share, 1)]
    if "VOPD" in target.formats:
        probes += [probe(draw, target.formats["VOPD"], None) for _ in range(1000)]
    same, wrong = differences(llvm, probes)
    assert wrong == []
    assert same > {1: 2_500, 4: 650, 8: 700}[share]


def probe(draw, fmt, op):
    word = fmt.value
    for name, (hi, lo) in fmt.fields.items():
        value = draw.getrandbits(hi - lo + 1)
        if name.startswith(("src", "ssrc")) and draw.random() < 0.5:
            value = draw.choice(SOURCES) & (1 << hi - lo + 1) - 1
        elif name in ("abs", "neg", "omod", "clmp", "opsel", "tfe", "data1", "vdst", "sve") and draw.random() < 0.6:
            value = 0
        elif name in ("saddr", "soffset") and draw.random() < 0.6:
            value = 124
        word |= (op if name == "op" and op is not None else value) << lo
    return word.to_bytes(fmt.width_bits // 8, "little") + draw.randbytes(4)


# LLVM's text spells these by name, ours by number.
UNLIKE = re.compile(r"hwreg|sendmsg|depctr|delay_alu|swizzle|invalid_target|/\*")


def comparable(shown):
    """Take a text apart. Misaligned scalar registers become the aligned ones that LLVM prints."""
    shown = re.sub(r"format:\S+", "format", shown)
    shown = re.sub(r"(?<![a-z])(s|ttmp)\[(\d+):(\d+)\]", aligned, shown)
    halves = [parse(half) for half in shown.split(" :: ")]
    return [
        (name, [(one.core, sorted(one.marks)) for one in found], sorted(modifiers)) for name, found, modifiers in halves
    ]


def aligned(match):
    first, last = int(match[2]), int(match[3])
    count = last - first + 1
    first -= first % min(4, count if count != 3 else 4)
    return f"{match[1]}[{first}:{first + count - 1}]"


# Texts that differ from LLVM's. The reason names the operand that differs.
TEXT_REASONS = {
    "null soffset of a wide scalar load": r"^s_(buffer_)?load_b\d+ .*, null",
    "v_cndmask_b16 spells op_sel by halves alone": r"^v_cndmask_b16",
    "an immediate in hexadecimal": r"^s_(set_inst|clause|round|denorm|sleep|setprio|wait_event|endpgm|wait_\w+cnt|ttracedata|version|barrier)",
    "op_sel of a permutation's two flags": r"^v_permlane|^v_cmpx.*op_sel",
    "a literal of a half": r"^v_(fma_mix|cndmask)",
    "export targets": r"^exp",
    "a barrier's number in M0, which RDNA4 reserves": r"^s_get_barrier_state .*, m0",
    "op_sel of a result's byte": r"^v_cvt_sr|^v_cvt_scalef32_pk_fp4",
    "the bits of a scale that is loaded apart": r"^v_mfma_ld_scale",
    "the sign of a pair of halves in SDWA": r"^v_pk_fmac_f16_sdwa",
}


def test_operands_of_llvms_own_tests_are_read_as_it_prints_them(llvm):
    lines = gzip.decompress((PAIRS / f"mc_{llvm.cpu}.tsv.gz").read_bytes()).decode().splitlines()
    codes = sorted({bytes.fromhex(line.split("\t")[0]) for line in lines if not line.startswith("#")})
    # The others' are many more.
    codes = codes[::3] if len(codes) > 10_000 else codes
    counts, wrong = Counter(), []
    for code, answer in zip(codes, llvm.decode(codes), strict=True):
        if answer is None or UNLIKE.search(answer.text):
            counts["not comparable"] += 1
            continue
        found = ours(code, llvm.cpu)
        if not isinstance(found, Exception) and comparable(text(found)) == comparable(answer.text):
            counts["same"] += 1
            continue
        why = next((name for name, pattern in TEXT_REASONS.items() if re.search(pattern, answer.text)), None)
        counts[why] += 1
        if why is None and answer.text != "v_illegal":
            wrong.append((code.hex(), answer.text, str(found) if isinstance(found, Exception) else text(found)))
    assert wrong == []
    assert (
        counts["same"]
        > {"gfx1100": 13_000, "gfx1151": 800, "gfx1201": 12_400, "gfx942": 940, "gfx950": 1_300}[llvm.cpu]
    )
