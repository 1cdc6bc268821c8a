"""The compute topology in sysfs: what it says, and files that are odd."""

import pytest

from ringup.drivers.transport.kfd import sensors
from ringup.drivers.transport.kfd.topology import MAX_FILE_BYTES, gpus, nodes


def test_processors_and_cards_are_told_apart(compute):
    assert [node.number for node in nodes(compute.kernel)] == [0, 1]
    (card,) = gpus(compute.kernel)
    assert (card.gpu_id, card.target, card.address) == (44027, "gfx1100", "0000:03:00.0")
    assert (card.vram_bytes, card.l2_bytes) == (24 << 30, 6 << 20)
    assert card.links == ({"type": 2, "node_from": 1, "node_to": 0},)
    assert card.block_version("GC") == (11, 0, 0)
    assert card.block_version("SDMA0") == (6, 0, 0)
    assert card.block_version("VCN") is None
    assert card.render_path == compute.root / "dev/dri/renderD128"
    assert card.there


# location_id: kfd_topology.c, pci_dev_id: bus in bits 15:8, device in 7:3, function in 2:0
@pytest.mark.parametrize(
    ("location", "domain", "address"),
    [(0x300, 0, "0000:03:00.0"), (0xC3F9, 0x10000, "10000:c3:1f.1"), (0, 0, "0000:00:00.0")],
)
def test_the_place_on_the_bus(compute, location, domain, address):
    compute.node(1, {"simd_count": 2, "location_id": location, "domain": domain})
    assert gpus(compute.kernel)[0].address == address


@pytest.mark.parametrize(
    ("version", "target"), [(110000, "gfx1100"), (110501, "gfx1151"), (90010, "gfx90a"), (120001, "gfx1201")]
)
def test_targets_are_spelled_as_compilers_do(compute, version, target):
    compute.node(1, {"simd_count": 2, "gfx_target_version": version})
    assert gpus(compute.kernel)[0].target == target


def test_a_card_that_left_is_noticed(compute):
    (card,) = gpus(compute.kernel)
    compute.node(1, gpu_id=999)
    assert not card.there


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe\x00",
        b"simd_count",
        b"simd_count -4",
        b"simd_count " + b"9" * 400,
        b"x" * (2 * MAX_FILE_BYTES),
        b"simd_count 0x10",
        b"\0" * 4096,
    ],
    ids=["empty", "no text", "no value", "negative", "endless number", "long", "hexadecimal", "zeros"],
)
def test_an_odd_file_makes_no_card_and_no_error(compute, text):
    compute.write("sys/class/kfd/kfd/topology/nodes/1/properties", text)
    assert gpus(compute.kernel) == []


def test_odd_lines_leave_the_others(compute):
    compute.write(
        "sys/class/kfd/kfd/topology/nodes/1/properties", b"simd_count 4\nnonsense\nsibling_map 1,2\n\xff 3\nnum_xcc 1\n"
    )
    assert gpus(compute.kernel)[0].properties == {"simd_count": 4, "num_xcc": 1}


def test_folders_that_are_no_nodes_are_passed_over(compute):
    for name in ("x", "-1", "1e3", "99999999"):
        (compute.root / f"sys/class/kfd/kfd/topology/nodes/{name}").mkdir()
    assert len(nodes(compute.kernel)) == 2


def test_a_machine_without_amdkfd_has_no_nodes(tmp_path):
    from ringup.drivers.transport.linux.kernel import Kernel

    assert nodes(Kernel(tmp_path)) == []


def test_sensors_have_the_units_of_their_names(compute):
    # the files and their units: Documentation/gpu/amdgpu/thermal.rst
    device = compute.card()
    for name, text in {
        "gpu_busy_percent": "97", "mem_info_vram_used": "1048576", "hwmon/hwmon3/power1_average": "215000000",
        "hwmon/hwmon3/freq1_input": "2304000000", "hwmon/hwmon3/temp1_input": "61000", "hwmon/hwmon3/temp1_label": "edge",
        "hwmon/hwmon3/temp2_input": "72500", "hwmon/hwmon3/temp2_label": "junction", "hwmon/hwmon3/in0_input": "906",
        "current_link_speed": "16.0 GT/s PCIe", "current_link_width": "16",
    }.items():  # fmt: skip
        compute.write(f"{device}/{name}", f"{text}\n")
    seen = sensors.read(gpus(compute.kernel)[0])
    assert (seen.busy_percent, seen.vram_used_bytes, seen.power_w) == (97, 1 << 20, pytest.approx(215))
    assert (seen.core_clock_mhz, seen.core_v) == (pytest.approx(2304), pytest.approx(0.906))
    assert (seen.edge_c, seen.hotspot_c, seen.memory_c) == (pytest.approx(61), pytest.approx(72.5), None)
    assert seen.link == "16.0 GT/s PCIe x16"
    assert (seen.fan_rpm, seen.power_limit_w, seen.memory_clock_mhz) == (None, None, None)


def test_a_card_without_sensors_shows_none(compute):
    seen = sensors.read(gpus(compute.kernel)[0])
    assert {getattr(seen, name) for name in seen.__slots__} == {None, ""}
