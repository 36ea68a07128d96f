"""The text format of graphs: round trips, and the many forms that an LM writes."""

from __future__ import annotations

import importlib.util
import json
import statistics
import time
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ga_dspy.graph import (
    Draft,
    DraftRelation,
    Entity,
    Evidence,
    GraphUpdate,
    KnowledgeGraph,
    Relation,
    draft_from,
    linearise,
    parse,
)
from ga_dspy.graph.identity import says_nothing
from ga_dspy.graph.records import single_line
from ga_dspy.text import estimate_tokens

LABELS = {"p": 1, "q": 2}


def entities(draft: Draft) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.name, each.type, each.attributes) for each in draft.entities]


def triples(draft: Draft) -> list[tuple[str, str, str]]:
    return [(each.head, each.relation, each.tail) for each in draft.relations]


COMPACT = """Entities:
- Katy Perry (person; artist; sang in church during childhood) [2,6]
- Stacy Barthe (person) [2]
Relations:
1. Stacy Barthe -> penned album tracks for -> Katy Perry [2]
2. Katy Perry -> born -> October 25, 1984 (time: 1984) (confidence: 0.8) [6]"""


def test_the_compact_form_is_read() -> None:
    draft = parse(COMPACT)
    assert entities(draft) == [
        ("Katy Perry", "person", ("artist", "sang in church during childhood")),
        ("Stacy Barthe", "person", ()),
    ]
    assert draft.entities[0].passages == (2, 6)
    assert draft.relations[1] == DraftRelation(
        head="Katy Perry",
        relation="born",
        tail="October 25, 1984",
        time="1984",
        confidence=0.8,
        passages=(6,),
    )
    assert draft.skipped == ()


def test_the_paper_form_is_read() -> None:
    draft = parse(
        "<graph>Entities:\n\n- Rihanna (Attributes: artist, from Barbados)\n- Kelly Rowland\n\n"
        "Relationships:\n\n1. Stacy Barthe -> penning tracks for -> Rihanna</graph>"
    )
    assert entities(draft) == [
        ("Rihanna", "", ("artist", "from Barbados")),
        ("Kelly Rowland", "", ()),
    ]
    assert triples(draft) == [("Stacy Barthe", "penning tracks for", "Rihanna")]
    assert draft.skipped == ()


def test_the_one_line_form_is_read() -> None:
    draft = parse(
        "Entities: [Harper Lee (author; never married) [1]], [To Kill a Mockingbird (novel)]; "
        "Relations: [Harper Lee -- wrote -- To Kill a Mockingbird [1,3]]"
    )
    assert entities(draft) == [
        ("Harper Lee", "author", ("never married",)),
        ("To Kill a Mockingbird", "novel", ()),
    ]
    assert triples(draft) == [("Harper Lee", "wrote", "To Kill a Mockingbird")]
    assert (draft.entities[0].passages, draft.relations[0].passages) == ((1,), (1, 3))


@pytest.mark.parametrize("header", ["RELATIONS", "## Relations", "**Triples:**", "relationships:"])
@pytest.mark.parametrize("bullet", ["-", "*", "•", "1.", "2)", ""])
@pytest.mark.parametrize("arrow", ["->", "→", "--"])
def test_various_headers_bullets_and_arrows_are_accepted(
    header: str, bullet: str, arrow: str
) -> None:
    draft = parse(f"{header}\n{bullet} Rihanna {arrow} born in {arrow} Saint Michael [4]")
    assert triples(draft) == [("Rihanna", "born in", "Saint Michael")]
    assert draft.relations[0].passages == (4,)


def test_bold_and_code_fences_are_removed() -> None:
    draft = parse("```text\n**Entities:**\n- **Rihanna** (singer)\n```")
    assert entities(draft) == [("Rihanna", "singer", ())]
    assert draft.skipped == ()


def test_a_cited_name_in_capitals_needs_neither_header_nor_type() -> None:
    draft = parse("- House of the Seven Gables [1]\n- Toured the country [1]\n- Bern")
    assert [each.name for each in draft.entities] == ["House of the Seven Gables"]
    assert draft.skipped == ("- Toured the country [1]", "- Bern")


