"""The front end of the graphics engine: what its compute, 3D, 2D and inline-to-memory classes have in common.

Sources: clc7c0.h, clc797.h, cl902d.h, cla140.h of open-gpu-doc; Mesa src/nouveau/vulkan/nvk_cmd_draw.c (a firmware
method that changes a register of the engine).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial

from ringup.autogen.layout import Word
from ringup.autogen.nv import error_notifier as errors
from ringup.silicon.nv.engines import macros
from ringup.silicon.nv.engines.engine import ClassEngine, Context, Lacking, Progress, Refused, Table
from ringup.silicon.nv.engines.inline import InlineUpload
from ringup.silicon.nv.engines.reports import Reports

# SET_MME_SHADOW_RAM_CONTROL: methods are kept, not kept, or the kept ones are executed again
TRACK_MODES = (0, 1, 2)
# the firmware's method that changes bits of a register: words of the macro scratch are its answer, value and mask
SET_REGISTER, FALCON_DONE = "SET_FALCON04", 1
FALCON_METHODS = 32
# GUESS: what NOTIFY writes: time, 32 bits and 16 bits of information, and the status of success
NOTIFICATION = struct.Struct("<QIHH")
WAKES = 1


class FrontEnd(ClassEngine):
    """One object of a class of the graphics engine."""

    def __init__(
        self, class_id: int, table: Table, context: Context, reports: tuple[type[Word], type[Word] | None] | None
    ) -> None:
        """`reports`: the layouts of SET_REPORT_SEMAPHORE_D and REPORT_SEMAPHORE_EXECUTE, if the class reports."""
        super().__init__(class_id, table, context, errors.ROBUST_CHANNEL_GR_CLASS_ERROR)
        InlineUpload(self)
        if reports is not None:
            Reports(self, *reports)
        self.macros = MacroFrontEnd(self)
        self.act("NOTIFY", self._notify)
        self.act(SET_REGISTER, self._set_register)
        for number in range(FALCON_METHODS):
            if (name := f"SET_FALCON{number:02}") != SET_REGISTER:
                self.act(name, partial(self._lacks_firmware, name))

    def _run(self, address: int, step: int, data: Sequence[int]) -> Iterator[float]:
        self.macros.check(address)
        yield from super()._run(address, step, data)

    def _notify(self, data: int) -> None:
        address = self.methods.pair("SET_NOTIFY_A", "SET_NOTIFY_B")
        self.context.space.write(address, NOTIFICATION.pack(self.context.now_ns(), 0, 0, 0))
        if data == WAKES:
            self.context.notify()

    def _set_register(self, data: int) -> None:
        """Change bits of a register of the engine, as its firmware does. No register that it may change has an effect
        on what is modelled; both that NVK changes concern pixel shaders.
        """
        value, mask = (self.methods.get("SET_MME_SHADOW_SCRATCH", index) for index in (1, 2))
        self.context.note("channel", f"register {data:#x} of the graphics engine: {value:#x} in bits {mask:#x}")
        self.methods.values[self.methods.place("SET_MME_SHADOW_SCRATCH")] = FALCON_DONE

    def _lacks_firmware(self, name: str, data: int) -> Progress:
        raise Lacking(f"firmware method {name} of class {self.class_id:#x} is not modelled")


class MacroFrontEnd:
    """The part of a class that holds macros, and calls them.

    The classes of a context have the macros in common, and each has scratch words of its own: what 3D loads, compute
    calls. Source: Mesa, sanity_compute in src/nouveau/mme/tests/mme_tu104_sim_hw_test.cpp, nvk_mme.h.
    """

    def __init__(self, owner: ClassEngine) -> None:
        self._owner, self._methods = owner, owner.methods
        self.parameters = macros.Parameters()
        # a macro under way, and whether it waits for a parameter
        self._going: Iterator[float] | None = None
        self._waits = False
        self._pointers = {"INSTRUCTION": 0, "START_ADDRESS": 0}
        owner.act("LOAD_MME_INSTRUCTION_RAM_POINTER", partial(self._point, "INSTRUCTION"))
        owner.act("LOAD_MME_START_ADDRESS_RAM_POINTER", partial(self._point, "START_ADDRESS"))
        owner.stream("LOAD_MME_INSTRUCTION_RAM", self._load)
        owner.act("LOAD_MME_START_ADDRESS_RAM", self._start_address)
        owner.act("SET_MME_SHADOW_RAM_CONTROL", self._control)
        owner.act("MME_DMA_READ_FIFOED", self._read_fifo)
        owner.act("MME_DMA_READ", self._read)
        owner.act("MME_DMA_WRITE", self._write)
        owner.act("MME_DMA_REDUCTION", self._reduce)
        if owner.methods.has("CALL_MME_MACRO"):
            first, stride, count = owner.methods.array("CALL_MME_MACRO")
            for number in range(count):
                owner.actions[first + stride * number] = partial(self._call, number)
            owner.stream("CALL_MME_DATA", self._give)

    @property
    def memory(self) -> macros.Memory:
        """The memories, made at first use."""
        kept = self._owner.context.state.macros
        if kept.memory is None:
            kept.memory = macros.fresh_memory()
        return kept.memory

    # --- loading ----------------------------------------------------------------------------------------------------
    def _point(self, which: str, data: int) -> None:
        self._pointers[which] = data

    def _load(self, words: Sequence[int]) -> None:
        at = self._pointers["INSTRUCTION"]
        if at + len(words) > macros.INSTRUCTION_WORDS:
            raise Refused(f"macro instructions up to word {at + len(words):#x} of {macros.INSTRUCTION_WORDS:#x}")
        self.memory.instructions[at : at + len(words)] = words
        self._pointers["INSTRUCTION"] = at + len(words)

    def _start_address(self, data: int) -> None:
        self.memory.starts[self._pointers["START_ADDRESS"]] = data
        self._pointers["START_ADDRESS"] += 1

    def _control(self, data: int) -> None:
        if data & 3 not in TRACK_MODES:
            raise Lacking("SET_MME_SHADOW_RAM_CONTROL: executing kept methods again is not modelled")

    # --- calling ----------------------------------------------------------------------------------------------------
    def check(self, address: int) -> None:
        """Refuse other methods while a macro waits for parameters."""
        if self._waits and self._methods.names.get(address) != "CALL_MME_DATA":
            raise Refused(f"method {address:#x} while a macro waits for a parameter")

    def _call(self, number: int, data: int) -> Progress:
        """Call a macro with its first parameter."""
        if self._going is not None:
            raise Refused(f"macro {number} is called within a macro")
        if number not in self.memory.starts:
            raise Refused(f"macro {number} is called, and was never loaded")
        self.parameters.clear()
        self.parameters.put((data,))
        self._going = macros.Machine(self.memory, self, self.memory.starts[number]).run()
        return self._go_on()

    def _give(self, words: Sequence[int]) -> Progress:
        # what a macro does not take is dropped
        if self._going is None:
            return None
        if not self._waits:
            raise Refused("CALL_MME_DATA within a macro")
        self.parameters.put(words)
        return self._go_on()

    def _go_on(self) -> Iterator[float]:
        self._waits = False
        going = self._going
        assert going is not None
        for delay_us in going:
            if delay_us == macros.NEEDS_PARAMETER:
                self._waits = True
                return
            yield delay_us
        self._going = None

    def state(self, address: int) -> int:
        """Return the data that a method was last given."""
        return self._methods.values.get(address, 0)

    def emit(self, address: int, data: int) -> Iterator[float]:
        """Execute a method for a macro."""
        return self._owner.run(address, 1, (data,))

    # --- memory -----------------------------------------------------------------------------------------------------
    def _words(self, count: int) -> tuple[int, ...]:
        if count > macros.DATA_WORDS:
            raise Refused(f"a macro reads {count} words from memory")
        address = self._methods.pair("SET_MME_MEM_ADDRESS_A", "SET_MME_MEM_ADDRESS_B")
        return struct.unpack(f"<{count}I", self._owner.context.space.read(address, 4 * count))

    def _read_fifo(self, data: int) -> None:
        self.parameters.put(self._words(data))

    def _data_range(self, count: int) -> slice:
        at = self._methods.get("SET_MME_DATA_RAM_ADDRESS")
        if at + count > macros.DATA_WORDS:
            raise Refused(
                f"words {at:#x} to {at + count:#x} of a macro's data memory, which has {macros.DATA_WORDS:#x}"
            )
        return slice(at, at + count)

    def _read(self, data: int) -> None:
        self.memory.data[self._data_range(data)] = self._words(data)

    def _write(self, data: int) -> None:
        words = self.memory.data[self._data_range(data)]
        address = self._methods.pair("SET_MME_MEM_ADDRESS_A", "SET_MME_MEM_ADDRESS_B")
        self._owner.context.space.write(address, struct.pack(f"<{len(words)}I", *words))

    def _reduce(self, data: int) -> None:
        raise Lacking("MME_DMA_REDUCTION is not modelled")
