"""Compiling with scripted LMs: all recipes, caps, baselines, question sets, estimates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage, extractive_lm
from ga_dspy.artifact import PROGRAMS, load, show, verify
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.optimize import (
    RECIPES,
    Candidate,
    Caps,
    Outcome,
    compile,
    recipe,
)
from ga_dspy.optimize.compilation import check_sets, fingerprints, without_context
from ga_dspy.optimize.recipes import check_prices, estimate
from ga_dspy.testing import Reply, asked_fields, given_fields, scripted_lm

HINT = "Name the state alone."


def question(i: int) -> dspy.Example:
    return dspy.Example(
        id=f"q{i}",
        question=f"In which state is the county whose seat is Town{i}?",
        answer=f"State{i}",
        answers=(f"State{i}",),
        gold_titles=(f"Town{i}", f"County{i}"),
    ).with_inputs("question")


TRAIN = [question(i) for i in range(6)]
VALIDATION = [question(i) for i in range(10, 16)]
TEST = [question(i) for i in range(20, 32)]


def search(query: str, k: int) -> list[Passage]:
    i = re.findall(r"\d+", query)[0]
    town = Passage(id=f"t{i}", title=f"Town{i}", text=f"Town{i} is the seat of County{i}.")
    county = Passage(id=f"c{i}", title=f"County{i}", text=f"County{i} lies in State{i}.")
    return [county, town] if query.startswith("County") else [town]


def asked_of(prompt: str) -> str:
    """The number of the town in the last question of a prompt, after its demos."""
    return str(re.findall(r"seat is Town(\d+)\?", prompt)[-1])


def task(prompt: str) -> Reply:
    """Answer right, but wordily unless a demo or the instruction shows a short answer."""
    i, last = asked_of(prompt), given_fields(prompt).get("passages", "")
    if "[[ ## answer ## ]]" in prompt:
        shown = "[[ ## answer ## ]]\nState" in prompt or HINT in prompt
        answer = f"State{i}" if shown or int(i) % 3 == 0 else f"the state of State{i}"
        return {"verdict": "answered", "links": "[2]", "answer": answer}
    first = f"[1] Town{i}\n" in last
    additions = (
        f"Relations:\n1. Town{i} -> is the seat of -> County{i} [1]"
        if first
        else f"Relations:\n1. County{i} -> lies in -> State{i} [2]"
    )
    return {
        "additions": additions,
        "reasoning": "one more link",
        # Not "sufficient": the candidate would be taken, and no answer asked for.
        "judgement": "insufficient" if first else "exhausted",
        "candidate": "" if first else f"State{i}",
        "next_query": f"County{i}" if first else "",
    }


PROPOSALS = {
    "proposed_instruction": HINT,
    "proposed_prefix_for_output_field": "Answer:",
    "natural_language_rules": HINT,
    "new_instruction": HINT,
    "improved_instruction": HINT,
    "discussion": "answers are wordy",
    "module_advice": json.dumps({"answer": HINT, "read": "Go on."}),
    "reasoning": "because",
}


def proposer(prompt: str) -> Reply:
    """Fill the fields of a prompt for instructions, rules or summaries."""
    wanted = asked_fields(prompt)
    return {name: PROPOSALS.get(name, f"about {name}") for name in wanted} or f"```\n{HINT}\n```"


def compiled(name: str, out: Path, **arguments: Any) -> Outcome:
    settings = arguments.pop("settings", {})
    reflection = scripted_lm(arguments.pop("reflection", proposer))
    lm = arguments.pop("lm", None) or scripted_lm(task)
    program = arguments.pop("program", None) or GraphAnchor(search, max_steps=3, k=2)
    return compile(
        program,
        recipe(name, **settings),
        arguments.pop("train", TRAIN),
        arguments.pop("validation", VALIDATION),
        **{
            "test": TEST,
            "out": out,
            "lm": lm,
            "reflection_lm": reflection,
            "prompt_lm": scripted_lm(arguments.pop("prompt", proposer)),
            "threads": 1,
            **arguments,
        },
    )


SMALL: dict[str, dict[str, Any]] = {
    "labeled": {"demos": 2},
    "bootstrap": {"demos": 2},
    "bootstrap-rs": {"demos": 2, "candidates": 2},
    "miprov2": {"candidates": 2, "trials": 2, "demos": 1},
    "simba": {"batch": 4, "candidates": 2, "steps": 2},
    "gepa": {"evaluations": 36},
}


@pytest.mark.parametrize("name", SMALL)
def test_a_recipe_keeps_step_lms_and_repeats_no_call(name: str, tmp_path: Path) -> None:
    small, big = scripted_lm(task), scripted_lm(task)
    big.model = "ga-dspy/big"
    program = GraphAnchor(search, max_steps=3, k=2)
    program.answer.lm = big
    outcome = compiled(name, tmp_path, settings=SMALL[name], lm=small, program=program)
    asked = ["answer" in asked_fields(prompt) for prompt in big.engine.prompts]
    assert all(asked) and len(asked) > 12
    assert not any("answer" in asked_fields(prompt) for prompt in small.engine.prompts)
    assert outcome.before.f1 < outcome.after.f1 == 100.0, outcome.candidates
    assert (outcome.verdict, outcome.held_out, outcome.stopped) == ("better", "test", "")
    assert outcome.after.protocol.lms == outcome.before.protocol.lms == {"answer": "ga-dspy/big"}
    assert outcome.summary()["lms"]["answer"] == "ga-dspy/big"
    assert program.answer.lm is big and program.read.lm is None
    known = show(tmp_path).manifest.predictor_lms
    assert known == {"answer": "ga-dspy/big"}
    assert not verify(tmp_path)
    again = GraphAnchor(search, max_steps=3, k=2)
    again.answer.lm = scripted_lm([])
    again.answer.lm.model = "ga-dspy/big"
    replayed = compiled(
        name, tmp_path, settings=SMALL[name], lm=scripted_lm([]), reflection=[], prompt=[],
        program=again,
    )  # fmt: skip
    assert replayed.spent.replayed == replayed.spent.calls == outcome.spent.calls
    assert replayed.prompts_after == outcome.prompts_after
    loaded = load(tmp_path, retriever=search)
    with dspy.context(lm=scripted_lm(task)):
        assert loaded(question=TEST[1].question).answer == "State21"


def test_a_cap_applies_to_step_lms(tmp_path: Path) -> None:
    program = GraphAnchor(search, max_steps=3, k=2)
    program.answer.lm = dspy.LM("openai/unheard-of")
    small = dspy.LM("openai/gpt-4.1-nano")
    with pytest.raises(InputError, match="openai/unheard-of has no known price"):
        compiled("bootstrap", tmp_path, lm=small, program=program, caps=Caps(money=1.0),
                 reflection_lm=None, prompt_lm=None)  # fmt: skip


def test_a_step_whose_predictors_have_different_lms_is_refused(tmp_path: Path) -> None:
    class Twice(dspy.Module):
        def __init__(self, signature: Any) -> None:
            super().__init__()
            self.first, self.second = dspy.Predict(signature), dspy.Predict(signature)

    program = GraphAnchor(search)
    twice = Twice(program.answer.signature)
    twice.first.lm = scripted_lm([])
    program.answer = twice
    with pytest.raises(InputError, match="predictors of step 'answer' have different LMs"):
        compiled("labeled", tmp_path, program=program)


def test_every_recipe_has_a_test_that_runs_it() -> None:
    elsewhere = {"settings"}  # tests/test_optimize_settings.py
    assert set(SMALL) | elsewhere == set(RECIPES)


def test_a_recipe_does_not_change_the_given_program_or_its_signatures(tmp_path: Path) -> None:
    program = GraphAnchor(search, max_steps=3, k=2)
    before = {name: p.signature.instructions for name, p in program.named_predictors()}
    compiled("miprov2", tmp_path, settings=SMALL["miprov2"])
    fresh = GraphAnchor(search, max_steps=3, k=2)
    assert {name: p.signature.instructions for name, p in fresh.named_predictors()} == before


def test_the_lm_that_proposes_instructions_sees_no_ids_and_no_gold_titles(tmp_path: Path) -> None:
    heard: list[str] = []

    def propose(prompt: str) -> Reply:
        heard.append(prompt)
        return proposer(prompt)

    compiled("miprov2", tmp_path, settings=SMALL["miprov2"], prompt=propose)
    shown = "\n".join(heard)
    assert TRAIN[0].question in shown
    assert "gold_titles" not in shown
    assert all(f"'{row.id}'" not in shown for row in TRAIN)


def test_gepa_gets_feedback_on_the_faulty_hop_and_changes_an_instruction(tmp_path: Path) -> None:
    def lost(prompt: str) -> Reply:
        """Stop after the first hop, unless the instruction says otherwise."""
        reply = task(prompt)
        if isinstance(reply, dict) and "judgement" in reply and "Follow every link" not in prompt:
            return {**reply, "judgement": "sufficient", "next_query": ""}
        if isinstance(reply, dict) and "answer" in reply and "[2] County" not in prompt:
            return {"verdict": "not in passages", "links": "", "answer": "unknown"}
        return reply

    heard: list[str] = []

    def reflect(prompt: str) -> Reply:
        heard.append(prompt)
        blamed = "was said too early" in prompt
        said = {"new_instruction": f"Follow every link. {HINT}" if blamed else "Answer."}
        reply = proposer(prompt)
        return (
            {**reply, **said} if isinstance(reply, dict) else f"```\n{said['new_instruction']}\n```"
        )

    outcome = compiled(
        "gepa", tmp_path, settings={"evaluations": 80}, lm=scripted_lm(lost), reflection=reflect
    )
    blaming = [prompt for prompt in heard if "said too early" in prompt]
    words = blaming[0].replace('\\"', "'")
    assert re.search(r"Step 1: 'sufficient' was .* the needed passage 'County\d+'", words)
    assert not any("do not hold the answer" in prompt for prompt in blaming)
    assert "Follow every link" in outcome.prompts_after["read"].instruction
    assert outcome.after.f1 > outcome.before.f1 == 0.0


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("gepa", {"reflection_lm": None}, "has no reflection LM"),
        ("simba", {"settings": {"batch": 7}}, "simba was given 6 train questions.*at least 7"),
        ("bootstrap", {"settings": {"demos": 0}}, "demos of recipe bootstrap: 0"),
        ("miprov2", {"settings": {"demos": -1}}, "demos of recipe miprov2: -1: .* equal to 0"),
        ("bootstrap", {"train": [*TRAIN[:2], VALIDATION[0]]}, "in train and in validation"),
        (
            "bootstrap",
            {"train": [TRAIN[0].copy(id="x", question=TEST[0].question)]},
            "in train and in test",
        ),
        ("bootstrap", {"validation": []}, "the validation set is empty"),
        ("bootstrap", {"caps": Caps(money=1.0)}, "no known price"),
    ],
)
def test_missing_requirements_are_reported_before_any_call(
    name: str, arguments: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        compiled(name, tmp_path, lm=scripted_lm([]), **arguments)


def _set(change: Callable[[Any], Any]) -> GraphAnchor:
    program = GraphAnchor(search, max_steps=3, k=2)
    change(program)
    return program


class Unregistered(GraphAnchor):
    """A program of a class that is not registered for artifacts."""


def secretive(program: GraphAnchor) -> None:
    signature = program.answer.signature
    program.answer.signature = signature.with_instructions("Say password: hunter2x.")


UNSAVABLE: dict[str, tuple[Callable[[], GraphAnchor], str]] = {
    "another module": (
        lambda: _set(lambda p: setattr(p, "answer", dspy.ChainOfThought(p.answer.signature))),
        "could not be saved: .*'answer.predict'.*__post_init__.*register",
    ),
    "a predictor's config": (
        lambda: _set(lambda p: p.answer.config.update(temperature=1.0)),
        "the settings of predictor 'answer'",
    ),
    "a class that is not registered": (
        lambda: Unregistered(search), "program 'Unregistered' is unknown.*register"
    ),
    "a secret": (lambda: _set(secretive), "holds a password"),
    "another type of field": (
        lambda: _set(lambda p: setattr(p, "answer", dspy.Predict("question -> answer: list[str]"))),
        "'answer' was compiled with fields",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNSAVABLE)
def test_a_program_that_could_not_be_saved_is_refused_before_any_call(
    what: str, tmp_path: Path
) -> None:
    made, said = UNSAVABLE[what]
    calls: list[str] = []
    lm = scripted_lm(lambda prompt: calls.append(prompt) or "")  # type: ignore[func-returns-value]
    with pytest.raises(InputError, match=said):
        compile(
            made(), recipe("labeled", demos=2), TRAIN, VALIDATION, test=TEST, out=tmp_path, lm=lm
        )
    assert not calls and not (tmp_path / "program.json").exists()


def test_a_registered_class_with_a_custom_module_is_compiled_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Thinking(GraphAnchor):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.answer = dspy.ChainOfThought(self.signatures()["answer"])

    monkeypatch.setitem(PROGRAMS, "Thinking", Thinking)
    compile(
        Thinking(search, max_steps=3, k=2), recipe("labeled", demos=2), TRAIN, VALIDATION,
        test=TEST, out=tmp_path, lm=scripted_lm(lambda p: {"reasoning": "so", **dict(task(p))}),  # type: ignore[arg-type]
        threads=1,
    )  # fmt: skip
    assert isinstance(load(tmp_path, retriever=search).answer, dspy.ChainOfThought)


@pytest.mark.parametrize("keep", [False, True])
def test_a_costlier_program_without_a_gain_is_written_only_on_request(
    keep: bool, tmp_path: Path
) -> None:
    def deaf(prompt: str) -> Reply:
        reply = task(prompt)
        if isinstance(reply, dict) and "answer" in reply and int(asked_of(prompt)) >= 20:
            return {**reply, "answer": "State"}
        return reply

    outcome = compiled("labeled", tmp_path, lm=scripted_lm(deaf), settings={"demos": 2}, keep=keep)
    program, summary = (
        json.loads((tmp_path / f"{n}.json").read_text()) for n in ("program", "summary")
    )
    assert (len(program["answer"]["demos"]) == 3) is keep
    assert outcome.unchanged is not keep
    assert outcome.verdict == ("no better than before" if keep else "unchanged")
    before = outcome.before.summary()["tokens_mean"]
    assert keep or summary["rejected"]["tokens"] > before


def test_nothing_is_spent_if_the_estimate_is_not_confirmed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"about .* LM calls, .*; nothing was spent"):
        compiled("bootstrap", tmp_path, lm=scripted_lm([]), confirm=lambda cost: False)


def test_a_program_that_fails_on_over_a_tenth_of_the_questions_is_not_compiled(
    tmp_path: Path,
) -> None:
    def broken(prompt: str) -> Reply:
        return "no idea" if int(asked_of(prompt)) % 4 == 0 else task(prompt)

    with pytest.raises(RunAborted, match="failed on 3 of 12 questions"):
        compiled("bootstrap", tmp_path, lm=scripted_lm(broken))


def test_a_recipe_without_effect_leaves_the_program_unchanged(tmp_path: Path) -> None:
    def deaf(prompt: str) -> Reply:
        reply = task(prompt)
        return (
            {**reply, "answer": "State"} if isinstance(reply, dict) and "answer" in reply else reply
        )

    outcome = compiled("gepa", tmp_path, lm=scripted_lm(deaf), settings=SMALL["gepa"])
    assert outcome.verdict == "unchanged" and outcome.p_value == 1.0
    assert outcome.prompts_after == outcome.prompts_before
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["scores"]["verdict"] == "unchanged"


def test_a_program_that_could_not_be_saved_is_not_chosen_and_the_reason_is_reported(
    tmp_path: Path,
) -> None:
    def leaking(prompt: str) -> Reply:
        reply = proposer(prompt)
        assert isinstance(reply, dict)
        return {name: f"{text} password: hunter2x" for name, text in reply.items()}

    outcome = compiled("gepa", tmp_path, reflection=leaking, settings=SMALL["gepa"])
    assert outcome.prompts_after == outcome.prompts_before
    assert any("holds a password" in dropped for dropped in outcome.dropped_demos)
    assert (tmp_path / "program.json").is_file()


def test_without_a_test_set_validation_is_reported_as_held_out(tmp_path: Path) -> None:
    outcome = compiled("labeled", tmp_path, test=None, settings=SMALL["labeled"])
    assert outcome.held_out == "validation" and len(outcome.after.results) == len(VALIDATION)


@pytest.fixture(autouse=True)
def _no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no figure, which takes a tenth of a compilation; only `labeled` draws one."""
    monkeypatch.setattr("ga_dspy.optimize.compilation.find_spec", lambda name: None)


