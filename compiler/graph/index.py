"""Integer expressions of loop axes and symbolic sizes, in one normal form: a constant plus multiples of atoms, each
with its range.

An atom is a variable, a floor division, a remainder, a product of two expressions, or a value known only at run time.
Ranges are inclusive. They simplify most divisions: `(4*i + j) // 4` is `i` if 0 <= j < 4. Constants are plain `int`, so
arithmetic on constant shapes is plain too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import gcd
from threading import Lock
from typing import Final, TypeAlias, cast
from weakref import WeakValueDictionary

# The depth of nested quotients up to which functions recurse at a time: Python limits the depth of calls.
MAX_NESTED: Final = 32
Int: TypeAlias = "int | Expr"
Parts: TypeAlias = tuple[object, ...]


class Expr:
    """An integer with inclusive bounds `lo` and `hi`. Immutable; equal ones compare equal and have equal hashes."""

    __slots__ = ("_hash", "constant", "hi", "lo", "terms")

    def __init__(self, constant: int, terms: tuple[tuple[Atom, int], ...]) -> None:
        self.constant, self.terms = constant, terms
        lo = hi = constant
        for atom, factor in terms:
            if factor > 0:
                lo, hi = lo + factor * atom.lo, hi + factor * atom.hi
            else:
                lo, hi = lo + factor * atom.hi, hi + factor * atom.lo
        self.lo, self.hi = lo, hi
        self._hash = hash((constant, terms))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Expr) and self.constant == other.constant and self.terms == other.terms
        )

    def __repr__(self) -> str:
        parts = [f"{factor}*{atom.text}" if factor != 1 else atom.text for atom, factor in self.terms]
        return " + ".join(parts + ([str(self.constant)] if self.constant or not parts else []))

    def __add__(self, other: Int) -> Int:
        if isinstance(other, int):
            return Expr(self.constant + other, self.terms) if other else self
        return _sum(self.constant + other.constant, self.terms, other.terms)

    __radd__ = __add__

    def __neg__(self) -> Int:
        return self * -1

    def __sub__(self, other: Int) -> Int:
        return self + -1 * other

    def __rsub__(self, other: Int) -> Int:
        return -1 * self + other

    def __mul__(self, other: Int) -> Int:
        if isinstance(other, int):
            if other == 0:
                return 0
            if other == 1:
                return self
            return Expr(self.constant * other, tuple((atom, factor * other) for atom, factor in self.terms))
        return _product(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Int) -> Int:
        return _divide(self, other)

    def __mod__(self, other: Int) -> Int:
        return _remainder(self, other)

    def __rfloordiv__(self, other: int) -> Int:
        return _divide(_expr(other), self)

    def __rmod__(self, other: int) -> Int:
        return _remainder(_expr(other), self)

    def atoms(self) -> Iterator[Atom]:
        """Yield every atom, outermost first, including those inside divisions and products. An atom may come more than
        once.
        """
        waiting = [atom for atom, _ in reversed(self.terms)]
        while waiting:
            atom = waiting.pop()
            yield atom
            for part in reversed(atom.parts):
                if isinstance(part, Expr):
                    waiting += [inner for inner, _ in reversed(part.terms)]

    def variables(self) -> frozenset[Atom]:
        """Return the variables and run-time values it depends on."""
        return _variables(self)

    def split(self, of: frozenset[Atom]) -> tuple[Int, Int]:
        """Split it into two parts that sum to it: the terms that depend on a variable of `of`, and the rest with the
        constant.
        """
        inside = tuple(term for term in self.terms if not _expr_of(term[0]).variables().isdisjoint(of))
        outside = tuple(term for term in self.terms if term not in inside)
        return _made(0, inside), _made(self.constant, outside)

    def substitute(self, values: Mapping[Atom, Int]) -> Int:
        """Return it with variables replaced, simplified again."""
        if any(atom.nesting > MAX_NESTED for atom, _ in self.terms):
            values = self._with_nested(values)
        return self.replaced(values)

    def replaced(self, values: Mapping[Atom, Int]) -> Int:
        """Return it with variables and other atoms replaced. The recursion is as deep as atoms without a value are
        nested.
        """
        if self.variables().isdisjoint(values):
            return self
        total: Int = self.constant
        for atom, factor in self.terms:
            total = total + atom.replaced(values) * factor
        return total

    def _with_nested(self, values: Mapping[Atom, Int]) -> Mapping[Atom, Int]:
        """Add to the values of variables those of the atoms that limit the depth of the recursion."""
        found = dict(values)
        for atom in sorted(dict.fromkeys(filter(is_landing, self.atoms())), key=lambda atom: atom.nesting):
            found[atom] = atom.replaced(found)
        return found


class Atom:
    """A factor of the normal form. `kind`: var, value, div, mod, mul. `parts`: a name, or the expressions inside.
    `nesting`: how many levels of atoms are inside it.

    There is only one atom for each meaning (`_atom` creates them), so atoms are compared by identity.
    """

    __slots__ = ("__weakref__", "hi", "kind", "lo", "nesting", "parts", "text")
    nesting: int

    def __init__(self, kind: str, parts: Parts, lo: int, hi: int) -> None:
        self.kind, self.parts, self.lo, self.hi = kind, parts, lo, hi
        inside = [atom.nesting for part in parts if isinstance(part, Expr) for atom, _ in part.terms]
        self.nesting = 1 + max(inside) if inside else 0
        self.text = str(parts[0]) if kind in ("var", "value") else f"(({parts[0]}) {_SIGNS[kind]} ({parts[1]}))"

    def __repr__(self) -> str:
        return self.text

    @property
    def sides(self) -> tuple[Int, Int]:
        """Return the two operands of a quotient, a remainder or a product."""
        a, b = self.parts
        return cast("Int", a), cast("Int", b)

    def replaced(self, values: Mapping[Atom, Int]) -> Int:
        """Return it with variables and other atoms replaced."""
        if self in values:
            return values[self]
        if self.kind in ("var", "value"):
            return Expr(0, ((self, 1),))
        a, b = self.sides
        a = a if isinstance(a, int) else a.replaced(values)
        b = b if isinstance(b, int) else b.replaced(values)
        return a // b if self.kind == "div" else a % b if self.kind == "mod" else a * b


_SIGNS = {"div": "//", "mod": "%", "mul": "*"}
_atoms: WeakValueDictionary[tuple[str, Parts, int, int], Atom] = WeakValueDictionary()
# Two threads must not create two atoms of the same meaning.
_making = Lock()


def _atom(kind: str, parts: Parts, lo: int, hi: int) -> Atom:
    key = (kind, parts, lo, hi)
    with _making:
        found = _atoms.get(key)
        if found is None:
            found = _atoms[key] = Atom(kind, parts, lo, hi)
        return found


def variable(name: str, lo: int, hi: int) -> Int:
    """Return a variable with inclusive bounds. If only a single value is possible, return that number."""
    if lo > hi:
        raise ValueError(f"variable {name} has no value: {lo} to {hi}")
    return lo if lo == hi else Expr(0, ((_atom("var", (name,), lo, hi), 1),))


def runtime_value(name: str, lo: int, hi: int, identity: object) -> Expr:
    """Return a number that is known only when the kernel runs (a loaded index). `identity`, which is hashable,
    identifies what computes it.
    """
    return Expr(0, ((_atom("value", (name, identity), lo, hi), 1),))


def axis(name: str, size: Int) -> Int:
    """Return the variable of a loop or of threads, from 0 to the maximum of size - 1. Its name starts with @; names of
    symbolic sizes do not.

    A size of 0 or 1 that is known only at run time also makes a variable (as if it could be 2): a condition must still
    test whether there is an element.
    """
    most = bounds(size)[1]
    return variable(f"@{name}", 0, 1 if most == 1 and not isinstance(size, int) else max(most, 1) - 1)


def is_landing(atom: Atom) -> bool:
    """Return whether an atom limits recursion: functions that recurse into an expression process these atoms first."""
    return atom.nesting > 0 and atom.nesting % MAX_NESTED == 0


def is_axis(atom: Atom) -> bool:
    """Return whether an atom is the variable of a loop or of threads, not a symbolic size."""
    return atom.kind == "var" and str(atom.parts[0]).startswith("@")


def bounds(value: Int) -> tuple[int, int]:
    """Return the minimum and the maximum."""
    return (value, value) if isinstance(value, int) else (value.lo, value.hi)


def substitute(value: Int, values: Mapping[Atom, Int]) -> Int:
    """Return `value` with variables replaced. Keys are the variables' atoms (`atom_of`)."""
    return value if isinstance(value, int) else value.substitute(values)


