"""The paper's baselines: memory alone, one search, and four loops; called like GraphAnchor."""

from __future__ import annotations

import re
from dataclasses import field

import dspy

from ga_dspy.programs import loop
from ga_dspy.programs.calls import Conversation, StepFailed, remove_from_trace
from ga_dspy.programs.evidence import Conclusion
from ga_dspy.programs.loop import State
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

# --- Closed book: what the LM answers from memory. The measure of what reading adds.


class ClosedBook(MultiHopProgram):
    """One LM call without a passage; nothing is ever supported.

    The retriever is not searched; it is an argument so that every program is made the same way.
    """

    k: int = field(init=False, default=1)
    passage_tokens: int = field(init=False, default=0)
    token_budget: int | None = field(init=False, default=None)
    compare_facts: bool = field(init=False, default=False)

    def signatures(self) -> Signatures:
        """An answer from memory."""
        return {"answer": AnswerFromMemory}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Answer."""
        reply = yield from loop.ask_answer(state)
        text = reply.answer or "" if reply is not None else ""
        return loop.predict(state, Conclusion.without_citing(text, {}))


# --- Vanilla RAG: retrieve once, answer. The baseline that everything is compared with.


class VanillaRAG(MultiHopProgram):
    """The top k passages for the question, read in one LM call."""

    def signatures(self) -> Signatures:
        """An answer from the passages."""
        return {"answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, answer."""
        with state.round(state.question):
            yield from loop.search(state)
        yield from loop.end_round(state)
        return loop.predict(state, (yield from loop.answer(state)))


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
                yield from loop.search(state)
                thoughts = state.notes or EMPTY
                shown = loop.fit(state, "think", state.reading.passages, thoughts)
                given = {"passages": shown.text, "thoughts": thoughts}
                reply = yield from loop.ask_step(state, "think", "thought", **given)
                thought = " ".join(free_text(reply.thought).split())
                state.notes = "\n".join(filter(None, (state.notes, thought)))
                concluded = conclusion(thought)
                if concluded is not None:
                    state.record(reasoning=thought, judgement="sufficient", candidate=concluded)
                else:
                    state.record(reasoning=thought, judgement="insufficient")
                    repeated = "the thought repeats an earlier one"
                    loop.choose_query(state, thought, "no thought", repeated)
            query = yield from loop.end_round(state)
        return loop.predict(state, (yield from loop.answer(state)))


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
                yield from loop.search(state)
                found = {n: state.reading.passages[n] for n in state.reading.tried[-1].labels}
                shown = loop.fit(state, "answer", found)
                reply = yield from loop.ask_step(state, "answer", "answer", passages=shown.text)
                latest = Conclusion.from_reply(reply, found, shown.left_out)
                answered = latest.answer
                state.record(candidate=answered)
                another = f"{state.question} {answered}" if answered else ""
                repeated = "the answer is one of an earlier round"
                loop.choose_query(state, another, "no answer", repeated)
            query = yield from loop.end_round(state)
        if latest is None:
            latest = yield from loop.answer(state)
        return loop.predict(state, latest)


# --- Search-R1's protocol: think and search in turns, in one growing context (Jin et al., 2025).
#
# The paper uses a checkpoint trained for it; here any LM may take the turns.


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
                fresh = yield from loop.search(state)
                found = "(nothing new)"
                if fresh:
                    found = loop.fit(state, "think", fresh, state.notes).text
                _note(state, f"{indented(f'Search: {query}')}\n\n{found}")
                thought, wanted, answered = yield from self._turn(state)
                judgement = "sufficient" if answered else "insufficient"
                state.record(reasoning=thought, judgement=judgement, candidate=answered)
                if not answered:
                    loop.choose_query(state, wanted, _NEITHER)
            query, rule = (yield from loop.end_round(state)), ""
        if answered:
            return loop.predict(state, Conclusion.without_citing(answered, state.reading.passages))
        return loop.predict(state, (yield from loop.answer(state)))

    def _open(self, state: State) -> Conversation[tuple[str, str, str]]:
        """The first query, why it is the question if it is, and an answer without a search."""
        try:
            _, query, answered = yield from self._turn(state)
        except StepFailed as failure:
            return state.question, f"{failure}: the question was searched", ""
        if query or answered:
            return query, "", answered
        return state.question, f"{_NEITHER}: the question was searched", ""

    def _turn(self, state: State) -> Conversation[tuple[str, str, str]]:
        """A thought with a query, or with the answer."""
        left = self.max_steps - len(state.reading.tried)
        given = {"transcript": state.notes or EMPTY, "searches_left": left}
        reply = yield from loop.ask_step(state, "think", "thought", **given)
        thought, answered = free_text(reply.thought), free_text(reply.answer)
        if thought:
            _note(state, indented(f"Thought: {thought}"))
        return thought, "" if answered else free_text(reply.query), answered


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
                fresh = yield from loop.search(state)
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
            query = yield from loop.end_round(state, self._comparison_tokens(state))
        return loop.predict(state, (yield from loop.answer(state)))

    def _update(self, state: State, fresh: Labelled) -> Conversation[bool]:
        """Update the note; keep the update if it is the first or judged better."""
        passages = loop.fit(state, "update", fresh, state.notes).text
        given = {"query": state.step.query, "notes_so_far": state.notes or EMPTY}
        reply = yield from loop.ask_step(state, "update", "notes", passages=passages, **given)
        notes = free_text(reply.notes)
        is_better = notes != state.notes
        if is_better and state.notes:
            pair = {"old_notes": state.notes, "new_notes": notes or EMPTY}
            verdict = yield from loop.ask_step(state, "compare", "better", **pair)
            is_better = bool(notes) and verdict.better == "new"
        if is_better:
            state.notes = notes
        else:
            remove_from_trace(reply)
        state.reading.note_gain("notes rewritten" if is_better else "notes no better")
        return is_better

    def _find_gap(self, state: State) -> Conversation[None]:
        """Ask what the note lacks."""
        given = {"tried": state.reading.render_tried(), "notes": state.notes or EMPTY}
        reply = yield from loop.ask_step(state, "ask", "next_query", **given)
        query = free_text(reply.next_query)
        state.record(judgement="sufficient" if not query else "insufficient")
        if query:
            loop.choose_query(state, query, "no next query")

    def _comparison_tokens(self, state: State) -> int:
        """The tokens of a comparison, which every round has but the first."""
        if self.token_budget is None or state.step.number > 1:
            return 0
        both_notes = 2 * self.count(state.notes)
        return state.budget.prompt("compare") + loop.REPLY_TOKENS["read"] + both_notes

    def answer_inputs(self, state: State) -> dict[str, str]:
        """The note."""
        return {"notes": state.notes or EMPTY}
