"""HTML pages that show how answers were found; each is one file that loads nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from ga_dspy.eval import Report, Result, paired_test
from ga_dspy.eval.report import FailureKind, failure_kind, is_right
from ga_dspy.graph import Draft, DraftEntity, DraftRelation, Evidence, Relation, parse
from ga_dspy.graph.identity import split_qualifier
from ga_dspy.grounding import ground
from ga_dspy.passage import Passage

# Cytoscape adds a style, which the policy would refuse, unless it finds an element with this id.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style id="__________cytoscape_stylesheet">{css}</style>
</head>
<body>
<main id="ga"><noscript>This page draws with JavaScript, which is switched off.</noscript></main>
<script type="application/json" id="ga-data">{data}</script>
{scripts}
</body>
</html>
"""


@cache
def asset(name: str) -> str:
    """Return the text of a file beside this one."""
    return Path(__file__).with_name(name).read_text("utf-8")


def page(question: str, prediction: Mapping[str, Any]) -> str:
    """Return a page about one question.

    Args:
        question: The question.
        prediction: From `Prediction.to_dict()`; its key `lm`, if any, is shown as the LM's name.

    Returns:
        HTML that loads nothing else; its content security policy forbids it.
    """
    return document(question, {"question": question, "prediction": prediction})


def run_page(run: Report, beside: Report | None = None) -> str:
    """Return a page about a run, or two side by side: every question, its scores and its steps.

    Args:
        run: The run.
        beside: Another run; the page then has the questions that both were asked.

    Raises:
        InputError: The two share no question.
    """
    runs = [run, *([beside] if beside else [])]
    p_value = paired_test(run, beside).p_value if beside else None
    by_key = [{(r.id, r.question): r for r in one.results} for one in runs]
    shared = [key for key in by_key[0] if key in by_key[-1]]
    rows = [_row([results[key] for results in by_key]) for key in shared]
    protocols = [one.protocol for one in runs]
    data = {
        "runs": [{"name": one.program, "lm": one.lm_names} for one in protocols],
        "title": f"{protocols[0].dataset} {protocols[0].source}",
        "kinds": _KINDS,
        "p": p_value,
        "rows": rows,
    }
    title = " beside ".join(one.program for one in protocols)
    return document(title, data, asset("runs.js"))


_KINDS: dict[FailureKind, str] = {
    "failed": "the program raised an error",
    "not retrieved": "a needed passage was not retrieved",
    "not in the graph": "the passages were read, but the answer is not in the graph",
    "judged too early": "the search ended before all needed passages were read",
    "judged too late": "the evidence was complete, but the judge wanted more",
    "wrong answer": "the evidence was complete, but another answer was given",
}


def _row(results: Sequence[Result]) -> dict[str, Any]:
    """Return a question with the results of each run."""
    made = [
        {"f1": round(one.f1, 3), "right": is_right(one), "kind": failure_kind(one),
         "prediction": _prediction(one)}
        for one in results
    ]  # fmt: skip
    return {**results[0].model_dump(include={"id", "question", "type", "gold"}), "results": made}


def _renamed(draft: Draft, known: Collection[Any]) -> set[str]:
    """Return the names that got a qualifier in this draft because a namesake was read."""
    names = [node.name for node in draft.nodes]
    renamed: dict[str, str] = {}
    for name in names:
        base = split_qualifier(name).base
        if base in known and base not in names and name not in known:
            renamed.setdefault(base, name)
    return set(renamed.values())


def _prediction(result: Result) -> dict[str, Any]:
    """Return what a run stores of a prediction, in the form of `Prediction.to_dict()`.

    Graphs are stored as text, so the spans of their items are computed again. Reasoning is not
    stored.
    """
    passages = dict(enumerate(result.passages, 1))
    unread = list(result.passages)
    drafts = [parse(step.graph) for step in result.trace]
    graph = _graph(drafts[-1], passages) if drafts else {"entities": [], "relations": []}
    steps, known = [], set[Any]()
    for number, (step, draft) in enumerate(zip(result.trace, drafts, strict=True), 1):
        new = [next((p for p in unread if p.title == title), None) for title in step.titles]
        unread = [passage for passage in unread if passage not in new]
        entities = [e for e in draft.nodes if e.name not in known | _renamed(draft, known)]
        relations = [r for r in draft.relations if _triple(r) not in known]
        known |= {e.name for e in entities} | {_triple(r) for r in relations}
        steps.append(
            {
                **step.model_dump(mode="json", exclude=_NOT_SHOWN),
                "number": number,
                "retrieved": [],
                "passage_ids": [passage.id for passage in new if passage],
                "entities": [{"name": entity.name} for entity in entities],
                "relations": [dict(zip(_ENDS, _triple(each), strict=True)) for each in relations],
                "dropped": to_jsonable_python(step.dropped_items),
                "dropped_count": step.dropped,
            }
        )
    return {
        **result.model_dump(mode="json", include={"passages", "calls", "tokens"}),
        "answer": result.answer or "",
        "supported": result.supported or None,
        "evidence": result.evidence if isinstance(result.evidence, list) else [],
        "graph": graph,
        "steps": steps,
        "failures": [*filter(None, (*result.step_failures, result.error))],
    }


_ENDS = ("head", "relation", "tail")
_NOT_SHOWN = {"graph", "titles", "names", "dropped_items"}
_OF_DRAFT = {"passages", "head_type", "head_attributes", "tail_type", "tail_attributes"}


def _triple(relation: DraftRelation | Relation) -> tuple[str, str, str]:
    return relation.head, relation.relation, relation.tail


def _graph(draft: Draft, passages: Mapping[int, Passage]) -> dict[str, Any]:
    """Return a graph with the spans that state its items; an item without one cites passages."""
    found = ground(draft, passages, known={node.name for node in draft.nodes}).update
    spans: dict[Any, Any] = {entity.name: entity.evidence for entity in found.entities}
    spans |= {_triple(relation): relation.evidence for relation in found.relations}

    def item(one: DraftEntity | DraftRelation, key: Any) -> dict[str, Any]:
        cited = (passages[n].id for n in one.passages if n in passages)
        evidence = spans.get(key) or [Evidence(passage=id, start=0, end=0) for id in cited]
        shown = one.model_dump(mode="json", exclude=_OF_DRAFT)
        return {**shown, "evidence": to_jsonable_python(evidence)}

    return {
        "entities": [item(node, node.name) for node in draft.nodes],
        "relations": [item(relation, _triple(relation)) for relation in draft.relations],
    }


def live_page(script: str, **data: Any) -> str:
    """Return a page whose script may call its own server only."""
    return document("ga_dspy", data, script, connect="'self'")


def document(title: str, data: Mapping[str, Any], *more: str, connect: str = "'none'") -> str:
    """Return HTML with the scripts, and the data as text that cannot end a script."""
    css = asset("viewer.css")
    scripts = (asset("cytoscape.min.js"), asset("viewer.js"), *more)
    allowed = " ".join(map(_hash, scripts))
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return _PAGE.format(
        policy=f"default-src 'none'; script-src {allowed}; style-src {_hash(css)}; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'",
        title=escape(title),
        css=css,
        data=text,
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
