"""The Adreno XML reader compared with gen_header.py of Mesa and Linux, which prints C headers from the same files."""

import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from ringup.autogen.generate.qualcomm.rnn import SCALARS, read, variant_names
from ringup.autogen.generate.qualcomm.rnn_xml import MAX_DEPTH, parse
from ringup.errors import HeaderError

FILES = ("a2xx", "a3xx", "a4xx", "a5xx", "a6xx", "a6xx_gmu", "adreno_common", "adreno_pm4")
CASES = (
    *((("linux", "drivers/gpu/drm/msm/registers"), name) for name in FILES),
    *((("mesa", "src/freedreno/registers"), name) for name in (*FILES, "adreno_control_regs", "adreno_pipe_regs")),
)
# REG_COMPARE_ is not a register but a field of a packet whose variant is REG_COMPARE
REGISTER = re.compile(
    r"#define REG_(?!COMPARE_)(\w+)(?:\(\w[\w, ]*\))?\s+\(?(0x[0-9a-f]+)((?: \+ 0x[0-9a-f]+\*i\d)*)\s*\)?$"
)
FUNCTION = re.compile(
    r"static inline .*uint32_t REG_(\w+)\(.*\) \{ return (0x[0-9a-f]+)((?: \+ 0x[0-9a-f]+\*i\d)*); \}"
)
NUMBER = re.compile(r"#define (?!REG_(?!COMPARE_))(\w+?)(__MASK|__SHIFT)?\s+(0x[0-9a-f]+|\d+)$")
ENUM = re.compile(r"enum (\w+) \{\n(.*?)\};", re.DOTALL)
VALUE = re.compile(r"\t(\w+) = (\w+),")

# gen_header.py gives these registers all 32 bits. They state `high` and no `low`; gen_header.py reads both or none.
HIGH_ALONE = {"RB_MRT_PITCH": (0x0000FFFF, 0), "RB_MRT_ARRAY_PITCH": (0x1FFFFFFF, 0)}
# gen_header.py gives this enumerator the number 0, because it has no value=. We list it as rejected.
NO_VALUE = {("pc_di_index_size", "INDEX_SIZE_INVALID")}


def c_header(root: Path, name: str) -> str:
    """Run the tree's own generator."""
    command = [
        sys.executable,
        str(root / "gen_header.py"),
        "--rnn",
        str(root),
        "--xml",
        str(root / f"adreno/{name}.xml"),
    ]
    done = subprocess.run([*command, "c-defines"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0][0]}-{case[1]}")
def case(request, headers):
    (package, folder), name = request.param
    root = headers(package) / folder
    database = read(root, (f"adreno/{name}.xml",))
    own = [register for register in database.registers if register.where.startswith(f"{name}.xml:")]
    return name, database, own, c_header(root, name), (root / f"adreno/{name}.xml").read_text()


def c_names(register) -> list[str]:
    """How the C header may spell a register: with its domain, or with a variant in front or instead of the domain."""
    firsts = [re.split(r"[-,]", condition.variants)[0] for condition in register.conditions]
    domains = [register.domain, *(f"{first}_{register.domain}" for first in firsts), *firsts]
    return [f"{domain}_{register.name}" for domain in domains]


def strides_of(register) -> tuple[int, ...]:
    """Return the strides of the arrays around a register. gen_header.py prints none for an array of one element."""
    return tuple(dimension.stride for dimension in register.dimensions if dimension.count != 1)