@pytest.fixture(scope="module")
def labeled(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return compiled("labeled", tmp_path_factory.mktemp("labeled"), settings=SMALL["labeled"])


def test_the_summary_has_the_gain_and_the_cost(labeled: Outcome) -> None:
    summary = json.loads((labeled.artifact / "summary.json").read_text())
    assert (summary["recipe"], summary["n"], summary["f1_after"]) == ("labeled", 12, 100.0)
    assert summary["ci95_before"][0] < summary["f1_before"] < summary["ci95_before"][1]
    assert summary["p_value"] < 0.05 and summary["verdict"] == "better"
    assert {"calls", "tokens", "seconds"} < set(summary)


def test_the_figure_shows_the_candidates_and_labels_the_chosen_and_the_original(
    labeled: Outcome,
) -> None:
    assert labeled.figure.read_bytes().startswith(b"\x89PNG") and not labeled.unchanged
    given, chosen = labeled.points
    assert (given.label, chosen.label) == (
        "as given",
        f"{labeled.candidates[1].description} (chosen)",
    )
    assert (given.stands_out, chosen.stands_out) == (False, True)
    assert (given.f1, chosen.f1) == tuple(c.score for c in labeled.candidates)
    tokens = [run.summary()["tokens_mean"] for run in (labeled.before, labeled.after)]
    assert 0 < given.tokens < chosen.tokens and tokens[0] < tokens[1]


def test_without_matplotlib_no_figure_is_left_from_an_earlier_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "candidates.png").write_bytes(b"of an earlier one")
    outcome = compiled("labeled", tmp_path, settings=SMALL["labeled"])
    assert not outcome.figure.exists() and (tmp_path / "program.json").is_file()


