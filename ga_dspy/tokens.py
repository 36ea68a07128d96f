"""How many tokens a text costs, estimated without a tokenizer to download.

Budgets and reports need a count that is the same on every machine and needs no network. The
estimate counts words (a long word twice or more), digits by threes, and each sign, scaled to
cl100k_base: a test holds its mean over Wikipedia paragraphs within 5 % of the true count. Pass your
own counter where a budget must be exact for one model.
"""

from __future__ import annotations

import re
from collections.abc import Callable

TokenCounter = Callable[[str], int]

_PIECE = re.compile(r"[^\W\d_]+|\d{1,3}|[^\w\s]|_|\n")
_LETTERS_PER_TOKEN = 9
_SCALE = 1.06


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text.

    >>> estimate_tokens("Red Lodge is the county seat of Carbon County.")
    11
    """
    count = 0.0
    for piece in _PIECE.findall(text):
        if piece.isascii() or len(piece) == 1:
            count += 1 + (len(piece) - 1) // _LETTERS_PER_TOKEN
        else:
            count += 0.7 * len(piece)
    return round(count * _SCALE)
