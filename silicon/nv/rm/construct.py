"""What happens when an object of each kind is made, copied and freed.

Source: the constructors of NVIDIA's open kernel modules 535.261.03 (device.c, subdevice.c, vaspace_api.c,
kernel_channel_group_api.c, kernel_ctxshare.c, kernel_channel.c, event.c), whose other half the firmware is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_alloc, status
from ringup.autogen.nv.rm_alloc import NVOS04_FLAGS
from ringup.silicon.nv.rm import channels, classes, layouts
from ringup.silicon.nv.rm.boards.facts import EngineKind
from ringup.silicon.nv.rm.classes import ClassRow, Kind
from ringup.silicon.nv.rm.objects import (
    AddressSpace,
    Client,
    Debugged,
    EngineObject,
    Group,
    Resource,
    Running,
    Share,
    State,
    Subdevice,
    Subscription,
    state_of,
)
from ringup.silicon.nv.rm.parts import Channel, RmError, Slice

if TYPE_CHECKING:
    from ringup.silicon.nv.rm.manager import Manager

# kinds that have events: INotifier in 535.261.03
NOTIFIERS = (Kind.SUBDEVICE, Kind.CHANNEL, Kind.GRAPHICS, Kind.COPY, Kind.VIDEO, Kind.SOFTWARE, Kind.DEBUGGER)
# kinds whose …CanCopy says yes
COPIED = (Kind.VASPACE, Kind.GROUP, Kind.SHARE, Kind.MEMORY)
BIG_PAGE_SIZES = (0, 64 << 10, 128 << 10)
# which engines the classes on a channel run on
RUNS_ON = {"VIDEO_DECODER": EngineKind.NVDEC, "VIDEO_ENCODER": EngineKind.NVENC}
SHARED_MANAGEMENT = rm_alloc.NV_DEVICE_ALLOCATION_FLAGS_VASPACE_SHARED_MANAGEMENT
VERSION_0 = 0  # NVB0B5_ALLOCATION_PARAMETERS: the engine's instance, not its type


def construct(manager: Manager, made: Resource, params: object) -> None:
    """Give a new object its state. Raises `RmError`; the caller then takes the object away again."""
    maker = _MAKERS.get(made.row.kind)
    if maker is not None:
        maker(manager, made, params)


def _device(manager: Manager, made: Resource, params: rm_alloc.NV0080_ALLOC_PARAMETERS | None) -> None:
    if params is not None and params.deviceId != 0:
        raise RmError(status.NV_ERR_INVALID_CLASS, f"there is no device {params.deviceId}: {made}")
    assert made.parent is not None
    if any(child is not made and child.row.kind is Kind.DEVICE for child in made.parent.children):
        raise RmError(status.NV_ERR_INSUFFICIENT_RESOURCES, f"client {made.client.handle:#x} has device 0 already")
    made.state = AddressSpace(shared=params is not None and bool(params.flags & SHARED_MANAGEMENT))


def _subdevice(manager: Manager, made: Resource, params: rm_alloc.NV2080_ALLOC_PARAMETERS | None) -> None:
    if params is not None and params.subDeviceId != 0:
        raise RmError(status.NV_ERR_INVALID_CLASS, f"there is no subdevice {params.subDeviceId}: {made}")
    assert made.parent is not None
    if any(child is not made and child.row.kind is Kind.SUBDEVICE for child in made.parent.children):
        raise RmError(status.NV_ERR_INSUFFICIENT_RESOURCES, f"{made.parent} has subdevice 0 already")
    made.state = Subdevice()


def _default_space(made: Resource) -> AddressSpace:
    device = made.ancestor(Kind.DEVICE)
    if device is None:
        raise RmError(status.NV_ERR_INVALID_DEVICE, f"{made} is below no device")
    return state_of(device, AddressSpace)


def _vaspace(manager: Manager, made: Resource, params: rm_alloc.NV_VASPACE_ALLOCATION_PARAMETERS) -> None:
    if params.bigPageSize not in BIG_PAGE_SIZES:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"big pages of {params.bigPageSize:#x} bytes")
    if params.vaBase + params.vaSize >> 64:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, "the address space is larger than 64 bits")
    if params.index == rm_alloc.NV_VASPACE_ALLOCATION_INDEX_GPU_NEW:
        external = bool(params.flags & rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED)
        shared = bool(params.flags & rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_SHARED_MANAGEMENT)
        made.state = AddressSpace(params.flags, external, shared)
    elif params.index in (
        rm_alloc.NV_VASPACE_ALLOCATION_INDEX_GPU_DEVICE,
        rm_alloc.NV_VASPACE_ALLOCATION_INDEX_GPU_HOST,
        rm_alloc.NV_VASPACE_ALLOCATION_INDEX_GPU_GLOBAL,
    ):
        made.state = _default_space(made)
    else:
        raise RmError(status.NV_ERR_INVALID_STATE, f"there is no address space of index {params.index}")


def _space(manager: Manager, made: Resource, handle: int) -> tuple[AddressSpace | None, Resource | None]:
    """Return the address space that a parameter names; the object hangs on it from now on."""
    if handle == 0:
        return None, None
    found = manager.clients.find(made.client, handle)
    if found.row.kind is not Kind.VASPACE:
        raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{found} is no address space")
    return state_of(found, AddressSpace), found


def _group(manager: Manager, made: Resource, params: rm_alloc.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS) -> None:
    # GUESS: the status for an engine that the chip lacks. A group without an engine takes its first channel's.
    if params.engineType and manager.board.engine(params.engineType) is None:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{manager.board.chip} has no engine {params.engineType:#x}")
    space, owner = _space(manager, made, params.hVASpace)
    made.state = Group(params.engineType, space)
    if owner is not None:
        owner.dependants.append(made)


def _share(manager: Manager, made: Resource, params: rm_alloc.NV_CTXSHARE_ALLOCATION_PARAMETERS) -> None:
    assert made.parent is not None
    group = state_of(made.parent, Group)
    space, owner = _space(manager, made, params.hVASpace)
    where = space or group.space or _default_space(made)
    if where.external and where.page_directory is None:
        raise RmError(status.NV_ERR_INVALID_STATE, "the share's address space has no page directory yet")
    subcontext = _subcontext(params.flags, params.subctxId, group.subcontexts)
    group.subcontexts.add(subcontext)
    params.subctxId = subcontext
    made.state = Share(where, subcontext, group)
    if owner is not None:
        owner.dependants.append(made)


def _subcontext(flags: int, asked: int, used: set[int]) -> int:
    """Return a free subcontext; kctxshareInitCommon. Asynchronous ones are given out from the top, 0 as the last."""
    choices = {
        rm_alloc.NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_SYNC: [0],
        rm_alloc.NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC: list(range(channels.SUBCONTEXTS - 1, -1, -1)),
        rm_alloc.NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_SPECIFIED: [asked],
    }
    if flags not in choices:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a context share with flags {flags:#x}")
    for number in choices[flags]:
        if number not in used and number < channels.SUBCONTEXTS:
            return number
    raise RmError(status.NV_ERR_INSUFFICIENT_RESOURCES, f"no subcontext is free for flags {flags:#x}")


def _channel(manager: Manager, made: Resource, params: rm_alloc.NV_CHANNEL_ALLOC_PARAMS) -> None:
    group, space, subcontext, hung = surroundings(manager, made, params)
    engine_type = params.engineType or (group.engine_type if group is not None else 0)
    engine = manager.board.engine(engine_type)
    if engine is None:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{manager.board.chip} has no engine {engine_type:#x}")
    entries = params.gpFifoEntries
    # GUESS: the status; the state of the host engine holds only the logarithm
    if entries < 2 or entries & entries - 1 or entries.bit_length() - 1 > channels.MAX_GPFIFO_LOG2:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a ring of {entries} entries")
    flags = NVOS04_FLAGS(params.flags)
    channel = Channel(
        number=manager.numbers.choose(engine.runlist, flags),
        runlist=engine.runlist,
        engine_type=engine_type,
        instance=channels.needed(params.instanceMem, "instance block"),
        ramfc=channels.needed(params.ramfcMem, "state of the host engine"),
        userd=channels.control_block(params.userdMem),
        method_buffer=channels.place_of(params.mthdbufMem, "method buffer", optional=True),
        error_notifier=channels.place_of(params.errorNotifierMem, "error notifier", optional=True),
        gpfifo_va=params.gpFifoOffset,
        gpfifo_entries=entries,
        flags=params.flags,
        privileged=bool(flags.privileged_channel),
        page_directory=space.page_directory,
        subcontext=subcontext,
        replays=bool(space.flags & rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING),
        slice=group.slice if group is not None else Slice(),
    )
    try:
        channels.write_instance(manager.memory, channel)
    except ValueError as error:
        raise RmError(status.NV_ERR_INVALID_ADDRESS, f"the instance block cannot be written: {error}") from error
    manager.numbers.take(channel)
    space.channels.append(channel)
    if group is not None:
        group.channels.append(channel)
        group.engine_type = group.engine_type or engine_type
    for owner in hung:
        owner.dependants.append(made)
    made.state = Running(channel, owner=True)
    params.cid = channel.number
    manager.effects.channel_allocated(channel)


def surroundings(
    manager: Manager, made: Resource, params: rm_alloc.NV_CHANNEL_ALLOC_PARAMS
) -> tuple[Group | None, AddressSpace, int, list[Resource]]:
    """Return a new channel's group, address space and subcontext, and the objects that it hangs on."""
    assert made.parent is not None
    group = state_of(made.parent, Group) if made.parent.row.kind is Kind.GROUP else None
    if params.hContextShare and params.hVASpace:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, "a channel has a context share or an address space, not both")
    if group is None and params.hContextShare:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, "a channel without a group has no context share")
    if group is not None and params.hVASpace:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, "a channel of a group has the group's address space")
    default = _default_space(made)
    if params.hContextShare:
        owner = manager.clients.find(made.client, params.hContextShare)
        share = state_of(owner, Share)
        return group, share.space, share.subcontext, [owner]
    given, space_owner = _space(manager, made, params.hVASpace)
    return group, channels.space_of(group, default, given), 0, [space_owner] if space_owner is not None else []


