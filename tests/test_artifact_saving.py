"""Saving an artifact writes no secret and no half file, and replaces nothing by default."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from ga_dspy.artifact import (
    PROGRAMS,
    SecretFound,
    load,
    register,
    save,
    show,
)
from ga_dspy.errors import ArtifactError, InputError, RunAborted
from ga_dspy.passage import Passage
from ga_dspy.programs import GraphAnchor, VanillaRAG

SECRETS = {
    "an OpenAI key": "sk-proj-abcdEFGH1234ijklMNOP",
    "a Hugging Face token": "hf_abcdefghijklmnopqrstuvwx",
    "a GitHub token": "ghp_abcdefghijklmnopqrstuvwx1234",
    "an AWS key": "AKIAABCDEFGHIJKLMNOP",
    "a Google key": "AIza" + "a" * 35,
    "a Slack token": "xoxb-1234567890-abcdef",
    "a header": "Authorization: Basic dXNlcjpwYXNz",
    "a bearer": "curl -H 'bearer abcdefghij0123456789'",
    "an address": "api_base http://10.0.0.7:8000/v1",
    "a key by name": "OPENAI_API_KEY=abc123",
    "a JSON key": '{"api_key": "abc123"}',
    "a web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----",
    "a database": "postgres://ann:hunter2@db.internal/app",
}


def search(query: str, k: int) -> list[Passage]:
    return []


def demo(**values: Any) -> VanillaRAG:
    program = VanillaRAG(search)
    program.answer.demos = [dspy.Example(**{"question": "Who?", "answer": "Ann"} | values)]
    return program


def refused(tmp_path: Path, program: VanillaRAG, secret: str, **told: Any) -> str:
    with pytest.raises(SecretFound) as caught:
        save(program, tmp_path / "a", **told)
    assert not (tmp_path / "a").exists()
    assert secret not in str(caught.value)
    return caught.value.where


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_in_a_demo_is_refused(tmp_path: Path, secret: str) -> None:
    program = demo(passages=f"Once upon a time: {secret} and so on.")
    assert refused(tmp_path, program, secret) == "program.json.answer.demos[0].passages"


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_in_the_instructions_is_refused(tmp_path: Path, secret: str) -> None:
    program = VanillaRAG(search)
    program.answer.signature = program.answer.signature.with_instructions(f"Use {secret}.")
    assert refused(tmp_path, program, secret) == "program.json.answer.signature.instructions"


def test_a_secret_in_a_field_description_is_refused(tmp_path: Path) -> None:
    program, secret = VanillaRAG(search), SECRETS["an OpenAI key"]
    program.answer.signature = program.answer.signature.with_updated_fields("answer", desc=secret)
    assert refused(tmp_path, program, secret).startswith("program.json.answer.signature.fields")


@pytest.mark.parametrize(
    "key",
    ["api_key", "OPENAI_API_KEY", "api_base", "base_url", "Authorization", "extra_headers",
     "model_list", "access_token", "db-password"],
)  # fmt: skip
def test_a_manifest_key_that_names_a_secret_is_refused(tmp_path: Path, key: str) -> None:
    recipe = {"name": "bootstrap", "parameters": {"reflection": [{key: "anything"}]}}
    where = refused(tmp_path, VanillaRAG(search), "anything", recipe=recipe)
    assert where == f"manifest.json.recipe.parameters.reflection[0].{key}"


def test_a_secret_in_the_description_of_data_is_refused(tmp_path: Path) -> None:
    data = {"train": {"source": SECRETS["a database"]}}
    assert refused(tmp_path, VanillaRAG(search), "hunter2", data=data).startswith("manifest.json")


def test_the_key_of_the_lm_in_use_is_refused_whatever_it_looks_like(tmp_path: Path) -> None:
    program = demo(passages="the magic word is xyzzy-plugh-42, said the cave")
    program.set_lm(dspy.LM("openai/gpt-4o-mini", api_key="xyzzy-plugh-42"))
    refused(tmp_path, program, "xyzzy-plugh-42")


def test_the_address_of_the_configured_lm_is_refused(tmp_path: Path) -> None:
    address = "http://inference.internal:8000/v1"
    program = demo(passages=f"served from {address}")
    lm = dspy.LM("openai/x", api_base=address, api_key="none")
    with dspy.context(lm=lm):
        refused(tmp_path, program, address)


def test_only_the_names_of_lms_with_keys_are_saved(tmp_path: Path) -> None:
    program = demo()
    lm = dspy.LM("openai/x", api_key="xyzzy-plugh-42", api_base="http://inference.internal/v1")
    program.set_lm(lm)
    save(program, tmp_path / "a", lms={"task": lm})
    written = "".join(file.read_text("utf-8") for file in (tmp_path / "a").iterdir())
    assert "xyzzy" not in written
    assert "inference.internal" not in written
    assert '"task": "openai/x"' in written


def test_an_address_is_refused_as_a_model_name(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="an address as the name of an LM"):
        save(VanillaRAG(search), tmp_path / "a", lms={"task": "http://localhost:8000/v1"})


def test_an_artifact_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    save(VanillaRAG(search, k=3), tmp_path / "a")
    with pytest.raises(ArtifactError, match="overwrite=True"):
        save(VanillaRAG(search, k=4), tmp_path / "a")
    assert show(tmp_path / "a").manifest.settings["k"] == 3
    save(VanillaRAG(search, k=4), tmp_path / "a", overwrite=True)
    assert show(tmp_path / "a").manifest.settings["k"] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_other_files_in_the_folder_are_unchanged(tmp_path: Path) -> None:
    save(VanillaRAG(search), tmp_path / "a")
    (tmp_path / "a" / "thesis.txt").write_text("years of work")
    save(VanillaRAG(search, k=4), tmp_path / "a", overwrite=True)
    assert load(tmp_path / "a", retriever=search).k == 4
    assert (tmp_path / "a" / "thesis.txt").read_text() == "years of work"


def test_a_file_is_never_replaced_by_an_artifact(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="file is taken; expected a free path"):
        save(VanillaRAG(search), tmp_path / "file", overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"


def test_saving_accepts_an_empty_folder_and_creates_parents(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "deep" / "er" / "a"):
        assert load(save(VanillaRAG(search), path), retriever=search).settings()["k"] == 5


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("there_before", [True, False])
def test_a_failed_write_leaves_the_old_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, there_before: bool
) -> None:
    if there_before:
        save(VanillaRAG(search, k=3), tmp_path / "a")
    calls: list[int] = []

    def full_disk(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == failing:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(RunAborted, match="No space left"):
            save(VanillaRAG(search, k=4), tmp_path / "a", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == (["a"] if there_before else [])
    if there_before:
        assert load(tmp_path / "a", retriever=search).settings()["k"] == 3


KILLED = """
import os, sys

