"""Macros have the value, width and sign that gcc computes for them. A macro without a value gives its reason."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringup.autogen.generate.c import clang
from ringup.autogen.generate.c import macros as macros_module
from ringup.autogen.generate.c.macros import Macros, Unreadable
from ringup.autogen.generate.emit.facts import BitRange

HELPERS = """
#include <stddef.h>
typedef unsigned int NvU32;
typedef unsigned long long __u64;
typedef signed char s8_t;
typedef struct { char head; int body; } pair_t;
struct point { int x, y; long long z; };
struct deep { char c; struct { short a; struct point p[3]; } in; union { int whole; unsigned char part[6]; }; int bits : 3; };
union both { int i; double d; };
enum colour { RED, GREEN = 7, BLUE = -2 };
enum big { BIG = 0x100000000, BIGGER = 0xffffffffffffffff };
typedef enum colour colour_t;
#define ONE 1
#define TWO (ONE + ONE)
#define ALIAS TWO
#define ADD(a, b) ((a) + (b))
#define TWICE(x) ADD(x, x)
#define CAT(a, b) a##b
#define CAT2(a, b) CAT(a, b)
#define STR(x) #x
#define XSTR(x) STR(x)
#define FIRST(a, ...) a
#define COUNT3(a, b, c, n, ...) n
#define HOW_MANY(...) COUNT3(__VA_ARGS__, 3, 2, 1)
#define GNU(fmt, args...) HOW_MANY(fmt, ## args)
#define EMPTY
#define ID(x) x
#define BIT(n) (1u << (n))
#define BIT_ULL(n) (1ull << (n))
#define GENMASK(h, l) (((~0ul) - (1ul << (l)) + 1) & (~0ul >> (63 - (h))))
#define HI_LO 23:16
#define HIGH(range) (1 ? range)
#define LOW(range) (0 ? range)
#define PACKET3(op, n) ((3u << 30) | (((op) & 0xFF) << 8) | ((n) & 0x3FFF) << 16)
#define PREFIX_A 10
#define PREFIX_B CAT(PREFIX, _A)
#define f(a) a*g
#define g(a) f(a)
#define container(t, m) ((size_t) & ((t *)0)->m)
#define _IOC_(dir, type, nr, size) (((dir) << 30) | ((type) << 8) | ((nr) << 0) | ((size) << 16))
#define IOWR_(type, nr, t) _IOC_(3U, (type), (nr), (sizeof(t)))
"""

FORMS = r"""
0 | 1 | 42 | 2147483647 | 2147483648 | 4294967295 | 4294967296 | 9223372036854775807
0x7fffffff | 0x80000000 | 0xFFFFFFFF | 0x100000000 | 0x7fffffffffffffff | 0x8000000000000000
0xffffffffffffffff
0b101 | 0B1111u | 017 | 0777 | 00 | 037777777777 | 020000000000 | 1u | 1U | 1l | 1L | 1ul | 1LU | 1ll | 1LL
1ull | 1LLU | 0x10uLL
0x80000000l | 4294967296u | 0xffffffffffu | 0XAB | 0xdeadBEEF
1.0 | 1.5f | .5 | 5. | 1e3 | 1E-3 | 2.5e+2 | 0x1p4 | 0x1.8p3 | 0x.8p1f | 1.5L | 3.0e0F | 0.1f | 0.1 | 1e10f
'a' | '\n' | '\0' | '\x41' | '\xff' | '\377' | '\\' | '\'' | '"' | '\"' | 'ab' | 'abcd' | '\e' | '\a' | '\?'
L'x' | L'\xffff' | u'\xffff' | U'\U0001F600' | '\x80'
(1) | ((((7)))) | ( 0x20 ) | (5u) | +5 | -5 | - 5 | -5u | -2147483648 | -0x80000000 | (-1) | ~0 | ~0u | ~0ul
~0ull | ~5 | !0 | !7 | !!3 | - -3 | -~1 | ~-1 | !1.5
1+2*3 | (1+2)*3 | 10-4-3 | 7/2 | -7/2 | 7%3 | -7%3 | 7%-3 | -7u/2 | 100/7*7 | 1<<4 | 1<<31 | 1u<<31 | 1ll<<40
1ul<<63 | 0xff>>4 | -1>>1 | -1u>>1 | -8>>1 | 1<<2+1 | 3<<2u | 1<<3ll
6&3 | 6|3 | 6^3 | 1|2&3^4 | 0xf0&~0x10 | 1==1 | 1!=1 | 2>1 | 2<1 | 2>=2 | 2<=1 | -1<0u | -1<1l | -1>0ul
-1ll<0u | 1<2==1 | 5&4==4
1&&0 | 1||0 | 0||0 | 2&&3 | 0&&(1/0) | 1||(1/0) | 1?2:3 | 0?2:3 | 1?2:3u | 0?-1:1u | 1?1:1.5 | 0?1/0:5
1?2:0?3:4 | 0?1:0?3:4 | (1,2) | (1,2,3)+1 | 1?:9 | 0?:9
1.5+1 | 1.5f*2 | 1/2.0 | 1.0/3 | 1.0f/3 | 7/2.0f | 1.5<2 | 1.5==1.5 | (int)1.9 | (int)-1.9
(unsigned char)255.5 | (float)1/3 | (double)1/3 | (long)3e9 | -1.5 | 2.5-1.5f
0x7fffffff+1 | 0xffffffff+1 | 0xffffffffu*2 | 2147483647*2 | 0u-1 | 0ul-1 | 1000000*1000000 | 1000000ll*1000000
65535*65535 | 0x7fffffffffffffff+1
(char)200 | (signed char)200 | (unsigned char)-1 | (short)0x18000 | (unsigned short)-1 | (int)0xffffffff
(unsigned)-1 | (unsigned int)-1 | (long)-1 | (unsigned long)-1 | (long long)1 | (unsigned long long)-1
(long unsigned int)-1 | (int unsigned)-1 | (long int long unsigned)-1 | (signed)-1 | (short int)70000
(const int)5 | (volatile unsigned)6 | (_Bool)5 | (_Bool)0.5 | (NvU32)-1 | (__u64)1<<40 | (s8_t)200 | (colour_t)3
(enum colour)3
(unsigned char)300+1 | (char)1<<8 | -(unsigned char)1 | ~(unsigned char)0 | (unsigned short)1-2 | (NvU32)(1<<31)
(__u64)(1<<31) | (int)(char)'\xff' | -(NvU32)1 | ~(NvU32)0 | (_Bool)2+(_Bool)3
(unsigned long)(void*)0x10 | (unsigned long)(void *)-1 | (long)(int *)8 | (unsigned long)((char*)0+5)
(unsigned long)((int*)0+5) | (int*)16-(int*)8 | (void*)0==0 | !(void*)1 | (unsigned long)(void (*)(int, char))7
sizeof(int) | sizeof(char) | sizeof(short) | sizeof(long) | sizeof(long long) | sizeof(void*) | sizeof(int*)
sizeof(double) | sizeof(float) | sizeof(long double) | sizeof(_Bool) | sizeof(NvU32) | sizeof(pair_t)
sizeof(struct point)
sizeof(struct point[3]) | sizeof(union both) | sizeof(enum colour) | sizeof(colour_t) | sizeof(enum big)
sizeof(int[4]) | sizeof(int[2][3]) | sizeof(int(*)(void)) | sizeof 1 | sizeof 1ll | sizeof(1+1l) | sizeof 'a'
sizeof("abc") | sizeof "a" "bc" | sizeof(L"ab")
sizeof((char)1) | sizeof((char)1+1) | sizeof(((struct point *)0)->z) | sizeof(((struct deep*)0)->in)
sizeof(((struct deep*)0)->in.p) | sizeof(((struct deep*)0)->in.p[0].x) | sizeof(((struct deep*)0)->part)
sizeof(1/0) | sizeof(struct point)*2+1 | sizeof(pair_t)/sizeof(int) | sizeof(__int128) | sizeof(unsigned[ONE+2])
_Alignof(int) | _Alignof(long long) | _Alignof(struct point) | __alignof__(double) | _Alignof(pair_t)
_Alignof(char[8]) | sizeof(__typeof__(1ll)) | (__typeof__(1u))-1 | sizeof(typeof(struct point))
offsetof(struct point, z) | offsetof(struct deep, in) | offsetof(struct deep, in.p)
offsetof(struct deep, in.p[2]) | offsetof(struct deep, in.p[1].z) | offsetof(struct deep, part[3])
offsetof(pair_t, body) | __builtin_offsetof(struct point, y) | container(struct point, y)
container(struct deep, in.p[1].y) | (size_t)&((struct deep*)64)->whole
RED | GREEN | BLUE | BIG | BIGGER | GREEN+1 | BLUE*2 | (unsigned)BLUE | BIG>>4 | ~RED | GREEN<<8|BLUE
ONE | TWO | ALIAS | TWO*TWO | ADD(1,2) | ADD(ADD(1,2),ADD(3,4)) | TWICE(TWICE(3)) | ADD((1,2),3) | ADD (1 , 2)
CAT(1,2) | CAT(0x,ff) | CAT(ON,E) | CAT2(ONE,ONE) | CAT2(TW,O) | PREFIX_B | CAT(1,) | CAT(,7)
FIRST(4) | FIRST(4,5,6) | HOW_MANY(a) | HOW_MANY(a,b) | HOW_MANY(a,b,c) | GNU(x) | GNU(x,y) | GNU(x,y,z)
ID(EMPTY 5) | ID((5)) | ID(ADD)(1,2) | BIT(31) | BIT(0)|BIT(3) | BIT_ULL(40) | GENMASK(7,4)
GENMASK(63,0)
HIGH(HI_LO) | LOW(HI_LO) | HIGH(31:0) | LOW(15:8) | ((1?HI_LO)-(0?HI_LO)+1)
0xFFFFFFFF>>(31-((1?HI_LO)%32)+((0?HI_LO)%32)) | PACKET3(0x76,2) | PACKET3(0x10,0x3fff)
IOWR_('F',0x2a,struct point) | IOWR_('d',1,pair_t) | _IOC_(2u,'K',3,sizeof(union both))
IOWR_(70, ONE+41, int[4])
sizeof(STR(a b)) | sizeof(XSTR(TWO)) | sizeof(STR("q\n")) | sizeof(STR( a   +  b )) | sizeof(STR('"'))
sizeof(STR())
1 /* one */ + /* two */ 2 | 3 // three | 1 + \
2 | (0x20800101) /* finn: Evaluated from "(A << 8)|1" */
__extension__ 5 | (int)+1 | (int)-1 | (int)~1 | (NvU32)(sizeof(int)) | (unsigned)sizeof(long)<<2 | 1 ?(2):(3)
(0x1F<<0)|(3<<5)
__INT_MAX__ | __CHAR_BIT__ | __LONG_MAX__ | __SIZEOF_POINTER__ | (unsigned short)0xffff*(unsigned short)0xffff
1u-2u>0 | 'a'+1
"""
TEXTS = {
    '"abc"': "abc",
    '"a" "b"': "ab",
    '"tab\\t\\x41\\101\\n"': "tab\tAA\n",
    '""': "",
    'STR(a + b)': "a + b",
    'XSTR(TWO)': "(1 + 1)",
    'STR("q\\n")': '"q\\n"',
    '"/* no comment */ // none"': "/* no comment */ // none",
    'L"wide" "r"': "wider",
    '"pre" XSTR(ONE) "post"': "pre1post",
}  # fmt: skip
RANGES = {
    "31:0": (31, 0),
    "(31:0)": (31, 0),
    "( (7:4) )": (7, 4),
    "5:5": (5, 5),
    "MW(31:0)": (31, 0),
    "MW((3)*32+7:(3)*32)": (103, 96),
    "(2)*32+7:(2)*32": (71, 64),
    "(1?3:2):(0?3:2)": (3, 2),
    "HI_LO": (23, 16),
    "ID(HI_LO)": (23, 16),
    "(0x1f):(0x10)": (31, 16),
    "0x1f:0x10": (31, 16),
    "TWO+1:ONE": (3, 1),
    "15:8 /* bits */": (15, 8),
}
REFUSED = {
    'system("rm -rf /")': "calls system, which is no macro",
    "unknown_name": "unknown identifier unknown_name",
    "": "the body is empty",
    "do { x(); } while (0)": "do is no expression",
    "{ 1, 2 }": "an initialiser",
    "1, 2": "a list",
    "1 / 0": "divides by zero",
    "1 % 0": "divides by zero",
    "1.0 / 0": "divides by zero",
    "1 << 99999": "shifts 32 bits by 99999",
    "1 << 9999999999999999999u": "shifts 32 bits by",
    "9999999999999999999": "is too large",
    "1 << 32": "shifts 32 bits by 32",
    "1ull << 64": "shifts 64 bits by 64",
    "1 << -1": "shifts 32 bits by -1",
    "(1": "')' is missing",
    "1)": "does not continue",
    "1 +": "breaks off",
    "* 3": "no pointer",
    "1 2": "does not continue",
    "0x1e+1": "is no number",
    "09": "is no number",
    "1.2.3": "is no number",
    "0xg": "is no number",
    "1lll": "is no number",
    "0xfffffffffffffffff": "is too large",
    "1e999": "not finite",
    "__attribute__((packed))": "__attribute__ is no expression",
    "struct point": "a type",
    "NvU32": "a type",
    "unsigned long": "a type",
    "ADD(1)": "ADD takes 2 arguments, not 1",
    "ADD(1,2,3)": "ADD takes 2 arguments, not 3",
    "ADD(1,2": "no closing parenthesis",
    "ADD": "function-like macro ADD without arguments",
    "SELF": "stands for itself",
    "PING": "stands for itself",
    "ID(ID)(6)": "calls ID",
    "f(2)(9)": "unknown identifier",
    "(struct point){1, 2, 3}": "a compound literal",
    "({ 1; })": "a statement",
    "x = 5": "unknown identifier x",
    "RED = 5": "does not continue",
    "++RED": "changes a variable",
    "RED++": "changes a variable",
    "sizeof(struct nowhere)": "has no size",
    "sizeof(nowhere)": "unknown identifier nowhere",
    "offsetof(struct point, w)": "has no member w",
    "offsetof(struct deep, bits)": "bit-field",
    "((struct point *)0)->x": "reads memory",
    "*(int *)0x1000": "reads memory",
    '"abc"[0]': "string",
    "(int)\"abc\"": "string",
    "CAT(+, /)": "which is no token",
    "`ls`": "stray '`'",
    "@foo": "stray '@'",
    "'": "stray",
    '"open': "stray",
    "$(id)": "calls $",
    "0:31": "runs the wrong way",
    "-1:0": "runs the wrong way",
    "1:0x04": "a byte number and a mask",
    "1.5:0": "no integers",
    "1:2:3": "does not continue",
    "1 ? 2": "':' is missing",
    "2.5 % 2": "% between floating-point",
    "~1.5": "~ before double",
    "(int *)1.5": "a cast",
    "1.5 << 1": "<< between floating-point",
    "1e300 * 1e300": "not finite",
    "(int)1e30": "does not fit int",
    "-2147483647 - 1 == 0 ? 1 : (-2147483647 - 1) / -1": "overflows int",
    "_Pragma(\"once\")": "_Pragma is no expression",
    "asm volatile(\"int3\")": "asm is no expression",
    "__import__('os')": "calls __import__",
    "goto out": "goto is no expression",
    "[0]": "does not start",
    "EMPTY": "the body is empty",
}  # fmt: skip


def split(forms: str) -> list[str]:
    """Return the table's forms. A `|` between blanks separates them, so C's own `|` and `||` are written without
    blanks.
    """
    text = forms.strip().replace("\\\n", "\\\a")
    return [
        form.strip().replace("\\\a", "\\\n") for line in text.split("\n") for form in line.split(" | ") if form.strip()
    ]


ALL_FORMS = split(FORMS)


@pytest.fixture(scope="module")
def macros(tmp_path_factory):
    """Return the table's forms as macros FORM_0…, read from a real header."""
    forms = [*ALL_FORMS, *TEXTS, *RANGES, *REFUSED]
    lines = [f"#define FORM_{at} {form}" for at, form in enumerate(forms)]
    header = tmp_path_factory.mktemp("macros") / "forms.h"
    loops = "#define SELF SELF\n#define PING PONG\n#define PONG PING\n"
    header.write_text(HELPERS + loops + "\n".join(lines) + "\n")
    read = clang.read([header]).macros
    return {form: (read, f"FORM_{at}") for at, form in enumerate(forms)}


