"""Runs the selection's result without the real passes: registers by a plain linear scan, a wait after each access, text
through llvm-mc.
"""

from __future__ import annotations

import struct
import subprocess

import numpy as np

from ringup.autogen.isa.reader import target
from ringup.compiler.amd.emit import first_group_sgpr
from ringup.compiler.amd.instructions.code import Block, Part, Reg, Signed, Special
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.names import spelled
from ringup.silicon.shader.common.state import Dispatch
from ringup.silicon.shader.workbench import Arena, Deaf

CODE_VA, KERNARG_VA, SCRATCH_VA = 0x10_0000, 0x20_0000_0000, 0x40_0000_0000
BUFFERS, BUFFER_STEP = 0x7F00_0000_0000, 1 << 36
FLOAT_MODE = 0xF0  # round to nearest even, denormals of all types kept
_ACCESSES = ("global_", "buffer_load", "buffer_store", "ds_", "s_load", "scratch_")
_TRANSCENDENTAL = ("v_rcp", "v_rsq", "v_sqrt", "v_exp", "v_log", "v_sin")
_MODIFIERS = ("offen", "glc", "sc0")


def text_section(elf):
    """Return `.text` of an ELF64 object file."""
    (sections,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, sections + size * i) for i in range(count)]
    for name, _, _, _, offset, length in headers:
        if elf[headers[names][4] + name :].startswith(b".text\0"):
            return elf[offset : offset + length]
    raise AssertionError("no .text")


def assemble(command, text, name, wave_size):
    """Return LLVM 22's machine code."""
    argv = [*command, "-triple=amdgcn-amd-amdhsa", f"-mcpu={name}", "-filetype=obj", "-o", "-"]
    if wave_size == 64 and not name.startswith("gfx9"):
        argv.append("-mattr=+wavefrontsize64")
    done = subprocess.run(argv, input=text.encode(), capture_output=True, timeout=60, check=False)
    assert not done.returncode, done.stderr.decode()[:3000]
    return text_section(done.stdout)


def _registers(operand):
    if isinstance(operand, Signed):
        operand = operand.source
    return operand if isinstance(operand, Reg) else operand.reg if isinstance(operand, Part) else None


def allocate(code):
    """Give every register a place: intervals in the order of the text, widened over loops that they overlap."""
    spans, at, loops = {}, 0, []
    starts = {}
    for block in code.blocks:
        starts[block] = at
        for instr in block.instrs:
            for one in instr.operands:
                reg = _registers(one)
                if reg is not None:
                    first, _ = spans.get(reg, (at, at))
                    spans[reg] = first, at
            at += 1
    ends = {block: starts[block] + len(block.instrs) - 1 for block in code.blocks}
    loops = [(starts[block], ends[block.loop_end]) for block in code.blocks if block.loop_end is not None]
    for reg in code.inputs:
        if reg in spans:
            spans[reg] = -1, spans[reg][1]
    for first, last in sorted(loops, reverse=True):
        for reg, (begin, end) in spans.items():
            if begin < first <= end or first <= begin <= last < end:
                spans[reg] = min(begin, first), max(end, last)
    places, free_at = {}, {"v": [-2] * 256, "s": [-2] * 106}
    for reg, (begin, end) in sorted(spans.items(), key=lambda one: (one[1][0], one[0].fixed is None)):
        busy = free_at[reg.bank]
        wide = limits(code.target).vgpr_align if reg.bank == "v" else 2 if reg.count == 2 else 4
        step = 1 if reg.count == 1 else wide
        choices = [reg.fixed] if reg.fixed is not None else range(0, len(busy) - reg.count + 1, step)
        for n in choices:
            if all(one < begin for one in busy[n : n + reg.count]):
                break
        else:
            raise AssertionError(f"out of {reg.bank} registers")
        busy[n : n + reg.count] = [end] * reg.count
        places[reg] = n
    return places


def text_of(code):
    """Return LLVM's text, with physical registers and waits after each access."""
    places = allocate(code)
    facts = target(code.target)
    halves = {}
    lines = []
    for block in code.blocks:
        lines.append(f"{block.name}:")
        for instr in block.instrs:
            name = instr.mnemonic
            if name not in halves:
                rows = facts.by_mnemonic(spelled(code.target, name))
                assert rows, f"{code.target} has no {name}"
                shown = [one for one in rows[-1].operands if one.field != "hidden"]
                halves[name] = (
                    [one.size_bits == 16 for one in shown]
                    if name.startswith("v_") and not name.startswith("v_pk") and code.target.startswith("gfx11")
                    else []
                )
            half, modifiers = halves[name], dict(instr.modifiers)
            upper = [0] * len(instr.operands)
            # Where registers have halves, their names say which half.
            if any(half) and "op_sel" in modifiers:
                *sources, result = modifiers.pop("op_sel")
                upper = [result, *sources]
            operands = [
                _spelled(one, places, ("", (".l", ".h")[upper[i]])[i < len(half) and half[i]])
                for i, one in enumerate(instr.operands)
            ]
            # It may not directly follow v_cmpx.
            if name.startswith("v_permlane") and not code.target.startswith("gfx12"):
                moved = operands[1].removesuffix(".l")
                lines.append(f"  v_mov_b32 {moved}, {moved}")
            named = spelled(code.target, name)
            lines.append(f"  {named} {', '.join(operands)} {' '.join(_modifier(*one) for one in modifiers.items())}")
            # va_vdst(0): their results come late.
            if name.startswith(_TRANSCENDENTAL) and not code.target.startswith("gfx9"):
                lines.append("  s_wait_alu 0xfff" if code.target.startswith("gfx12") else "  s_waitcnt_depctr 0xfff")
            if name.startswith(_ACCESSES):
                if code.target.startswith("gfx12"):
                    lines += ["  s_wait_loadcnt_dscnt 0", "  s_wait_kmcnt 0", "  s_wait_storecnt 0"]
                else:
                    lines.append("  s_waitcnt vmcnt(0) lgkmcnt(0)")
                    if code.target.startswith("gfx11"):
                        lines.append("  s_waitcnt_vscnt null, 0x0")
    return "\n".join(lines) + "\n", places


