"""Modifiers of instructions: converts values as callers and texts give them to bits, and back.

Source: LLVM AMDGPUOperandSyntax, "Modifiers"; ISA documents, "DPP", "SDWA", "Cache Controls".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringup.compiler.isa.amd.encoding import names, swizzle
from ringup.compiler.isa.amd.encoding.form_modifiers import FLAGS, Modifier
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.errors import CompileError

OMOD = {("mul", 2): 1, ("mul", 4): 2, ("div", 2): 3}
_OMOD_NAMES = {code: name for name, code in OMOD.items()}
# Name: (first code, first number, count of numbers, generations). quad_perm is separate.
DPP_CONTROLS: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "row_shl": (0x101, 1, 15, (9, 11, 12)), "row_shr": (0x111, 1, 15, (9, 11, 12)), "row_ror": (0x121, 1, 15, (9, 11, 12)),
    "wave_shl": (0x130, 1, 1, (9,)), "wave_rol": (0x134, 1, 1, (9,)), "wave_shr": (0x138, 1, 1, (9,)), "wave_ror": (0x13C, 1, 1, (9,)),
    "row_mirror": (0x140, 0, 0, (9, 11, 12)), "row_half_mirror": (0x141, 0, 0, (9, 11, 12)),
    "row_newbcast": (0x150, 0, 16, (9,)), "row_share": (0x150, 0, 16, (11, 12)), "row_xmask": (0x160, 0, 16, (11, 12)),
}  # fmt: skip
ROW_BROADCASTS = {15: 0x142, 31: 0x143}  # gfx9
# gfx9: DPP for 64 bits. Source: CDNA3 ISA, "DPP", DPP_ROW_NEWBCAST.
NEWBCAST = "dpp-newbcast"
DPP_NAMES = frozenset((*DPP_CONTROLS, "quad_perm", "row_bcast"))
DPP16_NAMES = DPP_NAMES | {"row_mask", "bank_mask", "bound_ctrl"}
SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
# A zero is allowed for an instruction that does not have such a modifier.
_MAY_BE_ZERO = FLAGS | {"offset", "mul", "div", "th", "scope"}
SDWA_NAMES = frozenset(("dst_sel", "dst_unused", "src0_sel", "src1_sel"))
# Modifier: the names by which callers give it.
_PARTS = {"omod": ("mul", "div"), "dpp_ctrl": tuple(sorted(DPP_NAMES))}


def th_kind(form: Form) -> str:
    """Return the kind of a memory instruction for its temporal hint: load, store or atomic."""
    name = form.name
    if "atomic" in name:
        return "atomic"
    return "store" if "store" in name else "load"


def accepted(form: Form) -> list[str]:
    """Return the names of modifiers that a form accepts, as callers give them."""
    return [part for name in form.modifiers for part in _PARTS.get(name, (name,))]


def encode_modifiers(form: Form, given: Mapping[str, Any], generation: int) -> tuple[int, list[tuple[str, Modifier]]]:
    """Return the bits of all modifiers except plain offsets, and these offsets, which are inserted at each use."""
    word = 0
    left = dict(given)
    offsets: list[tuple[str, Modifier]] = []
    for name, modifier in form.modifiers.items():
        values = {part: left.pop(part) for part in _PARTS.get(name, (name,)) if part in left}
        if name in ("offset", "offset0", "offset1") and name in values and isinstance(values[name], int):
            offsets.append((name, modifier))
        else:
            word |= _bits(form, modifier, values, given, generation)
    for name, value in left.items():
        if value is None or value is False or (value == 0 and name in _MAY_BE_ZERO):
            continue
        takes = ", ".join(accepted(form))
        raise CompileError(f"{form.name} has no modifier {name}; it takes {takes or 'none'}")
    return word, offsets


def _bits(form: Form, modifier: Modifier, values: Mapping[str, Any], given: Mapping[str, Any], generation: int) -> int:
    kind, name, shift = modifier.kind, modifier.name, modifier.shift
    if kind == "dpp_ctrl":
        if not values and not {"row_mask", "bank_mask", "bound_ctrl"} & given.keys():
            raise CompileError(f"{form.name}: DPP needs a lane permutation such as quad_perm:[0,1,2,3]")
        if NEWBCAST in form.row.flags and "row_newbcast" not in values:
            raise CompileError(f"{form.name}: DPP of 64-bit operands has only row_newbcast:0 to row_newbcast:15")
        return dpp_code(values, generation) << shift
    if kind == "omod":
        return _omod(values) << shift
    value = values.get(name)
    if kind == "dpp8":
        return _dpp8(value) << shift
    if kind == "dpp8_fi":
        if value not in (None, 0, 1):
            raise CompileError(f"fi:{value}: 0 or 1")
        return (234 if value else 233) << shift
    if kind == "vector":
        return _vector(modifier, value)
    if kind == "bitop3":
        if not isinstance(value or 0, int) or not 0 <= (value or 0) < 256:
            raise CompileError(f"bitop3:{value}: a truth table of 8 bits")
        return sum(1 << bit for i, bit in enumerate(modifier.bits) if (value or 0) >> i & 1)
    if value is None or value is False:
        if kind == "flag" and any(name == need for need, _ in form.needs):
            raise CompileError(f"{form.name} needs the modifier {name}")
        return _default(modifier) << shift
    if kind == "flag":
        if value not in (True, 1, 0):
            raise CompileError(f"{name}: {value}: it is on or off")
        return int(value) << shift
    number = _named(form, modifier, value, given, generation)
    low, high = (
        (-(1 << modifier.width - 1), (1 << modifier.width - 1) - 1)
        if modifier.signed
        else (0, (1 << modifier.width) - 1)
    )
    if not isinstance(number, int) or not low <= number <= high:
        raise CompileError(f"{name}:{value} of {form.name}: {low} to {high}")
    if name == "bound_ctrl" and generation < 11:
        # QUIRK: up to gfx10, texts write bound_ctrl:0 for a set bit.
        number = 1
    if kind == "swapped":
        number = number >> 1 | (number & 1) << 1
    return (number & (1 << modifier.width) - 1) << shift


def _default(modifier: Modifier) -> int:
    if modifier.kind in ("sdwa_dst_sel", "sdwa_src0_sel", "sdwa_src1_sel"):
        return 6
    if modifier.kind == "sdwa_dst_u":
        return 2
    if modifier.name == "wait_exp":
        return 7
    return max(modifier.default, 0)


def _named(form: Form, modifier: Modifier, value: Any, given: Mapping[str, Any], generation: int) -> int:
    """Return the number that a value stands for, if the modifier has names."""
    kind = modifier.kind
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found: int | None = None
    if kind == "dim":
        plain = str(value).removeprefix(names.DIMENSION_PREFIX).upper()
        found = names.DIMENSIONS.index(plain) if plain in names.DIMENSIONS else None
    elif kind == "th":
        found = names.th_code(th_kind(form), str(value))
        if value in names.BYPASS.values() and given.get("scope") not in (names.SYSTEM_SCOPE, "SCOPE_SYS"):
            raise CompileError(f"th:{value} needs scope:SCOPE_SYS")
        if (
            found == 3
            and given.get("scope") in (names.SYSTEM_SCOPE, "SCOPE_SYS")
            and value not in names.BYPASS.values()
        ):
            raise CompileError(f"th:{value} cannot have scope:SCOPE_SYS")
    elif kind == "scope":
        found = names.SCOPES.index(value) if value in names.SCOPES else None
    elif kind == "format":
        found = _unified_format(value)
    elif kind == "split_format":
        found = _split_format(value)
    elif kind.startswith("sdwa_"):
        table = UNUSED if kind == "sdwa_dst_u" else SELECTS
        found = table.index(value) if value in table else None
    elif modifier.name == "offset" and form.name == "ds_swizzle_b32" and isinstance(value, tuple):
        return swizzle.read_swizzle(str(value[0]), value[1:])
    if found is None:
        raise CompileError(f"{modifier.name}:{value} is not known of {form.name}")
    return found


def _unified_format(value: Any) -> int | None:
    """Return the code of a buffer format from its name, or from the names of its data and number formats, as in older
    texts.
    """
    name = str(value)
    if isinstance(value, tuple):
        parts = {str(part).split("_FORMAT_")[0]: str(part).partition("_FORMAT_")[2] for part in value}
        name = f"BUF_FMT_{parts.get('BUF_DATA', '')}_{parts.get('BUF_NUM', '')}"
    return names.BUFFER_FORMATS.index(name) if name in names.BUFFER_FORMATS else None


def _split_format(value: Any) -> int:
    """Return dfmt and nfmt of gfx9 in the order of their fields. `value` holds the names in either order."""
    data, number = 1, 0
    for part in value if isinstance(value, tuple) else (value,):
        text = str(part)
        if text.startswith("BUF_DATA_FORMAT_") and text[16:] in names.DATA_FORMATS:
            data = names.DATA_FORMATS.index(text[16:])
        elif text.startswith("BUF_NUM_FORMAT_") and text[15:] in names.NUMBER_FORMATS:
            number = names.NUMBER_FORMATS.index(text[15:])
        else:
            raise CompileError(f"format:[{text}] is not a buffer format")
    return data | number << 4


def _vector(modifier: Modifier, value: Any) -> int:
    bits = modifier.bits
    if value is None:
        return sum(1 << bit for bit in bits if bit >= 0) if modifier.default else 0
    dead = [one for i, one in enumerate(value) if i >= len(bits) or bits[i] < 0] if isinstance(value, Sequence) else []
    if not isinstance(value, Sequence) or any(dead) or any(one not in (0, 1) for one in value):
        raise CompileError(
            f"{modifier.name}:{value}: up to {len(bits)} numbers, each 0 or 1, in the places of operands that have halves"
        )
    return sum(1 << bit for bit, one in zip(bits, value, strict=False) if one and bit >= 0)


def _omod(values: Mapping[str, Any]) -> int:
    word = 0
    for name, value in values.items():
        code = 0 if value in (None, 0) or (name, value) in (("mul", 1), ("div", 1)) else OMOD.get((name, value))
        if code is None or (code and word):
            raise CompileError(f"{name}:{value}: an output is multiplied by 2 or 4 (mul:2, mul:4) or halved (div:2)")
        word |= code
    return word


def _dpp8(value: Any) -> int:
    if not isinstance(value, Sequence) or len(value) != 8 or any(not 0 <= lane < 8 for lane in value):
        raise CompileError(f"dpp8:{value}: eight lanes, each 0 to 7")
    return sum(int(lane) << 3 * i for i, lane in enumerate(value))


def dpp_code(values: Mapping[str, Any], generation: int) -> int:
    """Return the code of a DPP16 control such as {"row_shl": 1}, the identity if there is none."""
    if not values:
        return 0xE4
    if len(values) > 1:
        raise CompileError(f"one lane permutation at a time, not {' and '.join(values)}")
    ((name, value),) = values.items()
    if name == "quad_perm":
        if not isinstance(value, Sequence) or len(value) != 4 or any(not 0 <= lane < 4 for lane in value):
            raise CompileError(f"quad_perm:{value}: four lanes, each 0 to 3")
        return sum(int(lane) << 2 * i for i, lane in enumerate(value))
    if name == "row_bcast":
        if generation != 9 or value not in ROW_BROADCASTS:
            raise CompileError(f"row_bcast:{value}: 15 or 31, on gfx9")
        return ROW_BROADCASTS[value]
    first, start, count, generations = DPP_CONTROLS[name]
    if generation not in generations:
        raise CompileError(f"gfx{generation} has no {name}")
    if count == 0:
        return first
    if not isinstance(value, int) or not start <= value < start + count:
        raise CompileError(f"{name}:{value}: {start} to {start + count - 1}")
    return first + value - start


def dpp_control(code: int, generation: int) -> tuple[str, Any] | None:
    """Return the name and value of a DPP16 control's code, None for a code without meaning."""
    if code < 0x100:
        return "quad_perm", tuple(code >> 2 * i & 3 for i in range(4))
    for name, (first, start, count, generations) in DPP_CONTROLS.items():
        if generation in generations and first <= code < first + max(count, 1):
            return name, code - first + start if count else 1
    for value, known in ROW_BROADCASTS.items():
        if generation == 9 and code == known:
            return "row_bcast", value
    return None


