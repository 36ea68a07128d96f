"""Compiling a program: measure it, search for better prompts, choose, measure again, save.

`compile` has the phases in order; the functions below it are one phase each.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import dspy

from ga_dspy.artifact import load, save
from ga_dspy.artifact.artifact import nothing
from ga_dspy.errors import ArtifactError, InputError, RunAborted, listed, need_package
from ga_dspy.eval import Protocol, Report, normalise, paired_test, protocol_of, run
from ga_dspy.eval.plots import plot_costs, save_plot
from ga_dspy.eval.protocol import questions_digest
from ga_dspy.eval.report import JOURNAL
from ga_dspy.eval.result import Result, RunJournal
from ga_dspy.lm.budget import BudgetExceeded, Caps, Spent
from ga_dspy.lm.store import CallStore, Gate
from ga_dspy.lm.wrapper import StepLMs, wrap_for_gate
from ga_dspy.optimize.demos import prompts, sanitise
from ga_dspy.optimize.estimate import MARGIN, Declined, Estimate, check_prices, estimate, needed
from ga_dspy.optimize.metric import DEMO_THRESHOLD, AnswerMetric
from ga_dspy.optimize.recipes import Context, Examples, Recipe
from ga_dspy.optimize.trials import Candidate, Outcome, Tracker, Trials, fingerprint, transplanted
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.program import split_lms
from ga_dspy.secrets import CleanStream, check_addresses

RUN = "run"
"""The folder, in the output folder, of everything but the artifact."""

LEDGER, LOG, SUMMARY = "ledger.sqlite", "optimizer.log", "summary.json"
_TOLERATED = 0.1  # share of the held-out questions that may fail
_CLEANINGS = 4
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
    metric: AnswerMetric | None = None,
    threads: int = 2,
    seed: int = 0,
    names: Mapping[str, str] | None = None,
    tracker: Tracker | None = None,
    progress: Callable[[Candidate], None] | None = None,
    confirm: Callable[[Estimate], bool] | None = None,
    keep: bool = False,
) -> Outcome:
    """Compile a program and write it to `out` as an artifact, with summary.json beside it.

    candidates.png, if matplotlib is installed, shows the F1 and the tokens of each candidate.

    The program is measured on the held-out questions before and after; failed questions are
    retried, and the comparison is over those that both programs answered. `out`/run/ledger.sqlite
    records every finished LM call: started again after a kill, with the same arguments, the
    compilation repeats itself from there and pays only for what is missing. What DSPy's
    optimizers print goes to `out`/run/optimizer.log.

    Args:
        program: The program; it is not changed.
        recipe: How to compile; see `ga_dspy.optimize.recipe`.
        train: Questions to learn from.
        validation: Questions to choose by.
        test: Questions to measure on; without them the validation questions, which the recipe
            has seen, and the outcome says so.
        out: The folder of the artifact.
        lm: The task LM; by default the configured one. A step with an LM of its own
            (`program.read.lm = …`) asks that one, and keeps it.
        reflection_lm: Reads feedback and rewrites instructions (GEPA).
        prompt_lm: Proposes instructions; by default the task LM.
        teacher_lm: Answers the train questions whose traces become demos, in all steps; by
            default the task LM, and those of steps. A run that `ga_dspy.testing.recorded_lm`
            replays costs nothing.
        caps: The most that may be spent, including both measurements and earlier runs.
        metric: Score and feedback; by default F1 alone.
        threads: Questions asked in parallel.
        seed: Random seed, for optimizers that take one.
        names: A name for each question set ("train", "validation", "test"), such as its file.
        tracker: Follows the compilation.
        progress: Called with each candidate.
        confirm: Called with the estimate before anything is spent; False stops the compilation.
        keep: Write the compiled program even if it is no better on the held-out questions; by
            default the program as given is written then.

    Raises:
        InputError, MissingExtra: Something is missing, or a question is in two sets; found before
            anything is spent. Or the caps leave nothing to try; the message names the smallest
            that do.
        Declined: `confirm` returned False.
        RunAborted: The program, as given or compiled, fails on more than a tenth of the held-out
            questions, or the LM stopped answering.
        InUse: Another compilation works in `out`.
    """
    bare, step_lms = split_lms(program)
    roles = {"task": lm or dspy.settings.lm, "reflection": reflection_lm, "prompt": prompt_lm}
    roles["teacher"] = teacher_lm
    sets = {"train": without_context(train), "validation": without_context(validation)}
    job = _Job(
        given=bare,
        step_lms=step_lms,
        recipe=recipe,
        sets=sets if test is None else {**sets, "test": test},
        out=Path(out),
        lms={role: one for role, one in roles.items() if one is not None},
        caps=caps or Caps(),
        metric=metric or AnswerMetric.of(program),
        threads=threads,
        seed=seed,
        names=names or {},
    )
    _check(job)
    cost = _estimate(job)
    job.caps.check_enough(cost.least)
    if confirm is not None and not confirm(cost):
        raise Declined(cost)
    streams = sys.stdout, sys.stderr

    def announce(candidate: Candidate) -> None:
        # While the recipe runs, both streams lead to its log.
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            if tracker is not None:
                tracker.candidate(candidate)
            if progress is not None:
                progress(candidate)

    begun = time.monotonic()
    with CallStore(job.out / RUN / LEDGER, "compilation") as ledger:
        if tracker is not None:
            tracker.start(recipe.name, _setup(job))
        try:
            before, _ = _measure(job, ledger, job.given, "before")
            baseline = ledger.spent
            trials = Trials(job.given, job.sets["validation"], ledger, announce)
            with _log_output(job):
                found, stopped = _search(job, trials, baseline)
                chosen, dropped, cut_short = _choose(job, trials, baseline, found)
            stopped, after = stopped or cut_short, before
            is_unchanged = fingerprint(chosen) == fingerprint(job.given)
            if not is_unchanged:
                after, cut_short = _measure(job, ledger, chosen, "after")
                stopped = stopped or cut_short
            ledger.wait()
            compared = _compare(before, after)
            rejected = None
            if not (is_unchanged or keep or compared.gains):
                # The program as it was given is written instead.
                rejected, chosen, is_unchanged = _figures(compared.after), job.given, True
                compared = compared._replace(after=compared.before)
            outcome = Outcome(
                recipe=recipe.name,
                parameters=asdict(recipe),
                before=compared.before,
                after=compared.after,
                held_out=job.held_out,
                p_value=compared.p_value,
                better=compared.is_better,
                **ledger.spent._asdict(),
                seconds=time.monotonic() - begun,
                candidates=tuple(trials.candidates),
                stopped=stopped,
                prompts_before=prompts(job.given),
                prompts_after=prompts(chosen),
                dropped_demos=dropped,
                data=fingerprints(job.sets, job.names),
                lms={role: one.model for role, one in job.lms.items()},
                artifact=job.out,
                failures=compared.failures,
                unchanged=is_unchanged,
                rejected=rejected,
            )
            _write(job.with_step_lms(chosen), outcome, job.lms)
        except BaseException as error:
            if tracker is not None:
                tracker.fail(error)
            raise
        if tracker is not None:
            tracker.finish(outcome)
    return outcome


# --- What every phase works with


@dataclass(frozen=True)
class _Job:
    """A compilation as it was asked for.

    The program has no LMs of its steps: optimizers remove or copy those. The task LM asks them.
    """

    given: MultiHopProgram
    step_lms: Mapping[str, dspy.BaseLM]
    recipe: Recipe
    sets: Mapping[str, Examples]
    out: Path
    lms: Mapping[str, dspy.BaseLM]
    caps: Caps
    metric: AnswerMetric
    threads: int
    seed: int
    names: Mapping[str, str]

    @property
    def held_out(self) -> str:
        """The name of the set to measure on."""
        return "test" if "test" in self.sets else "validation"

    @property
    def all_lms(self) -> list[dspy.BaseLM]:
        """The LMs of roles and of steps."""
        return [*self.lms.values(), *self.step_lms.values()]

    def with_step_lms(self, program: MultiHopProgram) -> MultiHopProgram:
        """Return a copy of a program with the LMs of its steps."""
        copied: MultiHopProgram = program.deepcopy()
        for name, predictor in copied.named_predictors():
            predictor.lm = self.step_lms.get(name.partition(".")[0])
        return copied

    def protocol(self, program: MultiHopProgram) -> Protocol:
        """Return what a measurement of a program is."""
        return protocol_of(
            self.with_step_lms(program),
            self.sets[self.held_out],
            name=type(program).__name__,
            dataset=self.held_out,
            source=self.names.get(self.held_out, self.held_out),
            lm=self.lms["task"],
        )

    def lms_behind(self, gate: Gate) -> dict[str, dspy.BaseLM]:
        """Return the LMs by role, each paying through a gate; the task LM asks those of steps."""
        lms: dict[str, dspy.BaseLM] = {
            role: wrap_for_gate(lm, gate, role) for role, lm in self.lms.items()
        }
        if self.step_lms:
            steps = {step: wrap_for_gate(lm, gate, step) for step, lm in self.step_lms.items()}
            lms["task"] = StepLMs(lms["task"], steps)
        return lms


def _check(job: _Job) -> None:
    """Check what can be checked before an LM is called.

    Raises:
        InputError, MissingExtra: Something is missing, or does not go together.
    """
    if "task" not in job.lms:
        raise InputError(
            "there is no task LM",
            expected="the LM that the program is compiled for",
            remedy="pass lm=…, or configure one (dspy.configure(lm=…))",
        )
    check_addresses(*job.all_lms)
    check_sets(job.sets)
    need_package("scipy", "search")
    job.given.check_ready()
    recipe = {"name": job.recipe.name, "parameters": asdict(job.recipe)}
    data = fingerprints(job.sets, job.names)
    if fault := _why_unsavable(job.given, recipe=recipe, lms=job.lms, data=data):
        raise InputError(
            f"the program could not be saved when it is compiled: {fault}",
            expected="a program that is saved and loaded as the same one",
            remedy="put modules of your own into a subclass, in its __post_init__, and "
            "decorate it with ga_dspy.artifact.register",
        )
    job.recipe.check(len(job.sets["train"]), reflection="reflection" in job.lms)
    check_prices(job.all_lms, job.caps)


def _estimate(job: _Job) -> Estimate:
    sizes = {name: len(examples) for name, examples in job.sets.items()}
    sizes["held out"] = sizes[job.held_out]
    program = job.with_step_lms(job.given)
    return estimate(program, job.recipe, sizes, job.sets["train"], job.lms)


def _setup(job: _Job) -> dict[str, Any]:
    """Return what decides the outcome, as JSON values; the same after a kill."""
    return {
        **job.protocol(job.given).model_dump(mode="json"),
        "recipe": job.recipe.name,
        "parameters": asdict(job.recipe),
        "data": fingerprints(job.sets, job.names),
        "held_out": job.held_out,
        "lm": {role: lm.model for role, lm in job.lms.items()},
        "caps": job.caps._asdict(),
        "seed": job.seed,
        "out": str(job.out.resolve()),
    }


# --- The phases: measure, search, choose, compare


def _measure(
    job: _Job, ledger: CallStore, program: MultiHopProgram, label: str
) -> tuple[Report, str]:
    """Ask a program all held-out questions.

    Calls made before are answered from the ledger. More than a tenth of the answers may not fail.

    Returns:
        The report, and the cap that cut it short, if one did.
    """
    out, protocol = job.out / RUN / label, job.protocol(program)
    # The ledger makes a resumed run free and counts its calls; a journal would hide them.
    shutil.rmtree(out, ignore_errors=True)
    gate = Gate(ledger, job.caps)
    with suppress(BudgetExceeded), dspy.context(lm=job.lms_behind(gate)["task"]):
        run(program, job.sets[job.held_out], out=out, protocol=protocol, threads=job.threads)
    _check_answering(gate)
    with RunJournal(out / JOURNAL) as journal:
        results = tuple(journal.results().values())
    if gate.closed and (label == "before" or not results):
        raise InputError(
            f"{gate.closed} while the program was measured",
            expected="a budget that at least measures the program before and after",
            remedy="raise the cap and start again: finished calls are kept and not paid twice",
        )
    report = Report(protocol, results)
    if len(lost := _unanswered(report)) > _TOLERATED * len(report.results):
        raise RunAborted(
            f"{label} compiling, the program failed on {len(lost)} of "
            f"{len(report.results)} questions, such as: "
            f"{lost[0].error or lost[0].step_failures[-1]}",
            expected="at most a tenth to fail",
            remedy="check that the LM answers and follows the output format (raise max_tokens, "
            "choose another adapter or model), then start again: finished calls are kept",
        )
    return report, gate.closed


def _search(job: _Job, trials: Trials, baseline: Spent) -> tuple[MultiHopProgram | None, str]:
    """Let the recipe work within what choosing and the second measurement leave.

    Args:
        job: The compilation.
        trials: Takes note of each program that is scored.
        baseline: What measuring the program as given cost.

    Returns:
        What the recipe found, if it finished, and the cap that stopped it, if one did.
    """
    measured, tried = len(job.sets[job.held_out]), len(job.sets["validation"])
    job.caps.check_enough(baseline.times(needed(measured, tried, job.recipe) / measured))
    reserve = baseline.times(MARGIN * (measured + tried) / measured)
    gate = Gate(trials.ledger, job.caps.less(reserve))
    found, stopped = None, ""
    with _configured(job, trials, gate) as context:
        try:
            context.score(job.given)
            found = job.recipe.fit(job.given, context)
        except BudgetExceeded as stop:
            stopped = str(stop)
    _check_answering(gate)
    gate.close("the recipe has finished")
    return found, stopped


def _choose(
    job: _Job, trials: Trials, baseline: Spent, found: MultiHopProgram | None
) -> tuple[MultiHopProgram, tuple[str, ...], str]:
    """Choose the best program on the validation questions whose demos teach no fault.

    The program as given is one of the candidates, so a recipe that makes things worse changes
    nothing. If a recipe was stopped, the candidate that looked best on some of the questions is
    scored on all of them first.

    Returns:
        The program, the demos removed from the candidates considered, and the cap that cut the
        choice short, if one did.
    """
    gate = Gate(trials.ledger, job.caps.less(baseline.times(MARGIN)))
    chosen, dropped = job.given, list[str]()
    # A gate that closes says which cap it was; the program as given is what is left.
    with suppress(BudgetExceeded), _configured(job, trials, gate) as context:
        if (candidate := found or trials.promising()) is not None:
            context.score(transplanted(job.given, candidate))
        for _ in range(_CLEANINGS):
            if (best := trials.best()) is None:
                break
            clean, faults = sanitise(best.program, job.sets["train"], DEMO_THRESHOLD)
            unsavable = "" if faults else _why_unsavable(best.program)
            if not faults and not unsavable:
                chosen = best.program
                break
            dropped += faults or [f"all, because it cannot be saved: {unsavable}"]
            trials.discard(best)
            if faults:
                context.score(clean)
    cut_short = gate.closed
    gate.close("the choice is made")
    _check_answering(gate)
    return chosen, tuple(dict.fromkeys(dropped)), cut_short


@contextmanager
def _configured(job: _Job, trials: Trials, gate: Gate) -> Iterator[Context]:
    """Make the task LM, behind a gate, the default LM, and let the trials watch."""
    lms = job.lms_behind(gate)
    with dspy.context(
        lm=lms["task"],
        callbacks=[*(dspy.settings.callbacks or []), trials],
        num_threads=job.threads,
        max_errors=_NO_LIMIT,
    ):
        yield Context(
            lms=lms,
            metric=job.metric,
            trials=trials,
            train=job.sets["train"],
            validation=job.sets["validation"],
            threads=job.threads,
            seed=job.seed,
        )


@contextmanager
def _log_output(job: _Job) -> Iterator[None]:
    """Lead what DSPy's optimizers print to a file, without secrets."""
    with (
        (job.out / RUN / LOG).open("a", encoding="utf-8") as opened,
        redirect_stdout(cast(Any, CleanStream(opened, job.all_lms))) as file,
        redirect_stderr(file),
    ):
        yield


