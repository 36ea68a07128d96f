"""Connections: one attempt of a call, at the price that DSPy knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import dspy
import pytest
from endpoint import Behaviour, Endpoint

from ga_dspy.lm.endpoints import connect


@pytest.fixture
def quick() -> Iterator[Endpoint]:
    with Endpoint(Behaviour(reply="Montana")) as endpoint:
        yield endpoint


def test_one_lm_works_in_successive_event_loops(quick: Endpoint) -> None:
    lm = connect(quick.lm(), {})
    for n in range(3):
        assert asyncio.run(lm.acall(f"Where is county {n}?")) == ["Montana"]


def test_a_call_has_dspys_cost_and_is_in_the_lms_history(quick: Endpoint) -> None:
    settings = {"api_base": quick.url, "api_key": "none", "cache": False}
    plain = dspy.LM("openai/gpt-4o-mini", **settings)
    known = dspy.LM("openai/gpt-4o-mini", **settings)
    plain("Where?")
    connect(known, {})("Where?")
    assert plain.history[0]["cost"] > 0
    assert known.history[0]["cost"] == plain.history[0]["cost"]
    assert known.history[0]["usage"] == plain.history[0]["usage"]
    unknown = quick.lm()
    connect(unknown, {})("Where?")
    assert unknown.history[0]["cost"] is None


def test_an_lm_with_settings_for_litellm_is_left_to_dspy(quick: Endpoint) -> None:
    lm = dspy.LM("openai/m", api_base=quick.url, api_key="none", extra_headers={"X-Team": "a"})
    assert connect(lm, {}).engine == "auto"
    assert connect(quick.lm(), {"logit_bias": {"1": 2}}).engine == "auto"
    assert connect(quick.lm(), {"temperature": 0.5}).engine != "auto"


def test_changing_the_timeout_still_hits_the_cache(quick: Endpoint, tmp_path: Path) -> None:
    dspy.configure_cache(disk_cache_dir=str(tmp_path))
    connect(quick.lm(cache=True, timeout=60), {})("Where is it?")
    connect(quick.lm(cache=True, timeout=120), {})("Where is it?")
    assert quick.counts()["ok"] == 1
