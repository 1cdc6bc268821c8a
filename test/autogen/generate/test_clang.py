"""Headers become facts. The tests cover every kind of declaration, refusals, and one clear error for a header that does
not parse.
"""

from __future__ import annotations

import signal

import pytest

from ringup.autogen.generate.c import clang, libclang
from ringup.autogen.generate.emit.facts import Constant, Member, TypeRef
from ringup.errors import HeaderError

# Headers that the kernel's build puts beside its user headers.
UAPI_STUBS = {
    "linux/compiler_types.h": "#define __user\n",
    "asm/types.h": "#include <asm-generic/int-ll64.h>\n",
    "asm/posix_types.h": "#include <asm-generic/posix_types.h>\n",
    "asm/bitsperlong.h": "#include <asm-generic/bitsperlong.h>\n",
    "asm/ioctl.h": "#include <asm-generic/ioctl.h>\n",
}


def members(unit, name):
    return [(m.name, m.type.base, m.type.dims, m.offset_bits, m.width_bits) for m in unit.structs[name].members]


def reasons(unit):
    return {rejected.name: rejected.reason for rejected in unit.rejected}


def test_every_kind_of_member_has_its_type_and_place(header):
    unit = clang.parse([header("""
        #include <stdint.h>
        enum small { A, B } __attribute__((packed));
        enum negative { N = -1 };
        enum wide { W = 0x100000000 };
        typedef uint16_t half; typedef half halves[2];
        struct inner { char c; };
        struct s {
            uint8_t a; int8_t b; half c; short d; uint32_t e; int f; uint64_t g; long h;
            float i; double j; _Bool k; char l; unsigned __int128 m;
            void *n; int (*o)(struct s *); struct s *p; enum small q; enum negative r; enum wide s; halves t;
            struct inner u[2][3]; long double v; double _Complex w; int x __attribute__((vector_size(16))); int z[];
        };
    """)])  # fmt: skip
    assert members(unit, "s") == [
        ("a", "u8", (), 0, None), ("b", "i8", (), 8, None), ("c", "u16", (), 16, None), ("d", "i16", (), 32, None),
        ("e", "u32", (), 64, None), ("f", "i32", (), 96, None), ("g", "u64", (), 128, None), ("h", "i64", (), 192, None),
        ("i", "f32", (), 256, None), ("j", "f64", (), 320, None), ("k", "bool", (), 384, None), ("l", "char", (), 392, None),
        ("m", "u128", (), 512, None), ("n", "ptr", (), 640, None), ("o", "ptr", (), 704, None), ("p", "ptr", (), 768, None),
        ("q", "u8", (), 832, None), ("r", "i32", (), 864, None), ("s", "u64", (), 896, None), ("t", "u16", (2,), 960, None),
        ("u", "inner", (2, 3), 992, None), ("v", "u8", (16,), 1152, None), ("w", "f64", (2,), 1280, None),
        ("x", "i32", (4,), 1408, None), ("z", "i32", (None,), 1536, None),
    ]  # fmt: skip
    assert unit.structs["s"].members[20].type == TypeRef("inner", (2, 3), is_struct=True)
    assert unit.structs["inner"].size_bytes == 1


def test_members_of_anonymous_aggregates_are_the_outers_and_tagless_ones_get_its_name(header):
    unit = clang.parse([header("""
        struct outer {
            int first;
            union { struct { short lo, hi; }; int both; };
            struct { int x; struct { char deep; } y[2]; } body;
            struct tagged { long t; } *away;
            union { int a; char b; } pair[3], other;
        };
    """)])  # fmt: skip
    assert members(unit, "outer") == [
        ("first", "i32", (), 0, None), ("lo", "i16", (), 32, None), ("hi", "i16", (), 48, None), ("both", "i32", (), 32, None),
        ("body", "outer__body", (), 64, None), ("away", "ptr", (), 128, None), ("pair", "outer__pair", (3,), 192, None),
        ("other", "outer__pair", (), 288, None),
    ]  # fmt: skip
    assert members(unit, "outer__body") == [("x", "i32", (), 0, None), ("y", "outer__body__y", (2,), 32, None)]
    assert [unit.structs[name].c_name for name in ("outer", "outer__body", "tagged")] == [
        "struct outer",
        "",
        "struct tagged",
    ]
    assert unit.structs["outer__pair"].is_union
    assert list(unit.structs) == ["outer__body__y", "outer__body", "outer__pair", "outer", "tagged"]


