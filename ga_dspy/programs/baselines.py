"""The paper's baselines: memory alone, one search, and four loops; called like GraphAnchor."""

from __future__ import annotations

import re
from dataclasses import field

import dspy

from ga_dspy.programs.calls import Conversation, StepFailed, remove_from_trace
from ga_dspy.programs.evidence import Conclusion
from ga_dspy.programs.program import (
    LEAST_ROOM,
    ROOM_FOR_REPLY,
    IterativeProgram,
    MultiHopProgram,
    Signatures,
    State,
    Step,
    setting,
)
from ga_dspy.programs.reading import Labelled, fit_passages
from ga_dspy.signatures import (
    AnswerFromMemory,
    AskFromNotes,
    CompareNotes,
    NextThought,
    ThinkOrSearch,
    UpdateNotes,
    answer_signature,
)
from ga_dspy.signatures.prompt import EMPTY, free_text, indented
from ga_dspy.text import fold

# --- Closed book: what the LM answers from memory. The measure of what reading adds.


class ClosedBook(MultiHopProgram):
    """One LM call without a passage; nothing is ever supported.

    The retriever is not searched; it is passed so that every program is made the same way.
    """

    k: int = field(init=False, default=1)
    passage_tokens: int = field(init=False, default=0)
    token_budget: int | None = field(init=False, default=None)

    def signatures(self) -> Signatures:
        """An answer from memory."""
        return {"answer": AnswerFromMemory}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Answer."""
        return (yield from self._conclude(state))

    def _answer(self, state: State) -> Conversation[Conclusion]:
        reply = yield from self._ask(state, "answer", {"question": state.question}, "answer")
        return Conclusion.without_citing(reply.answer or "", {})


# --- Vanilla RAG: retrieve once, answer. The baseline everything is held against.


class VanillaRAG(MultiHopProgram):
    """The top k passages for the question, read in one LM call."""

    def signatures(self) -> Signatures:
        """An answer from the passages."""
        return {"answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, answer."""
        step, _ = yield from self._retrieve(state, Step(number=1, query=state.question))
        yield from self._end_step(state, step)
        return (yield from self._conclude(state))


# --- IRCoT: retrieval interleaved with a chain of thought (Trivedi et al., 2023).


class IRCoT(IterativeProgram):
    """One more sentence of thought, a search with that sentence, and so on; then read.

    The search ends where a thought holds the answer ("So the answer is: …"), is empty or repeats
    an earlier one, or after `max_steps` rounds. Each thought sees all passages read so far; the
    answer is read from all of them. n rounds take n + 1 LM calls.
    """

    def signatures(self) -> Signatures:
        """The next thought; in the end the answer."""
        return {"think": NextThought, "answer": answer_signature(None)}

    def _read(self, state: State, step: Step, fresh: Labelled) -> Conversation[Step]:
        thoughts = state.notes or EMPTY
        room = max(self._room(state, "think", thoughts), LEAST_ROOM)
        inputs = {
            "question": state.question,
            "passages": fit_passages(state.reading.passages, room, self.count).text,
            "thoughts": thoughts,
        }
        reply = yield from self._ask(state, "think", inputs, "thought")
        thought = " ".join(free_text(reply.thought).split())
        before = {fold(line) for line in state.notes.splitlines()}
        state.notes = "\n".join(filter(None, (state.notes, thought)))
        step = step.replace(reasoning=thought, notes=state.notes, judgement="insufficient")
        answer = conclusion(thought)
        if answer is not None:
            return step.replace(judgement="sufficient", candidate=answer)
        if thought and fold(thought) not in before and not state.reading.was_tried(thought):
            return step.replace(next_query=thought)
        fault = "the thought repeats an earlier one" if thought else "no thought"
        return step.add_rule(f"{fault}: the search ends")


# "The answer is not stated yet" holds none: a conclusion starts with "so", or has a colon.
_ANSWER_IS = re.compile(
    r"\b(?:(?:so|thus|hence|therefore),? the (?:final )?answer is\s*:?"
    r"|the (?:final )?answer is\s*:)\s*(.+)$",
    re.IGNORECASE,
)


