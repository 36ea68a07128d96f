"""Personal data is taken out of documents before it is indexed, read by an LM or logged."""

from __future__ import annotations

import io
import json
import logging
import pickle
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from email.message import EmailMessage
from pathlib import Path

import dspy
import pytest

from ga_dspy import Index, VanillaRAG, extractive_lm
from ga_dspy.cli import main
from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.passage import Metadata, Passage
from ga_dspy.retrieval import read_files
from ga_dspy.retrieval.redact import PRESIDIO, load_redactor

ENCODER = "hash-64"
SECRETS = ("jorunn", "vikeby", "torleif", "haugane", "22 33 44")
NAME = f"{__name__}:redact"
_CONTACT = re.compile(r"[\w.]+@[\w.]+\w|\+47[\d ]+\d")
_NAME = re.compile(r"Jorunn Vikeby|Torleif Haugane")


def redact(text: str) -> str:
    """Replace e-mail addresses, phone numbers and two names."""
    return _NAME.sub("[name]", _CONTACT.sub("[contact]", text))


def fail(text: str) -> str:
    raise ValueError(text)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Documents with personal data in each place that a document has."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "bridge.md").write_text(
        "---\nauthor: Jorunn Vikeby\ncontacts: [jorunn@vikeby.example, +47 22 33 44 55]\n---\n"
        "# The bridge of Jorunn Vikeby\n\nNils Haug designed the bridge. She owns it.\n"
    )
    (docs / "broken.md").write_text("---\nby: Jorunn Vikeby: jorunn@vikeby.example\n---\nThe toll.")
    mail = EmailMessage()
    mail["Subject"], mail["From"] = "A letter of Jorunn Vikeby", "jorunn@vikeby.example"
    mail.set_content("The harbour is deep.")
    mail.add_attachment(b"-", "application", "pdf", filename="Jorunn Vikeby.pdf")
    (docs / "mail.eml").write_bytes(bytes(mail))
    (docs / "people.csv").write_text(
        "title,text,phone\nJorunn Vikeby,She paints.,+47 22 33 44 55\n"
        "Torleif Haugane,He is the mayor.,none\nJorunn Vikeby,She sings.,+47 22 33 44 55\n"
    )
    lines = "\n".join(f"Jorunn Vikeby,jorunn@vikeby.example,{n}" for n in range(300))
    (docs / "table.csv").write_text(f"Name of Jorunn Vikeby,Mail,Number\n{lines}\n")
    return docs


