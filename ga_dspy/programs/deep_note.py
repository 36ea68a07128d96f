"""DeepNote: a note that grows only where it gets better (Wang et al., 2025)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import dspy

from ga_dspy.passage import Passage
from ga_dspy.programs.base import PROMPT_TOKENS, whole
from ga_dspy.programs.conversation import Ask
from ga_dspy.programs.iterative import IterativeProgram
from ga_dspy.programs.prediction import Step
from ga_dspy.programs.predictors import on_notes, without_passages
from ga_dspy.programs.progress import Progress
from ga_dspy.programs.reading import fit
from ga_dspy.programs.salvage import asked, untraced
from ga_dspy.signatures import AnswerQuestion, AskFromNotes, CompareNotes, UpdateNotes
from ga_dspy.signatures.prompt import EMPTY, said
from ga_dspy.tokens import TokenCounter, estimate_tokens


class DeepNote(IterativeProgram):
    """A note from the first passages; then query from its gaps, retrieve, update, keep the better.

    An update that is not judged better leaves the note as it was; after `patience` such updates
    in a row the search ends, as it does where no query is left. The answer is read from the best
    note alone. n rounds take about 3n LM calls.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        max_steps: The most rounds of retrieval.
        k: Passages a round.
        patience: How many updates in a row may be no better.
        passage_tokens: Budget for the passages in a prompt.
        token_budget: About as many tokens as a question may cost; None for no limit.
        abstain: Give an empty answer where no passage supports one.
        count: Counts the tokens of a text.
    """

    def __init__(
        self,
        retriever: Any,
        *,
        max_steps: int = 4,
        k: int = 5,
        patience: int = 2,
        passage_tokens: int = 6000,
        token_budget: int | None = None,
        abstain: bool = False,
        count: TokenCounter = estimate_tokens,
    ) -> None:
        super().__init__(
            retriever,
            max_steps=max_steps,
            k=k,
            passage_tokens=passage_tokens,
            token_budget=token_budget,
            abstain=abstain,
            count=count,
        )
        self.patience = whole("patience", patience)
        self.update = dspy.Predict(UpdateNotes.delete("previous_reasoning"))
        self.compare = dspy.Predict(CompareNotes)
        self.ask = dspy.Predict(AskFromNotes)
        self.answer = dspy.Predict(without_passages(on_notes(AnswerQuestion)).delete("candidate"))

    def settings(self) -> dict[str, Any]:
        """The arguments that make this program again, but for the retriever and the counter."""
        return {"patience": self.patience, **super().settings()}

    def _read(
        self, progress: Progress, step: Step, fresh: dict[int, Passage]
    ) -> Generator[Ask, dspy.Prediction, Step]:
        rule = ""
        if fresh:
            rule = yield from self._refine(progress, step, fresh)
        elif not progress.notes:
            return step.model_copy(update={"rule": "nothing was found: the search ends"})
        else:
            progress.setbacks += 1
            rule = "nothing new was found: the note stays"
        step = step.model_copy(update={"notes": progress.notes, "rule": rule})
        if progress.setbacks >= self.patience:
            ends = f"the patience ({self.patience}) is used up: the search ends"
            return step.model_copy(update={"rule": f"{rule}; {ends}"})
        if step.number >= self.max_steps:
            return step
        return (yield from self._next(progress, step))

    def _refine(
        self, progress: Progress, step: Step, fresh: dict[int, Passage]
    ) -> Generator[Ask, dspy.Prediction, str]:
        """Update the note; keep the update if it is the first or judged better."""
        told = {
            "question": progress.question,
            "query": step.query,
            "notes_so_far": progress.notes or EMPTY,
            "passages": fit(fresh, self._room(progress, progress.notes), self.count).text,
        }
        reply = yield from asked("update", self.update, told, progress.meter)
        notes = said(reply.notes)
        if progress.notes and notes != progress.notes:
            pair = {
                "question": progress.question,
                "old_notes": progress.notes,
                "new_notes": notes or EMPTY,
            }
            verdict = yield from asked("compare", self.compare, pair, progress.meter)
            better = bool(notes) and verdict.better == "new"
        else:
            better = notes != progress.notes
        if not better:
            untraced(reply)
        progress.setbacks = 0 if better else progress.setbacks + 1
        progress.reading.note_gain("notes rewritten" if better else "notes no better")
        progress.notes = notes if better else progress.notes
        return "" if better else "the updated note is no better: the note stays"

    def _next(self, progress: Progress, step: Step) -> Generator[Ask, dspy.Prediction, Step]:
        """Ask what the note lacks."""
        gaps = {
            "question": progress.question,
            "tried": progress.reading.render_tried(),
            "notes": progress.notes or EMPTY,
        }
        reply = yield from asked("ask", self.ask, gaps, progress.meter)
        query = said(reply.next_query)
        if not query:
            return step.model_copy(update={"judgement": "sufficient"})
        if progress.reading.was_tried(query):
            ends = "the next query was tried before: the search ends"
            rule = "; ".join(filter(None, (step.rule, ends)))
            return step.model_copy(update={"judgement": "insufficient", "rule": rule})
        return step.model_copy(update={"judgement": "insufficient", "next_query": query})

    def _within_budget(self, progress: Progress, step: Step, cost: int) -> Step:
        """As in every loop; a round after the first compares two notes as well."""
        if step.number == 1:
            cost += PROMPT_TOKENS + 2 * self.count(progress.notes)
        return super()._within_budget(progress, step, cost)

    def _answer_inputs(self, progress: Progress) -> dict[str, str]:
        return {"notes": progress.notes or EMPTY}
