"""Few-shot demos: which ones would teach a fault, and how prompts read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import dedent
from typing import Any, NamedTuple

import dspy
import pydantic

from ga_dspy.eval import f1, normalise
from ga_dspy.grounding import ground
from ga_dspy.optimize.metric import cited_in
from ga_dspy.passage import Passage
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.baselines import conclusion
from ga_dspy.secrets import secrets_in
from ga_dspy.signatures import GraphProposal
from ga_dspy.signatures.prompt import free_text
from ga_dspy.text import fold, mentions

_BLOCK = re.compile(r"^\[(\d+)\] (.*)((?:\n(?!\[\d+\] ).+)+)", re.MULTILINE)
_LABEL = re.compile(r"^\[(\d+)\] ", re.MULTILINE)
_TRIED = re.compile(r"^\d+\. (.*) => ", re.MULTILINE)
_SEARCHED = re.compile(r"^Search: (.*)$", re.MULTILINE)
_CUT = "<TRUNCATED FOR BREVITY>"  # what SIMBA leaves of a long input
_MARK = "augmented"


class Sanitised(NamedTuple):
    """A program without faulty demos, and why each of those was removed."""

    program: MultiHopProgram
    dropped: tuple[str, ...]


def sanitise(
    program: MultiHopProgram, train: Sequence[dspy.Example], threshold: float
) -> Sanitised:
    """Remove every demo that would teach a fault, and from the others what is no field.

    Args:
        program: The compiled program; it is not changed.
        train: The questions the demos are from, with their answers.
        threshold: The minimum F1 of an answer in a demo.
    """
    answers = {normalise(e.question): tuple(e.get("answers") or (e.answer,)) for e in train}
    clean, dropped = program.deepcopy(), []
    for name, predictor in clean.named_predictors():
        kept, signature = [], predictor.signature
        for number, demo in enumerate(predictor.demos, 1):
            gold = answers.get(normalise(str(demo.get("question", ""))), ())
            if fault := next(faults(demo, signature, gold, threshold), ""):
                dropped.append(f"{name}, demo {number}: {fault}")
                continue
            shown = {k: v for k, v in demo.items() if k in signature.fields or k == _MARK}
            inputs = [k for k in signature.input_fields if k in shown]
            kept.append(dspy.Example(**shown).with_inputs(*inputs))
        predictor.demos = kept
    return Sanitised(clean, tuple(dropped))


def faults(
    demo: Mapping[str, Any],
    signature: type[dspy.Signature],
    gold: Sequence[str] = (),
    threshold: float = 1.0,
) -> Iterator[str]:
    """Yield the faults that a demo would teach.

    An item of the graph that its passages do not support (from a rejected attempt, or from passages
    that the demo does not show), a secret, a guess, a wrong candidate or answer, a turn that leads
    nowhere, a cut-off input.
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
    try:
        draft = GraphProposal.model_validate(demo["additions"]).draft
    except pydantic.ValidationError:
        yield "its graph cannot be read"
        return
    shown = "\n\n".join(
        str(demo.get(field) or "") for field in ("passages_read_before", "passages")
    )
    for item in ground(draft, shown_passages(shown)).dropped:
        yield f"its passages do not support {item}"


def shown_passages(text: str) -> dict[int, Passage]:
    r"""Return the passages of a prompt, by label.

    >>> shown_passages("[2] Helena\n  Districts:\n  [1] East\n\n[5] Butte\nA town.")[2].text
    'Districts:\n[1] East'
    """
    return {
        int(label): Passage(
            id=label, title="" if title == "(untitled)" else title, text=dedent(body).strip()
        )
        for label, title, body in _BLOCK.findall(text)
    }


