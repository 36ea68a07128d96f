"""Loading question files: all formats, the hub's too, incomplete rows, wrong files, samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ga_dspy.errors import InputError
from ga_dspy.eval import detect, exact_match, load


def hotpot_row(**changes: Any) -> dict[str, Any]:
    row = {
        "_id": "h1",
        "question": "In which state is the lodge?",
        "answer": "Montana",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [["Lodge", 0], ["State", 1], ["Lodge", 1]],
        "context": [[title, ["One.", " Two."]] for title in ["Lodge", "State", *"ABCDEFGH"]],
    }
    return {**row, **changes}


def wiki_row(**changes: Any) -> dict[str, Any]:
    evidence = {"type": "compositional", "evidences": [["Lodge", "state", "Montana"]]}
    return {**hotpot_row(), **evidence, "answer_id": "Q1", "entity_ids": "Q1_Q2", **changes}


def musique_row(**changes: Any) -> dict[str, Any]:
    row = {
        "id": "2hop__1_2",
        "question": "In which state is the lodge?",
        "answer": "Montana",
        "answer_aliases": ["MT", "Montana"],
        "answerable": True,
        "question_decomposition": [{"id": 1}, {"id": 2}],
        "paragraphs": [
            {"idx": i, "title": f"T{i}", "paragraph_text": "One.", "is_supporting": i in (3, 5)}
            for i in range(20)
        ],
    }
    return {**row, **changes}


def write(path: Path, rows: Sequence[object]) -> Path:
    lines = path.suffix == ".jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows), "utf-8")
    return path


def test_a_hotpotqa_row_gives_question_answer_gold_titles_type_and_level(tmp_path: Path) -> None:
    [example] = load("hotpotqa", write(tmp_path / "dev.json", [hotpot_row()]))
    assert example.inputs().toDict() == {"question": "In which state is the lodge?"}
    assert (example.id, example.answer, example.answers) == ("h1", "Montana", ("Montana",))
    assert example.gold_titles == ("Lodge", "State")
    assert (example.type, example.level, example.answerable) == ("bridge", "hard", True)


@pytest.mark.parametrize(
    ("name", "row"), [("hotpotqa", hotpot_row()), ("2wikimultihopqa", wiki_row())]
)
def test_supporting_facts_and_paragraphs_are_kept_as_the_row_has_them(
    name: str, row: dict[str, Any], tmp_path: Path
) -> None:
    [example] = load(name, write(tmp_path / "dev.json", [row]))
    assert example.supporting_facts == (("Lodge", 0), ("State", 1), ("Lodge", 1))
    assert example.paragraphs[:2] == (("Lodge", ("One.", "Two.")), ("State", ("One.", "Two.")))
    assert len(example.paragraphs) == 10
    assert set(example.inputs().keys()) == {"question"}


def test_a_musique_paragraph_is_one_sentence_and_there_are_no_facts(tmp_path: Path) -> None:
    [example] = load("musique", write(tmp_path / "dev.jsonl", [musique_row()]))
    assert example.paragraphs[3] == ("T3", ("One.",))
    assert len(example.paragraphs) == 20
    assert example.supporting_facts == ()


def test_a_bamboogle_question_has_neither_paragraphs_nor_facts(tmp_path: Path) -> None:
    path = write(tmp_path / "test.json", [{"question": "Who?", "answer": "Ann"}])
    [example] = load("bamboogle", path)
    assert (example.paragraphs, example.supporting_facts) == ((), ())


def test_an_empty_sentence_keeps_its_number_and_an_invalid_paragraph_is_dropped(
    tmp_path: Path,
) -> None:
    row = hotpot_row(context=[["Lodge", ["One.", " ", None, "Four."]], ["State", []], "junk"])
    [example] = load("hotpotqa", write(tmp_path / "dev.json", [row]))
    assert example.paragraphs == (("Lodge", ("One.", "", "", "Four.")),)


@pytest.mark.parametrize("facts", [[["Lodge", 2], ["State", 0]], [["Elsewhere", 7]]])
def test_a_fact_beyond_its_paragraph_or_without_one_is_kept(
    facts: list[Any], tmp_path: Path
) -> None:
    path = write(tmp_path / "dev.json", [hotpot_row(supporting_facts=[*facts, facts[0]])])
    assert load("hotpotqa", path)[0].supporting_facts == tuple(map(tuple, facts))


@pytest.mark.parametrize("number", [None, "0", -1, True, 0.5])
def test_a_fact_without_a_sentence_number_is_malformed_but_names_a_gold_title(
    number: object, tmp_path: Path
) -> None:
    row = hotpot_row(supporting_facts=[["Lodge", number], ["State", 0]])
    [example] = load("hotpotqa", write(tmp_path / "dev.json", [row]))
    assert example.gold_titles == ("Lodge", "State")
    assert example.supporting_facts == (("State", 0),)


def test_a_musique_row_accepts_its_aliases_once_each_and_counts_its_hops(tmp_path: Path) -> None:
    [example] = load("musique", write(tmp_path / "dev.jsonl", [musique_row()]))
    assert example.answers == ("Montana", "MT")
    assert example.gold_titles == ("T3", "T5")
    assert (example.type, example.level) == ("2hop", "")


def test_both_twins_of_musique_full_are_kept_under_different_ids(tmp_path: Path) -> None:
    rows = [musique_row(), musique_row(answerable=False)]
    examples = load("musique", write(tmp_path / "full.jsonl", rows))
    assert [(e.id, e.answerable) for e in examples] == [
        ("2hop__1_2", True),
        ("2hop__1_2#2", False),
    ]


def test_a_2wiki_row_gives_its_gold_triples(tmp_path: Path) -> None:
    [example] = load("2wikimultihopqa", write(tmp_path / "dev.json", [wiki_row()]))
    assert example.evidences == (("Lodge", "state", "Montana"),)
    assert example.type == "compositional"


def test_a_row_without_an_id_gets_one_derived_from_its_text(tmp_path: Path) -> None:
    rows = [{"question": "Who?", "answer": "Ann"}, {"Question": "When?", "Answer": 1984}]
    examples = load("bamboogle", write(tmp_path / "test.json", rows))
    again = load("bamboogle", write(tmp_path / "again.json", [*rows[::-1], rows[0]]))
    who, when = (example.id for example in examples)
    assert [example.id for example in again] == [when, who, f"{who}#2"]
    assert [example.answers for example in examples] == [("Ann",), ("1984",)]


def test_a_limit_takes_the_first_questions_and_ignores_later_rows(tmp_path: Path) -> None:
    rows = [hotpot_row(_id="a"), hotpot_row(_id="b"), hotpot_row(question=None)]
    assert [e.id for e in load("hotpotqa", write(tmp_path / "dev.json", rows), limit=2)] == [
        "a",
        "b",
    ]


def test_incomplete_rows_keep_the_fields_that_they_have(tmp_path: Path) -> None:
    rows = [
        hotpot_row(),
        hotpot_row(_id="b", context=[]),
        hotpot_row(_id="c", context=[["Lodge", ["One."]], ["State", ["Two."]]]),
        hotpot_row(_id="d", supporting_facts=None),
        hotpot_row(_id="e", context=[["Lodge", []], "junk", *hotpot_row()["context"]]),
        hotpot_row(_id="f", supporting_facts=[["Elsewhere", 0], ["Lodge"]]),
        {"question": "Who?", "answer": "Ann"},
    ]
    examples = load("hotpotqa", write(tmp_path / "dev.json", rows))
    assert [len(example.paragraphs) for example in examples] == [10, 0, 2, 10, 10, 10, 0]
    assert [len(example.gold_titles) for example in examples] == [2, 2, 2, 0, 2, 1, 0]
    assert examples[6].id.startswith("hotpotqa-")


def test_rows_that_cannot_be_asked_are_listed_by_position(tmp_path: Path) -> None:
    rows = [hotpot_row(answer=" "), hotpot_row(), "junk", hotpot_row(question=None)]
    path = write(tmp_path / "dev.json", rows)
    reasons = r"row 1 \(no answer\), row 3 \(not an object\), row 4 \(no question\)"
    with pytest.raises(InputError, match=f"3 of 4 rows .* {reasons}"):
        load("hotpotqa", path)


def test_repeated_ids_are_made_unique_even_next_to_similar_ids(tmp_path: Path) -> None:
    rows = [hotpot_row(_id=name) for name in ("x", "x#2", "x", "x")]
    examples = load("hotpotqa", write(tmp_path / "dev.json", rows))
    assert [e.id for e in examples] == ["x", "x#2", "x#3", "x#4"]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("hotpotqa", hotpot_row()),
        ("2wikimultihopqa", wiki_row()),
        ("musique", musique_row()),
        ("bamboogle", {"question": "Who?", "answer": "Ann"}),
    ],
)
def test_the_dataset_is_detected_from_the_fields(name: str, row: object, tmp_path: Path) -> None:
    assert detect(write(tmp_path / "a.json", ["junk", row])) == name
    assert detect(write(tmp_path / "b.jsonl", [row])) == name


def test_lines_are_read_from_a_json_file_and_an_array_from_a_jsonl_file(tmp_path: Path) -> None:
    lines = tmp_path / "lines.json"
    lines.write_text(f"\ufeff{json.dumps(hotpot_row())}\n\n", "utf-8")
    array = tmp_path / "array.jsonl"
    array.write_text(json.dumps([hotpot_row()]), "utf-8")
    assert load("hotpotqa", lines)[0].id == load("hotpotqa", array)[0].id == "h1"


def test_a_line_separator_inside_a_string_does_not_end_the_row(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    row = musique_row(question="one\u2028two?")
    path.write_text(json.dumps(row, ensure_ascii=False), "utf-8")
    assert load("musique", path)[0].question == "one\u2028two?"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "has no rows"),
        (b"[]", "has no rows"),
        (b'[{"question": "cut', "not valid JSON"),
        (b'{"question": "q", "answer": "a"}\nnot json', "line 2 is not valid JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b'[{"title": "Lodge", "text": "One."}]', "no row has a field 'question'"),
        (b'["a", "b"]', "no row has a field 'question'"),
        (b'[{"question": "Who?", "context": []}]', "1 of 1 rows cannot be asked"),
    ],
)
def test_a_wrong_file_is_one_clear_error(content: bytes, found: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=found):
        load("hotpotqa", path)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load("hotpotqa", tmp_path / "none.json")


def test_a_file_of_another_dataset_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", [musique_row()])
    with pytest.raises(InputError, match=r"fields of musique.*load it as 'musique'"):
        load("hotpotqa", path)


def test_2wiki_questions_without_the_optional_fields_load_as_2wiki(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.json", [hotpot_row(type="comparison")])
    assert load("2wikimultihopqa", path)[0].type == "comparison"


def test_an_unknown_dataset_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one of hotpotqa, musique"):
        load("squad", tmp_path / "x.json")


def hub_layout(row: dict[str, Any]) -> dict[str, Any]:
    titles, sentences = zip(*row["context"], strict=True)
    facts, numbers = zip(*row["supporting_facts"], strict=True)
    layout = {key: value for key, value in row.items() if key != "_id"}
    layout["id"] = row["_id"]
    layout["context"] = {"title": list(titles), "sentences": list(sentences)}
    layout["supporting_facts"] = {"title": list(facts), "sent_id": list(numbers)}
    if "evidences" in row:
        head, relation, tail = zip(*row["evidences"], strict=True)
        columns = {"fact": list(head), "relation": list(relation), "entity": list(tail)}
        layout["evidences"] = columns
    return layout


@pytest.mark.parametrize(
    ("name", "row"), [("hotpotqa", hotpot_row()), ("2wikimultihopqa", wiki_row())]
)
def test_rows_in_the_hubs_layout_give_the_same_questions_as_the_official_file(
    name: str, row: dict[str, Any], tmp_path: Path
) -> None:
    hub = load(name, write(tmp_path / "hub.jsonl", [hub_layout(row)]))
    assert hub == load(name, write(tmp_path / "dev.json", [row]))


QA = [
    {"question": "Who built it?", "answer": "Ann Fox"},
    {"id": "q2", "question": "When?", "answers": ["1901", "in 1901"], "type": "year"},
]


def test_custom_questions_need_a_question_and_an_answer(tmp_path: Path) -> None:
    first, second = load("qa", write(tmp_path / "mine.jsonl", QA))
    assert (first.answers, first.gold_titles) == (("Ann Fox",), ())
    assert (second.id, second.answers, second.type) == ("q2", ("1901", "in 1901"), "year")
    (tmp_path / "mine.csv").write_text(
        'id,question,answers\n1,Who built it?,Ann Fox\n2,"When, then?",1901|in 1901\n'
    )
    ours = load("qa", tmp_path / "mine.csv")
    assert [(e.question, e.answers) for e in ours] == [
        ("Who built it?", ("Ann Fox",)), ("When, then?", ("1901", "in 1901"))
    ]  # fmt: skip


def test_an_unclosed_quote_in_a_csv_is_reported_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text('question,answer\n"Who?,Ann\nWhere?,There\n')
    with pytest.raises(InputError, match="not valid CSV"):
        load("qa", tmp_path / "mine.csv")


def test_a_custom_row_without_an_answer_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("question,answer\nWho?,Ann\nWhen?,\n")
    with pytest.raises(InputError, match=r"row 2 \(no answer\)"):
        load("qa", tmp_path / "mine.csv")


def test_a_file_saved_in_the_hubs_layout_can_be_loaded(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", [hub_layout(hotpot_row())])
    assert detect(path) == "hotpotqa"
    assert load("hotpotqa", path)[0].gold_titles == ("Lodge", "State")


@pytest.mark.data
@pytest.mark.parametrize(
    ("dataset", "file", "rows"),
    [
        ("hotpotqa", "hotpotqa/train.json", 200),
        ("hotpotqa", "hotpotqa/dev_distractor.json", 171),
        ("hotpotqa", "hotpotqa/dev_fullwiki.json", 457),
        ("musique", "musique/train.jsonl", 100),
        ("musique", "musique/dev.jsonl", 100),
        ("2wikimultihopqa", "2wikimultihopqa/dev.json", 250),
        ("bamboogle", "bamboogle/test.json", 125),
    ],
)
def test_every_row_of_a_real_file_becomes_a_question(
    dataset: str, file: str, rows: int, data: Path
) -> None:
    path = data / file
    examples = load(dataset, path)
    assert detect(path) == dataset
    assert len({example.id for example in examples}) == len(examples) == rows
    assert all(exact_match(example.answer, example.answers) == 1.0 for example in examples)
    named = dataset != "bamboogle"
    assert all(bool(example.gold_titles) == named for example in examples)


@pytest.mark.data
def test_a_passage_corpus_is_not_mistaken_for_a_question_file(data: Path) -> None:
    with pytest.raises(InputError, match="no row has a field 'question'"):
        detect(data / "2wikimultihopqa" / "corpus.json")