def _modifier(name, value):
    if name in _MODIFIERS or name in ("row_mirror", "row_half_mirror"):
        return name
    if name in ("th", "scope"):
        return f"{name}:{value}"
    if isinstance(value, tuple):
        return f"{name}:[{','.join(map(str, value))}]"
    return f"{name}:{value}"


def _spelled(operand, places, half):
    if isinstance(operand, Signed):
        inside = _spelled(operand.source, places, half)
        inside = f"|{inside}|" if operand.abs else inside
        return f"-{inside}" if operand.neg else inside
    if isinstance(operand, Block):
        return operand.name
    if isinstance(operand, Special):
        return operand.name
    if isinstance(operand, Reg | Part):
        reg = _registers(operand)
        first = places[reg] + (operand.first if isinstance(operand, Part) else 0)
        if operand.count == 1:
            return f"{reg.bank}{first}" + (half if reg.bank == "v" else "")
        return f"{reg.bank}[{first}:{first + operand.count - 1}]"
    return repr(operand) if isinstance(operand, float) else str(operand) if -16 <= operand <= 64 else hex(operand)


def kernarg(function, arguments):
    """Lay out arguments as the kernel reads them."""
    from ringup.compiler.amd.select.prologue import kernarg_layout

    offsets, size = kernarg_layout(function.params)
    data = bytearray(max(size, 8))
    for i, (one, at, argument) in enumerate(zip(function.params, offsets, arguments, strict=True)):
        if isinstance(argument, np.ndarray):
            argument = BUFFERS - i * BUFFER_STEP
        if one.type.is_float:
            raw = struct.pack({"f16": "<e", "f32": "<f", "f64": "<d"}[one.type.element], argument)
        else:
            raw = (int(argument) & (1 << one.type.bits) - 1).to_bytes(one.type.size_bytes, "little")
        data[at : at + len(raw)] = raw
    return np.frombuffer(bytes(data), np.uint8).copy()


def run(engine, machine_code, code, function, arguments, groups=(1, 1, 1), places=None, strict=True):
    """Run machine code of the plain allocation. Arrays among the arguments receive what it stored."""
    vgprs = max([places[reg] + reg.count for reg in places if reg.bank == "v"] or [1])
    _launch(
        engine, machine_code, function, arguments, strict, wave_size=code.wave_size, group_size=(code.group_size, 1, 1), group_count=groups,
        vgpr_count=-(-vgprs // 24) * 24, enable_group_id=code.group_ids, lds_size_bytes=code.lds_bytes, float_mode=FLOAT_MODE,
    )  # fmt: skip


def run_binary(engine, binary, function, arguments, groups=(1, 1, 1), strict=True):
    """Run the whole back end's result for a function. Arrays among the arguments receive what it stored."""
    waves = -(-binary.group_size // binary.wave_size) * int(np.prod(groups))
    wave_bytes = -(-binary.scratch_bytes * binary.wave_size // 1024) * 1024
    _launch(
        engine, binary.code, function, arguments, strict, user_sgprs=first_group_sgpr(binary.target, binary.group_ids),
        scratch_bytes=wave_bytes * waves, scratch_wave_bytes=wave_bytes, wave_size=binary.wave_size, group_size=(binary.group_size, 1, 1),
        group_count=groups, vgpr_count=max(-(-binary.vgprs // 24) * 24, 24), enable_group_id=binary.group_ids,
        lds_size_bytes=binary.lds_bytes, float_mode=binary.float_mode,
    )  # fmt: skip


def _launch(engine, machine_code, function, arguments, strict, *, user_sgprs=2, scratch_bytes=0, **dispatch):
    arena = Arena()
    arena.place(CODE_VA, np.frombuffer(machine_code + bytes(256), np.uint8).copy(), executable=True)
    arena.place(KERNARG_VA, kernarg(function, arguments), writable=False)
    for i, one in enumerate(arguments):
        if isinstance(one, np.ndarray):
            arena.place(BUFFERS - i * BUFFER_STEP, one.reshape(-1).view(np.uint8))
    if scratch_bytes:
        arena.place(SCRATCH_VA, np.zeros(scratch_bytes, np.uint8))
        dispatch["scratch_base"] = SCRATCH_VA
    pointer = (KERNARG_VA & 0xFFFFFFFF, KERNARG_VA >> 32, *(0,) * (user_sgprs - 2))
    under_way = engine.start(Dispatch(pc=CODE_VA, user_sgprs=pointer, **dispatch), arena, Deaf(), strict=strict)
    for _ in range(100):
        if under_way.step(100_000):
            break
        assert not under_way.violations, "\n".join(map(str, under_way.violations[:2]))
    else:
        raise AssertionError("the program does not end")
    assert not under_way.violations, "\n".join(map(str, under_way.violations[:2]))
