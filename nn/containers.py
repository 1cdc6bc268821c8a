"""Modules and parameters in lists and dicts, and modules in sequence."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, overload

from ringup.compiler.tensor.tensor import Tensor
from ringup.nn.module import Module
from ringup.nn.parameter import Parameter


class Sequential(Module):
    """Modules one after the other: each takes what the one before gives."""

    def __init__(self, *modules: Any) -> None:
        """Take modules, or one dict of modules by name."""
        named = modules[0] if len(modules) == 1 and isinstance(modules[0], Mapping) else None
        for name, one in named.items() if named is not None else enumerate(modules):
            setattr(self, str(name), _module(one))

    def forward(self, x: Any) -> Any:
        """Return what the last module gives."""
        for one in self:
            x = one(x)
        return x

    def __iter__(self) -> Iterator[Module]:
        return (one for _, one in self._own(Module))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, place: int) -> Module: ...
    @overload
    def __getitem__(self, place: slice) -> Sequential: ...
    def __getitem__(self, place: int | slice) -> Module:
        found = list(self._own(Module))
        return Sequential(dict(found[place])) if isinstance(place, slice) else found[_place(place, len(found))][1]

    def __setitem__(self, place: int, module: Module) -> None:
        name, _ = list(self._own(Module))[_place(place, len(self))]
        setattr(self, name, _module(module))

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        setattr(self, str(len(self)), _module(module))
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for one in modules:
            self.append(one)
        return self


class ModuleList(Module):
    """A list of modules. It computes nothing."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        """Take modules."""
        self.extend(modules)

    def __iter__(self) -> Iterator[Module]:
        return (one for _, one in self._own(Module))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, place: int) -> Module: ...
    @overload
    def __getitem__(self, place: slice) -> ModuleList: ...
    def __getitem__(self, place: int | slice) -> Module:
        found = list(self)
        return ModuleList(found[place]) if isinstance(place, slice) else found[_place(place, len(found))]

    def __setitem__(self, place: int, module: Module) -> None:
        setattr(self, str(_place(place, len(self))), _module(module))

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        setattr(self, str(len(self)), _module(module))
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for one in modules:
            self.append(one)
        return self

    def insert(self, place: int, module: Module) -> None:
        """Add a module before a place."""
        found = list(self)
        found.insert(place, _module(module))
        for i, one in enumerate(found):
            setattr(self, str(i), one)


class ModuleDict(Module):
    """Modules by name. It computes nothing."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        """Take modules by name."""
        self.update(modules)

    def __getitem__(self, name: str) -> Module:
        found = vars(self).get(name)
        if not isinstance(found, Module):
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, module: Module) -> None:
        if hasattr(type(self), name):
            raise KeyError(f"{name!r} is the name of a method of ModuleDict")
        setattr(self, name, _module(module))

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def __contains__(self, name: str) -> bool:
        return isinstance(vars(self).get(name), Module)

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __len__(self) -> int:
        return sum(1 for _ in self.keys())

    def keys(self) -> Iterator[str]:
        """Yield the names."""
        return (name for name, _ in self._own(Module))

    def values(self) -> Iterator[Module]:
        """Yield the modules."""
        return (one for _, one in self._own(Module))

    def items(self) -> Iterator[tuple[str, Module]]:
        """Yield names and modules."""
        return self._own(Module)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules by name."""
        for name, one in modules.items() if isinstance(modules, Mapping) else modules:
            self[name] = one


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values: Iterable[Tensor] = ()) -> None:
        """Take parameters; other tensors become parameters."""
        for one in values:
            self.append(one)

    def append(self, value: Tensor) -> Self:
        """Add a parameter at the end."""
        setattr(self, str(len(self)), value if isinstance(value, Parameter) else Parameter(value))
        return self

    def __iter__(self) -> Iterator[Parameter]:
        return (one for _, one in self._own(Parameter))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, place: int) -> Parameter:
        return list(self)[place]


class ParameterDict(Module):
    """Parameters by name."""

    def __init__(self, parameters: Mapping[str, Tensor] | None = None) -> None:
        """Take parameters by name; other tensors become parameters."""
        for name, one in (parameters or {}).items():
            self[name] = one

    def __getitem__(self, name: str) -> Parameter:
        found = vars(self).get(name)
        if not isinstance(found, Parameter):
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, value: Tensor) -> None:
        if hasattr(type(self), name):
            raise KeyError(f"{name!r} is the name of a method of ParameterDict")
        setattr(self, name, value if isinstance(value, Parameter) else Parameter(value))

    def __contains__(self, name: str) -> bool:
        return isinstance(vars(self).get(name), Parameter)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._own(Parameter))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> Iterator[tuple[str, Parameter]]:
        """Yield names and parameters."""
        return self._own(Parameter)


def _module(value: Any) -> Module:
    if not isinstance(value, Module):
        raise TypeError(f"{value!r} is no module: functions are called in a forward()")
    return value


def _place(place: int, size: int) -> int:
    at = operator.index(place)
    if not -size <= at < size:
        raise IndexError(f"place {place} among {size} modules")
    return at % size
