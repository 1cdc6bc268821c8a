"""How PM4 packets are laid out: which dword holds which word or operand. Headers, templates and decoders go by it.

Source: nvd.h, soc15d.h and PAL's f32_mec_pm4_packets headers for the order of dwords; words come from the facts with their own sources.
"""

from __future__ import annotations

from ringup.autogen.amd import pm4

MAX_BODY = 0x3FFF  # dwords behind a header: its count field holds one less, and all ones means none
HEADER = pm4.HEADER
TYPE_3 = 3
_ONE_MORE = int(HEADER(count=1))
_COMPUTE = int(HEADER(shader_type=1))
_LONE = int(HEADER(type=TYPE_3, count=MAX_BODY))
_BASES = [int(HEADER(type=TYPE_3, opcode=opcode)) for opcode in range(256)]


def header(opcode: int, count_dwords: int, compute: bool = False) -> int:
    """Return the header of a packet with `count_dwords` behind it; none: count is all ones, as the engine reads a lone NOP."""
    if not 0 <= count_dwords <= MAX_BODY:
        raise ValueError(f"a packet has at most {MAX_BODY} dwords behind its header, not {count_dwords}")
    base = _BASES[opcode] + (_ONE_MORE * (count_dwords - 1) if count_dwords else _LONE - _BASES[0])
    return base + _COMPUTE if compute else base