def conclusion(thought: str) -> str | None:
    """The answer that a thought holds; None where it concludes nothing.

    >>> conclusion("So the answer is: Helena.")
    'Helena'
    """
    found = _ANSWER_IS.search(thought)
    return free_text(found[1]).rstrip(".") if found else None


# --- Iter-RetGen: the previous answer helps to retrieve for the next one (Shao et al., 2023).


class IterRetGen(IterativeProgram):
    """Answer, search with the question and that answer, answer again.

    Each answer is read from the passages that the round's own search returned, old ones among
    them; the last one is the program's. The rounds end early where an answer comes back
    unchanged or empty, since the next round would repeat an earlier one. n rounds take n LM
    calls, and one more where no round gave an answer.
    """

    def signatures(self) -> Signatures:
        """An answer from the passages of a round."""
        return {"answer": answer_signature(None)}

    def _read(self, state: State, step: Step, fresh: Labelled) -> Conversation[Step]:
        labels = state.reading.tried[-1].labels
        passages = {label: state.reading.passages[label] for label in labels}
        shown = fit_passages(passages, max(self._room(state, "answer"), LEAST_ROOM), self.count)
        inputs = {"question": state.question, "passages": shown.text}
        reply = yield from self._ask(state, "answer", inputs, "answer")
        state.ending = Conclusion.from_reply(reply, passages, shown.left_out)
        answer = state.ending.answer
        query = f"{state.question} {answer}".strip()
        if not state.reading.was_tried(query):
            return step.replace(candidate=answer, next_query=query)
        fault = "the answer is one of an earlier round" if answer else "no answer"
        return step.add_rule(f"{fault}: the search ends", candidate=answer)


# --- Search-R1's protocol: think and search in turns, in one growing context (Jin et al., 2025).
#
# The paper plays it with a checkpoint trained for it; here any LM may.

_NEITHER = "neither a query nor an answer"


class SearchR1(IterativeProgram):
    """Think, search where something is missing, read what it brings, go on; then answer.

    The first turn has read nothing: the LM decides what to search, and whether. Every later turn
    sees the whole transcript, each passage in it once, so that a prefix cache serves it. n
    searches take n + 1 LM calls, and one more where the searches are used up without an answer.
    """

    def signatures(self) -> Signatures:
        """A turn; the answer where the turns ended without one."""
        return {"think": ThinkOrSearch, "answer": answer_signature(None)}

    def _first_query(self, state: State) -> Conversation[str]:
        """What the LM wants to search first; the question itself where it does not say."""
        try:
            turn = yield from self._turn(state)
        except StepFailed as failure:
            state.opening = f"{failure}: the question was searched"
            return state.question
        if not turn["next_query"] and not turn["candidate"]:
            state.opening = f"{_NEITHER}: the question was searched"
            return state.question
        return turn["next_query"]

    def _read(self, state: State, step: Step, fresh: Labelled) -> Conversation[Step]:
        room = max(self._room(state, "think", state.notes), LEAST_ROOM)
        found = fit_passages(fresh, room, self.count).text if fresh else "(nothing new)"
        self._note(state, f"{indented(f'Search: {step.query}')}\n\n{found}")
        turn = yield from self._turn(state)
        query, step = turn["next_query"], step.replace(**turn, notes=state.notes)
        if step.candidate or (query and not state.reading.was_tried(query)):
            return step
        fault = "the next query was tried before" if query else _NEITHER
        return step.add_rule(f"{fault}: the search ends", next_query="")

    def _turn(self, state: State) -> Conversation[dict[str, str]]:
        """One turn: a thought with a query, or with the answer."""
        inputs = {
            "question": state.question,
            "transcript": state.notes or EMPTY,
            "searches_left": self.max_steps - len(state.reading.tried),
        }
        reply = yield from self._ask(state, "think", inputs, "thought")
        thought, answer = free_text(reply.thought), free_text(reply.answer)
        if thought:
            self._note(state, indented(f"Thought: {thought}"))
        if answer:
            state.ending = Conclusion.without_citing(answer, state.reading.passages)
        return {
            "reasoning": thought,
            "judgement": "sufficient" if answer else "insufficient",
            "candidate": answer,
            "next_query": "" if answer else free_text(reply.query),
        }

    @staticmethod
    def _note(state: State, text: str) -> None:
        state.notes = "\n\n".join(filter(None, (state.notes, text)))


