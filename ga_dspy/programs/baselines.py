"""The paper's baselines: closed book, vanilla RAG, and four methods that search repeatedly."""

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

# --- Closed book: the LM answers from memory, which shows how much reading adds.


class ClosedBook(MultiHopProgram):
    """One LM call without passages; no answer is ever supported.

    The retriever is never called; it is an argument because all programs are created alike.
    """

    k: int = field(init=False, default=1)
    passage_tokens: int = field(init=False, default=0)
    token_budget: int | None = field(init=False, default=None)
    compare_facts: bool = field(init=False, default=False)

    def signatures(self) -> Signatures:
        """Return the signature of an answer from memory."""
        return {"answer": AnswerFromMemory}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Answer."""
        reply = yield from loop.ask_answer(state)
        answer = reply.answer or "" if reply is not None else ""
        return loop.predict(state, Conclusion.uncited(answer, {}))


# --- Vanilla RAG: retrieve once, then answer; the baseline of all comparisons.


class VanillaRAG(MultiHopProgram):
    """The top k passages for the question, read in one LM call."""

    def signatures(self) -> Signatures:
        """Return the signature of an answer from passages."""
        return {"answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, then answer."""
        with state.round(state.question):
            yield from loop.search(state)
        yield from loop.end_round(state)
        return loop.predict(state, (yield from loop.answer(state)))


# --- IRCoT: retrieval interleaved with chain of thought (Trivedi et al., 2023).


