"""Extraction under control: several passages a call, maxima, gleanings, caps, and their cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy import Index, Passage, Schema, extractive_lm
from ga_dspy.demo import corpus
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.graph import parse
from ga_dspy.graphrag import (
    Extractor,
    build_graph,
    estimate_build,
    open_graph,
    propose_schema,
    update_graph,
)
from ga_dspy.graphrag.build import extractor_of
from ga_dspy.graphrag.extraction import Extraction, FinishedSteps
from ga_dspy.grounding import ground
from ga_dspy.lm.store import Caps
from ga_dspy.programs.calls import StepFailed
from ga_dspy.signatures.examples import extraction_example
from ga_dspy.signatures.graphrag import ExtractFacts, glean_signature
from ga_dspy.testing import CutOff, scripted_lm

SHOWN = re.compile(r"^\[(\d+)\] (.*)\n(.*)", re.MULTILINE)


def road(id: str, *ways: str) -> Passage:
    return Passage(id=id, title=f"Road {id}", text="".join(f"{way}. " for way in ways).strip())


ROADS = [
    road("1", "Aberdeen to Bath", "Aberdeen to Ayr"),
    road("2", "Bath to Crewe"),
    road("3", "Crewe to Derby"),
    road("4", "Derby to Ely"),
    road("5", "Ely to Frome"),
]


def index_of(passages: Iterable[Passage]) -> Index:
    return Index.from_passages(passages, kind="sparse")


def ways(prompt: str) -> list[tuple[str, str]]:
    """The lines that state the ways in the passages of a prompt, each with its passage's title."""
    return [
        (title, f"- {way.strip(' .').replace(' to ', ' -> leads to -> ')} [{label}]")
        for label, title, text in SHOWN.findall(prompt.rpartition("passages ## ]]")[2])
        for way in text.split(". ")
    ]


def reader(asked: list[tuple[str, ...]], reply: Callable[[str], Any] | None = None) -> Any:
    """An LM that states every way in the passages; `asked` lists the titles of each call."""

    def answer(prompt: str) -> Any:
        found = ways(prompt)
        asked.append(tuple(dict.fromkeys(title for title, _ in found)))
        given = reply(prompt) if reply else None
        return given or {"additions": "\n".join(line for _, line in found)}

    return scripted_lm(answer)


def read(extractor: Extractor, lm: Any, passages: Iterable[Passage]) -> list[Any]:
    with dspy.context(lm=lm):
        found: list[Any] = extractor(passage=list(passages)).extractions
    return found


def facts(extraction: Extraction) -> list[tuple[str, str]]:
    return [relation.ends for relation in extraction.update.relations]


# --- Several passages a call


def test_several_passages_in_one_call_give_the_same_as_one_by_one() -> None:
    asked: list[tuple[str, ...]] = []
    together = read(Extractor(per_call=4), reader(asked), ROADS[:4])
    assert asked == [("Road 1", "Road 2", "Road 3", "Road 4")]
    for passage, found in zip(ROADS, together, strict=False):
        with dspy.context(lm=reader([])):
            alone = Extractor()(passage=passage).extraction
        assert found.update == alone.update
        assert {e.passage for r in found.update.relations for e in r.evidence} == {passage.id}


def test_the_embedded_lm_reads_the_same_with_two_passages_per_call() -> None:
    some = corpus()[:8]
    with dspy.context(lm=extractive_lm()):
        alone = [Extractor()(passage=passage).extraction for passage in some]
    pairs = [some[n : n + 2] for n in range(0, 8, 2)]
    together = [one for pair in pairs for one in read(Extractor(per_call=2), extractive_lm(), pair)]
    for one, other in zip(together, alone, strict=True):
        assert set(one.update.relations) == set(other.update.relations)
    assert (sum(one.calls for one in together), sum(one.calls for one in alone)) == (4, 8)
    assert sum(one.tokens for one in together) < sum(one.tokens for one in alone)