def test_good_lines_are_kept_and_bad_ones_listed() -> None:
    draft = parse(
        "Here is the graph.\nEntities:\n- Rihanna (singer)\n- [3]\nRelations:\n"
        "1. Rihanna -> born in\n2. Rihanna -> born in -> Saint Michael\n3. a -> b -> c -> d"
    )
    assert entities(draft) == [("Rihanna", "singer", ())]
    assert triples(draft) == [("Rihanna", "born in", "Saint Michael")]
    assert len(draft.skipped) == 4
    assert draft.skipped[2] == "1. Rihanna -> born in"


@pytest.mark.parametrize(
    "end",
    [
        "2. Rih",
        "2. Rihanna -> born",
        "2. Rihanna -> born in -> ",
        "2. Rihanna -> won -> Cup [2",
        "2. Rihanna -> won -> Cup (time: 19",
    ],
)
def test_a_truncated_line_is_skipped(end: str) -> None:
    draft = parse(f"Relations:\n1. Rihanna -> born in -> Saint Michael [1]\n{end}")
    assert len(draft.relations) == 1
    assert draft.skipped == (end.strip(),)


def test_after_an_unclosed_fence_or_tag_the_last_line_is_skipped() -> None:
    draft = parse("<graph>Entities:\n- Rihanna (singer)\n- Kelly Row")
    assert [each.name for each in draft.entities] == ["Rihanna"]
    assert draft.skipped == ("- Kelly Row",)


def test_truncating_the_text_anywhere_never_yields_a_partial_relation() -> None:
    relation = Relation(head="Ada", relation="won", tail="Cup (time: x)", time="1990")
    text = linearise(GraphUpdate(relations=(relation,)))
    for cut in range(len(text)):
        for each in parse(text[:cut]).relations:
            assert (each.head, each.relation) == ("Ada", "won")


def fact(head: str, relation: str, tail: str) -> tuple[tuple[str, str, str], tuple[int, ...]]:
    return (head, relation, tail), (1,)


EDGE = fact("Neil Peart", "member of", "Rush")
RELATION_LINES = (
    "Neil Peart -> member of -> Rush [1]",
    "Neil Peart --> member of --> Rush [1]",
    "Neil Peart -> member of => Rush [1]",
    "Neil Peart ⟶ member of ⟶ Rush [1]",
    "Neil Peart → member of → Rush [1]",
    "Neil Peart->member of->Rush[1]",
    "Neil Peart -- member of -- Rush [1]",
    '{"head": "Neil Peart", "relation": "member of", "tail": "Rush", "passage": 1}',
    "{'subject': 'Neil Peart', 'predicate': 'member of', 'object': 'Rush', 'passages': '[1]'},",
    "Neil Peart -> member of -> Rush [1].",
    "Neil Peart -> member of -> Rush. [1]",
    "Neil Peart -> member of -> Rush [passage 1]",
    "Neil Peart [1] -> member of -> Rush [1]",
    "[1] Neil Peart -> member of -> Rush",
    '"Neil Peart" -> "member of" -> "Rush" [1]',
    "**Neil Peart** -> *member of* -> `Rush` [1]",
    "[Neil Peart] -> [member of] -> [Rush] [1]",
)


@pytest.mark.parametrize("header", ["", "Relations:\n"])
@pytest.mark.parametrize("line", RELATION_LINES)
def test_a_relation_is_parsed_in_many_styles(line: str, header: str) -> None:
    draft = draft_from(header + line)
    assert [((r.head, r.relation, r.tail), r.passages) for r in draft.relations] == [EDGE]
    assert (draft.entities, draft.skipped) == ((), ())


@pytest.mark.parametrize(
    ("line", "link", "tail"),
    [
        ("Ann Lee -> is an American drummer (role) [1]", "is", "American drummer"),
        ("Ann Lee -> was born in Oslo (place) [1]", "was born in", "Oslo"),
        ('Ann Lee -> joined the "Big Four" (organisation) [1]', "joined", "Big Four"),
        ("Ann Lee (person) -> hosts the Cup Final (event) [1]", "hosts", "Cup Final"),
    ],
)
def test_a_missing_second_arrow_is_inserted_before_a_typed_name(
    line: str, link: str, tail: str
) -> None:
    draft = draft_from(f"- {line}")
    assert [((r.head, r.relation, r.tail), r.passages) for r in draft.relations] == [
        (("Ann Lee", link, tail), (1,))
    ]
    assert draft.skipped == ()


