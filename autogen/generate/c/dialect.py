"""gcc's C where clang's differs: predefined macros, and the layout switches that only one of them obeys."""

from __future__ import annotations

import re
from bisect import bisect_right

from ringup.autogen.generate.c.translation import Translation, unspliced
from ringup.errors import HeaderError

# Source: `gcc -dM -E` of gcc 12.2 for x86-64 Linux compared with what libclang 18 defines. Different spellings of equal
# values are kept, and so are gcc's decimal and _FloatN families (`__DEC64_MAX__`, `__FLT32X_DIG__`), whose literals
# clang does not know.
GNUC = "12.2.0"
_DEFINED = """
    __ATOMIC_HLE_ACQUIRE=65536
    __ATOMIC_HLE_RELEASE=131072
    __DBL_IS_IEC_60559__=2
    __DECIMAL_BID_FORMAT__=1
    __DEC_EVAL_METHOD__=2
    __FLOAT_WORD_ORDER__=__ORDER_LITTLE_ENDIAN__
    __FLT_EVAL_METHOD_TS_18661_3__=0
    __FLT_EVAL_METHOD__=0
    __FLT_IS_IEC_60559__=2
    __GCC_CONSTRUCTIVE_SIZE=64
    __GCC_DESTRUCTIVE_SIZE=64
    __GCC_HAVE_DWARF2_CFI_ASM=1
    __GCC_IEC_559=2
    __GCC_IEC_559_COMPLEX=2
    __GNUC_EXECUTION_CHARSET_NAME="UTF-8"
    __GNUC_WIDE_EXECUTION_CHARSET_NAME="UTF-32LE"
    __GXX_ABI_VERSION=1017
    __HAVE_SPECULATION_SAFE_VALUE=1
    __INT16_C(c)=c
    __INT32_C(c)=c
    __INT64_C(c)=c ## L
    __INT8_C(c)=c
    __INTMAX_C(c)=c ## L
    __INT_FAST16_MAX__=0x7fffffffffffffffL
    __INT_FAST16_TYPE__=long int
    __INT_FAST16_WIDTH__=64
    __INT_FAST32_MAX__=0x7fffffffffffffffL
    __INT_FAST32_TYPE__=long int
    __INT_FAST32_WIDTH__=64
    __LDBL_IS_IEC_60559__=2
    __LONG_LONG_WIDTH__=64
    __MMX_WITH_SSE__=1
    __SCHAR_WIDTH__=8
    __SIG_ATOMIC_MIN__=(-__SIG_ATOMIC_MAX__ - 1)
    __SIG_ATOMIC_TYPE__=int
    __SIZEOF_FLOAT80__=16
    __STDC_HOSTED__=1
    __STDC_IEC_559_COMPLEX__=1
    __STDC_IEC_559__=1
    __STDC_IEC_60559_BFP__=201404L
    __STDC_IEC_60559_COMPLEX__=201404L
    __STDC_ISO_10646__=201706L
    __UINT16_C(c)=c
    __UINT32_C(c)=c ## U
    __UINT64_C(c)=c ## UL
    __UINT8_C(c)=c
    __UINTMAX_C(c)=c ## UL
    __UINT_FAST16_MAX__=0xffffffffffffffffUL
    __UINT_FAST16_TYPE__=long unsigned int
    __UINT_FAST32_MAX__=0xffffffffffffffffUL
    __UINT_FAST32_TYPE__=long unsigned int
    __VERSION__="12.2.0"
    __WCHAR_MIN__=(-__WCHAR_MAX__ - 1)
    __WINT_MIN__=0U
"""
_ABSENT = """
    __BITINT_MAXWIDTH__ __BOOL_WIDTH__ __CLANG_ATOMIC_BOOL_LOCK_FREE __CLANG_ATOMIC_CHAR16_T_LOCK_FREE
    __CLANG_ATOMIC_CHAR32_T_LOCK_FREE __CLANG_ATOMIC_CHAR_LOCK_FREE __CLANG_ATOMIC_INT_LOCK_FREE __CLANG_ATOMIC_LLONG_LOCK_FREE
    __CLANG_ATOMIC_LONG_LOCK_FREE __CLANG_ATOMIC_POINTER_LOCK_FREE __CLANG_ATOMIC_SHORT_LOCK_FREE __CLANG_ATOMIC_WCHAR_T_LOCK_FREE
    __CONSTANT_CFSTRINGS__ __FLOAT128__ __FPCLASS_NEGINF __FPCLASS_NEGNORMAL __FPCLASS_NEGSUBNORMAL __FPCLASS_NEGZERO __FPCLASS_POSINF
    __FPCLASS_POSNORMAL __FPCLASS_POSSUBNORMAL __FPCLASS_POSZERO __FPCLASS_QNAN __FPCLASS_SNAN __LITTLE_ENDIAN__ __LLONG_WIDTH__
    __MEMORY_SCOPE_DEVICE __MEMORY_SCOPE_SINGLE __MEMORY_SCOPE_SYSTEM __MEMORY_SCOPE_WRKGRP __MEMORY_SCOPE_WVFRNT __NO_MATH_INLINES
    __OBJC_BOOL_IS_BOOL __OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES __OPENCL_MEMORY_SCOPE_DEVICE __OPENCL_MEMORY_SCOPE_SUB_GROUP
    __OPENCL_MEMORY_SCOPE_WORK_GROUP __OPENCL_MEMORY_SCOPE_WORK_ITEM __POINTER_WIDTH__ __UINTMAX_WIDTH__ __UINTPTR_WIDTH__
    __WINT_UNSIGNED__ __clang__ __clang_literal_encoding__ __clang_major__ __clang_minor__ __clang_patchlevel__ __clang_version__
    __clang_wide_literal_encoding__ __llvm__ __tune_k8__ __has_feature __has_extension __has_declspec_attribute __has_warning
    __has_constexpr_builtin __is_identifier __is_target_arch __is_target_vendor __is_target_os __is_target_environment
    __is_target_variant_os __is_target_variant_environment __building_module
"""
# gcc's keywords, and an attribute's arguments, that libclang 18 lacks. glibc's headers use them when they detect gcc.
_WORDS = """
    _Float32=float
    _Float64=double
    _Float128=__float128
    _Float32x=double
    _Float64x=long double
    __malloc__(...)=__malloc__
"""
# Stems of clang's own macros, such as __INT8_FMTd__ and __INT8_C_SUFFIX__.
_FORMATS = "PTRDIFF SIZE INTMAX UINTMAX INTPTR UINTPTR " + " ".join(
    f"{sign}INT{kind}{bits}" for sign in ("", "U") for kind in ("", "_LEAST", "_FAST") for bits in (8, 16, 32, 64)
)
# Replaces stdint.h in gcc's own folder, which on a hosted compiler includes the C library's.
STDINT = {"stdint.h": "#include <stdint-gcc.h>\n"}