def test_every_register_has_the_place_that_gen_header_prints_and_no_other_is_printed(case):
    _, _, own, header, _ = case
    printed = defaultdict(Counter)
    for line in header.splitlines():
        match = REGISTER.match(line) or FUNCTION.match(line)
        if match:
            name, base, rest = match.groups()
            printed[name][int(base, 16), tuple(int(n, 16) for n in re.findall(r"(0x[0-9a-f]+)\*", rest))] += 1
    left = {(name, place): count for name, places in printed.items() for place, count in places.items()}
    for register in own:
        place = (register.offset, strides_of(register))
        name = next((name for name in reversed(c_names(register)) if left.get((name, place))), None)
        assert name, f"{register.where}: none of {c_names(register)} is printed at {place}"
        left[name, place] -= 1
    # gen_header.py also prints an array that holds registers, under the first part of their names and with its strides.
    arrays = {
        (name[: match.start()], strides_of(register))
        for register in own
        if register.dimensions
        for name in c_names(register)
        for match in re.finditer("_", name)
    }
    unknown = [
        (name, place) for (name, place), count in left.items() if count and (name.rstrip("_"), place[1]) not in arrays
    ]
    assert not unknown


def test_every_field_has_the_bits_that_gen_header_prints_and_no_other_is_printed(case):
    name, database, own, header, text = case
    numbers = defaultdict(list)
    for line in header.splitlines():
        match = NUMBER.match(line)
        if match:
            macro, kind, number = match.groups()
            numbers[macro, kind].append(int(number, 0))
    printed = defaultdict(set)
    for (macro, kind), values in numbers.items():
        if kind == "__MASK":
            shifts = numbers[macro, "__SHIFT"]
            printed[macro] |= set(zip(values, shifts, strict=True))
        elif kind is None:
            printed[macro] |= {
                (value, value.bit_length() - 1) for value in values if value & (value - 1) == 0 and value
            }
    met = defaultdict(set)
    untyped = 0
    for register in own:
        owners = c_names(register) + ([register.bitset] if register.bitset else [])
        for bits in register.fields:
            if not bits.name and not bits.type:
                # gen_header.py prints a register's own bits only if the register has a type.
                untyped += 1
                continue
            if not bits.name and bits.lo == 0 and bits.shr == 0 and bits.type not in ("float", "fixed", "ufixed"):
                # gen_header.py prints nothing for a field that is the whole register.
                continue
            place = ((1 << bits.hi + 1) - (1 << bits.lo), bits.lo)
            macros = [f"{owner}_{bits.name}" if bits.name else owner for owner in owners]
            if name == "a6xx" and register.name in HIGH_ALONE:
                assert place == HIGH_ALONE[register.name]
                met[f"A6XX_{register.name}"].add((0xFFFFFFFF, 0))
                continue
            hits = [macro for macro in macros if place in printed.get(macro, ())]
            if not hits and register.bitset and not header_has(header, register.bitset):
                # A bitset of an imported file is printed with that file.
                continue
            assert hits, f"{register.where}: {macros} not printed as {place}: {[printed.get(m) for m in macros]}"
            for macro in hits:
                met[macro].add(place)
    stated = re.findall(r"<reg(?:32|64)(?![^>]* type=)[^>]* (?:high|low|pos|shr)=", text)
    assert untyped == len(stated)
    for bitset, fields in database.bitsets.items():
        for bits in fields:
            met[f"{bitset}_{bits.name}"].add(((1 << bits.hi + 1) - (1 << bits.lo), bits.lo))
    unknown = {macro: places - met[macro] for macro, places in printed.items() if places - met[macro]}
    assert not unknown


def header_has(header: str, bitset: str) -> bool:
    """Tell whether a bitset's macros are printed in this header."""
    return f"#define {bitset}_" in header


def test_every_enum_has_the_values_that_gen_header_prints(case):
    _, database, _, header, _ = case
    for enum, body in ENUM.findall(header):
        printed = [(name, int(value, 0)) for name, value in VALUE.findall(body) if (enum, name) not in NO_VALUE]
        assert [(value.name, value.value) for value in database.enums[enum]] == printed


def test_the_only_thing_not_read_of_either_tree_is_an_enumerator_without_a_value(headers):
    for package, folder in (("linux", "drivers/gpu/drm/msm/registers"), ("mesa", "src/freedreno/registers")):
        database = read(headers(package) / folder, tuple(f"adreno/{name}.xml" for name in FILES))
        assert [(one.name, one.reason) for one in database.rejected] == [
            ("INDEX_SIZE_INVALID", "no value= in enum pc_di_index_size")
        ]
        types = {bits.type for register in database.registers for bits in register.fields} - {""}
        assert types <= SCALARS | database.enums.keys()


