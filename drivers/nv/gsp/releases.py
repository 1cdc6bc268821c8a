"""GSP-RM's structs by exact release: the generated rows where they fit, and what the published firmware has otherwise.

GSP's structs move within a branch, and the generated rows are of other releases of it than linux-firmware's files. The
differences were read from both releases' headers. Source: OGKM 535.113.01 and 535.261.03, 570.144 and 570.195.03:
gsp_static_config.h, gsp_fw_wpr_meta.h, gsp_init_args.h, g_rpc-structures.h.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TypeVar, cast

from ringup.autogen.nv import gsp_rpc, gsp_static
from ringup.autogen.nv.by_release import constant as branch_constant
from ringup.autogen.releases import apply_differences
from ringup.autogen.structs import Struct
from ringup.errors import NotSupported

S = TypeVar("S", bound=Struct)
# by release of GSP-RM: the release whose generated rows apply
NEAR: Mapping[str, str] = {
    "535.113.01": "535.261.03",
    "535.261.03": "535.261.03",
    "570.144": "570.195.03",
    "570.195.03": "570.195.03",
}
# by release: (bytes, differences) of the structs that it has otherwise than those rows
OWN: Mapping[str, Mapping[type[Struct], tuple[int, str]]] = {
    "535.113.01": {
        gsp_static.GspSystemInfo: (664, "-virtualConfigBits -bTdrEventSupported bIsPassthru:u8@608"),
        gsp_rpc.rpc_rc_triggered_v17_02: (
            20,
            "-gfid -rcJournalBufferSize -rcJournalBuffer exceptType:u32@8 scope:u32@12 partitionAttributionId:u16@16",
        ),
    },
    "570.144": {gsp_static.GspSystemInfo: (928, "-bGspNocatEnabled -bS0ixSupport -virtualConfigBits")},
}
_MADE: dict[tuple[type[Struct], str], type[Struct]] = {}


def check(release: str) -> None:
    """Raise `NotSupported` for a release of GSP-RM whose structs are not known exactly."""
    if release not in NEAR:
        raise NotSupported(
            f"GSP firmware of release {release}: its structs are not known; known releases: {', '.join(NEAR)}"
        )


def struct(cls: type[S], release: str) -> type[S]:
    """Return a struct as GSP-RM of `release` has it. Raises `NotSupported` for an unknown release."""
    check(release)
    key = (cls, release)
    if key not in _MADE:
        _MADE[key] = _lay_out(cls, release)
    return cast("type[S]", _MADE[key])


def constant(module: types.ModuleType, name: str, release: str) -> int:
    """Return a constant as `release` has it. Raises `NotSupported` for an unknown release."""
    check(release)
    return branch_constant(module, name, NEAR[release])


def _lay_out(cls: type[Struct], release: str) -> type[Struct]:
    near = cls.at(NEAR[release])
    if cls not in OWN.get(release, {}):
        return near
    size, differences = OWN[release][cls]
    members = apply_differences(dict(part.split(":", 1) for part in near.LAYOUT.split()), differences)
    layout = " ".join(f"{name}:{place}" for name, place in members.items())
    body = {"__module__": cls.__module__, "SIZE": size, "LAYOUT": layout, "RELEASE": NEAR[release], "BASE": cls}
    return types.new_class(cls.__name__, (cls,), exec_body=lambda namespace: namespace.update(body))
