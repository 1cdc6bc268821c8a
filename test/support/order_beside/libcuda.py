"""Compares what our driver asks of NVIDIA's kernel driver with what NVIDIA's own library asks, to work on a GA102.

The library's side was seen by others: `test/data/nv-rm/libcuda_objects.txt` has the objects that its release 535.261.03
made through NVIDIA's open kernel modules, as GSP-RM got them; `libcuda_calls.txt` has the names of all its calls. The
library itself is not run: its licence allows that on NVIDIA's own cards only. `libcuda.toml` beside them names the
steps, and says why our driver differs. From the repository's root, `PYTHONPATH=test/guest:test/support python -m
order_beside.libcuda` prints what the tables do not explain; with `--page` it writes them into docs/nvidia-order.md.
"""

from __future__ import annotations

import csv
import ctypes
import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nvidia_code import sass_programs

import ringup
from order_beside import compare
from ringup.autogen import nv
from ringup.autogen.nv import rm
from ringup.autogen.nv.classes import NV01_ROOT_CLIENT
from ringup.autogen.structs import SCALARS, Struct
from ringup.drivers.transport.nvidia.system import ModelSystem
from ringup.silicon import nvidia_kernel
from ringup.silicon.nv.kernel.rows import ROWS as KERNEL_CLASSES
from ringup.silicon.nv.rm.classes import ROWS as CLASSES
from ringup.silicon.nv.rm.classes import Kind

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "test/data/nv-rm"
TABLES = DATA / "libcuda.toml"
PAGE = ROOT / "docs/nvidia-order.md"
PART = "libcuda"
RELEASE, CHIP = "535.261.03", "ga102"
# the column of libcuda_calls.txt
COLUMN = "libcuda_535_sm_86"
# the library's client in the log. Others are UVM's, and one that only looks
CLIENT = 0xC1D00009
# of an object's parameters the log has this many bytes
SEEN_BYTES = 48
# NV2080_ENGINE_TYPE_GRAPHICS: cl2080.h
GRAPHICS = 1
STOP_CHANNEL = 0xA06F0112
# GSP-RM gets other parameters of a client than the kernel's driver does: cl0000.h
UNCOMPARED = (Kind.CLIENT,)
# the page says in words that the order is the same
WITHOUT = ("swapped", "unpushed", "pushed")
HEADINGS = {
    "steps": ("step", "why at this position"),
    "missing": ("step of the library", "why not ours"),
    "added": ("our step", "why"),
    "values": ("parameter", "why"),
    "unwritten": ("what only the library asks", "why not ours"),
    "written": ("what only ours asks", "why"),
}
_ROWS = {row.number: row for row in (*CLASSES, *KERNEL_CLASSES.values())}


def _numbers(prefix: str, marks: Sequence[str]) -> dict[int, str]:
    """Return the names of constants by their value."""
    found: dict[int, str] = {}
    for path in sorted(Path(next(iter(nv.__path__))).glob(f"{prefix}*.py")):
        module = importlib.import_module(f"ringup.autogen.nv.{path.stem}")
        for name in dir(module):
            value = getattr(module, name)
            if isinstance(value, int) and any(mark in name for mark in marks):
                found.setdefault(int(value), name)
    return found


COMMANDS = _numbers("rm_ctrl", ("_CTRL_CMD_", "_CTRL_GET_CLASS_ENGINEID"))
ESCAPES = {number: name for number, name in _numbers("rm", ("NV_ESC_",)).items() if number < 0x100}


class Followed(compare.Bringup):
    """Objects of one client as they are made, and what is asked of them. Raises `KeyError` for an unknown object or
    class.

    A name of a parameter has its object's class, and below a channel group what the group is for. A handle is compared
    by the class of what it names.
    """

    def __init__(self) -> None:
        super().__init__()
        self._classes: dict[int, int] = {}
        self._uses: dict[int, str] = {}
        self._phase = ""

    def stopping(self) -> None:
        """Begin the end: its acts have `stop:` before them."""
        self._phase = "stop:"

    def _act(self, verb: str, text: str) -> None:
        self.acts.append(f"{self._phase}{verb} {text}")

    def _label(self, handle: int) -> str:
        return f"{_ROWS[self._classes[handle]].name}{self._uses[handle]}"

    def alloc(self, parent: int, handle: int, number: int, params: bytes) -> None:
        """Note an object."""
        self._classes[handle] = number
        row = _ROWS[number]
        values = dict(self._values(row.params, params)) if row.params else {}
        if row.kind is Kind.GROUP:
            self._uses[handle] = " for compute" if values["engineType"] == GRAPHICS else " for copies"
        elif row.kind is Kind.EVENT:
            self._uses[handle] = f" on {self._label(parent)}"
        else:
            self._uses[handle] = self._uses.get(parent, "")
        label = self._label(handle)
        self._act("alloc", label)
        if row.kind not in UNCOMPARED:
            for name, value in values.items():
                self.write(f"{label}.{name}", value)

    def control(self, handle: int, command: int) -> None:
        """Note a control."""
        self._act("control", f"{COMMANDS.get(command, f'{command:#x}')} of {self._label(handle)}")

    def free(self, handle: int) -> None:
        """Note that an object is freed."""
        self._act("free", self._label(handle))

    def called(self, kind: str, number: int = 0, name: str = "") -> None:
        """Note that a call of some kind is used at all, by whatever client."""
        if kind == "control":
            name = COMMANDS.get(number, f"{number:#x}")
        elif kind == "alloc":
            name = _ROWS[number].name if number in _ROWS else name
        self.write(f"{kind} {name}", 1)

    def _values(self, layout: type[Struct], params: bytes) -> Iterator[tuple[str, int]]:
        layout = layout.at(RELEASE)
        view = layout.view(bytearray(params.ljust(layout.SIZE, b"\0")))
        for name, member in layout.members().items():
            if member.base not in SCALARS or member.base == "char" or name.startswith("reserved"):
                continue
            size = SCALARS[member.base][0]
            found = getattr(view, name)
            for at, value in enumerate(found) if member.dims else [(0, found)]:
                if member.byte + size * (at + 1) > SEEN_BYTES:
                    break
                label = f"{name}[{at}]" if member.dims else name
                is_handle = name[0] == "h" and name[1].isupper()
                yield label, self._class_of(int(value)) if is_handle else int(value)

    def _class_of(self, handle: int) -> int:
        """Return the class of what a handle names: 1 for an object that was not seen."""
        number = self._classes.get(handle, int(handle != 0))
        row = _ROWS.get(number) if handle else None
        return NV01_ROOT_CLIENT if row is not None and row.kind is Kind.CLIENT else number


