"""Writing a bridge's flash so that it can be taken back and gone on with: objections first, a copy, block after block, each read back.

A journal beside the copy says what is being written and how far that is. Whatever happens, the same call goes on from there: blocks that are
right already are not written again. Only the first set is written, so a bridge that falls back to its second set still has it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ringup.drivers.usb4.flash import PART_AT, Flash, Say, Source, difference, good_sets, replace, write_new
from ringup.drivers.usb4.identify import Firmware
from ringup.errors import DeviceLost, FirmwareError, NotSupported
from ringup.firmware.asm2464pd import CONFIG_BYTES, parse_device_config, parse_flash
from ringup.firmware.store import load_file

SUFFIX = ".journal"
FORMAT = "1"
JOURNAL_BYTES = 64 << 10
TRIES = 2  # of a block that does not read back as it was written
WRITING, WRITTEN = "writing", "written"
LINE_AT = 3  # of the six version bytes: which maker's boards it is for


@dataclass(frozen=True, slots=True)
class Objection:
    """One thing that speaks against writing, and what to do about it."""

    what: str
    seen: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Step:
    """One block: where it lies in the flash, what belongs there, and how it is read and written."""

    name: str
    flash_at: int
    data: bytes = field(repr=False)
    read: Callable[[], bytes] = field(repr=False)
    write: Callable[[], None] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name}: {len(self.data)} bytes at {self.flash_at:#07x}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. `verified`: all was read back, now or before; False where the ROM reads nothing. `finished`: False when it was stopped."""

    finished: bool
    verified: bool
    written: tuple[str, ...]
    kept: tuple[str, ...]


