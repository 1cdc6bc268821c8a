"""The table of controls, and how one is carried out.

Statuses are those of the resource server: rs_resource.c (resControlLookup), rs_server.c (serverControl).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ringup.autogen.nv import status
from ringup.autogen.structs import Struct
from ringup.errors import NotSupported
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.manager import BLOCK, Manager
from ringup.silicon.nv.rm.objects import Resource
from ringup.silicon.nv.rm.parts import RmError


@dataclass(frozen=True, slots=True)
class Request:
    """One control that is carried out: whose, and on which object."""

    manager: Manager
    target: Resource


# fills the parameters in; takes the view of the layout that the row names, or None
Answer = Callable[[Request, Any], None]


@dataclass(frozen=True, slots=True)
class Control:
    """One row. `layout`: the parameters; None if the headers have none, and then `size_bytes` is what callers send.

    The answer's own text says where it comes from, and what is guessed.
    """

    command: int
    name: str
    kind: Kind
    layout: type[Struct] | None
    size_bytes: int
    answer: Answer


def row(
    module: ModuleType,
    name: str,
    layout: type[Struct] | None,
    answer: Answer,
    *,
    kind: Kind = Kind.SUBDEVICE,
    prefix: str = "NV2080_CTRL_CMD_",
    size_bytes: int = 0,
) -> Control:
    """Return a row for the command that a generated module calls `prefix` + `name`."""
    full = prefix + name
    return Control(int(getattr(module, full)), full, kind, layout, size_bytes, answer)


def refuse(code: int, reason: str) -> Answer:
    """Return an answer that refuses: the board lacks what is asked about."""

    def answer(request: Request, params: object) -> None:
        raise RmError(code, reason)

    return answer


def accept(request: Request, params: object) -> None:
    """Do nothing: what is asked for has no effect on this card that anyone can see."""


def _has(manager: Manager, control: Control) -> bool:
    """Return whether the running release has the control: its parameters have a layout there."""
    try:
        return control.layout is None or manager.layout(control.layout).SIZE > 0
    except NotSupported:
        return False


class Controls:
    """All rows, by command. `later`: those that only later releases have, whose command may have been
    another control's before.
    """

    def __init__(self, rows: Iterable[Control]) -> None:
        self.rows: dict[int, Control] = {}
        self.later: dict[int, Control] = {}
        for one in rows:
            place = self.later if one.layout is not None and one.layout.SINCE else self.rows
            if one.command in place:
                raise ValueError(f"{one.name} and {place[one.command].name} are both {one.command:#010x}")
            place[one.command] = one

    def run(self, manager: Manager, client_handle: int, handle: int, command: int, data: bytearray) -> None:
        """Carry out one control; `data` are its parameters, and what is answered is written to them.

        Raises `RmError`. An unknown command is counted, and answers NOT_SUPPORTED.
        """
        manager.check_faults()
        target = manager.find(client_handle, handle)
        rows = (self.rows.get(command), self.later.get(command))
        control = next((one for one in rows if one is not None and _has(manager, one)), None)
        if control is None:
            manager.unmodelled[f"control {command:#010x}"] += 1
            manager.log.note(BLOCK, "unmodelled", "control {:#010x} of {} bytes on {}", command, len(data), target)
            raise RmError(status.NV_ERR_NOT_SUPPORTED, f"control {command:#010x} is not modelled")
        if control.kind is not target.row.kind:
            raise RmError(status.NV_ERR_NOT_SUPPORTED, f"{control.name} on {target}")
        layout = None if control.layout is None else manager.layout(control.layout)
        size = control.size_bytes if layout is None else layout.SIZE
        if len(data) != size:
            raise RmError(
                status.NV_ERR_INVALID_PARAM_STRUCT, f"{control.name} takes {size} bytes of parameters, not {len(data)}"
            )
        manager.log.note(BLOCK, "control", "{} on {}", control.name, target)
        control.answer(Request(manager, target), data if layout is None else layout.view(data))
