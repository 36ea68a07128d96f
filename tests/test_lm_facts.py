"""Facts of the embedded LM: stated in the passages, parseable, within the maximum."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extractive_lm.english import analyse
from extractive_lm.facts import additions, statements, walks, write_facts
from extractive_lm.prompt import Doc, Fact, Prompt, read_graph, read_passages
from ga_dspy.graph.lines import parse
from ga_dspy.grounding import ground
from ga_dspy.passage import Passage

DOCS = (
    Doc(
        1,
        "Mira Oldfield",
        "Mira Anne Oldfield (4 May 1931 – 2 June 1999) was a Scottish painter. She was born in "
        "Tarvin Bay and studied at the Lorne School of Art. Her best known painting "
        '"The Grey Boats" was bought by the Ansel Museum in 1962.',
    ),
    Doc(2, "Tarvin Bay", "Tarvin Bay is a town in and the county seat of Lorne County."),
    Doc(3, "Glass harmonica", "The glass harmonica is an instrument. It was made in Ulm."),
)
QUESTION = analyse("In which county is the town where the painter Mira Oldfield was born?")


def said(title: str, text: str) -> set[tuple[str, str, str]]:
    return {fact[:3] for fact in statements(Doc(1, title, text)).facts}


def grounded_share(found: tuple[Fact, ...], docs: tuple[Doc, ...]) -> float:
    passages = {d.label: Passage(id=str(d.label), title=d.title, text=d.text) for d in docs}
    draft = parse(write_facts(found, docs))
    assert not draft.skipped
    dropped = ground(draft, passages).dropped
    stated = len(draft.entities) + len(draft.relations)
    return 1 - len(dropped) / stated if stated else 1.0


@pytest.mark.parametrize(
    ("title", "text", "triple"),
    [
        (
            "Night Tide (film)",
            "Night Tide is a 1994 Scottish animated film directed by Ada Bell and starring Jo Hay.",
            ("Night Tide", "directed by", "Ada Bell"),
        ),
        (
            "Night Tide (film)",
            "Night Tide is a film directed by the Scottish actor Ada Bell.",
            ("Night Tide", "directed by", "Ada Bell"),
        ),
        (
            "Tarvin Bay",
            "Tarvin Bay is a town in and the county seat of Lorne County.",
            ("Tarvin Bay", "is the county seat of", "Lorne County"),
        ),
        (
            "Ada Bell",
            "Ada Bell is a singer. She was born in Perth on 3 May 1950.",
            ("Ada Bell", "born in", "Perth"),
        ),
        (
            "The Gulls (band)",
            "The Gulls are a band. The band was formed by Jo Hay and Ann Lee.",
            ("The Gulls", "formed by", "Ann Lee"),
        ),
        (
            "Jo Hay",
            "Jo Hay is a drummer. He played with Ann Lee, who founded Gull Records.",
            ("Ann Lee", "founded", "Gull Records"),
        ),
        (
            "Jo Hay",
            "Jo Hay is a drummer. His wife Ann Lee was born in Perth.",
            ("Jo Hay", "wife", "Ann Lee"),
        ),
        (
            "Jo Hay",
            "Jo Hay is a drummer. His wife Ann Lee was born in Perth.",
            ("Ann Lee", "born in", "Perth"),
        ),
    ],
)  # fmt: skip
def test_a_sentence_becomes_a_relation_in_the_sentences_words(
    title: str, text: str, triple: tuple[str, str, str]
) -> None:
    assert triple in said(title, text)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Ada Bell may have married Jo Hay.", "Jo Hay"),
        ("Ada Bell never met Jo Hay.", "Jo Hay"),
        ("Ada Bell is a Scottish singer.", "Scottish"),
        ("Ada Bell wrote an animated Disney film.", "Disney"),
    ],
)
def test_guesses_denials_and_adjectives_are_not_relations(text: str, wrong: str) -> None:
    assert wrong not in {tail for _, _, tail in said("Ada Bell", text)}


def test_an_apposition_describes_the_name_before_it() -> None:
    text = "Ada Bell is a poet who was born in Perth, a town in Lorne, a daughter of Jo Hay."
    found = said("Ada Bell", text)
    assert ("Perth", "is a town in", "Lorne") in found
    assert ("Ada Bell", "born in", "Perth") in found


def test_a_clause_after_an_apposition_describes_the_name_before_it() -> None:
    text = "Ada Bell is a poet. She was born in Perth, a town that lies in Lorne."
    assert said("Ada Bell", text) == {
        ("Ada Bell", "born in", "Perth"),
        ("Perth", "is a town that lies in", "Lorne"),
    }


def test_an_apposition_gives_the_type_of_the_end_of_a_walk() -> None:
    question = analyse("In which town was the painter of Grey Boats born?")
    painter = Doc(1, "Grey Boats", "Grey Boats was painted by Mira Oldfield.")
    born = "Mira Oldfield was born in Perth{}."
    for aside, is_whole in ((", a town in Lorne", True), ("", False)):
        docs = (painter, Doc(2, "Mira Oldfield", born.format(aside)))
        ends = {walk.name: walk.is_whole for walk in walks(question, docs, ())}
        assert ends["Perth"] is is_whole


def test_a_city_with_its_state_is_one_name_but_a_year_with_a_state_is_not() -> None:
    text = "Ada Bell was born in Salem, Oregon. She died in 1912, Oregon says."
    tails = {tail for _, _, tail in said("Ada Bell", text)}
    assert tails == {"Salem, Oregon", "1912"}


def test_a_passage_without_a_name_states_nothing() -> None:
    assert said("", "He is a poet.") == set()


def test_a_subject_has_the_type_that_its_passage_states() -> None:
    docs = (Doc(1, "Ada Bell", "Ada Bell is a Scottish poet who met the sculptor Jo Hay."),)
    lines = write_facts(additions(analyse(""), docs, (), ()), docs)
    assert lines == "- Ada Bell (person) -> met -> Jo Hay [1]"


def test_only_facts_that_lead_to_the_answer_are_kept() -> None:
    found = additions(QUESTION, DOCS, (), walks(QUESTION, DOCS, ()))
    stated = {(f.head, f.relation, f.tail, f.labels) for f in found}
    assert ("Mira Oldfield", "born in", "Tarvin Bay", (1,)) in stated
    assert ("Tarvin Bay", "is the county seat of", "Lorne County", (2,)) in stated
    assert not any("harmonica" in f.head for f in found)


def test_both_ends_of_a_fact_occur_in_the_passage_that_it_cites() -> None:
    assert grounded_share(additions(QUESTION, DOCS, (), ()), DOCS) == 1.0


def test_facts_in_the_graph_are_not_repeated() -> None:
    first = additions(QUESTION, DOCS, (), ())
    again = additions(QUESTION, DOCS, read_graph(write_facts(first, DOCS)), ())
    assert first and not {f[:3] for f in first} & {f[:3] for f in again}


def test_the_token_budget_is_respected() -> None:
    towns = [f"Tarvin {name}" for name in "Ash Bay Cove Dale End Fell Gate Hill".split()]
    docs = [Doc(n, town, f"{town} is a town in Lorne. It was founded by Ada {town}.")
            for n, town in enumerate(towns)]  # fmt: skip
    assert len(additions(analyse(""), docs, (), ())) == 14


def test_an_empty_list_of_facts_is_written_as_empty() -> None:
    assert write_facts(additions(QUESTION, (), (), ()), ()) == "(empty)"


NAMES = st.sampled_from(
    ["Ada Bell", "Jo (Hay)", "A; B", "X -> Y", "[Z]", "Lorne | Co", "Tarvin Bay", "C--D", "O'Neil"]
)
VERBS = st.sampled_from(
    ["was born in", "met", "is a town in", "was written by", ", a friend of", "and", "(", 'won "']
)


@settings(max_examples=150)
@given(st.lists(st.tuples(NAMES, VERBS, NAMES), min_size=1, max_size=6), NAMES)
def test_every_line_made_from_any_passage_is_readable_and_grounded(
    clauses: list[tuple[str, str, str]], title: str
) -> None:
    text = " ".join(f"{head} {verb} {tail}." for head, verb, tail in clauses)
    docs = (Doc(1, title, text),)
    question = analyse("Where was Ada Bell of Tarvin Bay born?")
    assert grounded_share(additions(question, docs, (), ()), docs) == 1.0


def test_a_graph_is_read_back_with_its_escapes_and_types() -> None:
    text = (
        "Entities:\n- Prism (album) (studio album; loud) [2,6]\nRelations:\n"
        "1. Prism (album) -> made by -> A\\; B (time: 1984) (confidence: 0.8) [2]\n"
        "- Ann \\(person\\) (person) -> in -> Bath (place) [3]"
    )
    assert read_graph(text) == (
        Fact("Prism (album)", "made by", "A; B", (2,)),
        Fact("Ann (person)", "in", "Bath", (3,)),
    )


@pytest.mark.parametrize(
    ("text", "docs"),
    [
        ("[2] (untitled)\nSome text.", (Doc(2, "", "Some text."),)),
        ("[1] «Perth is a city.»", (Doc(1, "", "Perth is a city."),)),
        ("Perth is a city.", (Doc(1, "", "Perth is a city."),)),
        (
            "[1] Perth\n  Suburbs:\n  [2] Leith\n\n[4] Leith\nA port.",
            (Doc(1, "Perth", "Suburbs: [2] Leith"), Doc(4, "Leith", "A port.")),
        ),
        (
            "[1] Perth\nPerth is a city.\n\nRead as well, by title: [2] Leith; [3] Tay",
            (Doc(1, "Perth", "Perth is a city."),),
        ),
        ("Read as well, by title: [2] Leith", ()),
        ("", ()),
    ],
)
def test_passages_are_read_from_every_prompt_format(text: str, docs: tuple[Doc, ...]) -> None:
    assert read_passages(text) == docs


def test_tried_queries_are_read_without_their_results() -> None:
    text = """1. red lodge => [1] Red Lodge, [2] (untitled); 3 entities, 1 relations added
