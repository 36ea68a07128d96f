"""The few-shot demos of uncompiled programs: one worked question.

A demo shows in a hundred tokens what an instruction explains in three hundred, and small LMs follow
only demos. All steps that read have the same question as their demo, which keeps comparisons of
programs fair. People, places and passages are invented.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import dspy

from ga_dspy.signatures.baselines import AnswerFromMemory
from ga_dspy.signatures.graph_anchor import CompareFacts, Style
from ga_dspy.signatures.prompt import EMPTY

_QUESTION: Final = "Where was the designer of Harlan Bridge born?"
_QUERY: Final = "Ida Renfro birthplace"
_BRIDGE: Final = """\
[1] Harlan Bridge
Harlan Bridge is a stone bridge in Oregon, built in 1914 to a design by Ida Renfro."""
_RENFRO: Final = """\
[2] Ida Renfro
Ida Renfro (1881–1949) was an American engineer who was born in Salem and worked in Portland."""

_DESIGNED: Final = "- Ida Renfro (person) -> designed -> Harlan Bridge (place) [1]"
_BORN: Final = "- Ida Renfro -> was born in -> Salem (place) [2]"
_GRAPH: Final = f"{_DESIGNED}\n{_BORN}"
_NOTES: Final = "Ida Renfro designed Harlan Bridge [1]."
_ALL_NOTES: Final = f"{_NOTES} She was born in Salem [2]."
_MISSING: Final = "Ida Renfro designed the bridge [1], but where she was born is missing."
_FOUND: Final = "Ida Renfro designed the bridge [1] and was born in Salem [2]: all links hold."
_SEARCHED: Final = f"1. {_QUESTION} => [1]"

_Table = Mapping[str, tuple[Any, Any]]
"""Two worked steps: each field has its value in the first and in the second."""
_READING: Final[_Table] = {
    "query": (_QUESTION, _QUERY),
    "search": ("1 of 4", "2 of 4"),
    "tried": (_SEARCHED, f"{_SEARCHED} Harlan Bridge\n2. {_QUERY} => [2]"),
    "graph": (EMPTY, _DESIGNED),
    "graph_after": (_DESIGNED, _GRAPH),
    "notes_so_far": (EMPTY, _NOTES),
    "previous_reasoning": ("", _MISSING),
    "passages": (_BRIDGE, _RENFRO),
    "additions": (_DESIGNED, _BORN),
    "notes": (_NOTES, _ALL_NOTES),
    "reasoning": (_MISSING, _FOUND),
    "judgement": ("insufficient", "sufficient"),
    "candidate": ("none", "Salem"),
    "next_query": (_QUERY, "none"),
}
_ANSWER: Final = {
    "graph": _GRAPH,
    "notes": _ALL_NOTES,
    "passages": f"{_BRIDGE}\n\n{_RENFRO}",
    "links": "Harlan Bridge was designed by Ida Renfro [1], who was born in Salem [2].",
    "verdict": "answered",
}
_ANSWERS: Final[dict[Style, str]] = {
    "span": "Salem",
    "sentence": "The designer of Harlan Bridge, Ida Renfro, was born in Salem [1, 2].",
    "report": "Ida Renfro was born in Salem [2]. She designed Harlan Bridge, a stone bridge in "
    "Oregon that was built in 1914 [1].",
}

# --- Steps of baselines: IRCoT's thoughts, Search-R1's turns, DeepNote's queries and notes.

_THOUGHT: Final = "Harlan Bridge in Oregon was designed by Ida Renfro."
_FIRST_QUERY: Final = "Harlan Bridge designer"
_UNKNOWN: Final = "The designer is missing."
_TRANSCRIPT: Final = f"""\
Thought: {_UNKNOWN}

Search: {_FIRST_QUERY}

{_BRIDGE}

Thought: Ida Renfro designed it [1]; her birthplace is missing.

Search: {_QUERY}

