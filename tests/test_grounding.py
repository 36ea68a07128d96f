"""Grounding: only what the passages support enters a graph; the rest is listed with reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.graph import Draft, DraftEntity, DraftRelation, parse
from ga_dspy.grounding import Grounding, ground
from ga_dspy.passage import Passage
from ga_dspy.text import mentions

LODGE = Passage(
    id="lodge",
    title="Red Lodge",
    text="Red Lodge is a city in Montana. It is the county seat of Carbon County since 1896.",
)
PRISM = Passage(id="prism", title="Prism (album)", text="Prism is an album. Katy Perry made it.")
READ = {1: LODGE, 2: PRISM}


def grounded(text: str) -> Grounding:
    return ground(parse(text), READ)


def test_a_supported_draft_is_kept_with_computed_spans() -> None:
    found = grounded(
        "Entities:\n- Red Lodge (city) [1]\nRelations:\n"
        "1. Red Lodge -> is the county seat of -> Carbon County [1]"
    )
    relation = found.update.relations[0]
    evidence = relation.evidence[0]
    assert found.dropped == ()
    assert LODGE.content[evidence.start : evidence.end] == (
        "It is the county seat of Carbon County since 1896."
    )


def test_an_invented_entity_is_dropped_and_reported() -> None:
    found = grounded("Entities:\n- Bozeman (city) [1]")
    assert found.update.entities == ()
    assert [str(item) for item in found.dropped] == ['entity "Bozeman": not found in [1]']


def test_a_relation_with_an_invented_end_is_dropped_and_the_end_reported() -> None:
    found = grounded("Relations:\n1. Red Lodge -> is near -> Bozeman [1]")
    assert found.update.relations == ()
    assert '"Bozeman" not found in any passage' in str(found.dropped[0])


def test_a_typed_end_is_an_entity_as_if_it_had_been_listed() -> None:
    found = grounded(
        "- Red Lodge (place; in Montana; founded in 1884) -> seat of -> Carbon County (place) [1]"
    )
    described = [(e.name, e.type, e.attributes) for e in found.update.entities]
    assert described == [("Red Lodge", "place", ("in Montana",)), ("Carbon County", "place", ())]
    assert [each.kind for each in found.dropped] == ["attribute"]
    listed = "Entities:\n- Red Lodge (place; in Montana) [1]\n- Carbon County (place) [1]\n"
    assert grounded(f"{listed}- Red Lodge -> seat of -> Carbon County [1]").update == found.update


def test_an_unsupported_typed_end_is_one_fault_and_the_other_end_is_kept() -> None:
    for end in ("Bozeman", "unknown", "possibly a town"):
        found = grounded(f"- Red Lodge (place) -> is near -> {end} (place) [1]")
        assert [entity.name for entity in found.update.entities] == ["Red Lodge"]
        assert [dropped.kind for dropped in found.dropped] == ["relation"]


def test_the_type_of_an_end_applies_to_the_passages_of_all_its_relations() -> None:
    beck = Passage(id="beck", title="Beck", text="Beck lived in Red Lodge.")
    draft = parse("- Red Lodge (place) -> in -> Montana [1]\n- Beck -> lived in -> Red Lodge [3]")
    lodge, *others = ground(draft, {**READ, 3: beck}).update.entities
    assert (lodge.name, lodge.type) == ("Red Lodge", "place")
    assert {each.passage for each in lodge.evidence} == {"lodge", "beck"}
    assert {other.name for other in others} == {"Montana", "Beck"}


def test_one_passage_must_mention_both_ends_of_a_relation() -> None:
    found = grounded("Relations:\n1. Katy Perry -> born in -> Red Lodge [1]")
    assert found.update.relations == ()
    assert "no single passage mentions both ends" in str(found.dropped[0])


def test_a_wrong_citation_is_put_right() -> None:
    found = grounded("Relations:\n1. Katy Perry -> made -> Prism [1]")
    assert found.update.relations[0].evidence[0].passage == "prism"


def test_the_ends_of_a_kept_relation_are_entities() -> None:
    found = grounded("Relations:\n1. Katy Perry -> made -> Prism [2]")
    assert {entity.name for entity in found.update.entities} == {"Katy Perry", "Prism"}


def test_an_attribute_that_the_passage_does_not_state_is_taken_off() -> None:
    found = grounded("Entities:\n- Red Lodge (city; in Montana; founded in 1884) [1]")
    assert found.update.entities[0].attributes == ("in Montana",)
    assert [d.item for d in found.dropped] == ["Red Lodge: founded in 1884"]


@pytest.mark.parametrize(
    ("attribute", "kept"), [("seat: parish", False), ("chief line of work: county seat", True)]
)
def test_an_attribute_is_judged_by_its_value_and_not_by_its_key(attribute: str, kept: bool) -> None:
    found = grounded(f"Entities:\n- Red Lodge (city; {attribute}) [1]")
    assert found.update.entities[0].attributes == ((attribute,) if kept else ())


@pytest.mark.parametrize("name", ["unknown", "N/A", "not mentioned", "[Entity 1]"])
def test_placeholders_never_enter_the_graph(name: str) -> None:
    draft = Draft(relations=(DraftRelation(head="Red Lodge", relation="mayor", tail=name),))
    found = ground(draft, READ)
    assert found.update.relations == ()
    assert [d.cause for d in found.dropped] == ["placeholder"]


def test_a_typed_placeholder_never_enters_even_if_the_passage_states_it() -> None:
    read = {1: Passage(id="lodge", title="Red Lodge", text="The founder of Red Lodge is unknown.")}
    found = ground(parse("- Red Lodge (city) -> founder -> unknown (person) [1]"), read)
    assert found.update.entities == ()
    assert [d.cause for d in found.dropped] == ["placeholder"]


def test_a_hedged_guess_never_enters_the_graph() -> None:
    found = grounded("Relations:\n1. Red Lodge -> is possibly the seat of -> Carbon County [1]")
    assert found.update.relations == ()
    assert [d.cause for d in found.dropped] == ["hedged"]


def test_a_time_that_the_passage_does_not_state_is_dropped() -> None:
    kept = grounded("Relations:\n1. Red Lodge -> seat of -> Carbon County (time: 1896) [1]")
    left = grounded("Relations:\n1. Red Lodge -> seat of -> Carbon County (time: 1950) [1]")
    assert kept.update.relations[0].time == "1896"
    assert left.update.relations[0].time is None


def test_a_qualifier_is_kept_if_a_passage_or_the_graph_has_it() -> None:
    def named(name: str, known: tuple[str, ...] = ()) -> list[str]:
        draft = Draft(entities=(DraftEntity(name=name),))
        return [entity.name for entity in ground(draft, READ, known).update.entities]

    assert named("Carbon County (Montana)") == ["Carbon County (Montana)"]
    assert named("Carbon County (Wyoming)") == ["Carbon County"]
    assert named("Carbon County (Wyoming)", ("Carbon County (Wyoming)",)) == [
        "Carbon County (Wyoming)"
    ]


def test_another_name_that_a_passage_states_becomes_an_alias() -> None:
    person = Passage(id="p", title="Bob Hayes", text="Robert Dale Hayes, known as Bob Hayes, ran.")
    found = ground(parse("Entities:\n- Bob Hayes (person) [1]"), {1: person})
    assert found.update.entities[0].aliases == ("Robert Dale Hayes",)


def test_a_line_that_is_not_a_graph_line_is_reported() -> None:
    found = grounded("Entities:\n- Red Lodge (city) [1]\nRelations:\n1. Red Lodge -> in")
    assert [d.kind for d in found.dropped] == ["line"]


@pytest.mark.parametrize(
    ("type_", "kept"),
    [
        ("person", "person"),
        ("entity", "entity"),
        ("place", "place"),
        ("other", "other"),
        ("the city", "the city"),
        ("unknown", ""),
        ("N/A", ""),
        ("type unknown", ""),
        ("not stated", ""),
        ("possibly a city", ""),
    ],
)
def test_a_type_is_kept_unless_it_is_empty_or_hedged(type_: str, kept: str) -> None:
    draft = Draft(entities=(DraftEntity(name="Red Lodge", type=type_, passages=(1,)),))
    assert [entity.type for entity in ground(draft, READ).update.entities] == [kept]


def test_a_relation_that_two_cited_passages_state_is_quoted_from_both() -> None:
    other = Passage(id="o", title="Seats", text="Many moved. Red Lodge leads Carbon County now.")
    draft = parse("Relations:\n1. Red Lodge -> seat of -> Carbon County [1][3]")
    [relation] = ground(draft, {**READ, 3: other}).update.relations
    quotes = [other.content, LODGE.content]
    assert [evidence.passage for evidence in relation.evidence] == ["lodge", "o"]
    assert [
        quote[e.start : e.end] for e, quote in zip(relation.evidence, quotes[::-1], strict=True)
    ] == [
        "It is the county seat of Carbon County since 1896.",
        "Red Lodge leads Carbon County now.",
    ]


def test_the_sentence_with_both_ends_is_preferred_to_one_with_the_title() -> None:
    text = "Ostvik is a port. Its mayor is Bo. Ada Lund was born in Ostvik."
    found = ground(
        parse("Relations:\n1. Ada Lund -> was born in -> Ostvik [1]"),
        {1: (passage := Passage(id="ada", title="Ada Lund", text=text))},
    )
    (quote,) = found.update.relations[0].evidence
    assert passage.content[quote.start : quote.end] == "Ada Lund was born in Ostvik."


def test_quotes_are_whole_sentences_despite_initials() -> None:
    text = "It grew. The Ann L. Fox Company and Bell Inc. of Ohio merged in 1961. Then it fell."
    passage = Passage(id="p", text=text)
    draft = parse("Relations:\n1. Bell Inc. -> merged with -> Ann L. Fox Company [1]")
    [relation] = ground(draft, {1: passage}).update.relations
    assert [text[e.start : e.end] for e in relation.evidence] == [
        "The Ann L. Fox Company and Bell Inc. of Ohio merged in 1961."
    ]


def test_a_role_in_the_credits_is_a_supported_attribute() -> None:
    passage = Passage(id="p", title="Prism", text="Prism stars Ann Fox. Bob Hall directed it.")
    draft = parse("Entities:\n- Ann Fox (person; actress; director) [1]")
    [entity] = ground(draft, {1: passage}).update.entities
    assert entity.attributes == ("actress",)


def test_an_unreadable_line_is_reported_and_the_others_are_kept() -> None:
    entity = DraftEntity(name="Red Lodge", passages=(1,))
    found = ground(Draft(entities=(entity,), skipped=("Note: all good",)), READ)
    assert [(item.item, item.cause) for item in found.dropped] == [("Note: all good", "unreadable")]
    assert [kept.name for kept in found.update.entities] == ["Red Lodge"]


names = st.one_of(
    st.sampled_from(["Red Lodge", "Montana", "Carbon County", "Katy Perry", "Prism", "1896"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=14),
)


@given(st.lists(st.tuples(names, names), max_size=6), st.lists(names, max_size=6))
def test_only_items_that_a_passage_mentions_enter_the_graph(
    pairs: list[tuple[str, str]], proposed: list[str]
) -> None:
    try:
        draft = Draft(
            entities=tuple(DraftEntity(name=name) for name in proposed),
            relations=tuple(DraftRelation(head=h, relation="knows", tail=t) for h, t in pairs),
        )
    except ValueError:
        return
    update = ground(draft, READ).update
    content = {passage.id: passage.content for passage in READ.values()}
    for entity in update.entities:
        assert entity.evidence
        assert all(mentions(entity.name, content[e.passage]) for e in entity.evidence)
    for relation in update.relations:
        text = content[relation.evidence[0].passage]
        assert mentions(relation.head, text)
        assert mentions(relation.tail, text)


@pytest.mark.parametrize(
    ("title", "text", "attribute"),
    [
        ("Never Let Me Go (film)", "Never Let Me Go is a British drama.", "British drama"),
        ("Not Fade Away", '"Not Fade Away" is a rock song by Buddy Holly.', "rock song"),
        ("Cormac Lund", "He wrote No Country for Old Men, a western novel.", "western novel"),
        ("Rejected", "His film Without Anna was a short comedy.", "short comedy"),
    ],
)
def test_a_negation_inside_a_name_does_not_deny_an_attribute(
    title: str, text: str, attribute: str
) -> None:
    name = "Without Anna" if "Anna" in text else title.partition(" (")[0]
    passages = {1: Passage(id="p", title=title, text=text)}
    (entity,) = ground(parse(f"- {name} (work; {attribute}) [1]"), passages).update.entities
    assert entity.attributes == (attribute,)


@pytest.mark.parametrize("text", ["Never has Ann Fox been a singer.", "Ann Fox was NOT a singer."])
def test_a_negation_at_a_sentence_start_or_in_capitals_denies_an_attribute(text: str) -> None:
    passages = {1: Passage(id="p", title="Ann Fox", text=text)}
    (entity,) = ground(parse("- Ann Fox (person; singer) [1]"), passages).update.entities
    assert entity.attributes == ()


@pytest.mark.parametrize("title", ["No One", "Nobody (film)", "Nothing"])
def test_a_passage_title_is_not_a_placeholder(title: str) -> None:
    name = title.partition(" (")[0]
    passages = {1: Passage(id="p", title=title, text=f"{name} is a work by Ada Lund.")}
    found = ground(parse(f"1. {name} -> made by -> Ada Lund [1]"), passages)
    assert [relation.head for relation in found.update.relations] == [name]