def _retainer(manager: Manager, made: Resource, params: layouts.UVM_CHANNEL_RETAINER) -> None:
    """Hold a channel of another client: UVM keeps those alive that it still has mappings for."""
    owner = manager.clients.client(params.client)
    source = manager.clients.find(owner, params.channel)
    if source.row.kind is not Kind.CHANNEL:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{source} is no channel")
    channel = state_of(source, Running).channel
    manager.numbers.hold(channel)
    made.state = Running(channel, owner=False)


def _engine_object(manager: Manager, made: Resource, params: rm_alloc.NVB0B5_ALLOCATION_PARAMETERS | None) -> None:
    assert made.parent is not None
    channel = state_of(made.parent, Running).channel
    engine_type = _engine_of(manager, made, channel, params)
    channel.objects[made.row.number] = engine_type
    made.state = EngineObject(channel, engine_type)


def _engine_of(
    manager: Manager, made: Resource, channel: Channel, params: rm_alloc.NVB0B5_ALLOCATION_PARAMETERS | None
) -> int:
    """Return the engine that an object runs on. One that is not on the channel's runlist is INVALID_CLASS (GUESS)."""
    board = manager.board
    if made.row.kind is Kind.SOFTWARE:
        return channel.engine_type
    if made.row.kind is Kind.COPY:
        engine_type = channel.engine_type
        if params is not None:
            first = EngineKind.CE.value[0]
            engine_type = params.engineType + first if params.version == VERSION_0 else params.engineType
        elif board.of_kind(EngineKind.GR)[0].nv2080_type == channel.engine_type:
            engine_type = EngineKind.CE.value[0] + board.copying.graphics_lces[0]
    elif made.row.kind is Kind.VIDEO:
        engine_type = channel.engine_type
    else:
        engine_type = EngineKind.GR.value[0]
    engine = board.engine(engine_type)
    if engine is None or engine.runlist != channel.runlist or not _runs(made.row, engine.kind):
        raise RmError(
            status.NV_ERR_INVALID_CLASS, f"{made.row.name} for engine {engine_type:#x} on runlist {channel.runlist}"
        )
    return engine_type


