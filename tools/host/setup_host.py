"""`ringup setup`: show the rules that let users reach cards, write them where root asks for it, take them back."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Any

from ringup.drivers.transport.linux import advice
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import PermissionNeeded, TransportError
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text
from ringup.tools.common.wrong_usage import WrongUsage
from ringup.tools.host import doctor_usb, host_rules
from ringup.tools.host.host_rules import USB, VFIO, File

NOTES = "var/lib/ringup/setup.json"  # what was there before, for --undo
RELOAD = (("udevadm", "control", "--reload"), ("udevadm", "trigger", "--subsystem-match=usb", "--subsystem-match=vfio"))
TIMEOUT_S = 30  # TIMEOUT: udevadm and usermod take a moment
MODE = 0o644
ELSEWHERE = {
    "Darwin": "macOS needs no rule: libusb reaches enclosures by itself. An enclosure with stock firmware is held by the system's storage "
    "driver, which only root may take it from: run ringup with sudo there, or flash other firmware.",
}
Run = Callable[[Sequence[str]], None]


@dataclass(slots=True)
class Plan:
    """What is to be done: files that differ with their texts before (None: not there), commands, and hints that stay
    the user's.
    """

    changes: list[tuple[File, str | None]] = field(default_factory=list)
    same: list[File] = field(default_factory=list)
    memberships: list[tuple[str, str]] = field(default_factory=list)  # user, group
    hints: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)  # devices that a rule which is there was not applied to


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "setup",
        help="show or write the rules that let users reach cards: udev, modules, limits",
        description="Show the files that let users reach enclosures on USB and cards through VFIO, as differences to what is there. --apply "
        "writes them and adds the user to the groups; it must be run as root, since this command never gets rights by itself. What was there "
        "before is kept for --undo.",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--apply", action="store_true", help="write the files, as root")
    action.add_argument("--undo", action="store_true", help="put back what was there, as root")
    parser.add_argument("--only", choices=(USB, VFIO), help="rules for enclosures alone, or for VFIO alone")
    parser.add_argument("--user", metavar="NAME", help="who uses the cards (default: who called sudo)")
    parser.add_argument(
        "--root",
        default="/",
        metavar="DIR",
        help="a system below DIR, such as an image that is being made",
    )
    parser.add_argument("--json", action="store_true", help="print one object")


def run(args: argparse.Namespace, do: Run | None = None) -> int:
    """Show or carry out. `do` runs a program of the system's."""
    system = platform.system()
    if system != "Linux":
        hint = ELSEWHERE.get(system, f"there are no rules for {system}")
        print(json_text({"applied": False, "files": [], "commands": [], "hints": [hint]}) if args.json else hint)
        return 0
    root = _root(args.root)
    here = root.samefile("/")
    if here and (args.apply or args.undo):
        _check_rights()
    do = do or (_call if here else _pass)
    if args.undo:
        taken = undo(root, do)
        print(json_text({"undone": taken}) if args.json else "\n".join(taken or ["nothing of ringup's was there"]))
        return 0
    parts = (args.only,) if args.only else (USB, VFIO)
    plan = make_plan(root, parts, args.user or os.environ.get("SUDO_USER") or "")
    if args.apply:
        apply(root, plan, do)
    if args.json:
        print(json_text(_document(plan, applied=args.apply), indent=1))
    else:
        print("\n".join(_lines(plan, applied=args.apply)))
    return 0


def make_plan(root: Path, parts: Sequence[str], user: str) -> Plan:
    """Compare what should be with what is below `root`. Touches nothing. Raises `WrongUsage` for a user that the system
    does not have.
    """
    groups = _groups(root)
    plan = Plan()
    for file in host_rules.files(parts, groups):
        now = _text(root / file.path)
        if now == file.text:
            plan.same.append(file)
        else:
            plan.changes.append((file, now))
    wanted = host_rules.wanted_groups(parts, groups)
    if user and user not in _users(root) and not (root.samefile("/") and _is_known(user)):
        raise WrongUsage(f"there is no user {user}")
    plan.memberships = [(user, group) for group in wanted if user and user != "root" and user not in groups[group]]
    if wanted and not user:
        plan.hints.append(
            f"who uses the cards should be in {' and '.join(wanted)}: sudo usermod -aG {','.join(wanted)} NAME"
        )
    if USB in parts and not plan.changes:
        lines = doctor_usb.examine(Kernel(root), linux=True)
        plan.pending = [f"{line.what}: {line.todo}" for line in lines if doctor_usb.NOT_APPLIED in line.todo]
    if VFIO in parts and not any((root / "sys/kernel/iommu_groups").glob("*")):
        plan.hints.append(
            "no IOMMU is seen: enable VT-d or AMD-Vi in the firmware set-up, and boot with intel_iommu=on on Intel's"
            f"{advice.booted_with(Kernel(root), 'intel_iommu=on')}; without one `ringup bind --driver none` lets root drive a card"
        )
    return plan


