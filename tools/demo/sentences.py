"""The model of `ringup demo`: the card embeds a sentence and finds the nearest of ten others. NumPy is the reference
for both.
"""

from __future__ import annotations

from time import process_time
from typing import Any

import numpy as np

from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import device
from ringup.errors import DeviceFault
from ringup.tools.common.progress import Progress
from ringup.tools.demo.desk import Up
from ringup.tools.demo.show import Show
from ringup.tools.embedder.files import open_files
from ringup.tools.embedder.in_numpy import MiniLm
from ringup.tools.embedder.on_card import Sentences, nearest

DEFAULT = "A kitten naps by the fire."
TEN = (
    "The cat sleeps on the warm stove.",
    "Fresh bread smells best in the morning.",
    "The train to the coast leaves at noon.",
    "A graphics card computes many things at once.",
    "Rain is expected all weekend.",
    "She plays the violin in an orchestra.",
    "The stock market fell sharply today.",
    "A driver tells a device what to do.",
    "The river flooded the lower fields.",
    "Children learn languages quickly.",
)
PER_ELEMENT, COSINE = 1e-3, 1e-5  # bounds of the difference from NumPy's f64 results: of an element, and of 1 - cosine
SHOWN = 6  # numbers of an embedding that are shown


def embed(up: Up, show: Show, sentence: str) -> dict[str, Any]:
    """Embed a sentence and the ten on the card, show them by nearness, and return the figures.

    Raises CompileError if the model is not installed, DeviceFault if the card's numbers differ from NumPy's.
    """
    files = open_files()
    model, evaluator = Sentences(files), Device(up.card)
    texts, rows, times = [*TEN, sentence], [], []
    began = process_time()
    with device(evaluator), Progress("sentences", len(texts)) as progress:
        for text in texts:
            progress.say(text)
            at = up.now_us
            rows.append(model.embed([text])[0].astype(np.float64))
            times.append(up.now_us - at)
            progress.advance()
    took_s = process_time() - began
    reference, tokens = MiniLm(files), files.tokenizer()
    expected = [reference.embed(tokens.encode(text).ids) for text in texts]
    off = max(float(np.abs(one - other).max()) for one, other in zip(rows, expected, strict=True))
    distance = max(1 - float(one @ other / np.linalg.norm(one)) for one, other in zip(rows, expected, strict=True))
    order = nearest(rows[-1], rows[:-1])
    cosines = np.array(expected[:-1]) @ expected[-1]
    if not (off < PER_ELEMENT and distance < COSINE) or _disorder(cosines[[place for place, _ in order]]) > PER_ELEMENT:
        raise DeviceFault(
            f"{up.card.name}: embeddings of {len(texts)} sentences differ from NumPy's by up to {off:.2g}, a cosine "
            f"distance of {distance:.2g}; "
            "the card's core, memory or link is faulty"
        )
    graph = evaluator.graphs[-1]
    found = [
        {"sentence": TEN[place], "cosine": round(cosine, 6), "numpy": round(float(cosines[place]), 6)}
        for place, cosine in order
    ]
    _tell(show, sentence, rows[-1], found)
    show.line(
        f"all-MiniLM-L6-v2, {files.weights.stat().st_size / 1e6:.0f} MB of weights: {len(graph.binaries)} kernels "
        "compiled here, "
        f"{len(graph.launches)} launches a sentence, {times[-2] / 1000:.1f} ms each once everything is loaded"
    )
    show.line(
        f"largest difference from NumPy in f64: {off:.1e}, a cosine distance of {max(distance, 0.0):.1e}; the order is the same",
        "green",
    )
    return {
        "sentence": sentence, "embedding": [round(float(one), 6) for one in rows[-1]], "nearest": found, "off": off, "cosine_distance": distance,
        "kernels": len(graph.binaries), "launches": len(graph.launches), "first_us": times[0], "warm_us": times[-2], "host_s": round(took_s, 1),
    }  # fmt: skip


def _disorder(cosines: Any) -> float:
    """Return the largest increase from one cosine to a later one."""
    return float((np.maximum.accumulate(cosines[::-1])[::-1] - cosines).max())


def _tell(show: Show, sentence: str, embedding: Any, found: list[dict[str, Any]]) -> None:
    some = " ".join(f"{one:+.4f}" for one in embedding[:SHOWN])
    show.line(f"“{sentence}” became {len(embedding)} numbers: {some} …")
    show.table(
        ("nearest first", "cosine", "NumPy's"),
        [(one["sentence"], f"{one['cosine']:.4f}", f"{one['numpy']:.4f}") for one in found],
    )
