"""Power controller (SMU, MP1): clocks, voltages, power, fan and heat are its firmware's; the driver starts that, sets
bounds, and reads tables.

The security processor loads its firmware. Tables are copied by DMA through one place in VRAM, whose address the driver
sends. By default the firmware chooses clocks by load; `quiet` holds them at the lowest, `automatic` ends that.

Source: amdgpu amdgpu_smu.c, smu_smc_hw_setup; smu_v13_0.c; smu_cmn.c; smu_v13_0_0_ppt.c; smu_v13_0_7_ppt.c;
smu_v14_0_2_ppt.c.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cached_property
from types import ModuleType

from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.registers import Block, Version
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.smu.mailbox import TIMEOUT_US, SmuMailbox
from ringup.drivers.amd.smu.rows import row
from ringup.drivers.amd.smu.tables import (
    MAX_MHZ,
    MAX_W,
    MAY_HAVE_MOVED,
    Limits,
    Metrics,
    decode_limits,
    decode_metrics,
    metrics_bytes,
    power_table,
    sifted,
    with_board,
)
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceFault, DeviceTimeout, NotSupported
from ringup.firmware.stated import named, within

LOG = logging.getLogger(__name__)
TABLE_BYTES = 0x4000  # the largest table: MP0_MP1_DATA_REGION_SIZE_COMBOPPTABLE of smu_v13_0_0_ppt.c
RUNNING = 0x1  # MP1_FIRMWARE_FLAGS.INTERRUPTS_ENABLED: smu_v13_0.c, smu_v13_0_check_fw_status
# TIMEOUT: amdgpu asks once, hundreds of milliseconds behind the load; here the load may just have ended
START_TIMEOUT_US = 100_000
START_POLL_US = 500
LOW = 0xFFFF_FFFF
PING_US = 100_000  # TIMEOUT: ours; any message is answered within some milliseconds
MAX_LEVELS = 64  # ours; no clock has more than 16. Source: smu_v13_0.h, MAX_DPM_LEVELS
LEVELS = 0xFF  # GetDpmFreqByIndex of this level counts them
# a pin tells the firmware of mains or battery: PP_PLATFORM_CAP_HARDWAREDC of smu_v13_0_0_pptable.h and its neighbours
HARDWAREDC = 0x4
MODE1_BY_DEBUG = 2  # DEBUGSMC_MSG_Mode1Reset of smu_v13_0_0_ppt.c and smu_v14_0_2_ppt.c
FREQUENCY = 0x7FFF_FFFF  # bit 31 of a level: the levels are the only frequencies
CLOCKS = {"gfx": "GFXCLK", "memory": "UCLK", "fabric": "FCLK", "soc": "SOCCLK"}
# the feature that moves a clock
DPM = {
    "gfx": "DPM_GFXCLK",
    "memory": "DPM_UCLK",
    "fabric": "DPM_FCLK",
    "soc": "DPM_SOCCLK",
}
PROFILES = {
    "default": "DEFAULT",
    "power saving": "POWER_SAVING",
    "compute": "COMPUTE",
    "full screen 3d": "FULL_SCREEN_3D",
    "video": "VIDEO",
    "vr": "VR",
}


class Smu:
    """The power controller of one card. Needs its firmware loaded, VRAM and the host data path."""

    def __init__(
        self, block: Block, version: Version, window: VramWindow, hdp: Hdp, table_pa: int, fb_base: int
    ) -> None:
        """`table_pa` is the vram_pa of 16 KiB on a page, which the controller uses as long as the card is powered."""
        self.row = row(version)
        self.mailbox = SmuMailbox(block)
        self.firmware_version = self.interface = 0  # 0: not asked for yet
        # what the tables state and cannot be
        self.doubts: tuple[str, ...] = ()
        self.features = 0
        self._block, self._window, self._hdp = block, window, hdp
        self._table_pa, self._fb_base = table_pa, fb_base
        self._power_table = b""
        self._levels: dict[str, tuple[int, ...]] = {}

    @cached_property
    def facts(self) -> ModuleType:
        """Messages and tables of this version."""
        return self.row.module

    @property
    def running(self) -> bool:
        """Whether the controller's firmware runs and takes messages."""
        return bool(self._block.registers.read(self.row.flags) & RUNNING)

    def start(self, board_table: bytes | None, *, signed: bool) -> None:
        """Let the firmware manage the card. Left up: all allowed features run; clocks follow the load.

        `board_table` is the VBIOS's `smc_dpm_info` after its header; `signed`: the security processor passes the tables
        (`psp_runtime`). Without a `board_table` the firmware keeps its own. Raises `DeviceTimeout` when the firmware
        does not run, and what `SmuMailbox.send` raises.
        """
        self._wait_running()
        self._take_up()
        if self.row.writes_power_table and not signed:
            # written back it would leave the card without limits
            if not any(self._power_table) or _ones(self._power_table):
                LOG.warning("the power controller gave an empty power table; it keeps its own")
            elif (
                board_table is not None and not _ones(board_table) and len(board_table) >= self.facts.BoardTable_t.SIZE
            ):
                self._write_table(self.facts.TABLE_PPTABLE, with_board(self.row, self._power_table, board_table))
            else:  # GUESS: the firmware's own table is enough; amdgpu gives up here
                LOG.warning(
                    "no power table of this board (smc_dpm_info) was found in a VBIOS; the firmware keeps its own"
                )
        self.send("RunDcBtc")
        if not signed:
            allowed = self.row.features(self.firmware_version)
            self.send("SetAllowedFeaturesMaskHigh", allowed >> 32)
            self.send("SetAllowedFeaturesMaskLow", allowed & LOW)
        self.send("EnableAllSmuFeatures", self.facts.FEATURE_PWR_ALL)
        self._read_features()
        if self.row.no_display:
            # else the firmware may hold the memory clock for a display driver that never comes
            self._optional("DALNotPresent")
        if self.row.told_of_mains:
            self._tell_power_source()

    def attach(self) -> None:
        """Use the firmware that an earlier process started. Raises what `SmuMailbox.send` raises."""
        self._take_up()
        self._read_features()

    def _tell_power_source(self) -> None:
        """Report mains power to the firmware: it may have started with the limits for a battery.

        Source: amdgpu_smu.c, smu_set_ac_dc, which looks at the computer's battery; cards in slots and enclosures have
        none.
        """
        if power_table(self.row).view(bytearray(self._power_table)).platform_caps & HARDWAREDC:
            return
        try:
            self.send("NotifyPowerSource", self.facts.POWER_SOURCE_AC)
        except (DeviceFault, NotSupported) as error:  # amdgpu goes on as well
            LOG.info("%s", error)

    def _take_up(self) -> None:
        """Read versions, send the address for tables, read the card's limits."""
        self.ask_versions()
        self._place_tables()
        self._power_table = self._read_table(self.facts.TABLE_COMBO_PPTABLE, power_table(self.row).SIZE)
        self.__dict__.pop("limits", None)
        self._levels.clear()

    def _place_tables(self) -> None:
        """Send the address for tables."""
        at = self._fb_base + self._table_pa
        self.send("SetDriverDramAddrHigh", at >> 32)
        self.send("SetDriverDramAddrLow", at & LOW)

    def ask_versions(self, timeout_us: int = TIMEOUT_US) -> None:
        """Ask which firmware runs and which interface it speaks; nothing is changed. Raises what `SmuMailbox.send`
        raises.
        """
        self.interface = self.ask("GetDriverIfVersion", timeout_us=timeout_us)
        self.firmware_version = self.ask("GetSmuVersion", timeout_us=timeout_us)

    @property
    def mismatch(self) -> str:
        """A text if the firmware's interface is not the one of the driver's tables; empty if it is, or was not read.

        Source: amdgpu smu_v13_0.c, smu_v13_0_check_fw_version: the firmware stays compatible, so a mismatch is reported
        and is no error.
        """
        if self.interface in (0, self.row.interface):
            return ""
        return (
            f"the power controller's firmware {self.firmware_version:#x} speaks interface {named(self.interface)}, the driver's tables are of "
            f"{self.row.interface:#x}: {MAY_HAVE_MOVED}"
        )

    def ping(self) -> None:
        """Send a message and wait at most `PING_US` for its answer; `mailbox.heard` records the outcome."""
        with suppress(DeviceTimeout, DeviceFault, NotSupported):
            self.mailbox.send(self.facts.PPSMC_MSG_TestMessage, 1, name="TestMessage", timeout_us=PING_US)

    def stop(self) -> None:
        """Leave the card cold: clocks at their lowest, default workload profile. The firmware runs on, with fan and
        limits.
        """
        self.workload("default")
        self.quiet()

    @cached_property
    def limits(self) -> Limits:
        """The card's limits."""
        if not self._power_table:
            raise ValueError("the power controller has not been started")
        limits, self.doubts = sifted(decode_limits(self.row, self._power_table), "the power table")
        return limits

    def metrics(self) -> Metrics:
        """Return the card's metrics now."""
        return decode_metrics(self.row, self.metrics_table())

    def metrics_table(self) -> bytes:
        """Return the table that `decode_metrics` reads, fresh from the controller."""
        return self._read_table(self.facts.TABLE_SMU_METRICS, metrics_bytes(self.row))

    def clocks(self, name: str) -> tuple[int, ...]:
        """Return the frequencies of `gfx`, `memory`, `fabric` or `soc` in MHz, lowest first. `gfx` has two: any
        frequency between them is possible.
        """
        if name not in CLOCKS:
            raise ValueError(f"there is no clock {name!r}; there are {', '.join(CLOCKS)}")
        if name not in self._levels:
            clock = self._clock(name)
            what = f"the power controller's answer to GetDpmFreqByIndex for the {name} clock"
            count = self.ask("GetDpmFreqByIndex", clock << 16 | LEVELS) & FREQUENCY
            within(count, 0, MAX_LEVELS, f"{what}, the number of levels,", error=DeviceFault)
            levels = [
                within(
                    self.ask("GetDpmFreqByIndex", clock << 16 | level) & FREQUENCY, 0, MAX_MHZ, f"{what}, level {level} in MHz,",
                    error=DeviceFault,
                )
                for level in range(count)
            ]  # fmt: skip
            self._levels[name] = tuple(sorted(levels))
        return self._levels[name]

    def set_clock_range(self, name: str, min_mhz: int, max_mhz: int, *, hard: bool = False) -> None:
        """Keep a clock between two frequencies, both within `clocks(name)`. Heat and power limits still lower it.

        `hard` bounds also hold against requests of other parts of the firmware.
        """
        levels = self.clocks(name)
        if not levels or not levels[0] <= min_mhz <= max_mhz <= levels[-1]:
            bounds = f"{levels[0]} to {levels[-1]} MHz" if levels else "nothing"
            raise ValueError(f"the {name} clock takes {bounds}, not {min_mhz} to {max_mhz}")
        kind = "Hard" if hard else "Soft"
        # ORDER: the upper bound first, as amdgpu does (smu_v13_0_set_soft_freq_limited_range)
        self.send(f"Set{kind}MaxByFreq", self._clock(name) << 16 | max_mhz)
        self.send(f"Set{kind}MinByFreq", self._clock(name) << 16 | min_mhz)

    def automatic(self) -> None:
        """Let every clock follow the load."""
        for name in self._moved():
            levels = self.clocks(name)
            self._hold(name, levels[0], levels[-1])

    def quiet(self) -> None:
        """Hold every clock at its lowest."""
        for name in self._moved():
            lowest = self.clocks(name)[0]
            self._hold(name, lowest, lowest)

    def _hold(self, name: str, min_mhz: int, max_mhz: int) -> None:
        """Keep a clock between two frequencies if the firmware accepts that: some firmware refuses a lower bound, and
        neither start nor stop needs it.
        """
        try:
            self.set_clock_range(name, min_mhz, max_mhz)
        except (DeviceFault, NotSupported) as error:
            LOG.info("%s", error)

    @property
    def power_limit_w(self) -> int:
        """The power limit in watts."""
        watts = self.ask("GetPptLimit", self.facts.POWER_SOURCE_AC << 16)
        return within(watts, 0, MAX_W, "the power controller's answer to GetPptLimit, in watts,", error=DeviceFault)

    def set_power_limit(self, power_w: int) -> None:
        """Set the power limit, between `limits.power_min_w` and `limits.power_max_w`."""
        limits = self.limits
        if not limits.power_min_w <= power_w <= limits.power_max_w:
            raise ValueError(f"the power limit takes {limits.power_min_w} to {limits.power_max_w} W, not {power_w}")
        if not self._runs(self.row.throttlers):
            raise NotSupported("the power controller does not limit power: its throttlers are off")
        self.send("SetPptLimit", power_w)

    def workload(self, profile: str) -> None:
        """Set the workload profile: `default`, `compute`, `power saving`, `full screen 3d`, `video` or `vr`."""
        if profile not in PROFILES:
            raise ValueError(f"there is no workload {profile!r}; there are {', '.join(PROFILES)}")
        mask = 1 << self._workload_bit(profile)
        since = self.row.power_saving_since
        if profile == "compute" and since and (self.firmware_version in since or self.firmware_version >= since[-1]):
            # smu_v13_0_0_ppt.c, smu_v13_0_0_set_power_profile_mode
            mask |= 1 << self._workload_bit("power saving")
        # ORDER: the features first, as amdgpu does (smu_v14_0_2_set_power_profile_mode)
        self._let_sleep(profile != "compute")
        self._optional("SetWorkloadMask", mask)

    def _let_sleep(self, sleep: bool) -> None:
        """Let idle clocks sleep, or keep them awake, where the workload decides that. It is a hint as the workload is:
        a refusal stops nothing.
        """
        mask = self.row.sleeps & self.row.features(self.firmware_version)
        if not mask:
            return
        verb = "Enable" if sleep else "Disable"
        try:
            self.send(f"{verb}SmuFeaturesLow", mask & LOW)
            self.send(f"{verb}SmuFeaturesHigh", mask >> 32)
        except (DeviceFault, NotSupported) as error:
            LOG.info("%s", error)

    def tell_mode1_reset(self) -> int:
        """Request a reset of the whole card except its bus interface; return the microseconds during which the card
        must not be accessed.

        Raises `NotSupported` when the firmware does not run or does not support it.
        """
        if not self.running and not self._listens():
            raise NotSupported(
                "the power controller's firmware does not run, so it cannot reset the card; reset its slot or power it off"
            )
        version = self.firmware_version or self.ask("GetSmuVersion")
        if version < self.row.mode1_since:
            raise NotSupported(
                f"SMU firmware {version:#x} cannot reset the card, {self.row.mode1_since:#x} and later can"
            )
        name, argument = self.row.mode1_message
        message = MODE1_BY_DEBUG if self.row.mode1_debug else getattr(self.facts, f"PPSMC_MSG_{name}")
        self.mailbox.tell(message, argument, debug=self.row.mode1_debug)
        return self.row.mode1_us

    def tell_mode2_reset(self) -> int:
        """Request a reset of the engines, which memory and firmware processors survive; return the microseconds during
        which the card must not be accessed. `hear_mode2_reset` comes next.

        Raises `NotSupported` when the firmware does not run or has no such reset.
        """
        if not self.row.mode2:
            raise NotSupported("the power controller of this card resets no engines alone")
        if not self.running and not self._listens():
            raise NotSupported("the power controller's firmware does not run, so it cannot reset the engines")
        self.mailbox.tell(self.facts.PPSMC_MSG_GfxDriverReset, self.row.mode2)
        return self.row.mode2_us

    def hear_mode2_reset(self) -> None:
        """Wait for the response to `tell_mode2_reset`. Raises what `SmuMailbox.send` raises."""
        self.mailbox.hear(f"SMU message GfxDriverReset({self.row.mode2:#x})")

    def end_mode2_reset(self) -> None:
        """Tell the firmware that the engines have their own again, and wait until it has ended the reset."""
        self.send("GfxDriverResetRecovery")

    def _listens(self) -> bool:
        """Whether the mailbox answers although the flags say that no firmware runs: an earlier driver may have stopped
        it.
        """
        try:
            self.firmware_version = self.ask("GetSmuVersion")
        except (DeviceTimeout, DeviceFault, NotSupported) as error:
            LOG.info("%s", error)
            return False
        return True

    def send(self, name: str, argument: int = 0) -> None:
        """Send `PPSMC_MSG_<name>` and wait until it is done."""
        self.mailbox.send(getattr(self.facts, f"PPSMC_MSG_{name}"), argument, name=name)

    def ask(self, name: str, argument: int = 0, timeout_us: int = TIMEOUT_US) -> int:
        """Send `PPSMC_MSG_<name>` and return what it answers."""
        return self.mailbox.ask(getattr(self.facts, f"PPSMC_MSG_{name}"), argument, name=name, timeout_us=timeout_us)

    def _optional(self, name: str, argument: int = 0) -> None:
        """Send a message that older firmware may not know."""
        try:
            self.send(name, argument)
        except NotSupported as error:
            LOG.info("%s", error)

    def _wait_running(self) -> None:
        clock = self._block.registers.clock
        if not poll(lambda: self.running, bool, clock=clock, timeout_us=START_TIMEOUT_US, poll_us=START_POLL_US):
            flags = self._block.registers.read(self.row.flags)
            raise DeviceTimeout(
                f"starting the power controller: its firmware does not run (flags {flags:#x}) {START_TIMEOUT_US / 1000:g} ms after it was "
                "loaded; take firmware files made for this card"
            )

    def _read_features(self) -> None:
        self.features = self.ask("GetRunningSmuFeaturesLow") | self.ask("GetRunningSmuFeaturesHigh") << 32

    def _runs(self, feature: str) -> bool:
        return bool(self.features >> self.row.feature_bit(feature) & 1)

    def _clock(self, name: str) -> int:
        return int(getattr(self.facts, f"PPCLK_{CLOCKS[name]}"))

    def _workload_bit(self, profile: str) -> int:
        return int(getattr(self.facts, f"WORKLOAD_PPLIB_{PROFILES[profile]}_BIT"))

    def _moved(self) -> list[str]:
        """Return the clocks that the firmware changes and has frequencies for."""
        return [name for name in CLOCKS if self._runs(DPM[name]) and self.clocks(name)]

    def _read_table(self, table: int, size_bytes: int) -> bytes:
        self.send("TransferTableSmu2Dram", table)
        return self._window.read(self._table_pa, size_bytes)

    def _write_table(self, table: int, data: bytes) -> None:
        self._window.write(self._table_pa, data)
        self._hdp.flush()
        self.send("TransferTableDram2Smu", table)


def _ones(table: bytes) -> bool:
    """Whether a table is all ones, as reads without an answer are. Written back it would remove the card's limits."""
    return table.count(0xFF) == len(table)
