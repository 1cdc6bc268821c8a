"""Which class is which engine, and what an error of each is called."""

from __future__ import annotations

from ringup.autogen.nv import error_notifier as errors
from ringup.autogen.nv import methods_compute, methods_copy, methods_inline, methods_video
from ringup.silicon.nv.engines.compute import ComputeEngine
from ringup.silicon.nv.engines.copy import CopyEngine
from ringup.silicon.nv.engines.engine import Context, Engine
from ringup.silicon.nv.engines.graphics import Drawing, InlineToMemory
from ringup.silicon.nv.engines.video import VideoDecoder

# the first NV2080_ENGINE_TYPE_* of copy engines and of video decoders. Source: cl2080_notification.h
FIRST_COPY_ENGINE, FIRST_DECODER = 0x09, 0x13


def make(class_id: int, engine_type: int, context: Context) -> Engine | None:
    """Return an object of a class on an engine (NV2080_ENGINE_TYPE_*); None for a class without a model."""
    if class_id in methods_copy.METHODS:
        name = f"ROBUST_CHANNEL_CE{max(engine_type - FIRST_COPY_ENGINE, 0)}_ERROR"
        return CopyEngine(class_id, context, int(getattr(errors, name)))
    if class_id in methods_compute.METHODS:
        return ComputeEngine(class_id, context)
    if class_id in methods_inline.METHODS:
        return InlineToMemory(class_id, context)
    if class_id in methods_video.METHODS:
        name = f"ROBUST_CHANNEL_NVDEC{max(engine_type - FIRST_DECODER, 0)}_ERROR"
        return VideoDecoder(class_id, context, int(getattr(errors, name)))
    return _drawing(class_id, context)


def _drawing(class_id: int, context: Context) -> Engine | None:
    # these facts are large, and most channels do not need them
    from ringup.autogen.nv import methods_2d, methods_3d

    for module in (methods_3d, methods_2d):
        if class_id in module.METHODS:
            return Drawing(class_id, module, context)
    return None
