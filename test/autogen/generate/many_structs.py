"""The layout test with many random structs: `python test/autogen/generate/many_structs.py 100000`. It is run by hand
from time to time.
"""

from __future__ import annotations

import logging
import runpy
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BATCH, ROUND = 250, 5000

log = logging.getLogger("many_structs")


def main(count: int) -> int:
    """Compare `count` random structs with gcc; return 0 if all agree."""
    proof, judge = (
        runpy.run_path(str(HERE / "test_layout_proof.py")),
        runpy.run_path(str(HERE / "conftest.py"))["judge"],
    )
    seen: set[str] = set()
    wrong: list[str] = []
    number, refused = 1000, 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        while len(seen) < count:
            number += 1
            fresh = [shape for shape in proof["collect"](ROUND, number) if shape.text not in seen][: count - len(seen)]
            seen.update(shape.text for shape in fresh)
            for batch in proof["batches"](fresh, BATCH):
                more, some = proof["compare"](batch, place, lambda unit, text: judge(unit, [text], place).differences)
                wrong += more
                refused += some
            log.info("%d structs, %d of them refused, %d differences", len(seen), refused, len(wrong))
            for text in sorted(set(wrong), key=len)[:3]:
                log.info("%s", text)
    return int(bool(wrong))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sys.exit(main(int(sys.argv[1])))