def test_typedefs_name_tagless_records_and_alias_others(header):
    unit = clang.parse([header("""
        typedef struct { int a; } Plain;
        typedef struct tag { int b; } Alias, *Pointer;
        typedef Plain Other;
        typedef struct tag Aligned __attribute__((aligned(32)));
        struct { int x; } variable;
        struct incomplete; typedef struct incomplete Incomplete;
    """)])  # fmt: skip
    sizes = {name: (facts.c_name, facts.size_bytes, facts.align_bytes) for name, facts in unit.structs.items()}
    assert sizes == {
        "Plain": ("Plain", 4, 4), "tag": ("struct tag", 4, 4), "Alias": ("Alias", 4, 4), "Other": ("Other", 4, 4),
        "Aligned": ("Aligned", 4, 32),
    }  # fmt: skip
    assert unit.structs["Other"].members == unit.structs["Plain"].members == (Member("a", TypeRef("i32"), 0),)
    assert reasons(unit) == {"record at it.h:6": "it has neither a tag nor a typedef's name"}


def test_bit_fields_keep_their_bits_and_unnamed_ones_only_take_room(header):
    unit = clang.parse([header("""
        struct bits { unsigned a:3; int :5; signed char b:4; int :0; _Bool c:1; unsigned long long d:33; char e:2; };
        struct __attribute__((packed)) tight { char a; int b:7; int c:30; };
    """)])  # fmt: skip
    assert members(unit, "bits") == [
        ("a", "u32", (), 0, 3), ("b", "i8", (), 8, 4), ("c", "bool", (), 32, 1), ("d", "u64", (), 64, 33), ("e", "i8", (), 97, 2),
    ]  # fmt: skip
    assert members(unit, "tight") == [("a", "char", (), 0, None), ("b", "i32", (), 8, 7), ("c", "i32", (), 15, 30)]


def test_bit_fields_on_which_compilers_differ_are_refused_with_all_that_holds_them(header):
    unit = clang.parse([header("""
        #pragma pack(push, 1)
        struct bad { int a:9; int b:3 __attribute__((aligned(4))); struct { int x; } held; };
        #pragma pack(pop)
        struct holder { char c; struct bad member; };
        struct good { int a:9; int b:3 __attribute__((aligned(4))); };
    """)])  # fmt: skip
    assert list(unit.structs) == ["good"]
    why = "bit-field b has an alignment of its own; compilers differ on its place"
    assert reasons(unit) == {"bad": why, "holder": f"member member: bad is not readable: {why}"}


def test_two_records_that_would_share_a_name_are_refused(header):
    unit = clang.parse([header("struct twin { int a; };\ntypedef struct { long b; } twin;\n")])
    assert unit.structs == {}
    assert reasons(unit) == {"twin": "two records of this name differ: at it.h:1 and it.h:2"}


@pytest.mark.parametrize("first", [True, False])
def test_a_name_we_give_that_another_record_has_costs_only_those_that_hold_it(first, header):
    clash = "struct Outer__m { long b; };\n"
    tagless = "struct Outer { struct { int a; } m; };\nstruct Holder { struct Outer o[2]; };\nstruct fine { int x; };\n"
    unit = clang.parse([header(clash if first else "", "a.h"), header(tagless), header("" if first else clash, "b.h")])
    assert list(unit.structs) == ["fine"]
    places = "a.h:1 and it.h:1" if first else "it.h:1 and b.h:1"
    why = f"two records of this name differ: at {places}"
    assert reasons(unit) == {
        "Outer__m": why,
        "Outer": f"member m: Outer__m is not readable: {why}",
        "Holder": f"member o: Outer is not readable: member m: Outer__m is not readable: {why}",
    }


def test_enumerators_have_the_sign_and_enum_they_come_from(header):
    unit = clang.parse([header("""
        enum plain { A, B = -5, C };
        typedef enum { D = 0xffffffffu, E = 0xffffffffffffffff } big;
        enum { F = 7 };
        struct s { enum inner { G = 9 } g; };
        #define A A
        #define H (B * 2)
    """)])  # fmt: skip
    found = {name: (constant.value, constant.enum) for name, constant in unit.constants.items()}
    assert found == {
        "A": (0, "plain"), "B": (-5, "plain"), "C": (-4, "plain"), "D": (0xFFFFFFFF, "big"), "E": (0xFFFFFFFFFFFFFFFF, "big"),
        "F": (7, ""), "G": (9, "inner"), "H": (-10, ""),
    }  # fmt: skip


