"""A small corpus with multi-hop questions, for demonstrations, tests and first experiments.

The corpus has 122 short passages on rivers, bridges, space flights, books, music and science. 60
questions need two or three of them: 30 for training and 30 for evaluation, with different chains of
passages. About 70 % are bridge questions, the others comparisons. Ten more, "hops", need three or
four passages, and a search for the question does not find the last of these. The question files
have HotpotQA's official format; each question has ten passages, including the gold ones.

Passages and questions were written for this project, under its MIT licence. They state well-known
facts in new words; no text is from another data set or an encyclopedia.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

from ga_dspy.errors import unknown
from ga_dspy.passage import Passage

__all__ = ["DEMO_QUESTION", "RECORDED", "Split", "corpus", "questions"]

Split = Literal["train", "dev", "hops"]

DEMO_QUESTION = (
    "Which river flows through the city where the grandfather of the author of Treasure Island "
    "was born?"
)
"""The first question of "hops", over a chain of four passages; for demonstration, not scored."""

RECORDED = Path(str(files(__name__))) / "recorded"
"""The folder of an LM's replies to the dev questions, recorded by `tests/record_demo.py`.

Each program has a file of replies and, if it is compiled, a folder with its artifact. `about.json`
names the LM and the date, and has the answers by row of the table and by question.
"""


def corpus() -> list[Passage]:
    """Return all passages, in the order in which they are stored.

    >>> corpus()[0].title
    'Apollo 11'
    """
    text = files(__name__).joinpath("corpus.jsonl").read_text(encoding="utf-8")
    return [Passage.model_validate_json(line) for line in text.splitlines()]


def questions(split: Split) -> Path:
    """Return the path of a question file in HotpotQA's official format.

    Raises:
        InputError: There is no such split.

    >>> questions("dev").name
    'questions_dev.json'
    """
    if split not in get_args(Split):
        raise unknown("split", split, get_args(Split))
    return Path(str(files(__name__).joinpath(f"questions_{split}.json")))