def _runs(row: ClassRow, kind: EngineKind) -> bool:
    """Return whether engines of a kind run a class."""
    if row.kind is Kind.GRAPHICS:
        return kind is EngineKind.GR
    if row.kind is Kind.COPY:
        return kind is EngineKind.CE
    suffix = row.name.partition("_")[2]
    wanted = {"VIDEO_NVJPG": EngineKind.NVJPG, "VIDEO_OFA": EngineKind.OFA} | RUNS_ON
    return wanted[suffix] is kind


def _debugger(manager: Manager, made: Resource, params: rm_alloc.NV83DE_ALLOC_PARAMETERS) -> None:
    """Attach a debugger to a graphics or compute object. Source: ksmdbgssnConstruct, kernel_sm_debugger_session.c."""
    if params.hDebuggerClient_Obsolete:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, "a debugger's client is named in the old way")
    owner = manager.clients.client(params.hAppClient or made.client.handle)
    found = owner.resources.get(params.hClass3dObject)
    if found is None:
        raise RmError(
            status.NV_ERR_INVALID_OBJECT_PARENT, f"{params.hClass3dObject:#x} is nothing of {owner.handle:#x}"
        )
    if found.row.kind is not Kind.GRAPHICS:
        raise RmError(status.NV_ERR_INVALID_OBJECT, f"{found} is no graphics or compute object")
    made.state = Debugged(state_of(found, EngineObject).channel)
    found.dependants.append(made)


