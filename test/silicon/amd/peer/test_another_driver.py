"""An independent driver for the real chip, unmodified, brings the virtual card up and computes on it. The card records
no mistake.
"""

import numpy as np
import pytest

DRAW = np.random.default_rng(5)
# Of 1 GiB of VRAM.
BAR0 = {"small": 256 << 20, "full": 1 << 30}


def floats(*shape):
    return DRAW.random(shape, np.float32)


A, B, LARGE = floats(64, 64), floats(64, 64), floats(512, 1024)
WORK = {
    "elementwise": ("elementwise", A, B),
    "matmul": ("matmul", A, B),
    # By matrix instructions.
    "half matmul": ("half matmul", A, B),
    "sum": ("sum", A, B),
    "copy": ("copy", LARGE, LARGE[:1].repeat(512, 0)),
}
HALVES = [one.astype(np.float16).astype(np.float32) for one in (A, B)]
WANTED = {
    "elementwise": A * 2 + B, "matmul": A @ B, "half matmul": HALVES[0] @ HALVES[1], "sum": (A * B).sum(axis=1), "copy": LARGE,
}  # fmt: skip


def check(answer, *names):
    for name in names:
        found = np.frombuffer(bytes.fromhex(answer["outputs"][name]), np.float32).reshape(WANTED[name].shape)
        np.testing.assert_allclose(found, WANTED[name], rtol=2e-6 if name != "copy" else 0, err_msg=name)


def finished(radeon):
    """Whether the driver has taken its queues off and noted that in its scratch register."""
    cells = radeon.gc.grbm.cells
    radeon.clock.sleep_us(1000)
    return cells["SCRATCH_REG6"] == 0 and not any(queue.connected for queue in radeon.gc.cp.queues.values())


def opens_computes_and_copies(door, drive, firmware, bar):
    answer = drive(door, firmware, WORK)
    assert (answer["arch"], answer["partial"], answer["large_bar"]) == ("gfx1100", False, bar == "full")
    check(answer, *WORK)
    assert finished(door.card)


def test_it_opens_computes_and_copies_through_a_full_bar(remote, drive, made_firmware):
    opens_computes_and_copies(remote(bar0_bytes=BAR0["full"]), drive, made_firmware, "full")


def test_so_it_does_through_a_small_one_then_finds_the_card_up_and_boots_it_after_a_reset(remote, drive, made_firmware):
    door = remote(bar0_bytes=BAR0["small"])
    opens_computes_and_copies(door, drive, made_firmware, "small")
    few = {"elementwise": WORK["elementwise"]}
    sessions = [drive(door, made_firmware, few)]
    door.card.mode1_reset()
    sessions.append(drive(door, made_firmware, few))
    assert [one["partial"] for one in sessions] == [True, False]
    for one in sessions:
        check(one, *few)


# On a navi32 the driver takes another generation's tables for the SMU. By then its hubs, its firmware and its graphics
# core are up.
@pytest.mark.parametrize(
    ("name", "target"), [("navi31", "gfx1100"), pytest.param("navi33", "gfx1102", marks=pytest.mark.fuzz)]
)
def test_it_loads_the_distributions_firmware(remote, drive, real_firmware, name, target):
    door = remote(name, bar0_bytes=BAR0["small"])
    answer = drive(door, real_firmware, {"sum": WORK["sum"], "half matmul": WORK["half matmul"]})
    assert (answer["arch"], answer["partial"]) == (target, False)
    check(answer, "sum", "half matmul")
    assert finished(door.card)


def test_a_page_fault_of_a_kernel_reaches_it_and_it_recovers(remote, drive, made_firmware):
    door = remote(bar0_bytes=BAR0["small"])
    answer = drive(door, made_firmware, {"sum": WORK["sum"]}, fault=True)
    gpu_va, error = answer["fault"]
    assert error == "Device hang detected"
    status = next(line for line in answer["said"].splitlines() if "GCVM_L2_PROTECTION_FAULT_STATUS" in line)
    assert "'rw': 0" in status
    assert status.endswith(f" {gpu_va:#x}")
    # The driver resets the compute engine and continues.
    check(answer, "sum")
    assert {(one.block, f"read of {gpu_va:#x}" in one.text) for one in door.card.violations[:1]} == {("sq", True)}
    door.card.violations.clear()
