"""Binding a card to another driver: plans, and the state after a failed step, on a kernel of files that behaves as
sysfs does.
"""

import errno

import pytest

from ringup.drivers.transport.linux import bind
from ringup.drivers.transport.linux.function import Function
from ringup.errors import RingupError, TransportError

ADDRESS, SOUND = "0000:03:00.0", "0000:03:00.1"


@pytest.fixture
def desktop(machine):
    """A Radeon with its sound function in one group, both with their kernel drivers."""
    machine.add(driver="amdgpu")
    machine.add(SOUND, ids=(0x1002, 0xAB30), code=0x040300, driver="snd_hda_intel")
    return machine


def card(machine):
    return Function(machine.kernel, ADDRESS)


def state(machine):
    return [
        (machine.driver_of(name), machine.kernel.text(machine.folder(name) / "driver_override"))
        for name in (ADDRESS, SOUND)
    ]


def test_the_whole_group_goes_and_comes_back(desktop):
    bind.carry_out(desktop.kernel, bind.plan_bind(card(desktop)))
    assert state(desktop) == [("vfio-pci", "vfio-pci"), ("vfio-pci", "vfio-pci")]
    assert bind.plan_bind(card(desktop)) == []
    bind.carry_out(desktop.kernel, bind.plan_unbind(card(desktop)))
    assert state(desktop) == [("amdgpu", "(null)"), ("snd_hda_intel", "(null)")]
    assert bind.plan_unbind(card(desktop)) == []


def test_a_card_can_be_left_without_a_driver(desktop):
    bind.carry_out(desktop.kernel, bind.plan_bind(card(desktop), bind.NOBODY))
    assert state(desktop) == [("", "none"), ("", "none")]
    assert bind.plan_bind(card(desktop), bind.NOBODY) == []
    bind.carry_out(desktop.kernel, bind.plan_unbind(card(desktop)))
    assert state(desktop) == [("amdgpu", "(null)"), ("snd_hda_intel", "(null)")]


@pytest.mark.parametrize(("command", "resets"), [(0x0006, True), (0x0002, False)])
def test_a_card_that_a_killed_process_left_on_the_bus_is_reset_before_it_goes_back(desktop, command, resets):
    bind.carry_out(desktop.kernel, bind.plan_bind(card(desktop), bind.NOBODY))
    folder = desktop.folder(ADDRESS)
    (folder / "reset").write_text("")
    with (folder / "config").open("r+b") as config:
        config.seek(4)
        config.write(command.to_bytes(2, "little"))
    steps = bind.plan_unbind(card(desktop))
    assert [step.path.rpartition("/")[2] for step in steps if step.function == ADDRESS] == [
        *(["reset"] if resets else []),
        "driver_override",
        "drivers_probe",
    ]
    bind.carry_out(desktop.kernel, steps)
    assert (folder / "reset").read_text().strip() == ("1" if resets else "")
    assert state(desktop) == [("amdgpu", "(null)"), ("snd_hda_intel", "(null)")]


@pytest.mark.parametrize("code", [0x030000, 0x010802])
def test_a_gpu_without_a_driver_that_was_left_running_is_reset_although_nobody_bound_it(machine, code):
    machine.add(driver="", code=code)
    folder = machine.folder(ADDRESS)
    (folder / "reset").write_text("")
    assert bind.plan_unbind(card(machine)) == []
    (folder / "config").write_bytes(bytes(4) + b"\6" + bytes(59))
    steps = [step.path.rpartition("/")[2] for step in bind.plan_unbind(card(machine))]
    # a disk is not ours to reset
    assert steps == (["reset", "drivers_probe"] if code == 0x030000 else [])
    if steps:
        assert bind.objections(card(machine), None) == []
        machine.write("sys/class/graphics/fb0/name", "EFI VGA\n")
        (folder / "boot_vga").write_text("1\n")
        assert [one.what for one in bind.objections(card(machine), None)] == ["console"]


