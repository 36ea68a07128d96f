"""Replays: what GraphAnchor's prompts cost, and what it reads, on recorded replies of an LM.

A recording holds the prompts of an earlier GraphAnchor with an LM's replies, word for word. Its
questions are asked again: the retriever returns what was found then, the LM replies what it
replied then, field by field. So prompts, settings and reading can be compared without an LM. It
shows costs and what is read of replies, never how good answers would be.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import dspy

from ga_dspy.errors import InputError
from ga_dspy.graph import draft_from
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.passage import Passage
from ga_dspy.programs import GraphAnchor, Usage
from ga_dspy.testing import scripted_lm
from ga_dspy.text import estimate_tokens

_FIELD: Final = re.compile(
    r"\[\[ ## (\w+) ## \]\]\n(.*?)(?=\n*\[\[ ## \w+ ## \]\]|\n\nRespond with|\Z)", re.DOTALL
)
_PASSAGE: Final = re.compile(r"^\[(\d+)\] (.*)\n(.*)$", re.MULTILINE)
_TRIED: Final = re.compile(r"^\d+\. (.*) => (.*)", re.MULTILINE)
_LABELS: Final = re.compile(r"\[(\d+)\]")
_LABELS_OF_ONCE: Final = re.compile(r"passages ([\d,]+)")
_LINKS_WORDS: Final = 25

Fields = dict[str, str]


@dataclass
class Recording:
    """One question of a recording.

    Attributes:
        question: The question.
        reads: The replies of the read steps, without those to feedback.
        answer: The reply of the answer step.
        found: What each query returned.
        calls: LM calls then.
        tokens: Estimated tokens then, prompts and replies.
        answer_tokens: Those of the answer step.
        system: Estimated tokens of the read step's system prompt then.
    """

    question: str
    reads: list[Fields] = field(default_factory=list)
    answer: Fields = field(default_factory=dict)
    found: dict[str, list[Passage]] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0
    answer_tokens: int = 0
    system: int = 0


class Replayed(NamedTuple):
    """A question asked again, with its cost by the same count.

    Attributes:
        prediction: What the program made of the recorded replies.
        recording: What was recorded.
        system: Estimated tokens of the read step's system prompt now.
    """

    prediction: dspy.Prediction
    recording: Recording
    system: int


def read_recordings(path: Path) -> list[Recording]:
    """The questions of a recording: JSON lines with `prompt` and `reply`, or their fields.

    Raises:
        InputError: A line is none of GraphAnchor's.
    """
    by_question: dict[str, Recording] = {}
    labelled: dict[str, dict[int, Passage]] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        row = json.loads(line)
        system, inputs, outputs = _fields(row)
        if not {"question", "graph", "passages"} <= inputs.keys():
            raise InputError(
                f"line {number} of {path} has the inputs {', '.join(inputs) or 'none'}",
                expected="prompts of GraphAnchor's read and answer steps",
                remedy="name a recording of GraphAnchor",
            )
        question = inputs["question"].strip()
        one = by_question.setdefault(question, Recording(question))
        passages = labelled.setdefault(question, {})
        for label, title, text in _PASSAGE.findall(inputs["passages"]):
            passages[int(label)] = Passage(id=f"p{label}", title=title, text=text)
        for query, found in _TRIED.findall(inputs.get("tried", "")):
            one.found.setdefault(query, [passages[n] for n in _labels(found)])
        one.calls += 1
        texts = (
            (row["prompt"], row["reply"])
            if "prompt" in row
            else (*inputs.values(), *outputs.values())
        )
        spent = sum(map(estimate_tokens, texts))
        one.tokens += spent
        if "additions" not in outputs:
            one.answer, one.answer_tokens = outputs, spent
        elif not inputs.get("feedback", "").strip():
            one.reads.append(outputs)
            one.system = estimate_tokens(system)
    return list(by_question.values())


def _fields(row: dict[str, Any]) -> tuple[str, Fields, Fields]:
    """The system prompt, the inputs and the outputs of a line."""
    if "inputs" in row:
        return "", row["inputs"], row["outputs"]
    system, _, user = row["prompt"].partition("[user]")
    return system, dict(_FIELD.findall(user)), dict(_FIELD.findall(row["reply"]))


def _labels(found: str) -> list[int]:
    """The passages of a search: "passages 1,2", or "[1] Title, [2] Title; 2 entities added"."""
    once = _LABELS_OF_ONCE.match(found)
    return [int(n) for n in (once[1].split(",") if once else _LABELS.findall(found)) if n]


def replay(recordings: Iterable[Recording], **settings: Any) -> Iterator[Replayed]:
    """Ask each question again with a GraphAnchor of these settings."""
    for recording in recordings:
        lm = scripted_lm(_Replies(recording))
        program = GraphAnchor(
            lambda query, k, found=recording.found: found.get(query, []), **settings
        )
        with dspy.context(lm=lm, adapter=PlainAdapter()):
            prediction = program(question=recording.question)
        asked = lm.engine.prompts[0]
        yield Replayed(prediction, recording, estimate_tokens(asked.split("\n\n[[ ## ")[0]))


class _Replies:
    """The recorded replies, as a function of the prompt."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.read = recording, 0

    def __call__(self, prompt: str) -> Fields:
        if "additions" in prompt or "next_query" in prompt:
            self.read += "additions" in prompt
            return self.recording.reads[min(self.read, len(self.recording.reads)) - 1]
        reply = self.recording.answer
        # What was not asked for then: the links, with some of the judge's words in their place.
        links = " ".join(self.recording.reads[-1]["reasoning"].split()[:_LINKS_WORDS])
        answer = reply["answer"].strip() or reply.get("guess", "")
        cited = reply["cited"].strip()
        links = f"{links} [{cited}]" if cited else links
        return {"links": links, "answer": answer, "verdict": reply["verdict"]}