def decode_modifiers(form: Form, word: int, generation: int) -> dict[str, Any] | None:
    """Return the modifiers of a word, without those at their default. Return None if a field has a value without
    meaning.
    """
    found: dict[str, Any] = {}
    for name, modifier in form.modifiers.items():
        kind = modifier.kind
        if kind == "flag":
            if word >> modifier.shift & 1:
                found[name] = 1
            elif any(name == need for need, _ in form.needs):
                return None
            continue
        if kind == "vector":
            bits = tuple(word >> bit & 1 if bit >= 0 else 0 for bit in modifier.bits)
            if any(bit != modifier.default for bit in bits):
                found[name] = bits
            continue
        value = word >> modifier.shift & (1 << modifier.width) - 1
        if kind == "soe":
            if word >> 14 & 1 and word >> 17 & 1:
                found[name] = value - (value >> 20 << 21)
        elif kind == "bitop3":
            truth = sum((word >> bit & 1) << i for i, bit in enumerate(modifier.bits))
            if truth:
                found[name] = truth
        elif kind == "dpp_ctrl":
            control = dpp_control(value, generation)
            if control is None or (NEWBCAST in form.row.flags and control[0] != "row_newbcast"):
                return None
            found[control[0]] = control[1]
        elif kind == "dpp8":
            found[name] = tuple(value >> 3 * i & 7 for i in range(8))
        elif kind == "dpp8_fi":
            if value == 234:
                found[name] = 1
        elif kind == "omod":
            if value:
                found[_OMOD_NAMES[value][0]] = _OMOD_NAMES[value][1]
        elif kind.startswith("sdwa_"):
            table = UNUSED if kind == "sdwa_dst_u" else SELECTS
            if value >= len(table):
                return None
            found[name] = table[value]
        elif kind == "swapped":
            if value:
                found[name] = value >> 1 | (value & 1) << 1
        elif value != modifier.default or name in ("row_mask", "bank_mask"):
            if modifier.signed and value >> modifier.width - 1:
                value -= 1 << modifier.width
            found[name] = value
    return found


