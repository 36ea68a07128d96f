"""Renaming: consistent, invented, readable, nothing that decides a score gets lost; the files."""

from __future__ import annotations

import copy
import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy.errors import DamagedFile, InputError
from ga_dspy.eval import DatasetName, load, normalise, renaming
from ga_dspy.eval.datasets import detect, read_rows
from ga_dspy.eval.protocol import file_digest
from ga_dspy.eval.renaming import (
    Plan,
    Question,
    Renamed,
    provenance,
    record_path,
    rename_file,
    rename_row,
    rename_rows,
)

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
    stem = new_of(result, "austria").rstrip("aeiou")
    assert new_of(result, "austrian").startswith(stem)


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
    assert sum(result.report.unchanged_answers.values()) == 1


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
    assert (report.questions, report.leaks, report.kept_words) == (2, 0, 0)
    assert report.derivable_in_source == report.derivable_in_copy == 0.5
    assert report.renamed["person"] >= 2


def test_an_old_name_in_a_copy_counts_as_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renaming, "rename_row", lambda row, question, plan: row)
    assert rename_rows([FAMILY, MUSIC_ROOM], "hotpotqa", 3).report.leaks == 1


def test_a_surname_left_by_itself_in_a_copy_counts_as_a_leak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_surname(row: Row, question: Question, plan: Plan) -> Row:
        copied = rename_row(row, question, plan)
        return {**copied, "question": f"{copied['question']} Ask Hasek."}

    monkeypatch.setattr(renaming, "rename_row", with_surname)
    assert rename_rows([FAMILY], "hotpotqa", 3).report.leaks == 1


def test_a_copy_in_which_an_answer_got_lost_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(row: Row, question: Question, plan: Plan) -> Row:
        return {**row, "answer": "Nowhere"}

    monkeypatch.setattr(renaming, "rename_row", spoilt)
    with pytest.raises(InputError, match=r"answers of 1 questions .*q1.* use another seed"):
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
    assert result.report.kept_words >= 1


def test_questions_without_paragraphs_are_refused() -> None:
    with pytest.raises(InputError, match="Bamboogle has no paragraphs"):
        rename_rows([{"question": "Who was Ludo Hasek?", "answer": "a singer"}], "bamboogle", 3)


# --- Readers can still follow: common nouns stay, misspelt and lower-case names keep their owner.


HARBOUR = hotpot(
    "Who designed the harbour of Kremsau?",
    "Otakar Hasek",
    ("Kremsau", ["Kremsau is a town.", " Otakar Hasek designed the harbour of Kremsau."]),
    ("Otakar Hasek", ["Otakar Hasek (born 1901) was a painter, and drew Adventure's End."]),
    ("Adventure's End", ["Adventure's End is a film about Ludovic Bohm."]),
)


def asked(question: str, row: Row = HARBOUR) -> tuple[str, Row]:
    copied = renamed({**row, "question": question})
    return copied["question"], copied


@pytest.mark.parametrize(
    ("question", "owner"),
    [
        ("Who drew Advernture's End?", "Adventure's End"),
        ("Who drew adventure's end?", "Adventure's End"),
        ("Is Otakra Hasek from Kremsau?", "Otakar Hasek"),
        ("Is Otakar Haszek a painter?", "Otakar Hasek"),
        ("is otakar hasek a painter", "Otakar Hasek"),
        ("Where did Otakar Hasek paint?", "Otakar Hasek"),
    ],
)
def test_a_misspelt_or_lower_case_name_follows_its_owner(question: str, owner: str) -> None:
    text, copied = asked(question)
    titles = [title for title, _ in HARBOUR["context"]]
    new = copied["context"][titles.index(owner)][0]
    assert normalise(new) in normalise(text)


@pytest.mark.parametrize("initials", ["O. Hasek", "O.J. Hasek", "o. hasek"])
def test_initials_begin_as_the_new_given_name_does(initials: str) -> None:
    text, copied = asked(f"is {initials} a painter")
    given, surname = copied["context"][1][0].split()
    assert normalise(text).split()[1][0] == given[0].lower()
    assert surname.lower() in text.lower()


@pytest.mark.parametrize(
    "question",
    [
        "What is the capital of Kremsau?",
        "Which river runs through Kremsau, and does Hasek like violins?",
        "Which painter designed the reggae festival of Kremsau?",
    ],
)
def test_common_nouns_of_a_question_stay(question: str) -> None:
    text, _ = asked(
        question,
        hotpot(
            "",
            "Otakar Hasek",
            ("Kremsau", ["Kremsau has a Capital Bank, a Reggae House and a Violin Museum."]),
            ("Otakar Hasek", ["Otakar Hasek (born 1901) was a painter from Kremsau."]),
        ),
    )
    kept = [word for word in re.findall(r"\b[a-z]+\b", question) if word != "s"]
    assert [word for word in re.findall(r"\b[a-z]+\b", text) if word != "s"] == kept


