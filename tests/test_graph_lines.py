"""Graphs as text: every form that is written is read back, and much that an LM writes besides."""

from __future__ import annotations

import importlib.util
import json
import statistics
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy.graph import (
    Draft,
    DraftRelation,
    Entity,
    Evidence,
    GraphUpdate,
    KnowledgeGraph,
    NotAGraphError,
    Relation,
    draft_from,
    linearise,
    parse,
)
from ga_dspy.graph.lines import Form
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
@pytest.mark.parametrize("arrow", ["->", "→", "--", "|"])
def test_headers_bullets_and_arrows_vary(header: str, bullet: str, arrow: str) -> None:
    draft = parse(f"{header}\n{bullet} Rihanna {arrow} born in {arrow} Saint Michael [4]")
    assert triples(draft) == [("Rihanna", "born in", "Saint Michael")]
    assert draft.relations[0].passages == (4,)


def test_bold_and_code_fences_are_taken_off() -> None:
    draft = parse("```text\n**Entities:**\n- **Rihanna** (singer)\n```")
    assert entities(draft) == [("Rihanna", "singer", ())]
    assert draft.skipped == ()


def test_a_list_behind_its_header_is_read() -> None:
    draft = parse("Entities: Rihanna (singer), Kelly Rowland\nRelations: Rihanna -> knows -> Kelly")
    assert [each.name for each in draft.entities] == ["Rihanna", "Kelly Rowland"]
    assert triples(draft) == [("Rihanna", "knows", "Kelly")]


def test_good_lines_survive_bad_ones_which_are_listed() -> None:
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
def test_a_line_that_was_cut_off_is_no_fact(end: str) -> None:
    draft = parse(f"Relations:\n1. Rihanna -> born in -> Saint Michael [1]\n{end}")
    assert len(draft.relations) == 1
    assert draft.skipped == (end.strip(),)


def test_an_open_fence_or_tag_makes_the_last_line_doubtful() -> None:
    draft = parse("<graph>Entities:\n- Rihanna (singer)\n- Kelly Row")
    assert [each.name for each in draft.entities] == ["Rihanna"]
    assert draft.skipped == ("- Kelly Row",)


@pytest.mark.parametrize("form", ["compact", "line"])
def test_cutting_the_text_anywhere_makes_no_relation_with_a_part_missing(form: Form) -> None:
    relation = Relation(head="Ada", relation="won", tail="Cup (time: x)", time="1990")
    text = linearise(GraphUpdate(relations=(relation,)), form)
    for cut in range(len(text)):
        for each in parse(text[:cut]).relations:
            assert (each.head, each.relation) == ("Ada", "won")


def test_prose_is_no_graph() -> None:
    prose = "Rihanna is a singer (born 1988).\nShe was born in Saint Michael, and sings [1]."
    assert parse(prose) == Draft(skipped=tuple(prose.splitlines()))
    listed = "Entities:\n- The passages do not say who the singer of the song was."
    assert parse(listed).entities == ()


def test_a_confidence_that_is_no_number_is_reported_and_the_fact_kept() -> None:
    draft = parse("Relations:\n1. Ada -> won -> Cup (confidence: high)\n2. Ada -> won -> Prize")
    assert len(draft.relations) == 2
    assert draft.relations[0].confidence is None
    assert "'high'" in draft.skipped[0]


def test_the_empty_graph_is_said_and_read_to_be_empty() -> None:
    assert linearise(KnowledgeGraph()) == "(empty)"
    assert parse("(empty)") == parse("") == Draft()


def test_ordinary_parentheses_stay_readable() -> None:
    update = GraphUpdate(entities=(Entity(name="Prism (album)", type="album"),))
    assert linearise(update) == "Entities:\n- Prism (album) (album)"


