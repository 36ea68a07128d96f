"""A loaded artifact sends an LM the same prompts, byte for byte, as the compiled program."""

from __future__ import annotations

import copy
import json
import string
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.adapters.baml_adapter import BAMLAdapter
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy.artifact import ArtifactError, load, save, show, verify
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.passage import Passage
from ga_dspy.programs import GraphAnchor, MultiHopProgram, VanillaRAG
from ga_dspy.signatures import GraphProposal
from ga_dspy.testing import scripted_lm

LODGE = Passage(id="lodge", title="Red Lodge", text="Red Lodge is the seat of Carbon County.")
CARBON = Passage(id="carbon", title="Carbon County", text="Carbon County lies in Montana.")
QUESTION = "In which state is the county whose seat is Red Lodge?"
GRAPH = """Entities:
- Zürich (city; "largest"; on the Limmat) [1]
Relations:
1. Zürich -> lies in -> Canton of Zürich (time: 1351) [1]"""
READ = {
    "additions": "Relations:\n1. Red Lodge -> is the seat of -> Carbon County [1]",
    "reasoning": "The county is known, its state is not.",
    "judgement": "insufficient",
    "candidate": "",
    "next_query": "Carbon County",
}
READ_ON = {
    "additions": "Relations:\n1. Carbon County -> lies in -> Montana [2]",
    "reasoning": "Every link is stated.",
    "judgement": "sufficient",
    "candidate": "Montana",
    "next_query": "",
}
ANSWER = {
    "links": "[2]",
    "verdict": "answered",
    "answer": "Montana",
}
ADAPTERS = (dspy.ChatAdapter, dspy.JSONAdapter, BAMLAdapter, dspy.XMLAdapter, PlainAdapter)


def search(query: str, k: int) -> list[Passage]:
    return [CARBON, LODGE][:k] if query == "Carbon County" else [LODGE][:k]


def compiled(program: MultiHopProgram) -> MultiHopProgram:
    """As an optimizer leaves it: instructions, field wording, whole and partial demos, an LM."""
    for name, predictor in program.named_predictors():
        signature = predictor.signature.with_instructions(f"Compiled {name}: “read”\n\n  closely.")
        first = next(iter(signature.input_fields))
        signature = signature.with_updated_fields(first, desc=f"the {first}, reworded")
        predictor.signature = signature
        whole = {field: _value(field, number) for number, field in enumerate(signature.fields)}
        partial = {first: "What is left?", **dict(list(whole.items())[-1:])}
        predictor.demos = [
            dspy.Example(augmented=True, **whole).with_inputs(*signature.input_fields),
            dspy.Example(partial, id="row-7", supporting_facts=["a", "b"]),
            {first: "As a dict?", **dict(list(whole.items())[1:])},
        ]
    program.set_lm(scripted_lm([]))
    return program


def _value(field: str, number: int) -> Any:
    if field == "additions":
        return GraphProposal.model_validate(GRAPH)
    closed: dict[str, Any] = {"judgement": "sufficient", "verdict": "answered", "year": 1351}
    return closed.get(field, f'value {number} of {field}: "é"\n— ok')


def prompts(program: MultiHopProgram, adapter: Any) -> list[str]:
    """Every byte an LM receives from each predictor, demos and all."""
    seen = []
    for _, predictor in program.named_predictors():
        lm = scripted_lm([READ | ANSWER | {"notes": "none"}])
        inputs = {field: f"the {field}" for field in predictor.signature.input_fields}
        with dspy.context(lm=lm, adapter=adapter):
            predictor(**inputs, lm=lm)
        seen += lm.engine.prompts
    return seen


def programs() -> list[MultiHopProgram]:
    made: list[MultiHopProgram] = [VanillaRAG(search, k=7, abstain="quoted")]
    made += [GraphAnchor(search, as_published=way) for way in (True, False)]
    made += [GraphAnchor(search, index="text", as_published=way) for way in (True, False)]
    made += [GraphAnchor(search, index=None), GraphAnchor(search, answer_from="graph")]
    made += [GraphAnchor(search, style="report", abstain="chained")]
    return [*made, GraphAnchor(search, answer_from="passages")]


