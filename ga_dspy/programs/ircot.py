"""IRCoT: retrieval interleaved with a chain of thought (Trivedi et al., 2023)."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import ClassVar

import dspy

from ga_dspy.mentions import fold
from ga_dspy.passage import Passage
from ga_dspy.programs.conversation import Ask
from ga_dspy.programs.iterative import IterativeProgram
from ga_dspy.programs.prediction import Step
from ga_dspy.programs.predictors import without_graph
from ga_dspy.programs.progress import Progress
from ga_dspy.programs.reading import fit
from ga_dspy.programs.salvage import asked
from ga_dspy.signatures import AnswerQuestion, NextThought
from ga_dspy.signatures.prompt import EMPTY, said

# "The answer is not stated yet" holds none: a conclusion starts with "so", or has a colon.
_ANSWER_IS = re.compile(
    r"\b(?:(?:so|thus|hence|therefore),? the (?:final )?answer is\s*:?"
    r"|the (?:final )?answer is\s*:)\s*(.+)$",
    re.IGNORECASE,
)


class IRCoT(IterativeProgram):
    """One more sentence of thought, a search with that sentence, and so on; then read.

    The search ends where a thought holds the answer ("So the answer is: …"), is empty or repeats
    an earlier one, or after `max_steps` rounds. Each thought sees all passages read so far; the
    answer is read from all of them. n rounds take n + 1 LM calls.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        max_steps: The most rounds of retrieval.
        k: Passages a round.
        passage_tokens: Budget for the passages in a prompt.
        token_budget: About as many tokens as a question may cost; None for no limit.
        abstain: Give an empty answer where no passage supports one.
        count: Counts the tokens of a text.
    """

    signatures: ClassVar[dict[str, type[dspy.Signature]]] = {
        "think": NextThought,
        "answer": without_graph(AnswerQuestion),
    }

    def _read(
        self, progress: Progress, step: Step, fresh: dict[int, Passage]
    ) -> Generator[Ask, dspy.Prediction, Step]:
        thoughts = progress.notes or EMPTY
        room = self._room(progress, thoughts)
        inputs = {
            "question": progress.question,
            "passages": fit(progress.reading.passages, room, self.count).text,
            "thoughts": thoughts,
        }
        reply = yield from asked("think", self.think, inputs, progress.meter)
        thought = " ".join(said(reply.thought).split())
        answer = conclusion(thought)
        if answer is None:
            decided = self._next(progress, thought)
        else:
            decided = {"judgement": "sufficient", "candidate": answer}
        progress.notes = "\n".join(filter(None, (progress.notes, thought)))
        return step.model_copy(update={"reasoning": thought, "notes": progress.notes, **decided})

    def _next(self, progress: Progress, thought: str) -> dict[str, str]:
        before = {fold(line) for line in progress.notes.splitlines()}
        if thought and fold(thought) not in before and not progress.reading.was_tried(thought):
            return {"judgement": "insufficient", "next_query": thought}
        fault = "the thought repeats an earlier one" if thought else "no thought"
        return {"judgement": "insufficient", "rule": f"{fault}: the search ends"}


def conclusion(thought: str) -> str | None:
    """The answer that a thought holds; None where it concludes nothing.

    >>> conclusion("So the answer is: Helena.")
    'Helena'
    """
    found = _ANSWER_IS.search(thought)
    return said(found[1]).rstrip(".") if found else None