2. montana => (made from the graph) nothing new
3. 1999 mine, 2nd shaft => [3]; notes rewritten"""
    prompt = Prompt({"tried": text}, (), "chat", text)
    assert prompt.tried == ("red lodge", "montana", "1999 mine, 2nd shaft")


@pytest.mark.data
def test_nothing_proposed_on_real_passages_is_ungrounded(data: Path) -> None:
    rows = json.loads((data / "hotpotqa" / "train.json").read_text("utf-8"))[:25]
    for row in rows:
        contexts = enumerate(row["context"], 1)
        docs = tuple(Doc(n, t, " ".join("".join(s).split())) for n, (t, s) in contexts)
        assert grounded_share(additions(analyse(row["question"]), docs, (), ()), docs) == 1.0


NESTED = "Which lake lies beside the town where the father of the author of Grey Boats was born?"
BOOK = Doc(1, "Grey Boats", "Grey Boats is a novel by Mira Oldfield. It was published in 1962.")
AUTHOR = Doc(
    2,
    "Mira Oldfield",
    "Mira Oldfield was a Scottish writer who was born in Ulm, a daughter of the engineer Tom "
    "Oldfield.",
)
FATHER = Doc(3, "Tom Oldfield", "Tom Oldfield was an engineer who was born in Tarvin Bay.")
TOWN = Doc(4, "Tarvin Bay", "Tarvin Bay is a town that lies on Lake Lorne.")
WAY = ("grey boats", "mira oldfield", "tom oldfield", "tarvin bay", "lake lorne")


def test_the_walk_that_states_most_of_a_nested_question_ends_at_its_answer() -> None:
    found = walks(analyse(NESTED), (BOOK, AUTHOR, FATHER, TOWN), ())
    assert (found[0].path, found[0].name, found[0].is_whole) == (WAY, "Lake Lorne", True)
    share = {walk.path[-1]: walk.share for walk in found}
    assert share["tom oldfield"] < share["tarvin bay"] < share["lake lorne"] <= 1


def test_a_walk_may_use_relations_of_the_graph() -> None:
    known = (Fact("Mira Oldfield", "daughter of", "Tom Oldfield", (2,)),)
    assert walks(analyse(NESTED), (BOOK, FATHER, TOWN), known)[0].path == WAY


def test_a_question_without_a_name_from_the_passages_has_no_walk() -> None:
    asked = analyse("Which lake lies beside the town of the painter?")
    assert not walks(asked, (BOOK, AUTHOR, FATHER, TOWN), ())


def test_a_title_that_is_a_file_name_or_a_heading_is_not_the_subject() -> None:
    text = "Ada Holm was born in Fjelby. She designed the Halden Bridge."
    for title in ("bio", "2024-report-final", "Biography", ""):
        heads = {fact.head for fact in statements(Doc(1, title, text)).facts}
        assert heads == {"Ada Holm"}, title
    about = statements(Doc(1, "Halden Bridge", "Ada Holm designed the Halden Bridge."))
    assert about.subject == "Halden Bridge"
    assert statements(Doc(1, "Salem", "It lies in Oregon.")).subject == "Salem"


def test_the_last_name_of_a_list_is_not_the_tail_of_an_earlier_relation() -> None:
    text = "It was designed by Pella Quist and carries cars between Osmund and Skerrow Island."
    facts = statements(Doc(1, "MV Grey Heron", text)).facts
    assert [fact[:3] for fact in facts] == [("MV Grey Heron", "designed by", "Pella Quist")]