def test_there_are_enough_forms_and_no_two_are_the_same():
    assert len(ALL_FORMS) >= 300
    assert len(set(ALL_FORMS)) == len(ALL_FORMS)


def test_every_form_has_the_value_width_and_sign_that_gcc_computes(macros, gcc_output):
    lines = [
        HELPERS,
        "#include <stdio.h>\n#define FLOATING(x) _Generic((x), float: 1, double: 1, long double: 1, default: 0)",
    ]
    lines += [f"#define FORM_{at} {form}" for at, form in enumerate(ALL_FORMS)]
    lines.append("int main(void) {")
    for at in range(len(ALL_FORMS)):
        value = f"(FORM_{at}\n)"
        lines.append(
            f'if (FLOATING({value})) printf("f %zu %a\\n", sizeof({value}), (double){value});'
            f'else if (((__typeof__({value}))-1) < 0) printf("i %zu %lld\\n", sizeof({value}), (long long){value});'
            f'else printf("u %zu %llu\\n", sizeof({value}), (unsigned long long){value});'
        )
    lines.append("return 0; }")
    answers = gcc_output("\n".join(lines)).splitlines()
    assert len(answers) == len(ALL_FORMS)
    wrong = []
    for form, answer in zip(ALL_FORMS, answers, strict=True):
        kind, size, text = answer.split()
        value = float.fromhex(text) if kind == "f" else int(text)
        read, name = macros[form]
        try:
            seen, type_ = read.typed(name)
            ours = (seen, type_.size, type_.kind == "float", type_.signed)
            if read.value(name) != seen:
                wrong.append(f"{form}: value() says {read.value(name)}, typed() {seen}")
        except Unreadable as reason:
            ours = (str(reason),)
        if ours != (value, int(size), kind == "f", kind != "u"):
            wrong.append(f"{form}: gcc {answer}, ours {ours}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("form", TEXTS)
def test_strings_are_joined_and_their_escapes_resolved(form, macros):
    read, name = macros[form]
    assert read.value(name) == TEXTS[form]


@pytest.mark.parametrize("form", RANGES)
def test_a_colon_outside_a_conditional_makes_a_bit_range(form, macros):
    read, name = macros[form]
    assert read.value(name) == BitRange(*RANGES[form])


@pytest.mark.parametrize("form", REFUSED)
def test_what_has_no_value_says_why(form, macros):
    read, name = macros[form]
    with pytest.raises(Unreadable) as refusal:
        read.value(name)
    assert REFUSED[form] in str(refusal.value)


def test_helpers_are_called_with_any_integer():
    macros = Macros()
    macros.define("REG", ("i",), "(0x1000+(i)*4)", "h:1")
    macros.define("FIELD", ("i",), "(i)*8+7:(i)*8", "h:2")
    macros.define("MASK", ("n",), "(~0ull >> (64 - n))", "h:3")
    macros.define("NEG", ("n",), "-n", "h:4")
    assert [macros.call("REG", 3), macros.call("FIELD", 2), macros.call("MASK", 36)] == [
        0x100C,
        BitRange(23, 16),
        (1 << 36) - 1,
    ]
    assert [macros.call("NEG", -5), macros.call("NEG", -(1 << 63))] == [5, -(1 << 63)]
    assert macros.call("REG", 1 << 40) == 0x1000 + (4 << 40)
    with pytest.raises(Unreadable, match="REG takes 1 arguments, not 2"):
        macros.call("REG", 1, 2)
    with pytest.raises(Unreadable, match="NONE is no function-like macro"):
        macros.call("NONE", 1)


def test_ioctl_encoders_work_without_their_header():
    macros = Macros()
    macros.define("MINE", None, "_IOWR('F', 0x2a, long)", "h:1")
    macros.define("PLAIN", None, "_IO('K', 3)", "h:2")
    # asm-generic/ioctl.h: 3<<30 | 8<<16
    assert [macros.value("MINE"), macros.value("PLAIN")] == [0xC008462A, 0x4B03]


BOMBS = {
    "doubling": ("expands to more than", [("B0", "1+1")] + [(f"B{n}", f"B{n - 1}+B{n - 1}") for n in range(1, 64)]),
    "chain": ("deep", [("B0", "1+1")] + [(f"B{n}", f"(B{n - 1})") for n in range(1, 5000)]),
    "aliases": ("deep", [("B0", "1")] + [(f"B{n}", f"B{n - 1}") for n in range(1, 5000)]),
    "parentheses": ("deep", [("B", "1+" + "(" * 5_000 + "1" + ")" * 5_000)]),
    "unclosed": ("deep", [("B", "(" * 5_000)]),
    "signs": ("deep", [("B", "-" + " -" * 5_000 + "1")]),
    "conditionals": ("deep", [("B", "0?1:" * 4_000 + "1")]),
    "sizeofs": ("deep", [("B", "sizeof " * 4_000 + "1")]),
    "typeofs": ("deep", [("B", "sizeof(" + "typeof(" * 4_000 + "int" + ")" * 4_001)]),
    "digits": ("too long", [("B", "1" * 100_000)]),
    "product": ("too large", [("B", "9" * 60)]),
    "range of wrappers": ("", [("B", "A(" * 1000 + "31:0" + ")" * 1000)]),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_hostile_macro_is_refused_in_no_time(bomb):
    reason, bodies = BOMBS[bomb]
    macros = Macros()
    for name, body in bodies:
        macros.define(name, None, body, "h:1")
    start = time.process_time()
    with pytest.raises(Unreadable) as refusal:
        macros.value(bodies[-1][0])
    assert reason in str(refusal.value)
    # Measured: under 0.1 s.
    assert time.process_time() - start < 2


def test_all_macros_of_a_parse_together_have_a_budget(monkeypatch):
    monkeypatch.setattr(macros_module, "BUDGET", 100_000)
    macros = Macros()
    macros.define("A", ("x",), "x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x", "h:1")
    for n in range(1000):
        macros.define(f"B{n}", None, "A(A(A(1)))", "h:2")
    reasons = []
    for n in range(1000):
        with contextlib.suppress(Unreadable):
            assert macros.value(f"B{n}") == 4096
            continue
        with pytest.raises(Unreadable) as refusal:
            macros.value(f"B{n}")
        reasons.append(str(refusal.value))
    assert set(reasons) == {"the macros before it expanded to 100000 tokens, the budget of one parse is used up"}
    assert 900 < len(reasons) < 1000


def test_a_later_definition_replaces_an_earlier_one():
    macros = Macros()
    macros.define("A", None, "1", "h:1")
    macros.define("B", None, "A+1", "h:2")
    assert macros.value("B") == 2
    macros.define("A", None, "5", "h:3")
    assert [macros.value("A"), macros.value("B")] == [5, 6]
    macros.undefine("A")
    with pytest.raises(Unreadable, match="unknown identifier A"):
        macros.value("B")


WORDS = """
    0 1 -1 2u 0xffffffffffffffff 1.5 1e308 0x1p1023 'a' L'x' "s" ( ) ( ) + - * / % << >> < == && || ! ~ ? : , [ ] { } .
    -> & | ^ # ## ... ; = ++ @ $ int unsigned long float struct enum sizeof _Alignof typeof offsetof void char (void*)
    (float) (int) (_Bool) (__int128) const A B F G x __VA_ARGS__ 31:0
"""
BODY = st.lists(st.sampled_from(WORDS.split()), max_size=9).map(" ".join)


@settings(max_examples=1000, database=None, deadline=None, derandomize=True)
@given(bodies=st.tuples(BODY, BODY, BODY, BODY, BODY))
def test_nonsense_is_refused_or_has_a_value_and_nothing_else_happens(bodies):
    macros = Macros()
    for name, params, body in zip("TABFG", (None, None, None, ("x",), ("x", "...")), bodies, strict=True):
        macros.define(name, params, body, "h:1")
    with contextlib.suppress(Unreadable):
        assert isinstance(macros.value("T"), (int, float, str, BitRange))
