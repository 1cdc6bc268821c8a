"""Every value rule of the translator gives what the interpreter gives, for random instructions of every opcode on
random registers.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding.decode import IllegalInstruction, Instruction, decode, of_wave
from ringup.silicon.shader.amd.decoding.gcn_names import engine_name
from ringup.silicon.shader.amd.decoding.generations import CDNA3, CDNA4, RDNA3, RDNA3_5, RDNA4, Generation
from ringup.silicon.shader.amd.decoding.text import text
from ringup.silicon.shader.amd.writer.wave import OWN_RULES, RULES
from ringup.silicon.shader.common import state
from ringup.silicon.shader.common.state import WaveState
from ringup.silicon.shader.host.context import SPARE_WORD

FORMATS = (
    "SOP1", "SOP2", "SOPC", "SOPK", "VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P", "VOP3A", "VOP3B", "VOP3P-MAI", "VOP3PX2",
)  # fmt: skip
VGPRS = 64
# Words of the scalar file that instructions use.
SCALARS = 100
# Accurate to 1 ulp.
APPROXIMATE = ("v_exp_", "v_log_", "v_sin_", "v_cos_", "v_rcp_", "v_rsq_", "v_sqrt_")
MODES = {  # MODE 9:0
    # Denormals kept, ieee, dx10_clamp.
    "as HSA starts kernels": 0x3F0,
    "f32 denormals flushed": 0x1C0,
    "denormal results flushed": 0x250,
    "denormal inputs flushed": 0x2A0,
    "denormals flushed": 0x100,
    "denormals kept, not ieee": 0x0F0,
}
# omod works in these modes too.
ROUNDINGS = {
    "rounded to zero": 0x10F,
    "rounded up, f32 denormals flushed": 0x1C5,
    "rounded down, ieee": 0x30A,
}

F32 = (
    0, 0x8000_0000, 1, 0x8000_0001, 0x007F_FFFF, 0x0080_0000, 0x8080_0000, 0x3F80_0000, 0xBF80_0000, 0x3F00_0000, 0x4000_0000,
    0x7F7F_FFFF, 0xFF7F_FFFF, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFC0_1234, 0x7FA0_0000, 0xFF80_0001, 0x3EFF_FFFF, 0x4B00_0001,
    0x4F00_0000, 0x4F80_0000, 0xCF00_0000, 0x3E80_0000, 0x7E80_0000, 0x0100_0000, 0x477F_E000, 0x3880_0000, 0x3300_0000,
)  # fmt: skip
F16 = (
    0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x3800, 0x4000, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7D00,
    0xFC01, 0x3BFF, 0x1400, 0x5BFF, 0x77FF,
)  # fmt: skip
F64_HIGH = (
    0, 0x8000_0000, 0x000F_FFFF, 0x0010_0000, 0x3FF0_0000, 0xBFF0_0000, 0x3FE0_0000, 0x7FEF_FFFF, 0x7FF0_0000, 0xFFF0_0000,
    0x7FF8_0000, 0x7FF4_0000, 0x41DF_FFFF, 0x41E0_0000, 0x4330_0000, 0x0360_0000, 0x3810_0000,
)  # fmt: skip


def random_word(rng: random.Random) -> int:
    """Return a dword that is special for some operand type, or a random one."""
    match rng.randrange(8):
        case 0 | 1:
            return rng.choice(F32)
        case 2:
            return rng.choice(F16) << 16 | rng.choice(F16)
        case 3:
            return rng.choice(F64_HIGH)
        case 4:
            return rng.randrange(-40, 70) & 0xFFFF_FFFF
        # Floats of middling size.
        case 5:
            return rng.getrandbits(1) << 31 | rng.randrange(110, 150) << 23 | rng.getrandbits(23)
        # Halves of middling size.
        case 6:
            halves = [rng.getrandbits(1) << 15 | rng.randrange(5, 27) << 10 | rng.getrandbits(10) for _ in range(2)]
            return halves[0] << 16 | halves[1]
        case _:
            return rng.getrandbits(32)


# random instructions --------------------------------------------------------------------------------------------------


def random_source(rng: random.Random, kinds: tuple[str, ...], bits: int, *, literal: bool) -> int:
    """Return an encoding of a source that takes `kinds`."""
    choices = ["vgpr"] * 6 if "vgpr" in kinds or "agpr" in kinds else []
    choices += ["sgpr"] * 2 if "sgpr" in kinds else []
    choices += ["imm", "float"] if "imm" in kinds else []
    choices += ["vcc"] if "vcc" in kinds else []
    choices += ["literal"] if literal and "literal" in kinds else []
    # A pair of scalars of which there is only one, or a special register.
    match rng.choice(choices or ["sgpr"]):
        case "vgpr":
            return (256 if bits == 9 else 0) + rng.randrange(0, 50)
        case "sgpr":
            return rng.randrange(0, 40, 2)
        case "imm":
            return rng.randrange(128, 209)
        case "float":
            return rng.randrange(240, 249)
        case "vcc":
            return 106
        case _:
            return 255


def _gcn_dword(rng: random.Random, facts: isa.InstructionFacts, fields: dict[str, int]) -> bytes:
    """Make src0 a register with an SDWA or DPP dword, which is returned."""
    source = fields["src0"] & 0x3F
    is_float = any(one.type.startswith("f") for one in facts.operands)
    signs = rng.getrandbits(4) if is_float else 0
    if "sdwa" in facts.flags or "sdwab" in facts.flags:
        fields["src0"] = 249
        word = (
            source
            | rng.randrange(7) << 16
            | rng.randrange(7) << 24
            | rng.getrandbits(2) << 19
            | rng.getrandbits(2) << 27
        )
        if is_float:
            word = word & ~(1 << 19 | 1 << 27) | (signs & 3) << 20 | (signs >> 2) << 28
        if "sdwa" in facts.flags:
            word |= rng.choice((6, 6, rng.randrange(7))) << 8 | rng.randrange(3) << 11
        return word.to_bytes(4, "little")
    fields["src0"] = 250
    control = rng.choice((rng.randrange(256), 0x101 + rng.randrange(15), 0x111 + rng.randrange(15), 0x121 + rng.randrange(15),
                          0x130, 0x134, 0x138, 0x13C, 0x140, 0x141, 0x142, 0x143, 0x150 + rng.randrange(16)))  # fmt: skip
    masks = 0xFF if rng.randrange(2) else rng.getrandbits(8)
    return (source | control << 8 | rng.getrandbits(1) << 19 | signs << 20 | masks << 24).to_bytes(4, "little")


def random_instruction(
    rng: random.Random, facts: isa.InstructionFacts, fmt: isa.FormatFacts, *, dpp: bool, gcn: bool = False
) -> bytes:
    """Encode an opcode with random operands and modifiers."""
    fields = dict.fromkeys(fmt.fields, 0)
    fields["op"] = facts.op
    has_literal = False
    extension = b""
    for one in facts.operands:
        if one.field not in fields:
            continue
        high, low = fmt.fields[one.field]
        if one.field == "simm16" or one.kinds == ("imm",):
            fields[one.field] = rng.getrandbits(high - low + 1)
            continue
        code = random_source(rng, one.kinds, high - low + 1, literal=not has_literal and not dpp)
        has_literal |= code == 255
        fields[one.field] = code
    for one in facts.modifiers:
        if one.effect == "half" and one.field in ("src0", "vsrc1", "vdst"):
            if fields[one.field] >= 256 or one.field != "src0":
                fields[one.field] |= rng.getrandbits(1) << 7
        elif one.effect != "half" and rng.randrange(3) == 0:
            fields[one.field] |= rng.getrandbits(8) & one.bits
    # The usual selection.
    if fmt.name == "VOP3P" and rng.randrange(2):
        fields |= {"opsel": 0, "opsel_hi": 3} | ({"opsel_hi2": 1} if "opsel_hi2" in fields else {})
    if fmt.name == "VOP3P-MAI" and not facts.mnemonic.startswith("v_accvgpr"):
        fields |= {name: rng.getrandbits(4) for name in ("acc", "acc_cd", "cbsz", "abid", "blgp") if name in fields}
    # Formats of small floats, and scales.
    if facts.mnemonic.endswith("f8f6f4"):
        fields |= {"cbsz": rng.randrange(5), "blgp": rng.randrange(5), "abid": int(fmt.name == "VOP3PX2")}
    if dpp and gcn:
        extension = _gcn_dword(rng, facts, fields)
    elif dpp:
        source = fields["src0"]
        if source < 256:
            source = 256 + rng.randrange(50)
        fields["src0"] = rng.choice((250, 250, 233, 234))
        word = rng.getrandbits(24) << 8
        if fields["src0"] == 250:
            kind = rng.choice((rng.randrange(256), 0x101 + rng.randrange(15), 0x111 + rng.randrange(15), 0x121 + rng.randrange(15),
                               0x140, 0x141, 0x150 + rng.randrange(16), 0x160 + rng.randrange(16)))  # fmt: skip
            masks = 0xFF if rng.randrange(2) else rng.getrandbits(8)
            modifiers = rng.getrandbits(4) if any(one.type.startswith("f") for one in facts.operands) else 0
            word = masks << 24 | modifiers << 20 | rng.getrandbits(2) << 18 | kind << 8
        extension = (word | source & 0xFF).to_bytes(4, "little")
    word = fmt.value
    for name, value in fields.items():
        high, low = fmt.fields[name]
        word |= (value & (1 << high - low + 1) - 1) << low
    data = word.to_bytes(fmt.width_bits // 8, "little") + extension
    return data + (rng.choice(F32) if rng.randrange(2) else rng.getrandbits(32)).to_bytes(4, "little")


def names_of(of: Generation, kind: str) -> set[str]:
    """The ALU opcodes of a generation that have a rule, by the sort of test."""
    rows = (one for one in isa.target(of.facts).instructions if one.format in FORMATS)
    there = {name_of(one, of) for one in rows}
    return {one for one in RULES | OWN_RULES.get(of.name, {}) if one in there and family(one) == kind}


def name_of(row: isa.InstructionFacts, of: Generation) -> str:
    """Return the engines' name of an opcode."""
    return engine_name(row.mnemonic) if of.is_gcn else of.renamed.get(row.mnemonic, row.mnemonic)


