"""Compile a program: measure it, search for better prompts, choose, measure again, save.

`compile` calls the phases in order; each phase is a function below it.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, cast

import dspy

from ga_dspy.artifact import save
from ga_dspy.errors import ArtifactError, InputError, RunAborted, check_installed, listed
from ga_dspy.eval import Report, normalise, protocol_of, run
from ga_dspy.eval.plots import plot_costs, save_plot
from ga_dspy.eval.protocol import questions_digest
from ga_dspy.eval.report import JOURNAL
from ga_dspy.eval.result import Result, RunJournal
from ga_dspy.lm.store import BudgetExceeded, CallStore, Caps, Gate, Spent
from ga_dspy.optimize import recipes
from ga_dspy.optimize.demos import prompts, sanitise
from ga_dspy.optimize.metric import DEMO_THRESHOLD, AnswerMetric
from ga_dspy.optimize.recipes import Estimate, Examples, Job, Recipe
from ga_dspy.optimize.trials import Candidate, Outcome, Trials, program_digest, with_candidate_state
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.program import split_lms
from ga_dspy.secrets import CleanStream, check_addresses
from ga_dspy.storage import write_atomically

RUN = "run"
"""The folder, in the output folder, of everything but the artifact."""

LEDGER, LOG, SUMMARY = "ledger.sqlite", "optimizer.log", "summary.json"
_MAX_FAILED = 0.1  # share of the held-out questions
_NO_LIMIT = 1_000_000  # failures are counted by the baseline and the gate, not by DSPy


def compile(
    program: MultiHopProgram,
    recipe: Recipe,
    train: Examples,
    validation: Examples,
    *,
    test: Examples | None = None,
    out: Path | str,
    lm: dspy.BaseLM | None = None,
    reflection_lm: dspy.BaseLM | None = None,
    prompt_lm: dspy.BaseLM | None = None,
    teacher_lm: dspy.BaseLM | None = None,
    caps: Caps | None = None,
    threads: int = 2,
    seed: int = 0,
    names: Mapping[str, str] | None = None,
    progress: Callable[[Candidate], None] | None = None,
    spending: Callable[[Spent], None] | None = None,
    confirm: Callable[[Estimate], bool] | None = None,
    keep: bool = False,
) -> Outcome:
    """Compile a program and write it to `out` as an artifact, with summary.json beside it.

    candidates.png, if matplotlib is installed, shows the F1 and the tokens of each candidate.

    The program is measured on the held-out questions before and after; failed questions are
    retried, and the comparison is over those that both programs answered. `out`/run/ledger.sqlite
    records every finished LM call. After a kill, start the compilation again with the same
    arguments: it replays the finished calls and pays only for the others. The output of DSPy's
    optimizers goes to `out`/run/optimizer.log.

    Args:
        program: The program; it is not changed.
        recipe: How to compile; see `ga_dspy.optimize.recipe`.
        train: Questions to learn from.
        validation: Questions to choose by.
        test: Questions to measure on; by default the validation questions, which the recipe has
            seen; `Outcome.held_out` names the set.
        out: The folder of the artifact.
        lm: The task LM; by default the configured one. A step that has its own LM
            (`program.read.lm = …`) keeps it.
        reflection_lm: Reads feedback and rewrites instructions (GEPA).
        prompt_lm: Proposes instructions; by default the task LM.
        teacher_lm: Answers the train questions whose traces become demos, in all steps; by
            default the task LM and the LMs of steps. It costs nothing if it replays a recorded run
            (`ga_dspy.testing.recorded_lm`).
        caps: Limits on spending, including both measurements and earlier runs.
        threads: Questions asked in parallel.
        seed: Random seed, for optimizers that take one.
        names: A name for each question set ("train", "validation", "test"), such as its file.
        progress: Called with each candidate.
        spending: Called with what has been spent, after each LM call, from any thread.
        confirm: Called with the estimate before anything is spent; False stops the compilation.
        keep: Write the compiled program even if it is no better on the held-out questions; by
            default the program as given is written instead.

    Raises:
        InputError, MissingExtra: Something is missing, a question is in two sets, or `confirm`
            returned False; nothing is spent. Also if the caps are too low to try a candidate; the
            message names the lowest that suffice.
        RunAborted: The program, as given or compiled, fails on more than a tenth of the held-out
            questions, or the LM stopped answering.
        InUse: Another compilation is writing into `out`.
    """
    bare, step_lms = split_lms(program)
    by_role = {"train": train, "validation": validation, "test": test}
    sets = {role: without_context(rows) for role, rows in by_role.items() if rows is not None}
    roles = {"task": lm or dspy.settings.lm, "reflection": reflection_lm, "prompt": prompt_lm}
    roles["teacher"] = teacher_lm
    job = Job(
        given=bare,
        step_lms=step_lms,
        recipe=recipe,
        sets=sets,
        data=fingerprints(sets, names or {}),
        out=Path(out),
        lms={role: one for role, one in roles.items() if one is not None},
        caps=caps or Caps(),
        metric=AnswerMetric.of(program),
        threads=threads,
        seed=seed,
    )
    _check(job)
    cost = recipes.estimate(job.with_step_lms(bare), recipe, job.sets, job.lms)
    job.caps.check_enough(cost.least)
    if confirm is not None and not confirm(cost):
        remedy = "confirm, choose a smaller recipe or fewer questions, or set a cap"
        raise InputError(f"compiling would take {cost}", remedy=f"nothing was spent: {remedy}")
    streams = sys.stdout, sys.stderr

    def announce(candidate: Candidate) -> None:
        # While the recipe runs, both streams are redirected to its log.
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            if progress is not None:
                progress(candidate)

    start = time.monotonic()
    with CallStore(job.out / RUN / LEDGER, "compilation", on_spent=spending) as ledger:
        before, _ = _measure(job, ledger, job.given, "before")
        baseline = ledger.spent
        trials = Trials(job.given, job.sets["validation"], ledger, announce)
        with _log_output(job):
            compiled, stopped = _search(job, trials, baseline)
            chosen, dropped, cut_short = _choose(job, trials, baseline, compiled)
        stopped, after, rejected = stopped or cut_short, before, None
        if is_changed := program_digest(chosen) != program_digest(job.given):
            after, cut_short = _measure(job, ledger, chosen, "after")
            stopped = stopped or cut_short
        ledger.wait()
        failures = len(_unanswered(before)), len(_unanswered(after))
        before, after = _answered_by_both(before, after)
        old, new = _figures(before), _figures(after)
        is_gain = (new["f1"], -new["tokens"]) > (old["f1"], -old["tokens"])
        if is_changed and not keep and not is_gain:
            rejected, chosen, after = new, job.given, before
        outcome = Outcome(
            recipe=recipe.name,
            parameters=asdict(recipe),
            seed=seed,
            data=job.data,
            lms={role: one.model for role, one in job.lms.items()},
            held_out=job.held_out,
            before=before,
            after=after,
            failures=failures,
            rejected=rejected,
            candidates=tuple(trials.candidates),
            mark=program_digest(chosen),
            prompts_before=prompts(job.given),
            prompts_after=prompts(chosen),
            dropped_demos=dropped,
            stopped=stopped,
            spent=ledger.spent,
            seconds=round(time.monotonic() - start, 1),
            artifact=job.out,
        )
        _write(job.with_step_lms(chosen), outcome, job.lms)
    return outcome


def _check(job: Job) -> None:
    """Check what can be checked before an LM is called.

    Raises:
        InputError, MissingExtra: Something is missing or invalid.
    """
    check_addresses(*job.all_lms)
    check_sets(job.sets)
    job.recipe.check(len(job.sets["train"]), job.lms)
    job.recipe.check_program(job.given)
    check_installed("scipy", "search")
    job.given.check_ready()
    recipe = {"name": job.recipe.name, "parameters": asdict(job.recipe)}
    if fault := _why_unsavable(job.given, recipe=recipe, lms=job.lms, data=job.data):
        found = f"the compiled program could not be saved: {fault}"
        remedy = "make your modules in the __post_init__ of a class that artifact.register knows"
        raise InputError(found, remedy=remedy)
    recipes.check_prices(job.all_lms, job.caps)


# --- The phases: measure, search, choose, compare


def _measure(
    job: Job, ledger: CallStore, program: MultiHopProgram, label: str
) -> tuple[Report, str]:
    """Ask a program all held-out questions; the ledger answers calls that were made before.

    Returns:
        The report, and the cap that cut it short, if any.

    Raises:
        RunAborted: The program failed on more than a tenth of the questions.
    """
    out, questions = job.out / RUN / label, job.sets[job.held_out]
    protocol = protocol_of(
        job.with_step_lms(program),
        questions,
        name=type(program).__name__,
        dataset=job.held_out,
        source=job.data[job.held_out]["name"],
        lm=job.lms["task"],
    )
    # Start without a journal: the ledger replays finished calls for free, and counts them.
    shutil.rmtree(out, ignore_errors=True)
    gate = Gate(ledger, job.caps)
    with suppress(BudgetExceeded), dspy.context(lm=job.behind(gate).lms["task"]):
        run(program, questions, out=out, protocol=protocol, threads=job.threads)
    _check_answering(gate)
    with RunJournal(out / JOURNAL) as journal:
        results = tuple(journal.results().values())
    if gate.closed and (label == "before" or not results):
        remedy = "raise the cap and start again: finished calls are kept and not paid twice"
        raise InputError(f"{gate.closed} while the program was measured", remedy=remedy)
    report = Report(protocol, results)
    if len(lost := _unanswered(report)) > _MAX_FAILED * len(report.results):
        failed = f"{len(lost)} of {len(report.results)} questions"
        error = lost[0].error or lost[0].step_failures[-1]
        raise RunAborted(
            f"{label} compiling, the program failed on {failed}, such as: {error}",
            expected="at most a tenth to fail",
            remedy="check that the LM answers and follows the output format (raise max_tokens, "
            "choose another adapter or model), then start again: finished calls are kept",
        )
    return report, gate.closed


def _search(job: Job, trials: Trials, baseline: Spent) -> tuple[MultiHopProgram | None, str]:
    """Run the recipe within the caps, less a reserve for choosing and the second measurement.

    Args:
        job: The compilation.
        trials: Records each program that is scored.
        baseline: The cost of measuring the program as given.

    Returns:
        The program that the recipe compiled, if it finished, and the cap that stopped it, if any.
    """
    measured, tried = len(job.sets[job.held_out]), len(job.sets["validation"])
    job.caps.check_enough(baseline.times(recipes.needed(measured, tried, job.recipe) / measured))
    reserve = baseline.times(recipes.MARGIN * (measured + tried) / measured)
    gate = Gate(trials.ledger, job.caps.less(reserve))
    compiled, stopped = None, ""
    with _recorded(job, trials, gate) as gated:
        try:
            gated.score(job.given)
            compiled = job.recipe.fit(gated, trials)
        except BudgetExceeded as stop:
            stopped = str(stop)
    _check_answering(gate)
    gate.close("the recipe has finished")
    return compiled, stopped


def _choose(
    job: Job, trials: Trials, baseline: Spent, compiled: MultiHopProgram | None
) -> tuple[MultiHopProgram, tuple[str, ...], str]:
    """Choose the program that scores best on the validation questions and has no faulty demos.

    The program as given is one of the candidates, so the choice never scores lower than it.

    Returns:
        The program, the demos removed from the candidates considered, and the cap that cut the
        choice short, if any.
    """
    gate = Gate(trials.ledger, job.caps.less(baseline.times(recipes.MARGIN)))
    chosen, dropped = job.given, list[str]()
    # If a cap ends the choice, the gate names it, and the program as given is kept.
    with suppress(BudgetExceeded), _recorded(job, trials, gate) as gated:
        if compiled is not None:
            gated.score(with_candidate_state(job.given, compiled))
        while (best := trials.best()) is not None:
            clean, faults = sanitise(best, job.sets["train"], DEMO_THRESHOLD)
            unsavable = "" if faults else _why_unsavable(best)
            if not faults and not unsavable:
                chosen = best
                break
            dropped += faults or [f"all, because it cannot be saved: {unsavable}"]
            trials.discard(best)
            if faults:
                gated.score(clean)
    cut_short = gate.closed
    gate.close("the choice is made")
    _check_answering(gate)
    return chosen, tuple(dict.fromkeys(dropped)), cut_short


@contextmanager
def _recorded(job: Job, trials: Trials, gate: Gate) -> Iterator[Job]:
    """Yield the job behind a gate; its task LM is the default LM, and the trials record scores."""
    gated = job.behind(gate)
    with dspy.context(
        lm=gated.lms["task"],
        callbacks=[*(dspy.settings.callbacks or []), trials],
        num_threads=job.threads,
        max_errors=_NO_LIMIT,
    ):
        yield gated


@contextmanager
def _log_output(job: Job) -> Iterator[None]:
    """Redirect what DSPy's optimizers print to a file, without secrets."""
    with (
        (job.out / RUN / LOG).open("a", encoding="utf-8") as opened,
        redirect_stdout(cast(Any, CleanStream(opened, job.all_lms))) as file,
        redirect_stderr(file),
    ):
        yield