def atom_of(value: Int) -> Atom:
    """Return the atom of a variable. Raises ValueError for any other expression."""
    if isinstance(value, Expr) and value.constant == 0 and len(value.terms) == 1 and value.terms[0][1] == 1:
        return value.terms[0][0]
    raise ValueError(f"{value} is not a single variable")


def variables(value: Int) -> frozenset[Atom]:
    """Return the variables that a number depends on; none for a constant."""
    return frozenset() if isinstance(value, int) else _variables(value)


def product(values: Iterable[Int]) -> Int:
    """Return the product; 1 for no values."""
    total: Int = 1
    for value in values:
        total = total * value
    return total


def evaluate(value: Int, given: Mapping[str, int]) -> int:
    """Return the number for the given values of variables by name. Raises ValueError with the name of one that is
    missing or out of its bounds.
    """
    if isinstance(value, int):
        return value
    total = value.constant
    for atom, factor in value.terms:
        total += factor * _evaluate_atom(atom, given)
    return total


def _evaluate_atom(atom: Atom, given: Mapping[str, int]) -> int:
    if atom.kind in ("var", "value"):
        name = str(atom.parts[0])
        if name not in given:
            raise ValueError(
                f"{name} ({atom.lo} to {atom.hi}) has no value; there are {', '.join(given) or f'none: give it by its name, {name}=…'}"
            )
        if not atom.lo <= given[name] <= atom.hi:
            raise ValueError(f"{name} is {given[name]}, outside of {atom.lo} to {atom.hi}")
        return given[name]
    left, right = atom.sides
    a, b = evaluate(left, given), evaluate(right, given)
    if atom.kind in ("div", "mod") and not b:
        raise ValueError(f"{atom} divides by zero: {right} is 0")
    return a // b if atom.kind == "div" else a % b if atom.kind == "mod" else a * b


