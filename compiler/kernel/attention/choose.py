"""Chooses one of three lowerings of attention. All compute it in one kernel, without the scores in memory.

| lowering | for | division of work |
|---|---|---|
| `few` | few queries of a head of keys: a decoder's step | waves divide the keys |
| `matrix` | f16 and bf16, with matrix instructions | waves divide the queries; keys and values are in LDS |
| `fma` | all others | the same, by multiply-adds |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ringup.compiler.kernel.attention import few as attention_few
from ringup.compiler.kernel.attention import fma as attention_fma
from ringup.compiler.kernel.attention import matrix as attention_matrix
from ringup.compiler.kernel.common.frame import Lowered
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.kernel.contraction.contraction import Problem

Tile: TypeAlias = attention_few.FewTile | attention_matrix.MatrixAttentionTile | attention_fma.AttentionTile


def candidates(problem: Problem, traits: Traits) -> Sequence[Tile]:
    """Return every candidate tile, the heuristic one first."""
    if attention_few.suits(problem, traits):
        return attention_few.candidates(problem, traits)
    matrices = attention_matrix.candidates(problem, traits)
    return matrices or attention_fma.candidates(problem, traits)


def lower(problem: Problem, name: str, traits: Traits, choice: Tile | None = None) -> Lowered:
    """Return the machine IR of an attention, with the given or the heuristic tile."""
    tile = choice or candidates(problem, traits)[0]
    if isinstance(tile, attention_few.FewTile):
        return attention_few.FewAttention(problem, name, tile).lower()
    if isinstance(tile, attention_fma.AttentionTile):
        return attention_fma.FmaAttention(problem, name, tile, traits.wave_size).lower()
    return attention_matrix.MatrixAttention(problem, name, tile, traits.sixteen_deep).lower()
