"""How passages and past queries stand in a prompt, and how free text comes back from one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ga_dspy.passage import Passage

EMPTY = "(empty)"
_NOTHING = re.compile(
    r"[\s\"'`*.(\[]*"
    r"(none|null|nil|n/?a|empty|nothing|not applicable|no (further )?query( needed)?)?"
    r"[\s\"'`*.)\]]*",
    re.IGNORECASE,
)


def render_passage(label: int, passage: Passage) -> str:
    r"""Two lines: the label with the title, then the text on one line.

    >>> print(render_passage(3, Passage(id="x", title="Red Lodge", text="A city\nin Montana.")))
    [3] Red Lodge
    A city in Montana.
    """
    title = " ".join(passage.title.split()) or "(untitled)"
    return f"[{label}] {title}\n{' '.join(passage.text.split())}"


def render_passages(labelled: Iterable[tuple[int, Passage]]) -> str:
    """Blocks of two lines with a blank line between them; "(empty)" for none."""
    return "\n\n".join(render_passage(label, passage) for label, passage in labelled) or EMPTY


def free_text(text: str | None) -> str:
    """What a model wrote in a free-text field; empty where it wrote that there is nothing.

    >>> free_text(" None. "), free_text("N/A"), free_text("None of the Above (film)")
    ('', '', 'None of the Above (film)')
    """
    stripped = (text or "").strip()
    return "" if _NOTHING.fullmatch(stripped) else stripped


def cited_labels(text: str) -> tuple[int, ...]:
    """The passage numbers in a list as a model writes it, in order, each once.

    >>> cited_labels("[2][5], passage 2 and 7")
    (2, 5, 7)
    """
    return tuple(dict.fromkeys(int(number) for number in re.findall(r"\d{1,4}", text)))
