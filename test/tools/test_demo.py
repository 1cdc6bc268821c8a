"""The demonstration computes what it shows: the set's symmetry and size, judged by NumPy."""

import json

import numpy as np

from ringup.tools import cli, demo


def test_the_picture_is_the_set(capsys):
    assert cli.main(["demo", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    pixel = np.float32(3.0 / demo.WIDTH)
    cx = np.float32(-2.2) + np.arange(demo.WIDTH, dtype=np.float32) * pixel
    cy = np.float32(-1.5) + np.arange(demo.HEIGHT, dtype=np.float32)[:, None] * pixel
    x = np.zeros((demo.HEIGHT, demo.WIDTH), np.float32)
    y, alive = x.copy(), np.ones(x.shape, bool)
    with np.errstate(all="ignore"):
        for _ in range(demo.STEPS):
            alive &= x * x + y * y < 4
            x, y = np.where(alive, x * x - y * y + cx, x), np.where(alive, 2 * (x * y) + cy, y)
    assert figures["waves"] == demo.WIDTH * demo.HEIGHT // 32
    assert abs(figures["inside"] - int(alive.sum())) <= 40  # pixels on the edge, where one rounding decides


def test_it_draws_shades_where_no_terminal_watches(capsys):
    assert cli.main(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) == demo.WIDTH // 4 for line in lines[:-1])
    assert "@@@@@@@@" in lines[len(lines) // 2]
    assert lines[1:16] == lines[17:32][::-1]  # line 16 is the real axis; the set is its own mirror image
    assert "virtual:navi31 came up in" in lines[-1]
    assert "ran 2048 waves of machine code" in lines[-1]