def modifier_texts(form: Form, found: Mapping[str, Any], generation: int) -> list[str]:
    """Return the texts of modifiers, in the order in which LLVM prints them."""
    texts = []
    for name, modifier in form.modifiers.items():
        kind = modifier.kind
        if kind == "flag":
            if found.get(name):
                texts.append(name)
        elif kind in ("omod", "dpp_ctrl"):
            for part in _PARTS[name]:
                if part in found:
                    value = found[part]
                    texts.append(part if part.endswith("mirror") else f"{part}:{_text(value)}")
        elif name in found:
            texts.append(_one(form, modifier, found[name], found, generation))
    return texts


def _text(value: Any) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _one(form: Form, modifier: Modifier, value: Any, found: Mapping[str, Any], generation: int) -> str:
    name, kind = modifier.name, modifier.kind
    if kind == "dim":
        return f"dim:{names.DIMENSION_PREFIX}{names.DIMENSIONS[value]}"
    if kind == "th":
        return f"th:{names.th_text(th_kind(form), value, found.get('scope', 0))}"
    if kind == "scope":
        return f"scope:{names.SCOPES[value]}"
    if kind == "format":
        if value >= 64:
            return f"format:{value}"
        return f"format:[{names.BUFFER_FORMATS[value]}]"
    if kind == "split_format":
        data, number = value & 15, value >> 4
        parts = [f"BUF_DATA_FORMAT_{names.DATA_FORMATS[data]}"] if data != 1 else []
        parts += [f"BUF_NUM_FORMAT_{names.NUMBER_FORMATS[number]}"] if number else []
        return f"format:[{','.join(parts)}]"
    if name == "bitop3" and value < 10:
        return f"bitop3:{value}"
    if name in ("dmask", "row_mask", "bank_mask", "bitop3"):
        return f"{name}:{value:#x}"
    if name == "offset":
        if form.name == "ds_swizzle_b32":
            return f"offset:{swizzle.swizzle_text(value)}"
        if form.format.name == "SMEM":
            return f"offset:{value:#x}" if value >= 0 else f"offset:-{-value:#x}"
    return f"{name}:{_text(value)}"
