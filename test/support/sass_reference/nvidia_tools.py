"""NVIDIA's ptxas and nvdisasm of CUDA 13.5, as references: `ringup headers fetch nvdisasm ptxas`.

What ptxas makes is decoded and compared, never kept and never run (docs/nvidia.md).
"""

import re
import struct
import subprocess

TIMEOUT_S = 300
# The control word waits for nothing.
NOP = 0x000FC000000000000000000000007918
MAX_WORDS = 60_000
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*$", re.M)
_REFUSED = re.compile(r"at address 0x([0-9a-f]+)")
# Illegal words that hide others come to light one round after the other.
MAX_ROUNDS = 12


class Nvdisasm:
    """The disassembler, asked in bulk."""

    def __init__(self, program):
        self.program = program

    def texts(self, chip, words, folder):
        """Return nvdisasm's text of each word, None where it is illegal. Blanks are made regular: nvdisasm writes
        `c[0x0] [0x4]` and `+INF ,` in some instructions. The address of a word is 16 times its index, modulo
        `MAX_WORDS`.
        """
        found = []
        for first in range(0, len(words), MAX_WORDS):
            found += self._chunk(chip, words[first : first + MAX_WORDS], folder)
        return found

    def _chunk(self, chip, words, folder):
        asked, illegal = list(words), set()
        path = folder / "words.bin"
        for _ in range(MAX_ROUNDS):
            path.write_bytes(b"".join(word.to_bytes(16, "little") for word in asked))
            done = self.run("--binary", chip.upper().replace("_", ""), path)
            if done.returncode == 0:
                break
            refused = {int(each, 16) // 16 for each in _REFUSED.findall(done.stderr)}
            # A word of zeros is refused without its address.
            refused |= set() if refused else {index for index, word in enumerate(asked) if word & 0xFFF == 0}
            assert refused, done.stderr[:500]
            illegal |= refused
            for index in refused:
                asked[index] = NOP
        else:
            raise AssertionError(f"nvdisasm refuses words after {MAX_ROUNDS} rounds: {done.stderr[:500]}")
        texts = {int(address, 16) // 16: regular(text) for address, text in _LINE.findall(done.stdout)}
        # It prints no line at all for a few words that it does not refuse either.
        return [None if index in illegal else texts.get(index) for index in range(len(words))]

    def life_ranges(self, image, folder):
        """Return (address, text, registers written, registers read) of the instructions of a cubin's first code
        section. A result that nobody reads is not among the written.
        """
        path = folder / "life.cubin"
        path.write_bytes(image)
        found, heads, columns = [], [], []
        for line in self.run("-c", "-plr", "-lrm", "wide", path).stdout.splitlines():
            marks = re.search(r"//\s?([|+].*)$", line)
            if marks is None:
                continue
            marks = marks[1]
            if "GPR" in marks or "PRED" in marks:
                heads = [cell.strip() for cell in marks.split("|")[1:-1]]
            elif "#" in marks:
                columns = _columns(heads, marks)
            instruction = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)
            if instruction is not None:
                shown = {name: marks[place : place + 1] for name, place in columns}
                writes = {name for name, mark in shown.items() if mark in ("^", "x")}
                reads = {name for name, mark in shown.items() if mark in ("v", "x")}
                found.append((int(instruction[1], 16), instruction[2], writes, reads))
        return found

    def run(self, *arguments):
        """Run the program and return what it printed."""
        argv = [str(self.program), *map(str, arguments)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def _columns(heads, marks):
    """Return (register, column) of the table's head line."""
    files = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}
    found, start = [], 1
    for head, cell in zip(heads, marks.split("|")[1:-1], strict=True):
        found += [(f"{files[head]}{each[0]}", start + each.end() - 1) for each in re.finditer(r"\d+", cell)]
        start += len(cell) + 1
    return found


def regular(text):
    """Return a text without nvdisasm's irregular blanks."""
    return text.replace("] [", "][").replace(" ,", ",")


def compile_ptx(ptxas, text, chip, folder):
    """Return the cubin that ptxas makes of PTX."""
    (folder / "kernel.ptx").write_text(text)
    done = subprocess.run(
        [str(ptxas), f"-arch={chip}", str(folder / "kernel.ptx"), "-o", str(folder / "kernel.cubin")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:500]
    return (folder / "kernel.cubin").read_bytes()


def code_of(cubin):
    """Return the words of all code sections of a cubin."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + 64 * index) for index in range(count)]
    found = []
    for name, _, _, _, offset, size, *_ in sections:
        start = sections[names][4] + name
        if cubin[start : cubin.index(b"\0", start)].startswith(b".text."):
            found += [int.from_bytes(cubin[at : at + 16], "little") for at in range(offset, offset + size, 16)]
    return found
