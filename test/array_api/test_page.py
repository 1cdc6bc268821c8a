"""docs/array-api.md: its program prints what the page shows."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs/array-api.md").read_text(encoding="utf-8")
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SHOWN,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def test_scipy_computes_on_a_virtual_card_what_the_page_shows():
    # SciPy looks at its variable once, when it is imported
    done = subprocess.run([sys.executable, "-c", PYTHON], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == (SHOWN, 0), done.stderr
