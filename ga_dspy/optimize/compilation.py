"""Compiling a program: measure it, let a recipe work on it, measure again, say what it bought.

The file reads in the order of the work: `compile` checks what it is given and asks whether to go
on; `_Compilation` measures the program as it is, lets the recipe search within the budget, chooses,
measures again; `_write` leaves the artifact.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import dspy

from ga_dspy.artifact import load, save
from ga_dspy.artifact.artifact import nothing
from ga_dspy.errors import ArtifactError, InputError, RunAborted, listed, need_package
from ga_dspy.eval import Protocol, Report, normalise, paired_test, protocol_of, run
from ga_dspy.eval.protocol import questions_digest
from ga_dspy.eval.report import JOURNAL
from ga_dspy.eval.result import Result, RunJournal
from ga_dspy.lm.budget import BudgetExceeded, Caps
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
"""The folder, in the output folder, of all that is not the artifact."""

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

    The program is measured on the held-out questions before and after; questions that fail are
    asked again, and those are compared that both programs answered. Every finished LM call is
    in `out`/run/ledger.sqlite: started again after a kill, with the same arguments, the
    compilation repeats itself from there and pays only for what is missing. What DSPy's
    optimizers print goes to `out`/run/optimizer.log.

    Args:
        program: The program; left as it is.
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
        caps: The most that may be spent, both measurements and earlier runs among it.
        metric: Score and feedback; by default F1 alone.
        threads: Questions asked at once.
        seed: Of what is drawn, where an optimizer takes one.
        names: A name for each question set ("train", "validation", "test"), such as its file.
        tracker: Follows the compilation.
        progress: Called with each program that was tried.
        confirm: Asked with the estimate before anything is spent; by default not asked.
        keep: Write the compiled program also where it is no better on the held-out questions; by
            default the program as given is written then.

    Raises:
        InputError, MissingExtra: Something is missing, or a question is in two sets; found before
            anything is spent. Or the caps leave nothing to try; the message names the smallest
            that do.
        Declined: `confirm` said no.
        RunAborted: The program, as given or compiled, fails on more than a tenth of the held-out
            questions, or the LM stopped answering.
        InUse: Another compilation works in `out`.
    """
    lms = {"task": lm or dspy.settings.lm, "reflection": reflection_lm, "prompt": prompt_lm}
    lms["teacher"] = teacher_lm
    sets = {"train": without_context(train), "validation": without_context(validation)}
    bare, step_lms = split_lms(program)
    work = _Compilation(
        program=bare,
        step_lms=step_lms,
        recipe=recipe,
        sets=sets if test is None else {**sets, "test": test},
        out=Path(out),
        lms={role: given for role, given in lms.items() if given is not None},
        caps=caps or Caps(),
        metric=metric or AnswerMetric.of(program),
        threads=threads,
        seed=seed,
        names=names or {},
        keep=keep,
    )
    work.check()
    cost = work.estimate()
    work.caps.check_enough(cost.least)
    if confirm is not None and not confirm(cost):
        raise Declined(cost)
    stdout, stderr = sys.stdout, sys.stderr

    def tell(candidate: Candidate) -> None:
        # While the recipe runs, both streams lead to its log.
        with redirect_stdout(stdout), redirect_stderr(stderr):
            for follow in filter(None, (tracker.candidate if tracker else None, progress)):
                follow(candidate)

    with CallStore(work.out / RUN / LEDGER, "compilation") as work.ledger:
        if tracker is not None:
            tracker.start(recipe.name, work.setup())
        try:
            outcome = work.run(tell)
        except BaseException as error:
            if tracker is not None:
                tracker.fail(error)
            raise
        if tracker is not None:
            tracker.finish(outcome)
    return outcome


# --- The work: check, measure, search, choose, measure again


