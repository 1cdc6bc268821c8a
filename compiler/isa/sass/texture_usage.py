"""How many registers an operand of a texture or surface instruction has.

Sources, all of Mesa: nak_nir_lower_tex.c (which values go into which source), from_nir.rs (results, surfaces);
nv50_ir_ra.cpp, handleScalarTexGM107 (`.SCR`).
"""

from __future__ import annotations

import re

TEXTURES = ("TEX", "TLD", "TLD4", "TXD", "TMML", "TXQ")
SURFACES = ("SULD", "SUST", "SURED", "SUATOM")
FIRST, SECOND, MORE_RESULTS = 24, 32, 64
# Coordinates; an array's index is one more.
_COORDINATES = {"1D": 1, "2D": 2, "3D": 3, "CUBE": 3, "1D_BUFFER": 1}


def count(text: str, mask: int, place: int) -> int:
    """Return how many registers begin in the field at bit `place`: one for what is no list of values. `text`: the
    instruction, numbers left out; `mask`: the components of a texture that are read, a bit each.
    """
    head, _, operands = text.partition(" ")
    mnemonic = head.partition(".")[0]
    if mnemonic in SURFACES:
        return _surface(mnemonic, head, place)
    results = mask.bit_count()
    if place in (16, MORE_RESULTS):
        return min(results, 2) if place == 16 else max(results - 2, 0)
    first, second = _queried(head, operands) if mnemonic == "TXQ" else _sources(mnemonic, head, operands)
    if ".SCR" in head:
        first, second = _parted(mnemonic, operands, first + second)
    return {FIRST: first, SECOND: second}.get(place, 1)


def _queried(head: str, operands: str) -> tuple[int, int]:
    level = "DIMENSION" in operands
    return (".B" in head) + level, 0


def _sources(mnemonic: str, head: str, operands: str) -> tuple[int, int]:
    words = set(head.split("."))
    shape = re.search(r"\b(?:ARRAY_)?(?:1D|2D|3D|CUBE)\b", operands)
    name = shape[0] if shape else "1D"
    array = name.startswith("ARRAY_")
    coordinates = _COORDINATES[name.removeprefix("ARRAY_")]
    handle = int(_bindless(mnemonic, head))
    if mnemonic == "TXD":
        return handle + coordinates + (array or "AOFFI" in words), 2 * coordinates
    level = len(words & {"LL", "LB"})
    offsets = 2 if "PTP" in words else int("AOFFI" in words)
    return coordinates + (array or "LC" in words), handle + ("MS" in words) + level + offsets + ("DC" in words)


def _bindless(mnemonic: str, head: str) -> bool:
    """Return whether a handle is among the sources. The first letter after TLD4 is the component, which may be B."""
    words = head.split(".")[1:]
    if mnemonic == "TLD4":
        words.remove(next(word for word in words if word in "RGBA"))
    return "B" in words


def _parted(mnemonic: str, operands: str, values: int) -> tuple[int, int]:
    """Return how the two sources of `.SCR` share the values."""
    if mnemonic == "TLD" and "ARRAY_2D" in operands:
        return 1, values - 1
    return (1, values - 1) if values <= 2 else (2, values - 2)


def _surface(mnemonic: str, head: str, place: int) -> int:
    words = head.split(".")
    if place == FIRST:
        shape = next(word for word in words if word[0].isdigit() and "D" in word)
        return _COORDINATES.get(shape, 0) or _COORDINATES[shape.removesuffix("_ARRAY")] + 1
    value = 32 if mnemonic in ("SUST", "SURED", "SUATOM") else 16
    if mnemonic == "SUATOM" and place == 16:
        return 2 if {"64", "U64", "S64"} & set(words) else 1
    if place != value:
        return 1
    if words[1] == "P":
        return 1 if "R" in words else 2 if "RG" in words else 4
    size = 4 if "128" in words else 2 if {"64", "U64", "S64"} & set(words) else 1
    return size * (2 if "CAS" in words else 1)