ENTITY_LINES = (
    "- Rush (band) [1]",
    "Rush (band) [1]",
    "* Rush (band) [1].",
    "1. Rush (band) [1]",
    "• Rush (band) [1]",
    "- **Rush** (band) [1]",
    "- **Rush (band)** [1]",
    '- "Rush" (band) [1]',
    "- Rush [1] (band)",
    "- [1] Rush (band)",
    "- Rush (band) [passage 1]",
)


@pytest.mark.parametrize("line", ENTITY_LINES)
def test_an_entity_is_parsed_in_many_styles(line: str) -> None:
    draft = draft_from(f"Entities:\n{line}")
    assert [(e.name, e.type, e.passages) for e in draft.entities] == [("Rush", "band", (1,))]
    assert (draft.relations, draft.skipped) == ((), ())


@pytest.mark.parametrize("line", ENTITY_LINES)
def test_an_entity_before_the_relations_needs_no_header(line: str) -> None:
    draft = draft_from(f"{line}\nRelations:\n1. Neil Peart -> member of -> Rush [1]")
    assert [(e.name, e.type, e.passages) for e in draft.entities] == [("Rush", "band", (1,))]
    assert (len(draft.relations), draft.skipped) == (1, ())


@pytest.mark.parametrize(
    ("label", "numbers"),
    [
        ("[1-3]", (1, 2, 3)),
        ("[1, 2]", (1, 2)),
        ("[1][3]", (1, 3)),
        ("[1], [3]", (1, 3)),
        ("[passages 2 and 4]", (2, 4)),
        ("[2; 5]", (2, 5)),
    ],
)
def test_labels_may_be_numbers_lists_and_ranges(label: str, numbers: tuple[int, ...]) -> None:
    draft = parse(f"Relations:\n1. Ada -> won -> Cup {label}\n\nEntities:\n- Ada (person) {label}")
    assert draft.relations[0].passages == draft.entities[0].passages == numbers
    assert draft.relations[0].tail == "Cup"


@pytest.mark.parametrize(
    "header",
    "Entities:|New entities:|### Entities|**Entities:**|## New Entities|NODES".split("|"),
)
def test_various_entity_headers_are_accepted(header: str) -> None:
    draft = parse(f"{header}\n- Rush\n\nRelations:\n1. Neil Peart -> member of -> Rush")
    assert [each.name for each in draft.entities] == ["Rush"]
    assert (len(draft.relations), draft.skipped) == (1, ())


@pytest.mark.parametrize(
    "header",
    "Relations:|New relations:|Relationships:|### Relations|**Relations:**|TRIPLES|Facts:".split(
        "|"
    ),
)
def test_various_relation_headers_are_accepted(header: str) -> None:
    draft = parse(f"Entities:\n- Rush\n{header}\n- Neil Peart -> member of -> Rush")
    assert [each.name for each in draft.entities] == ["Rush"]
    assert (triples(draft), draft.skipped) == ([("Neil Peart", "member of", "Rush")], ())


def test_sentences_around_the_lines_are_skipped_and_listed() -> None:
    draft = parse(
        "Sure! The passages tell of a band.\n- Rush (band) [1]\n"
        "1. Neil Peart -> member of -> Rush [1]\nI left out what is not about the drummer."
    )
    assert [each.name for each in draft.entities] == ["Rush"]
    assert len(draft.relations) == 1
    assert len(draft.skipped) == 2


@pytest.mark.parametrize(
    "line",
    [
        "Neil Peart was a member of Rush [1].",
        "Neil Peart was a member (drummer) of Rush (band)",
        "Neil Peart -> member of [1]",
        "Star Wars: A New Hope -> directed by",
        "Rush, a band, toured Canada.",
        "According to [1] the band toured.",
        "a -> b -> c -> d",
        "Ann Lee -> lives in Oslo (Norway)",
        "Ann Lee -> hosts major matches (event) [1]",
        "Ann Lee -> is the second of all who ever came from there to play (role) [1]",
        "Neil Peart | member of | Rush",
        "(see above, if at all, again)",
    ],
)
def test_an_ambiguous_line_is_skipped(line: str) -> None:
    assert parse(line) == Draft(skipped=(line,))


@pytest.mark.parametrize(
    "name",
    [
        "Mission: Impossible",
        "Houston, Texas",
        "1. FC Köln",
        "*NSYNC",
        "Spider-Man",
        "2001: A Space Odyssey",
        "(500) Days of Summer",
        "Washington, D.C.",
        "Wham!",
        "None but the Lonely Heart",
        "Nothing Compares 2 U",
        "Relations",
    ],
)
def test_a_name_that_looks_like_syntax_is_kept_whole(name: str) -> None:
    relation = f"Relations:\n1. {name} -> made by -> {name} [1]"
    draft = parse(f"Entities:\n- {name} (work) [1]\n- Ida (person)\n{relation}")
    assert [each.name for each in draft.entities] == [name, "Ida"]
    assert triples(draft) == [(name, "made by", name)]


