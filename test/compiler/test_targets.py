"""Models compile for every target. LLVM's disassembler and ours find the same instructions in the code objects."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.compiler.amd.instructions.traits import TRAITS
from ringup.compiler.compile import compile_graph
from ringup.compiler.isa.amd.assembly import disassembler
from ringup.compiler.isa.amd.objects import elf_read
from ringup.compiler.tensor import Tensor
from ringup.compiler.tensor.order import prepared

R = np.random.default_rng(0)
# LLVM also decodes what lies between kernels.
FILLERS = {"s_code_end", "s_nop 0"}


def weights(*shape):
    return Tensor(R.standard_normal(shape).astype(np.float32))


def transformer(dim=32, heads=2, length=32):
    """A small transformer block."""
    x = weights(1, length, dim)
    n = x.layer_norm()
    q, k, v = ((n @ weights(dim, dim)).reshape(1, length, heads, dim // heads).permute(0, 2, 1, 3) for _ in range(3))
    x = x + q.scaled_dot_product_attention(k, v).permute(0, 2, 1, 3).reshape(1, length, dim) @ weights(dim, dim)
    n = x.layer_norm()
    return x + (n @ weights(dim, 4 * dim) + weights(4 * dim)).gelu() @ weights(4 * dim, dim)


def residual():
    """Convolutions of a ResNet: one is strided and has a norm's scale and a pool behind it."""
    x = (
        weights(1, 3, 32, 32)
        .conv2d(weights(16, 3, 7, 7), stride=2, padding=3)
        .relu()
        .max_pool2d(3, stride=2, padding=1)
    )
    y = (x.conv2d(weights(16, 16, 3, 3), padding=1) * weights(16).reshape(1, 16, 1, 1)).relu()
    return (y + x).mean((2, 3)) @ weights(16, 10)


def halves(kind):
    return Tensor(np.zeros((128, 64), np.float32)).cast(kind) @ Tensor(np.zeros((64, 96), np.float32)).cast(kind)


def eighths(depth):
    """A product of both floats of 8 bits."""
    a, b = (Tensor(np.zeros(shape, np.float32)) for shape in ((48, depth), (depth, 32)))
    return a.cast("float8_e5m2").contiguous().cast("float32") @ b.cast("float8_e4m3").contiguous().cast("float32")


def attention(kind, queries, keys, heads=2):
    """Causal attention of narrow floats, on operands in memory."""
    q, k, v = (
        Tensor(np.zeros((1, count, size, 64), np.float32)).cast(kind).contiguous()
        for count, size in ((4, queries), (heads, keys), (heads, keys))
    )
    return q.scaled_dot_product_attention(k, v, causal=True, grouped=True)


MODELS = {
    "transformer": transformer,
    "residual": residual,
    "f16": lambda: halves("float16"),
    "bf16": lambda: halves("bfloat16"),
    "f8": lambda: eighths(64) + eighths(200),
    "f64": lambda: (weights(40, 50).cast("float64") @ weights(50, 30).cast("float64")) / 3,
    "integers": lambda: (weights(60).cast("int64") // 7 % 5).sort(0)[0],
    "attention of f16": lambda: attention("float16", 70, 70),
    "attention of bf16": lambda: attention("bfloat16", 70, 70),
    "a query over f16": lambda: attention("float16", 1, 600),
    "a query over f32": lambda: attention("float32", 1, 600),
    "running": lambda: weights(70, 33).cumsum(0).logcumsumexp(0) + weights(9, 1000).cumsum(1).flip(1)[:1, :33],
    "order": lambda: weights(3, 600).argsort(1, descending=True),
    "put": lambda: weights(500, 70).scatter_add(0, Tensor(np.zeros((700, 70), np.int32)), weights(700, 70)),
    "argmax": lambda: weights(33, 70).argmax(1),
}


@pytest.fixture(scope="module")
def objdump(headers):
    """`objdump(path)` returns LLVM 22's listing. A missing LLVM fails the test and never skips it."""
    *loader, program = llvm_mc(headers("llvm-22"))
    command = [*loader, str(Path(program).with_name("llvm-objdump")), "-d"]
    return lambda path: subprocess.run([*command, path], capture_output=True, text=True, timeout=60, check=True).stdout


def plain(text):
    """Return an instruction's text without what LLVM and we spell differently: distances of branches, hexadecimal
    zeros, and .l of true 16-bit operands.
    """
    text = re.sub(r"\s+", " ", text.strip())
    text = re.sub(r"^(s_c?branch\w*) .*", r"\1", text)
    text = re.sub(r"^(s_wait_\w+) (\w+)$", lambda found: f"{found[1]} {int(found[2], 0)}", text)
    return re.sub(r"\b(v\d+)\.l\b", r"\1", text)


@pytest.mark.parametrize("target", TRAITS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.sweep(16)
def test_llvm_reads_the_code_as_we_do(name, target, objdump, tmp_path):
    graph = compile_graph(prepared([MODELS[name]().node]), target)
    path = tmp_path / "code.o"
    path.write_bytes(graph.code_object())
    listed = objdump(path)
    theirs = [plain(found[1]) for found in re.finditer(r"^\t(.+?)\s*// ", listed, re.MULTILINE)]
    _, listing = disassembler.of_object(elf_read.read(path.read_bytes(), "code"))
    ours = [plain(row.text) for row in listing.rows if not row.text.startswith(".fill")]
    assert not [line for line in theirs if "unknown" in line or line.startswith(".long")]
    theirs, ours = ([line for line in lines if line not in FILLERS] for lines in (theirs, ours))
    assert len(ours) > 20
    assert ours == theirs
    assert sum(line == "s_endpgm" for line in ours) >= len(graph.binaries)


def test_targets_differ_where_their_documents_do():
    texts = {}
    for target in TRAITS:
        graph = compile_graph(prepared([MODELS["f16"]().node]), target)
        _, listing = disassembler.of_object(elf_read.read(graph.code_object(), "code"))
        texts[target] = "\n".join(listing.lines(places=False))
    assert "s_waitcnt" in texts["gfx1100"]
    assert "s_waitcnt" in texts["gfx942"]
    assert "s_delay_alu" not in texts["gfx942"]
    assert "s_wait_loadcnt" in texts["gfx1201"]
    assert "s_waitcnt" not in texts["gfx1201"]
    assert "ttmp9" in texts["gfx1201"]
    assert "s_barrier_signal" in texts["gfx1201"]
    # A fragment of A takes 8 VGPRs on RDNA3, 4 on RDNA4.
    widths = {
        target: {
            int(b) - int(a) + 1 for a, b in re.findall(r"v_wmma_f32_16x16x16_f16 v\[\d+:\d+\], v\[(\d+):(\d+)\]", text)
        }
        for target, text in texts.items()
        if target not in ("gfx942", "gfx950")
    }
    assert widths == {"gfx1100": {8}, "gfx1151": {8}, "gfx1201": {4}}
