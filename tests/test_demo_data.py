"""The demonstration corpus and its questions hold what they promise."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import TypedDict, get_args

import pytest
from record_demo import record

from ga_dspy import GraphAnchor, Index, VanillaRAG, extractive_lm
from ga_dspy.artifact import verify
from ga_dspy.cli.ask import replay
from ga_dspy.cli.console import Console
from ga_dspy.demo import DEMO_QUESTION, RECORDED, Split, corpus, questions
from ga_dspy.errors import InputError
from ga_dspy.eval import load

ROOT = Path(__file__).resolve().parents[1]
PUBLIC_DATA = ROOT.parent / "shared" / "data"

SPLITS: tuple[Split, ...] = ("train", "dev")


class Row(TypedDict):
    """One question in HotpotQA's official format."""

    _id: str
    question: str
    answer: str
    type: str
    level: str
    supporting_facts: list[tuple[str, int]]
    context: list[tuple[str, list[str]]]


def rows(split: Split) -> list[Row]:
    found: list[Row] = json.loads(questions(split).read_text(encoding="utf-8"))
    return found


def gold_titles(row: Row) -> list[str]:
    """Titles of the gold passages, in the order in which the chain visits them."""
    return list(dict.fromkeys(title for title, _ in row["supporting_facts"]))


def both_splits() -> list[Row]:
    return rows("train") + rows("dev")


def every_row() -> list[Row]:
    return [row for split in get_args(Split) for row in rows(split)]


def of_kind(kind: str) -> list[Row]:
    return [row for row in every_row() if row["type"] == kind]


def test_the_corpus_has_passages_with_unique_ids_and_titles() -> None:
    passages = corpus()

    assert len(passages) == 122
    assert len({passage.id for passage in passages}) == len(passages)
    assert len({passage.title for passage in passages}) == len(passages)


def test_a_passage_is_one_line_of_40_to_80_words() -> None:
    for passage in corpus():
        assert 40 <= len(passage.text.split()) <= 80, passage.title
        assert passage.text == " ".join(passage.text.split()), passage.title


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_has_thirty_questions_of_which_seventy_percent_are_bridges(split: Split) -> None:
    assert Counter(row["type"] for row in rows(split)) == {"bridge": 21, "comparison": 9}


@pytest.mark.parametrize("split", SPLITS)
def test_yes_and_no_are_balanced(split: Split) -> None:
    answers = Counter(row["answer"] for row in rows(split))

    assert answers["yes"] == answers["no"] == 2


def test_train_and_dev_share_no_id_no_question_and_no_chain() -> None:
    train, dev = rows("train"), rows("dev")

    assert not {row["_id"] for row in train} & {row["_id"] for row in dev}
    assert not {row["question"].lower() for row in train} & {row["question"].lower() for row in dev}
    assert not {frozenset(gold_titles(r)) for r in train} & {frozenset(gold_titles(r)) for r in dev}
    assert len({row["_id"] for row in both_splits()}) == 60
    assert len({row["question"].lower() for row in both_splits()}) == 60


def test_only_yes_and_no_are_answers_in_both_splits() -> None:
    train, dev = ({row["answer"].lower() for row in rows(split)} for split in SPLITS)

    assert train & dev == {"yes", "no"}


def test_a_context_is_ten_passages_of_the_corpus_word_for_word() -> None:
    stored = {passage.title: passage.text for passage in corpus()}

    for row in every_row():
        shown = {title: "".join(sentences) for title, sentences in row["context"]}
        assert len(row["context"]) == len(shown) == 10, row["_id"]
        assert shown.items() <= stored.items(), row["_id"]


def test_a_context_passage_has_two_to_four_whole_sentences() -> None:
    for row in every_row():
        for title, (first, *others) in row["context"]:
            assert 1 <= len(others) <= 3, title
            assert first[0] != " ", title
            assert all(sentence.startswith(" ") for sentence in others), title
            assert all(sentence.endswith(".") for sentence in (first, *others)), title


def test_every_supporting_fact_is_a_sentence_of_the_context() -> None:
    for row in every_row():
        shown = dict(row["context"])
        assert len(gold_titles(row)) in (2, 3, 4), row["_id"]
        assert len(set(map(tuple, row["supporting_facts"]))) == len(row["supporting_facts"])
        for title, index in row["supporting_facts"]:
            assert 0 <= index < len(shown[title]), row["_id"]


def test_a_bridge_is_answered_by_a_supporting_fact_of_its_last_passage_and_not_before() -> None:
    for row in of_kind("bridge"):
        shown, (*before, last) = dict(row["context"]), gold_titles(row)
        facts = [shown[title][index] for title, index in row["supporting_facts"] if title == last]
        assert any(row["answer"] in fact for fact in facts), row["_id"]
        assert not any(row["answer"] in "".join(shown[title]) for title in before), row["_id"]


def test_a_bridge_question_names_neither_its_answer_nor_a_later_passage_of_its_chain() -> None:
    for row in of_kind("bridge"):
        for name in (row["answer"], *gold_titles(row)[1:]):
            assert name.lower() not in row["question"].lower(), row["_id"]


