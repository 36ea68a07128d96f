"""Renaming rows: consistent, invented, readable, and nothing that decides a score gets lost."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy.eval import DatasetName, normalise
from ga_dspy.eval.renaming import AnswersLost, NothingToRead, Renamed, rename_rows
from ga_dspy.eval.renaming import rename as rename_module
from ga_dspy.eval.renaming.plan import Plan
from ga_dspy.eval.renaming.replace import rename_row

Row = dict[str, Any]


def hotpot(question: str, answer: str, *context: tuple[str, list[str]], **more: Any) -> Row:
    titles = [[title, 0] for title, _ in context]
    return {
        "_id": "q1",
        "question": question,
        "answer": answer,
        "type": "bridge",
        "level": "hard",
        "supporting_facts": titles,
        "context": [[title, sentences] for title, sentences in context],
        **more,
    }


FAMILY = hotpot(
    "Which town was the father of Ludo Hasek, the singer of the Velvet Harbour, born in?",
    "Kremsau",
    (
        "Ludo Hasek",
        [
            "Ludo Hasek (born 4 May 1961) is an American singer of The Velvet Harbour.",
            " Hasek's father was the painter Otakar J. Hasek.",
            " The Haseks came from Kremsau.",
        ],
    ),
    (
        "Otakar Hasek",
        [
            "Otakar Hasek was a painter from Kremsau, Austria.",
            " The Austrian painter, seen at the harbour in velvet, taught at the University of "
            "Kremsau for 31 years.",
        ],
    ),
    (
        "The Velvet Harbour",
        ["The Velvet Harbour is a rock band.", " THE VELVET HARBOUR toured in 1984 and 1985."],
    ),
)
MUSIC_ROOM = hotpot("Is a room quiet?", "no", ("Room", ["A room is seldom quiet."]))
MUSIQUE: Row = {
    "id": "2hop__1_2",
    "paragraphs": [
        {
            "idx": 0,
            "title": "Bruck Falls",
            "paragraph_text": "Bruck Falls is a waterfall on the Ondra River in Zelenia.",
            "is_supporting": True,
        },
        {
            "idx": 1,
            "title": "Ondra River",
            "paragraph_text": "The Ondra River rises in Zelenia. It is 77 km long.",
            "is_supporting": False,
        },
    ],
    "question": "what river is bruck falls on",
    "question_decomposition": [
        {"id": 7, "question": "Bruck Falls >> river", "answer": "Ondra River"},
        {"id": 8, "question": "where does #1 rise", "answer": "Zelenia"},
    ],
    "answer": "Ondra River",
    "answer_aliases": ["the Ondra", "River Ondra"],
    "answerable": True,
}
TWO_WIKI = hotpot(
    "Which film was made first, Gold For The Kaspars or Moonless?",
    "Gold For The Kaspars",
    ("Gold for the Kaspars", ["Gold for the Kaspars is a film by Ivo Brandl."]),
    ("Ivo Brandl", ["Ivo Brandl was a director.", " He found gold."]),
    type="comparison",
    evidences=[["Gold for the Kaspars", "director", "Ivo Brandl"]],
    entity_ids="Q1_Q2",
    evidences_id=[["Q1", "P57", "Q2"]],
    answer_id="Q1",
)


def renamed(row: Row, dataset: DatasetName = "hotpotqa", seed: int = 3) -> Row:
    return rename_rows([row], dataset, seed).rows[0]


def text_of(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False)


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]+", text.casefold()))


def new_of(result: Renamed, old: str) -> str:
    return next(entry.new for entry in result.mapping if entry.old == old)


def test_no_name_of_the_source_is_left_in_the_copy() -> None:
    left = words(text_of(renamed(FAMILY)))
    assert not left & {"ludo", "hasek", "haseks", "otakar", "kremsau", "austria", "austrian"}


def test_titles_supporting_facts_question_and_answer_use_the_same_new_names() -> None:
    row = renamed(FAMILY)
    assert [title for title, _ in row["supporting_facts"]] == [title for title, _ in row["context"]]
    assert row["context"][0][0] in row["question"]
    assert row["answer"] in "".join(row["context"][1][1])


def test_a_surname_alone_its_possessive_and_its_plural_follow_the_full_name() -> None:
    row = renamed(FAMILY)
    surname = row["context"][0][0].split()[-1]
    sentences = row["context"][0][1]
    assert sentences[1].startswith(f" {surname}'s father")
    assert f"The {surname}s came" in sentences[2]


def test_father_and_son_keep_sharing_a_surname() -> None:
    son, father = (title.split() for title, _ in renamed(FAMILY)["context"][:2])
    assert son[-1] == father[-1]
    assert son[0] != father[0]


def test_structure_words_stay_and_the_distinctive_part_is_the_places_new_name() -> None:
    row = renamed(FAMILY)
    assert f"University of {row['answer']}" in row["context"][1][1][1]


def test_a_demonym_keeps_the_stem_of_its_country() -> None:
    result = rename_rows([FAMILY], "hotpotqa", 3)
    stem = new_of(result, "Austria").rstrip("aeiou")
    assert new_of(result, "Austrian").startswith(stem)


def test_common_words_that_make_up_a_name_change_only_as_that_name() -> None:
    row = renamed(FAMILY)
    text = "".join(row["context"][1][1])
    assert "the harbour in velvet" in text
    assert "Velvet" not in text_of(row)
    band = row["context"][2][0]
    assert band.startswith("The ")
    assert band.upper() in row["context"][2][1][1]


def test_an_initial_changes_with_the_name() -> None:
    assert "J. " not in text_of(renamed(FAMILY))


def test_musique_renames_decomposition_and_aliases_in_any_case() -> None:
    row = renamed(MUSIQUE, "musique")
    falls, river = (part["title"] for part in row["paragraphs"])
    assert row["question"] == f"what river is {falls.lower()} on"
    assert row["question_decomposition"][0] == {
        "id": 7,
        "question": f"{falls} >> river",
        "answer": river,
    }
    assert row["question_decomposition"][1]["question"] == "where does #1 rise"
    assert row["answer_aliases"] == [f"the {river.split()[0]}", f"River {river.split()[0]}"]
    assert [part["idx"] for part in row["paragraphs"]] == [0, 1]


def test_two_wiki_renames_evidences_with_the_context_and_empties_the_wikidata_ids() -> None:
    row = renamed(TWO_WIKI, "2wikimultihopqa")
    (film, relation, director) = row["evidences"][0]
    assert (film, director) == (row["context"][0][0], row["context"][1][0])
    assert relation == "director"
    assert (row["entity_ids"], row["evidences_id"], row["answer_id"]) == ("", [], "")


def test_a_title_written_with_other_capitals_is_the_same_title() -> None:
    row = renamed(TWO_WIKI, "2wikimultihopqa")
    assert normalise(row["answer"]) == normalise(row["context"][0][0])
    assert normalise(row["answer"]) in normalise(row["question"])


def test_a_work_is_renamed_as_a_phrase_and_its_disambiguator_stays() -> None:
    row = hotpot(
        "Who made the film Dark Tide?",
        "Ivo Brandl",
        (
            "Dark Tide (1997 film)",
            ["Dark Tide is a film by Ivo Brandl.", " It was dark, and the tide rose."],
        ),
        ("Tide", ["A tide is dark water.", " Every dark tide ends."]),
    )
    copied = renamed(row)
    title, (first, second) = copied["context"][0]
    assert title.endswith(" (1997 film)")
    assert "Dark" not in title and "Tide" not in title
    assert first.startswith(title.removesuffix(" (1997 film)"))
    assert second == " It was dark, and the tide rose."
    assert copied["context"][1] == row["context"][1]


@pytest.mark.parametrize("answer", ["yes", "no", "4 May 1961", "31", "painter"])
def test_what_is_no_name_stays_and_is_counted(answer: str) -> None:
    result = rename_rows([{**FAMILY, "answer": answer}], "hotpotqa", 3)
    assert result.rows[0]["answer"] == answer
    assert sum(result.report.unchanged.values()) == 1


def test_accents_and_capitals_do_not_part_a_name() -> None:
    row = hotpot(
        "Where was Jiri Capek born?",
        "BRNO",
        ("Jiří Čapek", ["Jiří Čapek (born 1901) came from Brno.", " CAPEK left Brno."]),
    )
    copied = renamed(row)
    name = copied["context"][0][0]
    assert f"Where was {name} born?" == copied["question"]
    assert copied["context"][0][1][1].startswith(f" {name.split()[1].upper()} left")
    assert copied["answer"].isupper()


def test_acronyms_become_acronyms_with_or_without_dots() -> None:
    row = hotpot(
        "What is the QRX?",
        "Q.R.X.",
        ("QRX", ["The QRX (Q.R.X.) is a society on TV."]),
    )
    copied = renamed(row)
    acronym = copied["context"][0][0]
    assert acronym != "QRX" and acronym.isupper() and len(acronym) == 3
    assert copied["answer"] == ".".join(acronym) + "."
    assert copied["context"][0][1][0].endswith("on TV.")


def test_other_scripts_do_not_give_a_name_away() -> None:
    row = hotpot("Where is Brno?", "Moravia", ("Brno", ["Brno (Брно, 布尔诺) lies in Moravia."]))
    assert text_of(renamed(row)).isascii()


def test_the_rows_given_are_left_as_they_are() -> None:
    before = copy.deepcopy(FAMILY)
    rename_rows([FAMILY], "hotpotqa", 3)
    assert before == FAMILY


def test_the_same_seed_gives_the_same_copy_and_another_seed_other_names() -> None:
    assert renamed(FAMILY, seed=3) == renamed(FAMILY, seed=3)
    assert renamed(FAMILY, seed=3)["answer"] != renamed(FAMILY, seed=4)["answer"]


def test_the_order_of_rows_decides_nothing() -> None:
    rows = [FAMILY, TWO_WIKI]
    forth = rename_rows(rows, "2wikimultihopqa", 3).rows
    back = rename_rows(rows[::-1], "2wikimultihopqa", 3).rows
    assert forth == back[::-1]


def test_ids_types_and_sentence_counts_stay() -> None:
    row = renamed(FAMILY)
    assert [row[name] for name in ("_id", "type", "level")] == ["q1", "bridge", "hard"]
    assert list(row) == list(FAMILY)
    counts = [[len(sentences) for _, sentences in r["context"]] for r in (FAMILY, row)]
    assert counts[0] == counts[1]


def test_the_hubs_layout_is_renamed_too() -> None:
    titles = [title for title, _ in FAMILY["context"]]
    hub = {
        **FAMILY,
        "context": {"title": titles, "sentences": [s for _, s in FAMILY["context"]]},
        "supporting_facts": {"title": titles, "sent_id": [0, 0, 0]},
    }
    official, row = renamed(FAMILY), renamed(hub)
    assert row["context"]["title"] == [title for title, _ in official["context"]]
    assert row["context"]["sentences"] == [sentences for _, sentences in official["context"]]
    assert row["supporting_facts"]["title"] == row["context"]["title"]


def test_the_report_counts_names_shares_and_leaks() -> None:
    report = rename_rows([FAMILY, {**FAMILY, "answer": "Ostrava"}], "hotpotqa", 3).report
    assert (report.questions, report.leaks, report.kept) == (2, 0, 0)
    assert report.derivable_in_source == report.derivable_in_copy == 0.5
    assert report.renamed["person"] >= 2


def test_an_old_name_in_a_copy_counts_as_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rename_module, "rename_row", lambda row, plan: row)
    assert rename_rows([FAMILY, MUSIC_ROOM], "hotpotqa", 3).report.leaks == 1


def test_a_surname_left_by_itself_in_a_copy_counts_as_a_leak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_surname(row: Row, plan: Plan) -> Row:
        copied = rename_row(row, plan)
        return {**copied, "question": f"{copied['question']} Ask Hasek."}

    monkeypatch.setattr(rename_module, "rename_row", with_surname)
    assert rename_rows([FAMILY], "hotpotqa", 3).report.leaks == 1


def test_a_copy_in_which_an_answer_got_lost_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(row: Row, plan: object) -> Row:
        return {**row, "answer": "Nowhere"}

    monkeypatch.setattr(rename_module, "rename_row", spoilt)
    with pytest.raises(AnswersLost, match=r"answers of 1 questions .*q1.* use another seed"):
        rename_rows([FAMILY], "hotpotqa", 3)


def test_a_word_that_an_answer_needs_unchanged_is_kept() -> None:
    row = hotpot(
        "What do dogs have?",
        "tails",
        ("Lost Tails", ["Lost Tails is a film about dogs."]),
        ("Ivo Brandl", ["Ivo Brandl (born 1900) had two tails."]),
        supporting_facts=[["Lost Tails", 0]],
    )
    result = rename_rows([row], "hotpotqa", 3)
    assert result.rows[0]["answer"] == "tails"
    assert "Tails" in result.rows[0]["context"][0][0]
    assert result.report.kept >= 1


def test_questions_without_paragraphs_are_refused() -> None:
    with pytest.raises(NothingToRead, match="Bamboogle has no paragraphs"):
        rename_rows([{"question": "Who was Ludo Hasek?", "answer": "a singer"}], "bamboogle", 3)


NAMES = st.from_regex(r"\A[A-Z][a-z]{3,7}\Z")


@settings(max_examples=40, deadline=None)
@given(
    people=st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=6),
    year=st.integers(1000, 2100),
    seed=st.integers(0, 99),
)
def test_old_and_new_words_pair_one_to_one_and_digits_stay(
    people: list[tuple[str, str]], year: int, seed: int
) -> None:
    context = [
        (f"{given} {last}", [f"{given} {last} (born {year}) knew {last} at {given} {year}b."])
        for given, last in people
    ]
    row = hotpot(f"Who was born in {year}?", " ".join(people[0]), *context)
    result = rename_rows([row], "hotpotqa", seed)
    new = [entry.new.casefold() for entry in result.mapping]
    assert len(set(new)) == len(new)
    assert not {word for text in new for word in text.split()} & words(text_of(row))
    assert re.findall(r"\d+", text_of(row)) == re.findall(r"\d+", text_of(result.rows[0]))
    assert result.report.derivable_in_copy == result.report.derivable_in_source
