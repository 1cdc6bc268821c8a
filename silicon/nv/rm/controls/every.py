"""All controls that are modelled."""

from __future__ import annotations

from ringup.silicon.nv.rm.controls import chip, copying, hosting, shaders, spaces
from ringup.silicon.nv.rm.controls.table import Controls

CONTROLS = Controls((*chip.ROWS, *copying.ROWS, *hosting.ROWS, *shaders.ROWS, *spaces.ROWS))
