"""Clients and their objects: handles, parents, children, and what depends on what.

Source of the rules: NVIDIA open-gpu-kernel-modules 535.261.03, src/libraries/resserv (rs_server.c, rs_client.c).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ringup.autogen.nv import status
from ringup.silicon.nv.rm.classes import ClassRow, Kind
from ringup.silicon.nv.rm.parts import Aperture, Channel, PageDirectory, RmError, Slice

# rs_resource.h, RS_MAX_RESOURCE_DEPTH, and one level for the client itself
MAX_DEPTH = 6 + 1
# GUESS: metal's bound is the firmware's heap. A hostile CPU must not make this process grow without end.
MAX_CLIENTS, MAX_OBJECTS = 1024, 16_384
BUCKET_MASK = 0x3FF  # resserv.h, RS_CLIENT_HANDLE_BUCKET_MASK


@dataclass(eq=False, slots=True)
class State:
    """What an object is beyond its place in the tree; a class for each kind that has more."""


@dataclass(eq=False, slots=True)
class Subdevice(State):
    """Which notifications are switched on: NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_*, by index."""

    actions: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class AddressSpace(State):
    """A virtual address space, with its root if someone told it. `channels`: those that run in it.

    `external`: its page tables are someone else's. `shared`: someone else may put a root in place of the resource
    manager's; `replaced` is that one, while it is put aside.
    """

    flags: int = 0
    external: bool = False
    shared: bool = False
    page_directory: PageDirectory | None = None
    replaced: tuple[PageDirectory | None] | None = None
    channels: list[Channel] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Group(State):
    """A channel group. `space`: the address space of its channels, unless a context share says another."""

    engine_type: int
    space: AddressSpace | None
    channels: list[Channel] = field(default_factory=list)
    subcontexts: set[int] = field(default_factory=set)
    method_buffers: int = 0
    slice: Slice = field(default_factory=Slice)


@dataclass(eq=False, slots=True)
class Share(State):
    """A context share: a subcontext of its group, with an address space."""

    space: AddressSpace
    subcontext: int
    group: Group


@dataclass(eq=False, slots=True)
class Running(State):
    """A channel, or another object that keeps one alive. `owner`: it is the channel's own object."""

    channel: Channel
    owner: bool


@dataclass(eq=False, slots=True)
class EngineObject(State):
    """An object of a class on a channel."""

    channel: Channel
    engine_type: int


@dataclass(eq=False, slots=True)
class Debugged(State):
    """A debugger's session: the channel whose object it is for."""

    channel: Channel


@dataclass(eq=False, slots=True)
class Paged(State):
    """Memory that a caller described page by page: addresses of its pages, all in one aperture."""

    aperture: Aperture
    pages: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Subscription(State):
    """An event: who is told, and of what. `data` is the client's, such as the address of its callback."""

    source: Resource
    index: int
    data: int


@dataclass(eq=False, slots=True)
class Resource:
    """An object. `dependants`: objects that are freed before it though they are not its children."""

    handle: int
    row: ClassRow
    client: Client
    parent: Resource | None
    number: int
    state: State = field(default_factory=State)
    children: list[Resource] = field(default_factory=list)
    dependants: list[Resource] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Levels above it; 0 for a client."""
        return 0 if self.parent is None else self.parent.depth + 1

    def ancestor(self, kind: Kind) -> Resource | None:
        """Return the nearest object of a kind: itself or one above it."""
        found: Resource | None = self
        while found is not None and found.row.kind is not kind:
            found = found.parent
        return found

    def __str__(self) -> str:
        return f"{self.row.kind.value} {self.handle:#x} ({self.row.name}) of client {self.client.handle:#x}"


@dataclass(eq=False, slots=True)
class Client:
    """A client and all its objects by handle, itself included."""

    handle: int
    internal: bool = False
    resources: dict[int, Resource] = field(default_factory=dict)
    # the next handle to give when the caller names none
    next_handle: int = 0xCAF00000


S = TypeVar("S", bound=State)


def state_of(resource: Resource, kind: type[S]) -> S:
    """Return an object's state of a known kind."""
    state = resource.state
    if not isinstance(state, kind):
        raise RmError(status.NV_ERR_INVALID_OBJECT, f"{resource} is no {kind.__name__}")
    return state


