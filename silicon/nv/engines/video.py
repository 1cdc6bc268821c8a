"""The video decoder as far as a channel: state and semaphores. Decoding a picture is refused by name.

Source: clc5b0.h to clc9b0.h of open-gpu-doc.
"""

from __future__ import annotations

from ringup.autogen.nv import methods_video as methods
from ringup.silicon.nv.engines.engine import ClassEngine, Context, Lacking, Progress, Refused, field_of
from ringup.silicon.nv.engines.reports import Words, report

# SEMAPHORE_D.structure_size, which numbers them differently from other classes
WORDS = {
    methods.SEMAPHORE_D_STRUCTURE_SIZE_ONE: Words.ONE,
    methods.SEMAPHORE_D_STRUCTURE_SIZE_FOUR: Words.FOUR,
    methods.SEMAPHORE_D_STRUCTURE_SIZE_TWO: Words.TWO,
}


class VideoDecoder(ClassEngine):
    """One object of a video decoder class. `code`: what the GSP calls an error of this engine."""

    def __init__(self, class_id: int, context: Context, code: int) -> None:
        super().__init__(class_id, methods.METHODS[class_id], context, code)
        self._semaphore = methods.SEMAPHORE_D.at(class_id)
        self.act("EXECUTE", self._execute)
        self.act("SEMAPHORE_D", self._release)

    def _execute(self, data: int) -> Progress:
        raise Lacking("decoding a picture is not modelled")

    def _release(self, data: int) -> None:
        word = self._semaphore(data)
        if word.operation == methods.SEMAPHORE_D_OPERATION_TRAP:
            self.context.notify()
            return
        if word.operation != methods.SEMAPHORE_D_OPERATION_RELEASE or word.structure_size not in WORDS:
            raise Refused(f"SEMAPHORE_D {data:#x} has operation {word.operation} and size {word.structure_size}")
        gpu_va = self.methods.pair("SEMAPHORE_A", "SEMAPHORE_B")
        wide = bool(field_of(word, "payload_size"))
        payload = self.methods.get("SEMAPHORE_C")
        if wide:
            payload = self.methods.pair("SET_SEMAPHORE_PAYLOAD_UPPER", "SET_SEMAPHORE_PAYLOAD_LOWER")
        report(self.context, gpu_va, payload, WORDS[word.structure_size], wide=wide)
        if word.awaken_enable:
            self.context.notify()
