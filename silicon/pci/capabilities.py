"""Capability structures of PCI Express functions, as rows for `pci.Function`.

Source: PCI Express Base Specification 4.0, chapter 7; names of bits as in pci_regs.h.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringup.autogen.linux import pci as regs
from ringup.silicon.pci.function import ONES, Bar, Bits, Capability

# by generation: the vector of supported link speeds
SPEEDS = {1: 0x1, 2: 0x3, 3: 0x7, 4: 0xF, 5: 0x1F}


def vendor_specific(offset: int, size_bytes: int) -> Capability:
    """Return a capability with a vendor's own registers in the first 256 bytes."""
    return Capability("vendor", regs.PCI_CAP_ID_VNDR, offset, (Bits(0, size_bytes << 16),))


def subsystem(offset: int, vendor_id: int, device_id: int) -> Capability:
    """Return the subsystem capability of a bridge."""
    return Capability("subsystem", regs.PCI_CAP_ID_SSVID, offset, (Bits(4, vendor_id | device_id << 16),))


def power_management(offset: int, capabilities: int, keeps_state: bool) -> Capability:
    """Return the capability for D0 and D3hot. `keeps_state`: No_Soft_Reset, the function keeps its state when it leaves
    D3hot.
    """
    control = regs.PCI_PM_CTRL_NO_SOFT_RESET if keeps_state else 0
    writable = regs.PCI_PM_CTRL_STATE_MASK | regs.PCI_PM_CTRL_PME_ENABLE
    clears = regs.PCI_PM_CTRL_PME_STATUS
    words = Bits(0, capabilities << 16), Bits(regs.PCI_PM_CTRL, control, writable, clears, regs.PCI_PM_CTRL_PME_ENABLE)
    return Capability("pm", regs.PCI_CAP_ID_PM, offset, words)


def express(
    offset: int, kind: int, *, generation: int, lanes: int, device: int = 0, device2: int = 0, bridge: bool = False
) -> Capability:
    """Return the PCI Express capability, version 2. `device`, `device2`: bits of the device capability registers in
    addition to the common ones.
    """
    payload = 1  # 256 bytes
    link = generation | lanes << 4 | regs.PCI_EXP_LNKCAP_ASPM_L1
    # ASPM optionality; link active reporting
    reporting = 1 << 22 | regs.PCI_EXP_LNKCAP_DLLLARC if bridge else 1 << 22
    status = generation | lanes << 4 | regs.PCI_EXP_LNKSTA_SLC | (regs.PCI_EXP_LNKSTA_DLLLA if bridge else 0)
    # a downstream port may disable and retrain its link
    link_control = 0x0FFB if bridge else 0x03C3 | 0xC00
    return Capability(
        "express",
        regs.PCI_CAP_ID_EXP,
        offset,
        (
            Bits(0, (2 | kind << 4) << 16),
            Bits(regs.PCI_EXP_DEVCAP, payload | regs.PCI_EXP_DEVCAP_EXT_TAG | regs.PCI_EXP_DEVCAP_RBER | device),
            # extended tags, no snoop and 512-byte reads are on after reset
            Bits(regs.PCI_EXP_DEVCTL, 0x2910, 0x7FFF | regs.PCI_EXP_DEVCTL_BCR_FLR, 0xF << 16),
            Bits(regs.PCI_EXP_LNKCAP, link | reporting),
            Bits(regs.PCI_EXP_LNKCTL, status << 16, link_control, 0xC000 << 16 if bridge else 0),
            Bits(regs.PCI_EXP_DEVCAP2, regs.PCI_EXP_DEVCAP2_LTR | device2),
            Bits(regs.PCI_EXP_DEVCTL2, 0, 0x74FF),
            Bits(regs.PCI_EXP_LNKCAP2, SPEEDS[generation] << 1),
            Bits(regs.PCI_EXP_LNKCTL2, generation, 0xFFEF, 0, 0xFFEF),
        ),
    )