@dataclass
class _Compilation:
    """A compilation, each of its phases with a gate of its own before the LMs.

    The program that is worked on has no LMs of its steps: optimizers take those off, or copy them.
    The task LM asks them.
    """

    program: MultiHopProgram
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
    keep: bool = False
    ledger: CallStore = field(init=False)

    @property
    def held_out(self) -> str:
        """The name of the set that is measured on."""
        return "test" if "test" in self.sets else "validation"

    def check(self) -> None:
        """Check what can be checked before an LM is called.

        Raises:
            InputError, MissingExtra: Something is missing, or does not go together.
        """
        if "task" not in self.lms:
            raise InputError(
                "there is no task LM",
                expected="the LM that the program is compiled for",
                remedy="pass lm=…, or configure one (dspy.configure(lm=…))",
            )
        check_addresses(*self._all_lms)
        check_sets(self.sets)
        need_package("scipy", "search")
        self.program.check_ready()
        self._check_savable()
        reflection = "reflection" in self.lms
        self.recipe.check(len(self.sets["train"]), reflection=reflection)
        check_prices(self._all_lms, self.caps)

    @property
    def _all_lms(self) -> list[dspy.BaseLM]:
        return [*self.lms.values(), *self.step_lms.values()]

    def _with_lms(self, program: MultiHopProgram) -> MultiHopProgram:
        """A copy of a program with the LMs of its steps; itself where no step has one."""
        if not self.step_lms:
            return program
        copied: MultiHopProgram = program.deepcopy()
        for name, predictor in copied.named_predictors():
            predictor.lm = self.step_lms.get(name.partition(".")[0])
        return copied

    def _behind(self, gate: Gate) -> dict[str, dspy.BaseLM]:
        """The LMs by role, with a gate before them; the task LM has those of the steps in it."""
        lms: dict[str, dspy.BaseLM] = {
            role: wrap_for_gate(lm, gate, role) for role, lm in self.lms.items()
        }
        if self.step_lms:
            steps = {step: wrap_for_gate(lm, gate, step) for step, lm in self.step_lms.items()}
            lms["task"] = StepLMs(lms["task"], steps)
        return lms

    def _check_savable(self) -> None:
        """Save the program as it is to a folder that is thrown away, and load it again.

        Raises:
            InputError: What would be written in the end cannot be saved or loaded.
        """
        recipe = {"name": self.recipe.name, "parameters": asdict(self.recipe)}
        about = {"recipe": recipe, "lms": self.lms, "data": fingerprints(self.sets, self.names)}
        if fault := _unfit(self.program, **about):
            raise InputError(
                f"the program could not be saved when it is compiled: {fault}",
                expected="a program that is saved and loaded as the same one",
                remedy="put modules of your own into a subclass, in its __post_init__, and "
                "decorate it with ga_dspy.artifact.register",
            )

    def estimate(self) -> Estimate:
        """What it will cost, about."""
        sizes = {role: len(examples) for role, examples in self.sets.items()}
        sizes["held out"] = sizes[self.held_out]
        program = self._with_lms(self.program)
        return estimate(program, self.recipe, sizes, self.sets["train"], self.lms)

    def setup(self) -> dict[str, Any]:
        """What decides the outcome, as JSON values; the same after a kill."""
        return {
            **self._protocol(self.program).model_dump(mode="json"),
            "recipe": self.recipe.name,
            "parameters": asdict(self.recipe),
            "data": fingerprints(self.sets, self.names),
            "held_out": self.held_out,
            "lm": {role: lm.model for role, lm in self.lms.items()},
            "caps": self.caps._asdict(),
            "seed": self.seed,
            "out": str(self.out.resolve()),
        }

    def run(self, tell: Callable[[Candidate], None]) -> Outcome:
        """Carry it out, and write the artifact; `tell` is called with each program tried."""
        begun = time.monotonic()
        before, _ = self._measure(self.program, "before")
        self.trials = Trials(self.program, self.sets["validation"], self.ledger, tell)
        program, dropped, stopped = self._compiled(before)
        unchanged = fingerprint(program) == fingerprint(self.program)
        after, cut_short = (before, "") if unchanged else self._measure(program, "after")
        self.ledger.wait()
        failures = len(_unanswered(before)), len(_unanswered(after))
        # Those are compared that both answered; a cap may have left some of them unasked too.
        left_out = {r.id for report in (before, after) for r in _unanswered(report)}
        ids = {r.id for r in after.results} - left_out
        before, after = (
            report._replace(results=tuple(r for r in report.results if r.id in ids))
            for report in (before, after)
        )
        paired = paired_test(after, before)
        rejected = None
        if not (unchanged or self.keep or _gains(before, after)):
            rejected, program, after, unchanged = _figures(after), self.program, before, True
        outcome = Outcome(
            recipe=self.recipe.name,
            parameters=asdict(self.recipe),
            before=before,
            after=after,
            held_out=self.held_out,
            p_value=paired.p_value,
            better=paired.better and failures[1] <= failures[0],
            **self.ledger.spent._asdict(),
            seconds=time.monotonic() - begun,
            candidates=tuple(self.trials.candidates),
            stopped=stopped or cut_short,
            prompts_before=prompts(self.program),
            prompts_after=prompts(program),
            dropped_demos=dropped,
            data=fingerprints(self.sets, self.names),
            lms={role: lm.model for role, lm in self.lms.items()},
            artifact=self.out,
            failures=failures,
            unchanged=unchanged,
            rejected=rejected,
        )
        _write(self._with_lms(program), outcome, self.lms)
        return outcome

    def _protocol(self, program: MultiHopProgram) -> Protocol:
        """What a measurement of a program is."""
        return protocol_of(
            self._with_lms(program),
            self.sets[self.held_out],
            name=type(program).__name__,
            dataset=self.held_out,
            source=self.names.get(self.held_out, self.held_out),
            lm=self.lms["task"],
        )

    def _measure(self, program: MultiHopProgram, label: str) -> tuple[Report, str]:
        """Ask a program all held-out questions; also the cap that cut it short, if one did.

        Calls made before are answered from the ledger. More than a tenth of the answers may not
        fail.
        """
        examples, out = self.sets[self.held_out], self.out / RUN / label
        # The ledger makes a resumed run free and counts its calls; a journal would hide them.
        shutil.rmtree(out, ignore_errors=True)
        protocol = self._protocol(program)
        gate = Gate(self.ledger, self.caps)
        with suppress(BudgetExceeded), dspy.context(lm=self._behind(gate)["task"]):
            run(program, examples, out=out, protocol=protocol, threads=self.threads)
        _check_answering(gate)
        with RunJournal(out / JOURNAL) as journal:
            entries = journal.entries()
        if gate.closed and (label == "before" or not entries):
            raise InputError(
                f"{gate.closed} while the program was measured",
                expected="a budget that at least measures the program before and after",
                remedy="raise the cap and start again: finished calls are kept and not paid twice",
            )
        report = Report.from_entries(protocol, entries.values())
        if len(lost := _unanswered(report)) > _TOLERATED * len(report.results):
            raise RunAborted(
                f"{label} compiling, the program failed on {len(lost)} of "
                f"{len(report.results)} questions, such as: "
                f"{lost[0].error or lost[0].step_failures[-1]}",
                expected="at most a tenth to fail",
                remedy="see that the LM answers and follows the output format (raise max_tokens, "
                "choose another adapter or model), then start again: finished calls are kept",
            )
        return report, gate.closed

    def _compiled(self, before: Report) -> tuple[MultiHopProgram, tuple[str, ...], str]:
        """Let the recipe work within what choosing and the second measurement leave.

        Returns:
            The program that is kept, the demos removed from the ones considered, and the cap that
            stopped the recipe or the choice, if one did.
        """
        asked, tried, spent = len(before.results), len(self.sets["validation"]), self.ledger.spent
        self.caps.check_enough(spent.times(needed(asked, tried, self.recipe) / asked))
        # Each gate keeps back what the later phases need.
        gate = Gate(self.ledger, self.caps.less(spent.times(MARGIN * (asked + tried) / asked)))
        last = Gate(self.ledger, self.caps.less(spent.times(MARGIN)))
        log = self.out / RUN / LOG
        with (
            log.open("a", encoding="utf-8") as opened,
            redirect_stdout(cast(Any, CleanStream(opened, self._all_lms))) as file,
            redirect_stderr(file),
        ):
            found, stopped = None, ""
            with self._configured(gate) as context:
                try:
                    self._score(self.program, context)
                    found = self.recipe.fit(self.program, context)
                except BudgetExceeded as stop:
                    stopped = str(stop)
            _check_answering(gate)
            gate.close("the recipe is over")
            with self._configured(last) as context:
                program, dropped = self._choose(found, context)
            cut_short = last.closed
            last.close("the choice is made")
        _check_answering(last)
        return program, tuple(dict.fromkeys(dropped)), stopped or cut_short

    def _choose(
        self, found: MultiHopProgram | None, context: Context
    ) -> tuple[MultiHopProgram, list[str]]:
        """The best program on the validation questions whose demos teach no fault.

        The program as it is given is one of the candidates, so a recipe that makes things worse
        changes nothing. Where a recipe was stopped, the candidate that looked best on part of the
        questions is scored on all of them first.
        """
        dropped: list[str] = []
        try:
            if (candidate := found or self.trials.promising()) is not None:
                self._score(transplanted(self.program, candidate), context)
            for _ in range(_CLEANINGS):
                if (best := self.trials.best()) is None:
                    break
                clean, faults = sanitise(best.program, self.sets["train"], DEMO_THRESHOLD)
                unfit = "" if faults else _unfit(best.program)
                if not faults and not unfit:
                    return best.program, dropped
                dropped += faults or [f"all, for it cannot be saved: {unfit}"]
                self.trials.discard(best)
                if faults:
                    self._score(clean, context)
        except BudgetExceeded:
            pass  # the gate says which cap it was; the program as it is given is what is left
        return self.program, dropped

    def _score(self, program: Any, context: Context) -> None:
        """Score a program on all validation questions; the trials take note of it."""
        questions = list(self.sets["validation"])
        dspy.Evaluate(devset=questions, metric=context.metric, num_threads=self.threads)(program)

    @contextmanager
    def _configured(self, gate: Gate) -> Iterator[Context]:
        """Make the task LM the default one, with the gate before it, and let the trials watch."""
        lms = self._behind(gate)
        with dspy.context(
            lm=lms["task"],
            callbacks=[*(dspy.settings.callbacks or []), self.trials],
            num_threads=self.threads,
            max_errors=_NO_LIMIT,
        ):
            yield Context(
                lms=lms,
                metric=self.metric,
                trials=self.trials,
                train=self.sets["train"],
                validation=self.sets["validation"],
                threads=self.threads,
                seed=self.seed,
            )


