"""One worked question, the demos that predictors start with: what a good reply looks like.

A demo shows in a hundred tokens what an instruction says in three hundred, and small models follow
demos alone. People, places and passages are invented.
"""

from __future__ import annotations

from typing import Final

import dspy

from ga_dspy.signatures.graph_anchor import Style
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
_MISSING: Final = "Ida Renfro designed the bridge [1], but where she was born is missing."

_FIRST_STEP: Final = {
    "question": _QUESTION,
    "query": _QUESTION,
    "search": "1 of 4",
    "tried": f"1. {_QUESTION} => [1]",
    "graph": EMPTY,
    "graph_after": _DESIGNED,
    "notes_so_far": EMPTY,
    "previous_reasoning": "",
    "feedback": "",
    "passages": _BRIDGE,
    "additions": _DESIGNED,
    "notes": _NOTES,
    "reasoning": _MISSING,
    "judgement": "insufficient",
    "candidate": "none",
    "next_query": _QUERY,
}
_SECOND_STEP: Final = {
    "question": _QUESTION,
    "query": _QUERY,
    "search": "2 of 4",
    "tried": f"1. {_QUESTION} => [1] Harlan Bridge\n2. {_QUERY} => [2]",
    "graph": _DESIGNED,
    "graph_after": _GRAPH,
    "notes_so_far": _NOTES,
    "previous_reasoning": _MISSING,
    "feedback": "",
    "passages": _RENFRO,
    "additions": _BORN,
    "notes": f"{_NOTES} She was born in Salem [2].",
    "reasoning": "Ida Renfro designed the bridge [1] and was born in Salem [2]: all links hold.",
    "judgement": "sufficient",
    "candidate": "Salem",
    "next_query": "none",
}
_ANSWER: Final = {
    "question": _QUESTION,
    "graph": _GRAPH,
    "graph_after": _GRAPH,
    "notes": _SECOND_STEP["notes"],
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


def examples(signature: type[dspy.Signature], style: Style = "span") -> list[dspy.Example]:
    """The worked steps that have all fields of a signature; none for one of another kind.

    Args:
        signature: Of a step that reads passages, a graph or notes.
        style: The form of its answer.
    """
    asked = signature.fields.keys()
    reads = signature.input_fields.keys() & {"passages", "graph", "notes"}
    found = []
    for worked in (_FIRST_STEP, _SECOND_STEP, {**_ANSWER, "answer": _ANSWERS[style]}):
        if reads and asked <= worked.keys():
            # A judge by itself is shown the graph with what the step added.
            given = worked if "additions" in asked else {**worked, "graph": worked["graph_after"]}
            shown = {name: given[name] for name in asked}
            found.append(dspy.Example(**shown).with_inputs(*signature.input_fields))
    return found
