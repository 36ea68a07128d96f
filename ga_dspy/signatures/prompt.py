"""How passages and past queries stand in a prompt, and how free text comes back from one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ga_dspy.graph import is_unstated, says_nothing
from ga_dspy.passage import Passage

EMPTY = "(empty)"
LONGEST_TITLE = 80
_NOTHING = re.compile(
    r"[\s\"'`*.(\[]*"
    r"(none|null|nil|n/?a|empty|nothing|not applicable|no (further )?query( needed)?)?"
    r"[\s\"'`*.)\]]*",
    re.IGNORECASE,
)
_NONE_BECAUSE = re.compile(r"(?:n/?a|none|no (?:candidate|answer)(?: yet)?)\W*(?:[-–—(:].*)?", re.I)


def title_of(passage: Passage) -> str:
    """A passage's title on one line, at most `LONGEST_TITLE` characters of it."""
    return " ".join(passage.title.split())[:LONGEST_TITLE] or "(untitled)"


def render_passage(label: int, passage: Passage) -> str:
    r"""The label with the title, then the text with its line breaks.

    Lines of a text that has several, or that begins like a label, are indented, so that no text
    can pass for another passage.

    >>> print(render_passage(3, Passage(id="x", title="Red Lodge", text="Cities:\n- Billings")))
    [3] Red Lodge
      Cities:
      - Billings
    """
    title = " ".join(passage.title.split()) or "(untitled)"
    lines = [line.rstrip() for line in passage.text.splitlines() if line.strip()]
    if len(lines) > 1 or any(line.lstrip().startswith("[") for line in lines):
        lines = [f"  {line}" for line in lines]
    else:
        lines = [line.strip() for line in lines]
    text = "\n".join(lines)
    return f"[{label}] {title}\n{text}"


def render_passages(labelled: Iterable[tuple[int, Passage]]) -> str:
    """Blocks with a blank line between them; "(empty)" for none."""
    return "\n\n".join(render_passage(label, passage) for label, passage in labelled) or EMPTY


def free_text(text: str | None) -> str:
    """What a model wrote in a free-text field; empty where it wrote that there is nothing.

    >>> free_text(" None. "), free_text("N/A"), free_text("None of the Above (film)")
    ('', '', 'None of the Above (film)')
    """
    stripped = (text or "").strip()
    return "" if _NOTHING.fullmatch(stripped) else stripped


def short_text(text: str | None) -> str:
    """A query or a candidate; empty where a model wrote, in whatever words, that there is none.

    >>> short_text("No further query is needed."), short_text("no"), short_text("Nothing (film)")
    ('', 'no', 'Nothing (film)')
    """
    plain = free_text(text)
    is_none = says_nothing(plain) or is_unstated(plain) or _NONE_BECAUSE.fullmatch(plain)
    return "" if is_none else plain


def cited_labels(text: str) -> tuple[int, ...]:
    """The passage numbers in a list as a model writes it, in order, each once.

    >>> cited_labels("[2][5], passage 2 and 7")
    (2, 5, 7)
    """
    return tuple(dict.fromkeys(int(number) for number in re.findall(r"\d{1,4}", text)))
