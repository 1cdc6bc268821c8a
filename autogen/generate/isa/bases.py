"""The words from which probes start: for every format, field values that are legal for most opcodes, and variations."""

from __future__ import annotations

from functools import cache
from itertools import combinations

from ringup.autogen.generate.isa.formats import Format

# Registers far apart and aligned for the widest tuple, so that a changed operand shows which field feeds it.
_VALUES = {
    "vdst": 64, "vdstx": 64, "vdsty": 40, "vdata": 64, "data": 24, "data0": 24, "data1": 32, "addr": 16, "vaddr": 16, "vsrc": 24, "vsrc1": 24,
    "vsrcx1": 24, "vsrcy1": 25, "src0": 256 + 16, "src1": 256 + 32, "src2": 256 + 96, "srcx0": 256 + 16, "srcy0": 256 + 17,
    "vaddr0": 16, "vaddr1": 32, "vaddr2": 48, "vaddr3": 80, "vaddr4": 96, "vsrc0": 4, "vsrc2": 12, "vsrc3": 16,
    "sdst": 24, "ssrc0": 40, "ssrc1": 56, "sbase": 4, "sdata": 24, "srsrc": 2, "ssamp": 6, "rsrc": 8, "samp": 24,
    "scale_src0": 256 + 104, "scale_src1": 256 + 108,
    "dmask": 0xF, "en": 0xF, "simm16": 2, "imm": 1,
}  # fmt: skip
SCALARS = {"src0": 40, "src1": 56, "src2": 60}
LITERAL = 0x1234  # printed the same whether the operand has 16, 32 or 64 bits
LITERAL_CODE, SDWA_CODE, DPP16_CODE, DPP8_CODE, DPP8_FI_CODE = 255, 249, 250, 233, 234


def default(fmt: Format, target: str) -> dict[str, int]:
    """Return the first base of a format."""
    base = {name: _VALUES.get(name, 0) for name in fmt.fields}
    if "saddr" in base:
        base["saddr"] = 0x7C if target.startswith("gfx1") else 0x7F if fmt.name != "FLAT" else 0
    if "soffset" in base:
        base["soffset"] = 60
    if fmt.name == "SMEM" and target in ("gfx942", "gfx950"):
        base["soffset"] = 0
        base["offset"] = 0x10
    if "offen" in base:
        base["offen"] = 1
    if fmt.name in ("SCRATCH", "VSCRATCH"):
        # CDNA3 shows this bit of scratch instructions as SVE in its text, as LDS in its table.
        base["sve" if "sve" in base else "lds"] = 1
    if fmt.name in ("MIMG", "VIMAGE", "VSAMPLE"):
        base["dim"] = 1
    if fmt.name.startswith("VOP3P"):
        base |= {name: 3 if name == "opsel_hi" else 1 for name in ("opsel_hi", "opsel_hi2") if name in base}
    if fmt.name == "VOP3PX2":
        # set in every scaled matrix instruction
        base["abid"] = 1
    if fmt.name == "VOPD":
        base |= {"opx": 4, "opy": 4}  # v_dual_add_f32
    return base


def variations(fmt: Format, target: str) -> list[tuple[dict[str, int], bytes]]:
    """Return overrides of the base and bytes that follow it, in the order in which they are tried for an opcode."""
    literal = LITERAL.to_bytes(4, "little")
    rows: list[tuple[dict[str, int], bytes]] = [({}, b""), ({}, literal)]
    unused = [dict.fromkeys(names, 0) for names in _unused(fmt)]
    rows += [(zeros, b"") for zeros in unused]
    # Gathers and atomics require one channel.
    if "dmask" in fmt.fields:
        rows += [(zeros | {"dmask": 1}, b"") for zeros in [{}, *unused]]
        rows += [(zeros | {"dim": 6, "dmask": 1}, b"") for zeros in [{}, *unused]]
    if "src1" in fmt.fields:
        rows += [
            ({"src1": 56}, b""),
            ({"src0": 40}, b""),
            (SCALARS, b""),
            ({"src2": 60}, b""),
            ({"src1": 56, "src2": 60}, b""),
        ]
        rows += [({"src2": 256 + 96, "cbsz": 2, "blgp": 2}, b""), ({"src0": 0, "src1": 0, "src2": 0}, b"")]
    elif "src0" in fmt.fields:
        rows += [({"src0": 40}, b""), ({"src0": 0, "vdst": 0}, b"")]
    if "saddr" in fmt.fields:
        rows += [({"saddr": 40}, b""), ({"sve": 0, "saddr": 40}, b""), ({"addr": 0}, b"")]
    for name in ("glc", "sc0", "gds", "lds", "soe"):
        if name in fmt.fields:
            rows.append(({name: 1}, b""))
    if "gds" in fmt.fields:
        # Unused registers must be zero in instructions that use M0 as an address, and in those of the global data
        # share.
        rows += [({"addr": 0, "data0": 0, "data1": 0}, b""), ({"addr": 0, "data1": 0, "vdst": 0}, b"")]
        rows += [({"gds": 1, "data0": 0, "data1": 0}, b""), ({"gds": 1, "data0": 0, "data1": 0, "vdst": 0}, b"")]
        rows += [
            ({"gds": 1, "addr": 0, "data1": 0}, b""),
            ({"gds": 1, "addr": 0, "data0": 0, "data1": 0, "vdst": 0}, b""),
        ]
    if "nsa" in fmt.fields:
        ray = {"unrm": 1, "r128": 1, "dim": 0, "ssamp": 0}
        rows += [(ray, b""), (ray | {"nsa": 1}, bytes((0x20, 0x30, 0x50, 0x60)))]
    if "th" in fmt.fields:
        rows.append(({"th": 1}, b""))
    if "dim" in fmt.fields:
        rows += [({"dim": dim}, b"") for dim in (0, 2, 3, 4, 5, 6, 7)] + [
            ({"dim": 0, "dmask": 1}, b""),
            ({"dim": 0, "a16": 1}, b""),
        ]
        rows += [({"dmask": 1}, b""), ({"r128": 1, "dim": 0}, b""), ({"dmask": 3}, b"")]
    if "ssrc0" in fmt.fields:
        rows += [
            ({"ssrc0": 2}, b""),
            ({"ssrc0": 128}, b""),
            ({"ssrc0": 193}, b""),
            ({"ssrc0": 125}, b""),
            ({"ssrc1": 2}, b""),
        ]
    if "sdst" in fmt.fields:
        rows += [({"sdst": 0x7C}, b""), ({"sdst": 0x7D}, b"")]
    rows += [({"vsrcx1": 0}, b""), ({"vsrcy1": 0}, b"")] if "opx" in fmt.fields else []
    rows += [({name: 0 for name in fmt.fields if name not in ("opx", "opy")}, b"")]
    return [({name: value for name, value in row.items() if name in fmt.fields}, tail) for row, tail in rows]


