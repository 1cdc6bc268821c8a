"""Binding PCI functions to another kernel driver: a plan of writes to sysfs that can be shown, done and undone.

VFIO gives out only whole IOMMU groups, and one reset resets every function of a slot. So all these functions get the
same driver, also without an IOMMU. Bridges stay with the kernel. Source: Linux ABI/testing/sysfs-bus-pci,
driver_override, drivers_probe, bind, unbind; driver-api/vfio.rst.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringup.drivers.transport.linux import preflight
from ringup.drivers.transport.linux.function import Function, masters
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.preflight import NOTE, REFUSE, VFIO_DRIVER, Finding
from ringup.errors import RingupError, TransportError

LOG = logging.getLogger(__name__)
# as an override: no driver has this name, so no driver takes the function
NOBODY = "none"
# the contents of a driver_override that is not set
UNSET = ("", "(null)")
CLEAR = "\n"
PCI = "sys/bus/pci"
RESET = "reset what was left running"


@dataclass(frozen=True, slots=True)
class Step:
    """One write, and the write that undoes it; an empty `undo_path`: none does. `expect`: the driver that must hold the
    function afterwards; None: not checked.
    """

    function: str
    what: str
    path: str
    value: str
    undo_path: str
    undo_value: str
    expect: str | None = None

    def __str__(self) -> str:
        return f"{self.function}: {self.what}: echo {self.value.strip()} > {self.path}"


def plan_bind(function: Function, driver: str = VFIO_DRIVER) -> list[Step]:
    """Return the steps that bind the function and its companions to `driver`. With "none", no driver has them
    afterwards. Empty if nothing has to change.
    """
    return [step for mate in _movable(function) for step in _hand_over(mate, driver)]


def plan_unbind(function: Function) -> list[Step]:
    """Return the steps that give the function and its companions back to the drivers that the kernel chooses. Empty if
    nothing was overridden and no GPU was left running without a driver.
    """
    return [step for mate in _movable(function) for step in _give_back(mate)]


def objections(function: Function, driver: str | None, *, whole_group: bool = False) -> list[Finding]:
    """Return the reasons not to carry out a plan. `driver`: the driver that the group gets; None for the kernel's own
    choice.

    `whole_group`: the user agrees that other devices than the card get the driver too.
    """
    kernel = function.kernel
    found = [*_kind(function, driver), *preflight.holders(function), *preflight.lock(function)]
    strangers = ", ".join(f"{mate.address} ({mate.driver or 'no driver'})" for mate in _strangers(function))
    if driver is not None and strangers and not whole_group:
        remedy = "a disk or a network card may be among them: put the card into another slot, or add --whole-group"
        found.append(Finding("group", REFUSE, f"other devices are in group {function.group}: {strangers}", remedy))
    # the firmware's console may draw on a card without a driver: a reset would end that
    if driver is not None or any(step.what == RESET for step in plan_unbind(function)):
        found += [finding for mate in _movable(function) for finding in preflight.console(mate)]
    if driver == VFIO_DRIVER and not function.group:
        found += preflight.group(function)
    if driver not in (None, NOBODY) and not kernel.path(PCI, "drivers", driver).is_dir():
        found.append(
            Finding("driver", REFUSE, f"the kernel has no driver {driver} loaded", f"as root: modprobe {driver}")
        )
    found += [
        Finding("permissions", REFUSE, f"no permission for {step.path}", "run the command as root")
        for step in (plan_unbind(function) if driver is None else plan_bind(function, driver))[:1]
        if not os.access(kernel.path(step.path), os.W_OK)
    ]
    # a lock means that a process of ringup uses the card. To open the card, one has to wait. To unbind it does harm
    return [
        Finding(row.what, REFUSE, row.seen, row.remedy) if row.what == "lock" and row.state == NOTE else row
        for row in found
        if row.state == REFUSE or (row.what == "lock" and row.state == NOTE)
    ]


def carry_out(kernel: Kernel, steps: Sequence[Step], say: Callable[[str], None] = LOG.info) -> None:
    """Do the steps. If one fails, undo it and those before it, newest first, and raise its error.

    The error says what failed and whether everything was undone. `say` gets the text of each step before it is done.
    """
    done: list[Step] = []
    for step in steps:
        say(str(step))
        try:
            # before the write: a write that fails may have had part of its effect
            done.append(step)
            kernel.write(kernel.path(step.path), step.value, step.what)
            _check(kernel, step)
        except RingupError as error:
            failed = "; ".join(_undo(kernel, done, say))
            after = f"not everything could be undone: {failed}" if failed else "everything is as it was before"
            raise type(error)(f"{error}; {after}") from error


def _kind(function: Function, driver: str | None) -> Iterator[Finding]:
    """Yield a finding for a slot without a GPU: the function may be the machine's disk."""
    if driver is not None and not any(mate.graphics for mate in _of_slot(function)):
        yield from preflight.kind(function)