def test_an_enum_declared_ahead_gives_nothing_and_harms_nothing(header):
    unit = clang.parse([header("""
        enum ahead; enum late;
        struct s { enum ahead *p; enum { IN = 4 } in; };
        enum late { LATE = 3 };
        enum late; struct t { enum late l; };
        #define SIZE sizeof(enum late)
        #define NO_SIZE sizeof(enum ahead)
    """)])  # fmt: skip
    assert {name: c.value for name, c in unit.constants.items()} == {"IN": 4, "LATE": 3, "SIZE": 4}
    assert members(unit, "s") == [("p", "ptr", (), 0, None), ("in", "u32", (), 64, None)]
    assert members(unit, "t") == [("l", "u32", (), 0, None)]
    assert set(reasons(unit)) == {"NO_SIZE"}


@pytest.mark.parametrize(
    "body",
    [
        # gcc keeps A above zero.
        "A = 0xffffffffffffffffULL, B = -1",
        "A = 0x8000000000000000ULL, B = -1",
        "A = 0xffffffffffffffffULL, B",  # gcc: overflow in enumeration values
        "A = 0x7fffffffffffffff, B",
    ],
)
def test_enumerators_that_no_integer_type_holds_are_refused(body, header):
    unit = clang.parse([header(f"enum good {{ G = -7 }};\nenum e {{ {body} }};\n#define C (A + 1)\n")])
    assert {name: c.value for name, c in unit.constants.items()} == {"G": -7}
    why = "no integer type holds all enumerators of its enum; compilers differ on their values"
    assert reasons(unit) == {"A": why, "B": why, "C": f"enumerator A: {why}"}


WALKED = """
    #define A 1
    enum e { B = 2, C };
    struct s { int a; struct { int b, c; } in; enum e d; };
    typedef struct s alias;
"""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_what_is_raised_while_libclang_calls_us_is_not_lost(kind, header, monkeypatch):
    path, keep, calls = header(WALKED), libclang.Library.keep, []
    monkeypatch.setattr(libclang.Library, "keep", lambda self, cursor: calls.append(1) or keep(self, cursor))
    whole = clang.parse([path])
    total = len(calls)

    def failing(self, cursor):
        if not calls:
            raise kind("in the callback")
        calls.pop()
        return keep(self, cursor)

    monkeypatch.setattr(libclang.Library, "keep", failing)
    for allowed in (0, *range(total - 20, total)):
        calls[:] = [1] * allowed
        with pytest.raises(kind, match="in the callback"):
            clang.parse([path])
    calls[:] = [1] * total
    assert clang.parse([path]) == whole


def test_an_interrupt_at_any_moment_ends_the_reading(header):
    text = "".join(f"#define M{n} {n}\nstruct s{n} {{ int a; struct {{ int z; }} q; }};\n" for n in range(2000))
    path = header(text)
    whole, interrupted = clang.parse([path]), 0

    def interrupt(_signal, _frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, interrupt)
    try:
        for step in range(1, 13):
            signal.setitimer(signal.ITIMER_PROF, step * 0.015)
            try:
                unit = clang.parse([path])
                signal.setitimer(signal.ITIMER_PROF, 0)
            except KeyboardInterrupt:
                interrupted += 1
            else:
                assert unit == whole
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert interrupted > 2


def test_the_last_active_definition_counts(header):
    unit = clang.parse([header("""
        #define TWICE 1
        #undef TWICE
        #define TWICE 2
        #define GONE 1
        #undef GONE
        #define MOVED 1
        #define MOVED 3
        #if 0
        #define NEVER 1
        #undef TWICE
        #else
        #define ALWAYS (TWICE + MOVED)
        #endif
        #ifdef GIVEN
        #define SEEN GIVEN
        #endif
        #ifdef MISSING
        #undef ALWAYS
        #endif
    """)], defines=["GIVEN=5"])  # fmt: skip
    assert {name: c.value for name, c in unit.constants.items()} == {"TWICE": 2, "MOVED": 3, "ALWAYS": 5, "SEEN": 5}


def test_an_undef_counts_however_it_is_written(header, tmp_path):
    header("#undef GONE\n", "only_undef.h")
    text = """
        #define GONE 1
        #define A 1
        #define B 1
        #define C 1
        #define D 1
        #define E\\
         1
        #define STAYS 1
        #include "only_undef.h"
        #/* so */undef/* and
        so */A
        %:undef B
        #und\\
ef C
        # undef D // now
        #undef E
        #undef STAYS
        #define STAYS 2
    """
    unit = clang.parse([header(text)], prelude="// caf\u00e9\n")
    assert {name: c.value for name, c in unit.constants.items()} == {"STAYS": 2}
    assert unit.rejected == ()


def test_an_undef_counts_where_the_header_ends_amid_a_declaration(header):
    path = header("#define A 1\n#define B 2\n#undef A\nstruct s { int x;\n")
    assert list(clang.parse([path], tolerate=[".*"]).constants) == ["B"]


