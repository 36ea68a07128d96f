"""HTML pages that show how answers were found; each is one file that loads no other."""

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
from ga_dspy.eval.report import FailureKind, failure_reason, is_right
from ga_dspy.graph import Draft, DraftEntity, DraftRelation, Evidence, Relation, parse
from ga_dspy.graph.identity import split_qualifier
from ga_dspy.grounding import ground
from ga_dspy.passage import Passage

# Cytoscape would add its own style, which the policy forbids, if no element had this id.
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
<main id="ga"><noscript>This page needs JavaScript, which is switched off.</noscript></main>
<script type="application/json" id="ga-data">{data}</script>
{scripts}
</body>
</html>
"""


@cache
def asset(name: str) -> str:
    """Return the text of a script or style sheet in this folder."""
    return Path(__file__).with_name(name).read_text("utf-8")


def page(question: str, prediction: Mapping[str, Any]) -> str:
    """Return a page that shows how one question was answered.

    Args:
        question: The question.
        prediction: From `Prediction.to_dict()`; its key `lm`, if any, is shown as the LM's name.

    Returns:
        HTML that loads no other file; its content security policy forbids that.
    """
    return document(question, {"question": question, "prediction": prediction})


def run_page(run: Report, beside: Report | None = None) -> str:
    """Return a page about a run, or two side by side: every question, its scores and its steps.

    Args:
        run: The run.
        beside: Another run; the page then shows the questions that both runs have.

    Raises:
        InputError: The two runs share no question.
    """
    reports = [run, beside] if beside else [run]
    p_value = paired_test(run, beside).p_value if beside else None
    results_of = {(result.id, result.question): [result] for result in run.results}
    for result in beside.results if beside else ():
        results_of.get((result.id, result.question), []).append(result)
    rows = [_row(results) for results in results_of.values() if len(results) == len(reports)]
    protocols = [report.protocol for report in reports]
    data = {
        "runs": [{"name": protocol.program, "lm": protocol.lm_names} for protocol in protocols],
        "title": f"{protocols[0].dataset} {protocols[0].source}",
        "kinds": _KINDS,
        "p": p_value,
        "rows": rows,
    }
    title = " beside ".join(protocol.program for protocol in protocols)
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
    """Return a question with the result of each run."""
    shown = [
        {"f1": round(one.f1, 3), "right": is_right(one), "kind": failure_reason(one),
         "prediction": _prediction(one)}
        for one in results
    ]  # fmt: skip
    return {**results[0].model_dump(include={"id", "question", "type", "gold"}), "results": shown}


def _renamed(draft: Draft, known: Collection[Any]) -> set[str]:
    """Return the names that got a qualifier in this step, because a namesake was read."""
    names = [node.name for node in draft.nodes]
    renamed: dict[str, str] = {}
    for name in names:
        base = split_qualifier(name).base
        if base in known and base not in names and name not in known:
            renamed.setdefault(base, name)
    return set(renamed.values())


def _prediction(result: Result) -> dict[str, Any]:
    """Return what a run stores of a prediction, in the form of `Prediction.to_dict()`.

    Runs store graphs as text, so the spans of their items are computed again. They do not store the
    reasoning.
    """
    passages = dict(enumerate(result.passages, 1))
    unread = list(result.passages)
    drafts = [parse(step.graph) for step in result.trace]
    graph = _graph(drafts[-1], passages) if drafts else {"entities": [], "relations": []}
    steps, known = [], set[Any]()
    for number, (step, draft) in enumerate(zip(result.trace, drafts, strict=True), 1):
        titled = {passage.title: passage for passage in reversed(unread)}  # the first of a title
        new = [titled[title] for title in step.titles if title in titled]
        unread = [passage for passage in unread if passage not in new]
        old = known | _renamed(draft, known)
        names = [node.name for node in draft.nodes if node.name not in old]
        triples = [triple for triple in map(_triple, draft.relations) if triple not in known]
        known.update(names, triples)
        entities = [{"name": name} for name in names]
        relations = [dict(zip(_ENDS, triple, strict=True)) for triple in triples]
        steps.append(
            {
                **step.model_dump(mode="json", exclude=_NOT_SHOWN),
                "number": number,
                "retrieved": [],
                "passage_ids": [passage.id for passage in new],
                "entities": entities,
                "relations": relations,
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
    """Return a graph with the spans that state its items; items without spans cite passages."""
    grounded = ground(draft, passages, known={node.name for node in draft.nodes}).update
    spans: dict[Any, Any] = {entity.name: entity.evidence for entity in grounded.entities}
    spans |= {_triple(relation): relation.evidence for relation in grounded.relations}

    def item(record: DraftEntity | DraftRelation, key: Any) -> dict[str, Any]:
        cited = (passages[label].id for label in record.passages if label in passages)
        evidence = spans.get(key) or [Evidence(passage=id, start=0, end=0) for id in cited]
        shown = record.model_dump(mode="json", exclude=_OF_DRAFT)
        return {**shown, "evidence": to_jsonable_python(evidence)}

    entities = [item(node, node.name) for node in draft.nodes]
    relations = [item(relation, _triple(relation)) for relation in draft.relations]
    return {"entities": entities, "relations": relations}


def live_page(script: str, **data: Any) -> str:
    """Return a page whose script may send requests, only to its own server."""
    return document("ga_dspy", data, script, connect="'self'")


def document(title: str, data: Mapping[str, Any], *more: str, connect: str = "'none'") -> str:
    """Return a page with these scripts, and with the data as JSON that cannot end a script."""
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
