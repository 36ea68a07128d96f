"""The paper's baselines: memory alone, one search, and four loops; called like GraphAnchor."""

from __future__ import annotations

import re
from dataclasses import field
from typing import NamedTuple

import dspy

from ga_dspy.programs.calls import Conversation, StepFailed, remove_from_trace
from ga_dspy.programs.evidence import Conclusion
from ga_dspy.programs.loop import (
    REPLY_TOKENS,
    State,
    answer,
    ask_answer,
    ask_step,
    end_round,
    fit,
    predict,
    search,
)
from ga_dspy.programs.program import IterativeProgram, MultiHopProgram, Signatures
from ga_dspy.programs.reading import Labelled
from ga_dspy.programs.settings import setting
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

    The retriever is not searched; it is an argument so that every program is made the same way.
    """

    k: int = field(init=False, default=1)
    passage_tokens: int = field(init=False, default=0)
    token_budget: int | None = field(init=False, default=None)

    def signatures(self) -> Signatures:
        """An answer from memory."""
        return {"answer": AnswerFromMemory}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Answer."""
        reply = yield from ask_answer(state, {"question": state.question})
        text = reply.answer or "" if reply is not None else ""
        return predict(state, Conclusion.without_citing(text, {}))


# --- Vanilla RAG: retrieve once, answer. The baseline that everything is compared with.