CHIPS = ["A2XX", "A3XX", "A4XX", "A5XX", "A6XX", "A7XX"]


@pytest.mark.parametrize(
    ("text", "chips"),
    [
        ("A6XX", "A6XX"),
        ("A6XX-", "A6XX A7XX"),
        ("-A3XX", "A2XX A3XX"),
        ("A3XX-A5XX", "A3XX A4XX A5XX"),
        ("A3XX:A5XX", "A3XX A4XX"),
        (":A3XX", "A2XX"),
        ("A2XX,A6XX-", "A2XX A6XX A7XX"),
        ("A2XX A4XX", "A2XX A4XX"),
    ],
)
def test_a_variant_range_names_these_chips(text, chips):
    assert variant_names(text, CHIPS) == chips.split()


@pytest.mark.parametrize("text", ["A8XX", "A6XX-A8XX", "-", "", "A6XX--A7XX"])
def test_a_variant_range_without_meaning_is_refused(text):
    with pytest.raises(HeaderError, match="has no meaning among A2XX"):
        variant_names(text, CHIPS)


HEAD = '<?xml version="1.0"?>\n'
SPACE = 'xmlns="http://nouveau.freedesktop.org/"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not well-formed XML"),
        (f"<database {SPACE}>", "x.xml:1: not well-formed XML"),
        ("<database/>", "not of http://nouveau"),
        (f"<domain {SPACE}/>", "the root is <domain>"),
        (f'{HEAD}<!DOCTYPE a SYSTEM "file:///etc/passwd"><database {SPACE}/>', "x.xml:2: a document type is refused"),
        (f'{HEAD}<!DOCTYPE a [<!ENTITY b "c">]><database {SPACE}>&b;</database>', "a document type is refused"),
        (f"<database {SPACE}>" + "<doc>" * MAX_DEPTH + "</doc>" * MAX_DEPTH + "</database>", "levels"),
        (f'<database {SPACE}><enum name="{"a" * 5000}"/></database>', "over 4096 characters"),
    ],
)
def test_a_hostile_file_is_refused_with_its_name(text, message):
    with pytest.raises(HeaderError, match=message):
        parse(text.encode(), "x.xml")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('<import file="../up.xml"/>', "leads out of the register folder"),
        ('<import file="gone.xml"/>', "wants register file gone.xml"),
        ('<domain name="D"><reg32 offset="5"/></domain>', "x.xml:1: <reg32> without name="),
        ('<domain name="D"><reg32 name="R" offset="1e3"/></domain>', "offset='1e3' of <reg32> is no number"),
        ('<domain name="D"><reg32 name="R" offset="-1"/></domain>', "not within 32 bits"),
        ('<domain name="D"><reg32 name="R S" offset="1"/></domain>', "no identifier"),
        ('<domain name="D"><reg32 name="R" offset="1"><bitfield name="F" low="5" high="4"/></reg32></domain>', "4:5"),
        ('<domain name="D"><reg32 name="R" offset="1"><bitfield name="F" pos="32"/></reg32></domain>', "32:32"),
        ('<domain name="D"><array name="A" offset="0" stride="1" length="99999999"/></domain>', "99999999 elements"),
        ('<domain name="D"><array name="A" offsets="1,2" stride="1" length="3"/></domain>', "2 offsets of 3"),
        ('<enum name="E"><value name="A" value="1"/></enum><enum name="E"/>', "second time"),
    ],
)
def test_a_file_with_nonsense_is_refused_at_its_line(tmp_path, body, message):
    (tmp_path / "x.xml").write_text(f"<database {SPACE}>{body}</database>")
    with pytest.raises(HeaderError, match=message):
        read(tmp_path, ("x.xml",))