calls = []

def killed(descriptor):
    calls.append(descriptor)
    if len(calls) == 2:
        os._exit(9)  # the second file is being written

os.fsync = killed
from ga_dspy.artifact import save
from ga_dspy.programs import VanillaRAG

save(VanillaRAG(lambda query, k: []), sys.argv[1])
"""


def test_a_process_killed_between_the_files_leaves_no_half_artifact(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 9, done.stderr
    assert not (tmp_path / "a").exists()
    save(VanillaRAG(search), tmp_path / "a")


def test_lm_settings_on_a_predictor_are_refused_rather_than_dropped(tmp_path: Path) -> None:
    program = VanillaRAG(search)
    program.answer.update_config(temperature=0.7)
    with pytest.raises(ArtifactError, match=r"the settings of predictor 'answer' \(.'temperature'"):
        save(program, tmp_path / "a")


class Anything:
    """What JSON has no form for."""

    def __repr__(self) -> str:
        return "Anything()"


@pytest.mark.parametrize("value", [Anything(), "\ud800", math.nan], ids=["object", "half", "nan"])
def test_a_demo_that_json_cannot_hold_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ArtifactError, match="cannot be saved"):
        save(demo(passages=value), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


class Citation(BaseModel):
    title: str


class AnswerFromAnything(dspy.Signature):
    """Answer."""

    question: str = dspy.InputField()
    passages: Any = dspy.InputField()
    answer: str = dspy.OutputField()


def test_a_demo_whose_prompt_would_change_by_saving_is_refused(tmp_path: Path) -> None:
    value = Citation(title="a")
    program = GraphAnchor(search, answer_with=AnswerFromAnything)
    program.answer.demos = [dspy.Example(question="Who?", passages=value, answer="Ann")]
    with pytest.raises(ArtifactError, match="'answer', whose prompt under"):
        save(program, tmp_path / "a")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"answer": {"name": "Ann"}}, "demo 1 of predictor 'answer' has answer: "),
        ({"question": None}, "demo 1 of predictor 'answer' has question: "),
        ({"passages": "<<CUSTOM-TYPE-START-IDENTIFIER>>"}, "has DSPy's marker of an image"),
        ({"passages": "x" * 2**25}, "program.json has more than 32 MB"),
    ],
    ids=["a dict for a text", "null for a text", "a mark of DSPy's", "33 MB"],
)
def test_a_demo_that_load_would_refuse_is_not_saved(
    tmp_path: Path, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(ArtifactError, match=says):
        save(demo(**values), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_demo_that_no_prompt_shows_is_left_out(tmp_path: Path) -> None:
    program = demo()
    program.answer.demos += [dspy.Example(question="No answer?"), dspy.Example(answer="To what?")]
    save(program, tmp_path / "a")
    assert len(show(tmp_path / "a").predictors["answer"].demos) == 1


def test_a_program_whose_fields_were_changed_would_not_load_and_is_not_saved(
    tmp_path: Path,
) -> None:
    program = VanillaRAG(search)
    program.answer.signature = program.answer.signature.append("mood", dspy.OutputField(), str)
    with pytest.raises(ArtifactError, match="mood"):
        save(program, tmp_path / "a")


class Variant(GraphAnchor):
    """Not GraphAnchor, though it is one."""


def test_an_unregistered_subclass_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="'Variant' is unknown"):
        save(Variant(search), tmp_path / "a")


def test_a_class_name_can_be_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ga_dspy.artifact.PROGRAMS", dict(PROGRAMS))
    assert register(Variant) is Variant
    assert register(Variant) is Variant
    impostor = type("GraphAnchor", (Variant,), {})
    with pytest.raises(InputError, match="'GraphAnchor' is already registered"):
        register(impostor)


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"scores": [3.0]}, "scores: Input should be"),
        ({"recipe": "bootstrap"}, "recipe: Input should be"),
        ({"data": {"train": {"rows": {1}, "of": Anything()}}}, "cannot be saved"),
    ],
    ids=str,
)
def test_provenance_that_is_not_json_is_refused(
    tmp_path: Path, told: dict[str, Any], error: str
) -> None:
    with pytest.raises(ArtifactError, match=error):
        save(VanillaRAG(search), tmp_path / "a", **told)
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_predictor_s_own_lm_is_saved_and_requested_on_loading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = VanillaRAG(lambda query, k: [])
    program.answer.lm = dspy.LM("openai/m", temperature=0.3, api_key="sk-" + 20 * "x")
    path = save(program, tmp_path / "a", lms={"task": "openai/n"})
    assert show(path).manifest.predictor_lms == {"answer": "openai/m"}
    assert "sk-" not in (path / "manifest.json").read_text() + (path / "program.json").read_text()
    plain = load(path, retriever=lambda query, k: [])
    assert plain.answer.lm is None
    assert "'answer' was saved with its own LM (openai/m)" in caplog.text
    caplog.clear()
    lm = dspy.LM("openai/m")
    assert load(path, retriever=lambda query, k: [], lms={"answer": lm}).answer.lm is lm
    assert not caplog.text
    with pytest.raises(InputError, match="an LM for the step 'read'; expected one of answer"):
        load(path, retriever=lambda query, k: [], lms={"read": lm})
