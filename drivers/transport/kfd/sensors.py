"""What amdgpu shows of a card in sysfs: load, memory, power, clocks, temperatures, link. Files are read, nothing else.

Source: Linux Documentation/gpu/amdgpu/thermal.rst; amdgpu_pm.c (hwmon names and units), amdgpu_vram_mgr.c,
amdgpu_gtt_mgr.c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringup.drivers.transport.kfd.topology import Node, bounded_text
from ringup.drivers.transport.linux.kernel import Kernel

HWMON = "hwmon"
MILLI, MICRO, MEGA = 1e-3, 1e-6, 1e-6


@dataclass(frozen=True, slots=True)
class Sensors:
    """The sensors of one card; None for what its driver does not show."""

    busy_percent: int | None
    memory_busy_percent: int | None
    vram_total_bytes: int | None
    vram_used_bytes: int | None
    vram_visible_bytes: int | None
    gtt_total_bytes: int | None
    gtt_used_bytes: int | None
    power_w: float | None
    power_limit_w: float | None
    core_clock_mhz: float | None
    memory_clock_mhz: float | None
    edge_c: float | None
    hotspot_c: float | None
    memory_c: float | None
    fan_rpm: int | None
    core_v: float | None
    link: str


def read(node: Node) -> Sensors:
    """Read the sensors of a node's card."""
    kernel, device = node.kernel, node.function.path
    hwmon = next(iter(kernel.names(device / HWMON)), "")

    def file(name: str) -> int | None:
        text = bounded_text(device / name)
        return int(text) if text.isdecimal() and len(text) < 20 else None

    def sensor(name: str, scale: float, more: str = "") -> float | None:
        raw = next((raw for one in (name, more) if one and (raw := file(f"{HWMON}/{hwmon}/{one}")) is not None), None)
        return None if raw is None or not hwmon else raw * scale

    return Sensors(
        busy_percent=file("gpu_busy_percent"),
        memory_busy_percent=file("mem_busy_percent"),
        vram_total_bytes=file("mem_info_vram_total"),
        vram_used_bytes=file("mem_info_vram_used"),
        vram_visible_bytes=file("mem_info_vis_vram_total"),
        gtt_total_bytes=file("mem_info_gtt_total"),
        gtt_used_bytes=file("mem_info_gtt_used"),
        power_w=sensor("power1_average", MICRO, "power1_input"),
        power_limit_w=sensor("power1_cap", MICRO),
        core_clock_mhz=sensor("freq1_input", MEGA),
        memory_clock_mhz=sensor("freq2_input", MEGA),
        **_temperatures(kernel, node, hwmon, sensor),
        fan_rpm=file(f"{HWMON}/{hwmon}/fan1_input") if hwmon else None,
        core_v=sensor("in0_input", MILLI),
        link=_link(node),
    )


# The kernel's labels of temperatures
LABELS = {"edge": "edge_c", "junction": "hotspot_c", "mem": "memory_c"}


def _temperatures(
    kernel: Kernel, node: Node, hwmon: str, sensor: Callable[[str, float], float | None]
) -> dict[str, float | None]:
    """Return the temperatures by what their labels say."""
    found: dict[str, float | None] = dict.fromkeys(LABELS.values())
    for number in (1, 2, 3):
        label = kernel.text(node.function.path / HWMON / hwmon / f"temp{number}_label") if hwmon else ""
        if label in LABELS:
            found[LABELS[label]] = sensor(f"temp{number}_input", MILLI)
    return found


def _link(node: Node) -> str:
    """Return the link's speed and width as the kernel writes them."""
    speed, width = (bounded_text(node.function.path / f"current_link_{part}") for part in ("speed", "width"))
    return f"{speed} x{width}" if speed and width else ""
