"""BARs that the kernel or the path does not provide: the error names them before the driver touches the card, whoever
asks.
"""

import pytest

import ringup
from ringup.drivers.transport import bars
from ringup.drivers.transport.linux import pci, preflight
from ringup.drivers.transport.linux.function import find
from ringup.errors import NotSupported
from ringup.silicon import card as virtual

ADDRESS = "0000:03:00.0"
NOTHING = " ".join(["0x" + "0" * 16] * 3)  # what the kernel writes after "failed to assign"
HOLDS = {0: "memory", 2: "doorbells", 5: "registers"}


def without(machine, number, line=NOTHING):
    table = machine.folder(ADDRESS) / "resource"
    lines = table.read_text().splitlines()
    lines[number] = line
    table.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("driver", ["", "vfio-pci"])
@pytest.mark.parametrize("number", HOLDS)
def test_a_bar_without_an_address_is_named_before_the_card_is_opened(machine, number, driver):
    machine.add(group="12" if driver else "", driver=driver)
    without(machine, number)
    named = rf"BAR {number} \(its {HOLDS[number]}\) has no address; .*Above 4G decoding"
    (found,) = pci.find(machine.kernel)
    assert f"BAR {number} (its {HOLDS[number]}) has no address" in found.skipped
    (seen,) = preflight.bars(find(machine.kernel, ADDRESS))
    assert (seen.state, seen.seen) == (preflight.REFUSE, f"BAR {number} (its {HOLDS[number]}) has no address")
    with pytest.raises(NotSupported, match=named):
        pci.open(ADDRESS, kernel=machine.kernel)
    assert machine.log == [] or not any("enable" in str(line) for line in machine.log)


def test_a_bar_that_is_too_small_is_named_with_its_size(machine):
    machine.add(group="", bars={0: (1 << 20, 0x14220C), 2: (2048, 0x14220C), 5: (64 << 10, 0x40200)})
    (found,) = pci.find(machine.kernel)
    assert "BAR 2 (its doorbells) shows 2048 bytes, 4096 are the least" in found.skipped


def test_cards_without_a_known_driver_are_not_checked():
    assert bars.trouble(0x10DE, {}) == ""


@pytest.mark.parametrize("number", HOLDS)
def test_a_path_that_lacks_a_bar_refuses_the_start_and_leaves_the_card_alone(number):
    radeon = virtual("navi31", vram_bytes=64 << 20)
    command = radeon.gpu.command
    del radeon.bars[number]
    with pytest.raises(NotSupported, match=rf"waking the bus: .*BAR {number} \(its {HOLDS[number]}\) has no address"):
        ringup.open(radeon.name, transport={"card": radeon})
    assert radeon.gpu.command == command & ~0x4
    assert radeon.violations == []
