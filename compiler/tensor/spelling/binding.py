"""Methods that understand other words for their parameters, and whose errors name the method that was called.

A call with the parameters' own names goes straight through. Only where Python refuses the arguments, or a name is
unknown, the tables of `words` are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

from ringup.compiler.tensor.spelling import words

Made = TypeVar("Made")

# of CodeType.co_flags: the function has *args, **kwargs
VAR_ARGUMENTS, VAR_KEYWORDS = 4, 8
# what a method may be called on besides a tensor: `Tensor.maximum([1, 2], x)`
NUMBERS = (bool, int, float, complex, list, tuple)


def spelled(cls: type[Made]) -> type[Made]:
    """Make every public method of a class understand the other words for its parameters."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(value, FunctionType):
            setattr(cls, name, Binding(value, name, cls.__name__, cls).wrapped())
        elif isinstance(value, classmethod) and isinstance(value.__func__, FunctionType):
            setattr(cls, name, classmethod(Binding(value.__func__, name, cls.__name__, None).wrapped()))
    return cls


class Binding:
    """How the arguments of one function are taken. `of` is the class of a method's tensors."""

    __slots__ = ("_name", "_of", "_owner", "_positional", "_words", "function")

    def __init__(self, function: FunctionType, name: str, owner: str, of: type[Any] | None) -> None:
        self.function, self._name, self._owner, self._of = function, name, owner, of
        code: CodeType = function.__code__
        self._positional = code.co_varnames[: code.co_argcount]
        self._words: dict[str, str] | None = None

    @property
    def title(self) -> str:
        """Return what users call it."""
        if self._name == "__init__":
            return self._owner
        return f"{self._owner}.{self._name}" if self._owner else self._name

    def wrapped(self) -> Any:
        """Return the function that users call."""
        function, slowly = self.function, self._slowly

        def method(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named) if named else function(*given)
            except (TypeError, AttributeError) as error:
                # an error that was raised further down is the function's own
                trace = error.__traceback__
                if trace is not None and trace.tb_next is not None and not self._is_of_no_tensor(given):
                    raise
            return slowly(given, named)

        method.__name__, method.__qualname__ = self._name, self.title
        method.__doc__ = function.__doc__
        # what `inspect` shows
        cast("Any", method).__wrapped__ = function
        return method

    # what follows runs for calls in other words only

    def _is_of_no_tensor(self, given: tuple[Any, ...]) -> bool:
        """Return whether a method was called as a function of the class, on something else than a tensor."""
        wrong = self._of is not None and bool(given) and not isinstance(given[0], self._of)
        if self._of is not None and wrong and self._name in words.OF_LISTS and isinstance(given[0], (list, tuple)):
            return not any(isinstance(one, self._of) for one in given[0])
        return wrong and self._name not in words.JOINERS

    def _own(self) -> tuple[str, ...]:
        """Return the names of the parameters, that of `*sizes` and its like last."""
        code = self.function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        return code.co_varnames[: count + bool(code.co_flags & VAR_ARGUMENTS)]

    def _slowly(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call the function with its own parameters' names; a TypeError in the user's words where that fails."""
        if self._of is not None and self._is_of_no_tensor(given):
            first = given[0]
            if not isinstance(first, NUMBERS) and not hasattr(first, "__array_interface__"):
                raise TypeError(f"{self.title} is a method of tensors, and {type(first).__name__} is none")
            given = (self._of(first), *given[1:])
        given, named = self._placed(given, dict(named))
        if self._name in words.IN_TYPE and named.get("dtype") is not None:
            given = (given[0].cast(named.pop("dtype")), *given[1:])
        extras = self._extras(named)
        named = self._renamed(named)
        given = self._with_rest(given, named)
        self._check(given, named)
        made = self.function(*given, **named)
        if extras.get("device") is not None:
            made = made.to(extras["device"])
        return made.requires_grad_(True) if extras.get("requires_grad") else made

    def _extras(self, named: dict[str, Any]) -> dict[str, Any]:
        """Take out the words that every method which makes tensors understands, and those without an effect."""
        if self._name in words.IN_TYPE:
            named.pop("dtype", None)
        if self._name in words.MAKERS:
            own = self._own()
            return {word: named.pop(word) for word in ("requires_grad", "device") if word in named and word not in own}
        for word, fine in words.WITHOUT_EFFECT.get(self._name, {}).items():
            if word in named and named.pop(word) not in fine:
                raise TypeError(f"{self.title} takes {word} as {' or '.join(map(repr, fine))} only")
        return {}

    def _renamed(self, named: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by the parameters' own names."""
        own = self._own()
        if self._words is None:
            self._words = words.words_of(self._name, own)
        made: dict[str, Any] = {}
        for word, value in named.items():
            parameter = self._words.get(word, word)
            if parameter in made:
                raise TypeError(
                    f"{self.title}: {word} and {_given_as(parameter, named, self._words)} mean the same; give one"
                )
            made[parameter] = int(value) if word == "unbiased" else value
        if not self.function.__code__.co_flags & VAR_KEYWORDS:
            self._refuse_unknown([word for word in made if word not in own or word in own[:1]], own)
        return made

    def _refuse_unknown(self, unknown: Iterable[str], own: tuple[str, ...]) -> None:
        """Raise a TypeError about words that mean nothing here; it says what is near."""
        for word in unknown:
            # difflib is loaded for an error only
            from difflib import get_close_matches

            known = self._words or {}
            others: dict[str, list[str]] = {}
            for other, parameter in known.items():
                others.setdefault(parameter, []).append(other)
            near = get_close_matches(word, [*own[1:], *known], 1)
            there = ", ".join(
                f"{one} ({', '.join(others[one])})" if one in others else one for one in own[self._skipped :]
            )
            raise TypeError(
                f"{self.title} takes no {word!r}"
                + (f" (did you mean {near[0]!r}?); " if near else "; ")
                + (f"there are {there}" if there else "it takes nothing by name")
            )

    @property
    def _skipped(self) -> int:
        return int(bool(self._owner))

    def _placed(self, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments with names for those that PyTorch takes by position."""
        code, order = self.function.__code__, words.POSITIONS.get(self._name)
        if order is None or (len(given) <= len(self._positional) and not code.co_flags & VAR_KEYWORDS):
            return given, named
        if len(given) - 1 > len(order):
            self._refuse_many(given, order)
        for name, value in zip(order, given[1:], strict=False):
            if name in named:
                raise TypeError(f"{self.title}: {name} is given by its place and by its name")
            named[name] = value
        return given[:1], named

    def _with_rest(self, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return arguments by place with those of `*sizes` or its like, if they are given by name."""
        code = self.function.__code__
        if not code.co_flags & VAR_ARGUMENTS:
            return given
        name = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        if name not in named:
            return given
        value = named.pop(name)
        # a list is one argument behind others, normal(0, 1, size=(2, 3)), and if it is empty: without any, `flip` would
        # take all axes
        several = isinstance(value, (tuple, list)) and value and len(given) == 1
        return (*given, *(value if several else (value,)))

    def _refuse_many(self, given: tuple[Any, ...], order: Sequence[str]) -> None:
        """Raise a TypeError about more arguments by position than there are."""
        most = f"{len(order)} by position ({', '.join(order)})" if order else "nothing by position"
        raise TypeError(f"{self.title} takes {most}, not {len(given) - self._skipped}")

    def _check(self, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Raise a TypeError where too much is given, something twice, or something is missing."""
        code, function = self.function.__code__, self.function
        positional = self._positional
        if len(given) > len(positional) and not code.co_flags & VAR_ARGUMENTS:
            self._refuse_many(given, positional[self._skipped :])
        for name in positional[: len(given)]:
            if name in named:
                raise TypeError(f"{self.title}: {name} is given by its place and by its name")
        optional = len(function.__defaults__ or ())
        needed = positional[len(given) : len(positional) - optional]
        own_names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        needed += tuple(name for name in own_names if name not in (function.__kwdefaults__ or {}))
        missing = [name for name in needed if name not in named]
        if missing:
            raise TypeError(f"{self.title} needs {' and '.join(missing)}")


def _given_as(parameter: str, named: dict[str, Any], known: dict[str, str]) -> str:
    """Return the word that a parameter was given as."""
    return next(word for word in named if known.get(word, word) == parameter)