def _check_answering(gate: Gate) -> None:
    # Questions scored 0 while it was down: nothing chosen or measured by them is worth keeping.
    if gate.down:
        raise RunAborted(
            f"the LM stopped answering: {gate.down}",
            expected="answers",
            remedy="check that the endpoint is up and its key valid, then start the same "
            "compilation again: finished calls are kept",
        )


class _Comparison(NamedTuple):
    """Two reports on the questions that both programs answered.

    Attributes:
        before: The program as given.
        after: The compiled program.
        failures: How many questions had no answer, before and after.
        p_value: Of the paired permutation test on F1, two-sided.
        is_better: F1 is significantly higher, and no more questions failed.
        gains: F1 is higher, or equal for fewer tokens.
    """

    before: Report
    after: Report
    failures: tuple[int, int]
    p_value: float
    is_better: bool
    gains: bool


def _compare(before: Report, after: Report) -> _Comparison:
    failures = len(_unanswered(before)), len(_unanswered(after))
    # A cap may have left some of the questions unasked too.
    lost = {r.id for report in (before, after) for r in _unanswered(report)}
    ids = {r.id for r in after.results} - lost
    before, after = (
        report._replace(results=tuple(r for r in report.results if r.id in ids))
        for report in (before, after)
    )
    paired, old, new = paired_test(after, before), _figures(before), _figures(after)
    return _Comparison(
        before=before,
        after=after,
        failures=failures,
        p_value=paired.p_value,
        is_better=paired.better and failures[1] <= failures[0],
        gains=(new["f1"], -new["tokens"]) > (old["f1"], -old["tokens"]),
    )


