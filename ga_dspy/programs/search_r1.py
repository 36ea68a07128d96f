"""Search-R1's protocol: think and search in turns, in one growing context (Jin et al., 2025).

The paper plays it with a checkpoint trained for it; here any LM may.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

import dspy

from ga_dspy.passage import Passage
from ga_dspy.programs.answering import recognised
from ga_dspy.programs.conversation import Ask, Request
from ga_dspy.programs.iterative import IterativeProgram
from ga_dspy.programs.prediction import Step
from ga_dspy.programs.predictors import without_graph
from ga_dspy.programs.progress import Judged, Progress
from ga_dspy.programs.reading import Shown, fit
from ga_dspy.programs.salvage import StepFailed, asked
from ga_dspy.signatures import AnswerQuestion, ThinkOrSearch
from ga_dspy.signatures.prompt import EMPTY, said

_NEITHER = "neither a query nor an answer"


class SearchR1(IterativeProgram):
    """Think, search where something is missing, read what it brings, go on; then answer.

    The first turn has read nothing: the LM decides what to search, and whether. Every later turn
    sees the whole transcript, each passage in it once, so that a prefix cache serves it. n
    searches take n + 1 LM calls, and one more where the searches are used up without an answer.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        max_steps: The most searches.
        k: Passages a search.
        passage_tokens: Budget for the passages of one search in the transcript.
        token_budget: About as many tokens as a question may cost; None for no limit.
        abstain: Give an empty answer where no passage supports one.
        count: Counts the tokens of a text.
    """

    signatures: ClassVar[dict[str, type[dspy.Signature]]] = {
        "think": ThinkOrSearch,
        "answer": without_graph(AnswerQuestion),
    }

    def _first_query(self, progress: Progress) -> Generator[Request, Any, str]:
        """What the LM wants to search first; the question itself where it does not say."""
        try:
            turn = yield from self._turn(progress)
        except StepFailed as failure:
            progress.opening = f"{failure}: the question was searched"
            return progress.question
        if not turn.next_query and not turn.candidate:
            progress.opening = f"{_NEITHER}: the question was searched"
            return progress.question
        return turn.next_query

    def _read(
        self, progress: Progress, step: Step, fresh: dict[int, Passage]
    ) -> Generator[Ask, dspy.Prediction, Step]:
        room = self._room(progress, progress.notes)
        found = fit(fresh, room, self.count).text if fresh else "(nothing new)"
        self._note(progress, f"Search: {step.query}\n\n{found}")
        turn = yield from self._turn(progress)
        step = step.model_copy(update={**turn._asdict(), "notes": progress.notes})
        if turn.candidate or (turn.next_query and not progress.reading.was_tried(turn.next_query)):
            return step
        fault = "the next query was tried before" if turn.next_query else _NEITHER
        rule = "; ".join(filter(None, (step.rule, f"{fault}: the search ends")))
        return step.model_copy(update={"next_query": "", "rule": rule})

    def _turn(self, progress: Progress) -> Generator[Ask, dspy.Prediction, Judged]:
        """One turn: a thought with a query, or with the answer."""
        inputs = {
            "question": progress.question,
            "transcript": progress.notes or EMPTY,
            "searches_left": self.max_steps - len(progress.reading.tried),
        }
        reply = yield from asked("think", self.think, inputs, progress.meter)
        thought, query, answer = said(reply.thought), said(reply.query), said(reply.answer)
        if thought:
            self._note(progress, f"Thought: {thought}")
        if answer:
            shown = Shown("", ())
            progress.ending = (shown, recognised(answer, progress.reading.passages))
            return Judged(thought, "sufficient", answer, "")
        return Judged(thought, "insufficient", "", query)

    def _conclude(self, progress: Progress) -> Generator[Request, Any, dspy.Prediction]:
        """The answer of the last turn; one more call where the turns ended without one."""
        if progress.ending is None:
            return (yield from super()._conclude(progress))
        shown, end = progress.ending
        return self._prediction(progress, shown, end)

    @staticmethod
    def _note(progress: Progress, text: str) -> None:
        progress.notes = "\n\n".join(filter(None, (progress.notes, text)))