def test_a_reset_is_not_undone(desktop):
    bind.carry_out(desktop.kernel, bind.plan_bind(card(desktop), bind.NOBODY))
    folder = desktop.folder(ADDRESS)
    (folder / "reset").write_text("")
    (folder / "config").write_bytes(bytes(4) + b"\6" + bytes(59))
    steps = bind.plan_unbind(card(desktop))
    desktop.fails = {"drivers_probe": errno.EIO}
    with pytest.raises(RingupError, match="everything is as it was before"):
        bind.carry_out(desktop.kernel, steps)
    assert state(desktop) == [("", "none"), ("", "none")]


@pytest.mark.parametrize("groups", [("", ""), ("12", "13")], ids=["no IOMMU", "a group each"])
def test_functions_of_the_slot_go_without_a_common_group_too(machine, groups):
    machine.add(driver="amdgpu", group=groups[0])
    machine.add(SOUND, ids=(0x1002, 0xAB30), code=0x040300, driver="snd_hda_intel", group=groups[1])
    machine.add("0000:04:00.0", ids=(0x1002, 0xAB30), code=0x040300, driver="snd_hda_intel", group="")
    bind.carry_out(machine.kernel, bind.plan_bind(card(machine), bind.NOBODY))
    assert state(machine) == [("", "none"), ("", "none")]
    assert machine.driver_of("0000:04:00.0") == "snd_hda_intel"
    bind.carry_out(machine.kernel, bind.plan_unbind(card(machine)))
    assert state(machine) == [("amdgpu", "(null)"), ("snd_hda_intel", "(null)")]


def test_a_held_companion_is_an_objection_without_an_iommu_too(machine):
    machine.add(driver="amdgpu", group="")
    machine.add(
        SOUND, ids=(0x1002, 0xAB30), code=0x040300, driver="snd_hda_intel", group="", bars={0: (16384, 0x40200)}
    )
    folder = machine.root / "proc/42"
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text("player\n")
    (folder / "fd/3").symlink_to(machine.folder(SOUND).resolve() / "resource0")
    found = [one.seen for one in bind.objections(card(machine), bind.NOBODY)]
    assert len(found) == 1
    assert found[0].startswith("process 42 (")
    assert "03:00.1/resource0 open" in found[0]


def test_bridges_of_the_group_stay_with_the_kernel(desktop):
    bridge = desktop.folder("0000:00:01.0")
    (desktop.root / "sys/kernel/iommu_groups/12/devices/0000:00:01.0").symlink_to(bridge)
    assert {step.function for step in bind.plan_bind(card(desktop))} == {ADDRESS, SOUND}


def test_a_plan_is_readable_and_changes_nothing(desktop):
    plan = [str(step) for step in bind.plan_bind(card(desktop))]
    assert plan[:3] == [
        "0000:03:00.0: take it from amdgpu: echo 0000:03:00.0 > /sys/bus/pci/drivers/amdgpu/unbind",
        "0000:03:00.0: let only vfio-pci take it: echo vfio-pci > /sys/bus/pci/devices/0000:03:00.0/driver_override",
        "0000:03:00.0: give it to vfio-pci: echo 0000:03:00.0 > /sys/bus/pci/drivers_probe",
    ]
    assert len(plan) == 6
    assert desktop.log == []


STEPS = ("amdgpu/unbind", "03:00.0/driver_override", "vfio-pci", "snd_hda_intel/unbind", "03:00.1/driver_override")


@pytest.mark.parametrize("failing", STEPS)
def test_after_any_failed_step_everything_is_restored(desktop, failing):
    before = state(desktop)
    # "vfio-pci" as a driver: its probe fails, but the write itself succeeds.
    desktop.fails = {failing: errno.EIO}
    with pytest.raises(TransportError, match="everything is as it was before"):
        bind.carry_out(desktop.kernel, bind.plan_bind(card(desktop)))
    assert state(desktop) == before


@pytest.mark.parametrize("number", range(6))
def test_a_step_that_was_done_and_fails_all_the_same_is_taken_back_too(desktop, monkeypatch, number):
    """Some drivers release a function although the write to their file returns an error."""
    before, plan = state(desktop), bind.plan_bind(card(desktop))
    write, left = type(desktop.kernel).write, iter(range(20))

    def watched(self, *args):
        write(self, *args)
        if next(left) == number:
            raise TransportError("done, and failed")

    monkeypatch.setattr(type(desktop.kernel), "write", watched)
    with pytest.raises(TransportError, match="done, and failed; everything is as it was before"):
        bind.carry_out(desktop.kernel, plan)
    assert state(desktop) == before


