"""The committed facts compared with a fresh enumeration by LLVM 22, and the bit ranges of extension dwords compared
with LLVM's text.
"""

from importlib import resources

import pytest

from ringup.autogen import isa
from ringup.autogen.generate.isa.bases import default
from ringup.autogen.generate.isa.classify import size_bits
from ringup.autogen.generate.isa.formats import formats
from ringup.autogen.generate.isa.instructions import BASE_TARGETS, FEATURES, render, survey, unsettled
from ringup.autogen.generate.isa.probe import Disassembler, llvm_mc

FAMILIES = {base: [base, *(one for one, its in BASE_TARGETS.items() if its == base)] for base in isa.TARGETS}


def test_every_target_is_of_one_family():
    assert sorted(one for base in FAMILIES if base not in BASE_TARGETS for one in FAMILIES[base]) == sorted(isa.TARGETS)


# This takes tens of seconds a family. The test below asks about every word of the opcode space in each run.
@pytest.mark.fuzz
@pytest.mark.parametrize("base", [base for base in FAMILIES if base not in BASE_TARGETS])
def test_enumerating_every_opcode_again_gives_the_committed_bytes(base, disassembler):
    """One process asks about a target, and about the targets that are stored as differences from it."""
    surveys = {target: survey(disassembler(target), target) for target in FAMILIES[base]}
    for target, found in surveys.items():
        fresh = render(found, surveys.get(BASE_TARGETS.get(target)), unsettled(found))
        assert fresh == (resources.files(isa) / f"{target}.tsv").read_text(encoding="utf-8"), target


