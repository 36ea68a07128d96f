"""Reports: means with failures as 0, breakdowns, tests of two runs, measures worked out by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy.errors import InputError, RunAborted
from ga_dspy.eval import Protocol, Report, Result, paired_test
from ga_dspy.eval.report import (
    by_step,
    failure_reason,
    faithful_share,
    grounded_share,
    judgements,
    usage_by_step,
)
from ga_dspy.eval.result import StepTrace
from ga_dspy.eval.statistics import bootstrap_interval, paired_permutation
from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation
from ga_dspy.grounding import Dropped
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink, Step, Usage

PROTOCOL = Protocol.of([], dataset="made", source="made", program="p", lm="none")


def result(number: int, answer: str | None = "yes", **more: Any) -> Result:
    usual: dict[str, Any] = {
        "id": f"q{number}",
        "question": f"{number}?",
        "type": "bridge",
        "gold": ("yes",),
        "gold_titles": (),
        "answer": answer,
        "steps": 1,
        "calls": 2,
        "tokens": 30,
    }
    return Result(**{**usual, **more})


def failure(number: int, **more: Any) -> Result:
    untold = {"steps": None, "calls": None, "tokens": None}
    return result(number, None, **{**untold, "error": "ValueError: x", **more})


def test_the_summary_has_exactly_the_stated_keys(tmp_path: Path) -> None:
    report(result(1)).write(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert list(summary) == [
        *("dataset", "program", "lm", "n", "f1", "em", "acc", "support_recall", "failures"),
        "degraded",
        *("f1_official", "f1_squad", "support_precision", "fact_em", "fact_f1", "joint_em"),
        *("joint_f1", "graph_precision", "graph_recall", "chain_precision", "chain_recall"),
        *(
            "supported",
            "chained",
            "grounded_share",
            "faithful_share",
            "sufficiency",
            "by_step",
        ),
        *("steps_mean", "lm_calls_mean", "tokens_mean", "usage", "seconds"),
        *("ci95", "by_type", "failed", "degraded_ids", "protocol", "protocol_hash"),
    ]
    assert summary["protocol_hash"] == PROTOCOL.hash
    assert summary["protocol"] == PROTOCOL.model_dump(mode="json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["predictions.jsonl", "summary.json"]


def test_scores_are_percent_over_all_questions_with_two_decimals() -> None:
    summary = report(result(1), result(2, "no"), failure(3)).summary()
    assert (summary["f1"], summary["em"], summary["acc"]) == (33.33, 33.33, 33.33)
    assert (summary["n"], summary["failures"]) == (3, 1)
    assert (summary["steps_mean"], summary["lm_calls_mean"], summary["tokens_mean"]) == (
        0.67,
        1.33,
        20.0,
    )


def test_a_program_that_reports_no_counts_has_no_mean_counts() -> None:
    summary = report(result(1, steps=None, calls=None), failure(2)).summary()
    assert (summary["steps_mean"], summary["lm_calls_mean"]) == (None, None)


def test_support_recall_is_over_the_questions_that_name_gold_titles() -> None:
    half = result(
        1,
        gold_titles=("A", "B"),
        passages=(Passage(id="1", title="A", text=""), Passage(id="2", title="C", text="")),
    )
    assert report(half, result(2), failure(3, gold_titles=("A",))).support_recall == 25.0
    assert report(result(2)).support_recall is None


def test_scores_are_broken_down_by_type() -> None:
    made = report(
        result(1, steps=10),
        result(2, "no", type="comparison", steps=2),
        result(3, type="", steps=2),
        failure(4, type="comparison"),
    )
    by_type = {name: (row["n"], row["f1"]) for name, row in made.by_type().items()}
    assert by_type == {"(none)": (1, 100.0), "bridge": (1, 100.0), "comparison": (2, 0.0)}


def test_the_interval_contains_the_mean_and_is_deterministic() -> None:
    made = report(*(result(number, "yes" if number % 3 else "no") for number in range(60)))
    low, high = made.ci95
    assert low < made.f1 < high
    assert (low, high) == made.ci95
    assert high - low == pytest.approx(2 * 1.96 * 100 * (2 / 9 / 60) ** 0.5, rel=0.1)


def test_the_interval_of_equal_scores_is_a_point() -> None:
    assert bootstrap_interval([1.0, 1.0]) == (1.0, 1.0)


def test_two_runs_are_compared_over_the_questions_they_share() -> None:
    a = report(*(result(number) for number in range(10)), result(99, "no"))
    b = report(*(result(number, "no") for number in range(10)), result(98))
    paired = paired_test(a, b)
    assert (paired.n, paired.difference) == (10, 100.0)
    # Ten pairs, each swapped or not: 2 of the 1,024 ways are as extreme.
    assert paired.p_value == pytest.approx(2 / 2**10)


def test_a_run_does_not_differ_from_itself() -> None:
    a = report(*(result(number, "yes" if number % 2 else "no") for number in range(40)))
    assert paired_test(a, a, "em") == (40, 0.0, 1.0)


def test_the_test_is_deterministic_and_detects_a_difference_in_many_questions() -> None:
    draw = random.Random(5)
    first = [float(draw.random() < 0.6) for _ in range(300)]
    second = [float(draw.random() < 0.4) for _ in range(300)]
    paired = paired_permutation(first, second)
    assert paired.p_value < 0.05
    assert paired == paired_permutation(first, second)


def test_runs_that_share_no_question_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="share no question"):
        paired_test(report(result(1)), report(result(2)))


def test_a_failed_write_leaves_the_old_summary(tmp_path: Path) -> None:
    report(result(1)).write(tmp_path)
    before = (tmp_path / "summary.json").read_bytes()
    (tmp_path / ".summary.json.partial").mkdir()
    with pytest.raises(RunAborted, match="partial"):
        report(result(1, "no")).write(tmp_path)
    assert (tmp_path / "summary.json").read_bytes() == before


LODGE = Passage(id="a", title="Red Lodge", text="Red Lodge is a city in Montana.")
MONTANA = Passage(id="b", title="Montana", text="Its capital is Helena.")
BATH = Passage(id="c", title="Bath", text="Bath lies on the Avon.")
GRAPH = KnowledgeGraph().merge(
    GraphUpdate(
        entities=(
            Entity(name="Red Lodge", evidence=(Evidence(passage="a", start=0, end=9),)),
            Entity(name="Montana", evidence=(Evidence(passage="a", start=33, end=40),)),
        ),
        relations=(
            Relation(
                head="Red Lodge", relation="city in", tail="Montana",
                evidence=(Evidence(passage="a", start=10, end=41),),
            ),
        ),
    )
)  # fmt: skip
EXAMPLE = dspy.Example(
    id="q1",
    question="What is the capital of the state of Red Lodge?",
    answer="Helena",
    answers=("Helena",),
    gold_titles=("Red Lodge", "Montana"),
    supporting_facts=(("Red Lodge", 0), ("Montana", 0)),
    paragraphs=(
        ("Red Lodge", ("Red Lodge is a city in Montana.",)),
        ("Montana", ("Its capital is Helena.", "It is large.")),
    ),
    evidences=(("Red Lodge", "located in", "Montana"), ("Montana", "capital", "Helena")),
).with_inputs("question")


def prediction(**changes: Any) -> dspy.Prediction:
    steps = (
        Step(number=1, query="q", retrieved=("a", "c"), passage_ids=("a", "c"),
             entities=GRAPH.entities, relations=GRAPH.relations, judgement="insufficient",
             graph=GRAPH),
        Step(number=2, query="Montana", retrieved=("a", "b"), passage_ids=("b",),
             judgement="sufficient", graph=GRAPH),
    )  # fmt: skip
    link = EvidenceLink(
        head="Red Lodge", relation="city in", tail="Montana", passage_id="a", title="Red Lodge",
        quote="Red Lodge is a city in Montana.",
    )  # fmt: skip
    usage = {
        "read": Usage(calls=2, prompt_tokens=100, completion_tokens=20, cost=0.2),
        "answer": Usage(calls=1, cached=1, prompt_tokens=50, completion_tokens=5, cost=0.1),
    }
    return dspy.Prediction(
        **{
            "answer": "Helena", "steps": steps, "passages": (LODGE, BATH, MONTANA),
            "graph": GRAPH, "evidence": (link,), "supported": "chained", "usage": usage,
            "calls": 3, "tokens": 175, **changes,
        }
    )  # fmt: skip


def failed(number: int = 2) -> Result:
    return Result.from_failure(EXAMPLE.copy(id=f"q{number}"), ValueError("down"))


def report(*results: Result, **protocol: Any) -> Report:
    known = Protocol.of([], dataset="made", source="made", program="p", lm="none", **protocol)
    return Report(known, results)


def test_questions_that_ended_early_keep_their_last_state() -> None:
    short = Result.from_prediction(
        EXAMPLE.copy(id="q3"), prediction(steps=prediction().steps[:1], passages=(LODGE, BATH))
    )
    results = [Result.from_prediction(EXAMPLE, prediction()), short, failed()]
    first, second = by_step(results)
    # Helena stands in the passage "Montana" alone, which one of three questions read at step 2.
    assert (first["reached"], first["hit"], first["overlap"]) == (2, 0.0, 0.0)
    assert second["reached"] == 1
    assert second["hit"] == pytest.approx(100 / 3)
    assert second["overlap"] == 50.0
    # The graph holds two entities and one relation in two of three questions.
    assert [second["entities"], second["relations"]] == pytest.approx([4 / 3, 2 / 3])


def test_a_yes_or_no_question_counts_as_neither_hit_nor_miss() -> None:
    closed = EXAMPLE.copy(answer="yes", answers=("yes",))
    results = [Result.from_prediction(closed, prediction()), Result.from_failure(closed, OSError())]
    assert [point["hit"] for point in by_step(results)] == [None, None]


def test_sufficient_is_checked_against_the_passages_read_so_far() -> None:
    right = Result.from_prediction(EXAMPLE, prediction())
    early = Result.from_prediction(EXAMPLE, prediction(passages=(LODGE, BATH)))
    judged = judgements([right, early, failed()])
    # Two first steps were rightly insufficient; one second step was right, the other too early.
    assert (judged["precision"], judged["recall"], judged["accuracy"]) == (50.0, 100.0, 75.0)
    assert (judged["stopped_early"], judged["questions"]) == (50.0, 2)


def test_supporting_facts_and_triples_are_scored_from_the_evidence_and_the_graph() -> None:
    result = Result.from_prediction(EXAMPLE, prediction())
    assert result.facts == (("Red Lodge", 0),)
    alone = report(result).summary()
    assert (alone["fact_em"], alone["fact_f1"]) == (0.0, 66.67)
    for part in ("graph", "chain"):
        assert (alone[f"{part}_precision"], alone[f"{part}_recall"]) == (100.0, 50.0)
    measured = report(result, failed()).summary()
    assert (measured["fact_f1"], measured["graph_recall"]) == (33.33, 25.0)
    # The answer is right and half of the facts are told: joint F1 is 2/3; the failure counts 0.
    assert (measured["joint_f1"], measured["joint_em"]) == (33.33, 0.0)
    assert (measured["support_precision"], measured["supported"]) == (33.33, 50.0)


def test_chained_answers_are_also_counted_as_supported() -> None:
    said = ("chained", "quoted", None, True)
    results = [Result.from_prediction(EXAMPLE, prediction(supported=how)) for how in said]
    assert [result.supported for result in results] == ["chained", "quoted", False, True]
    measured = report(*results).measures()
    assert (measured["supported"], measured["chained"]) == (75.0, 25.0)


def test_support_is_none_if_the_program_does_not_report_it() -> None:
    told = {k: v for k, v in prediction().items() if k != "supported"}
    measured = report(Result.from_prediction(EXAMPLE, dspy.Prediction(**told))).measures()
    assert (measured["supported"], measured["chained"]) == (None, None)


def test_a_failed_question_lowers_every_mean_and_is_listed() -> None:
    good = Result.from_prediction(EXAMPLE, prediction())
    alone, with_failure = report(good).summary(), report(good, failed()).summary()
    assert (alone["f1"], with_failure["f1"]) == (100.0, 50.0)
    assert (alone["support_recall"], with_failure["support_recall"]) == (100.0, 50.0)
    assert with_failure["failed"] == [{"id": "q2", "error": "ValueError: down"}]


def test_the_ledger_sums_calls_and_tokens_per_program_step() -> None:
    result = Result.from_prediction(EXAMPLE, prediction())
    ledger = usage_by_step([result, result, failed()])
    assert ledger["read"] == Usage(calls=4, prompt_tokens=200, completion_tokens=40, cost=0.4)
    assert (ledger["answer"].cached, ledger["answer"].tokens) == (2, 110)
    assert result.cost.tokens == result.tokens


def test_the_grounded_share_is_a_fraction_of_the_proposed_items() -> None:
    proposed = StepTrace(query="q", gained=3, dropped=1)
    result = Result.from_prediction(EXAMPLE, prediction()).model_copy(update={"trace": (proposed,)})
    assert grounded_share([result]) == 75.0
    assert grounded_share([failed()]) is None


def test_dropped_items_are_stored_cut_short_with_their_kind_and_reason() -> None:
    item = Dropped(kind="relation", item="\ud800" + 400 * "x", cause="hedged", reason=400 * "y")
    step = Step(number=1, query="q", dropped=25 * (item,))
    (trace,) = Result.from_prediction(EXAMPLE, prediction(steps=(step,))).trace
    assert (trace.dropped, len(trace.dropped_items)) == (25, 20)
    stored = trace.dropped_items[0]
    assert (stored.kind, stored.cause) == ("relation", "hedged")
    assert (len(stored.item), len(stored.reason)) == (300, 300)
    assert stored.item.encode()


def test_a_cited_edge_is_faithful_if_the_graph_has_it_and_the_passage_has_its_quote() -> None:
    (link,) = prediction().evidence
    faults = (
        link.model_copy(update={"tail": "Helena"}),
        link.model_copy(update={"quote": "Red Lodge is a town in Montana."}),
        link.model_copy(update={"passage_id": "c"}),
        EvidenceLink(passage_id="a", title="Red Lodge", quote="cites no edge"),
    )
    result = Result.from_prediction(EXAMPLE, prediction(evidence=(link, *faults)))
    assert result.cited == (4, 1)
    assert faithful_share([result, failed()]) == 25.0
    assert faithful_share([failed()]) is None


def test_a_quote_from_a_passage_that_only_the_graph_cites_is_checked() -> None:
    unread = prediction(passages=(BATH, MONTANA))
    assert Result.from_prediction(EXAMPLE, unread).cited == (1, 0)
    unread.quoted = (LODGE,)
    assert Result.from_prediction(EXAMPLE, unread).cited == (1, 1)


def test_the_protocol_decides_which_f1_is_the_score() -> None:
    closed = EXAMPLE.copy(answer="yes", answers=("yes",))
    hedging = Result.from_prediction(closed, prediction(answer="yes it is"))
    official, squad = report(hedging), report(hedging, score="squad")
    assert (official.f1, squad.f1) == (0.0, 50.0)
    assert (official.summary()["f1_squad"], squad.summary()["f1_official"]) == (50.0, 0.0)
    assert paired_test(squad, squad).difference == 0.0


def test_protocols_of_two_programs_differ_in_hash_and_share_their_basis() -> None:
    one, other = report().protocol, report(k=3).protocol
    assert one.hash != other.hash and len(one.hash) == 12
    assert one.hash == report().protocol.hash
    assert one.basis == other.basis
    assert report(score="squad").protocol.basis != one.basis
    assert report(corpus="abc").protocol.basis != one.basis


def test_a_result_survives_a_journal_round_trip() -> None:
    result = Result.from_prediction(EXAMPLE, prediction())
    assert Result.model_validate_json(result.model_dump_json()) == result
    assert result.trace[0].graph == "- Red Lodge -> city in -> Montana [1]"


READ = "Read (by all) [1]\nRelations:\n1. Lea -> born in -> Bern [1]"
MORE, ENOUGH = {"judgement": "insufficient"}, {"judgement": "sufficient"}


def wrong(*steps: dict[str, Any], **more: Any) -> Result:
    """The result of a question that needs pages A and B and was not answered with "Bern"."""
    trace = tuple(StepTrace(query="?", **step) for step in steps)
    titles = [title for step in trace for title in step.titles]
    passages = tuple(Passage(id=t, title=t, text=f"{t} is of Bern.") for t in titles)
    known = {"gold": ("Bern",), "gold_titles": ("A", "B"), "passages": passages, "trace": trace}
    return result(1, **{"answer": "Rome", **known, **more})


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("failed", failure(1)),
        (None, wrong(answer="In Bern.")),
        (None, result(1, "Yes.")),
        ("wrong answer", result(1, "yes and no", passages=(Passage(id="1", text="No."),))),
        ("not retrieved", wrong({"titles": ("A",), **MORE})),
        ("judged too early", wrong({"titles": ("A",), **ENOUGH})),
        ("not in the graph", wrong({"titles": ("A", "B"), "graph": "- Rome [1]", **ENOUGH})),
        ("judged too late", wrong({"titles": ("A", "B"), "graph": READ, **MORE}, {"graph": READ})),
        ("wrong answer", wrong({"titles": ("A",), **MORE}, {"titles": ("B",), **ENOUGH})),
        ("wrong answer", wrong({"titles": ("A", "B"), "graph": READ, **MORE})),
        ("not retrieved", wrong({"titles": ("A",)}, gold_titles=(), gold=("Oslo",))),
        ("wrong answer", wrong({"titles": ("A",)}, gold_titles=())),
    ],
)
def test_a_wrong_answer_is_classified_by_the_first_cause_that_applies(
    kind: str | None, asked: Result
) -> None:
    assert failure_reason(asked) == kind