def test_a_definition_that_pop_macro_may_bring_back_has_no_value(header):
    unit = clang.parse([header("""
        #define A 1
        #define B (A + 1)
        #define ALIAS A
        #define C 3
        #pragma push_macro("A")
        #undef A
        #define A 2
        #pragma pop_macro("A")
        #define GONE 1
        _Pragma("pop_macro(\\"GONE\\")")
        #undef GONE
    """)])  # fmt: skip
    why = "A: its definition may come back by #pragma pop_macro, which is not followed"
    assert reasons(unit) == {"A": why, "B": why, "ALIAS": why}
    assert {name: c.value for name, c in unit.constants.items()} == {"C": 3}


def test_pop_macro_of_a_computed_name_is_refused(header):
    with pytest.raises(HeaderError, match=r"it\.h: pop_macro of a name that is put together"):
        clang.parse([header("#define DO(x) _Pragma(#x)\n#define POP(x) DO(pop_macro(#x))\n#define A 1\nPOP(A)\n")])


def test_constant_objects_are_constants_with_the_value_gcc_gives_them(header, gcc_constants):
    path = header("""
        enum e { A = 3 };
        static const int K = 5;
        const unsigned M = 6;
        static const unsigned char NARROW = 300;
        const signed char SIGNED = 200;
        static const unsigned long long WIDE = 1ull << 63;
        const long NEGATIVE = -(1l << 40);
        static const enum e E = A;
        static const _Bool B = 7;
        typedef const unsigned short fixed; static fixed F = -1;
        const double HALF = 1 / 2.0;
        static const char *text = "not constant itself";
        int variable = 4;
        extern const int elsewhere;
        static const int TABLE[] = { 1, 2 };
        static const struct s { int a; } S = { 1 };
        static const volatile int PORT = 4;
        static int *const POINTER = &variable;
        static const __int128 HUGE = 1;
    """)  # fmt: skip
    unit = clang.parse([path])
    assert {name: c.value for name, c in unit.constants.items()} == {
        "A": 3, "K": 5, "M": 6, "NARROW": 44, "SIGNED": -56, "WIDE": 1 << 63, "NEGATIVE": -(1 << 40), "E": 3, "B": 1, "F": 0xFFFF,
        "HALF": 0.5,
    }  # fmt: skip
    assert unit.constants["K"] == Constant("K", 5, "it.h:3")
    assert gcc_constants(unit, [path]) == (10, [])
    assert reasons(unit) == {
        "TABLE": "a constant of type const int[2]", "S": "a constant of type const struct s", "PORT": "a volatile object",
        "POINTER": "a constant of type int *const", "HUGE": "a number of more than 64 bits",
    }  # fmt: skip


def test_names_outside_ascii_are_listed(header):
    unit = clang.parse([header("#define \u00b5 5\n#define mu\u00b5(x) 5\n#define k\\u00b5 5\n#define mu 4\n")])
    why = "a name with letters outside ASCII"
    assert reasons(unit) == {"\u00b5": why, "mu\u00b5": why, "k\\u00b5": why}
    assert {name: c.value for name, c in unit.constants.items()} == {"mu": 4}


def test_macros_continue_over_lines_and_comments(header):
    text = '#define A 1 + \\\n  2\n#define B 3 /* over\n lines */\n#define C "x" \\\n "y" // no\n#define D(a, \\\n b) a + b\n'
    unit = clang.parse([header(text)])
    assert {name: (c.value, c.where) for name, c in unit.constants.items()} == {
        "A": (3, "it.h:1"), "B": (3, "it.h:3"), "C": ("xy", "it.h:5"),
    }  # fmt: skip
    assert unit.helpers["D"].params == ("a", "b")


def test_what_a_macro_cannot_be_is_listed_and_never_run(header, tmp_path):
    proof = tmp_path / "ran"
    unit = clang.parse([header(f"""
        #define SHELL system("touch {proof}")
        #define PYTHON __import__('os').system('touch {proof}')
        #define GUARD
        #define CALL(x) nowhere(x)
    """)])  # fmt: skip
    assert unit.constants == {}
    assert unit.helpers == {}
    assert set(reasons(unit)) == {"SHELL", "PYTHON", "GUARD", "CALL"}
    assert reasons(unit)["SHELL"] == "calls system, which is no macro"
    assert not proof.exists()