def test_a_relation_is_assigned_only_to_the_passage_that_states_it() -> None:
    lines = (
        "- Bath -> leads to -> Crewe [1]\n"  # stated by the second
        "- Aberdeen -> leads to -> Bath\n"  # cites none
        "- Aberdeen -> leads to -> Crewe [1, 2]"  # stated by none
    )
    lm = scripted_lm([{"additions": lines}])
    one, two = read(Extractor(per_call=2), lm, ROADS[:2])
    assert facts(one) == [("Aberdeen", "Bath")] and facts(two) == [("Bath", "Crewe")]
    assert [d.cause for d in (*one.dropped, *two.dropped)] == ["ungrounded"]
    assert "number behind every line" in lm.engine.prompts[0]


def test_after_an_unusable_batch_reply_each_passage_is_requested_alone() -> None:
    asked: list[tuple[str, ...]] = []

    def broken(prompt: str) -> Any:
        return ValueError("too much at once") if len(asked[-1]) > 1 else None

    found = read(Extractor(per_call=3), reader(asked, broken), ROADS[:3])
    assert asked[-3:] == [("Road 1",), ("Road 2",), ("Road 3",)]
    assert list(map(facts, found)) == [facts(one) for one in read(
        Extractor(per_call=3), reader([]), ROADS[:3]
    )]  # fmt: skip


def test_the_cost_of_a_truncated_reply_is_counted() -> None:
    def cut(prompt: str) -> Any:
        return CutOff("[[ ## additions ## ]]\n- Bath") if prompt.count("Road") > 1 else None

    lm = reader([], cut)
    found = read(Extractor(per_call=2), lm, ROADS[:2])
    whole = sum(one.tokens for one in read(Extractor(per_call=2), reader([]), ROADS[:2]))
    assert [facts(one)[0] for one in found] == [("Aberdeen", "Bath"), ("Bath", "Crewe")]
    assert len(lm.engine.prompts) == 4 and sum(one.tokens for one in found) > 2 * whole


