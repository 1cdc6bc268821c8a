"""The arithmetic of reductions in a kernel: one step, and the combination across the threads of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.kernel.common import element_forms
from ringup.compiler.kernel.common.arith import cast, operate
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import I1, I8, I32, Type, Value
from ringup.compiler.schedule.reduction_facts import identity, kept


@dataclass(frozen=True)
class Folder:
    """The arithmetic of one reduction in a kernel."""

    build: Builder
    node: Node

    @property
    def op(self) -> Op:
        """Return the operation that combines elements."""
        op: Op = self.node.arg[0]
        return op

    @property
    def dtype(self) -> DType:
        """Return the accumulator's dtype."""
        return kept(self.op, self.node.dtype)

    def first(self) -> Value:
        """Return the identity element."""
        return element_forms.constant(self.build, identity(self.op, self.dtype), self.dtype)

    def step(self, total: Value | None, value: Value) -> Value:
        """Combine the accumulator with one more value, both in the accumulator's dtype. Return the value itself if
        there is no accumulator yet.
        """
        if total is None:
            return value
        # One rounding instead of two.
        if self.op is Op.ADD and value.op == "fmul" and value.type == total.type:
            return self.build.op("fma", total.type, *value.args, total)
        return operate(self.build, self.op, self.dtype, self.dtype, (total, value))

    def element(self, value: Value, mask: Value | None) -> Value:
        """Convert an element to the accumulator's dtype; return the identity element where the mask is false."""
        value = cast(self.build, value, self.node.dtype, self.dtype)
        if mask is None:
            return value
        return self.build.op("select", value.type, mask, value, self.first())

    def joined(self, values: Sequence[Value | None]) -> Value:
        """Combine several accumulators pairwise. None stands for one without elements."""
        rest = [value for value in values if value is not None] or [self.first()]
        while len(rest) > 1:
            rest = [self.step(a, b) for a, b in zip(rest[::2], rest[1::2], strict=False)] + rest[len(rest) // 2 * 2 :]
        return rest[0]

    def finished(self, total: Value) -> Value:
        """Return the result in the node's dtype."""
        return cast(self.build, total, self.dtype, self.node.dtype)

    def across_lanes(self, total: Value, count: int) -> Value:
        """Combine the values of `count` adjacent lanes (a power of two up to a wave). Each of them gets the result."""
        distance = 1
        while distance < count:
            total = self.step(total, self._shuffled(total, distance))
            distance *= 2
        return total

    def _shuffled(self, value: Value, distance: int) -> Value:
        if value.type is I1:
            word = self.build.op("shuffle_xor", I32, self.build.op("zext", I32, value), imm=distance)
            return self.build.compare("ne", word, self.build.const(0))
        return self.build.op("shuffle_xor", value.type, value, imm=distance)

    def through_lds(
        self,
        total: Value,
        place: Value,
        first: Value,
        stride_bytes: int,
        count: int,
        *,
        base: int,
        writes: Value | None,
    ) -> Value:
        """Combine the values of `count` threads. Each thread for which `writes` holds stores its own at byte `place`;
        all threads read from `first` on.

        `base` is the constant part of both places. Nothing else may use this LDS before the kernel's next barrier.
        """
        build, lying = self.build, self.to_lds(total)
        if writes is None:
            build.lds_store(place, lying, constant=base)
        else:
            with build.when(writes):
                build.lds_store(place, lying, constant=base)
        build.barrier()
        size = max(1, lying.type.bits // 8)
        # Adjacent values are read together: `first` is aligned for that.
        width = min(count, 16 // size) if stride_bytes == size else 1
        while count % width:
            width //= 2
        found = []
        for i in range(0, count, width):
            vector = build.lds_load(lying.type.of(width), first, constant=base + i * stride_bytes)
            for k in range(width):
                found.append(self.from_lds(build.extract(vector, k), total.type))
        return self.joined(found)

    def to_lds(self, total: Value) -> Value:
        """Return an accumulator in the form in which LDS holds it."""
        return self.build.op("zext", I8, total) if total.type is I1 else total

    def from_lds(self, lying: Value, type_: Type) -> Value:
        """Return an accumulator of a type from the form in which LDS holds it."""
        if type_ is not I1:
            return lying
        return self.build.compare("ne", self.build.op("zext", I32, lying), self.build.const(0))
