"""What a compilation leaves: the outcome, and the artifact with summary.json beside it."""

from __future__ import annotations

import json
from typing import Any

from ga_dspy.artifact import save
from ga_dspy.optimize.budget import Spent
from ga_dspy.optimize.demos import prompts
from ga_dspy.optimize.held_out import Comparison
from ga_dspy.optimize.job import RUN, Job
from ga_dspy.optimize.record import Candidate, Outcome
from ga_dspy.optimize.search import Chosen
from ga_dspy.programs import MultiHopProgram

SUMMARY = "summary.json"


def outcome_of(
    job: Job,
    comparison: Comparison,
    chosen: Chosen,
    candidates: tuple[Candidate, ...],
    spent: Spent,
    *,
    stopped: str,
    seconds: float,
) -> Outcome:
    """Put together what is known at the end."""
    trained = {
        f"task ({name})": predictor.lm.model
        for name, predictor in chosen.program.named_predictors()
        if predictor.lm is not None
    }
    return Outcome(
        recipe=job.recipe.name,
        parameters=job.recipe.parameters(),
        before=comparison.before,
        after=comparison.after,
        held_out=job.held_out.name,
        p_value=comparison.p_value,
        better=comparison.better,
        verdict=comparison.verdict,
        calls=spent.calls,
        tokens=spent.tokens,
        money=spent.money,
        replayed=spent.replayed,
        seconds=seconds,
        candidates=candidates,
        stopped=stopped,
        prompts_before=prompts(job.program),
        prompts_after=prompts(chosen.program),
        dropped_demos=chosen.dropped,
        data=job.fingerprints(),
        lms={role: lm.model for role, lm in job.lms.items()} | trained,
        artifact=job.out,
    )


def write(job: Job, program: MultiHopProgram, outcome: Outcome) -> None:
    """Write the artifact and summary.json, each file at once or not at all."""
    summary = outcome.summary()
    fresh = job.out / RUN / "artifact"
    save(
        program,
        fresh,
        recipe={"name": outcome.recipe, "parameters": outcome.parameters},
        lms=outcome.lms,
        data=outcome.data,
        scores={
            "n": summary["n"],
            "held_out": outcome.held_out,
            "before": _scores(summary, "before"),
            "after": _scores(summary, "after"),
            "p_value": outcome.p_value,
            "verdict": outcome.verdict,
        },
        cost={
            "calls": outcome.calls,
            "tokens": outcome.tokens,
            "money": outcome.money,
            "replayed": outcome.replayed,
            "seconds": round(outcome.seconds, 1),
        },
        overwrite=True,
    )
    text = json.dumps(summary, ensure_ascii=False, indent=2) + "\n"
    (fresh / SUMMARY).write_text(text, encoding="utf-8")
    # An artifact's folder is moved into place as a whole; this one has the run beside it, so its
    # files are moved one by one. In between, the manifest's digest tells that they differ.
    for file in sorted(fresh.iterdir()):
        file.replace(job.out / file.name)
    fresh.rmdir()


def _scores(summary: dict[str, Any], when: str) -> dict[str, Any]:
    low, high = summary[f"ci95_{when}"]
    return {
        "f1": {"value": summary[f"f1_{when}"], "low": low, "high": high},
        "em": {"value": summary[f"em_{when}"]},
    }
