"""Sequences of several lengths as one tensor, as PyTorch 2.14 has them."""

import pytest

from ringup.compiler.tensor import Tensor
from ringup.nn.utils.rnn import pad_sequence, unpad_sequence


def test_shorter_sequences_are_filled_up():
    a, b = Tensor([[1, 2], [3, 4], [5, 6]]), Tensor([[7, 8]])
    made = pad_sequence([a, b], batch_first=True, padding_value=-1)
    assert made.tolist() == [[[1, 2], [3, 4], [5, 6]], [[7, 8], [-1, -1], [-1, -1]]]
    assert pad_sequence([a, b]).tolist() == [[[1, 2], [7, 8]], [[3, 4], [0, 0]], [[5, 6], [0, 0]]]
    left = pad_sequence([a, b], True, padding_side="left")
    assert left[1].tolist() == [[0, 0], [0, 0], [7, 8]]
    assert [one.tolist() for one in unpad_sequence(pad_sequence([a, b]), Tensor([3, 1]))] == [a.tolist(), b.tolist()]
    assert [one.tolist() for one in unpad_sequence(made, [3, 1], batch_first=True)] == [a.tolist(), b.tolist()]


def test_what_is_no_list_of_sequences_is_refused():
    with pytest.raises(ValueError, match="whose other axes are equal"):
        pad_sequence([Tensor.zeros(2, 3), Tensor.zeros(2, 4)])
    with pytest.raises(ValueError, match="of no sequence"):
        pad_sequence([])
    with pytest.raises(ValueError, match="3 lengths for 2 sequences"):
        unpad_sequence(Tensor.zeros(4, 2), [1, 2, 3])