class VanillaRAG(MultiHopProgram):
    """The top k passages for the question, read in one LM call."""

    def signatures(self) -> Signatures:
        """An answer from the passages."""
        return {"answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, answer."""
        with state.round(state.question):
            yield from search(state)
        yield from end_round(state)
        return predict(state, (yield from answer(state)))


# --- IRCoT: retrieval interleaved with a chain of thought (Trivedi et al., 2023).


class IRCoT(IterativeProgram):
    """One more sentence of thought, a search with that sentence, and so on; then answer.

    The search ends when a thought holds the answer ("So the answer is: …"), is empty or repeats
    an earlier one, or after `max_steps` rounds. Each thought sees all passages read so far; the
    answer is read from all of them. n rounds take n + 1 LM calls.
    """

    def signatures(self) -> Signatures:
        """The next thought, and the answer."""
        return {"think": NextThought, "answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, think; search the thought; then answer."""
        query = state.question
        while query:
            with state.round(query):
                yield from search(state)
                thoughts = state.notes or EMPTY
                shown = fit(state, "think", state.reading.passages, thoughts)
                inputs = {
                    "question": state.question,
                    "passages": shown.text,
                    "thoughts": thoughts,
                }
                reply = yield from ask_step(state, "think", inputs, "thought")
                self._take_thought(state, " ".join(free_text(reply.thought).split()))
            query = yield from end_round(state)
        return predict(state, (yield from answer(state)))

    @staticmethod
    def _take_thought(state: State, thought: str) -> None:
        before = {fold(line) for line in state.notes.splitlines()}
        state.notes = "\n".join(filter(None, (state.notes, thought)))
        concluded = conclusion(thought)
        if concluded is not None:
            state.record(reasoning=thought, judgement="sufficient", candidate=concluded)
            return
        state.record(reasoning=thought, judgement="insufficient")
        if thought and fold(thought) not in before and not state.reading.was_tried(thought):
            state.record(next_query=thought)
        else:
            fault = "the thought repeats an earlier one" if thought else "no thought"
            state.add_rule(f"{fault}: the search ends")


# "The answer is not stated yet" holds none: a conclusion starts with "so", or has a colon.
_ANSWER_IS = re.compile(
    r"\b(?:(?:so|thus|hence|therefore),? the (?:final )?answer is\s*:?"
    r"|the (?:final )?answer is\s*:)\s*(.+)$",
    re.IGNORECASE,
)


def conclusion(thought: str) -> str | None:
    """Return the answer that a thought holds; None if it concludes nothing.

    >>> conclusion("So the answer is: Helena.")
    'Helena'
    """
    found = _ANSWER_IS.search(thought)
    return free_text(found[1]).rstrip(".") if found else None


# --- Iter-RetGen: the previous answer helps to retrieve for the next one (Shao et al., 2023).


class IterRetGen(IterativeProgram):
    """Answer, search with the question and that answer, answer again.

    Each answer is read from the passages that the round's own search returned, known ones among
    them; the last one is the program's. The rounds end early when an answer comes back unchanged
    or empty, since the next round would repeat an earlier one. n rounds take n LM calls, and one
    more if no round gave an answer.
    """

    def signatures(self) -> Signatures:
        """An answer from the passages of a round."""
        return {"answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, answer; search with the answer."""
        query, latest = state.question, None
        while query:
            with state.round(query):
                yield from search(state)
                found = {n: state.reading.passages[n] for n in state.reading.tried[-1].labels}
                shown = fit(state, "answer", found)
                inputs = {"question": state.question, "passages": shown.text}
                reply = yield from ask_step(state, "answer", inputs, "answer")
                latest = Conclusion.from_reply(reply, found, shown.left_out)
                self._choose_query(state, latest.answer)
            query = yield from end_round(state)
        if latest is None:
            latest = yield from answer(state)
        return predict(state, latest)

    @staticmethod
    def _choose_query(state: State, answered: str) -> None:
        query = f"{state.question} {answered}".strip()
        if not state.reading.was_tried(query):
            state.record(candidate=answered, next_query=query)
        else:
            fault = "the answer is one of an earlier round" if answered else "no answer"
            state.add_rule(f"{fault}: the search ends", candidate=answered)


# --- Search-R1's protocol: think and search in turns, in one growing context (Jin et al., 2025).
#
# The paper uses a checkpoint trained for it; here any LM may take the turns.


class _Turn(NamedTuple):
    """A thought with a query, or with the answer."""

    thought: str
    query: str
    answer: str


_NEITHER = "neither a query nor an answer"


class SearchR1(IterativeProgram):
    """Think, search for what is missing, read what it brings, go on; then answer.

    At the first turn nothing is read: the LM decides what to search, and whether. Every later turn
    sees the whole transcript, each passage in it once, so that a prefix cache serves it. n
    searches take n + 1 LM calls, and one more if the searches end without an answer.
    """

    def signatures(self) -> Signatures:
        """A turn; the answer, if the turns ended without one."""
        return {"think": ThinkOrSearch, "answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Think; search, think again; then answer."""
        query, rule, answered = yield from self._open(state)
        while query:
            with state.round(query, rule):
                fresh = yield from search(state)
                found = fit(state, "think", fresh, state.notes).text if fresh else "(nothing new)"
                _note(state, f"{indented(f'Search: {query}')}\n\n{found}")
                turn = yield from self._turn(state)
                answered = turn.answer or answered
                self._take_turn(state, turn)
            query, rule = (yield from end_round(state)), ""
        if answered:
            return predict(state, Conclusion.without_citing(answered, state.reading.passages))
        return predict(state, (yield from answer(state)))

    def _open(self, state: State) -> Conversation[tuple[str, str, str]]:
        """The first query, why it is the question if it is, and an answer without a search."""
        try:
            turn = yield from self._turn(state)
        except StepFailed as failure:
            return state.question, f"{failure}: the question was searched", ""
        if turn.query or turn.answer:
            return turn.query, "", turn.answer
        return state.question, f"{_NEITHER}: the question was searched", ""

    def _turn(self, state: State) -> Conversation[_Turn]:
        inputs = {
            "question": state.question,
            "transcript": state.notes or EMPTY,
            "searches_left": self.max_steps - len(state.reading.tried),
        }
        reply = yield from ask_step(state, "think", inputs, "thought")
        thought, answered = free_text(reply.thought), free_text(reply.answer)
        if thought:
            _note(state, indented(f"Thought: {thought}"))
        return _Turn(thought, "" if answered else free_text(reply.query), answered)

    @staticmethod
    def _take_turn(state: State, turn: _Turn) -> None:
        judgement = "sufficient" if turn.answer else "insufficient"
        state.record(reasoning=turn.thought, judgement=judgement, candidate=turn.answer)
        if turn.answer:
            return
        if turn.query and not state.reading.was_tried(turn.query):
            state.record(next_query=turn.query)
        else:
            fault = "the next query was tried before" if turn.query else _NEITHER
            state.add_rule(f"{fault}: the search ends")


def _note(state: State, text: str) -> None:
    state.notes = "\n\n".join(filter(None, (state.notes, text)))


# --- DeepNote: a note that grows only where it gets better (Wang et al., 2025).


class DeepNote(IterativeProgram):
    """A note from the first passages; then query its gaps, retrieve, update, keep the better note.

    An update that is not judged better leaves the note as it was; after `patience` such updates
    in a row the search ends, as it does when no query is left. The answer is read from the best
    note alone. n rounds take about 3n LM calls.
    """

    patience: int = setting("How many updates in a row may be no better.", default=2, minimum=1)

    def signatures(self) -> Signatures:
        """Update the note, compare it with the one before, ask what it lacks, answer."""
        return {
            "update": UpdateNotes.delete("previous_reasoning"),
            "compare": CompareNotes,
            "ask": AskFromNotes,
            "answer": answer_signature("text", passages=False),
        }

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, update the note, ask what it lacks; then answer from the note."""
        query, setbacks = state.question, 0
        while query:
            with state.round(query):
                fresh = yield from search(state)
                if not fresh and not state.notes:
                    state.add_rule("nothing was found: the search ends")
                else:
                    is_better = bool(fresh) and (yield from self._update(state, fresh))
                    setbacks = 0 if is_better else setbacks + 1
                    if not fresh:
                        state.add_rule("nothing new was found: the note stays")
                    elif not is_better:
                        state.add_rule("the updated note is no better: the note stays")
                    if setbacks >= self.patience:
                        rule = f"the patience ({self.patience}) is used up: the search ends"
                        state.add_rule(rule)
                    elif not state.is_last:
                        yield from self._find_gap(state)
            query = yield from end_round(state, self._comparison_tokens(state))
        return predict(state, (yield from answer(state)))

    def _update(self, state: State, fresh: Labelled) -> Conversation[bool]:
        """Update the note; keep the update if it is the first or judged better."""
        inputs = {
            "question": state.question,
            "query": state.step.query,
            "notes_so_far": state.notes or EMPTY,
            "passages": fit(state, "update", fresh, state.notes).text,
        }
        reply = yield from ask_step(state, "update", inputs, "notes")
        notes = free_text(reply.notes)
        is_better = notes != state.notes
        if is_better and state.notes:
            pair = {
                "question": state.question,
                "old_notes": state.notes,
                "new_notes": notes or EMPTY,
            }
            verdict = yield from ask_step(state, "compare", pair, "better")
            is_better = bool(notes) and verdict.better == "new"
        if is_better:
            state.notes = notes
        else:
            remove_from_trace(reply)
        state.reading.note_gain("notes rewritten" if is_better else "notes no better")
        return is_better

    def _find_gap(self, state: State) -> Conversation[None]:
        """Ask what the note lacks."""
        inputs = {
            "question": state.question,
            "tried": state.reading.render_tried(),
            "notes": state.notes or EMPTY,
        }
        reply = yield from ask_step(state, "ask", inputs, "next_query")
        query = free_text(reply.next_query)
        state.record(judgement="sufficient" if not query else "insufficient")
        if query and state.reading.was_tried(query):
            state.add_rule("the next query was tried before: the search ends")
        else:
            state.record(next_query=query)

    def _comparison_tokens(self, state: State) -> int:
        """The tokens of a comparison, which every round has but the first."""
        if self.token_budget is None or state.step.number > 1:
            return 0
        return state.budget.prompt("compare") + REPLY_TOKENS["read"] + 2 * self.count(state.notes)

    def answer_inputs(self, state: State) -> dict[str, str]:
        """The note."""
        return {"notes": state.notes or EMPTY}
