"""Cutting documents into passages: at headings first, then at sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

from ga_dspy.errors import MissingExtra
from ga_dspy.tokens import estimate_tokens

TokenCounter = Callable[[str], int]

FEWEST_TOKENS, MOST_TOKENS = 400, 800


class Section(NamedTuple):
    """The text under a heading, and the headings above it, outermost first."""

    path: tuple[str, ...]
    text: str

    @property
    def title(self) -> str:
        """The headings joined as `Guide > Install`."""
        return " > ".join(self.path)


def chunk_text(text: str, count_tokens: TokenCounter = estimate_tokens) -> list[str]:
    """Cut a text at sentences into pieces of about equal size, each at most 800 tokens.

    A text of up to 800 tokens is one piece; longer ones give pieces from about 400 up.
    """
    text = text.strip()
    tokens = count_tokens(text)
    if tokens <= MOST_TOKENS:
        return [text] if text else []
    # A fifth above equal shares, because sentences do not end where the share does.
    share = math.ceil(1.2 * tokens / math.ceil(1.2 * tokens / MOST_TOKENS))
    return [piece.strip() for piece in _chunker(count_tokens, min(share, MOST_TOKENS))(text)]


def gather(
    sections: Sequence[Section], count_tokens: TokenCounter = estimate_tokens
) -> list[Section]:
    r"""Join neighbouring short sections, up to 400 tokens, under the headings they share.

    The headings of joined sections stand in the text, above theirs.

    >>> parts = [Section(("Guide", "Install"), "Run pip."), Section(("Guide", "Use"), "Call it.")]
    >>> gather(parts)
    [Section(path=('Guide',), text='Install\nRun pip.\n\nUse\nCall it.')]
    """
    groups: list[list[Section]] = []
    size = 0
    for section in sections:
        tokens = count_tokens(section.text)
        together = groups and size + tokens <= FEWEST_TOKENS
        if together and _shared([*groups[-1], section]):
            groups[-1].append(section)
            size += tokens
        else:
            groups.append([section])
            size = tokens
    return [_joined(group) for group in groups]


def _shared(group: Sequence[Section]) -> tuple[str, ...]:
    levels = zip(*(section.path for section in group), strict=False)
    return tuple(level[0] for level in takewhile(lambda names: len(set(names)) == 1, levels))


def _joined(group: Sequence[Section]) -> Section:
    if len(group) == 1:
        return group[0]
    path = _shared(group)
    parts = []
    for section in group:
        heading = " > ".join(section.path[len(path) :])
        parts.append(f"{heading}\n{section.text}" if heading else section.text)
    return Section(path, "\n\n".join(parts))


@lru_cache(maxsize=32)
def _chunker(count_tokens: TokenCounter, size: int) -> Any:
    try:
        import semchunk
    except ImportError as error:
        raise MissingExtra("semchunk", "retrieval") from error
    return semchunk.chunkerify(count_tokens, size, memoize=False)
