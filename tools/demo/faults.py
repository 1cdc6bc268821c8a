"""The chapter of `ringup demo` on NVIDIA's cards: a kernel writes where nothing is, and the card works on after a
reset of its channel.
"""

from __future__ import annotations

from typing import Any

from ringup.errors import DeviceFault
from ringup.tools.demo.desk import Up
from ringup.tools.demo.kernels import BLOCK, Prepared
from ringup.tools.demo.show import Show

# an address that no buffer of the demo has
NOWHERE = 0x7F_0000_0000
WAIT_S = 10.0


def fault_and_reset(up: Up, show: Show, kernel: Prepared) -> dict[str, Any]:
    """Let a kernel store to an address that is not mapped; reset the channel; run the kernel as it should be.

    Raises `DeviceFault` if the card does not report it, or does not work as before afterwards.
    """
    card = up.card
    buffer = card.alloc(BLOCK * 4, name="survivor")
    kept = bytes(range(256)) * (BLOCK * 4 // 256)
    card.copy.upload(buffer, kept).wait()
    began = up.now_us
    try:
        card.compute.submit(kernel.stream(out=NOWHERE)).wait(WAIT_S)
    except DeviceFault as error:
        show.line(f"DeviceFault: {error}", "red")
        said = str(error)
    else:
        raise DeviceFault(f"{card.name}: a kernel wrote to {NOWHERE:#x}, where no memory is, and nothing was reported")
    noticed = up.now_us - began
    began = up.now_us
    rungs = card.reset()
    took = up.now_us - began
    if card.copy.download(buffer) != kept or not kernel.is_right(kernel.run()):
        raise DeviceFault(f"{card.name}: after its channels were made anew it does not work as before")
    names = ", ".join(rung.name for rung in rungs)
    show.line(
        f"reset ({names}) in {took / 1000:.1f} ms: a buffer kept its bytes, and the kernel's result is NumPy's again",
        "green",
    )
    return {"error": "DeviceFault", "said": said, "noticed_ms": noticed / 1000, "reset_ms": took / 1000}