def test_lone_surrogates_and_control_characters_are_removed() -> None:
    written = "Relations:\n1. Neil\x00 Peart\ud83d -> member\x07 of -> Rush\udc00 [1]"
    assert triples(draft_from(written)) == [("Neil Peart", "member of", "Rush")]
    value = [{"head": "Neil Peart\ud83d", "relation": "member of", "tail": "Ru\x07sh"}]
    assert triples(draft_from(value)) == [("Neil Peart", "member of", "Rush")]


NOTHING = (
    """
none|None.|(none)|(empty)|**None**|`none`|- None|null|nil|N/A|n/a|-|—|...|∅|[]|{}
No additions.|Nothing new.|No new information.|No relevant information found.|None found
(no new entities or relations)|Entities: none|Relations: (none)|Entities: none; Relations: none
Entities: N/A\nRelations: N/A|Entities:\n- none\nRelations:\n- none|Entities:\nRelations:
The passages add nothing.|The new passages do not add anything.|Nothing to add.|No new facts.
There is nothing new in these passages.|The passages don’t contain any relevant facts.
None of these passages is relevant.|Nothing in the passages is relevant to the question.
No entities or relations were found.|No relevant facts in passage 3.|No updates needed
The graph already contains everything.|No graph additions|Not applicable|["none"]
{"entities": [], "relations": []}|```\nnone\n```|I found no new information.|No new triples
No supporting evidence found.|These passages are irrelevant.|Nothing useful was found here.
""".strip()
    .replace("\n", "|")
    .replace("\\n", "\n")
    .split("|")
)


@pytest.mark.parametrize("text", NOTHING)
def test_a_statement_of_nothing_is_an_empty_draft(text: str) -> None:
    assert draft_from(text) == Draft()


@pytest.mark.parametrize("text", ["none", "(none)", "N/A", "No next query", "none needed", "—", ""])
def test_a_report_of_nothing_is_recognised(text: str) -> None:
    assert says_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "yes",
        "No Doubt",
        "None of the Above (film)",
        "No. 1",
        "Neither of them",
        "Nobody",
        "0",
    ],
)
def test_an_answer_is_not_a_report_of_nothing(text: str) -> None:
    assert not says_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "A -> r -> B " + "[1] " * 50_000,
        "A -> r -> B " + "(time: 1) " * 20_000,
        "A -> r -> B" + "," * 200_000,
        "-" * 200_000,
        "(" * 100_000 + ")" * 100_000,
        "[" * 200_000,
        '{"a": ' * 30_000,
        "a | " * 50_000,
        "a " + "-" * 200_000,
        "\n" * 200_000,
        "head: a, " * 20_000,
        "\\" * 200_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_text_of_200_000_characters_is_read_in_seconds(text: str) -> None:
    start = time.process_time()
    draft_from(text)
    assert time.process_time() - start < 6


def test_twenty_thousand_lines_take_ten_times_as_long_as_two_thousand() -> None:
    def seconds(lines: int) -> float:
        text = "\n".join(f"{i}. Neil Peart {i} -> member of -> Rush [1]" for i in range(lines))
        start = time.process_time()
        assert len(parse(text).relations) == lines
        return time.process_time() - start

    assert seconds(20_000) < 40 * max(seconds(2_000), 0.02)


def test_prose_is_not_parsed_as_a_graph() -> None:
    prose = "Rihanna is a singer (born 1988).\nShe was born in Saint Michael, and sings [1]."
    assert parse(prose) == Draft(skipped=tuple(prose.splitlines()))
    listed = "Entities:\n- The passages do not say who the singer of the song was."
    assert parse(listed).entities == ()


def test_a_confidence_that_is_not_a_number_is_reported_and_the_fact_kept() -> None:
    draft = parse("Relations:\n1. Ada -> won -> Cup (confidence: high)\n2. Ada -> won -> Prize")
    assert len(draft.relations) == 2
    assert draft.relations[0].confidence is None
    assert "'high'" in draft.skipped[0]


