"""Replays: what recorded replies would cost today, and whether all of them are parsed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_replies import (
    Recording,
    cost_now,
    cost_then,
    read_back,
    read_recordings,
    replay,
)

from ga_dspy.errors import InputError

PROMPT = """[system]
Extend a graph.

[user]
[[ ## question ## ]]
Which river flows past Tavira?

[[ ## tried ## ]]
1. Which river flows past Tavira? => passages 1,2

[[ ## graph ## ]]
(empty)

[[ ## passages ## ]]
[1] Tavira
The river Gilão flows through Tavira.

[2] Faro
Faro is a city.

[[ ## feedback ## ]]


Respond with the corresponding output fields."""
READ = """[[ ## additions ## ]]
Relations:
1. Gilão -> flows through -> Tavira [1]

[[ ## reasoning ## ]]
Tavira lies on the Gilão.

[[ ## judgement ## ]]
sufficient

[[ ## candidate ## ]]
Gilão

[[ ## next_query ## ]]


[[ ## completed ## ]]"""
ANSWER = """[[ ## verdict ## ]]
answered

[[ ## cited ## ]]
1

[[ ## answer ## ]]
Gilão

[[ ## completed ## ]]"""


@pytest.fixture
def recordings(tmp_path: Path) -> list[Recording]:
    rows = [{"prompt": PROMPT, "reply": READ}, {"prompt": PROMPT, "reply": ANSWER}]
    file = tmp_path / "replies.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return read_recordings(file)


def test_a_recording_has_the_passages_and_the_replies(recordings: list[Recording]) -> None:
    (one,) = recordings
    assert [passage.title for passage in one.found[one.question]] == ["Tavira", "Faro"]
    assert (one.calls, len(one.reads), one.answer["answer"].strip()) == (2, 1, "Gilão")
    assert 0 < one.answer_tokens < one.tokens


def test_a_question_is_replayed_with_the_recorded_replies(recordings: list[Recording]) -> None:
    (asked,) = replay(recordings)
    assert (asked.prediction.answer, asked.prediction.supported) == ("Gilão", "chained")
    assert asked.prediction.calls == 1
    (published,) = replay(recordings, as_published=True)
    assert (published.prediction.answer, published.prediction.calls) == ("Gilão", 3)
    assert cost_now([asked]).tokens < cost_now([published]).tokens


def test_replies_and_what_was_parsed_of_them_are_counted(recordings: list[Recording]) -> None:
    found = read_back(replay(recordings))
    assert (found.replies, found.asked_again, found.failures) == (1, 0, 0)
    assert (found.relations, found.lost) == ((1, 1), ())


def test_an_unsuitable_recording_is_refused_with_the_line_number(tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text(json.dumps({"prompt": "[user]\nhello", "reply": "hi"}), "utf-8")
    with pytest.raises(InputError, match=r"line 1 of .*name a recording of GraphAnchor"):
        read_recordings(file)


def test_every_recorded_frontier_reply_parses_and_the_replay_costs_76_percent(
    shared: Callable[[str], Path],
) -> None:
    recorded = read_recordings(shared("replies/graph_anchor.jsonl"))
    replayed = list(replay(recorded))
    found = read_back(replayed)
    assert (found.asked_again, found.failures, found.lost) == (0, 0, ())
    assert found.types[0] == found.types[1] > 200
    assert found.relations[0] == found.relations[1] > 150
    assert cost_now(replayed).tokens <= 0.76 * cost_then(recorded).tokens
    assert cost_now(replayed).system <= 395
