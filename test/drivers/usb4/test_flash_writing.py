"""A bridge's flash: a copy equals its contents, a written image is there afterwards, and an interruption costs nothing
but time.
"""

import contextlib
import json
import random

import pytest

from ringup.drivers.usb4.flash import Flash, configs_of, image_of
from ringup.drivers.usb4.flashing import Flashing
from ringup.drivers.usb4.identify import ROWS
from ringup.errors import DeviceLost, DeviceTimeout, FirmwareError, NotSupported, RingupError, TransportError
from ringup.firmware.asm2464pd import (
    SET_BYTES,
    STOCK_BODY_BYTES,
    build,
    build_device_config,
    build_flash_set,
    build_router_config,
    parse,
    parse_flash,
)

STOCK, PATCHED, ROM = (0x174C, 0x2464), (0xADD1, 0x0001), (0x174C, 0x2463)


def firmware(version="231204850000", seed=1, size=STOCK_BODY_BYTES):
    """An image as a vendor might make it: noise with a version."""
    body = bytearray(random.Random(seed).randbytes(size))
    body[0x200:0x206] = bytes.fromhex(version)
    return build(bytes(body))


NEW = parse(firmware(), "new.bin")
CONFIG_0 = build_device_config(0xADD1, 1, usb_product="USB 3.2 PCIe TinyEnclosure", serial="AAAABBBB0060")
CONFIG_1 = build_router_config(bytes(42), router_vendor="somebody", router_product="something")


def csw(tag, status=0):
    """Bulk-Only Transport 1.0, 5.2: a command's status."""
    return b"USBS" + tag.to_bytes(4, "little") + bytes(4) + bytes([status])


def quiet(text):
    pass


def write(flash, backup, image=NEW, stop=lambda: False, **options):
    return Flashing(flash, image, backup, **options).run(quiet, stop)


@pytest.fixture
def backup(tmp_path):
    return tmp_path / "backup.bin"


def test_a_copy_has_both_sets_byte_for_byte(desk):
    bench = desk()
    bench.enclosure.flash.cells[SET_BYTES : 2 * SET_BYTES] = build_flash_set(CONFIG_0, CONFIG_1, NEW.blob)
    with bench.flash() as flash:
        copy = flash.read_all(quiet)
    assert copy == bench.cells
    assert not bench.enclosure.violations
    assert [one.image.version for one in parse_flash(copy, "copy")] == ["240417_85_00_00", "231204_85_00_00"]


def test_the_running_version_is_reported(desk):
    with desk().flash() as flash:
        assert (flash.version, flash.readable, flash.slow) == ("240417_85_00_00", True, False)


def test_an_image_is_written_with_the_configuration_that_was_there(desk, backup):
    bench = desk()
    before = bench.cells
    with bench.flash() as flash:
        outcome = write(flash, backup)
    assert (outcome.finished, outcome.verified, len(outcome.written)) == (True, True, 4)
    assert bench.cells == before[:0x100] + NEW.blob.ljust(SET_BYTES - 0x100, b"\xff") + before[SET_BYTES:]
    assert backup.read_bytes() == before
    # No journal is left.
    assert [path.name for path in backup.parent.iterdir() if path.is_file()] == ["backup.bin"]
    assert not bench.enclosure.violations
    # It is off the bus until its power goes.
    assert bench.ids == []
    bench.replug()
    assert bench.ids == [STOCK]
    with bench.flash() as flash:
        assert flash.version == "231204_85_00_00"
        assert flash.differences(NEW, quiet) == []


def test_the_bridge_uses_the_names_of_a_given_configuration(desk, backup):
    bench = desk()
    with bench.flash() as flash:
        write(flash, backup, configs=(CONFIG_0, CONFIG_1))
    assert bench.cells[:0x100] == CONFIG_0 + CONFIG_1
    bench.replug()
    assert bench.ids == [PATCHED]


def test_blocks_that_are_right_already_are_not_written(desk, backup):
    bench = desk()
    with bench.flash() as flash:
        write(flash, backup)
    bench.replug()
    bench.enclosure.faults.inject("flash_write_fails", -1)
    with bench.flash() as flash:
        outcome = write(flash, backup)
    assert (outcome.written, len(outcome.kept)) == ((), 4)
    # Nothing changed: it stays on the bus.
    assert bench.ids == [STOCK]


