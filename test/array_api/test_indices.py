"""Indexing, assignment and operators of arrays give what `array-api-strict` gives."""

import operator

import array_api_cases
import array_api_strict as strict
import numpy as np
import pytest

import ringup.array_api as xp

OPERATORS = {
    **array_api_cases.of(array_api_cases.NUMBERS, "add floordiv mod mul sub eq ne lt le gt ge"),
    **array_api_cases.of(array_api_cases.FLOATS, "truediv pow"),
    **array_api_cases.of(("bool", *array_api_cases.INTEGERS), "and_ or_ xor"),
    **array_api_cases.of(array_api_cases.INTEGERS, "lshift rshift"),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
FORMS = [
    (name, form)
    for name in OPERATORS
    for form in ("arrays", "number", "reverse", "in place")
    if form != "in place" or name not in COMPARISONS
]


@pytest.fixture(autouse=True)
def newest():
    strict.set_array_api_strict_flags(api_version=xp.__array_api_version__)
    yield
    strict.reset_array_api_strict_flags()


def key_of(draw, shape):
    """Return an index of an array: a mask, or a part for each axis, with arrays of places now and then."""
    if draw.random.random() < 0.2:
        return draw.array("bool", shape[: draw.random.randint(1, len(shape))])
    places = all(shape) and draw.random.random() < 0.4
    parts = []
    for size in shape:
        if places:
            # the standard has arrays of places beside whole numbers only
            many = draw.random.random() < 0.7
            parts.append(draw.numpy.integers(-size, size, (3,)) if many else draw.random.randrange(-size, size))
        elif size and draw.random.random() < 0.3:
            parts.append(draw.random.randrange(-size, size))
        else:
            parts.append(a_slice(draw, size))
    if not places and draw.random.random() < 0.3:
        parts[draw.random.randrange(len(parts)) :] = [...]
    if not places and draw.random.random() < 0.3:
        parts.insert(draw.random.randint(0, len(parts)), None)
    return tuple(parts)


def a_slice(draw, size):
    """Return a slice whose bounds the standard defines: inside, and in the direction of the step."""
    low, high = sorted(draw.random.randint(0, size) for _ in range(2))
    step = draw.random.choice((None, 1, 2, 3))
    if draw.random.random() < 0.3 and size:
        return slice(None, None, draw.random.choice((-1, -2)))
    return slice(draw.random.choice((None, low)), draw.random.choice((None, high)), step)


def taken(namespace, x, key):
    return array_api_cases.on(namespace, x)[indexed(namespace, key)]


def indexed(namespace, key):
    """Return an index with the arrays of a namespace, which integers among them are not."""
    if isinstance(key, tuple):
        return tuple(array_api_cases.on(namespace, one) if isinstance(one, np.ndarray) else one for one in key)
    return array_api_cases.on(namespace, key)


@pytest.mark.seeds(60)
def test_a_part_is_stricts(seed):
    draw = array_api_cases.Draw(seed)
    shape = draw.shape(1)
    x, key = draw.array(draw.random.choice(array_api_cases.ALL), shape), key_of(draw, shape)
    found, expected = (np.asarray(np.from_dlpack(taken(one, x, key))) for one in (xp, strict))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected, f"x[{key}]")


@pytest.mark.seeds(60)
def test_an_assignment_is_stricts(seed):
    draw = array_api_cases.Draw(seed)
    shape, kind = draw.shape(1), draw.random.choice(array_api_cases.ALL)
    x, key = draw.array(kind, shape), key_of(draw, shape)
    if isinstance(key, tuple) and any(isinstance(one, np.ndarray) for one in key):
        # which of two values at one place stays is open, and the standard assigns at no array of places
        key = tuple(one if not isinstance(one, np.ndarray) else int(one[0]) for one in key)
    elif isinstance(key, tuple):
        # no new axes either
        key = tuple(one for one in key if one is not None)
    part = x[key].shape
    value = draw.array(kind, draw.part(part) if draw.random.random() < 0.5 or isinstance(key, np.ndarray) else part)
    if isinstance(key, np.ndarray) and value.ndim:
        # a mask takes one value
        value = value.reshape(-1)[:1].reshape(()) if value.size else np.zeros((), kind)
    results = []
    for namespace in (xp, strict):
        made = array_api_cases.on(namespace, x)
        made[indexed(namespace, key)] = array_api_cases.on(namespace, value)
        results.append(np.asarray(np.from_dlpack(made)))
    np.testing.assert_array_equal(*results, f"x[{key}] = {value}")


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.seeds(1)
def test_an_operator_is_stricts(name, form, seed):
    draw = array_api_cases.Draw(f"{name} {form} {seed}")
    kind = draw.random.choice(OPERATORS[name])
    x, y = (draw.plain(kind, (3, 4)) for _ in range(2))
    number = draw.random.choice((True, False)) if kind == "bool" else draw.random.choice((1, 2, 3, 5))
    if name in ("floordiv", "mod"):
        y = np.where(y == 0, 1, abs(y)).astype(kind) if kind[0] != "u" else np.maximum(y, 1)
        x = np.where(x == 0, 1, x).astype(kind)
    elif name in ("lshift", "rshift"):
        y, x = (one % np.asarray(5, kind) for one in (y, x))
    results = []
    for namespace in (xp, strict):
        a, b = (array_api_cases.on(namespace, one) for one in (x, y))
        if form == "in place":
            with np.errstate(all="ignore"):
                getattr(operator, f"i{name.strip('_')}")(a, b)
            made = a
        else:
            given = {"arrays": (a, b), "number": (a, number), "reverse": (number, a)}[form]
            with np.errstate(all="ignore"):
                made = getattr(operator, name)(*given)
        results.append(np.asarray(np.from_dlpack(made)))
    found, expected = results
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, 1e-6 if kind == "float32" else 1e-14)