PIECES = st.text(st.sampled_from("abZé01 .,:;()[]->→|\\*`_#—!?'\"<>/"), min_size=1, max_size=12)
TRAPS = st.sampled_from(
    ("1. FC Köln", "Prism (album)", "Entities:", "Relations: [x]", "(empty)", "```", "<graph>")
) | st.sampled_from(
    ("a (time: 3)", "- x", "a [3]", "type: x", "Attributes: b", "(", "A -> B", "A -- B", "[x]")
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


@pytest.mark.parametrize("form", ["compact", "line"])
@settings(max_examples=60)
@given(update=UPDATES)
def test_what_is_written_is_read_back_whatever_the_names(form: Form, update: GraphUpdate) -> None:
    draft = parse(linearise(update, form, LABELS))
    assert draft.skipped == ()
    assert entities(draft) == [(e.name, e.type, e.attributes) for e in update.entities]
    assert [(r.head, r.relation, r.tail, r.time, r.confidence) for r in draft.relations] == [
        (r.head, r.relation, r.tail, r.time, r.confidence) for r in update.relations
    ]
    assert [e.passages for e in draft.entities] == [labels_of(e) for e in update.entities]
    assert [r.passages for r in draft.relations] == [labels_of(r) for r in update.relations]


@settings(max_examples=60)
@given(UPDATES)
def test_the_paper_form_carries_names_attributes_and_triples(update: GraphUpdate) -> None:
    draft = parse(linearise(update, "paper", LABELS))
    assert draft.skipped == ()
    assert [(e.name, e.attributes) for e in draft.entities] == [
        (e.name, tuple(dict.fromkeys(text for text in (e.type, *e.attributes) if text)))
        for e in update.entities
    ]
    assert triples(draft) == [(r.head, r.relation, r.tail) for r in update.relations]


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    parse(text)


def test_a_mapping_is_read_with_the_usual_keys() -> None:
    draft = draft_from(
        {
            "entities": [{"name": "Rihanna", "type": "singer", "passages": [1]}, "Kelly (singer)"],
            "relationships": [
                {"source": "Rihanna", "predicate": "knows", "target": "Kelly", "cited": "[2, 6]"},
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


def test_entities_may_be_a_mapping_from_names_to_details() -> None:
    draft = draft_from({"Entities": {"Rihanna": {"type": "singer", "attributes": {"born": 1988}}}})
    assert entities(draft) == [("Rihanna", "singer", ("born: 1988",))]


def test_good_items_survive_bad_ones_which_are_named() -> None:
    draft = draft_from({"entities": ["Rihanna", 3, {"type": "x"}, None], "triples": [["a", "b"]]})
    assert [each.name for each in draft.entities] == ["Rihanna"]
    assert draft.skipped == ("3", "{'type': 'x'}", "None", "['a', 'b']")


def test_a_bare_list_of_triples_is_a_graph() -> None:
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


def test_text_is_parsed_and_an_empty_list_adds_nothing() -> None:
    assert draft_from(COMPACT) == parse(COMPACT)
    assert draft_from([]) == draft_from({}) == Draft()


@pytest.mark.parametrize("value", [3, None, [1, 2, 3], True, {"answer": "Rihanna"}, object()])
def test_what_is_nothing_like_a_graph_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match="expected a mapping with 'entities'"):
        draft_from(value)


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
def test_any_json_is_a_draft_or_the_one_error(value: object) -> None:
    with suppress(NotAGraphError):
        assert isinstance(draft_from(value), Draft)


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
    """Tokens of a graph in each form, labels included, by the cl100k tokenizer."""
    import tiktoken

    encoding = tiktoken.get_encoding("cl100k_base")
    texts = {form: linearise(graph, form, COST_LABELS) for form in get_args(Form)}
    draft = parse(texts["compact"])
    texts["json"] = json.dumps(draft.model_dump(mode="json", exclude_defaults=True))
    return {form: len(encoding.encode(text)) for form, text in texts.items()}


@pytest.fixture
def _bundled_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cl100k vocabulary that litellm ships, so that nothing is downloaded."""
    pytest.importorskip("tiktoken")
    package = importlib.util.find_spec("litellm")
    if package is None or package.origin is None:
        pytest.skip("litellm, which ships the tokenizer's vocabulary, is not installed")
    vocabulary = Path(package.origin).parent / "litellm_core_utils" / "tokenizers"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary))


@pytest.mark.usefixtures("_bundled_tokenizer")
def test_the_compact_form_costs_no_more_than_the_papers_and_less_than_json() -> None:
    costs = token_costs(typical_graph())
    assert costs["compact"] <= costs["paper"], costs
    assert costs["compact"] < costs["json"], costs


@pytest.mark.data
@pytest.mark.usefixtures("_bundled_tokenizer")
def test_the_estimate_is_within_a_twentieth_of_the_true_count_on_average(data: Path) -> None:
    import tiktoken

    encoding = tiktoken.get_encoding("cl100k_base")
    rows = json.loads((data / "hotpotqa" / "train.json").read_text())[:60]
    texts = ["".join(sentences) for row in rows for _, sentences in row["context"]]
    ratios = [estimate_tokens(text) / len(encoding.encode(text)) for text in texts if text]
    assert statistics.mean(ratios) == pytest.approx(1, abs=0.05)
    assert statistics.stdev(ratios) < 0.1