def instructions(
    rng: random.Random, names: set[str], lanes: int, each: int, *, dpp: int = 4, of: Generation = RDNA3
) -> list[Instruction]:
    """Return up to `each` decodable instructions of every opcode and format of `names`. A wave64 has no dual ones."""
    facts = isa.target(of.facts)
    found = []
    for row in facts.instructions:
        name = name_of(row, of)
        if row.format not in FORMATS or name not in names:
            continue
        extended = row.flags & ({"sdwa", "sdwab", "dpp", "dpp-newbcast"} if of.is_gcn else {"dpp16"})
        fmt, made = facts.formats[row.format], 0
        # Of some opcodes few random words are instructions.
        for _ in range(max(each * 30, 400)):
            if made == each:
                break
            permuted = bool(dpp) and bool(extended) and fmt.width_bits == (32 if of.is_gcn else fmt.width_bits)
            permuted = permuted and rng.randrange(dpp) == 0
            try:
                data = random_instruction(rng, row, fmt, dpp=permuted, gcn=of.is_gcn)
                ins = of_wave(decode(data, 0, of), lanes)
            except IllegalInstruction:
                continue
            if ins.mnemonic == name and is_usable(ins, lanes):
                found.append(ins)
                made += 1
    return found


def is_usable(ins: Instruction, lanes: int) -> bool:
    """Whether registers are within the allocation, masks are aligned, and no result is written twice."""
    written: set[tuple[str, int]] = set()
    for one in ins.operands:
        words = max(1, one.size_bits // 32)
        # "for inline constant sources OPSEL must be zero"
        if one.kind == "constant" and (one.high or ("mix" in ins.mnemonic and one.sel[0])):
            return False
        # "OPSEL may only be used for 16-bit operands"
        if one.high and one.size_bits != 16 and "permlane" not in ins.mnemonic:
            return False
        if one.kind == "vgpr" and one.index % state.FIRST_ACC + words > VGPRS:
            return False
        if one.kind == "sgpr" and lanes == 64 and one.type == "mask" and one.index % 2:
            return False
        if one.kind == "sgpr" and 108 <= one.index < 124:
            return False
        if one.direction != "use" and one.kind in ("vgpr", "sgpr"):
            registers = {(one.kind, one.index + i) for i in range(words)}
            if registers & written:
                return False
            written |= registers
    return True


# waves ----------------------------------------------------------------------------------------------------------------


def random_wave(rng: random.Random, lanes: int, mode: int, acc_count: int = 0) -> WaveState:
    """Return a wave with random registers and some inactive lanes."""
    wave = WaveState(lanes, VGPRS, acc_count)
    wave.sgprs[:SCALARS] = [random_word(rng) for _ in range(SCALARS)]
    wave.sgprs[106:108] = rng.getrandbits(32), rng.getrandbits(32)
    wave.sgprs[125] = rng.randrange(8)
    exec_mask = (1 << lanes) - 1 if rng.randrange(3) == 0 else rng.getrandbits(lanes)
    wave.sgprs[126:128] = exec_mask & 0xFFFF_FFFF, exec_mask >> 32
    for one in (*range(VGPRS), *range(state.FIRST_ACC, state.FIRST_ACC + acc_count)):
        wave.vgprs[one] = [random_word(rng) for _ in range(lanes)]
    wave.words[state.SCC] = rng.getrandbits(1)
    wave.words[state.MODE] = mode
    return wave


def finite_wave(rng: random.Random, mode: int) -> WaveState:
    """Return a wave64 whose registers hold finite numbers of middling size, whichever type of elements they have."""
    wave = random_wave(rng, 64, mode, VGPRS)
    draw = np.random.default_rng(rng.getrandbits(32))
    halves = (
        draw.integers(5 << 10, 22 << 10, (*wave.vgprs.shape, 2)) | draw.integers(0, 2, (*wave.vgprs.shape, 2)) << 15
    )
    halves *= draw.random(halves.shape) < 0.9
    octets = halves.astype(np.uint16).view(np.uint8)
    # NaN of CDNA3's floats of eight bits; NaNs and infinities of CDNA4's
    octets[octets == 0x80] = 0x81
    octets[octets & 0x7C == 0x7C] ^= 0x40
    wave.vgprs[:] = octets.view(np.uint32)[..., 0]
    return wave


def zero_wave(rng: random.Random, mode: int) -> WaveState:
    """Return a wave64 whose registers hold zeroes: pairs of halves with the sign of their lane, or -0.0 of f32."""
    wave = random_wave(rng, 64, mode, VGPRS)
    halves = np.array([0x8000_8000 * (lane % 4 > 1) for lane in range(64)])
    for row in wave.vgprs:
        row[:] = halves if rng.random() < 0.7 else 0x8000_0000
    return wave


def copied(wave: WaveState) -> WaveState:
    """Return a wave with the same words."""
    twin = WaveState(wave.wave_size, VGPRS, wave.acc_count)
    twin.words[:] = wave.words
    return twin


# comparing ------------------------------------------------------------------------------------------------------------

SHAPES = {"f16": (16, 10), "f32": (32, 23), "f64": (64, 52), "bf16": (16, 7)}


def _ordered(raw: np.ndarray, width: int) -> np.ndarray:
    """Return the bits of floats as integers in the order of the numbers."""
    sign = raw >> (width - 1) & 1
    size = raw & ((1 << (width - 1)) - 1)
    return np.where(sign == 1, -size, size)


def equal(ins: Instruction, operand_type: str, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Compare result dwords of shape (dwords, lanes). NaNs count as equal, and approximate opcodes may differ
    by 1 ulp.
    """
    same = (mine == theirs).all(axis=0)
    shape = SHAPES.get(operand_type)
    if same.all() or shape is None:
        return same
    width, mantissa = shape
    slack = 1 if ins.mnemonic.startswith(APPROXIMATE) else 0
    values = []
    for words in (mine, theirs):
        wide = words.astype(np.int64)
        if width == 64:
            values.append([(wide[1] << 32 | wide[0])])
        elif width == 32:
            values.append(list(wide))
        else:
            values.append([half for word in wide for half in (word & 0xFFFF, word >> 16)])
    good = np.ones(mine.shape[1], bool)
    infinity = (1 << (width - 1)) - (1 << mantissa)
    for one, other in zip(*values, strict=True):
        nan = [(raw & ((1 << (width - 1)) - 1)) > infinity for raw in (one, other)]
        near = np.abs(_ordered(one, width) - _ordered(other, width)) <= slack
        good &= (nan[0] & nan[1]) | (~nan[0] & ~nan[1] & near & ((one == other) | bool(slack)))
    return good


def differences(ins: Instruction, before: WaveState, mine: WaveState, theirs: WaveState) -> list[str]:
    """Return the differences between two waves after an instruction."""
    found = []
    mine_v, theirs_v = mine.vgprs.copy(), theirs.vgprs.copy()
    for one in ins.operands:
        if one.direction == "use" or one.kind != "vgpr":
            continue
        words = slice(one.index, one.index + max(1, one.size_bits // 32))
        good = equal(ins, one.type, mine_v[words], theirs_v[words])
        mine_v[words, good] = theirs_v[words, good]
    for register, lane in np.argwhere(mine_v != theirs_v)[:3]:
        sources = {
            f"v{one.index + i}": f"{before.vgprs[one.index + i, lane]:#x}"
            for one in ins.operands if one.kind == "vgpr" for i in range(max(1, min(2, one.size_bits // 32)))
        }  # fmt: skip
        found.append(
            f"v{register} lane {lane}: {mine_v[register, lane]:#x}, interpreter {theirs_v[register, lane]:#x}; {sources}"
        )
    words = [*range(state.SCALAR_FILE_WORDS), state.SCC]
    # Scalar results that are floats: NaNs count as equal, too.
    alike = {
        one.index
        for one in ins.defs
        if one.kind == "sgpr" and one.type in ("f16", "f32")
        and equal(ins, one.type, *(wave.words[one.index].reshape(1, 1) for wave in (mine, theirs))).all()
    }  # fmt: skip
    for word in (one for one in words if mine.words[one] != theirs.words[one] and one not in alike):
        found.append(f"s{word}: {mine.words[word]:#x}, interpreter {theirs.words[word]:#x}")
    return found


def family(name: str) -> str:
    """Sort an opcode into one of the tests below."""
    starts = (
        ("s_", "scalar"), ("v_cmp", "compare"), ("v_wmma", "matrix"), ("v_swmmac", "matrix"), ("v_mfma", "matrix"),
        ("v_smfmac", "matrix"), ("v_dual", "dual"),
    )  # fmt: skip
    for start, kind in starts:
        if name.startswith(start):
            return kind
    return "float" if any(one in name for one in ("f16", "f32", "f64")) else "integer"


def disagreements(code, mine, theirs, states) -> list[str]:
    """Run instructions both ways; return the differences. An instruction without a rule (None) is not compared."""
    wrong, compared = [], set()
    for ins, rule, reference in zip(code, mine, theirs, strict=True):
        for before in states if rule else ():
            new, expected = copied(before), copied(before)
            rule(new)
            # The rule leaves it to the interpreter.
            if new.words[SPARE_WORD]:
                continue
            reference(expected)
            compared.add(id(ins))
            wrong += [f"{text(ins)} ({ins.raw.hex()}): {one}" for one in differences(ins, before, new, expected)]
    assert compared >= {id(ins) for ins, rule in zip(code, mine, strict=True) if rule}
    return wrong


CASES = [
    (kind, lanes, "as HSA starts kernels")
    for kind in ("scalar", "integer", "float", "compare", "matrix")
    for lanes in (32, 64)
]
CASES += [("float", 32, mode) for mode in (*list(MODES)[1:], *ROUNDINGS)] + [("compare", 64, "f32 denormals flushed")]


@pytest.mark.parametrize(("kind", "lanes", "mode"), CASES)
@pytest.mark.sweep(8)
def test_rules_give_what_the_interpreter_gives(kind, lanes, mode, translated, interpreted):
    rng, bits = random.Random(f"{kind} {lanes} {mode}"), (MODES | ROUNDINGS)[mode]
    code = instructions(rng, names_of(RDNA3, kind), lanes, each=1)
    mine, theirs = translated(code, lanes, VGPRS, bits), interpreted(code, lanes, VGPRS)
    wrong = disagreements(code, mine, theirs, [random_wave(rng, lanes, bits) for _ in range(2)])
    assert not wrong, "\n".join(wrong[:12])


# MODE 23 saturates conversions to eight bits; MODE 9 is IEEE on RDNA3.5.
LATER_CASES = [
    (RDNA3_5, "scalar", 32, 0x2F0), (RDNA3_5, "scalar", 64, 0), (RDNA4, "scalar", 32, 0xF0), (RDNA4, "scalar", 32, 0),
    (RDNA4, "float", 32, 0xF0), (RDNA4, "float", 64, 0x80_0000), (RDNA4, "float", 32, 0x50), (RDNA4, "integer", 64, 0xF0),
    (RDNA4, "matrix", 64, 0xF0), *(pytest.param(RDNA4, "matrix", 32, bits, marks=pytest.mark.fuzz) for bits in (0, 0xF0)),
]  # fmt: skip


@pytest.mark.parametrize(("of", "kind", "lanes", "bits"), LATER_CASES)
def test_rules_of_instructions_that_rdna3_lacks(of, kind, lanes, bits, translated, interpreted):
    rng = random.Random(f"{kind} {lanes} {bits}")
    names = names_of(of, kind) - names_of(RDNA3, kind)
    # A product takes much longer to translate than any other instruction.
    each = {"scalar": 3, "matrix": 1}.get(kind, 2)
    code = instructions(rng, names, lanes, each=each, of=of)
    assert {one.mnemonic for one in code} == names
    mine, theirs = translated(code, lanes, VGPRS, bits), interpreted(code, lanes, VGPRS)
    assert all(mine)
    wrong = disagreements(code, mine, theirs, [random_wave(rng, lanes, bits) for _ in range(min(each, 2))])
    assert not wrong, "\n".join(wrong[:12])


EIGHT_BITS = re.compile("fp8|bf8")
CDNA_CASES = [
    *((CDNA3, *one) for one in (("scalar", 0xF0), ("integer", 0xF0), ("float", 0x3F0), ("compare", 0x1C0), ("matrix", 0xF0))),
    *((CDNA4, *one) for one in (("integer", 0xF0), ("float", 0x3F0), ("float", 0x80_0000), ("matrix", 0xF0))),
]  # fmt: skip


def own_names(of: Generation, kind: str) -> set[str]:
    """All opcodes of CDNA3; of CDNA4 those that CDNA3 does not have, and those of 8-bit floats."""
    names = names_of(of, kind)
    return (
        names if of is CDNA3 else {one for one in names if one not in names_of(CDNA3, kind) or EIGHT_BITS.search(one)}
    )


@pytest.mark.parametrize(
    ("of", "kind", "bits"),
    CDNA_CASES,
    ids=lambda one: one.name.replace(" ", "").lower() if isinstance(one, Generation) else None,
)
@pytest.mark.seeds(1)
def test_rules_of_cdna_give_what_the_interpreter_gives(of, kind, bits, seed, translated, interpreted):
    rng = random.Random(f"{kind} {bits} {seed}")
    names = own_names(of, kind)
    # Products take long to translate. Each seed has a part of CDNA4's.
    if of is CDNA4 and kind == "matrix":
        names = set(sorted(names)[seed % 4 :: 4])
    code = instructions(rng, names, 64, each=1, dpp=2, of=of)
    assert {one.mnemonic for one in code} == names
    mine, theirs = translated(code, 64, VGPRS, bits), interpreted(code, 64, VGPRS)
    states = [random_wave(rng, 64, bits, VGPRS) for _ in range(2)]
    if kind == "matrix":
        states += [finite_wave(rng, bits), zero_wave(rng, bits)]
    wrong = disagreements(code, mine, theirs, states)
    assert not wrong, "\n".join(wrong[:12])


@pytest.mark.fuzz
@pytest.mark.seeds(1)
@pytest.mark.parametrize(
    "of", [RDNA3, RDNA3_5, RDNA4, CDNA3, CDNA4], ids=["rdna3", "rdna3.5", "rdna4", "cdna3", "cdna4"]
)
def test_rules_give_what_the_interpreter_gives_in_any_mode(of, seed, translated, interpreted):
    rng = random.Random(seed)
    kind = rng.choice(("scalar", "integer", "float", "float", "compare", "matrix"))
    lanes = 64 if of.start.is_wide else rng.choice((32, 64))
    bits = rng.choice(list(MODES.values())) | rng.choice((0, rng.randrange(16))) | rng.getrandbits(1) << 23
    code = instructions(rng, names_of(of, kind), lanes, each=1, of=of)
    mine, theirs = translated(code, lanes, VGPRS, bits), interpreted(code, lanes, VGPRS)
    states = [random_wave(rng, lanes, bits, VGPRS * of.is_gcn) for _ in range(2)]
    states += [finite_wave(rng, bits)] if of.is_gcn and kind == "matrix" else []
    wrong = disagreements(code, mine, theirs, states)
    assert not wrong, f"MODE {bits:#x}\n" + "\n".join(wrong[:12])


LITERALS = (
    0, 1, 2, 16, 31, 32, 63, 64, 0x6010, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFE0, 0xFFFF_FFFF, 0x3F80_0000, 0x7F80_0000,
    0x7FC0_0000,
)  # fmt: skip


def literal_instructions(rng: random.Random, names: set[str], lanes: int, literal: int) -> list[Instruction]:
    """Every opcode and format of `names`, with a literal as each source in turn, and with the same literal as all
    sources.
    """
    facts = isa.target("gfx1100")
    found = []
    for row in facts.instructions:
        if row.format not in FORMATS or row.mnemonic not in names:
            continue
        fmt = facts.formats[row.format]
        places = [fmt.fields[one.field] for one in row.operands if one.field in fmt.fields and "literal" in one.kinds]
        size_bytes = fmt.width_bits // 8
        for chosen in [*([place] for place in places), *([places] if len(places) > 1 else [])]:
            # Try again until the random other operands are allowed beside it.
            for _ in range(20):
                word = int.from_bytes(random_instruction(rng, row, fmt, dpp=False)[:size_bytes], "little")
                for high, low in chosen:
                    word = word & ~((1 << high + 1) - (1 << low)) | 255 << low
                try:
                    ins = decode(word.to_bytes(size_bytes, "little") + literal.to_bytes(4, "little"))
                except IllegalInstruction:
                    continue
                if ins.mnemonic == row.mnemonic and is_usable(ins, lanes):
                    found.append(ins)
                    break
    return found


@pytest.mark.parametrize("literal", LITERALS, ids=hex)
@pytest.mark.parametrize("kind", ["scalar", "integer", "float", "compare"])
@pytest.mark.sweep(3)
def test_rules_of_literals_give_what_the_interpreter_gives(kind, literal, translated, interpreted):
    """The translator's quick level leaves out LLVM's combiner. The back end may assume that it has removed such
    constants.
    """
    mode = MODES["as HSA starts kernels"]
    rng = random.Random(f"{kind} {literal}")
    code = literal_instructions(rng, names_of(RDNA3, kind), 32, literal)
    assert len(code) > 100
    waves = [random_wave(rng, 32, mode) for _ in range(2)]
    wrong = disagreements(code, translated(code, 32, VGPRS, mode), interpreted(code, 32, VGPRS), waves)
    assert not wrong, "\n".join(wrong[:12])


@pytest.mark.parametrize("opcode", [0x16, 0x17], ids=["v_alignbit_b32", "v_alignbyte_b32"])
@pytest.mark.parametrize("distance", [0, 0x6010, 0x20, 3, 31])
def test_funnel_shifts_by_a_literal(opcode, distance, translated, interpreted):
    """v9 from v37 and 1.0. Quick code gave all ones where the distance counts as 0."""
    ins = decode(bytes((0x09, 0, opcode, 0xD6, 0x25, 0xE5, 0xFD, 0x03)) + distance.to_bytes(4, "little"))
    assert ins.mnemonic == {0x16: "v_alignbit_b32", 0x17: "v_alignbyte_b32"}[opcode]
    mode = MODES["as HSA starts kernels"]
    waves = [random_wave(random.Random(seed), 32, mode) for seed in range(2)]
    assert disagreements([ins], translated([ins], 32, VGPRS, mode), interpreted([ins], 32, VGPRS), waves) == []


# Zeros, denormals and numbers near them.
SMALL = {
    "f16": (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x8400, 0x3C00, 0xBC00, 0x1234),
    "bf16": (0, 0x8000, 1, 0x8001, 0x1F80, 0x9F80, 0x2000, 0x1FC1, 0x3F80, 0xBF80),
    "f32": (0, 0x8000_0000, 1, 0x8000_0001, 0x7F_FFFF, 0x80_0000, 0x8080_0000, 0x100_0000, 0x2780_0000, 0xA780_0001, 0x3F80_0000),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_matrices_of_small_numbers_are_flushed_alike(element, lanes, mode, assemble, translated, interpreted):
    """Few factors are not 0, and the addend is small, because an infinity or a NaN would hide the rest of a sum."""
    rng, last = np.random.default_rng(lanes), 256 // lanes - 1
    ins = decode(
        assemble(f"v_wmma_f32_16x16x16_{element} v[24:{24 + last}], v[0:7], v[8:15], v[16:{16 + last}]", lanes)
    )
    mine, theirs = translated([ins], lanes, VGPRS, MODES[mode]), interpreted([ins], lanes, VGPRS)
    waves = []
    for share in (0.05, 0.2, 0.9):
        wave = random_wave(random.Random(share), lanes, MODES[mode])
        factors = rng.choice(SMALL[element], (16, 16, 2)).astype(np.uint16) * (rng.random((16, 16, 2)) < share)
        wave.vgprs[:16] = np.tile(factors.astype(np.uint16).view(np.uint32)[..., 0], lanes // 16)
        wave.vgprs[16:24] = rng.choice(SMALL["f32"], (8, lanes))
        waves.append(wave)
    wrong = disagreements([ins], mine, theirs, waves)
    assert not wrong, "\n".join(wrong[:12])


def dual_instructions(rng: random.Random, count: int) -> list[Instruction]:
    """Random VOPD words that decode. Their encoding makes one destination even and one odd."""
    fmt = isa.target("gfx1100").formats["VOPD"]
    found: list[Instruction] = []
    while len(found) < count:
        word = fmt.value | rng.getrandbits(fmt.width_bits) & ~fmt.mask
        for name in ("srcx0", "srcy0"):
            high, low = fmt.fields[name]
            code = random_source(rng, ("vgpr", "sgpr", "imm", "vcc", "literal"), 9, literal=True)
            word = word & ~((1 << high + 1) - (1 << low)) | code << low
        for name in ("vsrcx1", "vsrcy1", "vdstx", "vdsty"):
            high, low = fmt.fields[name]
            word = word & ~((1 << high + 1) - (1 << low)) | rng.randrange(24) << low
        try:
            ins = decode(word.to_bytes(8, "little") + rng.choice(F32).to_bytes(4, "little"))
        except IllegalInstruction:
            continue
        if ins.format == "VOPD" and is_usable(ins, 32):
            found.append(ins)
    return found


@pytest.mark.parametrize("mode", list(MODES)[:2])
def test_both_parts_of_a_dual_instruction_read_before_either_writes(mode, translated, interpreted):
    rng = random.Random(7)
    code = dual_instructions(rng, 100)
    # X has 14 opcodes, Y 3 more: "VOPD".
    assert len({part.mnemonic for ins in code for part in ins.parts}) == 17
    mine, theirs = translated(code, 32, VGPRS, MODES[mode]), interpreted(code, 32, VGPRS)
    wrong = disagreements(code, mine, theirs, [random_wave(rng, 32, MODES[mode]) for _ in range(2)])
    assert not wrong, "\n".join(wrong[:12])
