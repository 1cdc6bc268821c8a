"""A path to a virtual card like that of a USB bridge: it maps nothing, so rings are in VRAM and the CPU polls there."""

from ringup.drivers.transport.recording.record import Recorder


class Far:
    """The path to a card in a slot, without its mappings."""

    polls_vram = True

    def __init__(self, radeon):
        self._recorder = Recorder(radeon, "/dev/null")

    def __getattr__(self, name):
        return getattr(self._recorder, name)