def msi(offset: int, *, vectors_log2: int = 0, maskable: bool = False) -> Capability:
    """Return the capability for message-signalled interrupts with a 64-bit address."""
    flags = regs.PCI_MSI_FLAGS_64BIT | (regs.PCI_MSI_FLAGS_MASKBIT if maskable else 0) | vectors_log2 << 1
    words = [
        Bits(0, flags << 16, (regs.PCI_MSI_FLAGS_ENABLE | regs.PCI_MSI_FLAGS_QSIZE) << 16),
        Bits(regs.PCI_MSI_ADDRESS_LO, writable=ONES & ~3),
        Bits(regs.PCI_MSI_ADDRESS_HI, writable=ONES),
        Bits(regs.PCI_MSI_DATA_64, writable=0xFFFF),
    ]
    if maskable:
        words += Bits(regs.PCI_MSI_MASK_64, writable=(1 << (1 << vectors_log2)) - 1), Bits(regs.PCI_MSI_PENDING_64)
    return Capability("msi", regs.PCI_CAP_ID_MSI, offset, tuple(words))


def extended(name: str, number: int, offset: int, words: Iterable[Bits] = (), version: int = 1) -> Capability:
    """Return an extended capability without behaviour beyond its registers."""
    return Capability(name, number, offset, tuple(words), version)


def vendor_extended(offset: int, number: int, revision: int, size_bytes: int) -> Capability:
    """Return a vendor's own extended capability."""
    header = Bits(4, number | revision << 16 | size_bytes << 20)
    return extended("vendor extended", regs.PCI_EXT_CAP_ID_VNDR, offset, (header,))


def advanced_errors(offset: int) -> Capability:
    """Return the advanced error reporting capability, version 2; its logs survive a reset of the function."""
    severity = (
        regs.PCI_ERR_UNC_DLP
        | regs.PCI_ERR_UNC_SURPDN
        | regs.PCI_ERR_UNC_FCP
        | regs.PCI_ERR_UNC_RX_OVER
        | regs.PCI_ERR_UNC_MALF_TLP
    )
    known = severity | regs.PCI_ERR_UNC_POISON_TLP | regs.PCI_ERR_UNC_COMP_TIME | regs.PCI_ERR_UNC_COMP_ABORT
    known |= regs.PCI_ERR_UNC_UNX_COMP | regs.PCI_ERR_UNC_ECRC | regs.PCI_ERR_UNC_UNSUP | regs.PCI_ERR_UNC_ACSV
    correctable = regs.PCI_ERR_COR_RCVR | regs.PCI_ERR_COR_BAD_TLP | regs.PCI_ERR_COR_BAD_DLLP
    correctable |= regs.PCI_ERR_COR_REP_ROLL | regs.PCI_ERR_COR_REP_TIMER | regs.PCI_ERR_COR_ADV_NFAT
    check = regs.PCI_ERR_CAP_ECRC_GENC | regs.PCI_ERR_CAP_ECRC_CHKC
    enable = regs.PCI_ERR_CAP_ECRC_GENE | regs.PCI_ERR_CAP_ECRC_CHKE
    words = (
        Bits(regs.PCI_ERR_UNCOR_STATUS, clears=known, sticky=known),
        Bits(regs.PCI_ERR_UNCOR_MASK, writable=known, sticky=known),
        Bits(regs.PCI_ERR_UNCOR_SEVER, severity, known, sticky=known),
        Bits(regs.PCI_ERR_COR_STATUS, clears=correctable, sticky=correctable),
        Bits(regs.PCI_ERR_COR_MASK, regs.PCI_ERR_COR_ADV_NFAT, correctable, sticky=correctable),
        Bits(regs.PCI_ERR_CAP, check, enable, sticky=enable),
    )
    return extended("aer", regs.PCI_EXT_CAP_ID_ERR, offset, words, version=2)


def resizable_bars(offset: int, bars: Iterable[Bar]) -> Capability:
    """Return the capability with the possible and current sizes of resizable BARs."""
    rows = [bar for bar in bars if bar.sizes_mib]
    words: list[Bits] = []
    for number, bar in enumerate(rows):
        supported = sum(1 << size.bit_length() - 1 + 4 for size in bar.sizes_mib)
        # only the first one has their number
        count = len(rows) << 5 if number == 0 else 0
        now = (bar.size_bytes >> 20).bit_length() - 1
        words += Bits(4 + 8 * number, supported), Bits(8 + 8 * number, bar.index | count | now << 8, 0x3F00)
    return extended("resizable bar", regs.PCI_EXT_CAP_ID_REBAR, offset, words)
