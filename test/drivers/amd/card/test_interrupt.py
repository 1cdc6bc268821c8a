"""Ctrl-C while a virtual card works: it is raised at once, and a reset recovers the queues."""

import numpy as np
import pytest

import ringup
from ringup.errors import DeviceTimeout
from ringup.silicon import card as virtual
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.tools.demo.kernels import BLOCK, compile_for

ARGUMENTS = [256, 50, -2.2, -1.5, 0.01]


@pytest.fixture
def press(monkeypatch):
    """`press()` lets shader cores press Ctrl-C at their next dispatch."""
    real, pressed = Translator.start, []

    def start(cores, *args, **options):
        if pressed:
            pressed.clear()
            raise KeyboardInterrupt
        return real(cores, *args, **options)

    monkeypatch.setattr(Translator, "start", start)
    return lambda: pressed.append(True)


@pytest.mark.parametrize("chip", ["navi31", "mi300x"])
def test_a_queue_interrupted_within_a_step_hangs_and_is_reset(chip, press):
    radeon = virtual(chip, vram_bytes=256 << 20)
    with ringup.open(radeon.name, transport={"card": radeon}) as card, card.alloc(1 << 16) as out:
        program = card.load(compile_for(card.info.target))
        stream = card.compute.stream()
        stream.dispatch(program, 64, BLOCK, [out, *ARGUMENTS])
        card.copy.fill(out, 0).wait()
        press()
        with pytest.raises(KeyboardInterrupt):
            card.compute.submit(stream).wait()
        with pytest.raises(DeviceTimeout, match="compute 0"):
            card.compute.idle(0.01)
        assert [rung.name for rung in card.reset()] == ["queue"]
        card.copy.wait_for(card.compute.submit(stream))
        assert np.any(card.copy.download_array(out, np.uint32, 1 << 14))