class Cost(NamedTuple):
    """Means over questions: LM calls, estimated tokens, those by step and of a system prompt."""

    calls: float
    tokens: float
    read: float
    answer: float
    system: float


def cost_then(recordings: Sequence[Recording]) -> Cost:
    """What the questions cost when they were recorded."""
    return Cost(
        calls=fmean(one.calls for one in recordings),
        tokens=fmean(one.tokens for one in recordings),
        read=fmean(one.tokens - one.answer_tokens for one in recordings),
        answer=fmean(one.answer_tokens for one in recordings),
        system=fmean(one.system for one in recordings),
    )


def cost_now(replayed: Sequence[Replayed]) -> Cost:
    """What they cost when asked again."""

    def of(step: str) -> float:
        return fmean(one.prediction.usage.get(step, Usage()).tokens for one in replayed)

    return Cost(
        calls=fmean(one.prediction.calls for one in replayed),
        tokens=fmean(one.prediction.tokens for one in replayed),
        read=of("read"),
        answer=of("answer"),
        system=fmean(one.system for one in replayed),
    )


class ReadBack(NamedTuple):
    """What was read of the replies of a recording.

    Attributes:
        replies: Read steps.
        asked_again: Replies of no use, which were asked for again.
        failures: Steps that failed.
        types: Entities proposed with a type, and how many of them kept it.
        relations: Relations proposed, and how many of them entered a graph.
        lost: The relations that did not, as the program reports them.
    """

    replies: int
    asked_again: int
    failures: int
    types: tuple[int, int]
    relations: tuple[int, int]
    lost: tuple[str, ...]


def read_back(replayed: Iterable[Replayed]) -> ReadBack:
    """Count what was read of the replies."""
    replies = again = failures = proposed = kept = typed = typed_kept = 0
    lost: list[str] = []
    for prediction, recording, _ in replayed:
        steps = [step for step in prediction.steps if step.judgement]
        drafts = [draft_from(reply["additions"]) for reply in recording.reads[: len(steps)]]
        replies += len(steps)
        again += sum(usage.failed for usage in prediction.usage.values())
        failures += len(prediction.failures)
        dropped = [d for step in steps for d in step.dropped if d.kind == "relation"]
        lost += [str(d) for d in dropped]
        proposed += sum(len(draft.relations) for draft in drafts)
        kept += sum(len(draft.relations) for draft in drafts) - len(dropped)
        stated = {(e.name, e.type) for draft in drafts for e in draft.nodes if e.type}
        said = {(e.name, e.type) for e in prediction.graph.records.entities}
        typed += len(stated)
        typed_kept += len(stated & said)
    return ReadBack(replies, again, failures, (typed, typed_kept), (proposed, kept), tuple(lost))


SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "as published": {"as_published": True},
}

if __name__ == "__main__":  # python tests/recorded_replies.py FILE
    recordings = read_recordings(Path(sys.argv[1]))
    costs = {"recorded": cost_then(recordings)}
    for name, settings in SETTINGS.items():
        costs[name] = cost_now(list(replay(recordings, **settings)))
    print(f"{len(recordings)} recorded questions: LM calls and estimated tokens a question")
    print(f"{'':16}{'calls':>8}{'tokens':>8}{'read':>8}{'answer':>8}{'system':>8}{'share':>8}")
    for name, cost in costs.items():
        counts = "".join(f"{count:8,.0f}" for count in cost[1:])
        print(f"{name:16}{cost.calls:8.2f}{counts}{cost.tokens / costs['recorded'].tokens:8.0%}")
    print(read_back(replay(recordings))._asdict())
