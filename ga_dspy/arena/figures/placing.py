"""Labels beside points, none over another label or a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.drawing import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

_BESIDE = 8.0
"""Points between a point and a label to its right or left."""
_FIRST, _STEP, _LEVELS = 3.0, 6.0, 26
"""Points between the end of an error bar and a label, and between one height and the next."""
_ROOM = 5.0
"""Pixels around a point that labels keep free."""
_WORTH_A_LEAD = 7.0
_THIN = 5.0
"""Pixels to each side of a leading line that labels keep free."""
_WIDER = 22.0
"""Points to a label that is beside its point, but higher or lower."""
_HIGHER, _ASIDE, _SLANTED = 3.0, 60.0, 1500.0
"""What it costs a label to stand one height further off, not over its bar, or at a slant."""


_ON_A_LABEL, _ON_A_POINT, _ON_A_LEAD, _OUTSIDE = 30.0, 3.0, 1.0, 30.0
"""What a pixel costs a label that covers what is there, or lies outside the panel."""
_CROSSING = 0.05
"""What a pixel costs a leading line, as a share of that."""


Pixel = tuple[float, float]


class Named(NamedTuple):
    """A point with its error bar, what it is called, and how that is written."""

    text: str
    x: float
    y: float
    low: float
    high: float
    colour: str
    weight: str = "normal"


class _Taken(NamedTuple):
    """Pixels that labels keep off, and what each costs one that does not."""

    box: Bbox
    cost: float


class _Place(NamedTuple):
    """Where a label may stand.

    Attributes:
        box: Its pixels.
        lead: The pixels where the line to it begins and ends; None where it needs none.
        worse: What it costs to stand there though nothing is covered.
    """

    box: Bbox
    lead: tuple[Pixel, Pixel] | None
    worse: float


def place_labels(
    figure: Figure, axes: Axes, points: Sequence[Named], taken: Sequence[Named] = ()
) -> None:
    """Label points so that labels keep off one another, off points and off error bars.

    A label stands beside its point or over an end of its bar, at the nearest free place, the
    first points first; a dotted line leads to one that is further off. Where no place is free,
    the one that covers least.

    Args:
        figure: The picture, with all else drawn.
        axes: The panel, with its final limits.
        points: The points, the most important first.
        taken: Further points, which need no label.
    """
    # The layout decides where pixels are.
    figure.draw_without_rendering()
    drawn = [box for point in (*points, *taken) for box in _drawn(axes, point)]
    covered = [_Taken(box, _ON_A_POINT) for box in drawn]
    for point in points:
        covered.extend(_write(axes, point, covered, figure.dpi / 72))


def _write(axes: Axes, point: Named, taken: Sequence[_Taken], scale: float) -> list[_Taken]:
    """Write a label at its best place; gives what it takes. `scale` is pixels a point."""
    text = axes.annotate(
        point.text, (point.x, point.y), xytext=(0, 0), textcoords="offset points", ha="left",
        va="bottom", fontsize=8, color=point.colour, weight=point.weight, zorder=5,
    )  # fmt: skip
    text.set_in_layout(False)
    frame = axes.get_window_extent()
    # The first of the best is the nearest.
    best = min(
        _places(axes, point, text, scale), key=lambda place: round(_cost(place, taken, frame), 1)
    )
    x, y = axes.transData.transform((point.x, point.y))
    text.set_position(((best.box.x0 - x) / scale, (best.box.y0 - y) / scale))
    covered = [_Taken(best.box.padded(2.0), _ON_A_LABEL)]
    if best.lead is not None:
        _draw_lead(axes, best.lead)
        covered.append(_Taken(_along(best.lead), _ON_A_LEAD))
    return covered


def _places(axes: Axes, point: Named, text: Annotation, scale: float) -> Iterator[_Place]:
    size = text.get_window_extent()
    x, y, low, high = _pixels(axes, point)
    yield from _beside(x, y, size, scale)
    for level in range(_LEVELS):
        off = (_FIRST + _STEP * level) * scale
        far = off > _WORTH_A_LEAD * scale
        for bottom, start in ((high + off, high), (low - off - size.height, low)):
            near = bottom if bottom > start else bottom + size.height
            lead = ((x, start), (x, near)) if far else None
            for share, worse in ((0.5, 0.0), (0.1, _ASIDE), (0.9, _ASIDE)):
                box = size.translated(x - share * size.width - size.x0, bottom - size.y0)
                yield _Place(box, lead, worse + _HIGHER * level)


def _beside(x: float, y: float, size: Bbox, scale: float) -> Iterator[_Place]:
    """Places to the right and left: at the point's own height, then above and below that."""
    for level in range(_LEVELS):
        for up in (_STEP * level * scale, -_STEP * level * scale):
            for side in (1, -1):
                near = x + side * (_BESIDE if not level else _WIDER) * scale
                left = near if side > 0 else near - size.width
                box = size.translated(left - size.x0, y + up - size.height / 2 - size.y0)
                if level:
                    yield _Place(box, ((x, y), (near, y + up)), _SLANTED + _HIGHER * level)
                else:
                    yield _Place(box, None, 0.0)


def _cost(place: _Place, taken: Sequence[_Taken], frame: Bbox) -> float:
    """What it costs a label to stand there: what it and its line cover, and the place itself."""
    text = place.box.padded(2.0)
    cost = place.worse + _OUTSIDE * (float(text.width * text.height) - _shared(text, frame))
    cost += sum(other.cost * _shared(text, other.box) for other in taken)
    if place.lead is None or place.lead[0][0] != place.lead[1][0]:
        return cost
    line = _along(place.lead)
    return cost + _CROSSING * sum(other.cost * _shared(line, other.box) for other in taken)


def _along(lead: tuple[Pixel, Pixel]) -> Bbox:
    """What a leading line covers: of a slanted one, its end."""
    from matplotlib.transforms import Bbox

    (x0, y0), (x1, y1) = lead
    low, high = (min(y0, y1), max(y0, y1)) if x0 == x1 else (y1, y1)
    return Bbox.from_extents(x1 - _THIN, low, x1 + _THIN, high)


def _shared(one: Bbox, other: Bbox) -> float:
    width = float(min(one.x1, other.x1) - max(one.x0, other.x0))
    height = float(min(one.y1, other.y1) - max(one.y0, other.y0))
    return max(width, 0.0) * max(height, 0.0)


def _drawn(axes: Axes, point: Named) -> Iterator[Bbox]:
    """The pixels of a point and of its error bar."""
    from matplotlib.transforms import Bbox

    x, y, low, high = _pixels(axes, point)
    yield Bbox.from_extents(x - _ROOM, y - _ROOM, x + _ROOM, y + _ROOM)
    yield Bbox.from_extents(x - 2, low, x + 2, high)


def _pixels(axes: Axes, point: Named) -> tuple[float, float, float, float]:
    """A point's x, y, and both ends of its bar, in pixels."""
    places = [(point.x, y) for y in (point.y, point.low, point.high)]
    (x, y), (_, low), (_, high) = axes.transData.transform(places)
    # Where the bar is shorter than the point, the point's edge is the end.
    return float(x), float(y), float(min(low, y - _ROOM)), float(max(high, y + _ROOM))


def _draw_lead(axes: Axes, lead: tuple[Pixel, Pixel]) -> None:
    ends = axes.transData.inverted().transform(lead)
    axes.plot(ends[:, 0], ends[:, 1], ":", color=GREY, lw=0.9, zorder=1.5, label="_lead")
