"""A small corpus with multi-hop questions, for demonstrations, tests and first experiments.

122 short passages on rivers, bridges, space flights, books, music and science, and 60 questions
that need two or three of them: 30 to train on and 30 to measure on, over the same corpus but
along other chains of passages. About 70 % of the questions are bridges, the rest comparisons.
Ten more, "hops", need three or four passages, the last of which no search for the question finds.
The question files have HotpotQA's official format, so that anything that reads HotpotQA reads
them; each question comes with ten passages, the gold ones among them.

Passages and questions were written for this project and carry its MIT licence. They state
well-known facts of the real world in our own words; no text comes from another data set or from
an encyclopedia.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage

__all__ = ["DEMO_QUESTION", "RECORDED", "Split", "corpus", "questions"]

Split = Literal["train", "dev", "hops"]

DEMO_QUESTION = (
    "Which river flows through the city where the grandfather of the author of Treasure Island "
    "was born?"
)
"""A chain over four passages, the first of "hops": shown, not scored."""

RECORDED = Path(str(files(__name__))) / "recorded"
"""What an LM replied to programs that asked the dev questions, by `tests/record_demo.py`.

A file of replies and, of a compiled program, a folder with its artifact; `about.json` names the LM,
the date and the answers by row of the table and question.
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
        InputError: `split` is neither "train", "dev" nor "hops".

    >>> questions("dev").name
    'questions_dev.json'
    """
    if split not in get_args(Split):
        raise InputError(
            f"split is {split!r}",
            expected="'train', 'dev' or 'hops'",
            remedy="pass questions('dev')",
        )
    return Path(str(files(__name__).joinpath(f"questions_{split}.json")))
