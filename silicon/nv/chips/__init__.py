"""The chips and boards: one row each, from which every answer of a card comes."""

from __future__ import annotations

from ringup.errors import NoSuchCard
from ringup.silicon.nv.chips.ad102 import AD102
from ringup.silicon.nv.chips.ga100 import GA100
from ringup.silicon.nv.chips.ga102 import GA102
from ringup.silicon.nv.chips.gb202 import GB202
from ringup.silicon.nv.chips.gh100 import GH100
from ringup.silicon.nv.chips.row import ChipRow
from ringup.silicon.nv.chips.tu102 import TU102

CHIPS: dict[str, ChipRow] = {row.name: row for row in (TU102, GA100, GA102, AD102, GH100, GB202)}


def find(name: str) -> ChipRow:
    """Return the row of a chip. An unknown name raises `NoSuchCard`, which lists the known ones."""
    try:
        return CHIPS[name]
    except KeyError:
        raise NoSuchCard(f"no virtual NVIDIA card {name!r}; there are: {', '.join(CHIPS)}") from None
