"""We refuse what LLVM refuses: texts that LLVM's tests of refusals list, and randomly changed texts."""

import gzip
import random
import re
from pathlib import Path

import pytest

from ringup.compiler.isa.amd import processor
from ringup.compiler.isa.amd.assembly.assembler import Assembler
from ringup.errors import CompileError

HERE = Path(__file__).parent
# The number of texts that LLVM 22 refuses, and those that we accept, with the reason.
REFUSED = {
    "gfx1100": (13252, {}),
    "gfx1201": (
        15547,
        {
            "image_load v0, v0, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D th:0x7": "LLVM prints such a th and does not read it back"
        },
    ),
}
# The number of texts in the same tests that LLVM accepts.
ALIASES = {"gfx1100": 24145, "gfx1201": 27728}
# The test takes one in so many of them: older names, and values at their limits.
EVERY = 7
# LLVM accepts these; we refuse them or encode them differently.
STRICTER = (
    r".*_f64.* -?\d+\.\d+|.*\d\.\d+e", # a double that needs all 64 bits: LLVM cuts it with a warning
    r"s_getreg_b32 s2, \{", r".*lit\(", r"v_pk_fmac_f16 v5, 0x38003800", r"v_cvt_f16_f32 v255\.h v1",
    r"buffer_atomic_add .*(scc|src_shared_base)", r".*(src_)?(shared|private)_(base|limit)",
)  # fmt: skip


def read(name):
    lines = gzip.decompress((HERE / name).read_bytes()).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def answer(assembler, text):
    try:
        return assembler.instruction_bytes(text)
    except CompileError:
        return None


@pytest.mark.parametrize("target", REFUSED)
def test_texts_of_llvms_tests_of_refusals_are_refused(target, llvm):
    texts = read(f"refused_{target}.txt.gz")
    assembler = Assembler(processor(target))
    count, known = REFUSED[target]
    assert len(texts) == count
    assert [text for text in texts if answer(assembler, text) is not None] == list(known)
    # LLVM 22 made the list; this sample checks that it still refuses them.
    sample = texts[::50]
    assert [code for code in llvm(target).assemble(sample) if isinstance(code, bytes)] == []


@pytest.mark.parametrize("target", ALIASES)
def test_texts_that_llvm_takes_there_are_taken(target, llvm):
    texts = read(f"aliases_{target}.txt.gz")
    assert len(texts) == ALIASES[target]
    texts = texts[::EVERY]
    assembler = Assembler(processor(target))
    answers = [llvm(target, 32, halves).assemble(texts) for halves in (True, False)]
    wrong = []
    for text, *right in zip(texts, *answers, strict=True):
        if answer(assembler, text) not in [code for code in right if isinstance(code, bytes)]:
            wrong.append(text)
    assert [text for text in wrong if not any(re.match(pattern, text) for pattern in STRICTER)] == []
    assert len(wrong) < 10


OPERANDS = (
    "v0", "v255", "v[0:1]", "v[2:3]", "v[0:2]", "v[4:7]", "v1.l", "v1.h", "v200.h", "s0", "s[0:1]", "s[2:3]", "s[0:3]", "s[4:7]", "s[0:7]",
    "s105", "s[104:105]",
    "ttmp0", "ttmp[0:1]", "vcc", "vcc_lo", "exec", "exec_lo", "exec_hi", "m0", "null", "src_scc", "0", "1", "64", "65", "-16",
    "-17", "0.5", "-4.0", "0x1234", "0x12345678", "0x123456789", "-v1", "|v1|", "-s1", "|s1|", "s[1:2]", "v[255:256]", "s106", "v256", "a0",
    "flat_scratch", "ttmp[1:2]",
)  # fmt: skip
MODIFIERS = (
    "clamp", "mul:2", "mul:3", "div:2", "offset:4", "offset:65535", "offset:65536", "offset:-1", "glc", "slc", "gds", "tfe", "lds", "idxen",
    "offen", "op_sel:[1,0]", "op_sel:[1,1,1,1]", "op_sel_hi:[0,0]", "neg_lo:[1,0]", "quad_perm:[0,1,2,4]", "row_shl:16", "row_mask:0x10",
    "dpp8:[0,1,2,3,4,5,6,8]", "row_bcast:15", "unorm", "sc0", "nt", "done", "wait_exp:8", "byte_sel:4", "row_xmask:16", "offset0:256", "bar",
    "bar:1",
)  # fmt: skip


CHANGED = 4000  # texts


def changed(text, pick):
    """Return a text with an operand replaced, dropped or added, or with a modifier added."""
    mnemonic, _, rest = text.partition(" ")
    parts = re.split(r", (?![^\[\(]*[\]\)])", rest)
    choice = pick.randrange(4) if "::" not in text else 0
    at = pick.randrange(len(parts))
    if choice < 2:
        parts[at] = " ".join([pick.choice(OPERANDS), *parts[at].split(" ")[1:]])
    elif choice == 2:
        return f"{text} {pick.choice(MODIFIERS)}"
    elif pick.random() < 0.5:
        parts.pop(at)
    else:
        parts.insert(at, pick.choice(OPERANDS))
    return f"{mnemonic} {', '.join(parts)}"


