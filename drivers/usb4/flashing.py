"""Writing a bridge's flash, so that it can be undone and continued: first all checks, then a backup, then block after
block, each read back.

QUIRK: a write of configuration block 0 erases the whole set of 128 KiB. No other command erases, and all other writes
need erased cells. So a set is always written as a whole, with its present configuration if no other is given. If a
block reads back wrong, the whole set is written again. Source: machine code of images 231204 (0xd27c) and 240417
(0xd371, 0xc73c).

A journal next to the backup records what is written and which blocks are done. After any interruption, the same call
continues from there. Only the first set is written: a bridge that falls back to its second set still has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ringup.drivers.usb4.flash import (
    PART_AT,
    Flash,
    Say,
    configs_of,
    difference,
    good_sets,
    replace,
    sound_configs,
    write_new,
)
from ringup.drivers.usb4.identify import Firmware
from ringup.errors import DeviceLost, FirmwareError, NotSupported
from ringup.firmware.asm2464pd import (
    BLANK,
    CONFIG_BLOCKS,
    CONFIG_BYTES,
    SET_BYTES,
    Image,
    parse_device_config,
    parse_flash,
)
from ringup.firmware.store import load_file

SUFFIX = ".journal"
FORMAT = "1"
JOURNAL_BYTES = 64 << 10
# how often a set is written, if a block does not read back as it was written
TRIES = 2
WRITING, WRITTEN = "writing", "written"
# where the line begins in the six version bytes: it says which maker's boards an image is for
LINE_AT = 3


@dataclass(frozen=True, slots=True)
class Objection:
    """One reason not to write, and what to do about it."""

    what: str
    seen: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Step:
    """One block: its place in the flash, its contents, and how to read and write it."""

    name: str
    flash_at: int
    data: bytes = field(repr=False)
    read: Callable[[], bytes] = field(repr=False)
    write: Callable[[], None] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name}: {len(self.data)} bytes at {self.flash_at:#07x}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the work ended. `finished`: False if it was stopped. `verified`: all blocks were read back, now or before;
    False if the ROM cannot read. `written`: the blocks that were written. `kept`: those that were right already.
    """

    finished: bool
    verified: bool
    written: tuple[str, ...]
    kept: tuple[str, ...]


def _unsaid(text: str) -> None:
    """Ignore a progress message."""


