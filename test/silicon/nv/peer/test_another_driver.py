"""An independent driver for the real chip, unmodified, boots the virtual card's GSP and computes with code that Mesa's
NAK made. The card records no mistake, and nothing that it lacks.
"""

import numpy as np
import pytest

from ringup.silicon.nv.gsp.firmware import Phase

DRAW = np.random.default_rng(5)
A, B = (DRAW.random((48, 48), np.float32) for _ in range(2))
WANTED = {
    "elementwise": A * 2 + B,
    "matmul": A @ B,
    "sum": (A * B).sum(axis=1),
    "softmax": np.exp(A) / np.exp(A).sum(axis=1, keepdims=True),
    "integers": ((A * 1000).astype(np.int32) // 7 ^ (B * 1000).astype(np.int32) % 5).astype(np.float32),
}
WORK = dict.fromkeys(WANTED, (A, B))
FEW = {"matmul": WORK["matmul"]}
# Around a page, around a large page, and beyond what the driver copies at once.
SIZES = (1, 3, 255, 4095, 4097, 65537, (2 << 20) + 5, 9 << 20)
# By chip: what the driver finds, and what it is given to do. It knows no Turing.
CHIPS = {
    "ga102": ("sm_86", [7, 6, 2, 48], WORK, SIZES),
    "ad102": ("sm_89", [12, 6, 2, 48], FEW, SIZES[:3]),
    # its cores are not modelled: the driver copies only
    "gb202": ("sm_120", [12, 8, 2, 48], {}, SIZES[:3]),
}


def check(answer, chip, *names):
    assert (answer["arch"], answer["shape"]) == CHIPS[chip][:2]
    assert answer["wrong copies"] == []
    assert answer["keeps several"]
    for name in names:
        found = np.frombuffer(bytes.fromhex(answer["outputs"][name]), np.float32).reshape(WANTED[name].shape)
        np.testing.assert_allclose(found, WANTED[name], rtol=2e-6, err_msg=name)


def finished(card):
    """Whether the driver has unloaded the firmware, and no channel is left."""
    return card.firmware_of_gsp.phase is Phase.STOPPED and not card.engines.waiting()


@pytest.mark.parametrize("chip", CHIPS)
def test_rung_8_another_driver_boots_copies_and_computes(remote, drive, chip):
    door = remote(chip)
    *_, work, sizes = CHIPS[chip]
    check(drive(door, work, sizes), chip, *work)
    assert finished(door.card)
    if chip == "ga102":
        # A second process finds the protected region up, and resets the function. It makes a kernel fault at its end.
        answer = drive(door, FEW, fault=True)
        check(answer, chip, *FEW)
        gpu_va, error = answer["fault"]
        assert error == f"MMU fault: {gpu_va:#X} | NV_PFAULT_FAULT_TYPE_PTE | READ".replace("0X", "0x")
        where = f"{gpu_va >> 32:#x}_{gpu_va & 0xFFFFFFFF:08x}"
        assert f"ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ {where}. Fault is of type FAULT_PTE" in answer["said"]
        assert finished(door.card)