def test_each_candidate_is_reported_with_the_best_score_so_far(tmp_path: Path) -> None:
    told: list[Candidate] = []
    outcome = compiled("bootstrap", tmp_path, progress=told.append, settings=SMALL["bootstrap"])
    assert tuple(told) == outcome.candidates
    assert [c.number for c in told] == [1, 2] and told[1].best == 100.0
    assert told[0].calls < told[1].calls and told[0].tokens < told[1].tokens


def test_demos_contain_no_unsupported_items(tmp_path: Path) -> None:
    def inventive(prompt: str) -> Reply:
        reply = task(prompt)
        if isinstance(reply, dict) and "additions" in reply:
            return {
                **reply,
                "additions": reply["additions"] + "\n2. Bob Smith -> rules -> Mars [1]",
            }
        return reply

    outcome = compiled("bootstrap", tmp_path, lm=scripted_lm(inventive), settings={"demos": 2})
    assert outcome.after.f1 == 100.0
    state = (tmp_path / "program.json").read_text()
    assert "is the seat of" in state or "lies in" in state
    assert "Bob Smith" not in state and "not found" not in state


def test_a_cap_stops_the_recipe_and_the_best_so_far_is_kept(tmp_path: Path) -> None:
    free = compiled("bootstrap-rs", tmp_path / "free", settings=SMALL["bootstrap-rs"])
    lm = scripted_lm(task)
    capped = compiled(
        "bootstrap-rs",
        tmp_path / "capped",
        lm=lm,
        caps=Caps(calls=free.spent.calls + 30),
        settings={"demos": 2, "candidates": 20},
        threads=2,
    )
    assert "the cap of LM calls" in capped.stopped
    assert len(lm.engine.prompts) == capped.spent.calls <= free.spent.calls + 30
    assert not verify(tmp_path / "capped")


