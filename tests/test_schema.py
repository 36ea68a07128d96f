"""User-defined schemas: in prompts, in replies, in a program and in its artifact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import dspy
import pytest

import ga_dspy
from ga_dspy import GraphAnchor, Passage, Schema
from ga_dspy.errors import InputError
from ga_dspy.graph import parse
from ga_dspy.grounding import ground
from ga_dspy.lm.adapters import SchemaAdapter, reply_schema
from ga_dspy.testing import scripted_lm

DRUGS = Schema(
    entities={"Drug": "a medicine"},
    relations={
        "treats": ("Drug", "Disease", "cures or eases it"),
        "interacts with": ("Drug", "Drug"),
        "causes": ("Drug|Disease", "Disease"),
    },
)
ONLY = DRUGS.model_copy(update={"other": "drop"})
LEAFLET = Passage(
    id="1",
    title="Metformin",
    text="Metformin treats diabetes. Aspirin interacts with metformin. Dr. Lee works in Oslo.",
)


def fitted(lines: str, schema: Schema = DRUGS, known: dict[str, str] | None = None) -> list[Any]:
    draft = schema.fit(parse(lines), lambda *misfit: None, known or {})
    return [(r.head, r.head_type, r.relation, r.tail, r.tail_type) for r in draft.relations]


def reasons(lines: str, schema: Schema = ONLY) -> list[str]:
    found: list[str] = []
    schema.fit(parse(lines), lambda kind, item, reason: found.append(reason))
    return found


def test_types_in_parentheses_are_matched_to_the_schema_and_take_its_spelling() -> None:
    assert fitted("- Metformin (drug; oral) -> treats -> diabetes (DISEASE) [1]") == [
        ("Metformin", "Drug", "treats", "diabetes", "Disease")
    ]
    # Without a schema, or for a word that is no type of it, parentheses belong to the name.
    assert fitted("- Mercury (element) -> treats -> flu (Disease)")[0][0] == "Mercury (element)"
    assert parse("- Metformin (Drug) -> treats -> flu").relations[0].head == "Metformin (Drug)"


def test_relations_match_the_schema_in_any_tense_but_not_in_other_words() -> None:
    assert fitted("- A (Drug) -> Is  Treats -> B (Disease)")[0][2] == "treats"
    assert fitted("- A (Drug) -> is used to treat -> B (Disease)")[0][2] == "is used to treat"
    assert reasons("- A (Drug) -> is used to treat -> B (Disease)") == [
        "no such relation between these types in the schema"
    ]


def test_a_relation_is_reversed_if_its_ends_fit_only_that_way() -> None:
    assert fitted("- flu (Disease) -> treats -> Zeta (Drug; new)", ONLY) == [
        ("Zeta", "Drug", "treats", "flu", "Disease")
    ]
    lines = "- flu (Disease) -> treats -> Zeta (Drug; new)"
    draft = ONLY.fit(parse(lines), lambda *misfit: None)
    assert draft.relations[0].head_attributes == ("new",)
    both_ways = "- B (Drug) -> interacts with -> A (Drug)"
    assert fitted(both_ways) == [("B", "Drug", "interacts with", "A", "Drug")]
    untyped = "- flu (Disease) -> treats -> Zeta"
    assert reasons(untyped) == ["treats: Disease -> (no type); expected Drug -> Disease"]


def test_items_outside_the_schema_are_dropped_with_a_reason_or_kept_as_other() -> None:
    wrong = "- Lee (Disease) -> treats -> flu (Disease)\n- Oslo (place)"
    assert reasons(wrong) == [
        "type place; expected Drug, Disease",
        "treats: Disease -> Disease; expected Drug -> Disease",
    ]
    assert fitted(wrong) == [("Lee", "Disease", "other", "flu", "Disease")]
    assert reasons(wrong, DRUGS) == []
    kept = DRUGS.fit(parse(wrong), lambda *misfit: None)
    assert [entity.type for entity in kept.entities] == ["other"]


def test_an_untyped_end_takes_its_known_type() -> None:
    line = "- Zeta -> interacts with -> flu"
    assert fitted(line) == [("Zeta", "", "interacts with", "flu", "")]
    assert fitted(line, known={"Zeta": "Drug", "flu": "Disease"})[0][2] == "other"
    listed = "Entities:\n- flu (Disease)\nRelations:\n- Zeta -> interacts with -> flu"
    assert reasons(listed) == ["interacts with: (no type) -> Disease; expected Drug -> Drug"]


def test_an_end_may_allow_several_types_and_same_as_is_always_allowed() -> None:
    assert reasons("- A (Drug) -> causes -> B (Disease)\n- B (Disease) -> causes -> C") == []
    assert reasons("- A (Drug) -> same as -> B (Drug)") == []
    assert reasons("- A (person) -> same as -> B") != []


def test_a_schema_without_relations_accepts_any_relation() -> None:
    types = Schema(entities={"Drug": "", "Disease": ""}, other="drop")
    assert reasons("- A (Drug) -> eases -> B (Disease)", types) == []
    assert len(reasons("- A (Drug) -> made by -> B (person)", types)) == 1


def test_a_draft_without_a_schema_is_unchanged() -> None:
    draft = parse("- Metformin (Drug) -> treats -> diabetes (Disease) [1]")
    assert ground(draft, {1: LEAFLET}).update.relations[0].head == "Metformin"
    assert [e.type for e in ground(draft, {1: LEAFLET}).update.entities] == ["", ""]


def test_grounding_reports_what_the_schema_excluded() -> None:
    draft = parse("- Metformin (Drug) -> treats -> diabetes (Disease) [1]\n"
                  "- Dr. Lee (person) -> works in -> Oslo (place) [1]\n"
                  "- Zeta (Drug) -> treats -> diabetes [1]")  # fmt: skip
    found = ground(draft, {1: LEAFLET}, schema=ONLY)
    assert [(e.name, e.type) for e in found.update.entities] == [
        ("Metformin", "Drug"), ("diabetes", "Disease")
    ]  # fmt: skip
    assert [(d.cause, d.is_unsupported) for d in found.dropped] == [
        ("outside the schema", False), ("ungrounded", True)
    ]  # fmt: skip
    assert str(found.dropped[0]).startswith('relation "Dr. Lee -> works in -> Oslo": no such')


def test_known_names_without_types_do_not_constrain_the_schema() -> None:
    draft = parse("- Metformin -> treats -> diabetes (Disease) [1]")
    assert ground(draft, {1: LEAFLET}, known={"Metformin"}, schema=ONLY).dropped == ()
    typed = ground(draft, {1: LEAFLET}, known={"Metformin": "Disease"}, schema=ONLY)
    assert [d.cause for d in typed.dropped] == ["outside the schema"]


@pytest.mark.parametrize("name", ["schema.yaml", "schema.json"])
@pytest.mark.parametrize("schema", [DRUGS, ONLY, Schema(entities={"Größe": "so: »x«"})])
def test_a_schema_survives_a_file_round_trip(tmp_path: Path, name: str, schema: Schema) -> None:
    text = schema.yaml if name.endswith(".yaml") else schema.model_dump_json()
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert Schema.read(str(tmp_path / name)) == schema


def test_a_schema_file_accepts_common_ways_to_list_ends(tmp_path: Path) -> None:
    (tmp_path / "s.yml").write_text("entities: {Drug: a medicine}\nrelations:\n"
                                    "  treats: [Drug, Disease]\n"
                                    "  causes: [Drug , Disease, makes ill]\n")  # fmt: skip
    schema = Schema.read(tmp_path / "s.yml")
    assert schema.types == ("Drug", "Disease") and schema.other == "keep"
    assert schema.relations["causes"] == ("Drug", "Disease", "makes ill")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "parsing"),
        ("", "object"),
        ("other: drop", "has no type"),
        ("types: {Drug: a}", "types: Extra"),
        ("relations: {treats: [Drug]}", "relations.treats"),
        ("relations: {treats: [Drug, A (b)]}", "'A .b.' is not a name"),
        ("relations: {'a -> b': [Drug, Drug]}", "is not a name"),
        ("relations: {treats: [A, B], is treats: [A, B]}", "a relation twice"),
    ],
)
def test_an_invalid_schema_file_is_named_with_its_fault(
    tmp_path: Path, text: str, fault: str
) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError, match=fault) as found:
        Schema.read(tmp_path / "bad.yaml")
    assert "bad.yaml" in str(found.value) and "expected a schema" in str(found.value)
    with pytest.raises(InputError, match="no such file"):
        Schema.read(tmp_path / "none.yaml")


# --- In a program


def nothing(query: str, k: int) -> list[Passage]:
    return []


STEP = {
    "reasoning": "r", "judgement": "sufficient", "candidate": "Metformin", "next_query": "none",
    "links": "l", "answer": "Metformin", "verdict": "answered",
}  # fmt: skip


@pytest.mark.parametrize("as_published", [False, True])
def test_the_schema_is_in_the_read_prompt_and_enforced_on_the_reply(as_published: bool) -> None:
    lines = "- diabetes (Disease) -> treats -> Metformin (Drug) [1]\n" \
            "- Dr. Lee (person) -> works in -> Oslo (place) [1]"  # fmt: skip
    lm = scripted_lm(lambda prompt: {**STEP, "additions": lines})
    program = GraphAnchor(lambda query, k: [LEAFLET], schema=ONLY, as_published=as_published)
    with dspy.context(lm=lm):
        found = program(question="What treats diabetes?")
    told = "Relations, no others: Drug -> treats -> Disease (cures or eases it); Drug -> "
    assert told in lm.engine.prompts[0]
    assert "Types, no others: Drug (a medicine), Disease." in lm.engine.prompts[0]
    assert "organisation" not in lm.engine.prompts[0]
    assert [(r.head, r.relation, r.tail) for r in found.graph.relations] == [
        ("Metformin", "treats", "diabetes")
    ]
    assert [dropped.cause for dropped in found.steps[0].dropped] == ["outside the schema"]


def test_entity_types_of_the_graph_apply_in_later_steps() -> None:
    replies = iter([
        {**STEP, "judgement": "insufficient", "next_query": "aspirin",
         "additions": "- Metformin (Drug) -> treats -> diabetes (Disease) [1]"},
        {**STEP, "additions": "- diabetes -> interacts with -> Metformin [1]"},
        STEP,
    ])  # fmt: skip
    more = LEAFLET.model_copy(update={"id": "2", "text": LEAFLET.text + " More."})
    found_for = {"aspirin": [more]}
    program = GraphAnchor(lambda query, k: found_for.get(query, [LEAFLET]), schema=ONLY)
    with dspy.context(lm=scripted_lm(lambda prompt: next(replies))):
        found = program(question="What treats diabetes?")
    assert [d.reason for d in found.steps[1].dropped] == [
        "interacts with: Disease -> Drug; expected Drug -> Drug"
    ]


def test_without_a_schema_the_prompt_has_the_default_types() -> None:
    plain = GraphAnchor(nothing)
    assert (
        "Types: person, place, organisation, work, event, date" in plain.read.signature.instructions
    )
    assert plain.settings()["schema"] is None
    kept = GraphAnchor(nothing, schema=DRUGS).read.signature.instructions
    told = "; others in the passage's words. Types: Drug (a medicine), Disease, other. Two names"
    assert told in kept


@pytest.mark.parametrize("other", ["keep", "drop"])
def test_the_schema_is_enforced_on_facts_in_json(other: Literal["keep", "drop"]) -> None:
    schema = DRUGS.model_copy(update={"other": other})
    program = GraphAnchor(nothing, schema=schema, graph_form="json")
    fact = reply_schema(program.read.signature)["properties"]["additions"]["items"]["properties"]
    assert fact["head_type"]["enum"] == ["Drug", "Disease", "other"]
    named = ["treats", "interacts with", "causes", "same as"]
    assert fact["relation"].get("enum") == (named if other == "drop" else None)
    again = GraphAnchor(nothing, schema=schema, graph_form="json")
    assert again.read.signature.equals(program.read.signature)
    reply = {**STEP, "additions": [
        {"head": "diabetes", "head_type": "Disease", "relation": "treats", "tail": "Metformin",
         "tail_type": "Drug", "passages": [1]}
    ]}  # fmt: skip
    program.retriever = lambda query, k: [LEAFLET]
    with dspy.context(lm=scripted_lm(lambda prompt: json.dumps(reply)), trace=[]):
        found = program(question="What treats diabetes?")
        shown = dspy.settings.trace[0][2].additions
    assert [r.head for r in found.graph.relations] == ["Metformin"]
    # The demo that an optimizer would make of it has the types of the schema.
    assert SchemaAdapter().format(
        program.read.signature, [{"additions": shown, **STEP}], {"question": "q"}
    )
    assert [fact.head_type for fact in shown.facts] == ["Drug"]


def test_an_artifact_saves_the_schema(tmp_path: Path) -> None:
    ga_dspy.save(GraphAnchor(nothing, schema=ONLY), tmp_path / "mine")
    loaded = ga_dspy.load(tmp_path / "mine", retriever=nothing)
    assert loaded.schema == ONLY
    manifest = json.loads((tmp_path / "mine" / "manifest.json").read_text())
    # An artifact of an earlier version has no such setting.
    ga_dspy.save(GraphAnchor(nothing), tmp_path / "old")
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text())
    del manifest["settings"]["schema"]
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(manifest))
    assert ga_dspy.load(tmp_path / "old", retriever=nothing).settings()["schema"] is None


@pytest.mark.parametrize("wrong", [{"index": "text"}, {"schema": "schema.yaml"}])
def test_a_schema_setting_must_be_a_schema_and_needs_a_graph_index(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"Schema\.read"):
        GraphAnchor(nothing, **{"schema": DRUGS, **wrong})


def test_the_command_line_reads_a_schema_from_its_file(tmp_path: Path) -> None:
    from ga_dspy.cli.choices import choose_settings

    (tmp_path / "drugs.yaml").write_text(ONLY.yaml)
    chosen = choose_settings([f"schema={tmp_path / 'drugs.yaml'}"], GraphAnchor)
    assert chosen == {"schema": ONLY}
