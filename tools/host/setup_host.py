"""`ringup setup`: show the rules that let users reach cards, write them as root, undo them."""

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

NOTES = "var/lib/ringup/setup.json"  # the earlier files, for --undo
RELOAD = (("udevadm", "control", "--reload"), ("udevadm", "trigger", "--subsystem-match=usb", "--subsystem-match=vfio"))
TIMEOUT_S = 30  # TIMEOUT: udevadm and usermod take a moment
MODE = 0o644
ELSEWHERE = {
    "Darwin": "macOS needs no rule: libusb reaches enclosures by itself. The system's storage "
    "driver holds enclosures with stock firmware, and only root may detach it: run ringup with sudo for them, or "
    "flash other firmware.",
}
Run = Callable[[Sequence[str]], None]


@dataclass(slots=True)
class Plan:
    """The work to do: files that differ, with their earlier texts (None: missing), commands, and hints for the user."""

    changes: list[tuple[File, str | None]] = field(default_factory=list)
    same: list[File] = field(default_factory=list)
    memberships: list[tuple[str, str]] = field(default_factory=list)  # user, group
    hints: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)  # devices to which an installed rule was not applied


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "setup",
        help="show or write the rules that let users reach cards: udev, modules, limits",
        description="Show the files that let users reach enclosures on USB and cards through VFIO, as "
        "differences to the "
        "present files. --apply "
        "writes them and adds the user to the groups; it must be run as root, because this command never raises its "
        "privileges. The earlier files "
        "are kept for --undo.",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--apply", action="store_true", help="write the files, as root")
    action.add_argument("--undo", action="store_true", help="restore the earlier files, as root")
    parser.add_argument("--only", choices=(USB, VFIO), help="only the rules for enclosures, or only those for VFIO")
    parser.add_argument("--user", metavar="NAME", help="the user of the cards (default: the caller of sudo)")
    parser.add_argument(
        "--root",
        default="/",
        metavar="DIR",
        help="a system below DIR, such as an image under construction",
    )
    parser.add_argument("--json", action="store_true", help="print one object")


def run(args: argparse.Namespace, do: Run | None = None) -> int:
    """Show or carry out the plan. `do` runs a program of the system."""
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
        print(
            json_text({"undone": taken}) if args.json else "\n".join(taken or ["there was nothing of ringup to undo"])
        )
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
    """Compare the rules with the files below `root`. Changes nothing. Raises `WrongUsage` for an unknown user."""
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
            f"the user of the cards should be in {' and '.join(wanted)}: sudo usermod -aG {','.join(wanted)} NAME"
        )
    if USB in parts and not plan.changes:
        lines = doctor_usb.examine(Kernel(root), linux=True)
        plan.pending = [f"{line.what}: {line.todo}" for line in lines if doctor_usb.NOT_APPLIED in line.todo]
    if VFIO in parts and not any((root / "sys/kernel/iommu_groups").glob("*")):
        plan.hints.append(
            "no IOMMU was found: enable VT-d or AMD-Vi in the firmware set-up, and boot with intel_iommu=on on Intel's"
            f"{advice.booted_with(Kernel(root), 'intel_iommu=on')}; without one `ringup bind --driver none` lets root "
            "drive a card"
        )
    return plan


def apply(root: Path, plan: Plan, do: Run) -> None:
    """Write the files that differ, and keep the earlier ones. A second run changes nothing."""
    if not plan.changes and not plan.memberships:
        return
    kept = _kept(root)
    for file, now in plan.changes:
        # the files before the first run
        kept["files"].setdefault(file.path, now)
    kept["memberships"] += [list(pair) for pair in plan.memberships if list(pair) not in kept["memberships"]]
    # ORDER: the record for --undo is written before anything changes
    _write(root / NOTES, json.dumps(kept, indent=1) + "\n")
    for file, _ in plan.changes:
        _write(root / file.path, file.text)
    for user, group in plan.memberships:
        do(("usermod", "-aG", group, user))
    if plan.changes:
        for command in RELOAD:
            do(command)


def undo(root: Path, do: Run) -> list[str]:
    """Restore the files from before the first `apply`; return what was done."""
    kept, done = _kept(root), []
    for path, before in kept["files"].items():
        target = root / path
        if before is None:
            target.unlink(missing_ok=True)
            done.append(f"/{path}: removed")
        else:
            _write(target, before)
            done.append(f"/{path}: restored")
    for user, group in kept["memberships"]:
        do(("gpasswd", "-d", user, group))
        done.append(f"{user}: no longer in {group}")
    (root / NOTES).unlink(missing_ok=True)
    if done:
        for command in RELOAD:
            do(command)
    return done


def _root(text: str) -> Path:
    """Return the root folder of a system. Raises `WrongUsage` if it does not exist; it is not made here."""
    if not text or not Path(text).is_dir():
        raise WrongUsage(f"--root {text!r} is not an existing folder")
    return Path(text)


def _check_rights() -> None:
    if os.geteuid() != 0:
        raise PermissionNeeded(
            "files below /etc belong to root: sudo ringup setup --apply (or --undo); this "
            "command never raises its privileges"
        )


def _kept(root: Path) -> dict[str, Any]:
    """Return the earlier state: `files` by path with their texts (null: none), `memberships` that were added."""
    try:
        kept: dict[str, Any] = json.loads((root / NOTES).read_text(encoding="utf-8"))
        return {"files": dict(kept["files"]), "memberships": list(kept["memberships"])}
    except FileNotFoundError:
        return {"files": {}, "memberships": []}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TransportError(
            f"/{NOTES} cannot be read ({error}): remove it, and check ringup's files below /etc"
        ) from error


def _write(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
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
    """Whether the running system knows a user, by its name service, because not all users are in the file."""
    # only on systems with such rules
    import pwd

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
            f"{shlex.join(command)}: {detail.strip()}; the files are written; run this command yourself"
        ) from error


def _pass(command: Sequence[str]) -> None:
    """Do nothing: a system that does not run reloads nothing, and its maker changes its groups."""


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
        yield f"/{file.path}: up to date ({file.why})"
    for file, now in plan.changes:
        yield f"/{file.path}: {'written' if applied else 'missing' if now is None else 'differs'} ({file.why})"
        yield from (f"  {line}" for line in _diff(file, now))
    for command in _commands(plan):
        yield f"{'done' if applied else 'to do'}: {command}" + (" (log in again)" if applied else "")
    yield from plan.hints
    if not applied and (plan.changes or plan.memberships):
        yield "nothing was changed: `sudo ringup setup --apply` writes it, `--undo` restores the earlier files"
    elif not plan.changes and not plan.memberships:
        yield "there is nothing to do" if not plan.pending else "nothing to write"
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
