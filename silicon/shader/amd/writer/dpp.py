"""Lane permutations of a source: DPP16 and DPP8, and GCN's DPP. Source: RDNA3 and CDNA3 ISA references, "Data Parallel
Processing (DPP)".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Dpp
    from ringup.silicon.shader.host.emitter import Code, Value

ROW = 16  # lanes in which DPP16 permutes
ALL_ROWS = ALL_BANKS = 0xF
OUTSIDE = -1  # a source lane beyond the row
MIRROR, HALF_MIRROR = 0x140, 0x141
# Of GCN: by dpp_ctrl, how far from a lane of the wave its source is, and whether lanes rotate.
WAVE_MOVES = {0x130: (1, False), 0x134: (1, True), 0x138: (-1, False), 0x13C: (-1, True)}
BROADCAST_15, BROADCAST_31 = 0x142, 0x143


def source_lane(dpp: Dpp, lane: int, count: int) -> int:
    """Return the lane that `lane` of `count` reads, OUTSIDE if there is none."""
    if dpp.ctrl in WAVE_MOVES:
        by, rotates = WAVE_MOVES[dpp.ctrl]
        found = (lane + by) % count if rotates else lane + by
        return found if 0 <= found < count else OUTSIDE
    # The last lane of a row goes to the next row, and lane 31 to the upper half.
    if dpp.ctrl == BROADCAST_15:
        return (lane & ~(ROW - 1)) - 1
    if dpp.ctrl == BROADCAST_31:
        return 31 if lane > 31 else OUTSIDE
    if dpp.lanes:
        return lane & ~7 | dpp.lanes[lane & 7]
    row, at = lane & ~(ROW - 1), lane & (ROW - 1)
    kind, count = dpp.ctrl >> 4, dpp.ctrl & 15
    # quad_perm: two bits for each of four lanes.
    if kind < 0x10:
        return lane & ~3 | dpp.ctrl >> 2 * (lane & 3) & 3
    if dpp.ctrl in (MIRROR, HALF_MIRROR):
        return lane ^ (15 if dpp.ctrl == MIRROR else 7)
    # row_shl, row_shr, row_ror, row_share, row_xmask
    places = {
        0x10: at + count, 0x11: at - count, 0x12: (at - count) & (ROW - 1), 0x15: count, 0x16: at ^ count,
    }  # fmt: skip
    found = places[kind]
    return row | found if 0 <= found < ROW else OUTSIDE


def permute(code: Code, value: Value, dpp: Dpp, active: Value) -> Value:
    """Return `value` (`<lanes x i32>`) as the lanes read it through `dpp`: 0 where the source lane is invalid.

    `active` is EXEC. Without fetch_inactive an inactive source lane is as invalid as one beyond the row. Lanes that are
    not written (`writable`) may hold anything.
    """
    lanes = [source_lane(dpp, i, value.lanes) for i in range(value.lanes)]
    zero = code.const(0, value.type)
    # A source lane outside reads lane 0 of the zeroes.
    moved = code.shuffle(value, zero, [one if one >= 0 else value.lanes for one in lanes])
    if dpp.fetch_inactive:
        return moved
    return code.select(_valid(code, lanes, active), moved, zero)


def writable(code: Code, dpp: Dpp, active: Value) -> Value | None:
    """Return the lanes (vector of i1) in which the result is written, None for all.

    Row and bank masks disable lanes, and so do invalid sources without bound_ctrl.
    """
    count = active.lanes
    if dpp.lanes:
        return None
    lanes = [source_lane(dpp, i, count) for i in range(count)]
    chosen = [(dpp.row_mask >> i // ROW) & (dpp.bank_mask >> i % ROW // 4) & 1 for i in range(count)]
    found = None if all(chosen) else code.lane_const(chosen, "i1")
    if dpp.bound_ctrl:
        return found
    # UNKNOWN: for fetch_inactive without bound_ctrl the document's table says that a lane beyond the row reads 0. Its
    # text says that bound_ctrl decides. Compilers rely on the text in scans.
    valid = (
        code.lane_const([int(one >= 0) for one in lanes], "i1") if dpp.fetch_inactive else _valid(code, lanes, active)
    )
    return valid if found is None else code.op("and", found, valid)


def may_skip(dpp: Dpp, lanes: int, *, full: bool) -> bool:
    """Return whether a result may be written in fewer lanes than the active ones; `full` says that all lanes are
    active.
    """
    if dpp.lanes:
        return False
    if dpp.row_mask != ALL_ROWS or dpp.bank_mask != ALL_BANKS:
        return True
    sources_active = full or dpp.fetch_inactive
    return not dpp.bound_ctrl and not (
        sources_active and all(source_lane(dpp, lane, lanes) >= 0 for lane in range(lanes))
    )


def _valid(code: Code, lanes: list[int], active: Value) -> Value:
    """Return where the source lane is in the row and active."""
    no_lanes = code.const(0, active.type)
    return code.shuffle(active, no_lanes, [one if one >= 0 else active.lanes for one in lanes])