def _check_answering(gate: Gate) -> None:
    # Questions scored 0 while it was down: nothing chosen or measured by them is worth keeping.
    if gate.down:
        raise RunAborted(
            f"the LM stopped answering: {gate.down}",
            expected="answers",
            remedy="see that the endpoint is up and its key valid, then start the same compilation "
            "again: finished calls are kept",
        )


def _figures(report: Report) -> dict[str, float]:
    """F1 and tokens a question."""
    return {"f1": report.f1, "tokens": round(report.summary()["tokens_mean"] or 0, 1)}


def _gains(before: Report, after: Report) -> bool:
    """Whether F1 is higher, or as high for fewer tokens."""
    (old, dear), (new, cost) = (tuple(_figures(one).values()) for one in (before, after))
    return (new, -cost) > (old, -dear)


def _unanswered(report: Report) -> list[Result]:
    return [r for r in report.results if r.error or (r.step_failures and not r.answer)]


# --- The question sets: no question may be in two of them


def without_context(examples: Examples) -> list[dspy.Example]:
    """Questions without the paragraphs of their file.

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
            measured on the other. Texts are compared without case, signs and articles.
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
    """The digest, the size and the name of each set, by role."""
    return {
        role: {
            "sha256": questions_digest(examples),
            "n": len(examples),
            "name": names.get(role, role),
        }
        for role, examples in sets.items()
    }


# --- What a compilation leaves: the artifact, with summary.json beside it


def _write(program: MultiHopProgram, outcome: Outcome, lms: Mapping[str, dspy.BaseLM]) -> None:
    """Write the artifact and summary.json, each file at once or not at all."""
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
    # files are moved one by one. In between, the manifest's digest tells that they differ.
    for file in sorted(fresh.iterdir()):
        file.replace(outcome.artifact / file.name)
    fresh.rmdir()


def _unfit(program: MultiHopProgram, **about: Any) -> str:
    """Why a program cannot be saved and loaded; empty where it can."""
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
