"""The committed facts: the same headers give the same bytes, and gcc lays every struct out the same way."""

import importlib
import re
from functools import cache
from pathlib import Path

import pytest

import ringup.autogen
from ringup.autogen import isa
from ringup.autogen.generate import manifest, run
from ringup.autogen.generate.emit import output
from ringup.autogen.generate.emit.facts import Constant, Unit
from ringup.autogen.generate.emit.spelling import member_name, python_name
from ringup.autogen.generate.emit.structs import closure
from ringup.autogen.structs import SCALARS, Struct

FACTS = Path(ringup.autogen.__file__).parent
MODULES = {module.module: module for module in manifest.load().modules}
WITH_STRUCTS = [name for name, module in MODULES.items() if module.structs]
WITH_CONSTANTS = [name for name, module in MODULES.items() if module.constants or module.helpers]
WIDE = {"u128": "u64", "i128": "i64"}


@pytest.fixture(scope="module")
def made(sources):
    """Generate everything but the instruction facts. Those take a minute, and `test/autogen/isa/test_sweep.py` tests
    them.
    """
    everything = manifest.load()
    names = [module.module for module in everything.modules] + [group.name for group in everything.sets]
    made = run.generate(sources, [name for name in names if name != "isa"])
    made.files[output.REJECTED] = output.rejected_table(made.rejected)
    return made


def test_generating_again_gives_the_committed_bytes(made):
    differing = [
        path
        for path, content in made.files.items()
        if not (FACTS / path).is_file() or (FACTS / path).read_bytes() != content
    ]
    assert not differing, (
        "the header packages say something else: run `ringup headers generate` and read the difference"
    )
    assert len(made.files) > len(MODULES)


def test_no_file_is_left_from_an_earlier_manifest(made):
    left = output.leftovers(FACTS, made.files)
    assert left == [f"isa/{target}.tsv" for target in sorted(isa.TARGETS)]


@pytest.mark.parametrize("group", manifest.load().sets, ids=lambda group: group.name)
def test_the_reader_of_every_set_is_there(group):
    module, _, function = group.reader.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_no_fact_names_a_folder_of_this_machine():
    home = str(Path.home())
    for path in FACTS.rglob("*"):
        if path.suffix in (".py", ".bin", ".tsv", ".toml"):
            assert home.encode() not in path.read_bytes(), path


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """The include that the kernel's build strips from its user headers. The C library's package gives gcc the rest."""
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "linux").mkdir()
    (folder / "linux/compiler_types.h").touch()
    return folder


@pytest.fixture(scope="module")
def unit_of(sources):
    """`unit_of(module)` is what its headers define. Each is read only once, for its structs and its constants."""
    return cache(lambda module: run.parse_module(module, sources).unit)


@pytest.mark.parametrize("name", WITH_STRUCTS)
def test_every_committed_struct_is_laid_out_by_gcc_the_same_way(name, sources, unit_of, gcc_layout, stubs):
    module = MODULES[name]
    unit = unit_of(module)
    committed = importlib.import_module(f"ringup.autogen.{name.replace('/', '.')}")
    classes = {
        key: value
        for key, value in vars(committed).items()
        if isinstance(value, type) and issubclass(value, Struct) and value is not Struct
    }
    inside = {
        facts.name: facts for facts in closure(unit, [key for key in unit.structs if python_name(key) in classes])
    }
    assert {python_name(key) for key in inside} == set(classes)

    root = sources.root(module.package)
    uapi = [sources.root("linux") / run.UAPI] if "uapi" in module.types else []
    # The C library defines both byte orders as names of numbers; the kernel defines its own only.
    judged = gcc_layout(
        Unit(structs=inside),
        [root / header for header in module.headers],
        include=[*(root / path for path in module.include), stubs],
        system=uapi,
        defines=module.defines,
        prelude="#undef __BIG_ENDIAN\n" + "".join(run.PRELUDES[kind] for kind in module.types) + module.prelude,
    )
    assert not judged.differences, judged.differences[:5]
    assert judged.structs == len(classes)

    # The class agrees with the facts.
    for key, facts in inside.items():
        rows = classes[python_name(key)].members()
        assert (
            facts.size_bytes,
            facts.align_bytes,
        ) == (classes[python_name(key)].SIZE, classes[python_name(key)].ALIGN)
        for member in facts.members:
            if 0 in member.type.dims and member.offset_bits != facts.size_bytes * 8:
                continue
            row = rows[member_name(member.name)]
            assert (row.byte * 8 + row.bit, row.width) == (member.offset_bits, member.width_bits or 0), (
                f"{key}.{member.name}"
            )
            assert row.base == (
                python_name(member.type.base) if member.type.is_struct else WIDE.get(member.type.base, member.type.base)
            )
            assert row.base in SCALARS or row.base in classes