def test_a_cap_reached_during_the_choice_keeps_the_original_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = {"settings": {"demos": 2}}
    as_given = compiled("labeled", tmp_path / "free", **two).candidates[0]

    def fit(self: Any, job: Any, trials: Any) -> Any:
        wordy = job.given.deepcopy()
        signature = wordy.answer.signature
        wordy.answer.signature = signature.with_instructions("Answer well. " * 10_000)
        return wordy

    monkeypatch.setattr(RECIPES["labeled"], "fit", fit)
    caps = Caps(tokens=4 * as_given.tokens)
    outcome = compiled("labeled", tmp_path / "capped", caps=caps, **two)
    assert "the cap of tokens" in outcome.stopped
    assert outcome.prompts_after == outcome.prompts_before


def test_a_cap_that_is_too_small_to_measure_is_an_error(tmp_path: Path) -> None:
    def wordy(prompt: str) -> Reply:
        reply = task(prompt)
        assert isinstance(reply, dict)
        return {"reasoning": "so " * 9_000, "answer": "x", **reply}

    with pytest.raises(InputError, match=r"the cap of tokens .* while the program was measured"):
        compiled("labeled", tmp_path, lm=scripted_lm(wordy), caps=Caps(tokens=120_000), **TWO)


def test_a_cap_too_low_to_try_a_candidate_names_the_lowest_that_works(tmp_path: Path) -> None:
    settings, lm = SMALL["bootstrap-rs"], scripted_lm(task)
    said = r"a cap of 43 calls is too low.* a cap of at least about (\d+) calls"
    with pytest.raises(InputError, match=said) as refused:
        compiled("bootstrap-rs", tmp_path, lm=lm, caps=Caps(calls=43), settings=settings)
    assert not lm.engine.prompts and not list(tmp_path.iterdir())
    enough = int(re.findall(said, str(refused.value))[0])
    outcome = compiled("bootstrap-rs", tmp_path, lm=lm, caps=Caps(calls=enough), settings=settings)
    assert len(outcome.candidates) > 1