# --- the library's side -----------------------------------------------------------------------------------------------
def theirs() -> compare.Bringup:
    """Return what the library does, from the logs of others."""
    found = Followed()
    for line in (DATA / "libcuda_objects.txt").read_text(encoding="utf-8").splitlines():
        verb, *words = line.split()
        if verb == "#" or int(words[0], 16) != CLIENT:
            continue
        if verb == "alloc":
            _, parent, handle, number = (int(word, 16) for word in words[:4])
            data = bytes.fromhex(words[5].strip("-"))
            # the client itself has no handle of its own
            found.alloc(parent, handle or CLIENT, number, data.ljust(int(words[4]), b"\0"))
        elif verb == "control":
            command = int(words[2], 16)
            if command == STOP_CHANNEL:
                found.stopping()
            found.control(int(words[1], 16), command)
        elif verb == "free":
            found.free(int(words[1], 16))
    with (DATA / "libcuda_calls.txt").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row[COLUMN] != "-":
                found.called(row["kind"], int(row["number"] or "0", 16), row["name"])
    return found


# --- ours -------------------------------------------------------------------------------------------------------------
class Noting(ModelSystem):
    """The nodes of a machine in this process. It notes all that goes through them."""

    def __init__(self, model: Any, found: Followed) -> None:
        super().__init__(model)
        self._found = found
        self.ioctl = self._noted

    def _noted(self, node: int, number: int, data: bytearray) -> int:
        escape, params = number & 0xFF, b""
        # parameters as they are asked for: the answer replaces them
        if escape == rm.NV_ESC_RM_ALLOC:
            asked = rm.NVOS21_PARAMETERS.at(RELEASE).view(data)
            params = ctypes.string_at(asked.pAllocParms, asked.paramsSize) if asked.pAllocParms else b""
        answer: int = self.model.ioctl(node, number, data)
        if escape == rm.NV_ESC_RM_ALLOC:
            made = rm.NVOS21_PARAMETERS.at(RELEASE).view(data)
            self._found.called("alloc", made.hClass)
            self._found.alloc(made.hObjectParent, made.hObjectNew, made.hClass, params)
        elif escape == rm.NV_ESC_RM_CONTROL:
            sent = rm.NVOS54_PARAMETERS.at(RELEASE).view(data)
            self._found.called("control", sent.cmd)
            self._found.control(sent.hObject, sent.cmd)
        elif escape == rm.NV_ESC_RM_FREE:
            self._found.called("escape", name="FREE")
            self._found.free(rm.NVOS00_PARAMETERS.at(RELEASE).view(data).hObjectOld)
        else:
            self._found.called("escape", name=ESCAPES[escape].removeprefix("NV_ESC_").removeprefix("RM_"))
        return answer


def ours() -> compare.Bringup:
    """Open a card behind the model of NVIDIA's driver, copy, run a kernel, and close it."""
    found = Followed()
    machine = nvidia_kernel(CHIP, release=RELEASE)
    with ringup.open("nvidia:0", transport={"system": Noting(machine, found)}) as card:
        program = card.load(sass_programs.cubin(card.target), "sass_programs")
        words = np.arange(128, dtype=np.uint32)
        with card.alloc(words.nbytes) as buffer:
            card.copy.upload(buffer, words).wait()
            stream = card.compute.stream()
            stream.dispatch(program["reverse"], 1, words.size, [buffer])
            card.compute.submit(stream).wait()
            assert (card.copy.download_array(buffer, "u4", words.size) == words[::-1]).all()
        found.stopping()
    return found


def tables() -> compare.Tables:
    """Read the tables."""
    return compare.tables(TABLES, PART)


def paged(text: str, known: compare.Tables) -> str:
    """Return the page with the current tables."""
    return compare.paged(text, known, PART, without=WITHOUT, headings=HEADINGS)


def main(arguments: Sequence[str]) -> int:
    """Print the unexplained differences, or write the page."""
    known = tables()
    if "--page" in arguments:
        PAGE.write_text(paged(PAGE.read_text(encoding="utf-8"), known), encoding="utf-8")
        return 0
    return compare.report(known, theirs(), ours())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
