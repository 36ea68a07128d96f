"""The style that all pictures share: limits, small print, and the same bytes again."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy import drawing
from ga_dspy.errors import MissingExtra

PERCENT = st.floats(0.0, 100.0)


def picture(names: tuple[str, ...] = ("one", "two"), caption: str = "") -> Any:
    figure, axes = drawing.canvas(5.0, 4.0, 2, share_y=True)
    for panel in axes:
        for height, name in enumerate(names):
            panel.plot([1, 2], [height, height + 1], label=name)
        drawing.name(panel, "panel", "x", "y")
    drawing.head(figure, "Title", "subtitle", caption)
    return figure


def test_the_same_picture_gives_the_same_bytes_without_date_or_version(tmp_path: Path) -> None:
    one = drawing.save(picture(), tmp_path / "new" / "one.png").read_bytes()
    other = drawing.save(picture(), tmp_path / "other.png").read_bytes()
    assert one == other and one.startswith(b"\x89PNG")
    assert b"tEXt" not in one


def test_a_picture_has_150_pixels_an_inch(tmp_path: Path) -> None:
    from matplotlib.image import imread

    assert imread(drawing.save(picture(), tmp_path / "p.png")).shape[:2] == (600, 750)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ga-dspy\[report\]'"):
        drawing.canvas(4.0, 3.0)


def test_an_arena_costs_no_library_of_reports_until_one_is_written() -> None:
    code = (
        "import sys, ga_dspy.arena.report, ga_dspy.arena.figures;"
        "sys.exit(bool({'matplotlib', 'pandas', 'textalloc'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_small_print_is_broken_to_fit_the_picture() -> None:
    figure = picture(caption="as many words as it takes " * 12 + "\na line of its own")
    figure.savefig(BytesIO())
    assert figure.get_supxlabel().splitlines()[-1] == "a line of its own"
    box = next(t for t in figure.texts if "of its own" in t.get_text()).get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0


def test_labels_stand_off_marks_and_bars_and_leave_the_limits_as_they_are() -> None:
    figure, (axes,) = drawing.canvas(5.0, 4.0)
    points = [(x, 5.0, 2.0, 8.0) for x in (1.0, 1.1, 1.2, 4.0)]
    axes.set(xlim=(0.0, 5.0), ylim=(0.0, 10.0))
    labels = [drawing.Label(f"label {x}", x, high) for x, _, _, high in points]
    drawing.label_points(figure, axes, labels, points)
    figure.savefig(BytesIO(), dpi=figure.dpi)
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == len(points)
    for x, _, low, high in points:
        (place, bottom), (_, top) = axes.transData.transform([(x, low), (x, high)])
        assert not any(b.x0 < place < b.x1 and b.y0 < top and b.y1 > bottom for b in boxes)
    assert (axes.get_xlim(), axes.get_ylim()) == ((0.0, 5.0), (0.0, 10.0))


def test_without_textalloc_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textalloc", None)
    figure, (axes,) = drawing.canvas(4.0, 3.0)
    with pytest.raises(MissingExtra, match=r"textalloc.*ga-dspy\[report\]"):
        drawing.label_points(figure, axes, [], [])


@given(st.lists(PERCENT, min_size=1))
def test_limits_hold_every_percentage_with_room_around(values: list[float]) -> None:
    low, high = drawing.percent_limits(values)
    assert -1.0 <= low <= min(values) and max(values) <= high <= 101.0
    assert high - low >= 5.0


@given(PERCENT, PERCENT, PERCENT)
def test_an_interval_reaches_no_way_below_nothing(value: float, low: float, high: float) -> None:
    ((down,), (up,)) = drawing.reach(value, (low, high))
    assert down == max(value - low, 0.0) and up == max(high - value, 0.0)