_FOREIGN = re.compile(
    r"(?P<both>\bscalar_storage_order\b|\b__scalar_storage_order__\b)"
    r"|[pP]ragma(?:[ \t(\"\\]|/\*.*?\*/)++(?P<clang>ms_struct\b|options\b|align\b|clang[ \t]+attribute\b)"
    r"|/\*.*?\*/|//[^\n]*",
    re.ASCII | re.DOTALL,
)
_HINT = re.compile(r"scalar_storage_order|[pP]ragma[^\n]*(?:ms_struct|options|align|attribute)", re.ASCII)


def gcc_options() -> list[str]:
    """Return options that make clang identify itself as gcc."""
    lines = [*_DEFINED.strip().splitlines(), *_WORDS.strip().splitlines()]
    return [f"-fgnuc-version={GNUC}", *(f"-D{line.strip()}" for line in lines), *(f"-U{name}" for name in absent())]


def absent() -> list[str]:
    """Return the macros that clang defines and gcc does not."""
    formats = [
        f"__{stem}_{what}__" for stem in _FORMATS.split() for what in ("C_SUFFIX", *(f"FMT{c}" for c in "diouxX"))
    ]
    return [*_ABSENT.split(), *formats]


def refuse_foreign(unit: Translation) -> None:
    """Raise `HeaderError` for a header that requests layouts in a way that only gcc or only clang obeys."""
    for file in unit.files():
        text, joints = unspliced(file.text)
        if not _HINT.search(text):
            continue
        for match in _FOREIGN.finditer(text):
            what = match["both"] or match["clang"]
            if what is None:
                continue
            passed = bisect_right(joints, (match.start(), len(file.text)))
            at = match.start() + (joints[passed - 1][1] if passed else 0)
            if any(start <= at < end for start, end in unit.skipped(file.path)):
                continue
            line = file.text.count("\n", 0, at) + 1
            gcc = "obeyed by gcc and not by libclang" if match["both"] else "obeyed by libclang and not by gcc"
            raise HeaderError(
                f"{file.path}:{line}: {' '.join(what.split())} is {gcc}, so layouts cannot be told; leave the header out"
            )