{_RENFRO}"""

_TRIED: Final = f"{_SEARCHED} Harlan Bridge; notes rewritten"
_WORSE: Final = "Harlan Bridge is a stone bridge in Oregon, built in 1914 [1]."

_BASELINES: Final[tuple[_Table, ...]] = (
    {
        "passages": (_BRIDGE, _ANSWER["passages"]),
        "thoughts": (EMPTY, _THOUGHT),
        "thought": (_THOUGHT, "So the answer is: Salem."),
    },
    {
        "transcript": (EMPTY, _TRANSCRIPT),
        "searches_left": (4, 2),
        "thought": (_UNKNOWN, "She was born in Salem [2]."),
        "query": (_FIRST_QUERY, ""),
        "answer": ("", "Salem"),
    },
    {
        "tried": (_TRIED, f"{_TRIED}\n2. {_QUERY} => [2] Ida Renfro; notes rewritten"),
        "notes": (_NOTES, _ALL_NOTES),
        "next_query": (_QUERY, ""),
    },
    {
        "old_notes": (_NOTES, _NOTES),
        "new_notes": (_ALL_NOTES, _WORSE),
        "better": ("new", "old"),
    },
)
_KNOWN: Final = dspy.Example(
    question="Which university is older, Bologna or Oxford?", answer="Bologna"
).with_inputs("question")
"""The demo of an answer from memory; without one, small LMs leave the answer empty."""
_READ: Final = {"passages", "graph", "notes", "old_notes", "transcript"}


def examples(signature: type[dspy.Signature], style: Style = "span") -> list[dspy.Example]:
    """Return the demos of a signature: the worked steps that have all its fields.

    Args:
        signature: The signature of a step that reads passages, a graph, notes or a transcript, that
            compares facts, or that answers from memory. Other signatures have no demos.
        style: The style of the answer.
    """
    names = signature.fields.keys()
    if signature.equals(AnswerFromMemory):
        return [_KNOWN.copy()]
    if signature.equals(CompareFacts):
        rows = (dict(zip(signature.fields, row, strict=True)) for row in _COMPARED)
        return [dspy.Example(**row).with_inputs(*signature.input_fields) for row in rows]
    if not signature.input_fields.keys() & _READ:
        return []
    for table in (*_BASELINES, _READING):
        if names <= {"question", *table}:
            steps = zip(*table.values(), strict=True)
            return [_demo(signature, dict(zip(table, step, strict=True))) for step in steps]
    answered = {**_ANSWER, "answer": _ANSWERS[style]}
    return [_demo(signature, answered)] if names <= {"question", *answered} else []


# --- Comparison: facts, question, comparison, answer.

_COMPARED: Final = (
    (
        "Mirka Sol is a painter and potter. Jan Bree is a potter.",
        "Are Mirka Sol and Jan Bree both potters?",
        "Mirka Sol is a potter, and Jan Bree is a potter, so both are.",
        "yes",
    ),
    (
        "Orvik has 3 schools, while Tarn has 5.",
        "Which town has more schools, Orvik or Tarn?",
        "5 is more than 3, so Tarn has more schools.",
        "Tarn",
    ),
    (
        "Ada Holm was born in Norway. Per Lind was born in Sweden.",
        "Were Ada Holm and Per Lind born in the same country?",
        "Norway and Sweden are not the same country.",
        "no",
    ),
    (
        "The Lark was built in 1931, while the Heron was built in 1924.",
        "Which ship was built first, the Lark or the Heron?",
        "1924 is earlier than 1931, so the Heron was built first.",
        "the Heron",
    ),
)

# --- Extraction: all facts of a passage, without a question.

_STATED: Final = """\
[1] Harlan Bridge
Harlan Bridge is a stone bridge in Oregon, built in 1914 to a design by Ida Renfro, an \
American engineer who was born in Salem."""
_FACTS: Final = (
    "- Harlan Bridge (place: stone bridge) -> is in -> Oregon (place) [1]",
    "- Harlan Bridge -> was built in -> 1914 (date) [1]",
    "- Ida Renfro (person) -> designed -> Harlan Bridge [1]",
    "- Ida Renfro -> was -> American engineer (role) [1]",
    "- Ida Renfro -> was born in -> Salem (place) [1]",
)
_BOTH_FACTS: Final = (
    *_FACTS[:3],
    "- Ida Renfro -> was -> American engineer (role) [2]",
    "- Ida Renfro -> was born in -> Salem (place) [2]",
    "- Ida Renfro -> worked in -> Portland (place) [2]",
)


def extraction_example(signature: type[dspy.Signature], *, several: bool = False) -> dspy.Example:
    """Return a worked passage as a demo of `ExtractFacts`.

    Args:
        signature: `ExtractFacts`, or the signature for facts that an extraction left out.
        several: Whether the demo shows two passages, for calls with several passages.
    """
    passages, facts = (_ANSWER["passages"], _BOTH_FACTS) if several else (_STATED, _FACTS)
    found = len(facts) - 2 if "graph" in signature.fields else 0
    shown = {"passages": passages, "additions": "\n".join(facts[found:])}
    if found:
        shown["graph"] = "\n".join(facts[:found])
    return dspy.Example(**shown).with_inputs(*signature.input_fields)


def _demo(signature: type[dspy.Signature], step: Mapping[str, Any]) -> dspy.Example:
    """Return a worked step as a demo with the fields of a signature."""
    values = {"question": _QUESTION, **step}
    if "additions" not in signature.fields and "graph_after" in step:
        values["graph"] = step["graph_after"]  # a separate judge reads the graph after the update
    shown = {name: values[name] for name in signature.fields}
    return dspy.Example(**shown).with_inputs(*signature.input_fields)