def event_place(client: Client, parent: int, row: ClassRow, params: Any) -> tuple[ClassRow, int]:
    """Return the class and parent that an event really gets; _fixupAllocParams. `params`: NV0005_ALLOC_PARAMETERS.

    NV01_EVENT takes its class from the parameters. The source is the parent that was named. An event for another
    client hangs on its own.
    """
    if row.number == nv.NV01_EVENT:
        found = classes.BY_NUMBER.get(params.hClass)
        if found is None or found.kind is not Kind.EVENT:
            raise RmError(status.NV_ERR_INVALID_CLASS, f"class {params.hClass:#x} is no event")
        row = found
    if row.number == nv.NV01_EVENT:
        raise RmError(status.NV_ERR_INVALID_CLASS, "NV01_EVENT is no class of its own")
    params.hSrcResource = parent
    return row, parent if params.hParentClient == client.handle else client.handle


def _event(manager: Manager, made: Resource, params: rm_alloc.NV0005_ALLOC_PARAMETERS) -> None:
    owner = manager.clients.client(params.hParentClient or made.client.handle)
    source = owner.resources.get(params.hSrcResource)
    if source is None or source.row.kind not in NOTIFIERS:
        raise RmError(status.NV_ERR_INVALID_OBJECT, f"{params.hSrcResource:#x} tells of no events")
    made.state = Subscription(source, params.notifyIndex, params.data)
    if source is not made.parent:
        source.dependants.append(made)


def copy(manager: Manager, source: Resource, made: Resource) -> None:
    """Give a duplicate the state of its source: both are the same thing."""
    made.state = source.state


def destruct(manager: Manager, gone: Resource) -> None:
    """Undo what an object did. It has no children any more."""
    state = gone.state
    if isinstance(state, Running):
        _let_go(manager, state)
    elif isinstance(state, EngineObject):
        state.channel.objects.pop(gone.row.number, None)
    elif isinstance(state, Share) and not _shared(manager, gone):
        state.group.subcontexts.discard(state.subcontext)
    gone.state = State()


def _shared(manager: Manager, gone: Resource) -> bool:
    """Return whether another object is the same thing."""
    return any(
        other is not gone and other.state is gone.state
        for client in manager.clients
        for other in client.resources.values()
    )


def _let_go(manager: Manager, state: Running) -> None:
    """End what an object kept alive. A channel without its own object runs no more, though another may hold it."""
    channel = state.channel
    if state.owner and channel.scheduled:
        channel.scheduled = False
        manager.effects.channel_scheduled(channel, False)
    if not manager.numbers.release(channel):
        return
    for client in manager.clients:
        for resource in client.resources.values():
            if isinstance(resource.state, AddressSpace | Group) and channel in resource.state.channels:
                resource.state.channels.remove(channel)
    manager.effects.channel_freed(channel)


_MAKERS: dict[Kind, Callable[[Manager, Resource, Any], None]] = {
    Kind.DEVICE: _device,
    Kind.SUBDEVICE: _subdevice,
    Kind.VASPACE: _vaspace,
    Kind.GROUP: _group,
    Kind.SHARE: _share,
    Kind.CHANNEL: _channel,
    Kind.RETAINER: _retainer,
    Kind.GRAPHICS: _engine_object,
    Kind.COPY: _engine_object,
    Kind.VIDEO: _engine_object,
    Kind.SOFTWARE: _engine_object,
    Kind.EVENT: _event,
    Kind.DEBUGGER: _debugger,
}
