"""An AQL queue that all cores of a partition run together. Each core executes every packet, with its share of a grid's
groups.

Source: kfd_mqd_manager_v9.c, init_mqd_v9_4_3: each core has a descriptor of the queue, and the "Master XCC" is the one
whose descriptor has NO_UPDATE_RPTR clear. GUESS: how the firmware of the cores works together, which no source
describes. Here a packet has ended when it has on every core. The master alone judges dependencies, asks for scratch
memory, writes read index, headers and signals, and raises interrupts. The other cores follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringup.silicon.amd.gc.cp.aql import Aql

# what a core's packet needs at its end, besides its slot: the master's signals
End = Callable[["Aql"], None]


@dataclass(slots=True)
class Team:
    """How far the cores have come with a queue, in packets. `ended`: by core, those that have ended there. `passed`:
    those whose waits are over, by the master's judgement. `ends`: what the master does when a packet has ended
    everywhere. `members`: the connected processors by core. `before`: `ended` of cores that have not connected again.
    `equipped`: those that have the scratch memory they need, by the master's judgement. `lent`: up to the last one that
    had such memory for itself. `freed`: up to the last one whose memory the runtime has taken back.
    """

    size: int
    retired: int = 0
    passed: int = 0
    equipped: int = 0
    lent: int = 0
    freed: int = 0
    ended: dict[int, int] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    members: dict[int, Aql] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)

    def join(self, member: Aql, ended: int, retired: int) -> None:
        """Take a core in whose queue has connected, with the number of packets that have ended there."""
        number = member.cp.number
        self.members = {one: other for one, other in self.members.items() if other.queue.parser is other}
        if not self.members:
            self.retired, self.passed, self.equipped = retired, 0, 0
            self.before, self.ended = self.before | self.ended, {}
        self.members[number] = member
        known = self.before.pop(number, 0)
        self.ended[number] = ended if member.queue.settled else min(max(known, retired), ended)
        if member.masters:
            self.passed, self.equipped = max(self.passed, ended), max(self.equipped, ended)
            if self.lent > ended:
                # those of an older queue at the same place
                self.lent = self.freed = 0
            self.ends = {index: action for index, action in self.ends.items() if retired <= index < ended}
        self._advance()

    def end(self, member: Aql, index: int, action: End | None) -> None:
        """Note that a packet has ended on a core. `action` is what the master does when it has ended on all."""
        if action is not None and member.masters:
            self.ends[index] = action
        self.ended[member.cp.number] = index + 1
        self._advance()

    def _advance(self) -> None:
        master = next((one for one in self.members.values() if one.masters and one.queue.parser is one), None)
        if master is None or len(self.ended) < self.size:
            return
        while self.retired < min(self.ended.values()):
            index = self.retired
            self.retired = index + 1
            master.retire(index)
            action = self.ends.pop(index, None)
            if action is not None:
                action(master)
        for member in self.members.values():
            if member.queue.parser is member:
                member.retired = self.retired
                member.queue.wake()