def apply(root: Path, plan: Plan, do: Run) -> None:
    """Write what differs, keeping what was there. Done twice it changes nothing."""
    if not plan.changes and not plan.memberships:
        return
    kept = _kept(root)
    for file, now in plan.changes:
        kept["files"].setdefault(file.path, now)  # what was there before the first time
    kept["memberships"] += [list(pair) for pair in plan.memberships if list(pair) not in kept["memberships"]]
    _write(root / NOTES, json.dumps(kept, indent=1) + "\n")  # ORDER: the way back is known before anything changes
    for file, _ in plan.changes:
        _write(root / file.path, file.text)
    for user, group in plan.memberships:
        do(("usermod", "-aG", group, user))
    if plan.changes:
        for command in RELOAD:
            do(command)


def undo(root: Path, do: Run) -> list[str]:
    """Put back what was there before the first `apply`; return what was done."""
    kept, done = _kept(root), []
    for path, before in kept["files"].items():
        target = root / path
        if before is None:
            target.unlink(missing_ok=True)
            done.append(f"/{path}: removed")
        else:
            _write(target, before)
            done.append(f"/{path}: as it was")
    for user, group in kept["memberships"]:
        do(("gpasswd", "-d", user, group))
        done.append(f"{user}: no longer in {group}")
    (root / NOTES).unlink(missing_ok=True)
    if done:
        for command in RELOAD:
            do(command)
    return done


def _root(text: str) -> Path:
    """Return the folder that a system lies in. Raises `WrongUsage` for what is none: it is not made here."""
    if not text or not Path(text).is_dir():
        raise WrongUsage(f"--root {text!r} is no folder that is there")
    return Path(text)


def _check_rights() -> None:
    if os.geteuid() != 0:
        raise PermissionNeeded(
            "files below /etc are root's: sudo ringup setup --apply (or --undo); this command never gets rights by itself"
        )


def _kept(root: Path) -> dict[str, Any]:
    """Return what was there before: `files` by path with their texts (null: none), `memberships` that were added."""
    try:
        kept: dict[str, Any] = json.loads((root / NOTES).read_text(encoding="utf-8"))
        return {"files": dict(kept["files"]), "memberships": list(kept["memberships"])}
    except FileNotFoundError:
        return {"files": {}, "memberships": []}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TransportError(
            f"/{NOTES} cannot be read ({error}): remove it, and look at what ringup's files below /etc hold"
        ) from error


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.writing(path) as draft:
        draft.write_text(text, encoding="utf-8")
        draft.chmod(MODE)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _groups(root: Path) -> dict[str, set[str]]:
    """Return groups and their members. Source: group(5)."""
    rows = (line.split(":") for line in (_text(root / "etc/group") or "").splitlines())
    return {row[0]: set(filter(None, row[3].split(","))) for row in rows if len(row) == 4}


def _is_known(user: str) -> bool:
    """Whether the running system knows a user, by its name service: not all stand in the file."""
    import pwd  # of systems with such rules alone

    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _users(root: Path) -> set[str]:
    return {line.partition(":")[0] for line in (_text(root / "etc/passwd") or "").splitlines()}


def _call(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        raise TransportError(
            f"{shlex.join(command)}: {detail.strip()}; the files are written, run it by hand"
        ) from error


def _pass(command: Sequence[str]) -> None:
    """Of a system that does not run nothing can be reloaded; its groups are changed by who makes it."""


def _diff(file: File, now: str | None) -> list[str]:
    before = (now or "").splitlines()
    name = f"/{file.path}"
    return list(
        unified_diff(before, file.text.splitlines(), name if now is not None else "/dev/null", name, lineterm="")
    )


def _commands(plan: Plan) -> list[str]:
    return [f"usermod -aG {group} {user}" for user, group in plan.memberships]


def _lines(plan: Plan, *, applied: bool) -> Iterator[str]:
    for file in plan.same:
        yield f"/{file.path}: as it should be ({file.why})"
    for file, now in plan.changes:
        yield f"/{file.path}: {'written' if applied else 'not there' if now is None else 'differs'} ({file.why})"
        yield from (f"  {line}" for line in _diff(file, now))
    for command in _commands(plan):
        yield f"{'done' if applied else 'to do'}: {command}" + (" (log in again)" if applied else "")
    yield from plan.hints
    if not applied and (plan.changes or plan.memberships):
        yield "nothing was changed: `sudo ringup setup --apply` writes it, `--undo` takes it back"
    elif not plan.changes and not plan.memberships:
        yield "there is nothing to do" if not plan.pending else "nothing is to be written"
        yield from plan.pending


def _document(plan: Plan, *, applied: bool) -> dict[str, object]:
    rows = [{"path": f"/{file.path}", "state": "same", "text": file.text, "diff": []} for file in plan.same]
    rows += [
        {
            "path": f"/{file.path}",
            "state": "absent" if now is None else "differs",
            "text": file.text,
            "diff": _diff(file, now),
        }
        for file, now in plan.changes
    ]
    return {"applied": applied, "files": rows, "commands": _commands(plan), "hints": [*plan.hints, *plan.pending]}
