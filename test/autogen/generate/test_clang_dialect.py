"""The reader takes C as gcc does. It refuses what only another compiler accepts, what never ends and what does not
parse.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ringup.autogen.generate.c import clang, libclang, watch
from ringup.autogen.generate.c.macros import Unreadable
from ringup.autogen.generate.emit.facts import Constant
from ringup.errors import HeaderError


def members(unit, name):
    return [(m.name, m.type.base, m.type.dims, m.offset_bits, m.width_bits) for m in unit.structs[name].members]


def reasons(unit):
    return {rejected.name: rejected.reason for rejected in unit.rejected}


UNSPELT = re.compile(r"__(DEC(32|64|128)|FLT(16|32|64|128)X?)_|__(L?DBL|FLT)_NORM_MAX__|_STDC_PREDEF_H")  # by libclang
STANDING_IN = {"_Float32", "_Float64", "_Float128", "_Float32x", "_Float64x", "__malloc__", "__seg_fs", "__seg_gs"}


def test_the_compiler_defines_by_itself_what_gcc_defines(header, gcc_output):
    asked = subprocess.run(["gcc", "-std=gnu11", "-dM", "-E", "-x", "c", "/dev/null"], capture_output=True, check=True)
    gccs = set(re.findall(r"^#define (\w+)", asked.stdout.decode(), re.MULTILINE))
    macros = clang.read([header("")]).macros
    ours = {definition.name: definition for definition in macros if not UNSPELT.match(definition.name)}
    assert ours.keys() - STANDING_IN - gccs == set()
    assert {name for name in gccs if not UNSPELT.match(name)} - ours.keys() == set()
    numbers = {}
    for name, definition in ours.items():
        with contextlib.suppress(Unreadable):
            if definition.params is None and isinstance(value := macros.value(name), int):
                numbers[name] = value & (1 << 64) - 1
    lines = "".join(f'printf("%s %llu\\n", "{name}", (unsigned long long)({name}));\n' for name in numbers)
    answers = gcc_output(f"#include <stdio.h>\nint main(void) {{ {lines} return 0; }}").split()
    assert dict(zip(answers[::2], map(int, answers[1::2]), strict=True)) == numbers
    assert len(numbers) > 150
    assert {"__GNUC__", "__STDC_HOSTED__", "__INT_FAST16_WIDTH__", "__GXX_ABI_VERSION"} <= numbers.keys()


def test_headers_take_the_branches_that_gcc_takes(header):
    unit = clang.parse([header("""
        #include <stdint.h>
        #ifdef __clang__
        #define CLANG 1
        #endif
        #if defined(__LITTLE_ENDIAN__) || defined(__has_feature)
        #define ODD 1
        #endif
        #define GNU (__GNUC__ >= 12)
        #define NOT_HERE __clang__
        #define WIDE UINT64_C(5)
        struct s { int_fast16_t a; };
    """)])  # fmt: skip
    assert {name: c.value for name, c in unit.constants.items()} == {"GNU": 1, "WIDE": 5}
    assert reasons(unit) == {"NOT_HERE": "unknown identifier __clang__"}
    assert members(unit, "s") == [("a", "i64", (), 0, None)]


@pytest.mark.parametrize("name", ["stdio.h", "stdlib.h", "math.h", "sys/types.h", "pthread.h", "inttypes.h"])
def test_headers_of_the_c_library_can_be_read(name, header):
    system = [Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu")]
    assert clang.parse([header(f"#include <{name}>\n#define A 1\n")], system=system).constants["A"].value == 1


FOREIGN = {
    "an attribute gcc obeys": (
        'struct __attribute__((scalar_storage_order("big-endian"))) s { int a; };',
        "by gcc and not",
    ),
    "a pragma gcc obeys": ("#pragma scalar_storage_order big-endian", "by gcc and not"),
    "ms_struct": ("#pragma ms_struct on", "by libclang and not"),
    "spliced": ("#prag\\\nma /* a */ ms_\\\nstruct on", "by libclang and not"),
    "options": ("#pragma options align=packed", "by libclang and not"),
    "align": ("#pragma align=packed", "by libclang and not"),
    "operator": ('_Pragma("options align=packed")', "by libclang and not"),
    "clang's": (
        '#pragma clang attribute push(__attribute__((annotate("x"))), apply_to = record)\n#pragma clang attribute pop',
        "by libclang and not",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_layout_switch_that_one_compiler_ignores_is_refused(kind, header):
    text, why = FOREIGN[kind]
    with pytest.raises(HeaderError, match=rf"it\.h:2: \w+( attribute)? is obeyed {why}"):
        clang.parse([header(f"#define A 1\n{text}\nstruct t {{ int b; }};\n")])


def test_such_a_switch_in_a_comment_or_a_branch_not_taken_does_no_harm(header):
    unit = clang.parse([header("""
        /* scalar_storage_order, #pragma ms_struct on */
        // #pragma options align=packed
        #define A \\
            1
        #if defined(__clang__)
        #pragma ms_struct on
        #endif
        #pragma pack(push, 1)
        struct s { char a; int b; };
        #pragma pack(pop)
    """)])  # fmt: skip
    assert unit.constants["A"].value == 1
    assert unit.structs["s"].size_bytes == 5


def test_objective_c_gives_structs_enums_and_constants(header):
    unit = clang.parse([header("""
        #define NS_ENUM(_type, _name) enum _name : _type _name; enum _name : _type
        #define kIOReturnBase (0x38 << 26)
        typedef unsigned long NSUInteger;
        typedef NS_ENUM(NSUInteger, Mode) { ModeA = 1, ModeB = 1ul << 40 };
        @class Thing;
        @protocol P - (int)run; @end
        @interface Thing { int hidden; } @property int p; - (void)go:(id)what; @end
        typedef struct { Thing *thing; id any; Mode mode; void (^block)(int); unsigned f:3; } IOThing;
    """, "it.h")], language="objective-c")  # fmt: skip
    assert members(unit, "IOThing") == [
        ("thing", "ptr", (), 0, None), ("any", "ptr", (), 64, None), ("mode", "u64", (), 128, None),
        ("block", "ptr", (), 192, None), ("f", "u32", (), 256, 3),
    ]  # fmt: skip
    assert unit.constants["ModeB"] == Constant("ModeB", 1 << 40, "it.h:5", "Mode")
    assert unit.constants["kIOReturnBase"].value == -0x20000000  # gcc: 0x38 << 26 is int


BAD = {
    "syntax": ("int x;\nstruct { int a \n", r"it\.h:\d+: the header does not parse: "),
    "unknown type": ("\nu32 x;\n", r"it\.h:2: the header does not parse: unknown type name 'u32'"),
    "twice": (
        "struct a { int x; };\nstruct a { long x; };\n",
        r"it\.h:2: the header does not parse: redefinition of 'a'",
    ),
    "include": ('#include "gone.h"\n', r"it\.h:1: the header does not parse: 'gone.h' file not found"),
    "error": ("#error no such chip\n", r"it\.h:1: the header does not parse: .*no such chip"),
    "binary": ("\x00\x01\x02\xff", r"it\.h:1: the header does not parse: "),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_header_that_does_not_parse_is_one_error_with_file_and_line(kind, header):
    text, message = BAD[kind]
    with pytest.raises(HeaderError, match=message):
        clang.parse([header(text)])


def test_a_tolerated_message_lets_the_rest_be_read(header):
    path = header("u32 x;\n#define A 1\n")
    assert clang.parse([path], tolerate=["unknown type name 'u32'"]).constants["A"].value == 1
    with pytest.raises(HeaderError, match="unknown type name 'u32'"):
        clang.parse([path], tolerate=["unknown type name 'u64'"])


def test_a_header_that_is_no_ordinary_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.h")
    with pytest.raises(HeaderError, match=r"pipe\.h: a header is an ordinary file"):
        clang.parse([tmp_path / "pipe.h"])
    with (tmp_path / "vast.h").open("wb") as vast:
        vast.truncate(65 << 20)
    with pytest.raises(HeaderError, match=r"vast\.h: 65 MB are no header; the bound is 64 MB"):
        clang.parse([tmp_path / "vast.h"])


def test_an_include_that_never_ends_is_given_up(header, monkeypatch, tmp_path):
    path = header('#include "pipe.h"\n')
    os.mkfifo(tmp_path / "pipe.h")
    monkeypatch.setattr(watch, "TIME_MAX_S", 0.5)
    try:
        with pytest.raises(HeaderError, match=r"libclang was given up after 0\.5 s"):
            clang.parse([path])
    finally:
        # The write end lets the thread finish.
        os.close(os.open(tmp_path / "pipe.h", os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("kind", ["device", "macros"])
def test_a_header_that_grows_for_ever_is_given_up(kind, header):
    doubling = "".join(f"#define L{n + 1} L{n} + L{n}\n" for n in range(36))
    path = header('#include "/dev/zero"\n' if kind == "device" else f"#define L0 1\n{doubling}#if L36\n#endif\n")
    program = (
        "import sys\nfrom pathlib import Path\nfrom ringup.autogen.generate.c import clang, watch\n"
        "from ringup.errors import HeaderError\nwatch.MEMORY_MAX_BYTES = 200 << 20\n"
        "try:\n    clang.parse([Path(sys.argv[1])])\nexcept HeaderError as error:\n    sys.exit(str(error))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert re.fullmatch(r"libclang was given up when it held \d+ MB: does a header grow for ever\?\n", ran.stderr)


def test_an_option_that_does_not_exist_is_refused(header):
    with pytest.raises(TypeError, match="knows no option inlcude; it knows include, system"):
        clang.parse([header("#define A 1\n")], inlcude=[])


def test_a_missing_header_is_named():
    with pytest.raises(HeaderError, match=r"nowhere/it\.h: there is no such header"):
        clang.parse([Path("nowhere/it.h")])


@pytest.mark.parametrize(("version", "found"), [("99.0.0", "clang version 18.1.1")])
def test_another_libclang_is_refused_with_the_remedy(version, found, monkeypatch):
    monkeypatch.setattr(libclang, "VERSION", version)
    with pytest.raises(
        HeaderError, match=rf"needs libclang {version}: .* is '{found}'; install it with: pip install libclang=="
    ):
        libclang.Library()


def test_no_libclang_is_one_error_that_says_what_was_tried(monkeypatch):
    monkeypatch.setattr(libclang.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        HeaderError, match=r"the package `clang` is not installed; install it with: pip install libclang==18\.1\.1"
    ):
        libclang.Library()


def test_a_damaged_libclang_is_one_error(monkeypatch, tmp_path):
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "libclang.so").write_bytes(b"\x7fELF no more")
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr(libclang.importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(HeaderError, match=r"libclang\.so does not load"):
        libclang.Library()