@pytest.mark.parametrize("noun", ["plasma weapon", "violin", "black hole"])
def test_a_title_that_its_own_paragraph_writes_small_is_no_name(noun: str) -> None:
    row = hotpot(
        f"What does a {noun} need?",
        "Otakar Hasek",
        (noun.capitalize(), [f"A {noun} needs power.", f" Otakar Hasek built a {noun}."]),
        ("Otakar Hasek", ["Otakar Hasek (born 1901) was a painter."]),
    )
    copied = renamed(row)
    assert copied["context"][0][0] == noun.capitalize()
    assert copied["question"] == row["question"]


@pytest.mark.parametrize(
    "answer", ["Green Bay", "World War II", "Revolution Studios", "Queen's University", "War/Dance"]
)
def test_a_name_made_of_common_words_is_renamed_where_it_is_the_answer(answer: str) -> None:
    row = hotpot(
        "Where does Ludo Hasek work?",
        answer,
        ("Ludo Hasek", [f"Ludo Hasek (born 1961) is known for {answer}.", " He paints a bay."]),
    )
    result = rename_rows([row], "hotpotqa", 3)
    (copied,) = result.rows
    assert copied["answer"] != answer
    assert copied["answer"] in copied["context"][0][1][0]
    assert result.report.unchanged_answers == {}


def test_a_part_of_a_title_is_renamed_wherever_its_row_uses_it_as_a_name() -> None:
    row = hotpot(
        "Who made Hatchet II?",
        "Ivo Brandl",
        ("Hatchet II", ["Hatchet II is a film by Ivo Brandl.", " A hatchet is in it."]),
        ("Ivo Brandl", ['Ivo Brandl (born 1970) made "Hatchet" and "Hatchet II".']),
    )
    copied = renamed(row)
    assert "Hatchet" not in text_of(copied)
    assert "A hatchet is in it" in text_of(copied)


def test_a_bridge_that_cannot_be_followed_any_more_is_counted_and_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_bridge(row: Row, question: Question, plan: Plan) -> Row:
        copied = rename_row(row, question, plan)
        return {**copied, "question": "Which town was the father born in?"}

    whole = rename_rows([FAMILY], "hotpotqa", 3).report
    assert (whole.followed_in_source, whole.followed_in_copy, whole.lost) == (1.0, 1.0, ())
    monkeypatch.setattr(renaming, "rename_row", without_bridge)
    spoilt = rename_rows([FAMILY], "hotpotqa", 3).report
    assert (spoilt.followed_in_source, spoilt.followed_in_copy, spoilt.lost) == (1.0, 0.0, ("q1",))


def test_a_misspelt_name_that_was_left_is_a_bridge_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {**HARBOUR, "question": "Who drew Advernture's End?"}

    def left(row: Row, question: Question, plan: Plan) -> Row:
        return {**rename_row(row, question, plan), "question": row["question"]}

    monkeypatch.setattr(renaming, "rename_row", left)
    assert rename_rows([row], "hotpotqa", 3).report.lost == ("q1",)


def test_an_ampersand_of_a_web_page_parts_words_as_any_other() -> None:
    row = hotpot(
        "Who made Tunnels and Trolls?",
        "Ivo Brandl",
        ("Tunnels &amp; Trolls", ["Tunnels & Trolls is a game by Ivo Brandl."]),
        ("Ivo Brandl", ["Ivo Brandl (born 1970) made games of trolls in tunnels."]),
    )
    copied = renamed(row)
    first, last = copied["context"][0][0].split(" &amp; ")
    assert copied["context"][0][1][0].startswith(f"{first} & {last} is a game")
    assert copied["question"] == f"Who made {first} and {last}?"


LETTERS = st.sampled_from("abcdefghijklmnopqrstuvwxyz")
NAMES = st.lists(LETTERS, min_size=4, max_size=8).map(lambda letters: "".join(letters).title())


@settings(max_examples=40)
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


ROW: dict[str, Any] = {
    "_id": "q1",
    "question": "Where does Ludo Hasek live?",
    "answer": "Kremsau",
    "supporting_facts": [["Ludo Hasek", 0]],
    "context": [["Ludo Hasek", ["Ludo Hasek (born 1961) lives in Kremsau.", " He paints."]]],
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([ROW, {**ROW, "_id": "q2"}]), encoding="utf-8")
    return path


def test_a_copy_has_the_sources_format_fields_ids_and_order(source: Path, tmp_path: Path) -> None:
    rename_file(source, tmp_path / "copy.json", 5)
    rows = json.loads((tmp_path / "copy.json").read_text(encoding="utf-8"))
    assert [row["_id"] for row in rows] == ["q1", "q2"]
    assert [list(row) for row in rows] == [list(ROW), list(ROW)]
    assert rows[0]["answer"] != "Kremsau"


