"""The registers that instructions write and read."""

import pytest

from ringup.compiler.isa.sass import machine
from ringup.compiler.isa.sass.usage import usage

CASES = (
    ("@!P0 IMAD.WIDE.U32 R2, R0, 0x4, R6", "R2 R3", "P0 R0 R6 R7"),
    ("ISETP.GE.AND P0, PT, R1, c[0x0][0x170], PT", "P0", "R1"),
    ("STS.128 [R2], R4", "", "R2 R4 R5 R6 R7"),
    ("HMMA.16816.F32 R8, R4, R2, RZ", "R10 R11 R8 R9", "R2 R3 R4 R5 R6 R7"),
    ("@UP1 UMOV UR4, UR6", "UR4", "UP1 UR6"),
    ("EXIT", "", ""),
    # Two results are in R8 and R9, the third in R12; the array's index and the coordinates are in R4 to R6.
    ("TEX.B.LL R12, R8, R4, R16, ARRAY_2D, 0x7", "R12 R8 R9", "R16 R17 R4 R5 R6"),
    ("TEX.LZ RZ, R8, R4, 0x3, 0x15, 2D, 0x2", "R8", "R4 R5"),
    ("TLD4.B.B.PTP R12, R8, R4, R16, 2D", "R12 R13 R8 R9", "R16 R17 R18 R4 R5"),
    ("TXD.B.AOFFI RZ, R8, R4, R16, 2D, 0x3", "R8 R9", "R16 R17 R18 R19 R4 R5 R6 R7"),
    ("TXQ.B R12, R8, R4, TEX_HEADER_DIMENSION, 0xf", "R12 R13 R8 R9", "R4 R5"),
    ("SULD.P.2D_ARRAY.STRONG.GPU.RG.IGN R8, [R4], R16", "R8 R9", "R16 R4 R5 R6"),
    ("SUST.D.3D.128.IGN [R4], R8, R16", "", "R10 R11 R16 R4 R5 R6 R8 R9"),
    ("SUATOM.D.1D_BUFFER.CAS.IGN R2, [R4], R8, R16", "R2", "R16 R4 R8 R9"),
)


@pytest.mark.parametrize(("text", "writes", "reads"), CASES)
def test_an_instruction_names_its_registers(text, writes, reads):
    found = usage("sm_86", machine("sm_86").encode(text))
    assert found == (frozenset(writes.split()), frozenset(reads.split()))


def test_an_unknown_word_has_no_usage():
    assert usage("sm_86", 0) is None


def test_a_guard_that_no_source_describes_is_refused():
    isa = machine("sm_86")
    word = isa.encode("S2UR UR4, SR_TID.X")
    assert isa.knows(word)
    assert not isa.knows(word ^ 1 << 12)
    with pytest.raises(ValueError, match="no source says which predicate guards S2UR"):
        isa.encode("@UP0 S2UR UR4, SR_TID.X")


def test_a_reduction_of_mesa_25_0_is_known():
    # Mesa 25.0 sets bits 81 to 83 of RED, which 25.2 leaves zero.
    assert machine("sm_86").text(0x0001C200_001F4100_00000006_08FF798E) == "RED.E.ADD.STRONG.SYS [R8], R6"