def test_steps_that_cannot_be_undone_are_reported(desktop):
    desktop.fails = {"snd_hda_intel/unbind": errno.EIO, "amdgpu/bind": errno.ENODEV}
    with pytest.raises(
        RingupError, match=r"not everything could be undone: undoing: take it from amdgpu: .*No such device"
    ):
        bind.carry_out(desktop.kernel, bind.plan_bind(card(desktop)))
    assert state(desktop)[0] == ("", "(null)")


def test_another_programs_override_is_restored(desktop):
    desktop.write(desktop.folder(SOUND) / "driver_override", "snd_hda_intel\n")
    before = state(desktop)
    desktop.fails = {"drivers_probe": errno.EIO}
    with pytest.raises(TransportError, match="everything is as it was before"):
        bind.carry_out(desktop.kernel, bind.plan_bind(card(desktop)))
    assert state(desktop) == before


def objections(machine, driver="vfio-pci"):
    return {row.what: row.seen for row in bind.objections(card(machine), driver)}


def test_an_idle_card_has_no_objection(desktop):
    assert objections(desktop) == {}
    assert objections(desktop, None) == {}


def test_a_process_that_holds_the_card_or_its_mate_is_an_objection(desktop):
    desktop.write(desktop.folder(SOUND) / "sound/card1/pcmC1D3p/dev", "116:5\n")
    desktop.process(77, "pipewire", opened=(str(desktop.root / "dev/snd/pcmC1D3p"),))
    assert objections(desktop) == {"holders": "process 77 (pipewire) has /dev/snd/pcmC1D3p open"}


def test_another_device_in_the_group_is_an_objection_until_the_user_accepts(desktop):
    desktop.add("0000:04:00.0", ids=(0x144D, 0xA80A), code=0x010802, driver="nvme", parent="0000:00:02.0")
    assert objections(desktop) == {"group": "other devices are in group 12: 0000:04:00.0 (nvme)"}
    assert bind.objections(card(desktop), "vfio-pci", whole_group=True) == []
    assert objections(desktop, None) == {}


def test_the_console_is_an_objection_to_giving_a_card_away_but_not_back(desktop):
    desktop.write(desktop.folder(ADDRESS) / "drm/card1/card1-DP-1/enabled", "enabled\n")
    assert objections(desktop) == {"console": "card1-DP-1 shows a picture"}
    assert objections(desktop, None) == {}


def test_a_driver_that_is_not_loaded_is_an_objection(desktop):
    for file in (desktop.root / "sys/bus/pci/drivers/vfio-pci").iterdir():
        file.unlink()
    (desktop.root / "sys/bus/pci/drivers/vfio-pci").rmdir()
    assert objections(desktop) == {"driver": "the kernel has no driver vfio-pci loaded"}


def test_vfio_without_an_iommu_is_an_objection(machine):
    machine.add(group="", driver="amdgpu")
    assert objections(machine) == {"group": "no IOMMU group"}
    assert objections(machine, bind.NOBODY) == {}


@pytest.mark.parametrize(
    ("code", "name"),
    [(0x010802, "a disk or its controller"), (0x020000, "a network card"), (0x0C0330, "a USB"), (0x060400, "a bridge")],
)
def test_a_slot_without_a_gpu_is_not_taken_from_its_driver(desktop, code, name):
    desktop.add("0000:04:00.0", (0x144D, 0xA80A), code, "13", driver="nvme", parent="0000:00:02.0")
    (found,) = bind.objections(Function(desktop.kernel, "0000:04:00.0"), "vfio-pci", whole_group=True)
    assert (found.what, found.seen.partition(" (")[0].partition(" or other")[0]) == ("card", f"it is {name}")
    assert bind.objections(Function(desktop.kernel, "0000:04:00.0"), None) == []


def test_the_sound_function_of_a_card_names_its_slot_too(desktop):
    assert bind.objections(Function(desktop.kernel, SOUND), "vfio-pci") == []
