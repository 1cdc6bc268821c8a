"""The page on ONNX lists the operators that there are."""

import re
from pathlib import Path

from ringup.onnx.operators.table import TOPICS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")


def names(topic):
    return sorted({row.name + (f" ({row.domain})" if row.domain else "") for row in topic.ROWS})


def test_the_page_lists_every_operator_by_topic():
    rows = re.findall(
        r"^\| (\w[\w ,]*) \| (\w.*) \|$", PAGE.partition("## Operators")[2].partition("## Public")[0], re.M
    )
    assert [row for row in rows if row[0] != "Topic"] == [
        (name, ", ".join(names(topic))) for name, topic in TOPICS.items()
    ]