# --- DeepNote: a note that grows only where it gets better (Wang et al., 2025).


class DeepNote(IterativeProgram):
    """A note from the first passages; then query from its gaps, retrieve, update, keep the better.

    An update that is not judged better leaves the note as it was; after `patience` such updates
    in a row the search ends, as it does where no query is left. The answer is read from the best
    note alone. n rounds take about 3n LM calls.
    """

    patience: int = setting("How many updates in a row may be no better.", default=2, least=1)

    def signatures(self) -> Signatures:
        """Update the note, compare it with the one before, ask what it lacks, answer."""
        return {
            "update": UpdateNotes.delete("previous_reasoning"),
            "compare": CompareNotes,
            "ask": AskFromNotes,
            "answer": answer_signature("text", passages=False),
        }

    def _read(self, state: State, step: Step, fresh: Labelled) -> Conversation[Step]:
        if not fresh and not state.notes:
            return step.add_rule("nothing was found: the search ends")
        better = False
        if fresh:
            better = yield from self._update(state, step, fresh)
        state.setbacks = 0 if better else state.setbacks + 1
        step = step.replace(notes=state.notes)
        if not better:
            fault = "the updated note is no better" if fresh else "nothing new was found"
            step = step.add_rule(f"{fault}: the note stays")
        if state.setbacks >= self.patience:
            return step.add_rule(f"the patience ({self.patience}) is used up: the search ends")
        if step.number >= self.max_steps:
            return step
        return (yield from self._find_gap(state, step))

    def _update(self, state: State, step: Step, fresh: Labelled) -> Conversation[bool]:
        """Update the note; keep the update if it is the first or judged better."""
        room = max(self._room(state, "update", state.notes), LEAST_ROOM)
        inputs = {
            "question": state.question,
            "query": step.query,
            "notes_so_far": state.notes or EMPTY,
            "passages": fit_passages(fresh, room, self.count).text,
        }
        reply = yield from self._ask(state, "update", inputs, "notes")
        notes = free_text(reply.notes)
        better = notes != state.notes
        if better and state.notes:
            pair = {
                "question": state.question,
                "old_notes": state.notes,
                "new_notes": notes or EMPTY,
            }
            verdict = yield from self._ask(state, "compare", pair, "better")
            better = bool(notes) and verdict.better == "new"
        if better:
            state.notes = notes
        else:
            remove_from_trace(reply)
        state.reading.note_gain("notes rewritten" if better else "notes no better")
        return better

    def _find_gap(self, state: State, step: Step) -> Conversation[Step]:
        """Ask what the note lacks."""
        inputs = {
            "question": state.question,
            "tried": state.reading.render_tried(),
            "notes": state.notes or EMPTY,
        }
        reply = yield from self._ask(state, "ask", inputs, "next_query")
        query = free_text(reply.next_query)
        step = step.replace(judgement="insufficient" if query else "sufficient")
        if query and state.reading.was_tried(query):
            return step.add_rule("the next query was tried before: the search ends")
        return step.replace(next_query=query)

    def _within_budget(self, state: State, step: Step, cost: int) -> Step:
        """As in every loop; a round after the first compares two notes as well."""
        if step.number == 1:
            cost += self._fixed("compare") + ROOM_FOR_REPLY["read"] + 2 * self.count(state.notes)
        return super()._within_budget(state, step, cost)

    def _answer_inputs(self, state: State) -> dict[str, str]:
        return {"notes": state.notes or EMPTY}
