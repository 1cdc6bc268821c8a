"""The resource manager: allocate, free, duplicate and control objects. Doors call it and translate its answers.

Source of statuses: NVIDIA open-gpu-kernel-modules 535.261.03 (alloc_free.c, resserv). Every refusal is an `RmError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import status
from ringup.autogen.structs import Struct, memory
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.common.faults import RM_STATUS
from ringup.silicon.nv.rm import classes, construct
from ringup.silicon.nv.rm.boards.facts import Board
from ringup.silicon.nv.rm.channels import ChannelNumbers
from ringup.silicon.nv.rm.classes import ClassRow, Kind
from ringup.silicon.nv.rm.copy_map import CopyMap
from ringup.silicon.nv.rm.events import Events
from ringup.silicon.nv.rm.memory_map import MemoryMap
from ringup.silicon.nv.rm.objects import (
    Client,
    Clients,
    Resource,
    State,
    Subdevice,
    Subscription,
    order_of_freeing,
)
from ringup.silicon.nv.rm.parts import Chip, Effects, PageDirectory, PhysicalMemory, RmError
from ringup.silicon.nv.rm.sleep import Saving

BLOCK = "RM"
# Handles of the firmware's own client, which runs the internal controls. GUESS: the numbers; they must not be in the
# ranges from which the CPU takes those of its clients (resserv.h: 0xc1d00000, 0xc1e00000, 0xe0000000)
INTERNAL_CLIENT, INTERNAL_DEVICE, INTERNAL_SUBDEVICE = 0xC2000000, 0xABCD0080, 0xABCD2080


class UpperHalf(Protocol):
    """The kernel's half of the driver: it makes what the firmware's half is told of, and has classes of its own."""

    @property
    def rows(self) -> Mapping[int, ClassRow]:
        """Its classes by number, beside those of the firmware's half."""
        ...

    def prepare(self, made: Resource, params: object) -> None:
        """Fill parameters in, or give a new object of its own classes its state. Raises `RmError`."""
        ...

    def complete(self, made: Resource, params: object) -> None:
        """Do what follows the making of an object. Raises `RmError`."""
        ...

    def dropped(self, gone: Resource, state: State) -> None:
        """Undo both: an object is gone, which had this state."""
        ...


