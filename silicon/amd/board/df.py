"""The data fabric: the registers that tell a driver whether memory errors poison data, and how atomics from the host
are handled.
"""

from __future__ import annotations

from ringup.autogen.regdb import open_chip
from ringup.silicon.amd.board.chips import ChipRow
from ringup.silicon.amd.common.parts import Board


class DataFabric:
    """Assertion masks, all clear: poisoning is off. Of 4.15 a driver writes how atomics are handled; the model executes
    them alike either way. Source: amdgpu df_v4_3.c, df_v4_15.c.
    """

    # a version has the first two, or the third
    NAMES = (
        "DF_CS_UMC_AON0_HardwareAssertMaskLow",
        "DF_NCS_PG0_HardwareAssertMaskHigh",
        "NCSConfigurationRegister1",
    )

    def __init__(self, board: Board, chip: ChipRow) -> None:
        database = open_chip(chip.name)
        place = next((place for place in database.row.places if place.block == "df"), None)
        self.values: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._note = board.log.note
        # a card whose data fabric has no registers that a driver uses
        if place is None:
            return
        bases = place.bases[0] + chip.extra_bases.get("df", ())
        known = set(database.file(place).names())
        for name in known.intersection(self.NAMES):
            register = database.register(name)
            if register.segment is None or register.offset is None:
                raise ValueError(f"{name} of {chip.name} has no place")
            address = (bases[register.segment] + register.offset) * register.row.unit_bytes
            self._names[address] = name
            board.space.door(address, 4, self._read, self._write)

    def reset(self) -> None:
        """Return to poisoning off."""
        self.values.clear()

    def _read(self, address: int) -> int:
        return self.values.get(address, 0)

    def _write(self, address: int, value: int) -> None:
        """Store a mask without effect: drivers only read it, and the model has no poisoning."""
        self._note("df", "unmodelled", "{} = {:#x} is kept without effect", f"df.{self._names[address]}", value)
        self.values[address] = value
