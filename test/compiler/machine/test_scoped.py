"""A builder's table keeps its rows until the end of the region in which they were added."""

from ringup.compiler.machine.scoped import Scoped


def test_rows_end_with_their_region_and_kept_ones_do_not():
    table: Scoped[str, int] = Scoped()
    table.put("outer", 1)
    table.enter()
    table.put("inner", 2)
    table.keep("kept", 3)
    assert [table.get(key) for key in ("outer", "inner", "kept", "none")] == [1, 2, 3, None]
    table.leave()
    assert [table.get(key) for key in ("outer", "inner", "kept")] == [1, None, 3]
    table.put("inner", 4)
    assert table.get("inner") == 4


def test_what_is_forgotten_inside_a_region_does_not_trouble_its_end():
    table: Scoped[str, int] = Scoped()
    table.put("outer", 1)
    table.enter()
    table.put("inner", 2)
    table.clear()
    table.put("inner", 3)
    table.leave()
    assert table.get("inner") is None
    assert table.get("outer") is None
