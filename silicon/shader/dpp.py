"""Lane permutations of a source: DPP16 and DPP8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.errors import Unmodelled

if TYPE_CHECKING:
    from ringup.silicon.shader.decode import Dpp
    from ringup.silicon.shader.emitter import Code, Value


def permute(code: Code, value: Value, dpp: Dpp, active: Value) -> Value:
    """Return `value` (`<lanes x i32>`) as the lanes of `dpp` see it: 0 where the source lane is invalid and bound_ctrl says so.

    `active` is EXEC; without fetch_inactive an inactive source lane is as invalid as one beyond the row.
    """
    raise Unmodelled(f"{dpp} of {value} {code} {active}")


def writable(code: Code, dpp: Dpp, active: Value) -> Value | None:
    """Return the lanes (vector of i1) whose result is written: row and bank masks, invalid sources without bound_ctrl; None for all."""
    raise Unmodelled(f"{dpp} {code} {active}")
