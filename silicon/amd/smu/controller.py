"""The SMU (MP1 13.0 and 14.0): its mailbox, features, clocks, power limit and tables.

Source: smu_cmn.c (protocol), smu_v13_0.c, smu_v14_0.c, their _ppt.c (use) and _ppsmc.h (messages, answers). The host
writes 0 to C2PMSG_90, the argument to C2PMSG_82 and the message to C2PMSG_66; the firmware puts a result into 82 and
then a non-zero answer into 90.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.amd import psp
from ringup.autogen.amd import smu_v13_0_0 as smu
from ringup.silicon.amd.common.parts import Board, Hub, VmFault
from ringup.silicon.amd.smu import tables as smu_tables
from ringup.silicon.amd.smu.power import Power
from ringup.silicon.amd.smu.tables import DEBUG_MODE1_RESET, PowerRow
from ringup.silicon.common.cells import Cells
from ringup.silicon.common.faults import FaultKind

# from loading the firmware to its first answer: the PSP reports the load once the firmware runs, and drivers send
# messages at once
BOOT_US = 50
ANSWER_US = 50
TABLE_US = 200
MODE1_RESET_US = 1_000
MESSAGE, ARGUMENT, ANSWER = (f"MP1_SMN_C2PMSG_{number}" for number in (66, 82, 90))
# smu_v13_0_0_ppt.c
DEBUG_MESSAGE, DEBUG_ARGUMENT, DEBUG_ANSWER = (f"MP1_SMN_C2PMSG_{number}" for number in (75, 53, 54))
# by generation
FLAGS = ("MP1_FIRMWARE_FLAGS", "MP1_CRU1_MP1_FIRMWARE_FLAGS")
MESSAGE_PREFIX = "PPSMC_MSG_"
# messages that move a table
SLOW = ("TransferTableSmu2Dram", "TransferTableDram2Smu", "GetMetricsTable")
# MP1_Public: where hosts access MP1's own registers over SMN
PUBLIC_ALIAS = 0x3B0_0000
ALIAS_BYTES = 0x10_0000
CLIENT = "MP1"
# bit of the level count: any frequency between the levels is possible; smu_v13_0.c, get_fine_grained_status
FINE_GRAINED = 1 << 31
FAULTS = (
    FaultKind("smu_silent", "the SMU answers no message"),
    FaultKind(
        "smu_answer",
        "the SMU answers every message with this",
        "the answer: 255 failed, 254 unknown, 253 prerequisite, 252 busy",
    ),
)


class Refused(Exception):
    """A message is answered with something other than OK."""

    def __init__(self, answer: int, reason: str) -> None:
        super().__init__(reason)
        self.answer = answer


def failed(reason: str) -> Refused:
    """Return the error for an invalid argument."""
    return Refused(smu.PPSMC_Result_Failed, reason)


def prerequisite(reason: str) -> Refused:
    """Return the error for a message that came too early."""
    return Refused(smu.PPSMC_Result_CmdRejectedPrereq, reason)


class Smu:
    """The power management firmware of one card. `cells` are the MP block's; `on_mode1_reset` resets the card,
    `on_mode2_reset` its engines.
    """

    messages: dict[str, Handler]
    state_only: frozenset[str]

    def __init__(
        self,
        board: Board,
        cells: Cells,
        hub: Hub,
        row: PowerRow,
        *,
        busy_ns: Callable[[], int],
        on_mode1_reset: Callable[[], None],
        on_mode2_reset: Callable[[], None] | None = None,
    ) -> None:
        self.board, self.cells, self._hub, self.row = board, cells, hub, row
        self._reset_card, self._on_mode2_reset = on_mode1_reset, on_mode2_reset
        self.power = Power(board.clock, row, busy_ns)
        names = {name for name in vars(row.interface) if name.startswith(MESSAGE_PREFIX)}
        self._messages = {getattr(row.interface, name): name.removeprefix(MESSAGE_PREFIX) for name in names}
        self._features = self._all_features()
        board.faults.know(*FAULTS)
        cells.on_write(MESSAGE, self._message)
        cells.on_write(DEBUG_MESSAGE, self._debug_message)
        self._flags = next(name for name in FLAGS if name in cells)
        self._publish(cells.address(self._flags))
        self._generation = 0
        self._forget()

    def _publish(self, flags: int) -> None:
        """Map the flags, at the byte address `flags`, and their page to where hosts read them over SMN."""
        cells, space = self.cells, self.board.space
        first = PUBLIC_ALIAS | flags & (ALIAS_BYTES - 1) & ~0xFFF
        offset = first - (flags & ~0xFFF)
        # some chips have them there
        if not offset:
            return
        space.door(self.row.flags_address, 4, lambda _: cells.read(flags), lambda _, value: cells.write(flags, value))
        space.door(
            first,
            0x1000,
            lambda address: cells.read(address - offset),
            lambda address, value: cells.write(address - offset, value),
        )

    def _forget(self) -> None:
        self.running = False
        self._busy = False
        self.driver_address, self.tools_address = 0, 0
        self.allowed_features = 0
        self.workload = 0
        self.powered: set[tuple[str, int]] = set()
        self.baco = False
        self.tables = self._board_tables()
        self._metrics_counter = 0

    def _all_features(self) -> int:
        return smu_tables.features(self.row.interface)

    def _board_tables(self) -> dict[int, bytes]:
        return {smu.TABLE_PPTABLE: smu_tables.pptable(self.row)}

    def reset(self) -> None:
        """Return to a chip without this firmware. The block's registers are reset too."""
        self._generation += 1
        self._forget()
        self.power.reset()
        self.cells[self._flags] = 0

    def firmware_loaded(self, fw_type: int, image: bytes) -> None:
        """Start once the PSP has loaded the SMU's firmware."""
        if fw_type == psp.GFX_FW_TYPE_SMU:
            generation = self._generation
            self.board.clock.after(BOOT_US, lambda: self._start(generation))

    def _start(self, generation: int) -> None:
        if generation == self._generation:
            self.running = True
            self.cells.put(self._flags, INTERRUPTS_ENABLED=1)
            self.board.log.note("smu", "boot", "firmware {:#x} runs", self.row.firmware_version)

    # --- mailbox ------------------------------------------------------------------------------------------------
    def _message(self, number: int) -> None:
        """Handle a message. A message before the answer to the last one is lost, as is one without firmware."""
        if not self.running or self.board.faults.get("smu_silent") is not None:
            self.board.log.note("smu", "message", "{:#x} gets no answer", number)
            return
        if self._busy:
            self.board.log.note("smu", "violation", "message {:#x} before the last one was answered", number)
            return
        if self.cells[ANSWER]:
            self.board.log.note("smu", "violation", "message {:#x} while C2PMSG_90 still holds an answer", number)
        self._busy = True
        generation, argument = self._generation, self.cells[ARGUMENT]

        def finish() -> None:
            if generation == self._generation:
                self._busy = False
                self._answer(number, argument)

        slow = self._messages.get(number) in SLOW
        self.board.clock.after(TABLE_US if slow else ANSWER_US, finish)

    def _answer(self, number: int, argument: int) -> None:
        try:
            result = self._do(number, argument)
        except Refused as refused:
            self.board.log.note(
                "smu", "refused", "message {:#x}({:#x}): {:#x}: {}", number, argument, refused.answer, refused
            )
            self.cells[ANSWER] = refused.answer
        except VmFault as fault:
            self.board.log.note("smu", "violation", "message {:#x}({:#x}): {}", number, argument, fault)
            self.cells[ANSWER] = smu.PPSMC_Result_Failed
        else:
            self.cells[ARGUMENT] = result & 0xFFFF_FFFF
            self.cells[ANSWER] = smu.PPSMC_Result_OK
            self.board.log.note("smu", "message", "{:#x}({:#x}) = {:#x}", number, argument, result)

    def _do(self, number: int, argument: int) -> int:
        injected = self.board.faults.get("smu_answer")
        if injected is not None:
            raise Refused(injected & 0xFF, "an injected fault")
        name = self._messages.get(number, "")
        handler = self.messages.get(name)
        if name in self.state_only:
            return 0
        if handler is None:
            raise Refused(smu.PPSMC_Result_UnknownCmd, "this firmware has no such message")
        if self.baco and name != "ExitBaco":
            raise prerequisite("the chip is off (BACO)")
        self.power.advance()
        return handler(self, argument) or 0

    def _debug_message(self, number: int) -> None:
        if self.running and self.row.debug_messages:
            self.board.clock.after(ANSWER_US, lambda: self._debug_answer(number))

    def _debug_answer(self, number: int) -> None:
        known = number in self.row.debug_messages
        self.cells[DEBUG_ANSWER] = smu.PPSMC_Result_OK if known else smu.PPSMC_Result_UnknownCmd
        if number == DEBUG_MODE1_RESET:
            self._mode1(0)

    # --- messages -----------------------------------------------------------------------------------------------
    def _test(self, argument: int) -> int:
        return argument + 1

    def _allow(self, argument: int, shift: int) -> None:
        mask = 0xFFFF_FFFF << shift
        self.allowed_features = self.allowed_features & ~mask | argument << shift

    def _enable(self, wanted: int, on: bool) -> None:
        if on:
            self.power.features |= wanted & self._features & self.allowed_features
        else:
            self.power.features &= ~wanted

    def _address(self, name: str, argument: int, shift: int) -> None:
        mask = 0xFFFF_FFFF << shift
        setattr(self, name, getattr(self, name) & ~mask | argument << shift)

    def _to_dram(self, argument: int) -> None:
        """Write a table to the driver's address."""
        data = self._table(argument & 0xFFFF)
        self._hub.write(0, self._driver_address(), data, CLIENT)

    def _from_dram(self, argument: int) -> None:
        """Read a table from the driver's address."""
        number = argument & 0xFFFF
        name = WRITABLE.get(number)
        if name is None:
            raise failed(f"table {number} cannot be written by the driver")
        data = self._hub.read(0, self._driver_address(), self._size(name), CLIENT)
        if number == smu.TABLE_PPTABLE and not any(data):
            self.board.log.note("smu", "pptable", "the driver's table is all zeros: the board's own table stays")
            return
        if number == smu.TABLE_OVERDRIVE:
            self._overdrive(data)
        self.tables[number] = data

    def _driver_address(self) -> int:
        if not self.driver_address:
            raise prerequisite("no driver table address was set")
        return self.driver_address

    def _table(self, number: int) -> bytes:
        if number == smu.TABLE_SMU_METRICS:
            self._metrics_counter += 1
            return self.power.metrics(self._metrics_counter)
        if number == smu.TABLE_COMBO_PPTABLE:
            return smu_tables.combo(self.row, self.tables[smu.TABLE_PPTABLE])
        if number in self.tables:
            return self.tables[number]
        name = WRITABLE.get(number) or READABLE.get(number)
        if name is None:
            raise failed(f"there is no table {number}")
        return bytes(self._size(name))

    def _size(self, layout: str) -> int:
        size: int = getattr(self.row.interface, layout).SIZE
        return size

    def _clock(self, argument: int) -> tuple[int, int]:
        """Split `clock << 16 | value`."""
        clock, value = argument >> 16, argument & 0xFFFF
        if clock not in self.row.frequencies:
            raise failed(f"there is no clock {clock}")
        return clock, value

    def _limit(self, argument: int, hard: bool, upper: bool) -> None:
        clock, frequency = self._clock(argument)
        table = self.row.frequencies[clock]
        if not table[0] <= frequency <= table[-1] and frequency not in (0, 0xFFFF):
            self.board.log.note(
                "smu", "clamped", "clock {} to {} MHz: it runs from {} to {}", clock, frequency, table[0], table[-1]
            )
        chosen = self.power.limits.hard if hard else self.power.limits.soft
        low, high = chosen.get(clock, (0, 0))
        chosen[clock] = (low, frequency) if upper else (frequency, high)

    def _level(self, argument: int) -> int:
        """Return the frequency of a level; for level 0xff, the number of levels."""
        clock, index = self._clock(argument)
        table = self.row.frequencies[clock]
        if index == 0xFF:
            return len(table) | (FINE_GRAINED if clock in self.row.fine_grained else 0)
        if index >= len(table):
            raise failed(f"clock {clock} has {len(table)} levels, not {index + 1}")
        return table[index]

    def _lowest(self, argument: int) -> int:
        return self.row.frequencies[self._clock(argument)[0]][0]

    def _highest(self, argument: int) -> int:
        return self.row.frequencies[self._clock(argument)[0]][-1]

    def _set_power_limit(self, argument: int) -> None:
        """Set a power limit within the table's MsgLimits. Bits 31:16 choose the throttler; only 0 has a limit of its
        own.

        Higher limits need the overdrive table: smu_v13_0_0_ppt.c, set_power_limit.
        """
        watts = argument & 0xFFFF
        low, high = self.row.power_limit * (100 - self.row.power_limit_percent[0]) // 100, self.row.power_limit
        if not low <= watts <= high:
            raise failed(f"a power limit of {watts} W; the board allows {low} to {high}")
        self.power.message_limit = watts

    def _overdrive(self, data: bytes) -> None:
        """Apply the power limit of an overdrive table. The parts for clocks and fan are kept without effect."""
        # a view of a part does not keep the memory alive
        whole = self.row.interface.OverDriveTableExternal_t.view(bytearray(data))
        table = whole.OverDriveTable
        if not table.FeatureCtrlMask >> self.row.interface.PP_OD_FEATURE_PPT_BIT & 1:
            return
        below, above = self.row.power_limit_percent
        if not -below <= table.Ppt <= above:
            raise failed(f"an overdrive of {table.Ppt} % power; the board allows {-below} to {above}")
        self.power.overdrive_percent = table.Ppt

    def _power_domain(self, name: str, argument: int, on: bool) -> None:
        domain = (name, argument >> 16)
        (self.powered.add if on else self.powered.discard)(domain)

    def _gfxoff(self, allowed: bool) -> None:
        self.power.gfxoff_allowed = allowed

    def _enter_baco(self, argument: int) -> None:
        if not self.power.features >> self.row.interface.FEATURE_BACO_BIT & 1:
            raise prerequisite("the BACO feature does not run")
        self.baco = True

    def _exit_baco(self, argument: int) -> None:
        self.baco = False

    def _mode1(self, argument: int) -> None:
        self.board.clock.after(MODE1_RESET_US, self._reset_all_else)

    def _reset_all_else(self) -> None:
        """Reset the card in mode 1; the answer to the message that asked for it stays.

        GUESS: amdgpu waits for that answer (smu_v13_0_6_ppt.c, mode1_reset), as other drivers do for the answer to the
        message for debugging, and a host that reads late finds it.
        """
        answers = {name: self.cells[name] for name in (ANSWER, DEBUG_ANSWER)}
        self._reset_card()
        for name, answer in answers.items():
            self.cells[name] = answer


