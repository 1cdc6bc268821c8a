"""What the commands do with NVIDIA's cards: look at one that stays with NVIDIA's kernel driver, and show any.

A card of `drivers.nv` has the same verbs whichever driver drives it, so all but `look` serve both paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import ringup
from ringup.drivers.nv.nodes.watch import Watch
from ringup.drivers.nv.rm.facts import CardFacts
from ringup.drivers.nv.verbs import AnyNvidia, CardInfo
from ringup.drivers.transport.linux.holders import survey_nodes
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.system import node_of
from ringup.drivers.transport.nvidia.transport import PREFIX
from ringup.errors import NotSupported

MIB, KIB = 20, 10
# the end of the names of virtual cards behind a model of NVIDIA's kernel driver
BEHIND = "@nvidia"
RESET_TOOL = "as root, once no process uses it: nvidia-smi --gpu-reset"
NO_MEMORY = (
    "NVIDIA's driver shows no process another's memory; `ringup mem {name} list` lists the buffers of a start, and "
    "`card.copy.download` reads them"
)


def through_driver(name: str) -> bool:
    """Whether a name stands for a card that stays with NVIDIA's kernel driver."""
    return name.startswith(PREFIX) or name.endswith(BEHIND)


@contextmanager
def look(name: str) -> Iterator[Watch]:
    """Look at a card that stays with NVIDIA's kernel driver: nothing is made on it. Raises what opening it raises."""
    path = ringup.connect(name)
    if not isinstance(path, NvidiaDevice):
        path.close()
        raise NotSupported(f"{name} does not stay with NVIDIA's kernel driver")
    with Watch(path) as watch:
        yield watch


def users(watch: Watch) -> list[str]:
    """Return the processes that have the card's node open, this one left out; none for a virtual card."""
    kernel = getattr(watch.device.system, "kernel", None)
    if not isinstance(kernel, Kernel):
        return []
    node = str(kernel.path(node_of(watch.device.row.minor)))
    return [str(use) for use in survey_nodes(kernel, {node}).uses]


# --- info -------------------------------------------------------------------------------------------------------------
def describe(watch: Watch) -> dict[str, Any]:
    """Return what a card is as plain values, with what its driver tells of its state."""
    return shown(watch.info, watch.facts) | {
        "state": watch.info.found,
        "users": users(watch),
        "resets": list(watch.resets),
        "sensors": asdict(watch.stats().sensors),
    }


def shown(info: CardInfo, facts: CardFacts) -> dict[str, Any]:
    """Return what a card is as plain values."""
    core = {
        "gpcs": facts.gpcs,
        "tpcs": facts.tpcs,
        "sms": facts.sms,
        "warps_per_sm": facts.warps_per_sm,
        "threads_per_warp": info.wave_size,
        "l2_bytes": info.l2_bytes,
        "copy_engines": info.copy_engines,
    }
    values = asdict(info)
    for name in ("compute_units", "warps_per_unit", "wave_size", "l2_bytes", "copy_engines"):
        del values[name]
    return values | {"core": core}


def info_lines(card: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of `ringup info`."""
    core, seen = card["core"], card["sensors"]
    yield f"{card['name']}: {card['chip']}, {card['target']}: {card['product']}"
    yield f"  state     {card['state']}"
    yield f"  release   {release_text(card['versions'])}"
    yield f"  PCI       {card['pci_id']} at {card['address']}"
    link = seen["link"] or "not known"
    yield f"  link      {link}" + (f", at best {seen['link_at_best']}" if seen["link_at_best"] else "")
    free = f", {seen['vram_free_bytes'] >> MIB} MiB free" if seen["vram_free_bytes"] is not None else ""
    window = f"{card['window_bytes'] >> MIB} MiB of it in the window"
    yield f"  memory    {card['vram_bytes'] >> MIB} MiB, {window}{free}"
    yield (
        f"  core      {core['gpcs']} GPCs, {core['tpcs']} TPCs, {core['sms']} SMs; {core['warps_per_sm']} warps of "
        f"{core['threads_per_warp']} threads an SM; {core['l2_bytes'] >> KIB} KiB of L2; "
        f"{core['copy_engines']} copy engines"
    )
    if card["gid"]:
        yield f"  id        {card['gid']}"
    yield f"  resets    {', '.join(card['resets'])}"
    for text in card["users"]:
        yield f"  used by   {text}"
    for text in card["doubts"]:
        yield f"  uncertain {text}"


def release_text(versions: dict[str, str]) -> str:
    """Say which release of the driver answers, and by which layouts it is spoken to where those are another's."""
    release, layouts = versions.get("nvidia", ""), versions.get("layouts", "")
    return f"{release} of NVIDIA's driver" + (f", spoken to as {layouts}" if layouts not in ("", release) else "")


# --- report -----------------------------------------------------------------------------------------------------------
class LookReport:
    """What is known of a card from outside: its driver tells no process of another's channels."""

    def __init__(self, watch: Watch) -> None:
        self.name, self.release, self.users = watch.name, release_text(watch.info.versions), users(watch)
        self.chip, self.sensors = watch.info.chip, watch.stats().sensors
        self.cause = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        sensors = {name: value for name, value in asdict(self.sensors).items() if value not in (None, "")}
        return {"name": self.name, "chip": self.chip, "cause": "", "release": self.release, "holders": self.users} | {
            "metrics": sensors,
            "unknown": [UNSEEN.format(name=self.name)],
        }

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.chip}, its driver answers", f"release {self.release}"]
        lines += [f"used by {text}" for text in self.users]
        lines += [f"{name:26} {value}" for name, value in self.as_dict()["metrics"].items()]
        return "\n".join([*lines, f"not known: {UNSEEN.format(name=self.name)}"])


UNSEEN = (
    "what other processes run: the driver tells it to nobody; errors of channels are in the kernel's log, as "
    "NVRM: Xid; `ringup report {name} --up` starts queues and reports them"
)


# --- reset, down ------------------------------------------------------------------------------------------------------
def reset(card: AnyNvidia[Any, Any], first: str | None) -> tuple[list[Any], str]:
    """Make the card's channels anew; return the rungs, and what a user may want to know after."""
    rungs = card.reset(*(first,) if first else ())
    return rungs, (
        "new channels run; the work of other processes went on. The whole card is reset by its driver's own tool, "
        f"{RESET_TOOL}"
    )


def stop(name: str) -> None:
    """Refuse to stop a card that its kernel driver drives, and say what ends its work."""
    with look(name) as watch:
        held = users(watch)
    who = f"; used by {'; '.join(held)}" if held else ""
    raise NotSupported(
        f"stopping {name}: NVIDIA's driver drives it, ends a process's work with the process, and puts the card to "
        f"sleep itself{who}"
    )


# --- mem --------------------------------------------------------------------------------------------------------------
def no_memory(name: str) -> NotSupported:
    """Return the error for memory that cannot be reached from another process."""
    return NotSupported(f"memory of {name}: {NO_MEMORY.format(name=name)}")