class Manager:
    """One card's resource manager, from the start of its firmware to its end.

    `release`: the driver release whose layouts parameters have. `version`: the release of the running firmware.
    """

    def __init__(
        self,
        board: Board,
        chip: Chip,
        memory: PhysicalMemory,
        effects: Effects,
        events: Events,
        log: EventLog,
        release: str,
        version: str,
        layout: MemoryMap,
        half: UpperHalf | None = None,
    ) -> None:
        self.board, self.chip, self.memory, self.effects, self.events = board, chip, memory, effects, events
        self.log, self.release, self.version, self.map = log, release, version, layout
        # the kernel's half of the driver, where it is part of the model, and the classes that callers may name
        self.half = half
        self.rows = classes.BY_NUMBER if half is None else {**classes.BY_NUMBER, **half.rows}
        self.faults = Faults()
        # where the CPU sees registers, memory and instance memory: it says so before anything else
        self.windows = (0, 0, 0)
        self.clients = Clients()
        self.numbers = ChannelNumbers(board)
        self.copying = CopyMap(board)
        # controls and classes that were asked for and are not modelled, by name or number
        self.unmodelled: Counter[str] = Counter()
        # buffers of contexts that callers handed over: by object and by NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_*, with
        # virtual address, physical address and bytes
        self.contexts: dict[int, dict[int, tuple[int, int, int]]] = {}
        # the root of the address space that the CPU's driver shares among its clients
        self.global_root: PageDirectory | None = None
        # buffers of the CPU's that the card writes to, by use and number: addresses of their pages
        self.buffers: dict[tuple[str, int], tuple[int, ...]] = {}
        # what to save when the machine goes to sleep
        self.saving: Saving | None = None
        # whether all channels are off their runlists, before and after a sleep
        self.halted = False
        self.internal = self._own_objects()

    def _own_objects(self) -> Resource:
        """Make the firmware's own client, device and subdevice; return the subdevice."""
        row = classes.BY_NUMBER
        client = self.clients.add_client(INTERNAL_CLIENT, row[0], internal=True)
        for handle, number in ((INTERNAL_DEVICE, 0x80), (INTERNAL_SUBDEVICE, 0x2080)):
            parent = client if number == 0x80 else client.client.resources[INTERNAL_DEVICE]
            made = self.clients.add(parent, handle, row[number])
            construct.construct(self, made, None)
        return made

    def check_faults(self) -> None:
        """Raise `RmError` if requests are to fail."""
        injected = self.faults.get(RM_STATUS)
        if injected is not None:
            raise RmError(injected if injected > 0 else status.NV_ERR_GENERIC, "an injected fault")

    def layout(self, struct: type[Struct]) -> type[Struct]:
        """Return a struct with the layout of the running release."""
        return struct.at(self.release)

    def alloc(self, client_handle: int, parent_handle: int, handle: int, number: int, data: bytes) -> tuple[int, bytes]:
        """Make an object; return its handle and its parameters, with what the resource manager filled in."""
        self.check_faults()
        row = self._row(number)
        params = self._parameters(row, data)
        if row.kind is Kind.CLIENT:
            # serverAllocClient: the request's handle of the client counts, not the one in its parameters
            made = self.clients.add_client(client_handle, row)
            return made.handle, data
        client = self.clients.client(client_handle)
        if row.kind is Kind.EVENT:
            row, parent_handle = construct.event_place(client, parent_handle, row, params)
        if handle == client.handle:
            raise RmError(status.NV_ERR_INVALID_OBJECT_PARENT, f"{row.name} is no client, and has a client's handle")
        parent = self.clients.find(client, parent_handle)
        self._check_place(row, parent)
        handle = self.clients.check_new(client, handle)
        self._check_generation(row)
        made = self.clients.add(parent, handle, row)
        try:
            if self.half is not None:
                self.half.prepare(made, params)
            construct.construct(self, made, params)
            if self.half is not None:
                self.half.complete(made, params)
        except RmError:
            self._drop(made)
            raise
        self.log.note(BLOCK, "alloc", "{}", made)
        return handle, bytes(memory(params)) if params is not None else data

    def alloc_pages(self, client_handle: int, parent_handle: int, handle: int, number: int, pages: State) -> int:
        """Make a memory object of memory that the caller named; return its handle."""
        row = self._row(number)
        if row.kind is not Kind.MEMORY:
            raise RmError(status.NV_ERR_INVALID_CLASS, f"{row.name} has no list of pages")
        client = self.clients.client(client_handle)
        parent = self.clients.find(client, parent_handle)
        self._check_place(row, parent)
        made = self.clients.add(parent, self.clients.check_new(client, handle), row)
        made.state = pages
        self.log.note(BLOCK, "alloc", "{}", made)
        return made.handle

    def _row(self, number: int) -> ClassRow:
        row = self.rows.get(number)
        if row is None:
            self.unmodelled[f"class {number:#06x}"] += 1
            self.log.note(BLOCK, "unmodelled", "class {:#06x}", number)
            raise RmError(status.NV_ERR_INVALID_CLASS, f"class {number:#06x} is unknown")
        return row

    def _parameters(self, row: ClassRow, data: bytes) -> Struct | None:
        """Return a view of a copy of the parameters.

        GUESS: parameters of another size than the class has are INVALID_PARAM_STRUCT, as those of a control are; the
        CPU's half does not compare them.
        """
        if row.params is None:
            if data:
                raise RmError(
                    status.NV_ERR_INVALID_PARAM_STRUCT, f"{row.name} takes no parameters, not {len(data)} bytes"
                )
            return None
        layout = self.layout(row.params)
        if not data:
            if row.required:
                raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{row.name} needs parameters")
            return None
        if len(data) != layout.SIZE:
            raise RmError(
                status.NV_ERR_INVALID_PARAM_STRUCT,
                f"{row.name} takes {layout.SIZE} bytes of parameters, not {len(data)}",
            )
        return layout.view(bytearray(data))

    def _check_place(self, row: ClassRow, parent: Resource) -> None:
        """Check that `parent` may have an object of this class; serverAllocResourceUnderLock."""
        if row.single and any(child.row.kind is row.kind for child in parent.children):
            raise RmError(status.NV_ERR_STATE_IN_USE, f"{parent} has a {row.kind.value} already")
        if row.parents is not None and parent.row.kind not in row.parents:
            raise RmError(status.NV_ERR_INVALID_OBJECT_PARENT, f"{row.name} cannot be below a {parent.row.kind.value}")

    def _check_generation(self, row: ClassRow) -> None:
        """Check that the chip has the class: gpuGetClassByClassId."""
        if row.kind in classes.OF_A_GENERATION and row.name not in self.board.classes:
            raise RmError(status.NV_ERR_INVALID_CLASS, f"{self.board.chip} has no {row.name}")

    def free(self, client_handle: int, handle: int) -> None:
        """Free an object with all below it. An unknown handle of a known client is not an error: rs_server.c,
        serverFreeResourceTree with RS_COMPATABILITY_MODE, with which the modules are built.
        """
        client = self.clients.client(client_handle)
        target = client.resources.get(handle)
        if target is None:
            self.log.note(BLOCK, "free", "client {:#x} frees {:#x}, which it does not have", client_handle, handle)
            return
        for resource in order_of_freeing(target):
            self._drop(resource)

    def _drop(self, resource: Resource) -> None:
        state = resource.state
        construct.destruct(self, resource)
        if self.half is not None:
            self.half.dropped(resource, state)
        self.contexts.pop(resource.number, None)
        self.clients.remove(resource)
        self.log.note(BLOCK, "free", "{}", resource)

    def dup(self, client_handle: int, parent_handle: int, handle: int, source_client: int, source_handle: int) -> int:
        """Give a client another handle of an object of `source_client`; serverCopyResource. Return the handle."""
        source_owner, client = self.clients.client(source_client), self.clients.client(client_handle)
        source = self.clients.find(source_owner, source_handle)
        if source.row.kind not in construct.COPIED:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{source} cannot be duplicated")
        handle = self.clients.check_new(client, handle)
        parent = self.clients.find(client, parent_handle)
        if source.row.parents is not None and parent.row.kind not in source.row.parents:
            raise RmError(
                status.NV_ERR_INVALID_OBJECT_PARENT, f"{source.row.name} cannot be below a {parent.row.kind.value}"
            )
        made = self.clients.add(parent, handle, source.row)
        construct.copy(self, source, made)
        self.log.note(BLOCK, "dup", "{} from {}", made, source)
        return handle

    def find(self, client_handle: int, handle: int) -> Resource:
        """Return an object by its client's and its own handle."""
        return self.clients.find(self.clients.client(client_handle), handle)

    def owner(self, handle: int) -> Client:
        """Return a client by its handle."""
        return self.clients.client(handle)

    def subscribed(self, source: Resource) -> bool:
        """Return whether any event object tells of `source`."""
        return any(
            isinstance(other.state, Subscription) and other.state.source is source
            for client in self.clients
            for other in client.resources.values()
        )

    def notify(self, source: Resource, index: int, data: int = 0, info: int = 0) -> None:
        """Tell whoever subscribed notification `index` of a subdevice, if it is switched on; or of another object."""
        if isinstance(source.state, Subdevice):
            action = source.state.actions.get(index)
            if action is None:
                return
            if action == fifo.NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_SINGLE:
                del source.state.actions[index]
        for client in self.clients:
            for other in tuple(client.resources.values()):
                state = other.state
                if isinstance(state, Subscription) and state.source is source and state.index & 0xFFFF == index:
                    self.events.notified(client.handle, other.handle, state, data, info)

    def close(self) -> None:
        """Free everything: the firmware ends."""
        for client in self.clients:
            root = client.resources.get(client.handle)
            if root is not None:
                for resource in order_of_freeing(root):
                    self._drop(resource)
