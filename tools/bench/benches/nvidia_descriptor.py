"""Launch descriptors (QMD) of NVIDIA's cards: fields read and replaced, whole descriptors made; compared with tinygrad
in the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ringup.autogen.nv.classes import AMPERE_COMPUTE_B
from ringup.autogen.nv.qmdv03_00 import QMDV03_00
from ringup.errors import RingupError
from ringup.queues.nv.rows import row_of
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure
from ringup.tools.bench.timing import loop_ns, median

ROUNDS, LOOPS = 9, 20_000
ROW = row_of(AMPERE_COMPUTE_B)
LAYOUT = QMDV03_00.at(ROW.compute_class)
# what a launch sets, as tinygrad names it: an element of an array has its number behind the name
LAUNCH = {
    "qmd_major_version": 3, "api_visible_call_limit": 1, "cwd_membar_type": 1, "sm_global_caching_enable": 1,
    "program_address_lower": 0x1234_5600, "program_address_upper": 0x7F, "register_count_v": 40, "barrier_count": 1,
    "shared_memory_size": 0x400, "shader_local_memory_low_size": 0x240, "min_sm_config_shared_mem_size": 9,
    "max_sm_config_shared_mem_size": 26, "target_sm_config_shared_mem_size": 9, "cta_raster_width": 16,
    "cta_raster_height": 2, "cta_raster_depth": 1, "cta_thread_dimension0": 256, "cta_thread_dimension1": 1,
    "cta_thread_dimension2": 1, "constant_buffer_addr_lower_0": 0x5678_0000, "constant_buffer_addr_upper_0": 0x12,
    "constant_buffer_size_shifted4_0": 24, "constant_buffer_valid_0": 1, "constant_buffer_invalidate_0": 1,
}  # fmt: skip
# ours and the peer's statement, how often a round runs it. `w` is a descriptor; `values` are those of LAUNCH
STATEMENTS = {
    "read a field": ("w.register_count_v", "w.read('register_count_v')", LOOPS),
    "replace a field": ("w.replace(register_count_v=50)", "w.write(register_count_v=50)", LOOPS),
    f"make a descriptor of {len(LAUNCH)} fields": (
        "bytes_of(W(0, **values), size, 'little')",
        "bytes(W(dev, **values).mv)",
        LOOPS // 20,
    ),
}
NOTES = {
    "replace a field": "ours: a new descriptor, the old one is unchanged; peer: in place",
    f"make a descriptor of {len(LAUNCH)} fields": "ours is made once for each shape of a launch, and kept",
}


def values() -> dict[str, Any]:
    """Return LAUNCH as our layout names it: the elements of an array as one tuple."""
    made: dict[str, Any] = {}
    for name, value in LAUNCH.items():
        stem, _, number = name.rpartition("_")
        field = LAYOUT.FIELDS.get(stem)
        if field is None or field.count is None:
            made[name] = value
        else:
            elements = list(made.get(stem, (0,) * field.count))
            elements[int(number)] = value
            made[stem] = tuple(elements)
    return made


def names() -> dict[str, Any]:
    """Return the names that our statements use."""
    given = values()
    return {
        "W": LAYOUT,
        "w": LAYOUT(0, **given),
        "values": given,
        "size": ROW.qmd_bytes,
        "bytes_of": int.to_bytes,
    }


def run() -> dict[str, float]:
    """Time our statements once: nanoseconds of CPU."""
    given = names()
    return {name: loop_ns(statement, given, loops) for name, (statement, _, loops) in STATEMENTS.items()}


def measure(bench: Bench) -> Iterator[Figure]:
    """Time both, a round of each in turn. A descriptor that the peer makes of other bytes ends the bench."""
    job = {
        "values": LAUNCH,
        "statements": {name: (statement, loops) for name, (_, statement, loops) in STATEMENTS.items()},
    }
    wanted = int(names()["w"]).to_bytes(ROW.qmd_bytes, "little").hex()
    ours: list[Mapping[str, float]] = []
    peers: list[Mapping[str, float]] = []
    for i in range(2 if bench.quick else ROUNDS):
        bench.say(f"round {i + 1}")
        ours.append(run())
        answer = bench.peer.call("nvidia_descriptor", job)
        if answer is not None:
            if answer["bytes"] != wanted:
                raise RingupError("bench nvidia-descriptor: ringup and tinygrad do not write the same bytes")
            peers.append(answer["times"])
    for name in STATEMENTS:
        peer = median([times[name] for times in peers]) if peers else None
        mine = median([times[name] for times in ours])
        yield Figure(name, "ns", mine, peer, note=NOTES.get(name, ""))