def test_the_empty_graph_is_written_and_parsed_as_empty() -> None:
    assert linearise(KnowledgeGraph()) == "(empty)"
    assert parse("(empty)") == parse("") == Draft()


def test_ordinary_parentheses_are_not_escaped() -> None:
    update = GraphUpdate(entities=(Entity(name="Prism (album)", type="album"),))
    assert linearise(update) == "Entities:\n- Prism (album) (album)"


SAID = {"Ann Lee": "person", "Oslo": "place", "Heroes": "work", "2003": "date"}
TYPED_LINES = """- Ann Lee (person) -> born in -> Oslo (place) [2]
- Heroes (work) -> directed by -> Ann Lee [1]
- Heroes -> released in -> 2003 (date) [1]"""


def typed_graph(*more: Entity) -> GraphUpdate:
    stated = (
        ("Ann Lee", "born in", "Oslo", "q"),
        ("Heroes", "directed by", "Ann Lee", "p"),
        ("Heroes", "released in", "2003", "p"),
    )
    relations = (
        Relation(head=h, relation=r, tail=t, evidence=(Evidence(passage=id, start=0, end=1),))
        for h, r, t, id in stated
    )
    said = {name: Entity(name=name, type=kind) for name, kind in SAID.items()}
    said |= {entity.name: entity for entity in more}
    return GraphUpdate(entities=tuple(said.values()), relations=tuple(relations))


def test_a_type_is_written_at_the_first_mention_of_an_entity() -> None:
    assert linearise(typed_graph(), labels=LABELS) == TYPED_LINES
    draft = parse(TYPED_LINES)
    assert (draft.entities, draft.skipped) == ((), ())
    assert {node.name: node.type for node in draft.nodes} == SAID
    assert {node.name: node.passages for node in draft.nodes}["Ann Lee"] == (2, 1)


def test_an_entity_gets_its_own_line_only_if_needed() -> None:
    more = (
        Entity(name="Heroes", type="work", attributes=("drama",)),
        Entity(name="Oslo", type="capital"),
        Entity(name="Bern"),
    )
    text = linearise(typed_graph(*more), labels=LABELS)
    assert text == (
        "Entities:\n- Oslo (capital)\n- Heroes (work; drama)\n- Bern\nRelations:\n"
        "- Ann Lee (person) -> born in -> Oslo [2]\n- Heroes -> directed by -> Ann Lee [1]\n"
        "- Heroes -> released in -> 2003 (date) [1]"
    )
    assert {(n.name, n.type, n.attributes) for n in parse(text).nodes} == {
        (e.name, e.type, e.attributes) for e in typed_graph(*more).entities
    }


@pytest.mark.parametrize(
    ("end", "name", "kind", "attributes"),
    [
        ("Ann Lee (person)", "Ann Lee", "person", ()),
        ("Ann Lee(Person)", "Ann Lee", "Person", ()),
        ("**Ann Lee (person)**", "Ann Lee", "person", ()),
        ('"Ann Lee" (person)', "Ann Lee", "person", ()),
        ("Heroes (work; 2003 film; drama)", "Heroes", "work", ("2003 film", "drama")),
        ("FIFA (organization)", "FIFA", "organization", ()),
        ("Cambridge (Massachusetts) (place)", "Cambridge (Massachusetts)", "place", ()),
        ("Cambridge (Massachusetts)", "Cambridge (Massachusetts)", "", ()),
        ("Prism (album)", "Prism (album)", "", ()),
        ("Sinatra (1998 film)", "Sinatra (1998 film)", "", ()),
        (r"Ann \(person\)", "Ann (person)", "", ()),
        ("person", "person", "", ()),
    ],
)
def test_an_end_may_state_its_type_and_attributes(
    end: str, name: str, kind: str, attributes: tuple[str, ...]
) -> None:
    described = (name, kind, attributes)
    for text in (f"1. {end} -> born in -> Oslo [2]", f"- Oslo -> home of -> {end} [2]"):
        draft = parse(text)
        assert described in [(e.name, e.type, e.attributes) for e in draft.relations[0].entities]
        assert {node.name for node in draft.nodes} == {name, "Oslo"}


