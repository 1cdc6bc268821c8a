"""SASS to text and back: published pairs of words and texts, round trips, and what is refused."""

from importlib import resources

import pytest

from ringup.autogen.isa import sass
from ringup.compiler.isa.sass import CHIPS, Control, machine
from ringup.errors import CompileError, HeaderError

# A register that is kept for the next instruction is marked if the warp stays.
STAYS = 1 << 109


def test_the_text_of_published_words_is_the_published_text(pairs):
    known = 0
    for chip, address, word, text in pairs:
        if machine(chip).knows(word):
            known += 1
            assert machine(chip).text(word | STAYS, address) == text, (chip, f"{word:032x}")
    # The others are textures, surfaces, sparse matrices and a few rare modifiers (docs/sass.md).
    assert known > 10_300
    assert len(pairs) - known < 1_220


def test_published_texts_are_assembled_to_the_published_words(pairs):
    for chip, address, word, text in pairs:
        isa = machine(chip)
        if not isa.knows(word):
            continue
        found = isa.decode(word | STAYS, address)
        again = isa.encode(text, found.control, address)
        # The rest are bits without a text.
        assert again ^ found.rest == word | STAYS
        assert isa.text(again, address) == text


@pytest.mark.parametrize("chip", CHIPS)
def test_random_words_of_every_row_survive_their_text(chip, random_words):
    isa = machine(chip)
    for word in random_words(chip, 2, 11):
        found = isa.decode(word, 0x40)
        assert isa.encode(found.text, found.control, 0x40) ^ found.rest == word


def test_a_word_with_a_bit_that_no_row_explains_is_no_instruction():
    isa = machine("sm_86")
    word = 0x000FCA0000000000_0000000302017221
    # CuAssembler: FADD R1, R2, R3
    assert isa.text(word) == "FADD R1, R2, R3"
    for bit in (40, 59, 91, 104, 126):
        assert not isa.knows(word | 1 << bit), bit
    with pytest.raises(CompileError, match="is no instruction of sm_86 that ringup knows"):
        isa.text(word | 1 << 59)


def test_the_control_word_is_text_before_the_instruction():
    isa = machine("sm_86")
    word = isa.encode("FADD R1, R2.reuse, R3", Control(stall=4, stay=1, write=2, read=1, wait=0b100001))
    assert isa.line(word) == "[B0----5:R1:W2:-:S04] FADD R1, R2.reuse, R3"
    assert word >> 105 == 4 | 1 << 4 | 2 << 5 | 1 << 8 | 0b100001 << 11 | 1 << 17


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FAD R1, R2, R3", "sm_86 has no FAD"),
        ("FADD.X R1, R2, R3", "sm_86 has no FADD.X: it has FADD, not with these modifiers"),
        ("FADD R1, R2", "FADD has 3 operands, not 2"),
        ("FADD R1, R2, UP3", "operand 3, UP3"),
        ("MOV R256, R1", "there is no R256"),
        ("MOV R1, 0x100000000", "0x100000000 does not fit into 32 bits"),
        ("@P8 MOV R1, R2", "@P8 is no guard"),
        ("DADD R2, R4, 0.1", "0.1 needs all 64 bits of a double"),
        ("IADD3 R1, R2, R3.reuse, R4", "its warp may not yield"),
    ],
)
def test_a_wrong_text_is_refused_with_the_reason(text, reason):
    with pytest.raises(ValueError, match=r".+") as caught:
        machine("sm_86").encode(text)
    assert reason in str(caught.value)


def test_a_chip_without_rows_is_refused():
    with pytest.raises(ValueError, match="no instruction facts for sm_70; there are sm_75"):
        machine("sm_70")


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-20], lambda data: b"x" + data, lambda data: data.replace(b"\tNAK", b"", 1)]
)
def test_a_damaged_facts_file_is_refused(damage):
    data = (resources.files("ringup.autogen.isa") / sass.FILE).read_bytes()
    with pytest.raises(HeaderError, match=r"instruction facts of SASS .* are damaged"):
        sass.parse(damage(data))
