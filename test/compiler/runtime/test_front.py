"""The entry to the tensor language: tensors by one import, on a card by name, on an open card, or made by the card
itself.
"""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import ringup
from ringup.compiler.tensor import realize
from ringup.errors import CompileError, NotSupported


@pytest.fixture(autouse=True)
def nothing_chosen():
    """Choose no card, as in a program that has just started."""
    token = realize._current.set(realize._UNSET)
    yield
    realize._current.reset(token)


def test_a_card_by_name_computes_while_the_block_runs():
    with ringup.device("virtual:navi31") as device:
        made = ringup.Tensor([1.0, 2.0]) * 3
        assert made.tolist() == [3.0, 6.0]
        assert device.card.info.chip == "navi31"
    assert device.card.is_closed
    with pytest.raises(CompileError, match=r"no card is chosen"):
        (ringup.Tensor([1.0]) + 1).numpy()


def test_a_name_takes_the_options_of_open(tmp_path):
    with (
        pytest.raises(ringup.RingupError, match="firmware"),
        ringup.device("virtual:navi31", firmware=tmp_path / "nowhere"),
    ):
        pass
    with ringup.device("virtual:navi32", transport={"vram_bytes": 1 << 30}) as device:
        assert device.card.info.vram_bytes == 1 << 30


def test_an_open_card_stays_open_and_keeps_what_was_compiled(card):
    with ringup.device(card) as first:
        assert (ringup.Tensor([1, 2]) + 1).tolist() == [2, 3]
    compiled = len(first.graphs)
    with ringup.device(card) as second:
        assert (ringup.Tensor([5, 6]) + 1).tolist() == [6, 7]
    assert second is first
    assert len(second.graphs) == compiled
    assert not card.is_closed


def test_what_is_no_card_is_refused(card):
    with pytest.raises(TypeError, match=r"not 7"), ringup.device(7):
        pass
    with (
        pytest.raises(TypeError, match=r"firmware: options are for a card that is opened here"),
        ringup.device(card, firmware="x"),
    ):
        pass
    with pytest.raises(TypeError, match=r"is a name: open the card first"):
        ringup.use("virtual:navi31")


def test_use_chooses_for_what_follows(card):
    ringup.use(card)
    assert (ringup.Tensor([1, 2]) * 2).tolist() == [2, 4]
    ringup.use(None)
    with pytest.raises(CompileError, match="no card is chosen"):
        (ringup.Tensor([1]) + 1).numpy()


@pytest.mark.parametrize("data", [2.5, 7, True, [1.0, 2.0], np.arange(6).reshape(2, 3)], ids=repr)
def test_a_cards_tensors_are_computed_on_it(card, data):
    made = card.tensor(data)
    assert np.array_equal(made.numpy(), np.asarray(data))
    doubled = (made + made).numpy()
    assert np.array_equal(doubled, np.asarray(data) + np.asarray(data) if data is not True else np.True_)
    assert made.dtype is ringup.Tensor(data).dtype


def test_what_was_computed_goes_on_on_its_card(card):
    made = (card.tensor([1.0, 2.0]) * 2).realize()
    assert (made + ringup.Tensor([1.0, 1.0])).tolist() == [3.0, 5.0]


def test_a_cards_tensor_has_a_gradient(card):
    weight = card.tensor([1.0, 2.0], requires_grad=True)
    (weight * weight).sum().backward()
    assert weight.grad.tolist() == [2.0, 4.0]


def test_tensors_of_two_cards_meet_only_where_one_is_chosen(card, own_card):
    other = own_card()
    with pytest.raises(
        CompileError, match=r"virtual:navi31 and virtual:navi31 meet in one graph.*ringup\.device\(card\)"
    ):
        (card.tensor([1.0]) + other.tensor([2.0])).numpy()
    with ringup.device(card):
        assert (card.tensor([1.0]) + other.tensor([2.0])).tolist() == [3.0]
    with ringup.device(None), pytest.raises(CompileError, match="no card is chosen"):
        (card.tensor([1.0]) + 1).numpy()


def test_a_tensor_of_a_closed_card_is_an_error(own_card):
    closed = own_card()
    made = closed.tensor([1.0])
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        (made + 1).numpy()
    with pytest.raises(ValueError, match="closed"):
        closed.tensor([1.0])
    with pytest.raises(ValueError, match="closed"), ringup.device(closed):
        pass


def test_a_closed_card_and_its_tensors_go_when_nobody_holds_them():
    with ringup.open("virtual:navi31", kind=ringup.Radeon) as opened:
        (opened.tensor([1.0]) + 1).numpy()
        gone = weakref.ref(opened)
    del opened
    gc.collect()
    assert gone() is None


def test_the_kind_of_a_card_is_asked_before_it_is_touched():
    class Other:
        pass

    with pytest.raises(NotSupported, match=r"virtual:navi31: it is a Radeon, not a Other"):
        ringup.open("virtual:navi31", kind=Other)
    with ringup.open("virtual:navi31", kind=ringup.Card) as opened:
        assert isinstance(opened, ringup.Radeon)
        assert isinstance(opened, ringup.Card)


def test_every_public_name_is_there():
    assert [name for name in dir(ringup) if not hasattr(ringup, name)] == []
    assert set(ringup.__all__) < set(dir(ringup))


def test_a_card_without_tensors_loads_no_compiler():
    """NumPy is not loaded either: the core of a real card is small."""
    code = (
        "import sys, ringup, ringup.drivers.amd.card, ringup.drivers.usb4.transport, ringup.drivers.transport.linux.pci;"
        "print(sorted({one.split('.')[0] for one in sys.modules} & {'numpy', 'llvmlite', 'rich', 'shtab'}),"
        "[one for one in sys.modules if one.startswith('ringup.compiler')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[] []"