LARGE: dict[str, dict[str, Any]] = {
    "miprov2": {"candidates": 8, "trials": 30, "demos": 1},
    "simba": {"batch": 4, "candidates": 3, "steps": 30},
    "gepa": {"evaluations": 100_000},
}


@pytest.mark.parametrize("name", LARGE)
def test_a_cap_stops_every_recipe_including_proposals_and_reflections(
    name: str, tmp_path: Path
) -> None:
    proposed: list[str] = []

    def varied(prompt: str) -> Reply:
        proposed.append(prompt)
        reply = proposer(prompt)
        assert isinstance(reply, dict)
        new = {k: f"Attempt {len(proposed)}." for k in reply if k not in ("module_advice",)}
        return {**reply, **new}

    lm = scripted_lm(task)
    outcome = compiled(
        name,
        tmp_path,
        lm=lm,
        reflection=varied,
        prompt=varied,
        settings=LARGE[name],
        caps=Caps(calls=180),
        threads=2,
    )
    assert outcome.stopped
    assert proposed or name == "simba"
    assert len(lm.engine.prompts) + len(proposed) == outcome.spent.calls <= 180
    assert len(outcome.after.results) == len(TEST)
    assert not verify(tmp_path)


# --- Failures of the endpoint do not change scores


def failing(when: Callable[[str], bool]) -> Callable[[str], Reply]:
    """The task LM, which fails at prompts of some kind."""
    return lambda prompt: RuntimeError("reset") if when(prompt) else task(prompt)


