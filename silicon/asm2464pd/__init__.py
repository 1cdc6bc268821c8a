"""A virtual enclosure: an ASM2464PD USB to PCI Express bridge with its firmware, a card behind it, and the USB host
that it plugs into.
"""

from __future__ import annotations

from ringup.silicon.asm2464pd.enclosure import Enclosure
from ringup.silicon.asm2464pd.host import VirtualUsbHost

__all__ = ["Enclosure", "VirtualUsbHost"]
