"""The releases of the firmware: which layouts its messages have.

`layouts`: the release whose generated rows apply. A comparison of the headers of 535.113.01 and 535.261.03 (SDK
controls, rpc structures, static configuration, queues) finds two differences in what is used here: the end of
GspSystemInfo, and RC_TRIGGERED, which is in 535.113.01 as it is in 545. One of 570.144 and 570.195.03 finds the end of
GspSystemInfo only. Since 550 the shader masks are not in the static information; drivers ask by controls.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Release:
    """One firmware. `rc_layout`: the release whose RC_TRIGGERED applies. `system_info_bytes`: of GspSystemInfo. `vgx`:
    the version that both sides compare, VGX_MAJOR_VERSION_NUMBER and VGX_MINOR_VERSION_NUMBER of vgpu_version.h.
    """

    name: str
    layouts: str
    rc_layout: str
    system_info_bytes: int
    vgx: tuple[int, int]


ROWS = {
    row.name: row
    for row in (
        # what nouveau 6.12 loads
        Release("535.113.01", "535.261.03", "545.29.06", 664, (0x23, 0x05)),
        # what NVIDIA's open kernel modules of Debian 12 load
        Release("535.261.03", "535.261.03", "535.261.03", 672, (0x23, 0x05)),
        # what nouveau of later kernels loads
        Release("570.144", "570.195.03", "570.195.03", 928, (0x29, 0x0C)),
    )
}