def _expr(value: Int) -> Expr:
    return Expr(value, ()) if isinstance(value, int) else value


@lru_cache(maxsize=4096)
def _expr_of(atom: Atom) -> Expr:
    return Expr(0, ((atom, 1),))


@lru_cache(maxsize=8192)
def _variables(value: Expr) -> frozenset[Atom]:
    return frozenset(atom for atom in value.atoms() if atom.kind in ("var", "value"))


def _made(constant: int, terms: tuple[tuple[Atom, int], ...]) -> Int:
    return Expr(constant, terms) if terms else constant


def total(values: Iterable[Int], factors: Iterable[int]) -> Int:
    """Return the sum of values times factors, without intermediate expressions."""
    constant = 0
    counts: dict[Atom, int] = {}
    for value, by in zip(values, factors, strict=True):
        if isinstance(value, int):
            constant += value * by
        elif by:
            constant += value.constant * by
            for atom, factor in value.terms:
                counts[atom] = counts.get(atom, 0) + factor * by
    return _summed(constant, counts) if counts else constant


def _sum(constant: int, *groups: tuple[tuple[Atom, int], ...]) -> Int:
    factors: dict[Atom, int] = {}
    for terms in groups:
        for atom, factor in terms:
            factors[atom] = factors.get(atom, 0) + factor
    return _summed(constant, factors)


def _summed(constant: int, factors: dict[Atom, int]) -> Int:
    for atom in factors:
        if atom.kind == "mod":
            while _rejoin(factors):
                pass
            break
    found = [(atom, factor) for atom, factor in factors.items() if factor]
    if len(found) > 1:
        found.sort(key=_order)
    return _made(constant, tuple(found))


def _order(term: tuple[Atom, int]) -> str:
    return term[0].text


def _rejoin(factors: dict[Atom, int]) -> bool:
    """Replace `k*(x % c) + k*c*(x // c)` by `k*x`, in place, for constant c. Return whether anything was replaced."""
    done = False
    for atom in [one for one in factors if one.kind == "mod" and isinstance(one.parts[1], int)]:
        whole, divisor = atom.parts
        factor = factors.get(atom, 0)
        if not factor or not isinstance(whole, Expr) or not isinstance(divisor, int):
            continue
        quotient = _divide(whole, divisor)
        if not isinstance(quotient, Expr) or quotient.constant or len(quotient.terms) != 1 or quotient.terms[0][1] != 1:
            continue
        pair = quotient.terms[0][0]
        if factors.get(pair, 0) == factor * divisor and not whole.constant:
            del factors[atom], factors[pair]
            for inner, count in whole.terms:
                factors[inner] = factors.get(inner, 0) + factor * count
            done = True
    return done