def test_a_difference_is_reported_with_its_place_in_the_flash(desk):
    bench = desk()
    image = parse(bytes(bench.cells[0x100 : 0x100 + 98016]), "running")
    bench.enclosure.flash.cells[0x12345] ^= 0xFF
    with bench.flash() as flash:
        (line,) = flash.differences(image, quiet)
    assert line.startswith("part 1 differs in 1 of 32736 bytes, first at 0x12345 of the flash: ")


# --- interruptions --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("blocks", range(4))
def test_a_stop_between_blocks_is_gone_on_from(desk, backup, blocks):
    bench = desk()
    before = bench.cells
    asked = iter([False] * blocks + [True])
    with bench.flash() as flash:
        outcome = write(flash, backup, stop=lambda: next(asked))
    assert (outcome.finished, len(outcome.written)) == (False, blocks)
    assert bench.ids == [STOCK]
    with bench.flash() as flash:
        again = Flashing(flash, NEW, backup)
        assert again.resumes
        outcome = again.run(quiet)
    assert (outcome.verified, len(outcome.written), len(outcome.kept)) == (True, 4 - blocks, blocks)
    assert bench.cells[:0x100] == before[:0x100]
    assert bench.cells[0x100 : 0x100 + 98016] == NEW.blob
    assert backup.read_bytes() == before


def test_the_journal_stays_until_the_bridge_is_off_the_bus(desk, backup):
    """The recovery needs the journal, whatever stops the last step."""
    bench = desk()

    def pressed(text):
        if text == "taking the bridge off the bus":
            raise KeyboardInterrupt

    with bench.flash() as flash:
        first = Flashing(flash, NEW, backup)
        with pytest.raises(KeyboardInterrupt):
            first.run(pressed)
        assert first.journal_path.exists()
    with bench.flash() as flash:
        again = Flashing(flash, NEW, backup)
        assert again.resumes
        assert again.run(quiet).verified
    assert not again.journal_path.exists()
    assert bench.ids == []


POINTS = [*random.Random(5).sample(range(1, 98_000), 5), 0, 100, 200, 300, 98_271]


@pytest.mark.parametrize("at", POINTS)
def test_power_that_fails_at_any_byte_costs_only_time(desk, backup, at):
    bench = desk()
    before = bench.cells
    bench.enclosure.faults.inject("flash_power_lost", at)
    with bench.flash() as flash, pytest.raises((DeviceLost, DeviceTimeout)):
        write(flash, backup)
    assert backup.read_bytes() == before
    bench.enclosure.faults.clear("flash_power_lost")
    bench.replug()
    assert bench.ids == [ROM]
    with bench.flash() as flash:
        again = Flashing(flash, NEW, backup)
        assert again.objections() == []
        again.run(quiet)
    bench.replug()
    assert bench.ids == [STOCK]
    with bench.flash() as flash:
        assert flash.differences(NEW, quiet) == []
        # What the ROM could not read back is read now.
        outcome = write(flash, backup)
    assert (outcome.written, outcome.verified) == ((), True)
    assert bench.cells[:0x100] == before[:0x100]
    assert not backup.with_name("backup.bin.journal").exists()


@pytest.mark.parametrize("transfers", random.Random(6).sample(range(12, 60), 6))
def test_a_cable_that_is_pulled_is_a_lost_device_and_is_gone_on_from(desk, backup, transfers):
    bench = desk()
    bench.enclosure.faults.inject("disconnect_and_return", transfers)
    # The fault strikes only if the point is early enough.
    with contextlib.suppress(DeviceLost), bench.flash() as flash:
        write(flash, backup)
    bench.enclosure.faults.clear("disconnect_and_return")
    bench.replug()
    with bench.flash() as flash:
        write(flash, backup)
    assert bench.cells[0x100 : 0x100 + 98016] == NEW.blob


def test_writes_that_the_flash_refuses_are_reported_and_not_called_done(desk, backup):
    bench = desk()
    bench.enclosure.faults.inject("flash_write_fails", -1)
    with bench.flash() as flash, pytest.raises(TransportError, match=r"write of a configuration block .*medium error"):
        write(flash, backup)
    assert json.loads(backup.with_name("backup.bin.journal").read_text())["done"] == []
    assert bench.ids == [STOCK]
    bench.enclosure.faults.clear("flash_write_fails")
    with bench.flash() as flash:
        assert write(flash, backup).verified