Handler = Callable[[Smu, int], "int | None"]
MESSAGES: dict[str, Handler] = {
    "TestMessage": Smu._test,
    "GetSmuVersion": lambda s, a: s.row.firmware_version,
    "GetDriverIfVersion": lambda s, a: s.row.interface_version,
    "SetAllowedFeaturesMaskLow": lambda s, a: s._allow(a, 0),
    "SetAllowedFeaturesMaskHigh": lambda s, a: s._allow(a, 32),
    "EnableAllSmuFeatures": lambda s, a: s._enable((1 << 64) - 1, True),
    "DisableAllSmuFeatures": lambda s, a: s._enable((1 << 64) - 1, False),
    "EnableSmuFeaturesLow": lambda s, a: s._enable(a, True),
    "EnableSmuFeaturesHigh": lambda s, a: s._enable(a << 32, True),
    "DisableSmuFeaturesLow": lambda s, a: s._enable(a, False),
    "DisableSmuFeaturesHigh": lambda s, a: s._enable(a << 32, False),
    "GetRunningSmuFeaturesLow": lambda s, a: s.power.features & 0xFFFF_FFFF,
    "GetRunningSmuFeaturesHigh": lambda s, a: s.power.features >> 32,
    "SetDriverDramAddrHigh": lambda s, a: s._address("driver_address", a, 32),
    "SetDriverDramAddrLow": lambda s, a: s._address("driver_address", a, 0),
    "SetToolsDramAddrHigh": lambda s, a: s._address("tools_address", a, 32),
    "SetToolsDramAddrLow": lambda s, a: s._address("tools_address", a, 0),
    "TransferTableSmu2Dram": Smu._to_dram,
    "TransferTableDram2Smu": Smu._from_dram,
    "EnterBaco": Smu._enter_baco,
    "ExitBaco": Smu._exit_baco,
    "SetSoftMinByFreq": lambda s, a: s._limit(a, hard=False, upper=False),
    "SetSoftMaxByFreq": lambda s, a: s._limit(a, hard=False, upper=True),
    "SetHardMinByFreq": lambda s, a: s._limit(a, hard=True, upper=False),
    "SetHardMaxByFreq": lambda s, a: s._limit(a, hard=True, upper=True),
    "GetMinDpmFreq": Smu._lowest,
    "GetMaxDpmFreq": Smu._highest,
    "GetDcModeMaxDpmFreq": Smu._highest,
    "GetDpmFreqByIndex": Smu._level,
    "SetWorkloadMask": lambda s, a: setattr(s, "workload", a),
    "AllowGfxOff": lambda s, a: s._gfxoff(True),
    "DisallowGfxOff": lambda s, a: s._gfxoff(False),
    "PowerUpVcn": lambda s, a: s._power_domain("vcn", a, True),
    "PowerDownVcn": lambda s, a: s._power_domain("vcn", a, False),
    "PowerUpJpeg": lambda s, a: s._power_domain("jpeg", a, True),
    "PowerDownJpeg": lambda s, a: s._power_domain("jpeg", a, False),
    "Mode1Reset": Smu._mode1,
    "SetPptLimit": Smu._set_power_limit,
    "GetPptLimit": lambda s, a: s.power.power_limit,
}
STATE_ONLY = frozenset({  # accepted, without any effect that the model shows
    "RunDcBtc", "UseDefaultPPTable", "OverridePcieParameters", "NotifyPowerSource",
    "ReenableAcDcInterrupt", "SetMGpuFanBoostLimitRpm", "PrepareMp1ForUnload",
    "DALNotPresent", "EnableUCLKShadow", "AllowIHHostInterrupt", "SetGpoAllow",
    "SetExternalClientDfCstateAllow", "ArmD3", "BacoAudioD3PME",
    "SetNumBadMemoryPagesRetired", "SetBadMemoryPagesRetiredFlagsPerChannel",
    "DramLogSetDramAddrHigh", "DramLogSetDramAddrLow", "DramLogSetDramSize",
    "SetSystemVirtualDramAddrHigh", "SetSystemVirtualDramAddrLow", "SetFwDstatesMask",
    "SetThrottlerMask", "SetVideoFps", "SetTemperatureInputSelect", "AllowGfxDcs",
    "DisallowGfxDcs", "EnableAudioStutterWA", "SetDcsArch", "SetPriorityDeltaGain",
})  # fmt: skip
WRITABLE = {  # tables that a driver may write, with their layouts
    smu.TABLE_PPTABLE: "PPTable_t",
    smu.TABLE_WATERMARKS: "WatermarksExternal_t",
    smu.TABLE_DRIVER_SMU_CONFIG: "DriverSmuConfigExternal_t",
    smu.TABLE_ACTIVITY_MONITOR_COEFF: "DpmActivityMonitorCoeffIntExternal_t",
    smu.TABLE_OVERDRIVE: "OverDriveTableExternal_t",
}
READABLE = {
    smu.TABLE_AVFS_PSM_DEBUG: "AvfsDebugTableExternal_t",
    smu.TABLE_DRIVER_INFO: "DriverInfoTable_t",
    smu.TABLE_ECCINFO: "EccInfoTable_t",
}
Smu.messages, Smu.state_only = MESSAGES, STATE_ONLY
