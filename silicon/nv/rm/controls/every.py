"""All controls that are modelled."""

from __future__ import annotations

from ringup.silicon.nv.rm.controls import (
    about,
    absent,
    bus,
    chip,
    copying,
    debugging,
    display,
    frame,
    hosting,
    shaders,
    sleeping,
    spaces,
    thermal,
    undocumented,
    use,
)
from ringup.silicon.nv.rm.controls.table import Controls

MODULES = (
    about,
    absent,
    bus,
    chip,
    copying,
    debugging,
    display,
    frame,
    hosting,
    shaders,
    sleeping,
    spaces,
    thermal,
    undocumented,
    use,
)
CONTROLS = Controls(row for module in MODULES for row in module.ROWS)
