"""A rung of the ladder: a user's watcher, nvtop of Debian 13, reads the card, and says what the kernel's own files
say.
"""

from __future__ import annotations

import json
import re

from machine import Guest

DEVICE = "/sys/class/drm/card0/device"
FILES = {  # what nvtop tells, and where the kernel tells it
    "gpu_clock": f"{DEVICE}/hwmon/hwmon*/freq1_input",
    "mem_clock": f"{DEVICE}/hwmon/hwmon*/freq2_input",
    "temp": f"{DEVICE}/hwmon/hwmon*/temp1_input",
    "fan_speed": f"{DEVICE}/hwmon/hwmon*/pwm1",
    "power_draw": f"{DEVICE}/hwmon/hwmon*/power1_average",
    "gpu_util": f"{DEVICE}/gpu_busy_percent",
    "vram_used": f"{DEVICE}/mem_info_vram_used",
    "vram_total": f"{DEVICE}/mem_info_vram_total",
}
UNITS: dict[
    str, tuple[float, str, int]
] = {  # of the kernel's numbers, and how much nvtop's may be off: it rounds, and asks a little earlier or later
    "gpu_clock": (1e-6, "MHz", 5),
    "mem_clock": (1e-6, "MHz", 5),
    "temp": (1e-3, "C", 1),
    "fan_speed": (100 / 255, "%", 1),
    "power_draw": (1e-6, "W", 5),
    "gpu_util": (1, "%", 3),
}
MOST_MEM_UTIL_OFF = 1  # percent: rounded


def nvtop(guest: Guest, name: str) -> list[str]:
    """Have nvtop take a snapshot of the first card, between two looks at the kernel's files, and return what is wrong.

    `name` is what people call the card. A value must lie between what the two looks saw.
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