def _aimless(demo: Mapping[str, Any], signature: type[dspy.Signature]) -> Iterator[str]:
    """Yield the faults of a turn of a search that leads nowhere, or has no basis.

    Repeating a thought or a query, neither thinking nor searching nor answering, answering
    without having read the answer, notes that cite what was not shown.
    """
    outputs = {name: free_text(str(demo.get(name) or "")) for name in signature.output_fields}
    transcript = str(demo.get("transcript", ""))
    queries = (outputs.get("next_query") or outputs.get("query") or "").splitlines()
    earlier = [*_TRIED.findall(str(demo.get("tried", ""))), *_SEARCHED.findall(transcript)]
    searched = {fold(query) for query in earlier}
    for query in queries:
        if fold(query) in searched:
            yield f"it repeats the query {query!r}"
    if "thoughts" in demo and "thought" in demo:
        if not outputs["thought"]:
            yield "it has no thought"
        elif outputs["thought"] in str(demo["thoughts"]).splitlines():
            yield "it repeats a thought"
    if "transcript" in demo and "answer" in demo and not _searches(demo):
        answer = outputs["answer"]
        if not answer:
            yield "it neither searches nor answers"
        elif fold(answer) not in ("yes", "no") and not mentions(answer, transcript):
            yield f"its transcript does not hold the answer {answer!r}"
        elif not _LABEL.search(transcript):
            yield "it answers without having read a passage"
    if "notes" in outputs:
        shown = {int(label) for label in _LABEL.findall(str(demo.get("passages", "")))}
        shown |= {*cited_in(str(demo.get("notes_so_far", "")))}
        if unknown := [str(label) for label in cited_in(outputs["notes"]) if label not in shown]:
            yield f"its notes cite passages that it does not show: {', '.join(unknown)}"


def _wrong(demo: Mapping[str, Any], gold: Sequence[str], threshold: float) -> Iterator[str]:
    given = demo.get("answer", conclusion(str(demo.get("thought", ""))))
    if given is not None and not _searches(demo) and f1(str(given), gold) < threshold:
        yield f"its answer {str(given)!r} is not the right one"
    candidate = str(demo.get("candidate") or "")
    if demo.get("judgement") == "sufficient" and candidate and f1(candidate, gold) == 0.0:
        yield f"it calls the wrong candidate {candidate!r} sufficient"


def _searches(demo: Mapping[str, Any]) -> bool:
    """Return whether a turn that may search or answer searches."""
    return "transcript" in demo and bool(demo.get("query")) and not demo.get("answer")


def shortened(demo: dspy.Example) -> dspy.Example:
    """Return a demo with only those of its passages that its other fields cite.

    A passage costs a hundred tokens in every prompt, and one that does not bear on the question
    teaches nothing. A demo that cites none keeps all.
    """
    blocks = str(demo.get("passages") or "").split("\n\n")
    own = (str(v) for k, v in demo.items() if k not in ("passages", "tried"))
    cited = {label for text in own for label in cited_in(text)}
    kept = [b for b in blocks if (found := _LABEL.match(b)) and int(found[1]) in cited]
    return demo.copy(passages="\n\n".join(kept)) if kept else demo


def labelled(program: MultiHopProgram, rows: Sequence[dspy.Example]) -> MultiHopProgram:
    """Return a copy of a program with train rows as demos of the predictor that answers.

    A row has a question and its answer: an incomplete demo, which DSPy marks as such. It is added
    to the demos that the predictor has. Predictors that read and judge keep theirs, since no row
    has their outputs.
    """
    copied: MultiHopProgram = program.deepcopy()
    for predictor in copied.predictors():
        # From a bare answer, a predictor that may search instead would learn never to search.
        if {"answer", "query"} & predictor.signature.output_fields.keys() == {"answer"}:
            shown = (dspy.Example(question=row.question, answer=row.answer) for row in rows)
            predictor.demos = [*(row.with_inputs("question") for row in shown), *predictor.demos]
    return copied


class Prompt(NamedTuple):
    """The prompt of a predictor for a person to read: its instruction and each of its demos."""

    instruction: str
    demos: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the instruction and the demos, numbered from 1."""
        shown = (f"--- demo {n} ---\n{demo}" for n, demo in enumerate(self.demos, 1))
        return "\n\n".join([self.instruction, *shown])


def prompts(program: MultiHopProgram) -> dict[str, Prompt]:
    """Return the prompt of each predictor, by its name."""
    return {
        name: Prompt(
            predictor.signature.instructions,
            tuple(
                "\n".join(f"{key}: {value}" for key, value in demo.items() if key != _MARK)
                for demo in predictor.demos
            ),
        )
        for name, predictor in program.named_predictors()
    }
