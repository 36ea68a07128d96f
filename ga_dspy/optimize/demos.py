"""Few-shot demos: remove those that teach a fault, shorten them, show prompts to people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import dspy

from ga_dspy.eval import f1, normalise
from ga_dspy.grounding import ground, shown_passages
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.baselines import conclusion
from ga_dspy.secrets import secrets_in
from ga_dspy.signatures import GraphProposal
from ga_dspy.signatures.prompt import cited_labels, free_text
from ga_dspy.text import fold, mentions

_LABEL = re.compile(r"^\[(\d+)\] ", re.MULTILINE)
_TRIED = re.compile(r"^\d+\. (.*) => ", re.MULTILINE)
_SEARCHED = re.compile(r"^Search: (.*)$", re.MULTILINE)
_IN_BRACKETS = re.compile(r"\[([\d,;\s]+)\]")
_CUT = "<TRUNCATED FOR BREVITY>"  # SIMBA's mark in a long input
_MARK = "augmented"


class Sanitised(NamedTuple):
    """A program without faulty demos, and the reason for each removal."""

    program: MultiHopProgram
    dropped: tuple[str, ...]


def sanitise(
    program: MultiHopProgram, train: Sequence[dspy.Example], threshold: float
) -> Sanitised:
    """Remove demos that would teach a fault; reduce the others to the fields of their signature.

    Args:
        program: The compiled program; it is not changed.
        train: The questions that the demos are from, with their answers.
        threshold: The minimum F1 of an answer in a demo.
    """
    answers = {normalise(e.question): tuple(e.get("answers") or (e.answer,)) for e in train}
    clean, dropped = program.deepcopy(), []
    for name, predictor in clean.named_predictors():
        demos, signature = [], predictor.signature
        for number, demo in enumerate(predictor.demos, 1):
            gold = answers.get(normalise(str(demo.get("question", ""))), ())
            if fault := next(faults(demo, signature, gold, threshold), ""):
                dropped.append(f"{name}, demo {number}: {fault}")
                continue
            shown = {k: v for k, v in demo.items() if k in signature.fields or k == _MARK}
            inputs = [k for k in signature.input_fields if k in shown]
            demos.append(dspy.Example(**shown).with_inputs(*inputs))
        predictor.demos = demos
    return Sanitised(clean, tuple(dropped))


def faults(
    demo: Mapping[str, Any],
    signature: type[dspy.Signature],
    gold: Sequence[str] = (),
    threshold: float = 1.0,
) -> Iterator[str]:
    """Yield the faults that a demo would teach.

    A fault is a graph item that its passages do not support (it is from a rejected attempt, or from
    passages that the demo does not show), a secret, a guess, a wrong candidate or answer, a
    repeated query, or a truncated input.
    """
    if any(_CUT in str(value) for value in demo.values()):
        yield "an input is cut off"
    missing = [name for name in signature.output_fields if name not in demo]
    if missing and (demo.get(_MARK) or len(missing) == len(signature.output_fields)):
        yield f"it lacks {', '.join(missing)}"
    for leak in secrets_in({k: str(v) for k, v in demo.items()}, "it", digests=False):
        yield f"it holds {leak.kind}"
    if "additions" in demo:
        yield from _ungrounded(demo)
    yield from _aimless(demo, signature)
    if demo.get("verdict") == "not in passages":
        yield "it answers what its passages do not hold"
    if gold:
        yield from _wrong(demo, gold, threshold)


def _ungrounded(demo: Mapping[str, Any]) -> Iterator[str]:
    draft = GraphProposal.model_validate(demo["additions"]).draft
    fields = ("passages_read_before", "passages")
    shown = "\n\n".join(str(demo.get(field) or "") for field in fields)
    for item in ground(draft, shown_passages(shown)).dropped:
        yield f"its passages do not support {item}"


def _aimless(demo: Mapping[str, Any], signature: type[dspy.Signature]) -> Iterator[str]:
    """Yield repeated queries, and an answer that is not in the transcript."""
    transcript = str(demo.get("transcript", ""))
    earlier = [*_TRIED.findall(str(demo.get("tried", ""))), *_SEARCHED.findall(transcript)]
    searched = {fold(query) for query in earlier}
    for name in signature.output_fields.keys() & {"query", "next_query"}:
        for query in free_text(str(demo.get(name) or "")).splitlines():
            if fold(query) in searched:
                yield f"it repeats the query {query!r}"
    if "transcript" in demo and "answer" in demo and not _searches(demo):
        answer = free_text(str(demo["answer"]))
        if fold(answer) not in ("yes", "no") and not mentions(answer, transcript):
            yield f"its transcript does not hold the answer {answer!r}"


def _wrong(demo: Mapping[str, Any], gold: Sequence[str], threshold: float) -> Iterator[str]:
    answer = demo.get("answer", conclusion(str(demo.get("thought", ""))))
    if answer is not None and not _searches(demo) and f1(str(answer), gold) < threshold:
        yield f"its answer {str(answer)!r} is not the right one"
    candidate = str(demo.get("candidate") or "")
    if demo.get("judgement") == "sufficient" and candidate and f1(candidate, gold) == 0.0:
        yield f"it calls the wrong candidate {candidate!r} sufficient"


def _searches(demo: Mapping[str, Any]) -> bool:
    """Return whether a demo of a turn that can search or answer searches."""
    return "transcript" in demo and bool(demo.get("query")) and not demo.get("answer")


def shortened(demo: dspy.Example) -> dspy.Example:
    """Return a demo with only the passages that its other fields cite.

    A passage adds about a hundred tokens to every prompt, and one that the answer does not need
    teaches nothing. A demo that cites no passage keeps all.
    """
    blocks = str(demo.get("passages") or "").split("\n\n")
    others = [str(value) for name, value in demo.items() if name not in ("passages", "tried")]
    cited = {label for text in others for label in cited_in(text)}
    shown = [b for b in blocks if (label := _LABEL.match(b)) and int(label[1]) in cited]
    return demo.copy(passages="\n\n".join(shown)) if shown else demo


def cited_in(notes: str) -> tuple[int, ...]:
    """Return the passage numbers that notes cite in square brackets.

    >>> cited_in("Born in 1961 in Tavira [1, 4].")
    (1, 4)
    """
    return cited_labels(" ".join(_IN_BRACKETS.findall(notes)))


def labelled(program: MultiHopProgram, rows: Sequence[dspy.Example]) -> MultiHopProgram:
    """Return a copy of a program with train rows as demos of the predictor that answers.

    A row has a question and an answer: an incomplete demo, which DSPy marks as such. The rows
    precede the demos that the predictor has. Predictors that read and judge are unchanged, since
    no row has their outputs.
    """
    copied: MultiHopProgram = program.deepcopy()
    for predictor in copied.predictors():
        # A predictor that can also search would learn from bare answers never to do so.
        if {"answer", "query"} & predictor.signature.output_fields.keys() == {"answer"}:
            shown = (dspy.Example(question=row.question, answer=row.answer) for row in rows)
            predictor.demos = [*(row.with_inputs("question") for row in shown), *predictor.demos]
    return copied


class Prompt(NamedTuple):
    """The prompt of a predictor as text for people: its instruction and its demos."""

    instruction: str
    demos: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the instruction and the demos, numbered from 1."""
        demos = [f"--- demo {n} ---\n{demo}" for n, demo in enumerate(self.demos, 1)]
        return "\n\n".join([self.instruction, *demos])


def prompts(program: MultiHopProgram) -> dict[str, Prompt]:
    """Return the prompt of each predictor, by its name."""
    by_name = {}
    for name, predictor in program.named_predictors():
        demos = tuple(map(_demo_text, predictor.demos))
        by_name[name] = Prompt(predictor.signature.instructions, demos)
    return by_name


def _demo_text(demo: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in demo.items() if key != _MARK)
