"""The compute classes: state of the channel, and launches by descriptors in memory.

A launch runs to its end before the next method is taken, which is one of the orders that metal may choose.
Sources: clc5c0.h to clc9c0.h of open-gpu-doc (SEND_PCAS_A, SEND_SIGNALING_PCAS_B, SEND_SIGNALING_PCAS2_B,
SET_INLINE_QMD_ADDRESS_A, LOAD_INLINE_QMD_DATA); limits: CUDA's programming guide, "Compute Capabilities".
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ringup.autogen.nv import error_notifier as errors
from ringup.autogen.nv import methods_compute as methods
from ringup.autogen.nv import mmu
from ringup.errors import Unmodelled
from ringup.silicon.nv.compute import descriptors
from ringup.silicon.nv.compute.descriptors import Action, BadDescriptor, Descriptor, LacksModel, Release, Trap
from ringup.silicon.nv.compute.launch import Launch, Pool, Run, Windows
from ringup.silicon.nv.engines.aside import Aside
from ringup.silicon.nv.engines.engine import Context, Lacking, Progress, Refused, field_of
from ringup.silicon.nv.engines.frontend import FrontEnd
from ringup.silicon.nv.engines.rendering import enabled
from ringup.silicon.nv.engines.reports import RED, Words, report
from ringup.silicon.nv.engines.shader_memory import ShaderMemory
from ringup.silicon.nv.memory.space import PageFault

# warp-instructions of one go, what one takes, and how long warps that only wait are left alone. That is no estimate of
# performance: it lets the rest of the card run meanwhile.
SLICE, INSTRUCTION_US, IDLE_US, MAX_PAUSE_US = 2_000, 0.001, 1.0, 1_000.0
# GUESS: from the method to the first instruction
START_US = 2.0
SMS_PER_TPC = 2
# GUESS: all warps' accesses come from the first texture unit of the first GPC
SHADER_UNIT, SHADER_UNIT_ID = "T1_0", mmu.NV_PFAULT_CLIENT_GPC_T1_0
MAX_REGISTERS, REGISTERS_PER_SM, WARP = 255, 65_536, 32
# bytes of shared memory that a group may have, by class
SHARED_BYTES = {0xC5C0: 64 << 10, 0xC6C0: 163 << 10, 0xC7C0: 99 << 10, 0xC9C0: 99 << 10}
WIDEST_SHARED_BYTES = 227 << 10
# SEND_SIGNALING_PCAS2_B.pcas_action
SCHEDULES = frozenset((
    methods.SEND_SIGNALING_PCAS2_B_PCAS_ACTION_SCHEDULE,
    methods.SEND_SIGNALING_PCAS2_B_PCAS_ACTION_INVALIDATE_COPY_SCHEDULE,
    methods.SEND_SIGNALING_PCAS2_B_PCAS_ACTION_PREFETCH_SCHEDULE,
    methods.SEND_SIGNALING_PCAS2_B_PCAS_ACTION_INVALIDATE_PREFETCH_COPY_SCHEDULE,
))  # fmt: skip
NOTHING_TO_DO = frozenset((
    methods.SEND_SIGNALING_PCAS2_B_PCAS_ACTION_NOP,
    methods.SEND_SIGNALING_PCAS2_B_PCAS_ACTION_INVALIDATE,
    methods.SEND_SIGNALING_PCAS2_B_PCAS_ACTION_PREFETCH,
))  # fmt: skip
Result = TypeVar("Result")
DECREMENT = methods.SEND_SIGNALING_PCAS2_B_PCAS_ACTION_DECREMENT_DEPENDENCE


@dataclass(slots=True)
class Waiting:
    """A descriptor that waits for others: how many are left, and whether it was scheduled."""

    left: int
    scheduled: bool = False


class ComputeEngine(FrontEnd):
    """One object of a compute class."""

    def __init__(self, class_id: int, context: Context) -> None:
        newer = methods.REPORT_SEMAPHORE_EXECUTE.at(class_id) if _has_newer(class_id) else None
        reports = methods.SET_REPORT_SEMAPHORE_D.at(class_id), newer
        super().__init__(class_id, methods.METHODS[class_id], context, reports)
        # by address: descriptors that others hold back
        self._waiting: dict[int, Waiting] = {}
        self.act("SEND_SIGNALING_PCAS_B", self._signal)
        self.act("SEND_SIGNALING_PCAS2_B", self._signal2)
        self.act("SEND_PCAS_B", lambda data: self._lacks("SEND_PCAS_B, which adds to a queue,"))
        first, stride, count = self.methods.array("LOAD_INLINE_QMD_DATA")
        for index in range(count):
            self.actions[first + stride * index] = partial(self._load, index, count)

    def _lacks(self, what: str) -> Progress:
        raise Lacking(f"{what} is not modelled")

    # --- what starts a launch -----------------------------------------------------------------------------------------
    def _signal(self, data: int) -> Progress:
        word = methods.SEND_SIGNALING_PCAS_B(data)
        return self._begin(self._sent()) if word.schedule else None

    def _signal2(self, data: int) -> Progress:
        word = methods.SEND_SIGNALING_PCAS2_B.at(self.class_id)(data)
        if field_of(word, "select") or field_of(word, "offset_minus_one"):
            return self._lacks(f"SEND_SIGNALING_PCAS2_B {data:#x} to another descriptor than the one sent")
        if word.pcas_action in NOTHING_TO_DO:
            return None
        if word.pcas_action in SCHEDULES:
            return self._begin(self._sent())
        if word.pcas_action == DECREMENT:
            return self._decremented(self._sent())
        return self._lacks(f"SEND_SIGNALING_PCAS2_B with action {word.pcas_action:#x}")

    def _sent(self) -> int:
        return self.methods.get("SEND_PCAS_A") << descriptors.ADDRESS_SHIFT

    def _load(self, index: int, count: int, data: int) -> Progress:
        """Take a word of a descriptor in the pushbuffer; the last one stores the descriptor, and schedules it.

        Inference: the words that did not come are those that came last time, as with any method.
        """
        if index < count - 1:
            return None
        words = [self.methods.get("LOAD_INLINE_QMD_DATA", number) for number in range(count)]
        upper = methods.SET_INLINE_QMD_ADDRESS_A.at(self.class_id)(self.methods.get("SET_INLINE_QMD_ADDRESS_A"))
        if field_of(upper, "inline_size"):
            return self._lacks("an inline descriptor of 384 bytes")
        address = self.methods.get("SET_INLINE_QMD_ADDRESS_B") | upper.qmd_address_shifted8_upper << 32
        self.context.space.write(address << descriptors.ADDRESS_SHIFT, struct.pack(f"<{count}I", *words))
        return self._begin(address << descriptors.ADDRESS_SHIFT)

    # --- scheduling -------------------------------------------------------------------------------------------------
    def _begin(self, descriptor: int) -> Progress:
        get = self.methods.get
        override = get("SET_RENDER_ENABLE_OVERRIDE")
        mode = self.methods.place("SET_RENDER_ENABLE_C")
        if override == methods.SET_RENDER_ENABLE_OVERRIDE_MODE_NEVER_RENDER:
            return None
        if override != methods.SET_RENDER_ENABLE_OVERRIDE_MODE_ALWAYS_RENDER and not enabled(
            self.context.space, get("SET_RENDER_ENABLE_C") & 7,
            self.methods.pair("SET_RENDER_ENABLE_A", "SET_RENDER_ENABLE_B"), fresh=mode not in self.methods.values,
        ):  # fmt: skip
            return None
        return self._run_all(self._scheduled(descriptor))

    def _decremented(self, descriptor: int) -> Progress:
        return self._run_all(self._decrement(descriptor))

    def _run_all(self, ready: list[int]) -> Iterator[float]:
        """Run descriptors, and all that they set off."""
        chain = deque(ready)
        while chain:
            at = chain.popleft()
            self._waiting.pop(at, None)
            found = self._read(at)
            yield START_US
            if found.launch is not None:
                yield from self._grid(found.launch)
            for one in found.releases:
                self._release(one)
            for dependent in found.dependents:
                if dependent.action is Action.INCREMENT_PUT:
                    self._lacks(f"the descriptor at {at:#x} adds to a queue, which")
                elif dependent.action is Action.DECREMENT_DEPENDENCE:
                    chain.extend(self._decrement(dependent.descriptor))
                else:
                    chain.extend(self._scheduled(dependent.descriptor))

    def _state(self, descriptor: int) -> Waiting:
        if descriptor not in self._waiting:
            self._waiting[descriptor] = Waiting(self._read(descriptor).dependences)
        return self._waiting[descriptor]

    def _scheduled(self, descriptor: int) -> list[int]:
        """Note that a descriptor was scheduled; return it if nothing holds it back."""
        state = self._state(descriptor)
        state.scheduled = True
        return [] if state.left else [descriptor]

    def _decrement(self, descriptor: int) -> list[int]:
        """Count a dependence that has ended; return the descriptor if it was the last."""
        state = self._state(descriptor)
        state.left = max(state.left - 1, 0)
        return [descriptor] if state.scheduled and not state.left else []

    def _read(self, descriptor: int) -> Descriptor:
        raw = self.context.space.read(descriptor, descriptors.size_bytes(self.class_id))
        try:
            return descriptors.read(self.class_id, descriptor, raw, self._windows())
        except BadDescriptor as error:
            raise Refused(str(error)) from None
        except LacksModel as error:
            raise Lacking(str(error)) from None

    def _windows(self) -> Windows:
        pair = self.methods.pair
        return Windows(
            shared=pair("SET_SHADER_SHARED_MEMORY_WINDOW_A", "SET_SHADER_SHARED_MEMORY_WINDOW_B"),
            local=pair("SET_SHADER_LOCAL_MEMORY_WINDOW_A", "SET_SHADER_LOCAL_MEMORY_WINDOW_B"),
            local_base=pair("SET_SHADER_LOCAL_MEMORY_A", "SET_SHADER_LOCAL_MEMORY_B"),
            local_bytes_per_sm=pair(
                "SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A", "SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B"
            )
            // SMS_PER_TPC,
            headers=self._pool("HEADER"),
            samplers=self._pool("SAMPLER"),
        )

    def _pool(self, name: str) -> Pool:
        stem = f"SET_TEX_{name}_POOL"
        return Pool(self.methods.pair(f"{stem}_A", f"{stem}_B"), self.methods.get(f"{stem}_C"))

    # --- a grid -------------------------------------------------------------------------------------------------------
    def _check(self, launch: Launch) -> None:
        """Refuse a grid of which no group fits on an SM."""
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        warps = -(-threads // WARP)
        shared = SHARED_BYTES.get(self.class_id, WIDEST_SHARED_BYTES)
        where = f"the descriptor at {launch.descriptor:#x}"
        if launch.shared_bytes > shared:
            raise Refused(f"{where} wants {launch.shared_bytes} bytes of shared memory, of {shared}")
        if launch.registers > MAX_REGISTERS or launch.registers * warps * WARP > REGISTERS_PER_SM:
            raise Refused(f"{where} wants {launch.registers} registers for each of {threads} threads")
        if self.methods.get("SET_QMD_VIRTUALIZATION_CONTROL"):
            self._lacks("virtualization of descriptors")

    def _grid(self, launch: Launch) -> Iterator[float]:
        if 0 in launch.grid:
            return
        self._check(launch)
        core = self.context.core()
        if core is None:
            self._lacks(f"a launch of {launch.grid} groups at {launch.program:#x}: a card without shader cores")
            return
        space = self.context.space
        seen = space.seen_by(space.client._replace(unit=SHADER_UNIT, unit_id=SHADER_UNIT_ID, hub=False))
        # Only where software may handle faults has the grid a thread of its own: turns take longer.
        aside: Aside[PageFault] | None = Aside("shader cores") if self.context.replays() else None
        memory = ShaderMemory(seen) if aside is None else ShaderMemory(seen, aside.ask)
        run: Run | None = None
        try:
            try:
                run = yield from self._done(aside, partial(core.start, launch, memory))
            except Unmodelled as error:
                raise Lacking(str(error)) from error
            except ValueError as error:
                raise Refused(str(error), errors.ROBUST_CHANNEL_GR_EXCEPTION) from error
            yield from self._steps(run, memory, aside)
        finally:
            if aside is not None:
                aside.close()
            if run is not None:
                run.kill()

    def _done(self, aside: Aside[PageFault] | None, work: Callable[[], Result]) -> Generator[float, None, Result]:
        """Do work of the cores. An access that faults waits until software has handled that, and is made again."""
        if aside is None:
            return work()
        going = aside.run(work)
        try:
            fault = next(going)
            while True:
                handled = self.context.faulted(fault)
                if handled:
                    # the channel is off its runlist until then
                    yield 0.0
                fault = going.send(handled)
        except StopIteration as ended:
            result: Result = ended.value
            return result

    def _steps(self, run: Run, memory: ShaderMemory, aside: Aside[PageFault] | None) -> Iterator[float]:
        """Run a grid slice by slice."""
        pause_us = IDLE_US
        while True:
            before = run.instructions
            try:
                done = yield from self._done(aside, partial(run.step, SLICE))
            except Unmodelled as error:
                raise Lacking(str(error)) from error
            if memory.fault is not None:
                raise memory.fault
            if run.violations:
                raise Refused(str(run.violations[0]), errors.ROBUST_CHANNEL_GR_EXCEPTION)
            executed = run.instructions - before
            if done:
                yield executed * INSTRUCTION_US
                return
            idle = run.waiting or run.repeating or not executed
            pause_us = min(2 * pause_us, MAX_PAUSE_US) if idle else IDLE_US
            yield max(executed * INSTRUCTION_US, pause_us if idle else INSTRUCTION_US)

    def _release(self, one: Release) -> None:
        how = RED[one.reduction] if one.reduction is not None else None
        changed = report(
            self.context, one.gpu_va, one.payload, Words(one.words), wide=one.wide, how=how, signed=one.signed
        )
        if one.trap is Trap.UNCONDITIONAL or (one.trap is not Trap.NONE and changed):
            self.context.notify()


def _has_newer(class_id: int) -> bool:
    return methods.REPORT_SEMAPHORE_EXECUTE in methods.METHODS[class_id]
