"""Code of AMD's own compiler (bitsandbytes' kernels, hipcc of ROCm 6.4 and 7.15): every instruction disassembles as in
LLVM 22, and assembles again.

`ringup headers fetch bitsandbytes` fetches the libraries. The tests take samples of them. All of their code for the
processors we know, and that of llama.cpp, ONNX Runtime and XLA (40 million instructions), was compared once in the same
way.
"""

import re
from collections import Counter

import pytest

from ringup.compiler.isa.amd import processor
from ringup.compiler.isa.amd.assembly import disassembler
from ringup.compiler.isa.amd.assembly.assembler import Assembler, assemble
from ringup.compiler.isa.amd.objects import elf_read
from ringup.queues.amd.objects import fat_binary

LINE = re.compile(r"^\t(.+?)\s*// [0-9A-F]+: ((?:[0-9A-F]{8} ?)+)", re.M)
# LLVM and we spell the distances of branches differently.
LABELLED = re.compile(r"^(s_c?branch\w*|s_call_b64 \S+) .*")
# AMD's newer compilers leave this value in unused sources on gfx11 and gfx12.
FILLED = 128
# (library, processor, source) to the number of instructions and of distinct ones.
SAMPLES = {
    ("rocm715", "gfx1100", 1): (20199, 4729),
    ("rocm715", "gfx1201", 1): (22045, 4689),
    ("rocm715", "gfx1150", 1): (20207, 4693),
    ("rocm715", "gfx950", 1): (19370, 5416),
    ("rocm64", "gfx1100", 0): (85228, 21521),
    ("rocm64", "gfx942", 0): (79139, 20902),
}


@pytest.fixture(scope="module")
def library(headers):
    """`library("rocm64")` returns a library with HIP kernels. A missing one fails the test and never skips it."""
    folder = headers("bitsandbytes") / "bitsandbytes"
    return lambda name: (folder / f"libbitsandbytes_{name}.so").read_bytes()


def member(data, target, source):
    return next(
        bytes(one.data) for one in fat_binary.members(data, "library") if (one.target, one.bundle) == (target, source)
    )


def same(ours, theirs):
    """Tell whether two texts are equal. They may differ in a negative number of 16 bits, of which LLVM's assembler
    would drop the sign bits.
    """
    halves = re.sub(r"-0x([0-9a-f]+)\b", lambda found: f"{0x10000 - int(found[1], 16):#x}", ours)
    return LABELLED.sub(r"\1", theirs) in (LABELLED.sub(r"\1", ours), LABELLED.sub(r"\1", halves))


@pytest.mark.parametrize(("name", "target", "source"), SAMPLES)
@pytest.mark.sweep(3)
def test_llvm_reads_it_as_we_do(name, target, source, library, llvm_tool, tmp_path):
    path = tmp_path / "kernels.co"
    path.write_bytes(member(library(name), target, source))
    features = ["--mattr=+real-true16"] if target.startswith("gfx1") else []
    listed = llvm_tool("llvm-objdump", "-d", "--no-leading-addr", *features, path)
    found = Counter(LINE.findall(listed))
    machine = processor(target)
    assembler = Assembler(machine)
    assembler.unused_sources = FILLED if name == "rocm715" and machine.limits.generation > 9 else 0
    differing = []
    for (theirs, words), count in found.items():
        data = b"".join(bytes.fromhex(word)[::-1] for word in words.split())
        if not any(data):
            # This line lies between kernels.
            continue
        instruction = machine.decode(data)
        ours = machine.text(instruction) if instruction else ""
        if not (
            same(ours, theirs) and instruction.size_bytes == len(data) and assembler.instruction_bytes(ours) == data
        ):
            differing.append((theirs, ours, words, count))
    assert differing == []
    assert (found.total(), len(found)) == SAMPLES[name, target, source]


@pytest.mark.parametrize("kernel", ["gemm_4bit_simtIfLi1E", "gemm_4bit_simtI6__halfLi8E"])
def test_a_kernel_of_a_library_reads_as_text_that_makes_the_same_code(kernel, library):
    """The text holds everything: no bits need a number in place of an instruction."""
    found = elf_read.read(member(library("rocm715"), "gfx1100", 1), "kernels")
    name = fat_binary.match(found.descriptors, kernel, "kernels")
    machine, listing = disassembler.of_object(found, name)
    assert listing.unused_sources == FILLED
    assert not [row.text for row in listing.rows if row.text.startswith(".long")]
    code = assemble("\n".join(listing.lines(places=False)), machine).sections[".text"]
    start = next(symbol.offset for symbol in found.symbols if symbol.name == name)
    assert len(code) > 2000
    assert code == found.sections[".text"].data[start : start + len(code)]