def test_a_block_that_does_not_read_back_has_the_set_erased_and_written_once_more(desk, backup):
    bench = desk()
    bench.enclosure.faults.inject("flash_bad_page", 0x4000)
    with bench.flash() as flash, pytest.raises(FirmwareError) as caught:
        write(flash, backup)
    text = str(caught.value)
    assert "part 0 of the image differs in" in text
    assert "first at 0x04000 of the flash" in text
    assert text.endswith("after the set was erased and written 2 times")
    bench.enclosure.faults.clear("flash_bad_page")
    with bench.flash() as flash:
        assert write(flash, backup).verified


@pytest.mark.parametrize("seed", range(4))
def test_one_failed_command_anywhere_is_gone_on_from(desk, backup, seed):
    bench = desk()
    bench.enclosure.faults.inject("scsi_check_condition", random.Random(seed).randrange(2, 16))
    try:
        with bench.flash() as flash:
            write(flash, backup)
    except RingupError:
        bench.enclosure.faults.clear("scsi_check_condition")
        with bench.flash() as flash:
            write(flash, backup)
    assert bench.cells[0x100 : 0x100 + 98016] == NEW.blob
    assert configs_of(bench.cells) == configs_of(backup.read_bytes())


# --- the ROM --------------------------------------------------------------------------------------------------------
def test_an_empty_flash_is_written_from_a_copy_of_another_bridges(desk, tmp_path):
    bench = desk("rom")
    assert bench.ids == [ROM]
    with bench.flash() as flash:
        backup = tmp_path / "rom.bin" if flash.readable else None
        lacking = Flashing(flash, NEW, backup)
        assert "configuration" in [one.what for one in lacking.objections()]
    other = tmp_path / "other.bin"
    other.write_bytes(build_flash_set(CONFIG_0, CONFIG_1, NEW.blob))
    with bench.flash() as flash:
        write(flash, other, configs=(CONFIG_0, CONFIG_1))
    bench.replug()
    assert bench.ids == [PATCHED]
    assert bench.cells[:SET_BYTES] == other.read_bytes()


# --- objections -----------------------------------------------------------------------------------------------------
def objections(flash, backup, image=NEW, **options):
    return [one.what for one in Flashing(flash, image, backup, **options).objections()]


def test_usb2_speed_is_refused_and_nothing_is_touched(desk, backup):
    bench = desk(speed="high")
    before = bench.cells
    with bench.flash() as flash:
        assert objections(flash, backup) == ["speed"]
        with pytest.raises(NotSupported, match="it runs at USB2 speed"):
            write(flash, backup)
    assert bench.cells == before
    assert not backup.exists()


def test_another_makers_bridge_gets_one_harmless_command(wire):
    """It refuses the read of XDATA, E4. No flash command may come before that read."""
    device, port = wire()
    # SPC-4, fixed format: 05/24/00
    field = bytes.fromhex("700005000000000a00000000240000000000")
    device.say(0x81, b"", csw(1, 1), field, csw(2))
    row = next(row for row in ROWS if row.ids == STOCK)
    with pytest.raises(NotSupported, match="refuses to read its own memory"):
        Flash(port, row)
    commands = [data[15] for _, _, data in device.sent]
    assert commands == [0xE4, 0x03]  # and REQUEST SENSE


def test_the_open_firmwares_flash_is_not_ours_to_write(desk):
    with pytest.raises(NotSupported, match="it runs the open firmware"), desk("open").flash():
        pass


def test_images_of_another_product_line_or_without_a_version_need_a_confirmation(desk, backup):
    with desk().flash() as flash:
        assert objections(flash, backup, parse(firmware("240417860000"), "x")) == ["version"]
        assert objections(flash, backup, parse(firmware(size=0x4000), "x")) == ["version"]
        assert objections(flash, backup, parse(firmware(size=0x4000), "x"), other_line=True) == []
        assert objections(flash, backup) == []


def test_without_a_good_copy_nothing_is_written(desk, backup, tmp_path):
    bench = desk()
    with bench.flash() as flash:
        assert objections(flash, None) == ["backup"]
        assert objections(flash, tmp_path / "no such folder" / "x.bin") == ["backup"]
        backup.write_bytes(bytes(SET_BYTES))
        assert objections(flash, backup) == ["backup"]
        backup.write_bytes(b"x")
        assert objections(flash, backup) == ["backup"]
    backup.unlink()
    before = bench.cells
    # Neither set is valid any more.
    bench.enclosure.flash.cells[0x5000] ^= 1
    with bench.flash() as flash, pytest.raises(FirmwareError, match="there is no copy to go back to"):
        write(flash, backup)
    assert bench.cells[0x100:0x5000] == before[0x100:0x5000]
    assert not backup.exists()


