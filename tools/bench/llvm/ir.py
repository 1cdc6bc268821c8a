"""Machine IR as LLVM IR for the same processor: the same program for another back end, to compare with ours.

Values become values, a loop becomes a block with phis, a condition becomes a branch around a block. A masked access to
a buffer of known size uses a descriptor (`llvm.amdgcn.raw.ptr.buffer.*`), the best form for it; other masked accesses
are branched around. Loop unrolling is off, so that both have the same loops. Source: LLVM LangRef; AMDGPUUsage,
"Address Spaces", "LLVM IR Attributes", "Memory Scopes".
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.machine.ir import MASKED, Function, If, Loop, Region, Type, Value
from ringup.errors import CompileError
from ringup.tools.bench.llvm.operations import LINES, RULES, constant, operands, text_of

TRIPLE = "amdgcn-amd-amdhsa"
BEYOND = 0x8000_0000  # number of records of a descriptor, and an offset out of its range
# last word of a raw memory descriptor. Source: RDNA3 ISA reference, "Buffer Resource Descriptor": OOB_SELECT, FORMAT
WORD3 = 3 << 28 | 22 << 12
# of gfx9: word 3, and the offset as an inline constant. Source: CDNA3 ISA reference, "Buffer Resource Descriptor"
GFX9_WORD3, GFX9_BEYOND = 4 << 15, 0xC000_0000
ATOMICS = {
    "add": "add", "sub": "sub", "and": "and", "or": "or", "xor": "xor", "swap": "xchg", "min_s": "min", "max_s": "max", "min_u": "umin",
    "max_u": "umax", "fadd": "fadd", "fmin": "fmin", "fmax": "fmax",
}  # fmt: skip
# the type that a buffer access of so many bytes moves
CARRIERS = {
    1: "i8",
    2: "i16",
    4: "i32",
    8: "<2 x i32>",
    12: "<3 x i32>",
    16: "<4 x i32>",
}
BARRIER = (
    'fence syncscope("workgroup") release',
    "call void @llvm.amdgcn.s.barrier()",
    'fence syncscope("workgroup") acquire',
)
UNUSED = (
    "completion-action",
    "default-queue",
    "dispatch-id",
    "dispatch-ptr",
    "implicitarg-ptr",
    "workitem-id-y",
    "workitem-id-z",
)


def module(function: Function, target: str = "gfx1100") -> str:
    """Return an LLVM module that holds the kernel. Raises CompileError for an operation without a rule."""
    return _Module(function, target).text()


class _Module:
    """One kernel during its translation."""

    def __init__(self, function: Function, target: str) -> None:
        self.function, self.wave_size, self.target = function, function.wave_size, target
        self._lines: list[str] = []
        self._names: dict[Value, str] = {}
        self._descriptors: dict[str, str] = {}
        self._count = 0
        self._block = "entry"

    def text(self) -> str:
        """Return the module."""
        function = self.function
        for i, one in enumerate(function.params):
            if one.is_buffer:
                self._emit(f"%a{i} = ptrtoint ptr addrspace(1) %p{i} to i64")
        self._put("%thread", "call i32 @llvm.amdgcn.workitem.id.x()")
        self._put("%lane", f"and i32 %thread, {self.wave_size - 1}")
        self._put("%first", "call i32 @llvm.amdgcn.readfirstlane.i32(i32 %thread)")
        self._put("%wave", f"lshr i32 %first, {self.wave_size.bit_length() - 1}")
        for i, axis in enumerate("xyz"):
            self._put(f"%group{i}", f"call i32 @llvm.amdgcn.workgroup.id.{axis}()")
        self._region(function.body)
        self._emit("ret void")
        params = ", ".join(
            f"ptr addrspace(1) noalias {'' if one.written else 'readonly '}%p{i}"
            if one.is_buffer
            else f"{text_of(one.type)} %p{i}"
            for i, one in enumerate(function.params)
        )
        lds = (
            f"@lds = internal addrspace(3) global [{function.lds_bytes} x i8] poison, align 16\n"
            if function.lds_bytes
            else ""
        )
        attributes = (
            f'nounwind "amdgpu-flat-work-group-size"="{function.group_size},{function.group_size}" "uniform-work-group-size"="true" '
            '"amdgpu-ieee"="false" "denormal-fp-math"="ieee,ieee" ' + " ".join(f'"amdgpu-no-{one}"' for one in UNUSED)
        )
        body = "\n".join([*self._descriptors.values(), *self._lines])
        return (
            f'target triple = "{TRIPLE}"\n{lds}define amdgpu_kernel void @{function.name}({params}) #0 '
            f"{{\nentry:\n{body}\n}}\n"
            f'attributes #0 = {{ {attributes} }}\n!0 = distinct !{{!0, !1}}\n!1 = !{{!"llvm.loop.unroll.disable"}}\n'
        )

    # text

    def _emit(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def _put(self, name: str, text: str) -> str:
        self._emit(f"{name} = {text}")
        return name

    def line(self, text: str) -> str:
        """Write an instruction that has a result; return the result's name."""
        self._count += 1
        return self._put(f"%v{self._count}", text)

    def _label(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    def of(self, value: Value) -> str:
        """Return the name or constant of a value."""
        found = self._names.get(value)
        if found is not None:
            return found
        if value.op == "const":
            return constant(value.imm, value.type)
        if value.op == "param":
            return f"%a{value.imm}" if self.function.params[value.imm].is_buffer else f"%p{value.imm}"
        raise CompileError(f"{value.op} {value!r} is used and was not computed before")

    # structure

    def _region(self, region: Region) -> None:
        for item in region.items:
            if isinstance(item, Value):
                self._value(item)
            elif isinstance(item, Loop):
                self._loop(item)
            else:
                self._if(item)

    def _value(self, v: Value) -> None:
        if v.op in ("const", "param"):
            return
        found = self._leaf(v)
        if found is None:
            line = LINES.get(v.op)
            if v.op in _MEMORY:
                found = _MEMORY[v.op](self, v)
            elif v.op in RULES:
                found = RULES[v.op](self, v)
            elif line is not None:
                found = self.line(line.format(**operands(self, v)))
            else:
                raise CompileError(f"{v.op}: there is no line of LLVM IR for this operation of the machine IR")
        self._names[v] = found

    def _leaf(self, v: Value) -> str | None:
        if v.op == "wave_id" and self.function.group_size <= self.wave_size:
            return "0"
        if v.op == "group_id":
            return f"%group{v.imm}"
        return {"thread_id": "%thread", "lane_id": "%lane", "wave_id": "%wave"}.get(v.op)

    def _loop(self, loop: Loop) -> None:
        """Write a loop whose condition is at its end, guarded unless it runs at least once."""
        head, after = self._label("loop"), self._label("after")
        start, stop, before = self.of(loop.start), self.of(loop.stop), self._block
        initial = [self.of(one) for one in loop.initial]
        if loop.at_least_once:
            self._emit(f"br label %{head}")
        else:
            self._emit(f"br i1 {self.line(f'icmp slt i32 {start}, {stop}')}, label %{head}, label %{after}")
        self._begin(head)
        place = len(self._lines)
        self._names[loop.index] = index = f"%i{self._count}"
        for i, one in enumerate(loop.carried):
            self._names[one] = f"{index}_{i}"
        self._region(loop.body)
        following = self.line(f"add nsw i32 {index}, {loop.step}")
        more = self.line(f"icmp slt i32 {following}, {stop}")
        self._emit(f"br i1 {more}, label %{head}, label %{after}, !llvm.loop !0")
        end = self._block
        phis = [f"  {index} = phi i32 [ {start}, %{before} ], [ {following}, %{end} ]"]
        for i, (one, first, then) in enumerate(zip(loop.carried, initial, loop.following, strict=True)):
            phis.append(f"  {index}_{i} = phi {text_of(one.type)} [ {first}, %{before} ], [ {self.of(then)}, %{end} ]")
        self._lines[place:place] = phis
        last = [self.of(one) for one in loop.following]
        self._begin(after)
        for result, first, held in zip(loop.results, initial, last, strict=True):
            both = f"phi {text_of(result.type)} [ {first}, %{before} ], [ {held}, %{end} ]"
            self._names[result] = held if loop.at_least_once else self.line(both)

    def _if(self, item: If) -> None:
        inside, after = self._label("then"), self._label("after")
        self._emit(f"br i1 {self.of(item.condition)}, label %{inside}, label %{after}")
        self._begin(inside)
        self._region(item.body)
        self._emit(f"br label %{after}")
        self._begin(after)

    # memory

    def mask(self, v: Value) -> str | None:
        """Return the condition of an access, None for one that always happens."""
        at = MASKED[v.op]
        return self.of(v.args[at]) if len(v.args) > at else None

    def when(self, mask: str | None, access: str) -> None:
        """Write an access without result, for the lanes of the mask."""
        if mask is None:
            return self._emit(access)
        inside, after = self._label("then"), self._label("after")
        self._emit(f"br i1 {mask}, label %{inside}, label %{after}")
        self._begin(inside)
        self._emit(access)
        self._emit(f"br label %{after}")
        self._begin(after)
        return None

    def found(self, mask: str | None, type_: Type, access: str) -> str:
        """Write an access with a result, which is 0 in lanes outside the mask; return its name."""
        if mask is None:
            return self.line(access)
        inside, after, before = self._label("then"), self._label("after"), self._block
        self._emit(f"br i1 {mask}, label %{inside}, label %{after}")
        self._begin(inside)
        value = self.line(access)
        self._emit(f"br label %{after}")
        self._begin(after)
        return self.line(f"phi {text_of(type_)} [ {value}, %{inside} ], [ {_zero(type_)}, %{before} ]")

    def barrier(self, v: Value) -> str:
        """Write a barrier of the group that also makes stores visible."""
        for one in BARRIER:
            self._emit(one)
        return ""

    def base(self, value: Value) -> tuple[int, list[Value]] | None:
        """Return the buffer of an address and the offsets added to it (i64); None for an address of unknown origin."""
        if value.op == "param" and self.function.params[value.imm].is_buffer:
            return value.imm, []
        if value.op == "add":
            for i, one in enumerate(value.args):
                found = self.base(one)
                if found is not None:
                    return found[0], [*found[1], value.args[1 - i]]
        return None

    def address(self, base: Value, offset: Value, added: int) -> str:
        """Return a pointer: an i32 offset is unsigned."""
        known = self.base(base)
        if known is None:
            place = self.line(f"inttoptr i64 {self.of(base)} to ptr addrspace(1)")
        else:
            place = f"%p{known[0]}"
            for one in known[1]:
                place = self.line(f"getelementptr i8, ptr addrspace(1) {place}, i64 {self.of(one)}")
        at = self.of(offset) if offset.type.bits == 64 else self.line(f"zext i32 {self.of(offset)} to i64")
        place = self.line(f"getelementptr i8, ptr addrspace(1) {place}, i64 {at}")
        return self.line(f"getelementptr i8, ptr addrspace(1) {place}, i64 {added}") if added else place

    def local_address(self, offset: Value, added: int) -> str:
        """Return a pointer into LDS."""
        place = self.line(f"getelementptr i8, ptr addrspace(3) @lds, i32 {self.of(offset)}")
        return self.line(f"getelementptr i8, ptr addrspace(3) {place}, i32 {added}") if added else place

    def buffer_operands(self, v: Value, size_bytes: int) -> str | None:
        """Return descriptor and offset of a masked access, with an offset out of range in idle lanes; None if it has no
        such form.
        """
        mask, offset, added = self.mask(v), v.args[1], int(v.imm or 0)
        known = self.base(v.args[0])
        if (
            mask is None
            or known is None
            or offset.type.bits != 32
            or size_bytes not in CARRIERS
            or not 0 <= added < 1 << 20
        ):
            return None
        number, moves = known
        if not 0 < self.function.params[number].size_bytes <= BEYOND:
            return None
        descriptor = f"%d{number}"
        word3, beyond = (GFX9_WORD3, GFX9_BEYOND) if self.target.startswith("gfx9") else (WORD3, BEYOND)
        self._descriptors[descriptor] = (
            f"  {descriptor} = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1("
            f"ptr addrspace(1) %p{number}, i16 0, i64 {BEYOND}, i32 {word3})"
        )
        at = self.of(offset)
        # the sum is within the buffer, even if a step wraps
        for one in moves:
            low = self.line(f"trunc i64 {self.of(one)} to i32")
            at = self.line(f"add i32 {at}, {low}")
        at = self.line(f"select i1 {mask}, i32 {at}, i32 {beyond}")
        if added:
            at = self.line(f"add nuw i32 {at}, {added}")
        return f"ptr addrspace(8) {descriptor}, i32 {at}, i32 0, i32 0"


def _align(type_: Type) -> int:
    return max(1, min(16, type_.size_bytes & -type_.size_bytes if type_.size_bytes % 16 else 16))


def _zero(type_: Type) -> str:
    return "zeroinitializer" if type_.count > 1 else constant(0, type_)


def _load(m: _Module, v: Value) -> str:
    type_, size = text_of(v.type), v.type.size_bytes
    through = m.buffer_operands(v, size)
    if through is not None:
        carrier = CARRIERS[size]
        found = m.line(f"call {carrier} @llvm.amdgcn.raw.ptr.buffer.load.{_carrier_name(carrier)}({through})")
        return found if carrier == type_ else m.line(f"bitcast {carrier} {found} to {type_}")
    place = m.address(v.args[0], v.args[1], int(v.imm or 0))
    return m.found(m.mask(v), v.type, f"load {type_}, ptr addrspace(1) {place}, align {_align(v.type)}")


def _store(m: _Module, v: Value) -> str:
    value = v.args[2]
    type_, size, name = text_of(value.type), value.type.size_bytes, m.of(value)
    through = m.buffer_operands(v, size)
    if through is not None:
        carrier = CARRIERS[size]
        data = name if carrier == type_ else m.line(f"bitcast {type_} {name} to {carrier}")
        m.when(
            None, f"call void @llvm.amdgcn.raw.ptr.buffer.store.{_carrier_name(carrier)}({carrier} {data}, {through})"
        )
        return ""
    place = m.address(v.args[0], v.args[1], int(v.imm or 0))
    m.when(m.mask(v), f"store {type_} {name}, ptr addrspace(1) {place}, align {_align(value.type)}")
    return ""


def _carrier_name(carrier: str) -> str:
    return carrier if carrier[0] == "i" else f"v{carrier[1]}i32"


def _atomic(m: _Module, v: Value) -> str:
    name, added = v.imm
    if name not in ATOMICS:
        raise CompileError(f"atomic {name} has no line of LLVM IR here; there is {', '.join(ATOMICS)}")
    type_, place = text_of(v.args[2].type), m.address(v.args[0], v.args[1], added)
    change = (
        f'atomicrmw {ATOMICS[name]} ptr addrspace(1) {place}, {type_} {m.of(v.args[2])} syncscope("agent") monotonic'
    )
    return m.found(m.mask(v), v.args[2].type, change)


def _local_load(m: _Module, v: Value) -> str:
    place = m.local_address(v.args[0], int(v.imm or 0))
    return m.found(m.mask(v), v.type, f"load {text_of(v.type)}, ptr addrspace(3) {place}, align {_align(v.type)}")


def _local_store(m: _Module, v: Value) -> str:
    value = v.args[1]
    place = m.local_address(v.args[0], int(v.imm or 0))
    m.when(
        m.mask(v), f"store {text_of(value.type)} {m.of(value)}, ptr addrspace(3) {place}, align {_align(value.type)}"
    )
    return ""


_MEMORY: dict[str, Callable[[_Module, Value], str]] = {
    "load": _load, "store": _store, "atomic": _atomic, "lds_load": _local_load, "lds_store": _local_store, "barrier": _Module.barrier,
}  # fmt: skip