def _check_answering(gate: Gate) -> None:
    # While it was down, questions scored 0, so no choice or measurement by them is valid.
    if gate.down:
        remedy = "check the endpoint and its key, then start again: finished calls are kept"
        raise RunAborted(f"the LM stopped answering: {gate.down}", remedy=remedy)


def _answered_by_both(before: Report, after: Report) -> tuple[Report, Report]:
    """Return two reports with the questions that both programs answered."""
    unanswered = {result.id for result in (*_unanswered(before), *_unanswered(after))}
    # A cap may have left some questions of the second report unasked.
    ids = {result.id for result in after.results} - unanswered
    baseline = before.part(result for result in before.results if result.id in ids)
    return baseline, after.part(result for result in after.results if result.id in ids)


def _figures(report: Report) -> dict[str, float]:
    """Return F1 and tokens per question."""
    tokens = fmean(result.tokens or 0 for result in report.results)
    return {"f1": report.f1, "tokens": round(tokens, 1)}


def _unanswered(report: Report) -> list[Result]:
    return [r for r in report.results if r.error or (r.step_failures and not r.answer)]


# --- The question sets: no question may be in two of them


def without_context(examples: Examples) -> list[dspy.Example]:
    """Return questions without the paragraphs of their file.

    Programs search for passages themselves. Optimizers that print whole examples would put ten
    paragraphs per question into a prompt, and demos would carry them into the artifact.
    """
    stripped = []
    for example in examples:
        present = [name for name in ("paragraphs", "supporting_facts") if name in example]
        stripped.append(example.without(*present))
    return stripped


