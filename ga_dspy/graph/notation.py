r"""How names are written so that they can be read back: what is escaped, and how lines are cut.

A backslash stands before whatever would be taken for a separator. Parentheses that balance stay
as they are, so "Prism (album)" is written "Prism (album)".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_SPECIAL: Final = re.compile(r"[\\\[\];|→]|->|--|\*\*|`|<(?=/?graph>)", re.I)
_SQUARE: Final = str.maketrans("[]()", "()  ")
_ESCAPE: Final = re.compile(r"\\(.)")
_QUALITY: Final = re.compile(r"\((?=\s*(?:time|confidence)\s*:)", re.I)


def escape(text: str, also: str = "") -> str:
    r"""Write a name so that nothing in it is read as a separator.

    Args:
        text: one line.
        also: further characters to escape.

    >>> print(escape("A -> B; C"), escape("Prism (album)"), escape("smile :)"))
    A \-\> B\; C Prism (album) smile :\)
    """
    written = _SPECIAL.sub(lambda match: "\\" + "\\".join(match.group()), text)
    written = _QUALITY.sub(r"\(", written)
    also += "" if _balanced(written) else "()"
    marked = {i for i, char in bare(written) if char in also}
    return "".join(f"\\{char}" if i in marked else char for i, char in enumerate(written))


def unescape(text: str) -> str:
    """Undo `escape`, and trim."""
    return _ESCAPE.sub(r"\1", text.strip()).strip()


def _balanced(text: str) -> bool:
    depth = 0
    for _, char in bare(text):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0


def bare(text: str) -> Iterator[tuple[int, str]]:
    """Each character that no backslash stands before, with its place."""
    escaped = False
    for i, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            yield i, char


def split(text: str, separator: str) -> list[str]:
    r"""Cut at a separator where it is not escaped.

    >>> split(r"a \-> b -> c", "->")
    ['a \\-> b ', ' c']
    """
    places = [i for i, _ in bare(text) if text.startswith(separator, i)]
    parts, start = [], 0
    for place in places:
        if place >= start:
            parts.append(text[start:place])
            start = place + len(separator)
    return [*parts, text[start:]]


def split_outside(text: str, separator: str) -> list[str]:
    """Cut at a one-character separator outside of any brackets."""
    depth, places = 0, []
    for i, char in bare(text):
        depth += (char in "([") - (char in ")]")
        if char == separator and depth == 0:
            places.append(i)
    starts = [0, *(place + 1 for place in places)]
    return [text[i:j] for i, j in zip(starts, [*places, len(text)], strict=True)]


def is_whole(text: str) -> bool:
    """Whether every bracket that is opened is closed; text that was cut off often is not."""
    return _balanced(text) and _balanced(text.translate(_SQUARE))


def last_group(text: str, opening: str = "(", closing: str = ")") -> tuple[str, str] | None:
    """Take a group in brackets off the end: what stands before it, and its content.

    None where the text does not end with a closed group.

    >>> last_group("Prism (album) (work; 2013)")
    ('Prism (album) ', 'work; 2013')
    """
    chars = list(bare(text.rstrip()))
    if not chars or chars[-1] != (len(text.rstrip()) - 1, closing):
        return None
    depth = 0
    for i, char in reversed(chars):
        depth += (char == closing) - (char == opening)
        if depth == 0:
            return text[:i], text[i + 1 : chars[-1][0]]
    return None


def groups(text: str) -> Iterator[tuple[str, bool]]:
    """The contents of top-level square brackets, and whether each is closed."""
    depth, start = 0, 0
    for i, char in bare(text):
        if char == "[":
            start = i + 1 if depth == 0 else start
            depth += 1
        elif char == "]" and depth:
            depth -= 1
            if depth == 0:
                yield text[start:i], True
    if depth:
        yield text[start:], False
