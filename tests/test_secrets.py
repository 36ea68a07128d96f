"""A key in every place that may hold one: what is written, tracked or printed has none of them."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage, VanillaRAG
from ga_dspy.artifact import SecretFound, save
from ga_dspy.cli import main
from ga_dspy.errors import InputError
from ga_dspy.eval import Result, protocol_of, run
from ga_dspy.optimize import compile, recipe
from ga_dspy.secrets import secrets_of, withheld, without
from ga_dspy.testing import scripted_lm

OF_THE_LM = "lmkey-7f3q9zPLANTED"
IN_A_HEADER = "header-55xPLANTED"
IN_THE_ENVIRONMENT = "envkey-81ymPLANTED"
OF_AZURE = "azure-19qvPLANTED"
IN_A_PROXY = "proxy-46pwPLANTED"
OF_THE_TRACKER = "tracker-20jkPLANTED"
PLANTED = (
    OF_THE_LM, IN_A_HEADER, IN_THE_ENVIRONMENT, OF_AZURE, IN_A_PROXY, OF_THE_TRACKER,
)  # fmt: skip

ODD = 'quote"back\\slash-é'
PASSAGE = Passage(id="1", title="Carbon County", text="Carbon County lies in Montana.")
QUESTIONS = [
    {"id": str(n), "question": f"Where does county {n} lie?", "answer": "Montana"}
    for n in range(20)
]


class Echo(BaseHTTPRequestHandler):
    """Repeats all that it was sent, in every answer, and in an error to some questions."""

    asked = failed = 0

    def do_POST(self) -> None:
        prompt = self.rfile.read(int(self.headers["Content-Length"])).decode()
        failing = "county 3 " in prompt or "county 13 " in prompt
        Echo.asked, Echo.failed = Echo.asked + 1, Echo.failed + failing
        said = f"You sent {dict(self.headers.items())}, I know {' '.join(PLANTED[2:5])}"
        fields = {
            "additions": "none", "reasoning": said, "judgement": "sufficient",
            "candidate": "Montana", "next_query": "", "links": f"{said} [1]",
            "verdict": "answered", "answer": "Montana",
        }  # fmt: skip
        text = "".join(f"[[ ## {name} ## ]]\n{value}\n" for name, value in fields.items())
        choice = {"index": 0, "finish_reason": "stop"}
        body: dict[str, Any] = {
            "id": "x", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{**choice, "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
        }  # fmt: skip
        if failing:
            body = {"error": {"message": said, "type": "invalid_request_error"}}
        sent = json.dumps(body).encode()
        self.send_response(400 if failing else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that echoes; the environment is full of keys."""
    monkeypatch.setattr(Echo, "asked", 0)
    monkeypatch.setattr(Echo, "failed", 0)
    monkeypatch.setenv("OPENAI_API_KEY", IN_THE_ENVIRONMENT)
    monkeypatch.setenv("AZURE_OPENAI_KEY", OF_AZURE)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("STORE", f"postgresql://ann:{IN_A_PROXY}@10.0.0.1/x")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run the command line as a shell would; errors that it knows end it, and are printed."""
    monkeypatch.setattr(sys, "argv", ["ga-dspy", *arguments])
    with pytest.raises(SystemExit):
        main()


def held(folder: Path, printed: str) -> set[tuple[str, str]]:
    """Which planted keys stand where: in files, in cells of databases, in what was printed."""
    texts = {"the terminal": printed.encode()}
    for path in folder.rglob("*"):
        if path.is_file():
            texts[str(path.relative_to(folder))] = path.read_bytes()
        if path.suffix in (".sqlite", ".db"):
            with sqlite3.connect(path) as database:
                texts[f"{path.name}, dumped"] = "\n".join(database.iterdump()).encode()
            database.close()
    return {(key, name) for key in PLANTED for name, text in texts.items() if key.encode() in text}


def test_planted_keys_are_never_written_tracked_or_printed(
    address: str,
    tables: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copyfile(tables, tmp_path / "mlflow.db")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.jsonl").write_text(PASSAGE.model_dump_json())
    for name, rows in (("train", QUESTIONS[:8]), ("test", QUESTIONS[8:])):
        (tmp_path / f"{name}.json").write_text(json.dumps([{**row, "_id": row["id"], "context": [],
            "supporting_facts": [], "type": "x", "level": "easy"} for row in rows]))  # fmt: skip
    command(monkeypatch, "index", "build", "corpus.jsonl", "--out", "index", "--kind", "sparse")
    lm = ("--index", "index", "--lm", "openai/m", "--api-base", address)
    for question in ("Where does Carbon County lie?", "Where does county 3 lie?"):
        for form in ((), ("--json",)):
            command(monkeypatch, "ask", question, *lm, *form)
    store = f"http://ann:{OF_THE_TRACKER}@127.0.0.1:9"
    command(monkeypatch, "eval", "--dataset", "hotpotqa", "--data", "test.json", *lm,
            "--out", "run", "--track", store)  # fmt: skip
    command(monkeypatch, "compile", "--dataset", "hotpotqa", "--train", "train.json",
            "--validation", "4", "--test", "test.json", *lm, "--out", "artifact",
            "--recipe", "bootstrap-rs", "--set", "candidates=2", "--yes")  # fmt: skip

    examples = [dspy.Example(**row).with_inputs("question") for row in QUESTIONS]
    model = dspy.LM(
        "openai/m", api_base=address, api_key=OF_THE_LM, cache=False, num_retries=0, timeout=10,
        extra_headers={"X-Api-Key": IN_A_HEADER},
    )  # fmt: skip
    program = VanillaRAG(lambda query, k: [PASSAGE])
    with dspy.context(lm=model):
        protocol = protocol_of(
            program, examples, name="x", dataset="x", source="x", lm=model,
        )  # fmt: skip
        report = run(program, examples, out=tmp_path / "library", protocol=protocol)
    sys.stdout.write(str(report.failed))
    printed = "".join(capfd.readouterr())
    assert Echo.asked > 60
    assert Echo.failed > 6
    assert len(report.failed) == 2
    assert "You sent" in printed
    assert (tmp_path / "artifact" / "program.json").is_file()
    assert (tmp_path / "artifact" / "run" / "ledger.sqlite").is_file()
    assert (tmp_path / "mlflow.db").read_bytes() != tables.read_bytes()
    assert held(tmp_path, printed) == set()


def test_keys_of_the_environment_and_of_lms_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOGETHER_API_KEY", IN_THE_ENVIRONMENT)
    reflection = dspy.LM("openai/m", api_key=OF_THE_LM)
    for secret in (IN_THE_ENVIRONMENT, OF_THE_LM):
        program = VanillaRAG(lambda query, k: [])
        program.answer.demos = [dspy.Example(question=f"Is it {secret}?", answer="yes")]
        with pytest.raises(SecretFound) as caught:
            save(program, tmp_path / "artifact", lms={"reflection": reflection})
        assert secret not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    ["http://ann:hunter2xyz@127.0.0.1:9/v1", "http://hunter2xyz@127.0.0.1:9", "http://x/v1?k=hunter2xyz"],
    ids=["user and password", "a token as user", "a query"],
)  # fmt: skip
def test_an_address_with_a_password_is_refused_before_anything_is_written(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    lm = dspy.LM("openai/m", api_base=address, api_key="none")
    program = VanillaRAG(lambda query, k: [PASSAGE])
    examples = [dspy.Example(**row).with_inputs("question") for row in QUESTIONS]
    with pytest.raises(InputError, match="has a user, a password or a query") as caught:
        protocol_of(program, examples, name="x", dataset="x", source="x", lm=lm)
    with pytest.raises(InputError, match="has a user, a password or a query"):
        compile(program, recipe("labeled"), examples[:5], examples[5:], out="a", lm=lm)
    command(monkeypatch, "ask", "Who?", "--index", "i", "--lm", "openai/m", "--api-base", address)
    command(monkeypatch, "ask", "Who?", "--index", "i", "--api-base", address)
    assert "hunter2xyz" not in str(caught.value) + "".join(capsys.readouterr())
    assert list(tmp_path.iterdir()) == []


B64 = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{B64}\n{B64}\n-----END RSA PRIVATE KEY-----"
LOOKS: dict[str, str] = {  # a text with a secret, and the secret
    "401: api_key=9f8e7d6c5b4aQQ rejected": "9f8e7d6c5b4aQQ",
    '{"api_key": "correct horse staple"}': "horse",
    '{"error": "{\\"api_key\\": \\"9f8e7d6c5b4a\\"}"}': "9f8e7d6c5b4a",
    "OPENAI_API_KEY: 9f8e7d6c5b4a": "9f8e7d6c5b4a",
    "myApiKey='9f8e7d6c5b4a'": "9f8e7d6c5b4a",
    "the API key: 9f8e7d6c5b4a": "9f8e7d6c5b4a",
    "x-api-key: abcdefghijkl": "abcdefghijkl",
    "x-goog-api-key: abcdefghijkl": "abcdefghijkl",
    "password=hunter22": "hunter22",
    "DB_PASSWORD: hunter22": "hunter22",
    "client_secret => hunter22x": "hunter22x",
    "access_token=abcdefgh": "abcdefgh",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalr",
    "AKIAIOSFODNN7EXAMPLE": "AKIA",
    "ASIAIOSFODNN7EXAMPLE": "ASIA",
    f"AIza{'Sy0' * 11}ab": "AIza",
    "ya29.a0AfH6SMBx-abcdefghijklmnop": "ya29",
    "AccountName=x;AccountKey=Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA==;": "Zm9v",
    "https://x.blob.core.windows.net/c?sv=2020&sig=Zm9vYmFyYmF6cXV4MTIz": "Zm9v",
    "hf_abcdefghijklmnopqrstuv": "hf_",
    "ghp_abcdefghijklmnopqrstuv": "ghp_",
    "xoxb-1234567890-abcdefg": "xoxb",
    "xapp-1-A0123456789-abcdefg": "xapp",
    "https://hooks.slack.com/services/T000/B000/XXXXXXXX": "B000",
    "Authorization: Bearer abc": "abc",
    "Authorization: Basic dXNlcjpwYXNz": "dXNl",
    "'Authorization': 'Token 9f8e7d6c'": "9f8e",
    "Authorization: Digest username=ann, response=9f8e7d6c5b4a": "9f8e",
    "Proxy-Authorization: Negotiate YIIabc": "YIIabc",
    "Authorization: AWS4-HMAC-SHA256 Credential=x/y, Signature=9f8e7d": "9f8e7d",
    "sent Bearer abcdefghijklmnopqrst": "abcdefghij",
    "Set-Cookie: session=9f8e7d6c5b4a; Path=/": "9f8e",
    "GET /v1?key=9f8e7d6c5b4aQQ HTTP/1.1": "9f8e",
    "https://ann:secret7@host/v1": "secret7",
    "redis://:secret7@host/0": "secret7",
    "https://9f8e7d6c5b4aQQ@host/v1": "9f8e",
    f"could not read {PEM} at all": B64,
    json.dumps({"private_key": PEM}): B64,
    PEM[:150]: B64,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl": "eyJ",
}


@pytest.mark.parametrize("text", LOOKS)
def test_text_that_looks_like_a_secret_is_withheld(text: str) -> None:
    shown = withheld(text)
    assert LOOKS[text] not in shown and "(withheld)" in shown
    assert withheld(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "the key = to success",
        "a token budget of 5,000",
        "max_tokens=5000, key=value, sort key: year",
        "commit f934fab0c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6 mends it",
        "sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "The access token: whoever holds it may enter.",
        "password: required",
        "The password is long.",
        "Basic understanding of the bearer of the ring",
        "An author's authority, an authorization by the king",
        "https://medium.com/@ann/a-story-2020?page=2&lang=en",
        "ann@example.org wrote to bob@example.org at 12:30",
        "-----BEGIN CERTIFICATE-----",
        "The Private Key is a novel of 1999; its heroine hides a private key.",
        "Cookie: a small cake; token: a coin of 1850",
        "risk-averse desk-based task-oriented",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert withheld(text) == text


def test_ordinary_values_of_secret_settings_are_not_withheld(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "DB_PASSWORD": "password",
        "MY_TOKEN": "none",
        "X_KEY": "Placeholder",
    }.items():
        monkeypatch.setenv(name, value)  # fmt: skip
    lm = dspy.LM("openai/m", api_key="none", extra_headers={"X-Title": "Wikipedia, 2025"})
    assert not secrets_of([lm]) & {"password", "none", "Placeholder", "Wikipedia, 2025"}
    text = "Set OPENAI_API_KEY=… or pass api_base=…: the password was none (mailto:ann@x.org)."
    assert withheld(text, [lm]) == text


def test_a_key_is_recognised_as_soon_as_it_is_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ODD not in secrets_of()
    monkeypatch.setenv("ODD_API_KEY", ODD)
    assert ODD in secrets_of()
    monkeypatch.delenv("ODD_API_KEY")
    assert ODD not in secrets_of()


def test_each_of_several_keys_in_one_variable_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GA_DSPY_API_KEY", f"{ODD}-one, {ODD}-two")
    assert withheld(f"{ODD}-two, then {ODD}-one") == "(withheld), then (withheld)"


def test_withholding_a_key_leaves_valid_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_API_KEY", ODD)
    text = json.dumps({"error": f"it was {ODD}!"})
    assert json.loads(next(without(secrets_of(), [text]))) == {"error": "it was (withheld)!"}


def test_a_recorded_failure_withholds_an_unknown_key() -> None:
    refused = dspy.LMError(f"{'x' * 470} key sk-abcdefghijklmnopqrst was refused")
    failed = Result.from_failure(dspy.Example(id="1", question="Who?", answer="Ann"), refused)
    assert failed.error is not None
    assert "sk-" not in failed.error


def test_a_step_failure_shows_no_key_to_the_app() -> None:
    def search(query: str, k: int) -> list[Passage]:
        if query != QUESTIONS[0]["question"]:
            raise ConnectionError("401 for key sk-abcdefghijklmnopqrst")
        return [PASSAGE]

    replies = [
        {"additions": "none", "reasoning": "r", "judgement": "insufficient", "candidate": "",
         "next_query": "Carbon County"},
        {"verdict": "answered", "answer": "Montana", "links": "[1]"},
    ]  # fmt: skip
    with dspy.context(lm=scripted_lm(replies)):
        prediction = GraphAnchor(search)(question=QUESTIONS[0]["question"])
    assert prediction.answer == "Montana"
    assert "401 for key (withheld)" in prediction.failures[0]
