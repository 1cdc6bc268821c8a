"""The user area (USERD) of a channel: where host and card leave their indices into the GPFIFO. Source: dev_ram.h."""

from __future__ import annotations

from ringup.autogen.nv.ram import NV_RAMUSERD, NV_RAMUSERD_CHAN_SIZE
from ringup.drivers.memory.access import Access

# in bytes: where the host stores the index behind the last entry, and where the card stores the next that it fetches
GP_GET_AT = NV_RAMUSERD.FIELDS["gp_get"].lo // 8
GP_PUT_AT = NV_RAMUSERD.FIELDS["gp_put"].lo // 8


def cell(access: Access, at: int) -> memoryview:
    """Return one dword of memory that the CPU sees."""
    if access.view is None:
        raise ValueError("a channel's user area lies in memory that this process sees")
    return access.view[at : at + 4].cast("I")


class UserArea:
    """The area at byte `at` of a page. The host alone writes `put`, the card alone `get`."""

    def __init__(self, page: Access, at: int) -> None:
        self._page, self._at = page, at
        self.put, self.get = cell(page, at + GP_PUT_AT), cell(page, at + GP_GET_AT)

    def clear(self) -> None:
        """Make everything 0, before a channel is made."""
        self._page.write(self._at, bytes(NV_RAMUSERD_CHAN_SIZE))