def test_a_passage_that_fails_does_not_affect_the_others(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def failing(prompt: str) -> Any:
        return ValueError("no such road") if "Road 2" in asked[-1] else None

    extractor = Extractor(per_call=2)
    stored = build_graph(index_of(ROADS), tmp_path, lm=reader(asked, failing), extractor=extractor)
    (failed,) = stored.manifest.failed
    assert failed.passage == "2" and "no such road" in failed.error
    assert stored.manifest.relations == 5
    asked.clear()
    again = build_graph(index_of(ROADS), tmp_path, lm=reader(asked), extractor=extractor)
    assert asked == [("Road 2",)] and not again.manifest.failed


def test_a_resumed_build_repeats_no_finished_call(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def stop(prompt: str) -> Any:
        if len(asked) == 2:
            raise KeyboardInterrupt
        return None

    extractor = Extractor(per_call=2)
    given: dict[str, Any] = {"extractor": extractor, "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        build_graph(index_of(ROADS), tmp_path, lm=reader(asked, stop), **given)
    with FinishedSteps(tmp_path / "journal.sqlite") as journal:
        assert len(journal.known(Extraction)) == 2  # each passage by itself
    asked.clear()
    build_graph(index_of(ROADS), tmp_path, lm=reader(asked), **given)
    assert asked == [("Road 3", "Road 4"), ("Road 5",)]


# --- Maxima and gleanings


def test_no_passage_has_more_relations_than_the_maximum() -> None:
    lm = reader([])
    one, two = read(Extractor(per_call=2, max_relations=1), lm, ROADS[:2])
    assert facts(one) == [("Aberdeen", "Bath")] and facts(two) == [("Bath", "Crewe")]
    assert [str(dropped) for dropped in one.dropped] == [
        'relation "Aberdeen -> leads to -> Ayr": more than 1 relations'
    ]
    assert not one.dropped[0].is_unsupported
    assert [entity.name for entity in one.update.entities] == ["Aberdeen", "Bath"]
    assert "at most 1 relations of a passage" in lm.engine.prompts[0]


def test_a_gleaning_sees_earlier_facts_and_adds_missing_ones() -> None:
    replies = [
        {"additions": "- Aberdeen -> leads to -> Bath [1]"},
        {"additions": "- Aberdeen -> leads to -> Ayr [1]\n- Ayr -> leads to -> Mars [1]"},
        {"additions": "none"},
    ]
    lm = scripted_lm(replies)
    (found,) = read(Extractor(gleanings=5), lm, ROADS[:1])
    assert facts(found) == [("Aberdeen", "Bath"), ("Aberdeen", "Ayr")]
    assert [dropped.cause for dropped in found.dropped] == ["ungrounded"]
    assert found.calls == 3  # none is asked for after one that adds nothing
    first, second, _ = lm.engine.prompts
    assert "Aberdeen -> leads to -> Bath [1]" in second and "Aberdeen ->" not in first
    assert "add only what is missing" in second


def test_a_failed_gleaning_keeps_the_earlier_facts() -> None:
    lm = scripted_lm(lambda prompt: ValueError("down") if "missing there" in prompt else
                     {"additions": "- Aberdeen -> leads to -> Bath [1]"})  # fmt: skip
    (found,) = read(Extractor(gleanings=1), lm, ROADS[:1])
    assert facts(found) == [("Aberdeen", "Bath")]


# --- The settings of a build


def test_every_setting_changes_the_fingerprint_and_defaults_are_not_recorded() -> None:
    lm, schema = extractive_lm(), Schema(entities={"Road": ""})
    other: list[dict[str, Any]] = [
        {}, {"per_call": 2}, {"max_relations": 3}, {"gleanings": 1}, {"schema": schema},
        {"schema": schema.model_copy(update={"other": "drop"})},
    ]  # fmt: skip
    assert len({Extractor(**one).fingerprint(lm) for one in other}) == len(other)
    assert Extractor().nondefault_settings() == {}


def test_an_update_extracts_with_the_settings_of_the_build(tmp_path: Path) -> None:
    schema = Schema(entities={"Town": ""}, relations={"goes to": ("Town", "Town")}, other="drop")
    extractor = Extractor(schema=schema, per_call=2, gleanings=1)
    lines = "- Bath (Town) -> goes to -> Crewe (Town) [1]\n- Bath -> leads to -> Crewe [1]"
    lm = scripted_lm(lambda prompt: {"additions": lines})
    build_graph(index_of(ROADS[1:2]), tmp_path, lm=lm, extractor=extractor)
    assert extractor_of(open_graph(tmp_path).manifest).settings() == extractor.settings()
    stored = update_graph(index_of(ROADS[1:3]), tmp_path, lm=lm)
    assert "goes to" in lm.engine.prompts[-1]
    manifest = stored.manifest
    assert [r.relation for r in stored.graph.relations] == ["goes to"]
    assert {entity.type for entity in stored.graph.entities} == {"Town"}
    assert manifest.dropped["outside the schema"] == 2
    assert (manifest.calls, manifest.stated, manifest.proposed) == (len(lm.engine.prompts), 1, 2)


@pytest.mark.parametrize("settings", [{}, {"per_call": 4}, {"per_call": 4, "gleanings": 1}])
def test_the_estimate_depends_on_the_settings(settings: dict[str, Any]) -> None:
    lm, some, extractor = extractive_lm(), corpus()[:6], Extractor(**settings)
    expected = estimate_build(index_of(some), lm=lm, extractor=extractor)
    size = extractor.per_call
    groups = [some[n : n + size] for n in range(0, 6, size)]
    found = [one for group in groups for one in read(extractor, lm, group)]
    assert expected.passages == 6 and expected.finished == 0
    assert expected.calls == sum(one.calls for one in found)
    assert expected.tokens == pytest.approx(sum(one.tokens for one in found), rel=0.35)


# --- Caps


@pytest.mark.parametrize("threads", [1, 4])
def test_a_build_stops_at_its_cap_and_resumes(tmp_path: Path, threads: int) -> None:
    asked: list[tuple[str, ...]] = []
    lm, index = reader(asked), index_of(ROADS)
    caps = Caps(calls=2)
    with pytest.raises(RunAborted, match=r"after 2 LM calls and [\d,]+ tokens: 3 of 5 passages"):
        build_graph(index, tmp_path, lm=lm, caps=caps, threads=threads)
    assert len(asked) == 2
    with pytest.raises(RunAborted, match="1 of 5 passages"):
        build_graph(index, tmp_path, lm=lm, caps=caps, threads=threads)
    stored = build_graph(index, tmp_path, lm=lm, caps=caps, threads=threads)
    assert sorted(asked) == [(passage.title,) for passage in ROADS]
    assert stored.manifest.relations == 6 and not (tmp_path / "calls.sqlite").exists()


def test_an_update_stopped_by_a_cap_leaves_the_old_graph(tmp_path: Path) -> None:
    build_graph(index_of(ROADS[:2]), tmp_path, lm=reader([]))
    tokens = open_graph(tmp_path).manifest.tokens
    with pytest.raises(RunAborted, match="1 of 3 passages are left"):
        update_graph(index_of(ROADS), tmp_path, lm=reader([]), caps=Caps(tokens=tokens), threads=1)
    assert open_graph(tmp_path).manifest.passages == 2
    assert update_graph(index_of(ROADS), tmp_path, lm=reader([])).manifest.passages == 5


def test_a_cap_reached_within_a_passage_loses_no_finished_call(tmp_path: Path) -> None:
    lm, extractor = reader([]), Extractor(gleanings=1)
    given: dict[str, Any] = {"extractor": extractor, "threads": 1}
    with pytest.raises(RunAborted, match="5 of 5"):
        build_graph(index_of(ROADS), tmp_path, lm=lm, caps=Caps(calls=1), **given)
    build_graph(index_of(ROADS), tmp_path, lm=lm, **given)
    assert len(lm.engine.prompts) == len(set(lm.engine.prompts)) == 10


# --- A first schema


def test_no_schema_is_proposed_without_types() -> None:
    passage = Passage(id="1", title="Fjelby", text="Fjelby lies on Sund.")
    with pytest.raises(InputError, match="found no type"):
        propose_schema([passage], lm=extractive_lm())


def proposer(asked: list[str], proposal: dict[str, Any]) -> Any:
    """An LM that reads roads, then proposes this schema."""
    read_roads = reader([])

    def answer(prompt: str) -> Any:
        asked.append(prompt)
        return proposal if "Propose a schema" in prompt else read_roads.engine.script(prompt)

    return scripted_lm(answer)


def test_a_schema_is_proposed_from_an_even_sample_of_passages() -> None:
    asked: list[str] = []
    proposal = {
        "entities": '{"Town": "a settlement"}',
        "relations": '{"leads to": ["Town", "Town"], "is leading to": ["Town", "Town"]}',
    }
    schema = propose_schema(ROADS, lm=proposer(asked, proposal), sample=2, threads=1)
    assert schema.entities == {"Town": "a settlement"} and schema.types == ("Town",)
    assert schema.relations["leads to"] == ("Town", "Town")
    assert ["Road 1" in asked[0], "Road 3" in asked[1]] == [True, True] and len(asked) == 3
    assert "3: Aberdeen (other) -> leads to -> Bath (other); Aberdeen (other) ->" in asked[2]


@pytest.mark.parametrize(
    "proposal",
    [
        {"entities": "{}", "relations": '{"leads to": ["Town"]}'},
        {"entities": "none", "relations": "no relations"},
    ],
)
def test_an_invalid_schema_proposal_is_refused(proposal: dict[str, Any]) -> None:
    with pytest.raises(StepFailed, match="the propose step"):
        propose_schema(ROADS, lm=proposer([], proposal))


def test_without_relations_or_an_lm_no_schema_is_proposed() -> None:
    with pytest.raises(StepFailed, match="no passage of the sample states a relation"):
        propose_schema(ROADS, lm=scripted_lm(lambda prompt: {"additions": "none"}))
    with dspy.context(lm=None), pytest.raises(InputError, match="no LM"):
        propose_schema(ROADS)


def test_the_embedded_lm_proposes_the_types_that_it_gave() -> None:
    schema = propose_schema(corpus()[:12], lm=extractive_lm(), sample=6)
    assert "person" in schema.types and set(schema.entities.values()) == {""}


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("asks_again", [False, True])
def test_the_worked_example_states_only_what_its_passages_support(
    several: bool, asks_again: bool
) -> None:
    signature = glean_signature(ExtractFacts) if asks_again else ExtractFacts
    demo = extraction_example(signature, several=several)
    passages = {
        int(label): Passage(id=label, title=title, text=text)
        for label, title, text in SHOWN.findall(demo.passages)
    }
    draft = parse(f"{demo.get('graph', '')}\n{demo.additions}")
    found = ground(draft, passages)
    assert len(passages) == 1 + several
    assert len(found.update.relations) == 5 + several
    assert (found.dropped, draft.skipped) == ((), ())
