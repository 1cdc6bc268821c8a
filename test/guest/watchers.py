"""A rung of the ladder: a user's monitor, nvtop of Debian 13, reads the card, and shows the values of the kernel's own
files.
"""

from __future__ import annotations

import json
import re

from machine import Guest

DEVICE = "/sys/class/drm/card0/device"
FILES = {  # nvtop's name of a value, and the kernel's file for it
    "gpu_clock": f"{DEVICE}/hwmon/hwmon*/freq1_input",
    "mem_clock": f"{DEVICE}/hwmon/hwmon*/freq2_input",
    "temp": f"{DEVICE}/hwmon/hwmon*/temp1_input",
    "fan_speed": f"{DEVICE}/hwmon/hwmon*/pwm1",
    "power_draw": f"{DEVICE}/hwmon/hwmon*/power1_average",
    "gpu_util": f"{DEVICE}/gpu_busy_percent",
    "vram_used": f"{DEVICE}/mem_info_vram_used",
    "vram_total": f"{DEVICE}/mem_info_vram_total",
}
# The units of the kernel's numbers, and how far nvtop's may be off: it rounds, and reads a little earlier or later.
UNITS: dict[str, tuple[float, str, int]] = {
    "gpu_clock": (1e-6, "MHz", 5),
    "mem_clock": (1e-6, "MHz", 5),
    "temp": (1e-3, "C", 1),
    "fan_speed": (100 / 255, "%", 1),
    "power_draw": (1e-6, "W", 5),
    "gpu_util": (1, "%", 3),
}
MOST_MEM_UTIL_OFF = 1  # percent: rounded


def nvtop(guest: Guest, name: str) -> list[str]:
    """Make nvtop take a snapshot of the first card, between two readings of the kernel's files, and return what is
    wrong.

    `name` is the card's product name. A value must lie between the two readings.
    """
    before = _kernel(guest)
    result = guest.trixie("HOME=/run/guest nvtop --snapshot")
    after = _kernel(guest)
    if result.status:
        return [f"nvtop ended with {result.status}: {result.output.strip()}"]
    try:
        said = json.loads(result.output)[0]
    except (ValueError, LookupError):
        return [f"nvtop shows no card: {result.output.strip()}"]
    wrong = []
    if said["device_name"] != name:
        wrong.append(f"the name is {said['device_name']!r}, not {name!r}")
    for key, (scale, unit, off) in UNITS.items():
        least, most = sorted((before[key] * scale, after[key] * scale))
        number = re.fullmatch(rf"(\d+){unit}", said.get(key) or "")
        if number is None or not least - off <= int(number[1]) <= most + off:
            wrong.append(f"{key} is {said.get(key)!r}; the kernel says {least:.1f} to {most:.1f} {unit}")
    parts = sorted(100 * look["vram_used"] / look["vram_total"] for look in (before, after))
    number = re.fullmatch(r"(\d+)%", said.get("mem_util") or "")
    if number is None or not parts[0] - MOST_MEM_UTIL_OFF <= int(number[1]) <= parts[1] + MOST_MEM_UTIL_OFF:
        wrong.append(f"mem_util is {said.get('mem_util')!r}; the kernel says {parts[0]:.1f} to {parts[1]:.1f} %")
    return wrong


def _kernel(guest: Guest) -> dict[str, int]:
    words = guest.check(f"for f in {' '.join(FILES.values())}; do cat $f; done").split()
    return dict(zip(FILES, map(int, words), strict=True))