def once(every: int) -> Callable[[str], bool]:
    """A predicate: whether a prompt is new, and the first of `every` new ones."""
    seen: set[str] = set()

    def met(prompt: str) -> bool:
        new = prompt not in seen
        seen.add(prompt)
        return new and len(seen) % every == 1

    return met


def about(prompt: str, *towns: int) -> bool:
    return asked_of(prompt) in map(str, towns)


def lost_with_demos(*towns: int) -> Callable[[str], Reply]:
    """The task LM, which cannot answer about some towns if its prompt has demos."""

    def lost(prompt: str) -> Reply:
        reply = task(prompt)
        if not about(prompt, *towns) or not isinstance(reply, dict):
            return reply
        shown = "[[ ## answer ## ]]\nState" in prompt
        return (
            RuntimeError("lost")
            if shown
            else {**reply, **dict.fromkeys({"candidate"} & {*reply}, "")}
        )

    return lost


TWO = {"settings": {"demos": 2}}


def test_a_transient_failure_in_the_baseline_makes_no_program_better(tmp_path: Path) -> None:
    def right(prompt: str) -> Reply:
        reply = task(prompt)
        said = {"answer": f"State{asked_of(prompt)}"}
        return {**reply, **said} if isinstance(reply, dict) and "answer" in reply else reply

    reset = once(3)
    lm = scripted_lm(lambda prompt: ConnectionError("reset") if reset(prompt) else right(prompt))
    outcome = compiled("labeled", tmp_path, lm=lm, **TWO)
    assert (outcome.before.f1, outcome.after.f1, outcome.p_value) == (100.0, 100.0, 1.0)
    assert (outcome.verdict, outcome.better, outcome.failures) == ("unchanged", False, (0, 0))


