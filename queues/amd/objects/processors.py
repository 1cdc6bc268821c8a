"""The processor names in AMD code objects (`gfx1100`, `gfx90a:sramecc+:xnack-`, `gfx11-generic`), and which code runs
on which processor.

Source: LLVM AMDGPUUsage, "Processors", "Target ID", "Generic Processors" and "AMDGPU ELF Header e_flags Table for Code
Object V4 and After".
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.autogen.layout import Field, Word
from ringup.errors import NotSupported, WrongTarget


class E_FLAGS(Word):
    """`e_flags` of code objects v4 to v6. `sramecc` and `xnack` are indices into `SETTINGS`."""

    generic_version = Field(31, 24)
    sramecc = Field(11, 10)
    xnack = Field(9, 8)
    mach = Field(7, 0)


SETTINGS = ("unsupported", "any", "off", "on")
SIGNS = {"-": "off", "+": "on"}
# in the order of a canonical target ID
FEATURES = ("sramecc", "xnack")

# fmt: off
PROCESSORS = {
    0x2C: "gfx900", 0x2D: "gfx902", 0x2E: "gfx904", 0x2F: "gfx906", 0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c",
    0x3F: "gfx90a", 0x40: "gfx940", 0x4B: "gfx941", 0x4C: "gfx942", 0x4F: "gfx950",
    0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012", 0x42: "gfx1013",
    0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032", 0x39: "gfx1033", 0x3E: "gfx1034", 0x3D: "gfx1035",
    0x45: "gfx1036", 0x41: "gfx1100", 0x46: "gfx1101", 0x47: "gfx1102", 0x44: "gfx1103", 0x43: "gfx1150",
    0x4A: "gfx1151", 0x55: "gfx1152", 0x58: "gfx1153", 0x48: "gfx1200", 0x4E: "gfx1201", 0x49: "gfx1250",
    0x5A: "gfx1251", 0x51: "gfx9-generic", 0x5F: "gfx9-4-generic", 0x52: "gfx10-1-generic",
    0x53: "gfx10-3-generic", 0x54: "gfx11-generic", 0x59: "gfx12-generic",
}
# fmt: on
# name: (first version of the generic processor that includes all these members, members)
GENERIC = {
    "gfx9-generic": (1, ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c")),
    "gfx9-4-generic": (1, ("gfx940", "gfx941", "gfx942", "gfx950")),
    "gfx10-1-generic": (1, ("gfx1010", "gfx1011", "gfx1012", "gfx1013")),
    "gfx10-3-generic": (1, ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036")),
    "gfx11-generic": (
        1,
        ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    ),
    "gfx12-generic": (1, ("gfx1200", "gfx1201")),
}
# the LDS of one work-group. UNKNOWN: the size of gfx125x; it is more than the 64 KiB here
LDS_BYTES = {"gfx950": 160 << 10}
OTHER_LDS_BYTES = 64 << 10


@dataclass(frozen=True)
class Target:
    """The target of a program, or the type of a chip. `xnack` and `sramecc` are one of `SETTINGS`."""

    processor: str
    xnack: str = "unsupported"
    sramecc: str = "unsupported"
    generic_version: int = 0

    def __str__(self) -> str:
        """Return the target ID."""
        signs = {word: sign for sign, word in SIGNS.items()}
        named = [(feature, getattr(self, feature)) for feature in FEATURES]
        return ":".join([self.processor, *(feature + signs[setting] for feature, setting in named if setting in signs)])

    @property
    def family(self) -> int:
        """Return the major version: 9, 10, 11 or 12."""
        digits = self.processor.removeprefix("gfx").split("-")[0]
        return int(digits if self.processor in GENERIC else digits[:-2])

    @property
    def lds_bytes(self) -> int:
        """Return how many bytes of LDS a work-group may have."""
        return LDS_BYTES.get(self.processor, OTHER_LDS_BYTES)

    def check_runs_on(self, chip: Target | str, what: str) -> None:
        """Raise `WrongTarget` if code of this target does not run on `chip`. `what` is the code's name.

        If the chip's name does not mention a feature, its setting is unknown: only code that runs with both settings is
        accepted.
        """
        chip = parse(chip) if isinstance(chip, str) else chip
        version, members = GENERIC.get(self.processor, (0, (self.processor,)))
        if chip.processor not in members:
            raise WrongTarget(f"{what} is built for {self}, this chip is a {chip}: compile it for {chip.processor}")
        if self.generic_version < version:
            raise WrongTarget(
                f"{what} is built for version {self.generic_version} of {self.processor},"
                f" which includes {chip} from version {version} on:"
                f" compile it with a newer compiler or for {chip.processor}"
            )
        for feature in FEATURES:
            wants, has = getattr(self, feature), getattr(chip, feature)
            if wants in SIGNS.values() and wants != has:
                raise WrongTarget(
                    f"{what} is built with {feature} {wants}, this chip has it {has}:"
                    f" compile it for {chip}, or without a choice of {feature} to run either way"
                )


def parse(text: str) -> Target:
    """Read a target ID such as `gfx942:sramecc+:xnack-`, with or without a target triple before it."""
    name, *features = text.rpartition("--")[2].split(":")
    if name not in PROCESSORS.values():
        raise ValueError(f"{text!r} names no processor; such as gfx1100, gfx942:xnack- or gfx11-generic is one")
    settings: dict[str, str] = {}
    for feature in features:
        key, setting = feature[:-1], SIGNS.get(feature[-1:])
        if key not in FEATURES or setting is None or key in settings:
            raise ValueError(f"{text!r}: {feature!r} is no feature; sramecc+, sramecc-, xnack+ and xnack- are")
        settings[key] = setting
    return Target(name, settings.get("xnack", "unsupported"), settings.get("sramecc", "unsupported"))


def of_flags(flags: int, what: str) -> Target:
    """Read `e_flags` of a code object v4 to v6. Raises `NotSupported` for processors before gfx900 and unknown ones."""
    word = E_FLAGS(flags)
    if word.mach not in PROCESSORS:
        raise NotSupported(f"{what}: built for machine {word.mach:#x} of e_flags; gfx900 and later are known")
    return Target(PROCESSORS[word.mach], SETTINGS[word.xnack], SETTINGS[word.sramecc], word.generic_version)
