"""Write small compute shaders in NIR and compile them with Mesa's NAK, to machine code (SASS) for a chip.

tinymesa is Mesa 25.2.7 as a library; tinygrad has its C declarations. A shader's arguments lie in constant bank 0 from
byte 0 on.
"""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

from tinygrad.runtime.autogen import mesa
from tinygrad.runtime.support.compiler_mesa import NAKCompiler

mesa.glsl_type_singleton_init_or_ref()
FLOATS = {16: "<e", 32: "<f", 64: "<d"}


class Shader(NamedTuple):
    """What NAK made: words of 16 bytes, and what a launch must reserve."""

    code: bytes
    registers: int
    barriers: int
    shared_bytes: int
    local_bytes: int


class Builder:
    """One shader for groups of `size` threads."""

    def __init__(self, target: str, size: tuple[int, int, int] = (32, 1, 1), shared_bytes: int = 0) -> None:
        self.compiler = NAKCompiler(target)
        # the shader refers to its options
        self.options = mesa.nir_shader_compiler_options.from_buffer_copy(self.compiler.nir_options)
        self.nir = mesa.nir_builder_init_simple_shader(mesa.MESA_SHADER_COMPUTE, ctypes.pointer(self.options), None)
        info = self.nir.shader.contents.info
        for axis in range(3):
            info.workgroup_size[axis] = size[axis]
        info.shared_size = shared_bytes
        self.argument_bytes = 0

    # values -----------------------------------------------------------------------------------------------------------

    def const(self, value: int | float, bits: int = 32):
        made = mesa.nir_load_const_instr_create(self.nir.shader, 1, bits)
        is_float = isinstance(value, float)
        data = struct.pack(FLOATS[bits], value) if is_float else (value & (1 << bits) - 1).to_bytes(8, "little")
        ctypes.memmove(ctypes.addressof(made.contents.value), data, len(data))
        mesa.nir_builder_instr_insert(self.nir, made.contents.instr)
        return made.contents._def

    def op(self, name: str, *sources):
        """Append an operation of `nir_opcodes`."""
        make = getattr(mesa, f"nir_build_alu{len(sources)}")
        return make(self.nir, getattr(mesa, f"nir_op_{name}"), *sources).contents

    def intrinsic(
        self, name: str, *sources, parts: int = 1, bits: int = 32, result: bool = True, count: int = 0, **indices
    ):
        kind = getattr(mesa, f"nir_intrinsic_{name}")
        made = mesa.nir_intrinsic_instr_create(self.nir.shader, kind)
        if result:
            mesa.nir_def_init(made.contents.instr, made.contents._def, parts, bits)
        if count:
            made.contents.num_components = count
        for index, value in indices.items():
            place = mesa.nir_intrinsic_infos[kind].index_map[getattr(mesa, f"NIR_INTRINSIC_{index}")]
            made.contents.const_index[place - 1] = value
        for number, source in enumerate(sources):
            places = ctypes.cast(made.contents.src, ctypes.POINTER(mesa.nir_src))
            places[number] = mesa.nir_src(ssa=ctypes.pointer(source))
        mesa.nir_builder_instr_insert(self.nir, made.contents.instr)
        return made.contents._def if result else None

    def part(self, value, number: int):
        source = mesa.nir_alu_src(src=mesa.nir_src(ssa=ctypes.pointer(value)))
        source.swizzle[0] = number
        made = mesa.nir_alu_instr_create(self.nir.shader, mesa.nir_op_mov)
        ctypes.cast(made.contents.src, ctypes.POINTER(mesa.nir_alu_src))[0] = source
        mesa.nir_def_init(made.contents.instr, made.contents._def, 1, value.bit_size)
        mesa.nir_builder_instr_insert(self.nir, made.contents.instr)
        return made.contents._def

    def argument(self, bits: int = 64):
        size = bits // 8
        self.argument_bytes = -(-self.argument_bytes // size) * size
        place = self.const(self.argument_bytes)
        self.argument_bytes += size
        return self.intrinsic("ldc_nv", self.const(0), place, bits=bits, count=1, ALIGN_MUL=size)

    def thread(self, axis: int = 0):
        return self.part(self.intrinsic("load_local_invocation_id", parts=3), axis)

    def group(self, axis: int = 0):
        return self.part(self.intrinsic("load_workgroup_id", parts=3), axis)

    def number(self, size: int):
        """The thread's number in the grid, for groups of `size` along x."""
        return self.op("iadd", self.op("imul", self.group(), self.const(size)), self.thread())

    # memory -----------------------------------------------------------------------------------------------------------

    def place(self, pointer, index, size_bytes: int = 4):
        return self.op("iadd", pointer, self.op("imul", self.op("u2u64", index), self.const(size_bytes, 64)))

    def load(self, place, bits: int = 32, parts: int = 1, space: str = "global"):
        return self.intrinsic(
            f"load_{space}", place, parts=parts, bits=bits, count=parts, ALIGN_MUL=max(bits // 8, 1) * parts
        )

    def store(self, place, value, space: str = "global"):
        parts = value.num_components
        self.intrinsic(
            f"store_{space}", value, place, result=False, count=parts, WRITE_MASK=(1 << parts) - 1,
            ALIGN_MUL=value.bit_size // 8 * parts,
        )  # fmt: skip

    def barrier(self):
        """Wait for the group; shared memory is visible afterwards."""
        self.intrinsic(
            "barrier", result=False, EXECUTION_SCOPE=mesa.SCOPE_WORKGROUP, MEMORY_SCOPE=mesa.SCOPE_WORKGROUP,
            MEMORY_SEMANTICS=mesa.NIR_MEMORY_ACQ_REL, MEMORY_MODES=mesa.nir_var_mem_shared,
        )  # fmt: skip

    def atomic(self, how: str, place, value, space: str = "global"):
        return self.intrinsic(
            f"{space}_atomic", place, value, bits=value.bit_size, ATOMIC_OP=getattr(mesa, f"nir_atomic_op_{how}")
        )

    # control flow -----------------------------------------------------------------------------------------------------

    def choose(self, condition, yes, no=lambda: None):
        """Branch; the arms are functions. Return the merged value, if they have one."""
        made = mesa.nir_push_if(self.nir, condition)
        left = yes()
        mesa.nir_push_else(self.nir, made)
        right = no()
        mesa.nir_pop_if(self.nir, made)
        return None if left is None else mesa.nir_if_phi(self.nir, left, right).contents

    def variable(self, start):
        """A variable of 32 bits: functions that read and write it."""
        made = mesa.nir_local_variable_create(self.nir.impl, mesa.glsl_type_builtin_uint, b"v").contents

        def place():
            deref = mesa.nir_deref_instr_create(self.nir.shader, mesa.nir_deref_type_var)
            mesa.nir_def_init(deref.contents.instr, deref.contents._def, 1, 32)
            deref.contents.modes, deref.contents.type = made.data.mode, made.type
            deref.contents.var = ctypes.pointer(made)
            mesa.nir_builder_instr_insert(self.nir, deref.contents.instr)
            return deref.contents._def

        def read():
            return self.intrinsic("load_deref", place(), count=1)

        def write(value):
            self.intrinsic("store_deref", place(), value, result=False, count=1, WRITE_MASK=1)

        write(start)
        return read, write

    def loop(self, body):
        """Repeat `body` until it jumps out by `leave`."""
        mesa.nir_push_loop(self.nir)
        body()
        mesa.nir_pop_loop(self.nir, None)

    def leave(self):
        made = mesa.nir_jump_instr_create(self.nir.shader, mesa.nir_jump_break)
        mesa.nir_builder_instr_insert(self.nir, made.contents.instr)

    # ------------------------------------------------------------------------------------------------------------------

    def compile(self) -> Shader:
        """Validate the shader and let NAK make code of it."""
        shader = self.nir.shader
        mesa.nir_validate_shader(shader, b"as built")
        mesa.nak_preprocess_nir(shader, self.compiler.cc)
        made = mesa.nak_compile_shader(shader, False, self.compiler.cc, 0, None)
        info = made.contents.info
        code = ctypes.string_at(made.contents.code, made.contents.code_size)
        result = Shader(code, info.num_gprs, info.num_control_barriers, info.cs.smem_size, info.slm_size)
        mesa.nak_shader_bin_destroy(made)
        mesa.ralloc_free(shader)
        return result