class IRCoT(IterativeProgram):
    """Write one sentence of thought, search with that sentence, and so on; then answer.

    The search ends when a thought states the answer ("So the answer is: …"), is empty or repeats
    an earlier one, or after `max_steps` rounds. Each thought and the answer read all passages
    found so far. n rounds take n + 1 LM calls.
    """

    def signatures(self) -> Signatures:
        """Return the signatures of a thought and of the answer."""
        return {"think": NextThought, "answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, think, search with the thought; then answer."""
        query = state.question
        while query:
            with state.round(query):
                yield from loop.search(state)
                thoughts = state.notes or EMPTY
                shown = loop.fit(state, "think", state.reading.passages, thoughts)
                inputs = {"passages": shown.text, "thoughts": thoughts}
                reply = yield from loop.ask_step(state, "think", "thought", **inputs)
                thought = " ".join(free_text(reply.thought).split())
                state.notes = "\n".join(filter(None, (state.notes, thought)))
                answer = conclusion(thought)
                judgement = "insufficient" if answer is None else "sufficient"
                state.record(reasoning=thought, judgement=judgement, candidate=answer or "")
                if answer is None:
                    repeated = "the thought repeats an earlier one"
                    loop.choose_query(state, thought, "no thought", repeated)
            query = yield from loop.end_round(state)
        return loop.predict(state, (yield from loop.answer(state)))


# "The answer is not stated yet" is no conclusion: that starts with "so", or has a colon.
_ANSWER_IS = re.compile(
    r"\b(?:(?:so|thus|hence|therefore),? the (?:final )?answer is\s*:?"
    r"|the (?:final )?answer is\s*:)\s*(.+)$",
    re.IGNORECASE,
)


def conclusion(thought: str) -> str | None:
    """Return the answer that a thought states; None if it states none.

    >>> conclusion("So the answer is: Helena.")
    'Helena'
    """
    found = _ANSWER_IS.search(thought)
    return free_text(found[1]).rstrip(".") if found else None


# --- Iter-RetGen: the previous answer helps to retrieve for the next one (Shao et al., 2023).


class IterRetGen(IterativeProgram):
    """Search, answer, search with the question and that answer, answer again.

    Each answer is read from all passages that the search of its round returned; the answer of the
    last round counts. The rounds end early if an answer is empty or repeats an earlier one, since
    the next search would be the same. n rounds take n LM calls, and one more if all rounds fail.
    """

    def signatures(self) -> Signatures:
        """Return the signature of an answer from the passages of a round."""
        return {"answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search and answer; search again with the answer."""
        query, latest = state.question, None
        while query:
            with state.round(query):
                yield from loop.search(state)
                found = {n: state.reading.passages[n] for n in state.reading.tried[-1].labels}
                shown = loop.fit(state, "answer", found)
                reply = yield from loop.ask_step(state, "answer", "answer", passages=shown.text)
                latest = Conclusion.from_reply(reply, found, shown.left_out)
                state.record(candidate=latest.answer)
                next_query = f"{state.question} {latest.answer}" if latest.answer else ""
                repeated = "the answer is one of an earlier round"
                loop.choose_query(state, next_query, "no answer", repeated)
            query = yield from loop.end_round(state)
        if latest is None:
            latest = yield from loop.answer(state)
        return loop.predict(state, latest)


# --- Search-R1's protocol: think and search in turns, in one growing context (Jin et al., 2025).
#
# The paper trains an LM for this protocol; here, any LM is prompted to follow it.


_NEITHER = "neither a query nor an answer"


class SearchR1(IterativeProgram):
    """Think, search for what is missing, read the result and think again, until an answer.

    The first turn has no passages: the LM decides what to search, if anything. Every later turn
    reads the whole transcript, in which each passage stands once and a prefix cache can be used. n
    searches take n + 1 LM calls, and one more if the searches end without an answer.
    """

    def signatures(self) -> Signatures:
        """Return the signatures of a turn, and of the answer if the turns end without one."""
        return {"think": ThinkOrSearch, "answer": answer_signature(None)}

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Think, then search and think again; answer if no turn did."""
        query, rule, answer = yield from self._first_turn(state)
        while query:
            with state.round(query, rule):
                fresh = yield from loop.search(state)
                found = "(nothing new)"
                if fresh:
                    found = loop.fit(state, "think", fresh, state.notes).text
                _add_to_transcript(state, f"{indented(f'Search: {query}')}\n\n{found}")
                thought, next_query, answer = yield from self._turn(state)
                judgement = "sufficient" if answer else "insufficient"
                state.record(reasoning=thought, judgement=judgement, candidate=answer)
                if not answer:
                    loop.choose_query(state, next_query, _NEITHER)
            query, rule = (yield from loop.end_round(state)), ""
        if answer:
            return loop.predict(state, Conclusion.uncited(answer, state.reading.passages))
        return loop.predict(state, (yield from loop.answer(state)))

    def _first_turn(self, state: State) -> Conversation[tuple[str, str, str]]:
        """Return the first query, why it is the question if so, and the answer if it has one."""
        try:
            _, query, answer = yield from self._turn(state)
        except StepFailed as failure:
            return state.question, f"{failure}: the question was searched", ""
        if query or answer:
            return query, "", answer
        return state.question, f"{_NEITHER}: the question was searched", ""

    def _turn(self, state: State) -> Conversation[tuple[str, str, str]]:
        """Return a thought, and either a query or the answer."""
        left = self.max_steps - len(state.reading.tried)
        inputs = {"transcript": state.notes or EMPTY, "searches_left": left}
        reply = yield from loop.ask_step(state, "think", "thought", **inputs)
        thought, answer = free_text(reply.thought), free_text(reply.answer)
        if thought:
            _add_to_transcript(state, indented(f"Thought: {thought}"))
        return thought, "" if answer else free_text(reply.query), answer


def _add_to_transcript(state: State, text: str) -> None:
    state.notes = "\n\n".join(filter(None, (state.notes, text)))


# --- DeepNote: notes that are replaced only by better ones (Wang et al., 2025).


class DeepNote(IterativeProgram):
    """Take notes from the passages, query what they lack, and update them if the update is better.

    An update that is not judged better is dropped; after `patience` such rounds in a row the search
    ends, as it does if no query is left. The answer is read from the best notes alone. n rounds
    take about 3n LM calls.
    """

    patience: int = setting("Rounds in a row without better notes.", default=2, minimum=1)

    def signatures(self) -> Signatures:
        """Return the signatures to update, compare and query the notes, and to answer."""
        return {
            "update": UpdateNotes.delete("previous_reasoning"),
            "compare": CompareNotes,
            "ask": AskFromNotes,
            "answer": answer_signature("text", passages=False),
        }

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, update the notes, ask what they lack; then answer from the notes."""
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
        """Update the notes if the update is the first or judged better; return whether it is."""
        passages = loop.fit(state, "update", fresh, state.notes).text
        inputs = {"query": state.step.query, "notes_so_far": state.notes or EMPTY}
        reply = yield from loop.ask_step(state, "update", "notes", passages=passages, **inputs)
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
        """Ask for a query about what the notes lack."""
        inputs = {"tried": state.reading.render_tried(), "notes": state.notes or EMPTY}
        reply = yield from loop.ask_step(state, "ask", "next_query", **inputs)
        query = free_text(reply.next_query)
        state.record(judgement="insufficient" if query else "sufficient")
        if query:
            loop.choose_query(state, query, "no next query")

    def _comparison_tokens(self, state: State) -> int:
        """Return the tokens of a comparison if the next round is the first to have one."""
        if self.token_budget is None or state.step.number > 1:
            return 0
        both_notes = 2 * self.count(state.notes)
        return state.budget.prompt("compare") + loop.REPLY_TOKENS["read"] + both_notes

    def answer_inputs(self, state: State) -> dict[str, str]:
        """Return the notes."""
        return {"notes": state.notes or EMPTY}