def described(program: MultiHopProgram) -> str:
    return json.dumps({type(program).__name__: program.settings()})


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("program", programs(), ids=described)
def test_a_loaded_program_sends_byte_for_byte_the_compiled_prompts(
    program: MultiHopProgram, adapter: Any, tmp_path: Path
) -> None:
    save(compiled(program), tmp_path / "a")
    loaded = load(tmp_path / "a", retriever=search)
    sent = prompts(program, adapter())
    assert any("Zürich" in prompt or "reworded" in prompt for prompt in sent)
    assert prompts(loaded, adapter()) == sent


@pytest.mark.parametrize("program", programs(), ids=described)
def test_a_loaded_program_has_the_class_and_the_settings_of_the_saved_one(
    program: MultiHopProgram, tmp_path: Path
) -> None:
    save(program, tmp_path / "a")
    loaded = load(tmp_path / "a", retriever=search)
    assert type(loaded) is type(program)
    assert loaded.settings() == program.settings()


@given(text=st.text(st.characters(exclude_categories=["Cs"])).filter(str.strip))
@settings(max_examples=40)
def test_any_text_survives_in_instructions_and_demos(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = VanillaRAG(search)
    program.answer.signature = program.answer.signature.with_instructions(text)
    program.answer.demos = [dspy.Example(question=text, passages=text, answer=text)]
    path = save(program, tmp_path_factory.mktemp("any") / "a")
    loaded = load(path, retriever=search)
    assert loaded.answer.signature.instructions == program.answer.signature.instructions
    assert loaded.answer.demos[0].toDict() == program.answer.demos[0].toDict()


def test_bootstrapped_demos_survive_saving_and_loading(tmp_path: Path) -> None:
    example = dspy.Example(question=QUESTION, answer="Montana").with_inputs("question")
    optimizer = dspy.BootstrapFewShot(
        metric=lambda gold, said, trace=None: gold.answer == said.answer, max_labeled_demos=0
    )
    with dspy.context(lm=scripted_lm([READ, READ_ON, ANSWER])):
        program = optimizer.compile(GraphAnchor(search), trainset=[example])
    assert isinstance(program.read.demos[0].additions, GraphProposal)
    loaded = load(save(program, tmp_path / "a"), retriever=search)
    for adapter in ADAPTERS:
        assert prompts(loaded, adapter()) == prompts(program, adapter())


def test_a_loaded_program_can_be_saved_again_unchanged(tmp_path: Path) -> None:
    save(compiled(GraphAnchor(search)), tmp_path / "a")
    save(load(tmp_path / "a", retriever=search), tmp_path / "b")
    first, second = (tmp_path / name / "program.json" for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_loaded_program_answers(tmp_path: Path) -> None:
    save(compiled(GraphAnchor(search)), tmp_path / "a")
    loaded = load(tmp_path / "a", retriever=search)
    with dspy.context(lm=scripted_lm([READ, READ_ON, ANSWER])):
        prediction = loaded(question=QUESTION)
    assert (prediction.answer, prediction.supported) == ("Montana", "chained")
    assert len(prediction.steps) == 2


class AnswerWithYear(dspy.Signature):
    """Answer, and say since when."""

    question: str = dspy.InputField()
    passages: str = dspy.InputField()
    answer: str = dspy.OutputField()
    year: int = dspy.OutputField()


def test_a_custom_signature_is_passed_again_to_load_its_program(tmp_path: Path) -> None:
    program = compiled(GraphAnchor(search, answer_with=AnswerWithYear))
    path = save(program, tmp_path / "a")
    loaded = load(path, retriever=search, answer_with=AnswerWithYear)
    assert loaded.answer.signature.equals(program.answer.signature)
    with pytest.raises(ArtifactError, match="predictor 'answer' was compiled with fields"):
        load(path, retriever=search)


def test_a_loaded_program_uses_the_lm_of_the_app(tmp_path: Path) -> None:
    save(compiled(GraphAnchor(search)), tmp_path / "a")
    assert all(p.lm is None for p in load(tmp_path / "a", retriever=search).predictors())


def test_saving_does_not_change_the_program(tmp_path: Path) -> None:
    program = compiled(GraphAnchor(search))
    lms = [predictor.lm for predictor in program.predictors()]
    demos = [list(predictor.demos) for predictor in program.predictors()]
    save(program, tmp_path / "a")
    assert [predictor.lm for predictor in program.predictors()] == lms
    assert [list(predictor.demos) for predictor in program.predictors()] == demos


def test_two_programs_loaded_from_one_artifact_share_nothing(tmp_path: Path) -> None:
    save(compiled(GraphAnchor(search)), tmp_path / "a")
    first, second = (load(tmp_path / "a", retriever=search) for _ in range(2))
    before = prompts(second, dspy.ChatAdapter())
    first.read.demos.clear()
    first.answer.signature = first.answer.signature.with_instructions("Changed.")
    assert prompts(second, dspy.ChatAdapter()) == before


def test_a_deep_copy_of_a_loaded_program_sends_the_same_prompts(tmp_path: Path) -> None:
    save(compiled(GraphAnchor(search)), tmp_path / "a")
    loaded = load(tmp_path / "a", retriever=search)
    for copied in (copy.deepcopy(loaded), loaded.deepcopy()):
        assert prompts(copied, dspy.ChatAdapter()) == prompts(loaded, dspy.ChatAdapter())
        assert copied.retriever is loaded.retriever


def test_a_loaded_program_can_be_compiled_further(tmp_path: Path) -> None:
    save(compiled(VanillaRAG(search)), tmp_path / "a")
    loaded = load(tmp_path / "a", retriever=search)
    example = dspy.Example(question=QUESTION, answer="Montana").with_inputs("question")
    further = dspy.LabeledFewShot(k=1).compile(loaded, trainset=[example])
    assert further.answer.demos == [example]
    assert "Compiled answer" in further.answer.signature.instructions


def test_columns_of_a_training_row_that_no_prompt_shows_are_not_saved(tmp_path: Path) -> None:
    save(compiled(GraphAnchor(search)), tmp_path / "a")
    text = (tmp_path / "a" / "program.json").read_text("utf-8")
    assert "supporting_facts" not in text
    assert "row-7" not in text


def test_dspy_can_load_program_json(tmp_path: Path) -> None:
    program = compiled(GraphAnchor(search))
    save(program, tmp_path / "a")
    plain = GraphAnchor(search)
    plain.load(tmp_path / "a" / "program.json")
    assert prompts(plain, dspy.ChatAdapter()) == prompts(program, dspy.ChatAdapter())


def test_a_program_is_saved_and_loaded_by_dspys_own_methods(tmp_path: Path) -> None:
    program = compiled(GraphAnchor(search))
    program.set_lm(None)
    program.save(tmp_path / "state.json")
    plain = GraphAnchor(search)
    plain.load(tmp_path / "state.json")
    assert prompts(plain, dspy.ChatAdapter()) == prompts(program, dspy.ChatAdapter())
    again = GraphAnchor(search)
    again.load_state(program.dump_state())
    assert prompts(again, dspy.ChatAdapter()) == prompts(program, dspy.ChatAdapter())


def test_a_program_follows_the_conventions_of_a_dspy_module() -> None:
    program = GraphAnchor(search)
    assert [name for name, _ in program.named_predictors()] == ["read", "answer"]
    assert program.named_predictors() == [("read", program.read), ("answer", program.answer)]
    lm = scripted_lm([READ, READ_ON, ANSWER])
    program.set_lm(lm)
    assert program.get_lm() is lm
    assert program(question=QUESTION).answer == "Montana"
    copied = program.deepcopy()
    copied.answer.demos = []
    assert program.answer.demos and copied.get_lm().model == lm.model
    assert program.reset_copy().answer.demos == []


def test_the_manifest_records_the_programs_provenance(tmp_path: Path) -> None:
    begun = datetime.now(UTC)
    scores = {"n": 200, "f1_before": 31.5, "f1_after": 38.25, "ci95_after": [33.5, 43.0]}
    save(
        compiled(GraphAnchor(search, k=3)),
        tmp_path / "a",
        recipe={"name": "bootstrap", "parameters": {"demos": 4}},
        lms={"task": dspy.LM("openai/gpt-4o-mini", api_key="not-written-1"), "teacher": "x/y"},
        data={"train": {"sha256": "ab" * 32, "n": 100}},
        scores=scores,
        cost={"calls": 900, "tokens": 120_000, "money": None},
    )
    info = show(tmp_path / "a")
    assert info.manifest.program == "GraphAnchor"
    assert info.manifest.settings["k"] == 3
    assert info.manifest.recipe == {"name": "bootstrap", "parameters": {"demos": 4}}
    assert info.manifest.lms == {"task": "openai/gpt-4o-mini", "teacher": "x/y"}
    assert info.manifest.data == {"train": {"sha256": "ab" * 32, "n": 100}}
    assert info.manifest.scores == scores
    assert info.manifest.cost == {"calls": 900, "tokens": 120_000, "money": None}
    assert begun <= info.manifest.created <= datetime.now(UTC)
    assert list(info.predictors) == ["read", "answer"]
    assert len(info.predictors["read"].demos) == 3


def test_an_artifact_just_saved_has_no_problems(tmp_path: Path) -> None:
    assert verify(save(compiled(GraphAnchor(search)), tmp_path / "a")) == ""


def test_an_artifact_is_two_json_files(tmp_path: Path) -> None:
    save(compiled(GraphAnchor(search)), tmp_path / "a")
    files = sorted(tmp_path.rglob("*"))
    assert [file.name for file in files] == ["a", "manifest.json", "program.json"]
    assert all(json.loads(file.read_text("utf-8")) for file in files[1:])


def test_loading_takes_milliseconds(tmp_path: Path) -> None:
    program = compiled(GraphAnchor(search, as_published=True))
    for predictor in program.predictors():
        predictor.demos = predictor.demos * 5
    save(program, tmp_path / "a")
    load(tmp_path / "a", retriever=search)
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        load(tmp_path / "a", retriever=search, k=8)
        taken.append(time.perf_counter() - start)
    assert sorted(taken)[2] < 0.2  # about 0.02 on an idle core


def test_threads_may_load_at_once(tmp_path: Path) -> None:
    program = compiled(GraphAnchor(search))
    save(program, tmp_path / "a")

    def demos_and_instructions(_: int) -> str:
        loaded = load(tmp_path / "a", retriever=search)
        return str([(p.demos, p.signature.instructions) for p in loaded.predictors()])

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(demos_and_instructions, range(40)))) == 1


LOAD_ALONE = """
import sys

for name in ("mlflow", "torch", "faiss", "datasets", "lightgbm", "sentence_transformers"):
    sys.modules[name] = None  # importing it fails
import dspy
from ga_dspy.artifact import load
from ga_dspy.testing import scripted_lm

program = load(sys.argv[1], retriever=lambda query, k: ["Montana | Its capital is Helena."])
reply = {"verdict": "answered", "links": "[1]", "answer": "Helena"}
with dspy.context(lm=scripted_lm([reply])):
    print(program(question="What is the capital of Montana?").answer)
"""


def test_loading_and_asking_need_only_the_core_dependencies(tmp_path: Path) -> None:
    save(compiled(VanillaRAG(search)), tmp_path / "a")
    command = [sys.executable, "-c", LOAD_ALONE, str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout.split() == ["Helena"], done.stderr


def test_ordinary_english_is_not_mistaken_for_a_secret(tmp_path: Path) -> None:
    program = VanillaRAG(search)
    text = "The bearer of the token gave authorization; the risk-averse secret was the password."
    program.answer.demos = [dspy.Example(question=text, passages=string.printable, answer="yes")]
    assert verify(save(program, tmp_path / "a")) == ""