def test_an_unchanged_program_is_not_measured_twice(tmp_path: Path) -> None:
    lm = scripted_lm(lambda prompt: {**task(prompt), "answer": "x"})  # type: ignore[dict-item]
    outcome = compiled("labeled", tmp_path, lm=lm, **TWO)
    assert outcome.unchanged and outcome.after == outcome.before
    assert not (tmp_path / "run" / "after").exists()


def test_only_questions_that_both_programs_answered_are_compared(tmp_path: Path) -> None:
    lm = scripted_lm(failing(lambda prompt: about(prompt, 21)))
    outcome = compiled("labeled", tmp_path, lm=lm, **TWO)
    assert outcome.failures == (1, 1)
    assert {r.id for r in outcome.before.results} == {r.id for r in outcome.after.results}
    assert "q21" not in {r.id for r in outcome.after.results}
    assert outcome.basis == "11 questions of test, of 12; 1 failed before, 1 after"
    summary = json.loads((tmp_path / "summary.json").read_text())
    scores = json.loads((tmp_path / "manifest.json").read_text())["scores"]
    assert scores.items() <= summary.items()
    assert (summary["n"], summary["asked"], summary["failures_after"]) == (11, 12, 1)
    assert scores["n"] == 11 and scores["verdict"] == summary["verdict"] == "better"


def test_a_program_that_fails_more_often_than_before_is_not_better(tmp_path: Path) -> None:
    outcome = compiled("labeled", tmp_path, lm=scripted_lm(lost_with_demos(21)), **TWO)
    assert outcome.failures == (0, 1) and outcome.after.f1 > outcome.before.f1
    assert outcome.p_value < 0.05 and not outcome.better


