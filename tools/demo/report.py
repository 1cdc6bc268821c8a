"""The page that `ringup demo` writes: tables, plots of stages, transfers and copies, and the image of the kernel. It
loads nothing from a network.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from bisect import bisect_right
from typing import Any

from ringup.tools.bench.plot import Bars, Curves, Plot, svg
from ringup.tools.common.html_page import Markup, page
from ringup.tools.demo.show import BOUNDS, COLOURS

RGB = b"".join(bytes.fromhex(colour[1:]) for colour in COLOURS)
LIMIT = (
    "From 10 Gb/s on the bridge's own memory is the limit, not the cable: 700 MB/s were measured by the authors of "
    "its open firmware."
)
PALETTE, EIGHT_BITS = 3, 8  # colour type and depth. Source: PNG specification (W3C), 11.2.2
MAGIC = b"\x89PNG\r\n\x1a\n"


def report(story: dict[str, Any], image: Any) -> str:
    """Return the page for the figures of `story`, with the picture of the set."""
    stages, kernels = story["stages"], story["kernels"]
    names = [row["name"] for row in stages]
    plots: dict[str, list[Plot]] = {
        "Bring-up": [Bars("How long each stage took", "ms", names, {"ms": [row["ms"] for row in stages]})]
    }
    if "transfers" in stages[0]:
        counts = {"transfers": [row["transfers"] for row in stages]}
        plots["Bring-up"].append(Bars("USB transfers of each stage", "transfers", names, counts))
    if sweep := story.get("sweep"):
        plots["Copies"] = [
            Curves(
                f"Copies {way} the card",
                "size of one copy",
                "MB/s",
                {row["link"]: [(size, rate) for size, rate in row[way]] for row in sweep},
            )
            for way in ("to", "from")
        ]
    power, pulled = story["power"], story.get("unplug")
    sentences, fault = story.get("sentences"), story.get("fault")
    drawn = {title: Markup("\n".join(svg(plot) for plot in some)) for title, some in plots.items()}
    sections = {
        "The card": story["what"],
        "Bring-up": drawn["Bring-up"],
        "Stages": [{key: value for key, value in row.items() if key != "error"} for row in stages],
        "Copies": Markup(f"{drawn['Copies']}\n<p>{LIMIT}</p>") if "Copies" in drawn else story["copies"],
        "Kernels, checked against NumPy": kernels,
        "What the last of them drew": Markup(f'<img alt="the Mandelbrot set" width="512" src="{_png_url(image)}">'),
        "Sentences, by a published model": sentences
        and {
            "sentence": sentences["sentence"],
            "kernels, launches": f"{sentences['kernels']}, {sentences['launches']}",
            "once all is in place": f"{sentences['warm_us'] / 1000:.1f} ms",
            "largest difference from NumPy": f"{sentences['off']:.1e}, a cosine distance of "
            f"{sentences['cosine_distance']:.1e}",
        },
        "Nearest first": sentences and sentences["nearest"],
        "A kernel stored where no memory is": fault
        and {
            "error": fault["said"],
            "after the launch": f"{fault['noticed_ms']:.1f} ms",
            "a new channel took": f"{fault['reset_ms']:.1f} ms",
        },
        "Power": power["idle_w"] is not None
        and {
            "at first": f"{power['idle_w']} W",
            "after work": f"{power['busy_w']} W",
            "before it was closed": f"{power['before_close_w']} W",
            "link of its slot at the end": power.get("slot", "as it was"),
        },
        "The cable was pulled": pulled
        and {
            "error": pulled["error"],
            "after the copy began": f"{pulled['noticed_ms']:.1f} ms",
            "plugged in again, up in": f"{pulled['up_again_ms']:.0f} ms",
            "found then": pulled["found"],
        },
        "Times": story["times"],
    }
    return page(f"ringup demo on {story['card']}", "A card started, copied, computed, and stopped again.", sections)


def _png_url(image: Any) -> str:
    """Return the steps of each pixel as a picture in a data URL."""
    height, width = image.shape
    index = [bytes(bisect_right(BOUNDS, int(n)) for n in row) for row in image]
    # a filter byte before each row: none
    data = zlib.compress(b"".join(b"\0" + row for row in index), 9)
    head = struct.pack(">IIBBBBB", width, height, EIGHT_BITS, PALETTE, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", RGB), (b"IDAT", data), (b"IEND", b""))
    return "data:image/png;base64," + b64encode(MAGIC + b"".join(_chunk(*one) for one in chunks)).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file: length, kind, data, check."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