def _figures(report: Report) -> dict[str, float]:
    """Return F1 and tokens a question."""
    return {"f1": report.f1, "tokens": round(report.summary()["tokens_mean"] or 0, 1)}


def _unanswered(report: Report) -> list[Result]:
    return [r for r in report.results if r.error or (r.step_failures and not r.answer)]


# --- The question sets: no question may be in two of them


def without_context(examples: Examples) -> list[dspy.Example]:
    """Return questions without the paragraphs of their file.

    Programs search for their own passages. Optimizers that print whole examples would put ten
    paragraphs a question into a prompt, and demos would carry them into the artifact.
    """
    left_out = ("paragraphs", "supporting_facts")
    return [
        example.without(*(name for name in left_out if name in example)) for example in examples
    ]


def check_sets(sets: Mapping[str, Examples]) -> None:
    """Check that no set is empty and that no two of them share a question, by id or by text.

    Raises:
        InputError: A set is empty, or two share a question: what is learned from one would be
            measured on the other. Texts are compared without case, punctuation and articles.
    """
    for name, examples in sets.items():
        if not examples:
            raise InputError(
                f"the {name} set is empty", expected="at least one question", remedy="pass some"
            )
    for (first, a), (second, b) in combinations(sets.items(), 2):
        ids, texts = {e.get("id") for e in b} - {None, ""}, {normalise(e.question) for e in b}
        by_id = [example.id for example in a if example.get("id") in ids]
        by_text = [example.question for example in a if normalise(example.question) in texts]
        if shared := by_id or by_text:
            raise InputError(
                f"{len(shared)} questions are in {first} and in {second}, by "
                f"{'id' if by_id else 'text'}: {listed(map(repr, shared), 3)}",
                expected="sets that share none",
                remedy=f"take them out of {first}"
                + (", or give each question an id of its own" if by_id else ""),
            )