def directives(header, folder):
    """Copy a header's directives, without includes, and its enums. gcc can read these where the header's structs need
    the kernel.
    """
    text = re.sub(r"/\*.*?\*/", " ", header.read_text("utf-8"), flags=re.DOTALL).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if re.match(r"\s*#(?!\s*include)", line)]
    enums = re.findall(r"^enum\s+\w+\s*\{[^}]*\};", text, re.MULTILINE)
    copy = folder / header.name
    copy.write_text("\n".join([*lines, *enums]) + "\n", "utf-8")
    return copy


@pytest.mark.parametrize("name", WITH_CONSTANTS)
def test_every_committed_constant_has_the_value_gcc_gives_it(name, sources, unit_of, gcc_constants, stubs, tmp_path):
    """The values are integers, and the bits where a helper places its argument. Each name of the module is a name of
    the headers.
    """
    module = MODULES[name]
    unit = unit_of(module)
    committed = importlib.import_module(f"ringup.autogen.{name.replace('/', '.')}")
    values = {
        key: value
        for key, value in vars(committed).items()
        if isinstance(value, (int, float, str, tuple)) and key[:2] != "__"
    }
    asked, seen = {}, set()
    for c_name in (*unit.constants, *unit.helpers):
        key = python_name(c_name)
        if key not in values:
            continue
        seen.add(key)
        value = values[key]
        # A helper gets all ones as its last argument, and zeros as the others.
        if isinstance(value, tuple):
            high, low = value
            flags = "0, " * (len(unit.helpers[c_name].params) - 1)
            c_name, value = f"{c_name}({flags}~0ull)", (2 << high) - (1 << low)
        if isinstance(value, int):
            asked[c_name] = Constant(c_name, value, "")
    assert seen == values.keys()

    root = sources.root(module.package)
    headers = [root / header for header in module.headers]
    defines = "".join(
        f"#define {define.replace('=', ' ', 1) if '=' in define else define + ' 1'}\n" for define in module.defines
    )
    compared, differences = gcc_constants(
        Unit(constants=asked),
        [directives(header, tmp_path) for header in headers] if module.macros_only else headers,
        include=[*(root / path for path in module.include), stubs],
        system=[sources.root("linux") / run.UAPI] if "uapi" in module.types else [],
        prelude=defines + "".join(run.PRELUDES[kind] for kind in module.types) + module.prelude,
    )
    assert differences == []
    assert compared == len(asked) > 0


def test_layouts_named_in_public_documents():
    """Sizes that the hardware's documents and other people's tools state."""
    from ringup.autogen.amd import kfd, mqd, psp
    from ringup.autogen.linux import pci, vfio

    assert (mqd.v11_compute_mqd.SIZE, mqd.v11_sdma_mqd.SIZE, mqd.v9_mqd.SIZE) == (2048, 512, 2048)
    # psp_gfx_if.h: "total size of the structure is 1024 bytes"
    assert psp.psp_gfx_cmd_resp.SIZE == 1024
    # strace of a process that opens the node.
    assert kfd.AMDKFD_IOC_GET_VERSION == 0x80084B01
    assert vfio.VFIO_GET_API_VERSION == 0x3B64
    # PCI Express base specification, resizable BAR capability
    assert pci.PCI_EXT_CAP_ID_REBAR == 0x15
