"""The benchmark of faults: no question and no answer is lost to a bad endpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from faults import Night


@pytest.mark.slow
def test_faults_and_an_outage_cost_time_but_no_answers(tmp_path: Path) -> None:
    script = Path(__file__).with_name("benches.py")
    options = "--questions 6 --outage 1 --timeout 4 --json".split()
    done = subprocess.run(
        [sys.executable, script, "faults", *options],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    nights = [Night(**night) for night in json.loads(done.stdout)]
    assert [night.failed for night in nights] == [0] * 4
    assert [night.same for night in nights] == [6] * 4
    assert len({(night.f1, night.em) for night in nights}) == 1
    calm, faults, outage, both = nights
    assert calm.failures == 0 < min(faults.failures, outage.failures, both.failures)
