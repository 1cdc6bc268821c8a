"""Generated Adreno modules and chip databases, compared with the C header that Mesa's own generator makes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ringup.autogen import qcom
from ringup.autogen.generate.qualcomm.modules import WANTED, generate_qualcomm, make_qualcomm
from ringup.autogen.qcom import a6xx, a6xx_cp, a6xx_perf, a6xx_rbbm, adreno_pm4, adreno_pm4_control
from ringup.autogen.regdb import open_chip
from ringup.errors import HeaderError


@pytest.fixture(scope="module")
def made(headers):
    files, _ = generate_qualcomm(headers("linux"), headers("mesa"))
    return files


@pytest.fixture(scope="module")
def c_header(headers):
    root = headers("mesa") / "src/freedreno/registers"
    command = [sys.executable, str(root / "gen_header.py"), "--rnn", str(root), "--xml", str(root / "adreno/a6xx.xml")]
    done = subprocess.run([*command, "c-defines"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_the_committed_files_are_what_the_headers_give(made):
    folder = Path(qcom.__file__).parent.parent
    assert len(made) > 30
    for path, content in made.items():
        data = content.encode() if isinstance(content, str) else content
        assert (folder / path).read_bytes() == data, path


@pytest.mark.parametrize(("chip", "prefix"), [("adreno_630", "A6XX"), ("adreno_740", "A7XX"), ("adreno_750", "A7XX")])
def test_a_chip_has_every_register_of_its_generation_at_the_printed_offset(c_header, chip, prefix):
    database = open_chip(chip)
    plain = re.findall(rf"^#define REG_{prefix}_(\w+)\s+(0x[0-9a-f]+)$", c_header, re.MULTILINE)
    arrays = re.findall(rf"uint32_t REG_{prefix}_(\w+)\(uint32_t i0\) \{{ return (0x\w+) \+ 0x(\w+)\*i0; \}}", c_header)
    assert len(plain) > 140
    for name, offset, stride in [*((n, o, "0") for n, o in plain), *arrays]:
        if re.match(r"(TEX_|UBO_|PDC_|CX_|SQE_)", name):
            # Registers of these names are in domains of their own.
            continue
        rows = {(register.offset, register.row.stride) for register in database.registers(name)}
        assert (int(offset, 16), int(stride, 16)) in rows, name


def test_a_chip_lacks_what_only_another_generation_has():
    a630, a740 = open_chip("adreno_630"), open_chip("adreno_740")
    assert [r.offset for r in a630.registers("RBBM_PERFCTR_CP")] == [0x400]  # a6xx.xml: variants="A6XX"
    assert [r.offset for r in a740.registers("RBBM_PERFCTR_CP")] == [0x300]  # a6xx.xml: variants="A7XX-"
    assert not a630.registers("SP_CS_VGPR_CONFIG")
    assert a740.registers("SP_CS_VGPR_CONFIG")
    # "Starting with a750, the control registers are shuffled around", adreno_control_regs.xml
    assert [r.offset for r in open_chip("adreno_750").registers("REG_WRITE_ADDR")] == [0x18]


def test_a_field_of_the_database_names_its_values():
    register = open_chip("adreno_740").register("SP_CS_CTRL_REG0")
    size = next(field for field in register.fields if field.name == "THREADSIZE")
    assert (size.hi, size.lo, size.values) == (20, 20, (("THREAD64", 0), ("THREAD128", 1)))


@pytest.mark.parametrize(
    ("word", "six", "seven"),
    [
        # Offsets as a6xx.xml.h of Mesa 25.0.7 prints them: REG_A6XX_..., REG_A7XX_...
        (a6xx.SP_CS_CTRL_REG0, (0xA9B0, 0), (0xA9B0, 0)),
        (a6xx.SP_CS_OBJ_START, (0xA9B4, 0), (0xA9B4, 0)),
        (a6xx_cp.CP_RB_WPTR, (0x807, 0), (0x807, 0)),
        (a6xx_cp.CP_PROTECT_REG, (0x850, 0, 1, 32), (0x850, 0, 1, 32)),
        (a6xx_rbbm.RBBM_INT_0_MASK, (0x38, 0), (0x38, 0)),
        (a6xx_perf.RBBM_PERFCTR_CP, (0x400, 0, 2, 14), (0x300, 0, 2, 14)),
        (a6xx_perf.SP_PERFCTR_SP_SEL, (0xAE10, 0, 1, 24), (0xAE80, 0, 1, 36)),
        (adreno_pm4.CP_EXEC_CS_1, (1, 0), (1, 0)),
    ],
)
def test_a_word_lies_where_its_generation_puts_it(word, six, seven):
    places = sys.modules[word.__module__].PLACES
    assert (places[6,][word], places[7,][word]) == (six, seven)


@pytest.mark.parametrize(
    ("word", "version", "fields", "value"),
    [
        # Masks and shifts as a6xx.xml.h and adreno_pm4.xml.h print them.
        (
            a6xx.SP_CS_CTRL_REG0,
            (6,),
            {"threadsize": a6xx.THREAD128, "fullregfootprint": 4, "mergedregs": 1},
            0x80100200,
        ),
        (a6xx.HLSQ_INVALIDATE_CMD, (6,), {"cs_bindless": 0x1F, "gfx_bindless": 0x1F}, 0x7FE00),
        (a6xx.HLSQ_INVALIDATE_CMD, (7,), {"cs_bindless": 0xFF, "gfx_bindless": 0xFF}, 0x1FFFE00),
        (a6xx.SP_CS_CNTL_1, (7,), {"threadsize": 1}, 0x100),
        (adreno_pm4.CP_EVENT_WRITE7_0, (7,), {"event": adreno_pm4.CACHE_CLEAN, "write_enabled": 1}, 0x08000031),
        (adreno_pm4.CP_LOAD_STATE6_0, (6,), {"state_block": adreno_pm4.SB6_CS_SHADER, "num_unit": 1}, 0x00740000),
        (adreno_pm4_control.REG_COMPARE_CP_COND_REG_EXEC_1, (7,), {"reg1": 0x3FFFF}, 0x3FFFF),
    ],
)
def test_a_word_has_the_bits_of_its_generation(word, version, fields, value):
    assert int(word.at(version)(**fields)) == value


def test_opcodes_are_those_of_the_generation():
    assert adreno_pm4.CP_EXEC_CS == 0x33
    assert adreno_pm4.CP_EVENT_WRITE == 0x46
    # adreno_pm4.xml: variants="A7XX-"
    assert adreno_pm4.OPCODES[7,][0x46] == "CP_EVENT_WRITE7"
    assert adreno_pm4.OPCODES[6,][0x46] == "CP_EVENT_WRITE"
    # CP_COND_INDIRECT_BUFFER_PFE ends with a5xx
    assert 0x3A not in adreno_pm4.OPCODES[6,]
    assert adreno_pm4.OPCODES[7,][0x3A] == "CP_CCHE_INVALIDATE"


def test_where_linux_and_mesa_disagree_is_listed(headers):
    rejected = make_qualcomm(headers("linux"), headers("mesa")).rejected
    reasons = {one.name: one.reason for one in rejected}
    assert reasons["A6XX_SP_PS_2D_SRC_PITCH.PITCH"] == "23:9 in Linux, 23:3 in Mesa, which is used"
    assert len(rejected) == 18


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"SP_IBO"', '"SP_GONE"', "a6xx: no register matches SP_GONE"),
        ('"A6XX_UBO"', '"A9XX_UBO"', "no domain matches A9XX_UBO"),
        ('"vgt_event_type"', '"gone_type"', "no enum matches gone_type"),
        ('opcodes = "adreno_pm4', 'opcodes = "gone', "no enum gone_type3_packets"),
        ("registers = [", "rgsters = [", "unexpected keyword argument 'rgsters'"),
        ("doc = ", "doc ", "manifest wanted.toml"),
    ],
)
def test_a_manifest_that_asks_for_what_is_not_there_is_refused(headers, tmp_path, old, new, message):
    manifest = tmp_path / "wanted.toml"
    manifest.write_text(WANTED.read_text().replace(old, new, 1))
    with pytest.raises(HeaderError, match=message):
        make_qualcomm(headers("linux"), headers("mesa"), manifest)