def test_an_entitys_own_line_sets_its_type_else_the_first_mention() -> None:
    lines = "- Ann (person; singer) -> a -> Oslo (place) [1]\n- Ann (other) -> b -> Oslo (work) [2]"
    assert entities(Draft(entities=parse(lines).nodes)) == [
        ("Ann", "person", ("singer",)),
        ("Oslo", "place", ()),
    ]
    listed = parse(f"Entities:\n- Ann (band; loud) [3]\n- Oslo\nRelations:\n{lines}")
    assert entities(Draft(entities=listed.nodes)) == [
        ("Ann", "band", ("loud", "singer")),
        ("Oslo", "place", ()),
    ]


def test_json_may_state_the_types_of_ends() -> None:
    fact = {"head": "Ann", "head_type": "person", "relation": "born in", "tail": "Oslo",
            "tail_type": "place", "passages": [2]}  # fmt: skip
    draft = draft_from([fact])
    assert draft == parse("- Ann (person) -> born in -> Oslo (place) [2]")


PIECES = st.text(st.sampled_from("abZé01 .,:;()[]->→|\\*`_#—!?'\"<>/"), min_size=1, max_size=12)
TRAPS = (
    st.sampled_from(
        ("1. FC Köln", "Prism (album)", "Entities:", "Relations: [x]", "(empty)", "```", "<graph>")
    )
    | st.sampled_from(
        ("a (time: 3)", "- x", "a [3]", "type: b", "Attributes: b", "(", "A -> B", "A -- B", "[x]")
    )
    | st.sampled_from(
        'none|No new entities|Rush: band|Rush - band|Head: a|"a"|(a, b)|a^1|x,|x:|a (1)|(passage 2)'
        '|a => b|<-|\\rightarrow|R1: x|{"a": 1}|Rush.|A, r, B'
        "|x (person)|(work)|y (date; z)|(y) (place)|a (type: role)|(event),".split("|")
    )
)
SENTENCE = st.just("A long name that ends as sentences do.")
NAMES = st.one_of(PIECES, TRAPS, SENTENCE, st.text(min_size=1, max_size=12)).filter(
    lambda name: bool(name.split())
)
EVIDENCE = st.lists(
    st.builds(Evidence, passage=st.sampled_from("pqr"), start=st.just(0), end=st.just(1)),
    max_size=2,
).map(tuple)
ENTITIES = st.builds(
    Entity,
    name=NAMES,
    type=st.one_of(st.just(""), NAMES),
    attributes=st.lists(NAMES, max_size=3).map(tuple),
    evidence=EVIDENCE,
)
RELATIONS = st.builds(
    Relation,
    head=NAMES,
    relation=NAMES,
    tail=NAMES,
    time=st.one_of(st.none(), NAMES),
    confidence=st.one_of(st.none(), st.floats(0, 1)),
    evidence=EVIDENCE,
)
UPDATES = st.builds(
    GraphUpdate,
    entities=st.lists(ENTITIES, max_size=3).map(tuple),
    relations=st.lists(RELATIONS, max_size=3).map(tuple),
)


def labels_of(record: Entity | Relation) -> tuple[int, ...]:
    return tuple(sorted({LABELS[e.passage] for e in record.evidence if e.passage in LABELS}))


@settings(max_examples=120)
@given(update=UPDATES)
def test_a_graph_with_any_names_survives_a_round_trip(update: GraphUpdate) -> None:
    # An entity that a relation names has no line of its own.
    ends = {end for relation in update.relations for end in (relation.head, relation.tail)}
    assume(ends.isdisjoint(entity.name for entity in update.entities))
    draft = parse(linearise(update, labels=LABELS))
    assert draft.skipped == ()
    assert entities(draft) == [(e.name, e.type, e.attributes) for e in update.entities]
    assert [(r.head, r.relation, r.tail, r.time, r.confidence) for r in draft.relations] == [
        (r.head, r.relation, r.tail, r.time, r.confidence) for r in update.relations
    ]
    assert [e.passages for e in draft.entities] == [labels_of(e) for e in update.entities]
    assert [r.passages for r in draft.relations] == [labels_of(r) for r in update.relations]


