"""The 3D, 2D and inline-to-memory classes: their state is kept, uploads, reports and macros work, drawing is refused.

Compute queues of Vulkan drivers set the state of a 3D object up, and use its macros and reports. Sources: clc597.h to
clc997.h, cl902d.h, cla140.h of open-gpu-doc.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType

from ringup.autogen.nv import methods_3d, methods_inline
from ringup.silicon.nv.engines.engine import Context, Lacking, Progress, Refused
from ringup.silicon.nv.engines.frontend import FrontEnd

# what makes pixels, in the 3D and the 2D class
DRAWS = (
    "DRAW_", "BEGIN", "END", "CLEAR_SURFACE", "CLEAR_CLIP_ID_SURFACE", "CLEAR_ZCULL_REGION", "DECOMPRESS_", "STORE_ZCULL",
    "LOAD_ZCULL", "RENDER_SOLID_PRIM_POINT", "PIXELS_FROM_CPU_DATA", "PIXELS_FROM_MEMORY_SRC_Y0_INT", "RUN_DS_NOW",
    "PEER_SEMAPHORE_RELEASE", "INCREMENT_SYNC_POINT",
)  # fmt: skip
WORD_BYTES = 4
# Tables of constants inside the engine, which only graphics programs read. There are 8 (clc597.h), and drivers clear 64
# words of each (Mesa's nvk_cmd_draw.c). GUESS: the offset of the selector, 8 bits, is in bytes.
ROOT_TABLES, ROOT_TABLE_BYTES = 8, 256


class InlineToMemory(FrontEnd):
    """One object of the inline-to-memory class, which only uploads."""

    def __init__(self, class_id: int, context: Context) -> None:
        super().__init__(class_id, methods_inline.METHODS[class_id], context, None)


class Drawing(FrontEnd):
    """One object of a 3D or a 2D class. `module`: its facts."""

    def __init__(self, class_id: int, module: ModuleType, context: Context) -> None:
        table = module.METHODS[class_id]
        names = {word.__name__: word for word in table}
        older, newer = names.get("SET_REPORT_SEMAPHORE_D"), names.get("REPORT_SEMAPHORE_EXECUTE")
        reports = None if older is None else (older.at(class_id), newer.at(class_id) if newer else None)
        super().__init__(class_id, table, context, reports)
        for name in names:
            if name.startswith(DRAWS):
                self.act(name, partial(self._refuse, name))
        self.act("LOAD_CONSTANT_BUFFER", self._load_constant)
        self.root_tables = [bytearray(ROOT_TABLE_BYTES) for _ in range(ROOT_TABLES)]
        self._root_table, self._root_offset = 0, 0
        self.act("SET_ROOT_TABLE_SELECTOR", self._select_root_table)
        self.act("LOAD_ROOT_TABLE", self._load_root_table)

    def _refuse(self, name: str, data: int) -> Progress:
        raise Lacking(f"{name} of class {self.class_id:#x}: drawing is not modelled")

    def _load_constant(self, data: int) -> None:
        """Store a word in the constant buffer that is selected, and go on to the next one."""
        offset = self.methods.get("LOAD_CONSTANT_BUFFER_OFFSET")
        size_bytes = self.methods.get("SET_CONSTANT_BUFFER_SELECTOR_A")
        if offset + WORD_BYTES > size_bytes:
            raise Refused(f"word {offset:#x} of a constant buffer of {size_bytes:#x} bytes")
        base = self.methods.pair("SET_CONSTANT_BUFFER_SELECTOR_B", "SET_CONSTANT_BUFFER_SELECTOR_C")
        self.context.space.write(base + offset, data.to_bytes(WORD_BYTES, "little"))
        self.methods.values[self.methods.place("LOAD_CONSTANT_BUFFER_OFFSET")] = offset + WORD_BYTES

    def _select_root_table(self, data: int) -> None:
        word = methods_3d.SET_ROOT_TABLE_SELECTOR(data)
        self._root_table, self._root_offset = word.root_table, word.offset

    def _load_root_table(self, data: int) -> None:
        """Store a word in the root table that is selected, and go on to the next one."""
        at = self._root_offset
        if at % WORD_BYTES or at + WORD_BYTES > ROOT_TABLE_BYTES:
            raise Refused(f"byte {at:#x} of a root table of {ROOT_TABLE_BYTES:#x} bytes")
        self.root_tables[self._root_table][at : at + WORD_BYTES] = data.to_bytes(WORD_BYTES, "little")
        self._root_offset = at + WORD_BYTES
