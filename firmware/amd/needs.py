"""The firmware files that a card needs, from the versions of its blocks and its PCI ids.

Names are the kernel's, below a firmware folder: a block's name and version, then the processor that runs the file.
Source: amdgpu_ucode.c, amdgpu_ucode_ip_version_decode and kicker_device_list; gfx_v11_0.c, gfx_v12_0.c, gfx_v9_4_3.c,
amdgpu_mes.c, imu_v11_0.c, amdgpu_sdma.c, amdgpu_psp.c, smu_v13_0.c, smu_v14_0.c, smu_v13_0_6_ppt.c: the files that each
requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ringup.errors import NotSupported

Version = tuple[int, int, int]
FOLDER = "amdgpu/"
# PCI device and revision of cards with their own files: amdgpu_ucode.c, kicker_device_list
KICKERS = {(0x744B, 0x00), (0x7551, 0xC8)}
RLC_1_REVISION = 0xCE  # gfx_v11_0.c: navi31 of this PCI revision takes rlc_1


class Need(NamedTuple):
    """One file. `kind` is what it serves as (see `parts.ROWS`); `fallbacks` replace it if it is missing, in their
    order.

    A card starts without an `optional` file.
    """

    name: str
    kind: str
    optional: bool = False
    fallbacks: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.fallbacks)


class Want(NamedTuple):
    """A row: the end of the name after block and version, what the file serves as, and whether kicker cards have their
    own.
    """

    suffix: str
    kind: str
    kicker: bool = False
    optional: bool = False
    fallbacks: tuple[str, ...] = ()


class Blocks(NamedTuple):
    """The block versions that select a chip's files."""

    gc: Version
    mp0: Version
    mp1: Version
    sdma: Version


# For callers without the card: the contents of its discovery table. Source: amdgpu_discovery.c, set_gc_ip_blocks and
# related functions
CHIPS = {
    "navi31": Blocks((11, 0, 0), (13, 0, 0), (13, 0, 0), (6, 0, 0)),
    "navi32": Blocks((11, 0, 3), (13, 0, 10), (13, 0, 10), (6, 0, 3)),
    "navi33": Blocks((11, 0, 2), (13, 0, 7), (13, 0, 7), (6, 0, 2)),
    "navi44": Blocks((12, 0, 0), (14, 0, 2), (14, 0, 2), (7, 0, 0)),
    "navi48": Blocks((12, 0, 1), (14, 0, 3), (14, 0, 3), (7, 0, 1)),
    "mi300x": Blocks((9, 4, 3), (13, 0, 6), (13, 0, 6), (4, 4, 2)),
}
SDMA = (Want("", "sdma"),)
PSP = (
    Want("_sos", "sos", kicker=True),
    Want("_ta", "ta", kicker=True, optional=True),  # trusted applications: displays, memory errors, links between cards
)
SMU = (Want("", "smu", kicker=True),)
# the power controller's own firmware comes from the card's flash; the file has tables for the security processor
TABLES = (Want("", "smu"),)
GFX9 = (Want("_mec", "mec"), Want("_rlc", "rlc"))
GFX11 = (
    Want("_pfp", "pfp"),
    Want("_me", "me"),
    Want("_mec", "mec"),
    Want("_mes_2", "mes", fallbacks=("_mes",)),  # the older scheduler: amdgpu_mes_init_microcode
    Want("_mes1", "mes_kiq"),
    Want("_imu", "imu", kicker=True),
    Want("_rlc", "rlc", kicker=True),
)
GFX12 = (
    Want("_pfp", "pfp"),
    Want("_me", "me"),
    Want("_mec", "mec"),
    Want("_uni_mes", "mes"),  # one image on both pipes
    Want("_uni_mes", "mes_kiq"),
    Want("_imu", "imu", kicker=True),
    Want("_rlc", "rlc", kicker=True),
)
# Block: version: files.
WANTED: dict[str, dict[Version, tuple[Want, ...]]] = {
    "psp": {
        (13, 0, 0): PSP,
        (13, 0, 6): (Want("_sos", "sos"), Want("_ta", "ta", optional=True)),
        (13, 0, 7): PSP,
        (13, 0, 10): PSP,
        (14, 0, 2): PSP,
        (14, 0, 3): PSP,
    },
    "smu": {(13, 0, 0): SMU, (13, 0, 6): TABLES, (13, 0, 7): SMU, (13, 0, 10): SMU, (14, 0, 2): SMU, (14, 0, 3): SMU},
    "sdma": {(4, 4, 2): SDMA, (6, 0, 0): SDMA, (6, 0, 2): SDMA, (6, 0, 3): SDMA, (7, 0, 0): SDMA, (7, 0, 1): SDMA},
    "gc": {
        (9, 4, 3): GFX9,
        (11, 0, 0): GFX11,
        (11, 0, 2): GFX11,
        (11, 0, 3): GFX11,
        (12, 0, 0): GFX12,
        (12, 0, 1): GFX12,
    },
}


def needs(
    gc: Version,
    mp0: Version,
    mp1: Version,
    sdma: Version,
    pci_device: int = 0,
    pci_revision: int = 0,
    *,
    force: bool = False,
) -> tuple[Need, ...]:
    """Return the files of a card in loading order.

    The order is security processor, power management, copy engine, graphics core. `mp0` is the security processor's
    version, `mp1` the power controller's. Raises `NotSupported` for a version without a row. `force`: such a version
    has files of its own name, of the kinds that the nearest version of the same major number has.
    """
    kicker = (pci_device, pci_revision) in KICKERS
    found = []
    for block, version in (("psp", mp0), ("smu", mp1), ("sdma", sdma), ("gc", gc)):
        row = version
        if force and version not in WANTED[block]:
            row = nearest(version, WANTED[block]) or version
        if row not in WANTED[block]:
            known = ", ".join(".".join(map(str, row)) for row in WANTED[block])
            raise NotSupported(f"no firmware files are known for {block} {'.'.join(map(str, version))}; known: {known}")
        stem = f"{FOLDER}{block}_{'_'.join(map(str, version))}"
        found += [_need(want, stem, kicker=kicker) for want in WANTED[block][row]]
    if gc == (11, 0, 0) and pci_revision == RLC_1_REVISION:
        found = [Need(f"{FOLDER}gc_11_0_0_rlc_1.bin", "rlc") if need.kind == "rlc" else need for need in found]
    return tuple(found)


def nearest(version: Version, known: Iterable[Version]) -> Version | None:
    """Return the known version of the same major number that is nearest, an older one before a newer one; None without
    any.
    """
    same = sorted(one for one in known if one[0] == version[0])
    older = [one for one in same if one <= version]
    return older[-1] if older else same[0] if same else None


def _need(want: Want, stem: str, *, kicker: bool) -> Need:
    own = "_kicker" if kicker and want.kicker else ""
    fallbacks = tuple(f"{stem}{suffix}.bin" for suffix in want.fallbacks)
    return Need(f"{stem}{want.suffix}{own}.bin", want.kind, want.optional, fallbacks)