def fingerprints(
    sets: Mapping[str, Examples], names: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return the digest, the size and the name of each set, by role."""
    return {
        role: {
            "sha256": questions_digest(examples),
            "n": len(examples),
            "name": names.get(role, role),
        }
        for role, examples in sets.items()
    }


# --- The artifact, with summary.json beside it


def _write(program: MultiHopProgram, outcome: Outcome, lms: Mapping[str, dspy.BaseLM]) -> None:
    """Write the artifact and summary.json, each file atomically, then the figure."""
    summary = outcome.summary()
    fresh = outcome.artifact / RUN / "artifact"
    save(
        program,
        fresh,
        recipe={"name": outcome.recipe, "parameters": outcome.parameters},
        lms={**outcome.lms, **lms},
        data=outcome.data,
        scores={
            "n": summary["n"],
            "held_out": outcome.held_out,
            "before": _scores(summary, "before"),
            "after": _scores(summary, "after"),
            "shortfall": outcome.shortfall,
            "p_value": outcome.p_value,
            "verdict": outcome.verdict,
        },
        cost={name: summary[name] for name in ("calls", "tokens", "money", "replayed", "seconds")},
        overwrite=True,
    )
    text = json.dumps(summary, ensure_ascii=False, indent=2) + "\n"
    (fresh / SUMMARY).write_text(text, encoding="utf-8")
    # An artifact's folder is moved into place as a whole; this one has the run beside it, so its
    # files are moved one by one. In between, the manifest's digest shows that they differ.
    for file in sorted(fresh.iterdir()):
        file.replace(outcome.artifact / file.name)
    fresh.rmdir()
    outcome.figure.unlink(missing_ok=True)  # of an earlier compilation
    if find_spec("matplotlib") and outcome.points:
        title, n = "Candidates: F1 against tokens per question", outcome.data["validation"]["n"]
        about = f"{outcome.recipe}, {outcome.lms['task']}, {n:,} validation questions"
        save_plot(plot_costs(outcome.points, title, about), outcome.figure)


def _why_unsavable(program: MultiHopProgram, **about: Any) -> str:
    """Return why a program cannot be saved and loaded; empty if it can."""
    with TemporaryDirectory() as folder:
        try:
            load(save(program, Path(folder) / "artifact", **about), retriever=nothing)
        except ArtifactError as error:
            return str(error)
    return ""


def _scores(summary: dict[str, Any], when: str) -> dict[str, Any]:
    low, high = summary[f"ci95_{when}"]
    return {
        "f1": {"value": summary[f"f1_{when}"], "low": low, "high": high},
        "em": {"value": summary[f"em_{when}"]},
    }