def test_a_comparison_is_answered_by_yes_no_or_one_of_its_two_titles() -> None:
    for row in of_kind("comparison"):
        titles = {title.split(" (")[0].lower() for title in gold_titles(row)}
        assert len(titles) == 2, row["_id"]
        assert row["answer"].lower() in {"yes", "no"} | titles, row["_id"]


def test_a_multi_hop_question_needs_three_or_four_passages_on_a_unique_chain() -> None:
    hops, others = rows("hops"), {frozenset(gold_titles(row)) for row in both_splits()}

    assert len(hops) == len({frozenset(gold_titles(row)) for row in hops} - others) == 10
    assert {len(gold_titles(row)) for row in hops} == {3, 4}


def test_searching_a_multi_hop_question_does_not_find_its_answer_passage() -> None:
    index = Index.from_passages(corpus())

    for row in rows("hops"):
        found = {passage.title for passage in index(row["question"], GraphAnchor(index).k)}
        assert gold_titles(row)[0] in found, row["_id"]
        assert gold_titles(row)[-1] not in found, row["_id"]


def test_the_demo_question_is_the_first_multi_hop_question_with_four_passages() -> None:
    first = rows("hops")[0]

    assert first["question"] == DEMO_QUESTION
    assert len(gold_titles(first)) == 4


def test_an_unknown_split_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="'test'"):
        questions("test")  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.data
def test_no_question_is_taken_from_a_public_data_set() -> None:
    if not PUBLIC_DATA.is_dir():
        pytest.skip(f"the public data sets are not at {PUBLIC_DATA}")
    public = "\n".join(
        path.read_text(encoding="utf-8").lower() for path in sorted(PUBLIC_DATA.rglob("*.json*"))
    )

    assert public
    for row in every_row():
        assert row["question"].lower() not in public
        assert json.dumps(row["question"].lower())[1:-1] not in public


@pytest.mark.data
def test_no_file_of_the_project_quotes_a_question_of_a_public_data_set() -> None:
    if not PUBLIC_DATA.is_dir():
        pytest.skip(f"the public data sets are not at {PUBLIC_DATA}")
    public = "\n".join(path.read_text("utf-8") for path in PUBLIC_DATA.rglob("*.json*"))
    quoted = re.findall(r'"[Qq]uestion": ("(?:[^"\\]|\\.)*")', public)
    asked = {json.loads(text).strip() for text in quoted if ">>" not in text}
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)

    assert len(asked) > 1000 and listed.stdout
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and b"\0" not in (content := (ROOT / name).read_bytes()):
            text = content.decode("utf-8", "replace")
            plain = re.sub(r'\\(?=["_*])|"(?=")', "", text)
            assert not [question for question in asked if question in plain], name


@pytest.mark.parametrize(
    ("name", "program"), [("vanilla-rag", VanillaRAG), ("graph-anchor", GraphAnchor)]
)
def test_recorded_replies_are_replayed_with_the_same_answers_and_calls(
    name: str, program: type[GraphAnchor] | type[VanillaRAG], tmp_path: Path
) -> None:
    index, asked = Index.build(corpus(), tmp_path / "index"), load("hotpotqa", questions("dev"))[:3]
    file = tmp_path / f"{name}.jsonl"
    answers = record(file, program(index), extractive_lm(), asked)
    calls = file.read_text("utf-8").splitlines()

    report = replay(Console(), tmp_path, name, answers, index, tmp_path / "runs")
    assert any(answers.values()) and sum(one.calls or 0 for one in report.results) == len(calls)
    assert name == "vanilla-rag" or len(calls) > len(asked)

    other = {"inputs": {"question": "Who?", "passages": ""}, "outputs": {"answer": "A"}}
    file.write_text("\n".join([*calls, json.dumps(other)]))
    with pytest.raises(InputError, match="0 prompts not recorded, 1 record not used"):
        replay(Console(), tmp_path, name, answers, index, tmp_path / "more")
    file.write_text("\n".join(calls[:-1]))
    with pytest.raises(InputError, match=r"[1-9] prompts? not recorded, 0 records"):
        replay(Console(), tmp_path, name, answers, index, tmp_path / "fewer")
    file.write_text("\n".join(calls))
    with pytest.raises(InputError, match="1 answer of 3 changed, 0 prompts"):
        replay(Console(), tmp_path, name, {**answers, asked[0].id: "?"}, index, tmp_path / "last")


ABOUT = RECORDED / "about.json"


@pytest.mark.skipif(not ABOUT.is_file(), reason="no LM's replies are recorded yet")
def test_the_demo_recordings_match_the_current_programs(tmp_path: Path) -> None:
    index = Index.build(corpus(), tmp_path / "index")
    for name, answers in json.loads(ABOUT.read_text("utf-8"))["answers"].items():
        replay(Console(), RECORDED, name, answers, index, tmp_path / name)
        assert name.endswith("-compiled") == (RECORDED / name).is_dir()
    for manifest in RECORDED.glob("*/manifest.json"):
        assert verify(manifest.parent) == ""
    assert sum(path.stat().st_size for path in RECORDED.rglob("*.*")) < 400_000