# Texts that LLVM refuses and we accept: their pattern, and the reason. LLVM accepts our own text of the bytes and gives
# the same bytes.
LOOSER = (
    (
        r"v_\w*16\w* (?!.*\.[lh]\b).*op_sel:\[.*",
        "halves of whole registers, of which only some may be chosen by op_sel there",
    ),
    (r"(lds|ds)_(param|direct)_load v\d+, \d+.*", "an attribute by its number"),
    (
        r"v_cmp_\w+ [^,]*, [^,]* row(_half)?_mirror .*",
        "a permutation without a number behind a compare that leaves VCC out",
    ),
)
# LLVM accepts these, and we refuse them.
STRICTER_CHANGED = (
    (r"\S+ src_scc, .*|s_movk_i32 src_scc.*", "SCC as a result"),
    (r"s_get_barrier_state .*|s_barrier_\w+ .*", "a constant as a result, SCC or null as a barrier's number"),
    (r"s_\w+ .*-?\d\.\d", "a float where a number stands, encoded as 0"),
    (r"v_cndmask_b32_e32 [^,]*, [^,]*, [^,]*", "VCC left out of a choice"),
    (r"v_fma_mix\w*_dpp .* (0x[0-9a-f]+|-17|65) .*(dpp8|quad_perm|row_\w+):.*", "a literal and DPP at once, which it does not decode"),
    (r"v_(add|sub|subrev)_co_(ci_)?u32\w* .*src_scc.*|v_mad_(co_)?[iu]64_[iu]32 [^,]*, src_scc,.*", "SCC as a lane mask"),
    (r"v_cndmask_b16_\w+ .*src_scc.*|v_wmma\w* .*src_scc.*", "SCC as a lane mask or a matrix"),
    (r"v_(div_scale_f\d+|interp_p\w+) .*\|.*", "an absolute value that is not encoded"),
    (r"s_movrels_b\d+ .*src_scc", "SCC as a register to count from"),
    (r"s_endpgm 0, ", "a comma that nothing follows"),
    (r"s_sendmsg_rtn_b\d+ s\S+, 0x[0-9a-f]{3,}", "a message that does not fit its 8 bits: LLVM cuts it"),
    (r"s_(buffer_)?prefetch_\w+ .*", "a prefetch without its offset"),
    (r"global_load_addtid_b32 v\d+, null .*|s_load_\w+ .*src_scc.*", "null or SCC as an address"),
    (r"(buffer|tbuffer|scratch|s_buffer_load|s_atc)_?\w* .*src_scc.*", "SCC as an address"),
    (r"v_\w+ .*op_sel:\[1,1,1,1\].*", "a half of operands that are not there"),
    (r"(flat|global|buffer|scratch)_atomic_\w+ .*th:TH_ATOMIC_\w*RETURN.*", "the return of an atomic that names no register for it"),
    (r"s_\w+ .*(0x[0-9a-f]{8,}|-1[67]|6[45]).*|t?buffer_\w+ .*offset:(65535|65536|-1).*", "a number that does not fit: LLVM cuts it"),
    (r"v_s_\w+ .*v\d.*", "a vector register as the source of a scalar function"),
    (r"v_illegal .*", "LLVM's own name for the word zero"),
)  # fmt: skip


MODIFIER = re.compile(
    r" (?=[a-z_0-9]+:|(?:clamp|[gsd]lc|tfe|lwe|d16|a16|r128|unorm|idxen|offen|gds|lds|done|row_(?:half_)?mirror)\b)"
)


def ordered(text):
    """Return a text's operands and its sorted modifiers with decimal numbers, so that order and spelling do not
    matter.
    """
    operands, *modifiers = MODIFIER.split(text.replace(".l", ""))
    plain = [
        re.sub(r"(,0)+\]$", "]", re.sub(r"0x[0-9a-f]+", lambda number: str(int(number[0], 16)), one))
        for one in modifiers
    ]
    # The operands say this as well.
    said_twice = "op_sel:" if ".h" in operands else "-"
    return operands.partition(" ")[2], sorted(
        one for one in plain if not one.startswith(said_twice) and one != "op_sel_hi:[0]"
    )


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_texts_changed_at_random_are_refused_where_llvm_refuses_them(target, llvm, mc_pairs):
    pick = random.Random(f"changed {target}")
    families = {}
    for _, text in mc_pairs(target):
        if "/*" not in text:
            families.setdefault(text.split()[0], []).append(text)
    names = sorted(families)
    texts = sorted({changed(pick.choice(families[pick.choice(names)]), pick) for _ in range(CHANGED)})
    machine = processor(target)
    assembler = Assembler(machine)
    looser, stricter, other, refused = [], [], [], 0
    for text, *codes in zip(
        texts, *[llvm(target, 32, halves).assemble(texts) for halves in (True, False)], strict=True
    ):
        right, found = [code for code in codes if isinstance(code, bytes)], answer(assembler, text)
        refused += not right
        if found is None and right:
            stricter.append(text)
        elif found is not None and found not in right:
            (other if right else looser).append((text, found))
    assert refused > CHANGED // 2
    # LLVM encodes 0 for the float of s_setreg_imm32_b32.
    assert [row for row in other if not re.fullmatch(r"s_setreg_imm32_b32 .*, -?\d\.\d", row[0])] == []
    assert [text for text in stricter if not any(re.fullmatch(kind, text) for kind, _ in STRICTER_CHANGED)] == []
    printed = [machine.text(machine.decode(found)) for _, found in looser]
    again = llvm(target).assemble(printed)
    assert [(row, shown, code) for row, shown, code in zip(looser, printed, again, strict=True) if code != row[1]] == []
    assert [
        (text, shown)
        for (text, _), shown in zip(looser, printed, strict=True)
        if ordered(text) != ordered(shown) and not any(re.fullmatch(kind, text) for kind, _ in LOOSER)
    ] == []