def test_wanted_names_bring_what_they_contain_and_nothing_else(header):
    path = header("""
        struct in { int a; }; struct out { struct in b; }; struct no { int c; };
        #define YES_A 1
        #define NO_A 2
        enum { YES_B = 3, NO_B = 4 };
    """)
    unit = clang.parse(
        [path], want_structs=lambda name: name == "out", want_constants=lambda name: name.startswith("YES")
    )
    assert list(unit.structs) == ["in", "out"]
    assert {name: c.value for name, c in unit.constants.items()} == {"YES_A": 1, "YES_B": 3}
    assert unit.rejected == ()


def test_facts_come_from_chosen_files_and_use_all_others(header, tmp_path):
    header("#define BASE 0x100\nstruct base { int a; };\n", "base.h")
    top = header(
        '#include "base.h"\n#include <deep.h>\n#define TOP (BASE + DEEP + LOCAL)\nstruct top { struct base b; };\n',
        "top.h",
    )
    deep = tmp_path / "system"
    deep.mkdir()
    (deep / "deep.h").write_text("#define DEEP 7\nstruct deep { int d; };\n")
    everything = clang.parse([top], include=[tmp_path], system=[deep], prelude="#define LOCAL 1\n")
    assert list(everything.constants) == ["BASE", "TOP"]
    assert everything.constants["TOP"] == Constant("TOP", 0x108, "top.h:3")
    assert list(everything.structs) == ["base", "top"]
    only = clang.parse([top], include=[tmp_path], system=[deep], prelude="#define LOCAL 1\n", from_files=[top])
    assert (list(only.constants), list(only.structs)) == (["TOP"], ["base", "top"])


def test_helpers_can_be_called_after_the_parse(header):
    reading = clang.read([header("struct s { int a[3]; };\n#define REG(i) (sizeof(struct s) * (i))\n")])
    assert list(reading.unit.helpers) == ["REG"]
    assert reading.macros.call("REG", 4) == 48


def test_facts_do_not_depend_on_the_folder(header, tmp_path):
    text = "struct s { int a; struct { int b; } c; };\n#define A 1\nstruct { int q; } v;\n#define BAD nope\n"
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "it.h").write_text(text)
    assert clang.parse([header(text)]) == clang.parse([other / "it.h"])


def test_kernel_user_headers_are_what_gcc_makes_of_them(headers, gcc_layout, gcc_constants, tmp_path):
    uapi = headers("linux") / "include/uapi"
    for name, body in UAPI_STUBS.items():
        (tmp_path / "stubs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "stubs" / name).write_text(body)
    wanted = [uapi / name for name in ("linux/kfd_ioctl.h", "drm/amdgpu_drm.h", "drm/msm_drm.h", "linux/vfio.h")]
    unit = clang.parse(wanted, include=[uapi], stubs=UAPI_STUBS)
    judged = gcc_layout(unit, wanted, system=[tmp_path / "stubs", uapi])
    assert judged.differences == []
    assert judged.structs > 250
    count, differences = gcc_constants(unit, wanted, system=[tmp_path / "stubs", uapi])
    assert differences == []
    assert count > 1000
    assert unit.constants["AMDKFD_IOC_GET_VERSION"].value == 0x80084B01


def test_queue_descriptors_lie_as_gcc_lays_them(headers, gcc_layout):
    folder = headers("linux") / "drivers/gpu/drm/amd/include"
    wanted = [folder / f"v{version}_structs.h" for version in (9, 11, 12)]
    prelude = "#include <stdint.h>\n"
    unit = clang.parse(wanted, prelude=prelude)
    assert gcc_layout(unit, wanted, prelude=prelude).differences == []
    assert unit.structs["v11_compute_mqd"].size_bytes == 2048
    assert unit.structs["v11_sdma_mqd"].size_bytes == 512


@pytest.mark.parametrize("release", ["nvidia-535", pytest.param("nvidia-555", marks=pytest.mark.fuzz)])
def test_nvidia_headers_are_what_gcc_makes_of_them(release, headers, gcc_layout, gcc_constants):
    root = headers(release)
    sdk = root / "src/common/sdk/nvidia/inc"
    wanted = [sdk / "nvos.h", *sorted(sdk.glob("class/cl*.h")), *sorted(sdk.glob("ctrl/ctrl*/*.h"))]
    wanted.append(root / "kernel-open/nvidia-uvm/uvm_ioctl.h")
    include = [sdk, root / "kernel-open/common/inc"]
    unit = clang.parse(wanted, include=include)
    judged = gcc_layout(unit, wanted, include=include)
    assert judged.differences == []
    assert judged.structs > 1500
    count, differences = gcc_constants(unit, wanted, include=include, prelude="#define MW(range) range\n")
    assert differences == []
    assert count > 80_000