def secrets_in(folder: Path) -> list[str]:
    """The personal data in the bytes of a folder's files, by file."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    return [
        f"{file.name}: {secret}"
        for file in files
        for secret in SECRETS
        if secret.encode() in file.read_bytes().lower()
    ]


def run(*words: str | Path) -> tuple[int, str]:
    """Run `ga-dspy index` in this process; return its exit code, and what it printed."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(out):
        patch.setattr(sys, "argv", ["ga-dspy", "index", *map(str, words)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_redacted_data_is_in_no_file_and_no_log_of_an_index(
    docs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ga_dspy")
    out, extra = tmp_path / "index", tmp_path / "extra.md"
    code, printed = run("build", docs, "--out", out, "--encoder", ENCODER, "--redact", NAME)
    assert code == 0, printed
    assert "broken.md: in part" in printed and "attachments not read: [name].pdf" in printed
    assert f"redacted by {NAME}" in printed
    (docs / "more.txt").write_text("Jorunn Vikeby has the number +47 22 33 44 55.")
    extra.write_text("# Torleif Haugane\n\nHe is at torleif@haugane.example.")
    for words in (["sync"], ["add", str(extra)]):
        code, more = run(*words, "--index", out, "--redact", NAME)
        assert code == 0, more
        printed += more
    index = Index.open(out, redact=redact)
    metadata = {"author": "Jorunn Vikeby", "tags": ["Torleif Haugane"], "page": 3}
    title, text = "Jorunn Vikeby", "Ask jorunn@vikeby.example."
    index.add([{"id": "Jorunn Vikeby#1", "title": title, "text": text, "metadata": metadata}])
    index.upsert([{"title": "Torleif Haugane", "text": "He lives in Oslo."}])
    assert secrets_in(out) == []
    assert not any(secret in f"{printed}{caplog.text}".lower() for secret in SECRETS)
    by_text = {passage.text: passage for passage in index}
    assert by_text["He is at [contact]."].title == "[name]"
    assert by_text["Ask [contact]."].id.startswith("[name] [")
    assert by_text["Ask [contact]."].metadata == {
        "author": "[name]",
        "tags": ("[name]",),
        "page": 3,
    }
    bridge = index.get("bridge.md")
    assert bridge.source == "bridge.md"
    assert bridge.metadata["contacts"] == ("[contact]", "[contact]")
    tables = [p.text for p in index if p.metadata.get("source") == "table.csv"]
    assert len(tables) > 1
    assert all(text.startswith("Name of [name] | Mail | Number\n") for text in tables)
    changes = index.sync(read_files([docs, extra], redact=redact))
    assert changes.changed == () and len(changes.removed) == 2


def test_redacted_data_is_in_no_prompt_and_no_file_of_a_graph(docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("igraph")
    from ga_dspy.graphrag import build_graph

    found = read_files([docs / "bridge.md", docs / "people.csv"], redact=redact)
    index = Index.build(found, tmp_path / "index", encoder=ENCODER, redact=redact)
    lm = extractive_lm()
    build_graph(index, tmp_path / "graph", lm=lm)
    with dspy.context(lm=lm):
        VanillaRAG(index)(question="Who designed the bridge?")
    prompts = json.dumps([call["messages"] for call in lm.history]).lower()
    assert "the bridge of [name]" in prompts
    assert not any(secret in prompts for secret in SECRETS)
    assert secrets_in(tmp_path / "graph") == []


def test_an_imported_graph_is_redacted_as_its_index_is(tmp_path: Path) -> None:
    pytest.importorskip("igraph")
    from ga_dspy.graph import Entity, Evidence, GraphUpdate
    from ga_dspy.graphrag import import_graph, record_passages

    out, graph = tmp_path / "index", tmp_path / "graph"
    stated = {"head": "Jorunn Vikeby", "relation": "knows", "tail": "Torleif Haugane of Oslo"}
    rows = [
        {**stated, "head_id": "x:1", "tail_aliases": ["Torleif Haugane"]},
        {**stated, "text": "Ask jorunn@vikeby.example.", "note": "+47 22 33 44 55"},
    ]
    made = import_graph(rows, index=out, out=graph, redact=redact)
    assert set(made.graph.graph.names) == {"name", "name of oslo", "x 1"}
    assert len(import_graph(rows, index=out, out=graph, redact=redact).changes.unchanged) == 2
    assert secrets_in(out) == secrets_in(graph) == []
    with pytest.raises(InputError, match="which was not given"):
        import_graph(rows, index=out, out=graph)
    with pytest.raises(InputError, match=r"1 bad row.*no tail") as error:
        import_graph([{"head": "Jorunn Vikeby", "relation": "x"}], index=out, out=graph,
                     redact=redact)  # fmt: skip
    assert "Jorunn" not in str(error.value)
    place = Evidence(passage="p", start=0, end=3)
    update = GraphUpdate(entities=(Entity(name="Jorunn Vikeby", evidence=(place,)),))
    with pytest.raises(InputError, match="its facts are not redacted"):
        record_passages(Index.open(out, redact=redact), graph,
                        {Passage(id="p", text="She paints."): update})  # fmt: skip
    assert secrets_in(out) == secrets_in(graph) == []


def test_documents_uploaded_over_http_are_redacted_or_refused(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from ga_dspy.serve import Key, Service, make_app

    def client(index: Index) -> TestClient:
        where = {"tenant": "Jorunn Vikeby"}  # a condition sets metadata, which stay as they are
        key = Key.of(b"a-key-that-may-write", where=where, rights={"ask", "write"})
        app = make_app(Service(VanillaRAG(index)), keys=[key], is_open=True)
        return TestClient(app, headers={"X-API-Key": "a-key-that-may-write"})

    out, text = tmp_path / "index", "Ask Torleif Haugane at torleif@haugane.example."
    Index.build([{"text": "The toll is 3.", "tenant": "b"}], out, kind="sparse", redact=redact)
    document = {"id": "a.md", "title": "By Torleif Haugane", "text": text, "metadata": {"by": text}}
    refused = client(Index.open(out)).post("/documents", json=document)
    assert refused.status_code == 400 and NAME in refused.json()["detail"]
    to = client(Index.open(out, redact=redact))
    added = to.post("/documents", json=document)
    assert added.status_code == 201, added.text
    file = {"file": ("a.md", f"---\nby: {text}\n---\n# Torleif Haugane\n\n{text}".encode())}
    more = {"metadata": json.dumps({"to": "Torleif Haugane"})}
    for title in ("By [name]", "[name]"):
        (found,) = to.post("/search", json={"query": "ask name contact"}).json()
        assert (found["title"], found["text"]) == (title, "Ask [name] at [contact].")
        assert found["metadata"]["by"] == "Ask [name] at [contact]."
        assert to.post("/documents", files=file, data=more).status_code == 201
    assert found["metadata"]["to"] == "[name]"
    assert {secret.rpartition(": ")[2] for secret in secrets_in(out)} == {"jorunn", "vikeby"}


def test_without_its_redactor_an_index_can_be_searched_but_not_extended(
    docs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "index"
    Index.build(["The toll is 3."], out, encoder=ENCODER, redact=redact)
    index = Index.open(out)
    assert index("toll", 1)
    for change in (index.add, index.upsert, index.sync):
        with pytest.raises(InputError, match=f"redacted by {NAME}, which was not given"):
            change(["A letter of Jorunn Vikeby."])
    for words in (["add", str(docs)], ["sync", str(docs), "--yes"]):
        code, printed = run(*words, "--index", out)
        assert code == 2 and "--redact module:function" in printed
    assert len(Index.open(out)) == 1
    with pytest.raises(InputError, match=f"was built with {NAME}"):
        Index.open(out, redact=str.upper)
    with pytest.raises(InputError, match="already holds another index"):
        Index.build(["The toll is 3."], out, encoder=ENCODER)
    Index.build(["Plain."], tmp_path / "plain", encoder=ENCODER)
    with pytest.raises(InputError, match="was built with none"):
        Index.open(tmp_path / "plain", redact=redact)


def test_a_function_named_in_the_manifest_is_never_imported(tmp_path: Path) -> None:
    out = tmp_path / "index"
    Index.build(["The toll is 3."], out, encoder=ENCODER, redact=redact)
    manifest = out / "manifest.json"
    manifest.write_text(manifest.read_text().replace(NAME, "subprocess:getoutput"))
    with pytest.raises(InputError, match="subprocess:getoutput, which was not given"):
        Index.open(out).add([f"touch {tmp_path}/run"])
    assert not (tmp_path / "run").exists()


def test_a_forged_redaction_mark_does_not_skip_redaction(tmp_path: Path) -> None:
    index = Index.from_passages(["The toll is 3."], encoder=ENCODER, redact=redact)
    forged = {"text": "By Jorunn Vikeby.", "redacted_by": NAME, "metadata": {"redacted_by": NAME}}
    index.add([forged])
    index.add(read_files(_file(tmp_path, "By Torleif Haugane.")))
    texts = sorted(passage.text for passage in index)
    assert texts == ["By [name].", "By [name].", "The toll is 3."]


def test_a_truncated_metadata_value_keeps_no_partial_address() -> None:
    redactor = load_redactor(redact)
    assert redactor is not None
    long = Metadata({"by": "word " * 198 + "jorunn@vikeby.example", "at": Path("Jorunn Vikeby")})
    assert long["by"] == "word " * 198 + "jorunn@vik"
    assert redactor.metadata(long) == {"by": "word " * 197 + "word", "at": "[name]"}
    assert redactor.metadata({"at": Path("Jorunn Vikeby")}) == {"at": "[name]"}


def test_redacted_files_are_not_redacted_again(docs: Path) -> None:
    calls: list[str] = []

    def counting(text: str) -> str:
        calls.append(text)
        return redact(text)

    found = read_files(docs, redact=counting)
    count = len(calls)
    index = Index.from_passages(found, encoder=ENCODER, redact=counting)
    assert index.sync(found).added == () and len(calls) == count
    index.upsert(found.passages)
    assert len(calls) > count


def _file(folder: Path, text: str) -> Path:
    file = folder / "file.txt"
    file.write_text(text)
    return file


def test_documents_are_redacted_before_they_are_split(tmp_path: Path) -> None:
    secret = "BEGIN " + "Jorunn went to Vikeby. " * 60 + "END"

    def whole(text: str) -> str:
        return text.replace(secret, "[letter]")

    file = _file(tmp_path, f"It begins. {secret} It ends.")
    assert len(read_files(file, chunk_tokens=40).passages) > 3
    found = read_files(file, chunk_tokens=40, redact=whole)
    assert [passage.text for passage in found.passages] == ["It begins. [letter] It ends."]


@pytest.mark.parametrize("broken", [fail, lambda text: None])
def test_a_failed_redaction_indexes_nothing_and_its_error_shows_no_text(
    broken: object, docs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "index"
    with pytest.raises(InputError, match=r"raised ValueError|returned NoneType") as error:
        read_files(docs, redact=broken)  # type: ignore[arg-type]
    assert not any(secret in str(error.value).lower() for secret in SECRETS)
    with pytest.raises(InputError, match="nothing was indexed"):
        Index.build(["Jorunn Vikeby"], out, encoder=ENCODER, redact=broken)  # type: ignore[arg-type]
    assert not (out / "manifest.json").exists() and secrets_in(tmp_path / "docs")
    assert not list(out.rglob("*.arrow"))


def test_a_copy_of_an_index_redacts_as_the_index_does(tmp_path: Path) -> None:
    stored = Index.build(["The toll is 3."], tmp_path / "i", encoder=ENCODER, redact=redact)
    index = Index.from_passages(["The toll is 3."], encoder=ENCODER, redact=redact)
    for one in (pickle.loads(pickle.dumps(index)), index.as_kind("sparse"), stored):
        one.add(["By Jorunn Vikeby."])
        assert "By [name]." in {passage.text for passage in one}


@pytest.mark.parametrize("name", ["presido", "no_such_module:f", "json:no_such_function", ":", 7])
def test_an_unknown_redactor_is_refused_by_name(name: object) -> None:
    with pytest.raises(InputError, match=r"presidio.*module:function"):
        load_redactor(name)  # type: ignore[arg-type]


def test_presidio_redacts_or_names_the_extra_to_install(tmp_path: Path) -> None:
    try:
        index = Index.build(
            [Passage(id="1", text="Write to jorunn@vikeby.com, says Jorunn Vikeby.")],
            tmp_path / "index",
            encoder=ENCODER,
            redact=PRESIDIO,
        )
    except MissingExtra as error:
        assert error.extra == "redact"  # noqa: PT017 - as it is installed or not
    except InputError as error:
        assert "spacy download" in error.remedy  # noqa: PT017
    else:
        assert "@" not in index.get("1").text
        Index.open(tmp_path / "index").add(["Ask jorunn@vikeby.com."])  # loaded by its name
        assert secrets_in(tmp_path / "index") == []