class Flashing:
    """Writes one image into one bridge.

    `backup`: the file of the flash's copy, which exists or will be made; None only for a ROM that cannot read.
    `configs`: configuration blocks to write instead of those of the bridge. `other_line`: accept an image for another
    maker's boards, or one without a version. `image_path`: the file of the image.
    """

    def __init__(
        self,
        flash: Flash,
        image: Image,
        backup: Path | None,
        *,
        configs: tuple[bytes, ...] = (),
        other_line: bool = False,
        image_path: Path | None = None,
    ) -> None:
        """Read the configuration in the flash, the backup and the journal. Raises `FirmwareError` for a file that is
        no journal.
        """
        self._flash, self._image, self._backup, self._other_line = flash, image, backup, other_line
        self._image_path = image_path
        self._copy, self._copy_problem = _read_copy(backup)
        # the contents of the flash, once they were read
        self._held: bytes | None = None
        self._journal = _read_journal(self.journal_path) if self.journal_path else None
        self._configs = configs or self._present()
        # the identity of the bridge with the configuration that is written
        self._new_identity = ""
        if configs:
            config = parse_device_config(configs[0], "the configuration")
            self._new_identity = f"{config.vid:04x}:{config.pid:04x} {config.serial}".strip()
        self.steps = tuple(self._steps())
        self.resumes = self._journal is not None and self._journal["blocks"] == self._blocks()

    @property
    def journal_path(self) -> Path | None:
        """The file of the journal: next to the backup."""
        return self._backup.with_name(self._backup.name + SUFFIX) if self._backup else None

    def _present(self) -> tuple[bytes, ...]:
        """Return the configuration blocks of the bridge, or those in the backup. Empty if neither pair is valid."""
        if self._flash.readable:
            blocks = tuple(self._flash.read_config(number) for number in range(CONFIG_BLOCKS))
            if sound_configs(blocks):
                return blocks
        return configs_of(self._copy) if self._copy else ()

    def _steps(self) -> Iterator[Step]:
        """Yield the blocks. ORDER: the write of the first one erases the set."""
        flash = self._flash
        for number, data in enumerate(self._configs):
            read, write = partial(flash.read_config, number), partial(flash.write_config, number, data)
            yield Step(f"configuration block {number}", number * CONFIG_BYTES, data, read, write)
        for number, data in enumerate(self._image.parts):
            if data:
                read, write = partial(flash.read_part, number, len(data)), partial(flash.write_part, number, data)
                yield Step(f"part {number} of the image", PART_AT[number], data, read, write)

    def _blocks(self) -> dict[str, str]:
        return {step.name: hashlib.sha256(step.data).hexdigest() for step in self.steps}

    # --- checks before writing --------------------------------------------------------------------------------------
    def objections(self, say: Say = _unsaid) -> list[Objection]:
        """Return the reasons not to write. Nothing is written and no file is made. If the backup exists, the flash is
        read and compared with it.
        """
        found = []
        if self._flash.slow:
            found.append(
                Objection(
                    "speed",
                    "it runs at USB2 speed, at which the flash was seen to be written wrong",
                    "pull the cable and plug it in again, or use another cable or port,"
                    " until `ringup bridge info` shows 5 Gb/s or more",
                )
            )
        found += self._line_objections()
        found += self._backup_objections(say)
        found += self._bridge_objections()
        if not self._configs:
            seen = (
                "neither the bridge nor the backup has valid configuration blocks,"
                " without which the bridge has no name and no ids"
            )
            found.append(Objection("configuration", seen, "--config FILE, a copy of the flash of such a bridge"))
        return found

    def _line_objections(self) -> list[Objection]:
        image, flash = self._image, self._flash
        if self._other_line:
            return []
        if not image.version:
            seen = f"{image.name} has no version as the maker's images have"
            return [Objection("version", seen, "--other-line, if you know it runs on this board")]
        line, running = image.version_bytes[LINE_AT:].hex(" "), (flash.version_bytes or b"")[LINE_AT:].hex(" ")
        if flash.version and line != running:
            seen = f"{image.name} is of line {line}, the bridge runs line {running}: made for another maker's boards"
            return [
                Objection(
                    "version", seen, "take an image of that line, or --other-line, if you know it runs on this board"
                )
            ]
        return []

    def _backup_objections(self, say: Say) -> list[Objection]:
        backup, flash = self._backup, self._flash
        if backup is None:
            if flash.firmware == Firmware.ROM and not flash.readable:
                return []
            return [Objection("backup", "none is named, and this bridge's flash can be read", "--backup FILE")]
        if self._copy_problem:
            remedy = "name a copy that `ringup bridge backup` made, or a file that is not there yet"
            return [Objection("backup", self._copy_problem, remedy)]
        if self._copy is None and not flash.readable:
            seen = f"{backup} is not there, and the ROM reads no flash to make it"
            return [Objection("backup", seen, "name one that was made before, or --no-backup")]
        if not backup.absolute().parent.is_dir():
            seen = f"there is no folder {backup.absolute().parent}"
            return [Objection("backup", seen, "name a file in a folder that is there")]
        seen = self._other_than_held(backup, say)
        return [Objection("backup", seen, "name a file that is not there yet for a copy of it")] if seen else []

    def _other_than_held(self, backup: Path, say: Say) -> str:
        """Return why an existing backup is no copy of the present flash. Empty if it is one, or if the flash holds
        nothing that could be lost.

        If there is a journal, the backup belongs to the run that is continued, and the flash is half written: then
        nothing is compared.
        """
        if self._copy is None or self._journal or not self._flash.readable:
            return ""
        if self._image_path and backup.resolve() == self._image_path.resolve():
            return f"{backup} is the image itself, and no copy of what the flash holds now"
        if self._held is None:
            self._held = self._flash.read_all(say)
        held = self._held
        all_right = all(held[step.flash_at :][: len(step.data)] == step.data for step in self.steps)
        if self._copy[:SET_BYTES] == held[:SET_BYTES] or all_right or not good_sets(parse_flash(held, "the flash")):
            return ""
        return f"{backup} exists already and is no copy of what the flash holds now, which would be lost"

    def _bridge_objections(self) -> list[Objection]:
        """Check that the journal is about this bridge. A bridge that runs its ROM has no identity of its own."""
        journal, flash = self._journal, self._flash
        if not journal or flash.firmware == Firmware.ROM or _identity(flash) in (journal["bridge"], self._new_identity):
            return []
        seen = f"{self.journal_path} is about {journal['bridge']}, this bridge is {_identity(flash)}"
        return [Objection("journal", seen, "continue with that one, or name another backup for this one")]

    # --- the work ---------------------------------------------------------------------------------------------------
    def run(self, say: Say, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Make the backup, write the blocks that differ, read them back, and take the bridge off the bus. Between
        blocks, `stop()` returning True ends the work.

        Raises `NotSupported` for an objection, `FirmwareError` for a block that reads back wrong, `DeviceLost` and
        other errors of the transport. The journal stays then, and the next call continues.
        """
        for objection in self.objections(say):
            raise NotSupported(f"{self._flash.port.name}: {objection.what}: {objection.seen}; {objection.remedy}")
        self._make_backup(say)
        self._note(WRITING, [])
        written: dict[str, None] = {}
        todo = self._todo(say)
        kept = tuple(step.name for step in self.steps if step not in todo)
        for _ in range(TRIES):
            wrong = ""
            for step in todo:
                if stop():
                    return Outcome(False, False, tuple(written), kept)
                wrong = self._write(step, say)
                if wrong:
                    break
                written[step.name] = None
                self._note(WRITING, [*kept, *written])
            if not wrong:
                break
            todo, kept = self.steps, ()
        else:
            raise FirmwareError(f"{self._flash.port.name}: {wrong}, after the set was erased and written {TRIES} times")
        return self._finish(tuple(written), kept, say)

    def _finish(self, written: tuple[str, ...], kept: tuple[str, ...], say: Say) -> Outcome:
        """Take the bridge off the bus if anything changed, and end the journal. The bridge runs its old firmware until
        its power is switched off.
        """
        verified = self._flash.readable
        unfinished = self._journal is not None and self._journal["state"] == WRITING
        if written or unfinished:
            say("taking the bridge off the bus")
            # the bridge may leave before its status arrives: that is success
            with contextlib.suppress(DeviceLost):
                self._flash.detach()
        if verified and self.journal_path:
            # ORDER: last. To continue or to undo an interrupted run needs the journal
            self.journal_path.unlink(missing_ok=True)
        else:
            self._note(WRITTEN, [*kept, *written])
        return Outcome(True, verified, written, kept)

    def _todo(self, say: Say) -> tuple[Step, ...]:
        """Return the blocks to write: those that are still erased if all others are right, else all."""
        if not self._flash.readable:
            return self.steps
        wrong: list[Step] = []
        for step in self.steps:
            say(f"looking at {step.name}")
            found = step.read()
            if found == step.data:
                continue
            if step is self.steps[0] or found.count(BLANK) != len(found):
                return self.steps
            wrong.append(step)
        return tuple(wrong)

    def _write(self, step: Step, say: Say) -> str:
        """Write a block and read it back. Return what is wrong with it; empty if it is right or cannot be read."""
        say(f"writing {step.name}")
        step.write()
        if not self._flash.readable:
            return ""
        say(f"reading {step.name} back")
        return next(iter(difference(step.name, step.flash_at, step.data, step.read())), "")

    def _make_backup(self, say: Say) -> None:
        """Copy the flash, unless the backup exists. A copy without a valid image is refused: a bad cable may be the
        cause.
        """
        backup, flash = self._backup, self._flash
        if backup is None or backup.exists():
            return
        copy = flash.read_all(say)
        if not good_sets(parse_flash(copy, str(backup))):
            raise FirmwareError(
                f"{flash.port.name}: neither set of its flash reads as a valid image, so there is no copy to go back to"
                "; read it again (`ringup bridge backup`), with another cable or port"
            )
        write_new(backup, copy)

    def _note(self, state: str, done: list[str]) -> None:
        """Write the journal."""
        path, flash = self.journal_path, self._flash
        if path is None:
            return
        record = {
            "format": FORMAT,
            "state": state,
            "bridge": self._journal["bridge"] if self._journal else _identity(flash),
            "image": self._image.name,
            "version": self._image.version,
            "blocks": self._blocks(),
            "done": done,
        }
        replace(path, json.dumps(record, indent=1).encode())

    def recovery(self) -> tuple[str, ...]:
        """Return what to do if writing did not finish, step by step."""
        back = (
            f"to go back to the old contents: the same command with {self._backup} as the image too"
            if self._backup
            else ""
        )
        steps = (
            "leave the enclosure on: its firmware is in its memory and keeps running;"
            " its flash is erased or half written",
            "run the same command again: it continues where it stopped",
            "if it does not answer any more: switch it off and on, and run the same command again; a bridge whose"
            " firmware is damaged shows up as 174c:2463 AS2462, its ROM, which takes firmware the same way",
            "if it does not show up at all: its board's boot strap forces the ROM while it is reset;"
            " else an SPI programmer writes the flash",
            back,
        )
        return tuple(step for step in steps if step)


def _identity(flash: Flash) -> str:
    port = flash.port
    return f"{port.place.ids} {port.serial}".strip()


def _read_copy(backup: Path | None) -> tuple[bytes | None, str]:
    """Return the backup's contents, and why they are no copy of a flash. Without a file, return None and no text."""
    if backup is None or not backup.exists():
        return None, ""
    try:
        copy = load_file(backup).data
        if good_sets(parse_flash(copy, str(backup))):
            return copy, ""
    except FirmwareError as error:
        return None, str(error)
    return None, f"{backup} holds no valid image"


def _read_journal(path: Path) -> dict[str, Any] | None:
    """Read a journal; return None if there is none. Raises `FirmwareError` for a file that is no journal."""
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