def test_a_copy_of_something_else_is_refused_before_anything_is_written(desk, backup, tmp_path):
    bench = desk()
    before = bench.cells
    backup.write_bytes(build_flash_set(CONFIG_0, CONFIG_1, NEW.blob) * 2)
    other = parse(firmware(seed=2), "other.bin")
    with bench.flash() as flash:
        (found,) = Flashing(flash, other, backup).objections()
        assert found.seen == f"{backup} exists already and is no copy of what the flash holds now, which would be lost"
        with pytest.raises(NotSupported, match="name a file that is not there yet"):
            write(flash, backup, other)
    assert bench.cells == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["backup.bin"]
    backup.write_bytes(before)
    with bench.flash() as flash:
        assert write(flash, backup, other).verified


@pytest.mark.parametrize("held", ["programmer", "first set", "other second set"])
def test_a_copy_of_the_flash_to_be_overwritten_is_accepted(desk, backup, held):
    """Only the first set is written. The rest of the copy does not matter."""
    bench = desk()
    copies = {
        "programmer": bench.cells + b"\xff" * len(bench.cells),
        "first set": bench.cells[:SET_BYTES],
        "other second set": bench.cells[:-1] + b"x",
    }
    backup.write_bytes(copies[held])
    with bench.flash() as flash:
        assert Flashing(flash, parse(firmware(seed=2), "other.bin"), backup).objections() == []


def test_the_image_is_not_its_own_backup(desk, backup):
    bench = desk()
    backup.write_bytes(bench.cells)
    with bench.flash() as flash:
        (found,) = Flashing(flash, NEW, backup, image_path=backup).objections()
        assert "is the image itself" in found.seen
        assert objections(flash, backup, image_path=backup.with_name("image.bin")) == []


def test_an_interrupted_run_keeps_its_copy_also_as_the_image_to_go_back_to(desk, backup):
    bench = desk()
    before = bench.cells
    asked = iter([False, False, True])
    with bench.flash() as flash:
        write(flash, backup, stop=lambda: next(asked))
    back = image_of(backup.read_bytes(), "backup.bin")
    with bench.flash() as flash:
        assert write(flash, backup, back, image_path=backup).verified
    assert bench.cells == before


def test_a_flash_without_a_valid_set_accepts_the_existing_copy(desk, backup):
    bench = desk()
    backup.write_bytes(bench.cells)
    bench.enclosure.flash.cells[0x5000] ^= 1
    with bench.flash() as flash:
        assert objections(flash, backup) == []


def test_a_journal_of_another_bridge_and_a_malformed_one_are_refused(desk, backup):
    journal = backup.with_name("backup.bin.journal")
    bench = desk()
    with bench.flash() as flash:
        write(flash, backup, stop=lambda: True)
        record = json.loads(journal.read_text())
        journal.write_text(json.dumps(record | {"bridge": "1e91:de79 OTHER"}))
        assert objections(flash, backup) == ["journal"]
        for text in ("", "[]", "{}", json.dumps(record | {"blocks": 3}), "[" * 100_000):
            journal.write_text(text)
            with pytest.raises(FirmwareError, match="is no journal"):
                Flashing(flash, NEW, backup)
        journal.write_text(json.dumps(record | {"format": "2"}))
        with pytest.raises(FirmwareError, match="another version of ringup"):
            Flashing(flash, NEW, backup)


def test_an_image_is_taken_from_the_set_that_is_sound():
    copy = bytearray(build_flash_set(CONFIG_0, CONFIG_1, NEW.blob) * 2)
    copy[0x3000] ^= 4
    assert image_of(bytes(copy), "x").blob == NEW.blob
    copy[SET_BYTES + 0x3000] ^= 4
    with pytest.raises(FirmwareError, match=r"set 0: .*set 1: "):
        image_of(bytes(copy), "x")
    with pytest.raises(FirmwareError, match="the file has"):
        image_of(NEW.blob[:-1], "x")


def test_recovery_steps_name_the_copy(desk, backup):
    with desk().flash() as flash:
        steps = Flashing(flash, NEW, backup).recovery()
    assert str(backup) in steps[-1]