def check_sets(sets: Mapping[str, Examples]) -> None:
    """Check that no set is empty and that no two of them share a question, by id or by text.

    Raises:
        InputError: A set is empty, or two share a question, so that the program would be measured
            on what it learned. Texts are compared without case, punctuation and articles.
    """
    for name, examples in sets.items():
        if not examples:
            raise InputError(f"the {name} set is empty", expected="at least one question")
    for (first, a), (second, b) in combinations(sets.items(), 2):
        keys = {key for example in b for key in _keys(example)}
        if shared := [example.question for example in a if keys & _keys(example)]:
            wrong = f"{len(shared)} questions are in {first} and in {second}, by id or by text"
            remedy = f"take them out of {first}, or give each question its own id"
            raise InputError(f"{wrong}: {listed(map(repr, shared), 3)}", remedy=remedy)


def _keys(example: dspy.Example) -> set[str]:
    """Return the keys that identify a question: its text and its id."""
    return {normalise(example.question), f"id: {example.get('id')}"} - {"id: ", "id: None"}


def fingerprints(
    sets: Mapping[str, Examples], names: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return the digest, the size and the name of each set, by role."""
    return {
        role: {"sha256": questions_digest(rows), "n": len(rows), "name": names.get(role, role)}
        for role, rows in sets.items()
    }


# --- The artifact, with summary.json beside it


def _write(program: MultiHopProgram, outcome: Outcome, lms: Mapping[str, dspy.BaseLM]) -> None:
    """Write the artifact, summary.json and the figure."""
    save(
        program,
        outcome.artifact,
        recipe={"name": outcome.recipe, "parameters": outcome.parameters},
        lms={**outcome.lms, **lms},
        data=outcome.data,
        scores=outcome.scores(),
        cost=outcome.cost(),
        overwrite=True,
    )
    summary = json.dumps(outcome.summary(), ensure_ascii=False, indent=2)
    write_atomically(outcome.artifact / SUMMARY, summary + "\n")
    outcome.figure.unlink(missing_ok=True)  # of an earlier compilation
    if find_spec("matplotlib") and outcome.points:
        title, n = "Candidates: F1 against tokens per question", outcome.data["validation"]["n"]
        about = f"{outcome.recipe}, {outcome.lms['task']}, {n:,} validation questions"
        save_plot(plot_costs(outcome.points, title, about), outcome.figure)


def _why_unsavable(program: MultiHopProgram, **about: Any) -> str:
    """Return why a program cannot be saved; empty if it can."""
    with TemporaryDirectory() as folder:
        try:
            save(program, folder, **about)
        except ArtifactError as error:
            return str(error)
    return ""