def _unused(fmt: Format) -> list[tuple[str, ...]]:
    """Return sets of register fields to clear, small sets first: LLVM requires zero in fields that an opcode does not
    use.
    """
    if fmt.name in ("VIMAGE", "VSAMPLE"):
        addresses = [name for name in ("vaddr4", "vaddr3", "vaddr2", "vaddr1") if name in fmt.fields]
        tails: list[tuple[str, ...]] = [tuple(addresses[:count]) for count in range(1, len(addresses) + 1)]
        return tails + [(*tail, "samp") for tail in [(), *tails]] if "samp" in fmt.fields else tails
    names = [
        name
        for name in ("vdst", "data1", "data", "vsrc", "data0", "ssamp")
        if name in fmt.fields and "op" in fmt.fields
    ]
    if not {"data1", "data", "vsrc", "ssamp"} & set(names):
        return []
    return [chosen for count in range(1, len(names) + 1) for chosen in combinations(names, count)]


_OPERAND_FIELD = (
    "vdst", "vdata", "data", "addr", "vaddr", "vsrc", "src", "ssrc", "sdst", "sbase", "sdata", "soffset", "saddr", "srsrc",
    "ssamp", "rsrc", "samp", "simm16", "attr", "target", "scale_src", "offset", "ioffset",
)  # fmt: skip


@cache
def feeds_operands(name: str) -> bool:
    """Return whether a field of that name can hold an operand; all others only modify."""
    return name.rstrip("0123456789xy").removesuffix("_chan") in {f.rstrip("0123456789xy") for f in _OPERAND_FIELD}


def is_address(name: str) -> bool:
    """Return whether a field holds an address or a descriptor, which a mnemonic's data type does not describe."""
    return name.rstrip("0123456789") in (
        "addr",
        "vaddr",
        "saddr",
        "sbase",
        "soffset",
        "srsrc",
        "rsrc",
        "ssamp",
        "samp",
        "offset",
        "ioffset",
        "simm",
    )


def probe_values(name: str, width: int, base: int) -> list[int]:
    """Return the values with which a field is tried.

    A narrow field is tried with every value. Others are tried with one bit flipped at a time and the distinctive
    operand codes.
    """
    if width <= 5 and not name.startswith(("srsrc", "ssamp")):
        return [value for value in range(1 << width) if value != base]
    values = [base ^ 1 << bit for bit in range(width)]
    if name.startswith(("src", "ssrc", "sdst", "sdata", "soffset", "saddr", "rsrc", "samp", "scale_src")):
        values += [
            1,
            5,
            8,
            101,
            102,
            103,
            104,
            105,
            106,
            107,
            108,
            112,
            *range(123, 131),
            192,
            193,
            208,
            *range(230, 254),
            256,
            257,
            258,
            511,
        ]
    # QUIRK: LLVM 22 crashes on compares that write register 255 and on such an offset.
    if not name.startswith(("vdst", "soffset")):
        values += [0, (1 << width) - 1]
    special = (
        {LITERAL_CODE, SDWA_CODE, DPP16_CODE, DPP8_CODE, DPP8_FI_CODE}
        if width >= 8 and name.startswith(("src", "ssrc"))
        else set()
    )
    return [value for value in dict.fromkeys(values) if value < 1 << width and value != base and value not in special]