class Clients:
    """All clients. Looks handles up, adds objects, and orders what a request to free takes with it."""

    def __init__(self) -> None:
        self._clients: dict[int, Client] = {}
        self._count = 0
        self._created = 0

    def __iter__(self) -> Iterator[Client]:
        return iter(tuple(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def objects(self) -> int:
        """Objects of all clients."""
        return self._count

    def client(self, handle: int) -> Client:
        """Return a client.

        Without a handle the status is INVALID_CLIENT (a comment in kernel_fifo.c says so of GSP). For an unknown
        handle it is INVALID_OBJECT if the list behind its hash holds a larger handle, else INVALID_OBJECT_HANDLE:
        _serverFindClientEntry.
        """
        found = self._clients.get(handle)
        if found is not None:
            return found
        if handle == 0:
            raise RmError(status.NV_ERR_INVALID_CLIENT, "no client is named")
        beyond = any(other > handle and not (other ^ handle) & BUCKET_MASK for other in self._clients)
        raise RmError(
            status.NV_ERR_INVALID_OBJECT if beyond else status.NV_ERR_INVALID_OBJECT_HANDLE,
            f"there is no client {handle:#x}",
        )

    def find(self, client: Client, handle: int) -> Resource:
        """Return an object of a client; clientGetResourceRef."""
        found = client.resources.get(handle)
        if found is None:
            raise RmError(
                status.NV_ERR_OBJECT_NOT_FOUND, f"client {client.handle:#x} has no object with handle {handle:#x}"
            )
        return found

    def add_client(self, handle: int, row: ClassRow, *, internal: bool = False) -> Resource:
        """Add a client; its handle is the caller's choice."""
        if handle == 0:
            raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, "a client of the CPU names its own handle")
        if handle in self._clients:
            raise RmError(status.NV_ERR_INSERT_DUPLICATE_NAME, f"client {handle:#x} exists")
        if len(self._clients) >= MAX_CLIENTS:
            raise RmError(status.NV_ERR_INSUFFICIENT_RESOURCES, f"there are {MAX_CLIENTS} clients")
        client = Client(handle, internal)
        self._clients[handle] = client
        return self._add(client, None, handle, row)

    def check_new(self, client: Client, handle: int) -> int:
        """Return the handle that a new object gets; 0 asks for one. clientValidateNewResourceHandle."""
        if handle == 0:
            while client.next_handle in client.resources:
                client.next_handle += 1
            return client.next_handle
        if handle == client.handle:
            raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{handle:#x} is the client's own handle")
        if handle in client.resources:
            raise RmError(
                status.NV_ERR_INSERT_DUPLICATE_NAME, f"client {client.handle:#x} has an object {handle:#x} already"
            )
        return handle

    def add(self, parent: Resource, handle: int, row: ClassRow) -> Resource:
        """Add an object below `parent`. Raises ILLEGAL_ACTION where the tree would be too deep."""
        if parent.depth + 1 >= MAX_DEPTH:
            raise RmError(status.NV_ERR_ILLEGAL_ACTION, f"{parent} is {parent.depth} levels deep")
        return self._add(parent.client, parent, handle, row)

    def _add(self, client: Client, parent: Resource | None, handle: int, row: ClassRow) -> Resource:
        if self._count >= MAX_OBJECTS:
            raise RmError(status.NV_ERR_INSUFFICIENT_RESOURCES, f"there are {MAX_OBJECTS} objects")
        made = Resource(handle, row, client, parent, self._created)
        self._created += 1
        self._count += 1
        client.resources[handle] = made
        if parent is not None:
            parent.children.append(made)
        return made

    def remove(self, resource: Resource) -> None:
        """Take an object without children out of the tree."""
        del resource.client.resources[resource.handle]
        self._count -= 1
        if resource.parent is None:
            del self._clients[resource.client.handle]
        else:
            resource.parent.children.remove(resource)
        for client in self._clients.values():
            for other in client.resources.values():
                if resource in other.dependants:
                    other.dependants.remove(resource)


def order_of_freeing(root: Resource) -> list[Resource]:
    """Return everything that goes with `root`, in the order in which it is freed; `root` is the last.

    Children and dependants come before what they hang on, and high-priority classes (channels and groups) with
    theirs before all others: clientUpdatePendingFreeList, rmclientPostProcessPendingFreeList. GUESS: between siblings
    metal goes by numbers of its internal classes; here the newest is the first.
    """
    # a dict keeps order; a later visit moves an object to the front, which is the end here
    pending: dict[int, Resource] = {}

    def visit(target: Resource, above: frozenset[int]) -> None:
        if id(target) in above:
            return
        pending.pop(id(target), None)
        pending[id(target)] = target
        above = above | {id(target)}
        for below in sorted((*target.children, *target.dependants), key=lambda one: one.number):
            visit(below, above)

    visit(root, frozenset())
    for target in reversed(tuple(pending.values())):
        if target.row.early and target is not root:
            visit(target, frozenset())
    return list(reversed(pending.values()))
