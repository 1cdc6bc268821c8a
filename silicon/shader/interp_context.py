"""What an ALU sees besides its operands: float mode, active lanes, the wave's register file; input and output modifiers.

Values travel as bits: `uint32` lanes for operands of up to 32 bits (16-bit values in the low half), `uint64` lanes for 64-bit ones, (lane, dword)
`uint32` for wider ones, `bool` lanes for masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ringup.silicon.shader.decode import Instruction

Bits = NDArray[Any]  # uint32 or uint64
Mask = NDArray[np.bool_]
Vector = Callable[..., Any]  # (ctx, *sources) -> Bits | Mask | tuple of them
Scalar = Callable[..., tuple[Any, ...]]  # (ctx, *ints) -> (result, scc) or (result, scc, exec)


@dataclass(frozen=True, slots=True)
class Ctx:
    """The state an instruction depends on besides its operands.

    `round_*`: 0 nearest even, 1 up, 2 down, 3 towards zero. `denorm_*`: bit 0 keeps denormal inputs, bit 1 denormal results; the others become zeros of
    their sign. Source: RDNA3 ISA reference, "MODE register".
    """

    ins: Instruction
    lanes: int
    exec_mask: Mask  # (lanes,)
    vgprs: NDArray[np.uint32]  # (register, lane): for what picks its register or lane at run time
    round_f32: int = 0
    round_f16_f64: int = 0
    denorm_f32: int = 0
    denorm_f16_f64: int = 3
    ieee: bool = False
    dx10_clamp: bool = True
    scc: int = 0
    m0: int = 0

    @property
    def exec_bits(self) -> int:
        """EXEC as a number."""
        return int.from_bytes(np.packbits(self.exec_mask, bitorder="little").tobytes(), "little")
