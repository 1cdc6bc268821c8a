"""Programs on a card, whoever made it: kernels by name, each at its address, until the code's memory is freed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

# prepared launches that a kernel caches
PREPARED_LIMIT = 4096


class AnyKernel:
    """A kernel at its address. `prepared` is a cache of the stream builder: what a launch stores, by the launch.

    A vendor's class adds `packer`, which stores its arguments, and `arg_offset`.
    """

    __slots__ = ("entry_va", "kernel", "packer", "prepared", "program")

    def __init__(self, program: Any, kernel: Any, base_va: int, packer: Any) -> None:
        self.program, self.kernel, self.packer = program, kernel, packer
        self.entry_va: int = base_va + kernel.entry_offset
        self.prepared: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """The kernel's name."""
        found: str = self.kernel.name
        return found

    def __repr__(self) -> str:
        return f"<kernel {self.name} {self.program.lost or f'at {self.entry_va:#x}'}>"

    def check_owner(self, owner: object) -> None:
        """Raise a `ValueError` if the kernel lies on another card than the one of `owner`."""
        if not self.program.lost and self.program.owner not in (None, owner):
            raise ValueError(f"{self.name} was loaded on another card: load it on {getattr(owner, 'name', owner)} too")

    def keep_prepared(self, key: Any, prepared: Any) -> None:
        """Cache what a launch needs; the cache is emptied when it is full."""
        if len(self.prepared) >= PREPARED_LIMIT:
            self.prepared.clear()
        self.prepared[key] = prepared

    def lose(self) -> None:
        """Forget the address. The program calls it when the code is gone: no launch is possible any more."""
        self.prepared.clear()
        del self.entry_va

    # Python calls it only for an attribute that is missing
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name == "entry_va":
                raise ValueError(f"{self.name} was {self.program.lost}: load the program again")
            raise AttributeError(f"a LoadedKernel has no attribute {name}")


K = TypeVar("K", bound=AnyKernel)


class AnyProgram(Mapping[str, K], Generic[K]):
    """Code in a card's memory: a mapping from names to kernels. Free it when no submitted work uses it any more.

    A vendor's class adds `where`, which names the code at an address.
    """

    def __init__(
        self, code: Any, base_va: int, kernels: Mapping[str, K], free: Callable[[], None], owner: object = None
    ) -> None:
        """`code.what` names the code in errors. `owner`: the owner of the card that holds it; streams of other cards
        refuse the program. None: every card may run it.
        """
        self._what: str = code.what
        self.base_va, self._kernels, self._free, self.owner = base_va, kernels, free, owner
        # how the program was lost; empty while it is there
        self.lost = ""

    def __getitem__(self, name: str) -> K:
        try:
            return self._kernels[name]
        except KeyError:
            raise KeyError(self._missing(name)) from None

    def _missing(self, name: str) -> str:
        """Say why there is no kernel of that name."""
        return f"{self._what} has no kernel {name!r}; it has {', '.join(self._kernels)}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def only(self) -> K:
        """Return the kernel of a program with one kernel. If there are more, a `ValueError` lists them."""
        if len(self._kernels) != 1:
            raise ValueError(
                f"{self._what} has {len(self)} kernels ({', '.join(self._kernels)}): name one, program[NAME]"
            )
        return next(iter(self._kernels.values()))

    def lose(self, how: str) -> None:
        """Mark the program as lost with the card's memory. Every later launch raises an error with `how`."""
        self.lost, self._free = how, lambda: None
        for kernel in self._kernels.values():
            kernel.lose()

    def free(self) -> None:
        """Free the memory. May be called twice."""
        if not self.lost:
            self._free()
            self.lose("freed")


def kernel_among(program: Any, kernel_class: type[K], program_class: type[AnyProgram[K]]) -> K:
    """Return the kernel itself, or the one kernel of a program. Raises what `only` raises, and a `TypeError` for
    anything else.
    """
    if isinstance(program, kernel_class):
        return program
    if not isinstance(program, program_class):
        raise TypeError(f"a loaded program or one of its kernels is dispatched, not {type(program).__name__}")
    return program.only()
