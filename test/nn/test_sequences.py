"""Sequences of several lengths as one tensor, bags of rows, as PyTorch 2.14 has them."""

import numpy as np
import pytest

from ringup import nn
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


def test_bags_and_rows_with_padding():
    bag = nn.EmbeddingBag(4, 2, mode="sum", padding_idx=-1)
    assert bag.weight[3].tolist() == [0, 0]
    bag.weight.assign([[1.0, 2], [3, 4], [5, 6], [70, 80]])
    places = Tensor([0, 3, 1, 2])
    # the row of padding does not count, whatever stands there
    assert bag(places, Tensor([0, 2])).tolist() == [[1, 2], [8, 10]]
    ends = nn.EmbeddingBag(4, 2, mode="sum", include_last_offset=True)
    ends.weight.assign(bag.weight)
    assert ends(places, Tensor([0, 1, 4])).tolist() == [[1, 2], [78, 90]]
    rows = nn.Embedding(4, 2, None, 1.0)
    rows.weight.assign([[3.0, 4], [0.3, 0.4], [0, 0], [0, 2]])
    np.testing.assert_allclose(rows(Tensor([0, 1])).numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)
    with pytest.raises(ValueError, match="padding_idx of 4 in a table of 4"):
        nn.EmbeddingBag(4, 2, padding_idx=4)


def test_norms_of_windows_of_three_axes():
    cube = Tensor(np.arange(8.0).reshape(1, 2, 2, 2))
    assert nn.LPPool3d(1, 2)(cube).item() == 28
    assert nn.functional.lp_pool3d(cube, 2, (1, 1, 2)).shape == (1, 2, 2, 1)