@st.composite
def graphs(draw: st.DrawFn) -> GraphUpdate:
    """Entities with different names, most of them with a known type, and relations between them."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique_by=single_line))
    kinds = st.sampled_from(("", "person", "Place", "organization", "film"))
    few = st.lists(NAMES, max_size=1).map(tuple)
    described = (
        draw(st.builds(Entity, name=st.just(name), type=kinds, attributes=few, evidence=EVIDENCE))
        for name in names
    )
    ends = st.sampled_from(names) | NAMES
    related = st.builds(Relation, head=ends, relation=NAMES, tail=ends, evidence=EVIDENCE)
    return GraphUpdate(
        entities=tuple(described), relations=tuple(draw(st.lists(related, max_size=4)))
    )


@settings(max_examples=200)
@given(graphs())
def test_a_graph_with_typed_ends_survives_a_round_trip(graph: GraphUpdate) -> None:
    draft = parse(linearise(graph, labels=LABELS))
    assert draft.skipped == ()
    assert triples(draft) == [(r.head, r.relation, r.tail) for r in graph.relations]
    assert [r.passages for r in draft.relations] == [labels_of(r) for r in graph.relations]
    named = {end for relation in graph.relations for end in (relation.head, relation.tail)}
    said = {e.name: (e.type, e.attributes) for e in graph.entities}
    assert {n.name: (n.type, n.attributes) for n in draft.nodes} == {
        **dict.fromkeys(named, ("", ())),
        **said,
    }
    lines = {e.name: labels_of(e) for e in graph.entities if e.name not in named or e.attributes}
    assert lines.items() <= {e.name: e.passages for e in draft.entities}.items()


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    parse(text)


def test_a_mapping_is_accepted_with_common_keys() -> None:
    draft = draft_from(
        {
            "entities": [{"name": "Rihanna", "type": "singer", "passages": [1]}, "Kelly (singer)"],
            "relationships": [
                {
                    "source": "Rihanna",
                    "predicate": "knows",
                    "target": "Kelly",
                    "passages": "[2, 6]",
                },
                ["Rihanna", "born in", 1988],
                "Kelly -> born in -> Atlanta",
            ],
        }
    )
    assert [each.name for each in draft.entities] == ["Rihanna", "Kelly"]
    assert triples(draft) == [
        ("Rihanna", "knows", "Kelly"),
        ("Rihanna", "born in", "1988"),
        ("Kelly", "born in", "Atlanta"),
    ]
    assert draft.relations[0].passages == (2, 6)
    assert draft.skipped == ()


def test_good_items_are_kept_and_bad_ones_listed() -> None:
    draft = draft_from({"entities": ["Rihanna", 3, {"type": "x"}, None], "triples": [["a", "b"]]})
    assert [each.name for each in draft.entities] == ["Rihanna"]
    assert draft.skipped == ("3", "{'type': 'x'}", "None", "['a', 'b']")


def test_a_bare_list_of_triples_is_accepted() -> None:
    assert triples(draft_from([["a", "b", "c"], {"head": "d", "relation": "e", "tail": "f"}])) == [
        ("a", "b", "c"),
        ("d", "e", "f"),
    ]


def test_json_in_text_is_read_with_or_without_a_fence() -> None:
    text = '{"entities": ["Rihanna"], "relations": [["Rihanna", "born in", "Saint Michael"]]}'
    for written in (text, f"```json\n{text}\n```"):
        assert triples(draft_from(written)) == [("Rihanna", "born in", "Saint Michael")]
    assert draft_from(text[:-9]).relations == ()


def test_a_confidence_in_words_is_reported_in_a_mapping_too() -> None:
    item = {"head": "a", "relation": "b", "tail": "c", "confidence": "high"}
    draft = draft_from({"relations": [item, {**item, "confidence": "80%"}]})
    assert [each.confidence for each in draft.relations] == [None, 0.8]
    assert draft.skipped[0].startswith("confidence 'high' of:")


def test_a_list_of_lines_is_read_like_the_lines() -> None:
    lines = ["1. Here Comes Ada -> directed by -> Ida [1]", "2. Ada Goes -> directed by -> Ida [2]"]
    facts = [("Here Comes Ada", "directed by", "Ida"), ("Ada Goes", "directed by", "Ida")]
    assert triples(draft_from(lines)) == triples(draft_from(str(lines))) == facts
    assert triples(draft_from({"relations": lines})) == facts
    mixed = ["Entities:", "- Ida (person) [1]", "Relations:", *lines]
    assert triples(draft_from(mixed)) == facts
    assert [each.name for each in draft_from(mixed).entities] == ["Ida"]


@pytest.mark.parametrize(
    "text",
    [
        '{"relations": [["Ada", "won", "Cup"],],}',
        "{'relations': [('Ada', 'won', 'Cup')], 'entities': None}",
        '[{"head": "Ada", "relation": "won", "tail": "Cup"}]',
        '{"additions": {"triples": [["Ada", "won", "Cup"]]}}',
        'Here it is:\n```json\n{"facts": ["Ada -> won -> Cup"]}\n```',
        '{"head": "Ada", "relation": "won", "tail": "Cup"}\n',
    ],
)
def test_json_is_read_with_its_usual_faults(text: str) -> None:
    assert triples(draft_from(text)) == [("Ada", "won", "Cup")]


def test_draft_from_accepts_text_and_empty_collections() -> None:
    assert draft_from(COMPACT) == parse(COMPACT)
    assert draft_from([]) == draft_from({}) == Draft()


def test_a_set_of_lists_is_no_python_literal_and_is_read_as_lines() -> None:
    draft = draft_from('{["Ada", "won", "Cup"]}')
    assert (draft.relations, draft.skipped) == ((), ('{["Ada", "won", "Cup"]}',))


@pytest.mark.parametrize("value", [3, [1, 2, 3], True, {"answer": "Rihanna"}, object()])
def test_any_other_value_is_an_empty_draft_that_lists_it(value: object) -> None:
    draft = draft_from(value)
    assert (draft.entities, draft.relations) == ((), ())
    assert draft.skipped


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["entities", "relations", "name", "head", "type", "tail", "passages"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_value_gives_a_draft(value: object) -> None:
    assert isinstance(draft_from(value), Draft)
    assert isinstance(draft_from(json.dumps(value)), Draft)


COST_LABELS = {"p": 3, "q": 12}


def typical_graph() -> GraphUpdate:
    """Ten directors, ten films and twenty relations, worded as an encyclopedia words them."""
    one, other = (Evidence(passage=passage, start=0, end=9) for passage in COST_LABELS)
    people = list(
        map(" ".join, product(("Anna", "Boris", "Clara", "Ida", "Otto"), ("Hale", "Lee")))
    )
    films = list(
        map(" ".join, product(("Silent", "Golden", "Red", "Lost", "Far"), ("Hill", "Sea")))
    )
    directors = (
        Entity(
            name=name,
            type="person",
            attributes=("American film director", f"born May {year - 1930}, {year}"),
            evidence=(one, other),
        )
        for year, name in enumerate(people, start=1940)
    )
    works = (
        Entity(name=name, type="film", attributes=(f"released in {year}",), evidence=(one,))
        for year, name in enumerate(films, start=1970)
    )
    relations = (
        Relation(head=film, relation=label, tail=person, evidence=(one,))
        for label in ("directed by", "based on a novel by")
        for film, person in zip(films, people, strict=True)
    )
    return GraphUpdate(entities=(*directors, *works), relations=tuple(relations))


def token_costs(graph: GraphUpdate) -> dict[str, int]:
    """Tokens of a graph as lines and as JSON, labels included, by the cl100k tokenizer."""
    import tiktoken

    encoding = tiktoken.get_encoding("cl100k_base")
    lines = linearise(graph, labels=COST_LABELS)
    as_json = json.dumps(parse(lines).model_dump(mode="json", exclude_defaults=True))
    return {"lines": len(encoding.encode(lines)), "json": len(encoding.encode(as_json))}


@pytest.fixture
def _bundled_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cl100k vocabulary that litellm ships, so nothing is downloaded."""
    pytest.importorskip("tiktoken")
    package = importlib.util.find_spec("litellm")
    if package is None or package.origin is None:
        pytest.skip("litellm, which ships the tokenizer's vocabulary, is not installed")
    vocabulary = Path(package.origin).parent / "litellm_core_utils" / "tokenizers"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary))


@pytest.mark.usefixtures("_bundled_tokenizer")
def test_lines_cost_less_than_json() -> None:
    costs = token_costs(typical_graph())
    assert costs["lines"] < costs["json"], costs


@pytest.mark.data
@pytest.mark.usefixtures("_bundled_tokenizer")
def test_the_token_estimate_is_within_five_percent_on_average(data: Path) -> None:
    import tiktoken

    encoding = tiktoken.get_encoding("cl100k_base")
    rows = json.loads((data / "hotpotqa" / "train.json").read_text())[:60]
    texts = ["".join(sentences) for row in rows for _, sentences in row["context"]]
    ratios = [estimate_tokens(text) / len(encoding.encode(text)) for text in texts if text]
    assert statistics.mean(ratios) == pytest.approx(1, abs=0.05)
    assert statistics.stdev(ratios) < 0.1