@pytest.mark.parametrize("target", isa.TARGETS)
def test_every_word_of_the_opcode_space_is_known_to_both_or_to_neither(target, disassembler):
    """In these words all fields but the opcode are zero. Where LLVM decodes a word, we have the same name. Where we
    call a word illegal, LLVM does not decode it.
    """
    facts, words, names = isa.target(target), [], []
    for fmt in formats(target).values():
        if fmt.extension or "op" not in fmt.fields:
            continue
        hi, lo = fmt.fields["op"]
        for op in range(1 << hi - lo + 1):
            words.append(fmt.put({"op": op}).to_bytes(fmt.width_bits // 8, "little"))
            names.append((fmt.name, op))
    wrong = []
    for name, word, answer in zip(names, words, disassembler(target).decode(words), strict=True):
        if answer is None or "/*" in answer.text or answer.mnemonic == "v_illegal":
            continue
        found = facts.identify(word)
        if not found or not answer.mnemonic.startswith(found[0].mnemonic):
            wrong.append((name, answer.text))
    assert wrong == []


# The keys are extension, base format and opcode (v_add_f32 or image_sample), and the code in src0. A value maps a field
# to what its bits change in the text.
DPP = {
    "src0": "operand", "dpp_ctrl": "control", "bc": "bound_ctrl", "src0_neg": "neg", "src0_abs": "abs", "src1_neg": "neg", "src1_abs": "abs",
    "bank_mask": "bank_mask", "row_mask": "row_mask",
}  # fmt: skip
EXTENSIONS = [
    ("gfx1100", "DPP16", 0x03, 250, 0xFF00E410, DPP | {"fi": "fi"}),
    ("gfx1201", "DPP16", 0x03, 250, 0xFF00E410, DPP | {"fi": "fi"}),
    ("gfx942", "DPP", 0x01, 250, 0xFF00E410, DPP),
    ("gfx1100", "DPP8", 0x03, 233, 0x05397710, {"src0": "operand"} | {f"lane_sel{i}": "dpp8" for i in range(8)}),
    ("gfx1201", "DPP8", 0x03, 233, 0x05397710, {"src0": "operand"} | {f"lane_sel{i}": "dpp8" for i in range(8)}),
    ("gfx942", "SDWA", 0x01, 249, 0x06060610, {
        "src0": "operand", "dst_sel": "dst_sel", "dst_u": "dst_unused", "clmp": "clamp", "omod": "omod", "src0_sel": "src0_sel",
        "src0_neg": "neg", "src0_abs": "abs", "s0": "operand", "src1_sel": "src1_sel", "src1_neg": "neg", "src1_abs": "abs", "s1": "operand",
    }),
]  # fmt: skip
CONTROLS = {"quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_share", "row_xmask", "row_newbcast", "wave_shl",
            "wave_rol", "wave_shr", "wave_ror", "row_bcast"}  # fmt: skip


def changes(before, after):
    """Name what differs between two texts."""
    found = set()
    old, new = dict(before.modifiers), dict(after.modifiers)
    for name in old.keys() | new.keys():
        if old.get(name) != new.get(name):
            found.add("control" if name in CONTROLS else "omod" if name in ("mul", "div") else name)
    for a, b in zip(before.operands, after.operands, strict=True):
        found |= {"operand"} if a.core != b.core else set()
        found |= a.marks ^ b.marks
    return found


@pytest.mark.parametrize(("target", "extension", "op", "code", "dword", "fields"), EXTENSIONS)
def test_each_bit_of_an_extension_dword_changes_what_its_field_says(
    target, extension, op, code, dword, fields, disassembler
):
    table = formats(target)
    word = table["VOP2"].put(default(table["VOP2"], target) | {"op": op, "src0": code})

    def probe(value):
        return (word | value << 32).to_bytes(8, "little")

    places = {name: (hi, lo) for name, (hi, lo) in table[extension].fields.items() if name in fields}
    bits = [(name, bit) for name, (hi, lo) in places.items() for bit in range(lo, hi + 1)]
    before, *after = disassembler(target).decode([probe(dword), *(probe(dword ^ 1 << bit) for _, bit in bits)])
    seen = {}
    for (name, _), answer in zip(bits, after, strict=True):
        if answer is not None and "/*" not in answer.text:
            seen.setdefault(name, set()).update(changes(before, answer))
    assert seen == {name: {effect} for name, effect in fields.items()}


def test_scattered_image_addresses_lie_in_the_nsa_dword_in_order(disassembler):
    table = formats("gfx1100")
    # image_sample_d, 2D: six address registers
    base = default(table["MIMG"], "gfx1100") | {"op": 0x1C, "nsa": 1}
    nsa = table["NSA"].put({"addr1": 20, "addr2": 30, "addr3": 40, "addr4": 50})
    (found,) = disassembler("gfx1100").decode([(table["MIMG"].put(base) | nsa << 64).to_bytes(12, "little")])
    assert [operand.core for operand in found.operands[1:6]] == ["v16", "v20", "v30", "v40", "v[50:51]"]


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_lane_masks_are_the_operands_that_widen_in_wave64(target, disassembler, headers):
    wide = Disassembler(llvm_mc(headers("llvm-22")), target, f"{FEATURES[target]},+wavefrontsize64".strip(","))
    facts, table = isa.target(target), formats(target)
    rows = [
        row
        for row in facts.instructions
        if row.format in ("VOP2", "VOPC", "VOP3", "VOP3SD") and "tail" not in row.flags
    ]
    words = []
    for row in rows:
        fmt = table[row.format]
        values = default(fmt, target) | {"op": row.op}
        values |= {o.field: 40 for o in row.operands if o.type == "mask" and o.field == "src2"}
        words.append(fmt.put(values).to_bytes(fmt.width_bits // 8, "little"))
    differing = []
    for row, narrow, broad in zip(rows, disassembler(target).decode(words), wide.decode(words), strict=True):
        if narrow is None or broad is None or "/*" in narrow.text + broad.text:
            continue
        shown = [o for o in row.operands if o.field != "hidden"]
        for fact, a, b in zip(shown, narrow.operands, broad.operands, strict=True):
            if (size_bits(a) != size_bits(b)) != (fact.type == "mask"):
                differing.append((row.mnemonic, narrow.text, broad.text))
    assert differing == []
