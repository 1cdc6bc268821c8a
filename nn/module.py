"""`Module`: a layer as an object. Its parameters, buffers and inner modules are found among its attributes, in the
order in which they were set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.core import DTypeLike, as_dtype
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn.parameter import Parameter, kept, replace

T = TypeVar("T")
Hook = Callable[..., Any]


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` did not find, and what it did not expect."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _no_forward(self: Module, *inputs: Any) -> NoReturn:
    raise NotImplementedError(f"{type(self).__name__} has no forward()")


class Module:
    """A layer or a network. A subclass sets its parts as attributes and defines `forward`."""

    training: bool = True
    forward: Callable[..., Any] = _no_forward

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return what `forward` computes, hooks before and after."""
        for hook in self._hooks("before"):
            changed = hook(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        made = self.forward(*inputs, **options)
        for hook in self._hooks("after"):
            changed = hook(self, inputs, made)
            made = made if changed is None else changed
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        before = vars(self).get(name)
        if isinstance(before, Parameter) and isinstance(value, Tensor) and not isinstance(value, Parameter):
            raise TypeError(
                f"{type(self).__name__}.{name} is a parameter: give it an nn.Parameter or None, or write {name}.assign(...)"
            )
        super().__setattr__(name, value)

    # parts by name

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Set an attribute that is a parameter, or None."""
        setattr(self, name, param)

    def register_module(self, name: str, module: Module | None) -> None:
        """Set an attribute that is a module, or None."""
        setattr(self, name, module)

    add_module = register_module

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Set an attribute that is kept beside the parameters, such as a running mean; in `state_dict` if it is
        `persistent`.
        """
        if name in vars(self) and name not in self._buffer_names:
            raise KeyError(f"{type(self).__name__} has an attribute {name!r} already")
        vars(self).setdefault("_buffers", {})[name] = persistent
        setattr(self, name, tensor)

    @property
    def _buffer_names(self) -> dict[str, bool]:
        found: dict[str, bool] = vars(self).get("_buffers", {})
        return found

    def _own(self, kind: type[T]) -> Iterator[tuple[str, T]]:
        """Yield the attributes of a kind with their names."""
        for name, value in list(vars(self).items()):
            if isinstance(value, kind):
                yield name, value

    def _own_buffers(self) -> Iterator[tuple[str, Tensor]]:
        for name in self._buffer_names:
            value = vars(self).get(name)
            if value is not None:
                yield name, value

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the modules directly inside, each once, with their names."""
        seen: set[int] = set()
        for name, one in self._own(Module):
            if id(one) not in seen:
                seen.add(id(one))
                yield name, one

    def children(self) -> Iterator[Module]:
        """Yield the modules directly inside."""
        return (one for _, one in self.named_children())

    def named_modules(self, memo: set[int] | None = None, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield this module and all inside, each once, with their names."""
        seen = set() if memo is None else memo
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, one in self._own(Module):
            yield from one.named_modules(seen, _joined(prefix, name))

    def modules(self) -> Iterator[Module]:
        """Yield this module and all inside, each once."""
        return (one for _, one in self.named_modules())

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield the parameters of this module and of all inside, each once, with their names."""
        seen: set[int] = set()
        for path, module in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name, one in module._own(Parameter):
                if id(one) not in seen:
                    seen.add(id(one))
                    yield _joined(path, name), one

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters of this module and of all inside, each once."""
        return (one for _, one in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers of this module and of all inside, each once, with their names."""
        seen: set[int] = set()
        for path, module in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name, one in module._own_buffers():
                if id(one) not in seen:
                    seen.add(id(one))
                    yield _joined(path, name), one

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers of this module and of all inside, each once."""
        return (one for _, one in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """Return the module inside of that dotted name."""
        found: Module = self
        for name in target.split(".") if target else ():
            inner = dict(found._own(Module)).get(name)
            if inner is None:
                raise AttributeError(f"{type(self).__name__} has no module {target!r}")
            found = inner
        return found

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter of that dotted name."""
        path, _, name = target.rpartition(".")
        found = dict(self.get_submodule(path)._own(Parameter)).get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no parameter {target!r}")
        return found

    # state

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Return the parameters and persistent buffers by name: the tensors themselves. `clone` those to keep while
        training goes on.
        """
        found: dict[str, Tensor] = {}
        for name, parameter in self._own(Parameter):
            found[prefix + name] = parameter
        for name, buffer in self._own_buffers():
            if self._buffer_names[name]:
                found[prefix + name] = buffer
        for name, one in self._own(Module):
            found.update(one.state_dict(f"{prefix}{name}."))
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Write values (tensors or arrays) by name into the parameters and buffers; return what was missing and what
        was not expected.

        Another shape is an error, and with `strict` a name too many or too few. Nothing is written then.
        """
        mine = self.state_dict()
        keys = IncompatibleKeys(
            [name for name in mine if name not in state_dict], [name for name in state_dict if name not in mine]
        )
        values = {name: _value(state_dict[name]) for name in mine if name in state_dict}
        faults = [
            f"{name} is {list(value.shape)} and should be {list(mine[name].shape)}"
            for name, value in values.items()
            if value.shape != mine[name].shape
        ]
        if strict and keys.missing_keys:
            faults.append(f"missing: {', '.join(keys.missing_keys)}")
        if strict and keys.unexpected_keys:
            faults.append(f"unexpected: {', '.join(keys.unexpected_keys)}")
        if faults:
            raise ValueError(f"the state does not fit {type(self).__name__}: {'; '.join(faults)}")
        for name, value in values.items():
            mine[name].assign(value)
        return keys

    def train(self, mode: bool = True) -> Self:
        """Switch this module and all inside to training, or with False to use."""
        for one in self.modules():
            one.training = mode
        return self

    def eval(self) -> Self:
        """Switch this module and all inside to use: no dropout, running statistics."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zeros."""
        for one in self.parameters():
            slope: Any = one.grad
            one.grad = None if set_to_none or slope is None else slope.zeros_like()

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Let all parameters want gradients, or with False freeze them."""
        for one in self.parameters():
            one.requires_grad_(requires_grad)
        return self

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call a function with every module inside and then with this one."""
        for one in self.children():
            one.apply(fn)
        fn(self)
        return self

    # element types

    def to(self, *wanted: Any, dtype: DTypeLike | None = None, device: Any = None) -> Self:
        """Convert all parameters and buffers that are floats to a type, or move all to an open card: `to("float16")`,
        `to(card)`, `to(card, "float16")`.

        No device is needed where one is chosen by `ringup.device`: tensors are computed there.
        """
        named = [one for one in (*wanted, device, dtype) if one is not None]
        kinds = [as_dtype(one) for one in named if dtypes.find(one) is not None]
        places = [one for one in named if dtypes.find(one) is None]
        for kind in kinds:
            if not kind.is_float:
                raise TypeError(f"a module in {kind}: a float type")
        for one in [*self.parameters(), *self.buffers()]:
            now = one.detach()
            made = now.to(*places, *(kind for kind in kinds if one.dtype.is_float and one.dtype is not kind))
            if made is not now:
                replace(one, made)
        return self

    def float(self) -> Self:
        """Convert to f32."""
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Convert to f64."""
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Convert to f16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Convert to bf16."""
        return self.to(dtypes.bfloat16)

    # hooks, copies, text

    def _hooks(self, when: str) -> list[Hook]:
        found: list[Hook] = vars(self).get(f"_hooks_{when}", [])
        return list(found)

    def register_forward_pre_hook(self, hook: Hook) -> Handle:
        """Call hook(module, inputs) before each forward; what it returns, if anything, becomes the inputs."""
        return Handle(vars(self).setdefault("_hooks_before", []), hook)

    def register_forward_hook(self, hook: Hook) -> Handle:
        """Call hook(module, inputs, result) after each forward; what it returns, if anything, becomes the result."""
        return Handle(vars(self).setdefault("_hooks_after", []), hook)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        from copy import deepcopy

        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for _, buffer in self._own_buffers():
            memo.setdefault(id(buffer), kept(buffer))
        for name, value in vars(self).items():
            vars(made)[name] = deepcopy(value, memo)
        return made

    def extra_repr(self) -> str:
        """Return what `repr` shows in the brackets of this module."""
        return ""

    def __repr__(self) -> str:
        inner = [f"({name}): {_indented(repr(one))}" for name, one in self._own(Module)]
        extra = self.extra_repr()
        if not inner:
            return f"{type(self).__name__}({extra})"
        lines = "".join(f"  {line}\n" for line in [*([extra] if extra else []), *inner])
        return f"{type(self).__name__}(\n{lines})"


class Handle:
    """A hook that was registered, to be removed."""

    def __init__(self, hooks: list[Hook], hook: Hook) -> None:
        self._hooks, self._hook = hooks, hook
        hooks.append(hook)

    def remove(self) -> None:
        """Call the hook no longer."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _value(value: Any) -> Tensor:
    return value.detach() if isinstance(value, Tensor) else Tensor(value)