@lru_cache(maxsize=16384)
def _product(a: Expr, b: Expr) -> Int:
    if not a.terms or not b.terms:
        return (b * a.constant) if not a.terms else (a * b.constant)
    groups: list[tuple[tuple[Atom, int], ...]] = []
    for x, m in a.terms:
        groups += [((_multiplied(x, y), m * n),) for y, n in b.terms]
    groups += [tuple((x, m * b.constant) for x, m in a.terms), tuple((y, n * a.constant) for y, n in b.terms)]
    return _sum(a.constant * b.constant, *groups)


def _multiplied(x: Atom, y: Atom) -> Atom:
    corners = [p * q for p in (x.lo, x.hi) for q in (y.lo, y.hi)]
    first, second = sorted((_expr_of(x), _expr_of(y)), key=str)
    return _atom("mul", (first, second), min(corners), max(corners))


@lru_cache(maxsize=16384)
def _divide(a: Expr, b: Int) -> Int:
    if not isinstance(b, int):
        if a == b or (a.lo >= 0 and b.lo > a.hi):
            return int(a == b)
        if b.lo < 0:
            raise ValueError(f"a division of {a} by {b}, which may be negative")
        # A size of 0 divides only where an axis of that size has no element; nothing uses the value then.
        corners = [p // q for p in (a.lo, a.hi) for q in (max(b.lo, 1), max(b.hi, 1))]
        if min(corners) == max(corners):
            return corners[0]
        return _expr_of(_atom("div", (a, b), min(corners), max(corners)))
    if b <= 0:
        raise ValueError(f"a division of {a} by {b}")
    if b == 1 or not a.terms:
        return a if b == 1 else a.constant // b
    whole = tuple((atom, factor // b) for atom, factor in a.terms if factor % b == 0)
    rest = _made(a.constant % b, tuple(term for term in a.terms if term[1] % b))
    return _sum(a.constant // b, whole) + _divide_rest(rest, b)


def _divide_rest(a: Int, b: int) -> Int:
    if isinstance(a, int):
        return a // b
    if a.lo // b == a.hi // b:
        return a.lo // b
    for step in _steps(a, b):
        high, low = _parts_of(a, step)
        if bounds(low)[0] >= 0 and bounds(low)[1] < step:
            return high // (b // step)
    if len(a.terms) == 1 and a.terms[0][1] == 1 and a.terms[0][0].kind == "div" and a.constant == 0:
        inner, by = a.terms[0][0].parts
        if isinstance(inner, Expr) and isinstance(by, int):
            return inner // (by * b)
    return _expr_of(_atom("div", (a, b), a.lo // b, a.hi // b))


@lru_cache(maxsize=16384)
def _remainder(a: Expr, b: Int) -> Int:
    if not isinstance(b, int):
        if a == b:
            return 0
        if a.lo >= 0 and b.lo > a.hi:
            return a
        if b.lo < 0:
            raise ValueError(f"a remainder of {a} by {b}, which may be negative")
        return _expr_of(_atom("mod", (a, b), 0, max(b.hi, 1) - 1))
    if b <= 0:
        raise ValueError(f"a remainder of {a} by {b}")
    rest = _made(a.constant % b, tuple((atom, factor % b if factor % b <= b // 2 or factor > 0 else factor % b - b)
                                       for atom, factor in a.terms if factor % b))  # fmt: skip
    if isinstance(rest, int):
        return rest % b
    if rest.lo // b == rest.hi // b:
        return rest - rest.lo // b * b
    for step in _steps(rest, b):
        high, low = _parts_of(rest, step)
        if bounds(low)[0] >= 0 and bounds(low)[1] < step:
            return high % (b // step) * step + low
    if len(rest.terms) == 1 and rest.terms[0][1] == 1 and rest.terms[0][0].kind == "mod" and rest.constant == 0:
        inner, by = rest.terms[0][0].parts
        if isinstance(inner, Expr) and isinstance(by, int) and by % b == 0:
            return inner % b
    return _expr_of(_atom("mod", (rest, b), 0, min(b - 1, rest.hi) if rest.lo >= 0 else b - 1))


def _steps(a: Expr, b: int) -> list[int]:
    """Return common factors of `b` and of some of the terms, greatest first. A sum may split into high and low digits
    at these.
    """
    found = {gcd(factor, b) for _, factor in a.terms} - {1}
    return sorted(found, reverse=True)


def _parts_of(a: Expr, step: int) -> tuple[Int, Int]:
    """Return (high, low) with a = high * step + low. `low` holds the terms that are not multiples of `step`."""
    high = tuple((atom, factor // step) for atom, factor in a.terms if factor % step == 0)
    low = tuple(term for term in a.terms if term[1] % step)
    return _made(a.constant // step, high), _made(a.constant % step, low)