def _of_slot(function: Function) -> list[Function]:
    slot = function.address.rpartition(".")[0]
    return [mate for mate in function.companions() if mate.address.rpartition(".")[0] == slot]


def _movable(function: Function) -> list[Function]:
    return [mate for mate in function.companions() if not mate.bridge]


def _strangers(function: Function) -> list[Function]:
    """Return the functions of the group that are in other slots, and so no part of the card."""
    slot = function.address.rpartition(".")[0]
    return [mate for mate in _movable(function) if mate.address.rpartition(".")[0] != slot]


def _override_of(function: Function) -> str:
    text = function.kernel.text(function.path / "driver_override")
    return "" if text in UNSET else text


def _hand_over(function: Function, driver: str) -> Iterator[Step]:
    # ORDER: unbind the old driver, set the override, bind the new driver. When the steps are undone in reverse, the
    # override is gone before the old driver is bound again
    now, override = function.driver, _override_of(function)
    wanted = "" if driver == NOBODY else driver
    if now == wanted:
        return
    if now:
        yield _leave(function, now)
    if override != driver:
        yield _override(function, driver, override)
    if wanted:
        yield _probe(function, wanted, undo=f"/{PCI}/drivers/{wanted}/unbind")


def _give_back(function: Function) -> Iterator[Step]:
    now, override = function.driver, _override_of(function)
    # A process that was killed over sysfs left it so, whether or not it was bound first; VFIO closes the function of
    # one. Kernel drivers count on a card that does nothing: nouveau fails while a GSP-RM runs that it did not start.
    running = not now and bool(masters(function)) and (function.path / "reset").exists()
    if now != VFIO_DRIVER and not override and not (running and function.graphics):
        return
    if now:
        yield _leave(function, now)
    elif running:
        yield Step(function.address, RESET, _own(function, "reset"), "1", "", "")
    if override:
        yield _override(function, CLEAR, override)
    yield Step(
        function.address,
        "let the kernel choose a driver",
        f"/{PCI}/drivers_probe",
        function.address,
        _own(function, "driver/unbind"),
        function.address,
    )


def _leave(function: Function, driver: str) -> Step:
    folder = f"/{PCI}/drivers/{driver}"
    address = function.address
    return Step(address, f"take it from {driver}", f"{folder}/unbind", address, f"{folder}/bind", address, expect="")


def _override(function: Function, driver: str, before: str) -> Step:
    path = _own(function, "driver_override")
    what = f"let only {driver} take it" if driver != CLEAR else "let any driver take it"
    return Step(function.address, what, path, driver, path, before or CLEAR)


def _probe(function: Function, driver: str, undo: str) -> Step:
    address = function.address
    return Step(address, f"give it to {driver}", f"/{PCI}/drivers_probe", address, undo, address, expect=driver)


def _own(function: Function, name: str) -> str:
    return f"/{PCI}/devices/{function.address}/{name}"


def _check(kernel: Kernel, step: Step) -> None:
    driver = Function(kernel, step.function).driver
    if step.expect is not None and driver != step.expect:
        raise TransportError(
            f"{step.what}: {step.function} belongs to {driver or 'no driver'}, not to {step.expect or 'no driver'};"
            " `dmesg` may say why"
        )


def _undo(kernel: Kernel, done: list[Step], say: Callable[[str], None]) -> Iterator[str]:
    """Undo steps, newest first. Yield the errors, except that of the newest step, which may have had no effect to
    undo.
    """
    for index, step in enumerate(reversed(done)):
        if not step.undo_path:
            continue
        path: Path = kernel.path(step.undo_path)
        say(f"{step.function}: undoing: {step.what}: echo {step.undo_value.strip()} > {step.undo_path}")
        try:
            kernel.write(path, step.undo_value, f"undoing: {step.what}")
        except RingupError as error:
            if index:
                yield str(error)