def test_a_compiled_program_that_fails_on_more_than_a_tenth_is_an_error(tmp_path: Path) -> None:
    lm = scripted_lm(lost_with_demos(20, 23))
    with pytest.raises(RunAborted, match="after compiling, the program failed on 2 of 12"):
        compiled("labeled", tmp_path, lm=lm, **TWO)


def test_transient_failures_do_not_change_the_score_of_a_candidate(tmp_path: Path) -> None:
    calm = compiled("labeled", tmp_path / "calm", **TWO)
    reset = once(3)
    lm = scripted_lm(lambda prompt: ConnectionError("reset") if reset(prompt) else task(prompt))
    outcome = compiled("labeled", tmp_path / "faults", lm=lm, **TWO)
    assert [c.score for c in outcome.candidates] == [c.score for c in calm.candidates]
    assert (outcome.before.f1, outcome.after.f1) == (calm.before.f1, calm.after.f1)


# --- Question sets, recipes and estimates


def row(name: str, text: str) -> dspy.Example:
    return dspy.Example(id=name, question=text, answer="x").with_inputs("question")


def test_sets_that_share_an_id_or_a_text_are_refused() -> None:
    a = row("1", "Who is the  Mayor?")
    check_sets({"train": [a], "validation": [row("2", "Who is she?")]})
    with pytest.raises(InputError, match="in train and in validation, by id or by text"):
        check_sets({"train": [a], "validation": [row("1", "Other?")]})
    with pytest.raises(InputError, match="in train and in test"):
        check_sets(
            {"train": [a], "validation": [row("2", "b")], "test": [row("3", "who is mayor")]}
        )


def test_the_fingerprint_of_a_question_set_depends_on_its_questions() -> None:
    one, two = (fingerprints({"train": [row("1", t)]}, {"train": "t.json"}) for t in "ab")
    assert one["train"]["name"] == "t.json" and one["train"]["n"] == 1
    assert one["train"]["sha256"] != two["train"]["sha256"]


def test_an_estimate_grows_with_the_work_and_has_no_price_for_an_unknown_lm() -> None:
    lms = {"task": scripted_lm([])}
    sets = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
    small, large = (
        estimate(GraphAnchor(search), recipe("bootstrap-rs", candidates=n), sets, lms)
        for n in (2, 8)
    )
    assert small.calls < large.calls and small.tokens < large.tokens
    assert small.money is None and "price unknown" in str(small)


def test_the_embedded_lm_costs_nothing() -> None:
    lms = {"task": extractive_lm()}
    sets = {"train": TRAIN, "validation": VALIDATION}
    assert estimate(GraphAnchor(search), recipe("labeled"), sets, lms).money == 0.0
    check_prices(lms.values(), Caps(money=1.0))


def test_a_cap_of_money_needs_a_known_price() -> None:
    with pytest.raises(InputError, match="ga-dspy/scripted has no known price"):
        check_prices([scripted_lm([])], Caps(money=1.0))


def test_the_default_recipe_depends_on_the_reflection_lm() -> None:
    assert recipe().name == "bootstrap-rs"
    assert recipe(reflection=True).name == "gepa"
    with pytest.raises(InputError, match="one of settings, labeled, bootstrap"):
        recipe("magic")
    with pytest.raises(InputError, match="demoes of recipe bootstrap: 3: Unexpected"):
        recipe("bootstrap", demoes=3)


def test_optimizers_get_questions_without_paragraphs() -> None:
    example = dspy.Example(
        question="q", answer="a", paragraphs=(("Bath", ("It lies on the Avon.",)),),
        supporting_facts=(("Bath", 0),),
    ).with_inputs("question")  # fmt: skip
    (bare,) = without_context([example])
    assert dict(bare) == {"question": "q", "answer": "a"}
    assert bare.inputs().keys() == ["question"]
    assert "paragraphs" in example
