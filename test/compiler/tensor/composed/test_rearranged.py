"""Axes that are split, moved and joined by name are NumPy's reshapes and transpositions."""

import numpy as np
import pytest

from ringup import Size, Tensor, gradient

X = np.arange(2 * 12 * 4 * 1, dtype=np.int32).reshape(2, 12, 4, 1)
SPLIT = X.reshape(2, 3, 4, 4, 1)

CASES = {
    "moved": ("a b c d -> d c b a", {}, X.transpose(3, 2, 1, 0)),
    "joined, the last name fastest": ("a b c d -> (c a) (b d)", {}, X.transpose(2, 0, 1, 3).reshape(8, 12)),
    "split by the first size": ("a (h w) c d -> a h w c d", {"h": 3}, SPLIT),
    "split by the last size": ("a (h w) c d -> a h w c d", {"w": 4}, SPLIT),
    "split by all sizes": ("a (h w) c d -> w a (h c) d", {"h": 3, "w": 4}, SPLIT.transpose(2, 0, 1, 3, 4).reshape(4, 2, 12, 1)),
    "axes without a name": ("a ... d -> d ... a", {}, X.transpose(3, 1, 2, 0)),
    "joined without a name": ("a ... -> (...) a", {}, X.transpose(1, 2, 3, 0).reshape(48, 2)),
    "no axis without a name": ("a b c d ... -> ... b a c d", {}, X.transpose(1, 0, 2, 3)),
    "one sign for three dots": ("a … -> … a", {}, X.transpose(1, 2, 3, 0)),
    "an axis of one taken away": ("a b c 1 -> c a b", {}, X[..., 0].transpose(2, 0, 1)),
    "axes of one put in": ("a b c () -> a 1 b () c", {}, X[..., 0][:, None, :, None, :]),
    "a size that is the whole axis": ("a b c d -> a b (c d)", {"b": 12}, X.reshape(2, 12, 4)),
    "pieces put beside each other": ("a (p q r) c d -> a (r c) (q p) d", {"p": 2, "q": 3},
                                      X.reshape(2, 2, 3, 2, 4, 1).transpose(0, 3, 4, 2, 1, 5).reshape(2, 8, 6, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_axes_are_where_the_pattern_says(name):
    pattern, sizes, expected = CASES[name]
    np.testing.assert_array_equal(Tensor(X).rearrange(pattern, **sizes).numpy(), expected)


def test_an_axis_may_have_the_name_of_anything():
    found = Tensor(X).rearrange("tensor pattern axis dim -> dim axis (pattern tensor)", tensor=2)
    np.testing.assert_array_equal(found.numpy(), X.transpose(3, 2, 1, 0).reshape(1, 4, 24))


def test_what_is_rearranged_has_a_gradient_and_is_written_through():
    x = Tensor(np.zeros((2, 6), np.float32))
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    (found,) = gradient((x.rearrange("a (b c) -> b (c a)", b=3) * Tensor(weight)).sum(), [x])
    np.testing.assert_array_equal(found.numpy(), weight.reshape(3, 2, 2).transpose(2, 0, 1).reshape(2, 6))
    x.rearrange("a b -> b a")[1] = 7
    assert x.tolist() == [[0, 7, 0, 0, 0, 0]] * 2


def test_an_axis_whose_size_is_open_is_moved():
    n = Size("n", 1, 12)
    found = Tensor(X)[:, :n].rearrange("a b (c e) d -> b (a c) e d", c=2)
    np.testing.assert_array_equal(
        found.numpy(n=5), X[:, :5].reshape(2, 5, 2, 2, 1).transpose(1, 0, 2, 3, 4).reshape(5, 4, 2, 1)
    )


@pytest.mark.parametrize(
    ("pattern", "sizes", "message"),
    [
        ("a b c d", {}, "two sides with one ->"),
        ("a b c d -> a b -> c d", {}, "two sides with one ->"),
        ("a b c -> c b a", {}, r"of \[2, 12, 4, 1\]: it has 4 axes"),
        ("a b c d e -> e d c b a", {}, r"of \[2, 12, 4, 1\]: it has 4 axes"),
        (" -> ", {}, "it has 4 axes"),
        ("a b c d -> a b c", {}, "d on one side only"),
        ("a b c d -> a b c d e", {}, "e on one side only"),
        ("a a c d -> a c d", {}, "a stands twice on one side"),
        ("a ... d ... -> a d ...", {}, r"\.\.\. stands twice on one side"),
        ("a (b ...) -> a b ...", {}, r"\.\.\. in parentheses on the left side"),
        ("(...) -> ...", {}, r"\.\.\. in parentheses on the left side"),
        ("a (b (e c) d -> a b c d e", {}, "parentheses do not match"),
        ("a b) c d -> a b c d", {}, "parentheses do not match"),
        ("a (b c d -> a b c d", {}, "a parenthesis is not closed"),
        ("a 2b c d -> a 2b c d", {}, "'2b' is no name of an axis"),
        ("a _b c d -> a _b c d", {}, "'_b' is no name of an axis"),
        ("a b* c d -> a b* c d", {}, r"'b\*' is no name of an axis"),
        ("a .. c d -> a .. c d", {}, r"'\.\.' is no name of an axis"),
        ("...a -> ...a", {}, r"'\.\.\.a' is no name of an axis"),
        ("a (p q) c d -> a p q c d", {}, "all but one of p, q need a size"),
        ("a (p q) c d -> a p q c d", {"p": 5}, r"an axis of 12 is not \(p q\) with p=5"),
        ("a (p q) c d -> a p q c d", {"p": 0}, r"an axis of 12 is not \(p q\) with p=0"),
        ("a (p q) c d -> a p q c d", {"p": 2, "q": 5}, r"an axis of 12 is not \(p q\) with p=2, q=5"),
        ("a b c d -> a b c d", {"b": 3}, r"an axis of 12 is not \(b\) with b=3"),
        ("a b 1 d -> a b d", {}, r"an axis of 4 is not \(\)"),
        ("a b c d -> a b c d", {"e": 3}, "e is no axis of it"),
    ],
)  # fmt: skip
def test_a_pattern_that_does_not_fit_is_refused(pattern, sizes, message):
    with pytest.raises(ValueError, match=message):
        Tensor(X).rearrange(pattern, **sizes)
