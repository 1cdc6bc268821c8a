"""The power controller's mailbox: an argument, a message, a response. One message is in flight at a time, and all
processes would use the same registers, so only the process that holds the card may send.

Source: amdgpu smu_cmn.c, smu_cmn_send_smc_msg_with_param and __smu_cmn_send_debug_msg; smu_v13_0_0_ppsmc.h,
PPSMC_Result_*.
"""

from __future__ import annotations

from ringup.autogen.amd.mp import (
    MP1_SMN_C2PMSG_53,
    MP1_SMN_C2PMSG_54,
    MP1_SMN_C2PMSG_66,
    MP1_SMN_C2PMSG_75,
    MP1_SMN_C2PMSG_82,
    MP1_SMN_C2PMSG_90,
)
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.heard import Heard
from ringup.drivers.amd.bus.registers import Block
from ringup.errors import DeviceFault, DeviceTimeout, NotSupported, RingupError

OK, BUSY = 0x01, 0xFC
REFUSALS: dict[int, tuple[type[RingupError], str]] = {  # the same numbers in every *_ppsmc.h
    0xFF: (DeviceFault, "the power controller failed at it"),
    0xFE: (NotSupported, "the power controller's firmware does not know it"),
    0xFD: (DeviceFault, "the power controller refused it: something must come before it"),
    BUSY: (DeviceTimeout, "the power controller stayed busy"),
    0xFB: (DeviceFault, "the power controller is being debugged"),
}
FIRST_LOOK_US = 60  # the controller needs tens of microseconds for any message
QUICK_US, QUICK_POLL_US = 10_000, 50  # nearly every message is answered by then
TIMEOUT_US, POLL_US = 4_000_000, 1_000  # TIMEOUT: smu_cmn.c: 2,000,000 polls, each 1 us and a read
RETRY_US = 10  # smu_cmn.c: "The client should retry in 10 us"


class SmuMailbox:
    """The mailbox of one card's power controller (SMU, MP1)."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self.heard = Heard("the power controller (SMU, MP1)", block.registers.clock)
        # a message whose response never came
        self._pending = ""

    def ask(self, message: int, argument: int = 0, *, name: str, timeout_us: int = TIMEOUT_US) -> int:
        """Send one message as `send` does and return the argument register afterwards."""
        self.send(message, argument, name=name, timeout_us=timeout_us)
        return int(self._block.read(MP1_SMN_C2PMSG_82))

    def send(self, message: int, argument: int = 0, *, name: str, timeout_us: int = TIMEOUT_US) -> None:
        """Send one message and wait for its response. `name` is the message's, for errors.

        Raises `DeviceTimeout` when no response comes within `timeout_us`, `NotSupported` when the firmware does not
        know the message, `DeviceFault` when it refuses it.
        """
        clock, doing = self._block.registers.clock, f"SMU message {name}({argument:#x})"
        if self._pending:
            self._response(f"{doing}, behind {self._pending}", timeout_us)
        end_us = clock.now_us + timeout_us
        while True:
            self._put(MP1_SMN_C2PMSG_90, 0)
            self._put(MP1_SMN_C2PMSG_82, argument)
            self._put(MP1_SMN_C2PMSG_66, message)
            self._pending = doing
            response = self._response(doing, timeout_us)
            if response == OK:
                return
            if response != BUSY or clock.now_us >= end_us:
                raise _refused(doing, response)
            clock.sleep_us(RETRY_US)

    def forget(self) -> None:
        """Forget the pending message: the card was reset."""
        self._pending = ""
        self.heard.forget()

    def hear(self, doing: str, timeout_us: int = TIMEOUT_US) -> None:
        """Wait for the response to a message that was sent by `tell`. Raises what `send` raises."""
        response = self._response(doing, timeout_us)
        if response != OK:
            raise _refused(doing, response)

    def tell(self, message: int, argument: int = 0, *, debug: bool = False) -> None:
        """Send a message that resets the card, without waiting. `debug` uses the firmware's second mailbox, which works
        in every state.
        """
        if debug:
            self._put(MP1_SMN_C2PMSG_53, argument)
            self._put(MP1_SMN_C2PMSG_75, message)
            self._put(MP1_SMN_C2PMSG_54, 0)
        else:
            self._put(MP1_SMN_C2PMSG_90, 0)
            self._put(MP1_SMN_C2PMSG_82, argument)
            self._put(MP1_SMN_C2PMSG_66, message)
        self._pending = ""

    def _response(self, doing: str, timeout_us: int) -> int:
        with self.heard.asking(doing):
            self._block.registers.clock.sleep_us(FIRST_LOOK_US)
            try:
                word = self._block.wait(MP1_SMN_C2PMSG_90, _answered, QUICK_US, doing, poll_us=QUICK_POLL_US)
            except DeviceTimeout:
                word = self._block.wait(MP1_SMN_C2PMSG_90, _answered, timeout_us, doing, poll_us=POLL_US)
        self._pending = ""
        return int(word)

    def _put(self, word: type[Word], value: int) -> None:
        self._block.write(word.at(self._block.version)(value))


def _refused(doing: str, response: int) -> RingupError:
    kind, why = REFUSALS.get(response, (DeviceFault, "no response that is known"))
    return kind(f"{doing}: {why} (response {response:#x})")


def _answered(word: Word) -> bool:
    return int(word) != 0