class Flashing:
    """One image on its way into one bridge. `backup`: where the copy of the flash lies or is to be made; None only for a ROM that reads nothing.

    `with_config`: configuration blocks are written too. `other_line`: another maker's version, or one without a version, is meant.
    """

    def __init__(
        self, flash: Flash, source: Source, backup: Path | None, *, with_config: bool = False, other_line: bool = False
    ) -> None:
        """Raises `FirmwareError` for a journal that is of another image, and for configuration that the file does not bring."""
        if with_config and not source.configs:
            raise FirmwareError(
                f"{source.path}: the file brings no sound configuration blocks: only a copy of a flash does"
            )
        self._flash, self._source, self._backup, self._other_line = flash, source, backup, other_line
        configs = source.configs if with_config else ()
        self._new_identity = ""  # what it calls itself once its configuration is written
        if configs:
            config = parse_device_config(configs[0], str(source.path))
            self._new_identity = f"{config.vid:04x}:{config.pid:04x} {config.serial}".strip()
        self.steps = tuple(self._steps(configs))
        self._journal = _read_journal(self.journal_path) if self.journal_path else None
        if self._journal and self._journal["blocks"] != self._blocks():
            raise FirmwareError(
                f"{self.journal_path} is about writing {self._journal['image']}: finish that, or delete the file to begin anew"
            )

    @property
    def journal_path(self) -> Path | None:
        """Where the journal lies."""
        return self._backup.with_name(self._backup.name + SUFFIX) if self._backup else None

    @property
    def resumes(self) -> bool:
        """Whether an earlier call did not come to its end."""
        return self._journal is not None

    def _steps(self, configs: tuple[bytes, ...]) -> list[Step]:
        """List the blocks in the order of the programs that are known to work: configuration, then the image's parts."""
        flash = self._flash
        steps = []
        for number, data in enumerate(configs):
            read, write = partial(flash.read_config, number), partial(flash.write_config, number, data)
            steps.append(Step(f"configuration block {number}", number * CONFIG_BYTES, data, read, write))
        for number, data in enumerate(self._source.image.parts):
            if data:
                read, write = partial(flash.read_part, number, len(data)), partial(flash.write_part, number, data)
                steps.append(Step(f"part {number} of the image", PART_AT[number], data, read, write))
        return steps

    def _blocks(self) -> dict[str, str]:
        return {step.name: hashlib.sha256(step.data).hexdigest() for step in self.steps}

    # --- before -----------------------------------------------------------------------------------------------------
    def objections(self) -> list[Objection]:
        """Say what speaks against writing; nothing is written and no file made."""
        found = []
        if self._flash.slow:
            found.append(
                Objection(
                    "speed",
                    "it runs at USB2 speed, at which the flash was seen to be written wrong",
                    "pull the cable and plug it in again, use another cable or port, and see that `ringup bridge info` tells 5 Gb/s or more",
                )
            )
        found += self._line_objections()
        found += self._backup_objections()
        found += self._bridge_objections()
        return found

    def _line_objections(self) -> list[Objection]:
        image, flash = self._source.image, self._flash
        if self._other_line:
            return []
        if not image.version:
            return [
                Objection(
                    "version",
                    f"{image.name} has no version as the maker's images have",
                    "--other-line, if you know it runs on this board",
                )
            ]
        line, running = image.version_bytes[LINE_AT:].hex(" "), (flash.version_bytes or b"")[LINE_AT:].hex(" ")
        if flash.version and line != running:
            seen = f"{image.name} is of line {line}, the bridge runs line {running}: made for another maker's boards"
            return [
                Objection(
                    "version", seen, "take an image of that line, or --other-line, if you know it runs on this board"
                )
            ]
        return []

    def _backup_objections(self) -> list[Objection]:
        backup, flash = self._backup, self._flash
        if backup is None:
            if flash.firmware == Firmware.ROM and not flash.readable:
                return []
            return [Objection("backup", "none is named, and this bridge's flash can be read", "--backup FILE")]
        if not backup.exists():
            if not flash.readable:
                return [
                    Objection(
                        "backup",
                        f"{backup} is not there, and the ROM reads no flash to make it",
                        "name one that was made before, or --no-backup",
                    )
                ]
            if not backup.absolute().parent.is_dir():
                return [
                    Objection(
                        "backup",
                        f"there is no folder {backup.absolute().parent}",
                        "name a file in a folder that is there",
                    )
                ]
            return []
        try:
            if good_sets(parse_flash(load_file(backup).data, str(backup))):
                return []
            seen = f"{backup} holds no sound image"
        except FirmwareError as error:
            seen = str(error)
        return [
            Objection("backup", seen, "name a copy that `ringup bridge backup` made, or a file that is not there yet")
        ]

    def _bridge_objections(self) -> list[Objection]:
        """See that the journal is about this bridge. In its ROM a bridge has no identity of its own."""
        journal, flash = self._journal, self._flash
        if not journal or flash.firmware == Firmware.ROM:
            return []
        if _identity(flash) in (journal["bridge"], self._new_identity):
            return []
        return [
            Objection(
                "journal",
                f"{self.journal_path} is about {journal['bridge']}, this bridge is {_identity(flash)}",
                "go on with that one, or name another backup for this one",
            )
        ]

    # --- the work ---------------------------------------------------------------------------------------------------
    def run(self, say: Say, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Make the copy, write what is not there yet, read it back, take the bridge off the bus. `stop` is asked between blocks.

        Raises `NotSupported` for an objection, `FirmwareError` for a block that does not read back, `DeviceLost` and the like; the journal
        stays then, and the next call goes on.
        """
        for objection in self.objections():
            raise NotSupported(f"{self._flash.port.name}: {objection.what}: {objection.seen}; {objection.remedy}")
        self._make_backup(say)
        self._note(WRITING, [])
        written: list[str] = []
        kept: list[str] = []
        for step in self.steps:
            if stop():
                return Outcome(False, False, tuple(written), tuple(kept))
            (written if self._do(step, say) else kept).append(step.name)
            self._note(WRITING, [*written, *kept])
        verified = self._flash.readable
        if verified and self.journal_path:
            self.journal_path.unlink(missing_ok=True)
        else:
            self._note(WRITTEN, [*written, *kept])
        if written or (self._journal and self._journal["state"] == WRITING):
            say("taking the bridge off the bus")
            self._leave()
        return Outcome(True, verified, tuple(written), tuple(kept))

    def _make_backup(self, say: Say) -> None:
        """Copy the flash, unless that was done before. A copy in which nothing is sound is no copy: two reads that differ show why."""
        backup, flash = self._backup, self._flash
        if backup is None or backup.exists():
            return
        copy = flash.read_all(say)
        if not good_sets(parse_flash(copy, str(backup))):
            raise FirmwareError(
                f"{flash.port.name}: neither set of its flash reads as a sound image, so there is no copy to go back to; "
                "read it again (`ringup bridge backup`), with another cable or port"
            )
        write_new(backup, copy)

    def _do(self, step: Step, say: Say) -> bool:
        """Put one block in place; True when it had to be written."""
        readable = self._flash.readable
        if readable:
            say(f"looking at {step.name}")
            if step.read() == step.data:
                return False
        wrong: list[str] = []
        for _ in range(TRIES):
            say(f"writing {step.name}")
            step.write()
            if not readable:
                return True
            say(f"reading {step.name} back")
            wrong = difference(step.name, step.flash_at, step.data, step.read())
            if not wrong:
                return True
        raise FirmwareError(f"{self._flash.port.name}: {wrong[0]}, after it was written {TRIES} times")

    def _leave(self) -> None:
        try:
            self._flash.detach()
        except DeviceLost:  # gone before its status came: what was wanted
            return

    def _note(self, state: str, done: list[str]) -> None:
        """Keep the journal up to date."""
        path, flash = self.journal_path, self._flash
        if path is None:
            return
        record = {
            "format": FORMAT,
            "state": state,
            "bridge": self._journal["bridge"] if self._journal else _identity(flash),
            "image": self._source.image.name,
            "version": self._source.image.version,
            "blocks": self._blocks(),
            "done": done,
        }
        replace(path, json.dumps(record, indent=1).encode())

    def recovery(self) -> tuple[str, ...]:
        """Say what to do when writing did not come to its end, step by step."""
        backup = self._backup
        again = "run the same command again: it goes on where it stopped" if backup else "run the same command again"
        return (
            "leave the enclosure on: what it runs now is in its memory and goes on running",
            again,
            "if it does not answer any more: switch it off and on, and run the same command again; a bridge whose firmware is damaged shows up "
            "as 174c:2463 AS2462, its ROM, which takes firmware the same way",
            "if it does not show up at all: its board's boot strap forces the ROM while it is reset; else an SPI programmer writes the flash",
            *(
                [f"to go back to what was there: the same command with {backup} as the file and --config"]
                if backup
                else []
            ),
        )


def _identity(flash: Flash) -> str:
    port = flash.port
    return f"{port.place.ids} {port.serial}".strip()


def _read_journal(path: Path) -> dict[str, Any] | None:
    """Read a journal; None where there is none. It may be anybody's: what is no journal is refused in words."""
    if not path.exists():
        return None
    try:
        with open(path, "rb") as file:
            record = json.loads(file.read(JOURNAL_BYTES))
        blocks = {str(name): str(value) for name, value in record["blocks"].items()}
        journal = {key: str(record[key]) for key in ("format", "state", "bridge", "image")} | {"blocks": blocks}
    except OSError as error:
        raise FirmwareError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FirmwareError(f"{path} is no journal of ringup's; delete it, or name another backup") from error
    if journal["format"] != FORMAT:
        raise FirmwareError(f"{path} is a journal of another version of ringup; finish with that one, or delete it")
    return journal
