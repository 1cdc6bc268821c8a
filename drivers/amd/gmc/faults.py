"""The page faults that a VM hub reports: the address, the client and the cause.

Source: amdgpu gmc_v11_0.c, gmc_v11_0_process_interrupt; gfxhub_v3_0.c, gfxhub_v12_0.c, mmhub_v3_0.c, mmhub_v4_1_0.c,
gmc_v9_0.c, the client tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringup.drivers.amd.bus.registers import Version
from ringup.drivers.amd.gmc.words import FaultStatus

PAGE_BYTES = 4096
GFXHUB, MMHUB = "gfxhub", "mmhub"

_GFX11 = (
    "CB/DB", "", "GE1", "GE2", "CPF", "CPC", "CPG", "RLC", "TCP", "SQC (inst)", "SQC (data)", "SQG", "", "SDMA0", "SDMA1",
    "GCR", "SDMA2", "SDMA3",
)  # fmt: skip
_GFX12 = (
    "CB", "DB", "GE1", "GE2", "CPF", "CPC", "CPG", "RLC", "TCP", "SQC (inst)", "SQC (data)", "SQG/PC/SC", "", "SDMA0", "SDMA1",
    "GCR", "", "", "WGS", "DSM", "PA",
)  # fmt: skip
_GFX9 = ("CB", "DB", "IA", "WD", "CPF", "CPC", "CPG", "RLC", "TCP", "SQC (inst)", "SQC (data)", "SQG", "PA")
# gmc_v9_0.c, mmhub_client_ids_aldebaran: by group of clients, those of a group
_MM1_GROUPS: Mapping[int, Mapping[int, str]] = {
    0: {2: "MP1", 3: "MP0"},
    32: {1: "DBGU_IO0", 2: "DBGU_IO2", 4: "MPIO"},
    96: {11: "JPEG0", 12: "VCN0", 13: "VCNU0"},
    128: {11: "JPEG1", 12: "VCN1", 13: "VCNU1"},
    160: {1: "XDP", 14: "HDP"},
    256: {0: "SDMA0", 1: "SDMA1", 2: "SDMA2", 3: "SDMA3", 4: "SDMA4"},
    384: {0: "OSS"},
}
_MM1 = {group + client: name for group, names in _MM1_GROUPS.items() for client, name in names.items()}
_BOTH_WAYS = {4: "DCEDMC", 6: "MP0", 7: "MP1", 8: "MPIO"}
_MM3_BOTH = _BOTH_WAYS | {
    5: "DCEVGA",
    16: "HDP",
    17: "LSDMA",
    18: "JPEG",
    19: "VCNU0",
    21: "VSCH",
    22: "VCNU1",
    23: "VCN1",
}
_MM3_READ = _MM3_BOTH | {0: "VMC", 52: "VCN0"}
_MM3_WRITE = _MM3_BOTH | {
    2: "DBGUNBIO",
    3: "DCEDWB",
    10: "DBGU0",
    11: "DBGU1",
    12: "DBGU2",
    13: "DBGU3",
    14: "XDP",
    15: "OSSSYS",
    20: "VCN0",
}
_MM4_BOTH = _BOTH_WAYS | {16: "LSDMA", 17: "JPEG", 19: "VCNU", 22: "VSCH", 23: "HDP"}
_MM4_READ = _MM4_BOTH | {0: "VMC", 55: "VCNRD"}
_MM4_WRITE = _MM4_BOTH | {
    3: "DCEDWB",
    10: "DBGU0",
    11: "DBGU1",
    12: "DBGUNBIO",
    14: "XDP",
    15: "OSSSYS",
    18: "VCNWR",
}
# (hub, major version of MMHUB or the graphics core): names of clients that read, of clients that write
_CLIENTS: dict[tuple[str, int], tuple[Mapping[int, str], Mapping[int, str]]] = {
    (GFXHUB, 9): (dict(enumerate(_GFX9)), dict(enumerate(_GFX9))),
    (GFXHUB, 11): (dict(enumerate(_GFX11)), dict(enumerate(_GFX11))),
    (GFXHUB, 12): (dict(enumerate(_GFX12)), dict(enumerate(_GFX12))),
    (MMHUB, 1): (_MM1, _MM1),
    (MMHUB, 3): (_MM3_READ, _MM3_WRITE),
    (MMHUB, 4): (_MM4_READ, _MM4_WRITE),
}


class Fault(NamedTuple):
    """A page fault. `gpu_va`: the address of the page. `more`: other faults followed, which the hub did not record.

    `permission` and `walker_error` are the hub's fields for refused permissions and for the error that stopped the
    walk. Each is 0 if it was not the cause.
    """

    hub: str
    gpu_va: int
    vmid: int
    client: str
    client_id: int
    write: bool
    permission: int
    walker_error: int
    mapping_error: bool
    more: bool
    status: int

    def __str__(self) -> str:
        """Describe it in one line."""
        causes = [
            f"permission bits {self.permission:#x}" if self.permission else "",
            f"walker error {self.walker_error}" if self.walker_error else "",
            "mapping error" if self.mapping_error else "",
        ]
        why = ", ".join(filter(None, causes)) or "no cause given"
        return (
            f"{self.hub}: {self.client} {'wrote' if self.write else 'read'} page {self.gpu_va:#x} of vmid {self.vmid}: "
            f"{why} (status 0x{self.status:08x}{', more faults followed' if self.more else ''})"
        )


def client_name(hub: str, version: Version, client_id: int, *, write: bool) -> str:
    """Return the client's name; `client 0x…` if it is not in our tables."""
    read_names, write_names = _CLIENTS.get((hub.split()[0], version[0]), ({}, {}))
    return (write_names if write else read_names).get(client_id) or f"client {client_id:#x}"


def decode(hub: str, version: Version, status: FaultStatus, page_number: int) -> Fault:
    """Decode a hub's fault status. `page_number` is the value of its fault address register, in pages of 4 KiB."""
    write = bool(status.rw)
    return Fault(
        hub=hub,
        gpu_va=page_number * PAGE_BYTES,
        vmid=status.vmid,
        client=client_name(hub, version, status.cid, write=write),
        client_id=status.cid,
        write=write,
        permission=status.permission_faults,
        walker_error=status.walker_error,
        mapping_error=bool(status.mapping_error),
        more=bool(status.more_faults),
        status=int(status),
    )