def test_json_lines_stay_json_lines(tmp_path: Path) -> None:
    source, out = tmp_path / "dev.jsonl", tmp_path / "copy.jsonl"
    source.write_text(f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n", encoding="utf-8")
    rename_file(source, out, 5)
    assert [json.loads(line)["_id"] for line in out.read_text("utf-8").splitlines()] == ["q1"] * 2


def test_the_same_seed_writes_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for name, seed in (("a.json", 5), ("b.json", 5), ("c.json", 6)):
        rename_file(source, tmp_path / name, seed)
    a, b, c = (file_digest(tmp_path / name) for name in ("a.json", "b.json", "c.json"))
    assert a == b != c


def test_the_record_names_source_seed_and_digests_but_no_text(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.json"
    report = rename_file(source, out, 5)
    known = provenance(out)
    assert known is not None
    assert (known.source, known.seed, known.questions) == ("dev.json", 5, 2)
    assert (known.source_sha256, known.sha256) == (file_digest(source), file_digest(out))
    assert known.derivable_in_copy == report.derivable_in_copy == 1.0
    text = record_path(out).read_text(encoding="utf-8")
    assert "Hasek" not in text and "Kremsau" not in text


def test_a_file_without_a_record_has_no_provenance(source: Path) -> None:
    assert provenance(source) is None


def test_a_copy_that_was_changed_afterwards_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.json"
    rename_file(source, out, 5)
    out.write_text(out.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(DamagedFile, match="make the copy again"):
        provenance(out)


def test_a_damaged_record_is_refused(source: Path) -> None:
    record_path(source).write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be read as the record"):
        provenance(source)


def test_the_mapping_is_written_only_on_request(source: Path, tmp_path: Path) -> None:
    rename_file(source, tmp_path / "copy.json", 5, mapping=tmp_path / "names.csv")
    with (tmp_path / "names.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["old"]: row for row in csv.DictReader(file)}
    assert rows["Ludo Hasek"]["kind"] == "person"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "copy.json",
        "copy.json.rename.json",
        "dev.json",
        "names.csv",
    ]


def test_the_source_is_never_written_to(source: Path) -> None:
    with pytest.raises(InputError, match="is the source itself"):
        rename_file(source, source, 5)


def test_a_file_of_another_dataset_is_refused_and_nothing_is_written(
    source: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="a file of musique"):
        rename_file(source, tmp_path / "copy.json", 5, dataset="musique")
    assert not (tmp_path / "copy.json").exists()


@pytest.mark.data
def test_bamboogle_has_nothing_to_read_the_new_names_from(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Bamboogle has no paragraphs"):
        rename_file(data / "bamboogle" / "test.json", tmp_path / "copy.json", 5)


@pytest.mark.data
@pytest.mark.parametrize(
    ("dataset", "file"),
    [
        ("hotpotqa", "hotpotqa/dev_distractor.json"),
        ("hotpotqa", "hotpotqa/dev_fullwiki.json"),
        ("2wikimultihopqa", "2wikimultihopqa/dev.json"),
        ("musique", "musique/dev.jsonl"),
    ],
)
def test_real_rows_load_as_before_with_their_digits_titles_and_answers(
    dataset: str, file: str, data: Path, tmp_path: Path
) -> None:
    path, out = tmp_path / "source.json", tmp_path / "copy.json"
    path.write_text(json.dumps(read_rows(data / file)[:20]), encoding="utf-8")
    report = rename_file(path, out, 7)
    source, copied = load(dataset, path), load(dataset, out)
    assert report.derivable_in_copy >= report.derivable_in_source > 0.5
    for old, new in zip(source, copied, strict=True):
        assert (old.id, old.type, len(old.gold_titles)) == (new.id, new.type, len(new.gold_titles))
        assert [len(text) for _, text in old.paragraphs] == [len(t) for _, t in new.paragraphs]
    assert _digits(path) == _digits(out)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "hotpotqa/train.json",
        "hotpotqa/dev_distractor.json",
        "hotpotqa/dev_fullwiki.json",
        "2wikimultihopqa/dev.json",
        "musique/train.jsonl",
        "musique/dev.jsonl",
    ],
)
def test_a_real_file_loses_no_answer_and_leaks_no_name(file: str, data: Path) -> None:
    rows = [row for row in read_rows(data / file) if isinstance(row, dict)][:60]
    report = rename_rows(rows, detect(data / file), 7).report
    assert report.leaks == 0
    assert (report.followed_in_copy or 0) >= (report.followed_in_source or 1) - 0.04 > 0.25
    assert "names" not in report.unchanged_answers
    assert report.derivable_in_copy >= report.derivable_in_source


def _digits(path: Path) -> list[str]:
    rows = [row for row in read_rows(path) if isinstance(row, dict)]
    for row in rows:
        for name in ("entity_ids", "evidences_id", "answer_id"):
            row.pop(name, None)
    return re.findall(r"\d+", json.dumps(rows, ensure_ascii=False))
