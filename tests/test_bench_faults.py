"""The benchmark of faults: no question and no answer is lost to a bad endpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from faults import FaultyRun


@pytest.mark.slow
def test_faults_and_an_outage_cost_time_but_no_answers(tmp_path: Path) -> None:
    script = Path(__file__).with_name("benches.py")
    options = "--questions 6 --outage 1 --timeout 4 --json".split()
    done = subprocess.run(
        [sys.executable, script, "faults", *options],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    runs = [FaultyRun(**run) for run in json.loads(done.stdout)]
    assert [run.failed for run in runs] == [0] * 4
    assert [run.same for run in runs] == [6] * 4
    assert len({(run.f1, run.em) for run in runs}) == 1
    calm, faults, outage, both = runs
    assert calm.failures == 0 < min(faults.failures, outage.failures, both.failures)
