"""Documents over HTTP, and keys with conditions and rights: two tenants in one index."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy
import httpx
import pytest
from test_serve import KEY, begun, free_port, is_up, serving, until

import ga_dspy
from ga_dspy.errors import InputError
from ga_dspy.graph import GraphUpdate
from ga_dspy.graphrag import CorpusGraph, GraphIndex, GraphRAG, build_graph, open_graph
from ga_dspy.serve import Key, Limits, Service, make_app, read_key_file
from ga_dspy.serve.agents import make_http_app, make_mcp
from ga_dspy.testing import scripted_lm

WRITE = "a-key-that-may-write"
RIGHTS = {"ask", "write", "metrics"}
HALDEN = {"id": "halden", "title": "Halden Bridge", "text": "Nils Haug designed the bridge."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "harbour.md").write_text("# The harbour\n\nThe harbour is deep.")
    (docs / "tower.md").write_text("# The tower\n\nThe tower is high.")
    return docs


@pytest.fixture
def index(folder: Path, command: Callable[..., Any]) -> ga_dspy.Index:
    out = folder.parent / "index"
    done = command("index", "build", folder, "--out", out, "--kind", "sparse", cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    return ga_dspy.Index.open(out)


@contextmanager
def writing(
    index: Any, keys: Any = (), limits: Limits | None = None, program: Any = ga_dspy.VanillaRAG,
    lm: dspy.LM | None = None,
) -> Iterator[httpx.Client]:  # fmt: skip
    """A client, with the key that may write, of a service over an index."""
    with dspy.context(lm=lm or ga_dspy.extractive_lm()):
        service = Service(program(index), limits)
    app = make_app(service, keys=[Key.of(WRITE.encode(), rights=RIGHTS), KEY.encode(), *keys])
    headers = {"X-API-Key": WRITE}
    with (
        serving(app, service.limits) as url,
        httpx.Client(base_url=url, timeout=60, headers=headers) as to,
    ):
        yield to


def found(client: httpx.Client, query: str, **more: Any) -> list[str]:
    return [p["id"] for p in client.post("/search", json={"query": query, **more}).json()]


def test_a_document_is_searchable_once_added_and_gone_once_deleted(
    index: ga_dspy.Index,
) -> None:
    with writing(index) as client:
        added = client.post("/documents", json={**HALDEN, "metadata": {"lang": "en"}})
        assert added.status_code == 201
        (document,) = added.json()["documents"]
        assert document["id"] == "upload:halden" and document["metadata"]["lang"] == "en"
        assert found(client, "Nils Haug") == ["upload:halden"]
        answer = client.post("/ask", json={"question": "Who designed the Halden Bridge?"}).json()
        assert answer["passages"][0]["id"] == "upload:halden"
        listed = client.get("/documents").json()
        assert [one["id"] for one in listed["documents"]][-1] == "upload:halden"
        assert listed["total"] == 3
        page = client.get("/documents", params={"first": 1, "k": 1}).json()
        assert page == {"total": 3, "documents": listed["documents"][1:2]}
        for id in ("halden", "upload:halden"):
            whole = client.get(f"/documents/{id}").json()
            assert whole["texts"][0]["text"] == HALDEN["text"]
        assert ga_dspy.Index.open(index.path or "").get("upload:halden").title == "Halden Bridge"
        assert client.delete("/documents/halden").json()["removed"] == 1
        assert found(client, "Nils Haug") == []
        assert client.get("/documents/halden").status_code == 404
        assert client.delete("/documents/halden").status_code == 404


def test_the_last_document_is_deleted_only_after_another_was_added(index: ga_dspy.Index) -> None:
    with writing(index) as client:
        assert client.delete("/documents/harbour.md").json()["removed"] == 1
        refused = client.delete("/documents/tower.md")
        assert refused.status_code == 400
        assert refused.json()["found"] == "'tower.md' is the last document"
        assert refused.json()["remedy"] == "add another one first"
        client.post("/documents", json=HALDEN)
        assert client.delete("/documents/tower.md").json()["removed"] == 1


def test_adding_a_document_again_replaces_all_its_passages(index: ga_dspy.Index) -> None:
    long = " ".join(f"Sentence {n} is about the town of Burwick and its mills." for n in range(200))
    with writing(index) as client:
        first = client.post("/documents", json={"id": "town", "text": long}).json()
        assert first["added"] == first["documents"][0]["passages"] > 3
        again = client.post("/documents", json={"id": "town", "text": f"New. {long[:900]}"}).json()
        assert again["documents"][0]["passages"] == 1 and again["removed"] == first["added"]
        assert len(found(client, "Burwick", k=50)) == 1


def test_uploaded_files_are_read_as_on_the_command_line(index: ga_dspy.Index) -> None:
    pytest.importorskip("python_calamine")
    xlsxwriter = pytest.importorskip("xlsxwriter")
    table = io.BytesIO()
    book = xlsxwriter.Workbook(table, {"in_memory": True})
    book.add_worksheet("Tolls").write_row(0, 0, ["bridge", "Kroner 7"])
    book.close()
    files: Any = [
        ("file", ("notes.md", "---\nauthor: Ann\n---\n# Notes\n\nThe Gilan is short.")),
        ("file", ("rows.csv", "title,text\nOrla,The Orla is long.\nBran,The Bran is wide.\n")),
        ("file", ("mail.eml", "Subject: Ferry\nFrom: a@b.example\n\nThe ferry leaves at noon.")),
        ("file", ("tolls.xlsx", table.getvalue())),
    ]
    with writing(index) as client:
        added = client.post("/documents", files=files, data={"metadata": '{"lang": "en"}'})
        assert added.status_code == 201, added.text
        ids = [(one["id"], one["passages"]) for one in added.json()["documents"]]
        assert ids == [("upload:notes.md", 1), ("upload:rows.csv", 2), ("upload:mail.eml", 1),
                       ("upload:tolls.xlsx", 1)]  # fmt: skip
        assert found(client, "Bran wide") == ["upload:rows.csv#2", "upload:rows.csv#1"][:1]
        assert found(client, "Kroner", where={"lang": "en", "sheet": "Tolls"})
        assert client.get("/documents/notes.md").json()["metadata"]["author"] == "Ann"


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        ({"files": {"file": ("plan.png", b"\x89PNG")}}, 400, ".png is not a supported format"),
        ({"files": {"file": ("a.json", b"{")}}, 400, "does not parse"),
        ({"files": {"file": (".env", b"KEY=1")}}, 400, "hidden"),
        ({"files": {"file": ("empty.txt", b" ")}}, 400, "no text"),
        ({"files": [("file", ("a.md", "a")), ("file", ("x/a.md", "b"))]}, 400, "equal names"),
        ({"files": [("file", (f"{n}.md", "a")) for n in range(4)]}, 400, "Too many files"),
        ({"files": {"file": ("a.md", "a")}, "data": {"metadata": "{"}}, 422, "JSON"),
        ({"files": {"file": ("a.md", "x" * 20_001)}}, 413, "more than 20,000 bytes"),
        ({"json": {"text": "Word. " * 3_000}}, 400, "at most 3 passages"),
        ({"json": {"text": " "}}, 422, "text"),
        ({"json": {"text": "\x1f"}}, 400, "text in each document"),
        ({"json": {"id": "a#1", "text": "a"}}, 422, "id"),
        ({"json": {"text": "a", "metadata": {"a": {"b": 1}}}}, 422, "metadata"),
    ],
    ids=lambda one: str(one)[:40],
)  # fmt: skip
def test_a_refused_document_is_a_clear_error_and_changes_nothing(
    index: ga_dspy.Index, sent: Any, status: int, said: str
) -> None:
    with writing(index, limits=Limits(upload=20_000, files=3, passages=3)) as client:
        refused = client.post("/documents", **sent)
        assert refused.status_code == status and said in refused.text
        assert refused.headers["content-type"] == "application/problem+json"
        assert str(index.path) not in refused.text and "/tmp" not in refused.text
        assert client.get("/documents").json()["total"] == 2


def test_a_sync_follows_the_files_and_keeps_uploads(
    index: ga_dspy.Index, folder: Path, command: Callable[..., Any]
) -> None:
    with writing(index) as client:
        client.post("/documents", json=HALDEN)
        (folder / "harbour.md").write_text("# The harbour\n\nThe harbour is shallow.")
        (folder / "mill.md").write_text("# The mill\n\nThe mill is old.")
        counts = client.post("/sync").json()
        assert (counts["added"], counts["changed"], counts["unchanged"]) == (1, 1, 2)
        assert found(client, "shallow") and found(client, "old mill") and found(client, "Haug")
        (folder / "mill.md").unlink()
        (folder / "tower.md").unlink()
        counts = client.post("/sync").json()
        assert counts["removed"] == 2
        (folder / "harbour.md").write_text("# Nothing\n\nElse.")
        command("index", "sync", "--index", index.path, "--yes", cwd=folder.parent)
        assert client.post("/documents", json={"text": "The pier is new."}).status_code == 201
        assert found(client, "Nothing") and found(client, "Haug") and found(client, "pier")
    done = command("index", "delete", "upload:halden", "--index", index.path, cwd=folder.parent)
    assert done.returncode == 0, done.stderr


def test_a_sync_that_would_delete_most_documents_needs_confirmation(
    index: ga_dspy.Index, folder: Path
) -> None:
    (folder / "new.md").write_text("# New\n\nAll is new.")
    for name in ("harbour", "tower"):
        (folder / f"{name}.md").unlink()
    with writing(index) as client:
        refused = client.post("/sync")
        assert refused.status_code == 409 and "yes=true" in refused.text
        assert client.post("/sync", params={"yes": True}).json()["removed"] == 2


def test_without_write_access_nothing_is_written_or_listed(index: ga_dspy.Index) -> None:
    with dspy.context(lm=ga_dspy.extractive_lm()):
        app = make_app(Service(ga_dspy.VanillaRAG(index)))
    routes = [("POST", "/documents"), ("GET", "/documents"), ("GET", "/documents/tower.md"),
              ("DELETE", "/documents/tower.md"), ("POST", "/sync")]  # fmt: skip
    with serving(app) as url, writing(index) as client:
        for method, path in routes:
            for base, headers in ((url, {}), (str(client.base_url), {"X-API-Key": KEY})):
                refused = httpx.request(method, f"{base}{path}", headers=headers)
                assert refused.status_code == 403 and "GA_DSPY_WRITE_KEY" in refused.text
            assert httpx.request(method, f"{client.base_url}{path}").status_code == 401
        paths = client.get("/openapi.json").json()["paths"]
        assert all("`write`" in paths[path.replace("/tower.md", "/{id}")][method.lower()]
                   ["description"] for method, path in routes)  # fmt: skip


def graph_of(index: ga_dspy.Index, folder: Path, **options: Any) -> GraphIndex:
    pytest.importorskip("igraph")
    index.add([ga_dspy.Passage(id="ada", title="Ada", text="Ada Lovelace was born in London.")])
    build_graph(index, folder, **{"lm": ga_dspy.extractive_lm(), **options})
    return GraphIndex.open(index.path or "", folder)


def test_adding_and_deleting_a_document_updates_the_served_graph(
    index: ga_dspy.Index, tmp_path: Path
) -> None:
    corpus = graph_of(index, tmp_path / "graph")
    with writing(corpus, program=GraphRAG) as client:
        assert client.get("/about").json()["can_write"]
        text = "Otto Brandt was born in Aarhus."
        assert client.post("/documents", json={"id": "otto", "text": text}).status_code == 201
        assert found(client, "Otto Brandt") == ["upload:otto"]
        assert "Otto Brandt" in client.get("/graph.json").text
        opened = ga_dspy.Index.open(index.path or "")
        assert open_graph(tmp_path / "graph", opened).graph.find("Otto Brandt")
        assert client.get("/documents/otto").json()["texts"][0]["text"] == text
        assert client.delete("/documents/otto").json()["removed"] == 1
        assert "Otto Brandt" not in client.get("/graph.json").text


def test_the_graph_page_shows_the_latest_update(index: ga_dspy.Index, tmp_path: Path) -> None:
    is_down = False

    def reply(_: str) -> dict[str, str]:
        if is_down:
            raise dspy.LMError("down")
        return {"additions": "Otto Brandt -> born in -> Aarhus [1]"}

    corpus = graph_of(index, tmp_path / "graph", lm=scripted_lm(reply))
    with writing(corpus, program=GraphRAG, lm=scripted_lm(reply)) as client:
        is_down = True
        document = {"id": "otto", "text": "Otto Brandt was born in Aarhus."}
        client.post("/documents", json=document)
        assert "Otto Brandt" not in client.get("/graph.json").text
        is_down = False
        assert client.post("/documents", json=document).is_success
        assert "Otto Brandt" in client.get("/graph.json").text


def test_a_document_is_refused_if_another_lm_built_the_graph(
    index: ga_dspy.Index, tmp_path: Path
) -> None:
    corpus = graph_of(index, tmp_path / "graph", lm=scripted_lm(lambda _: {"additions": ""}))
    with writing(corpus, program=GraphRAG) as client:
        refused = client.post("/documents", json=HALDEN)
        assert refused.status_code == 400 and "were read by" in refused.json()["found"]
        assert client.get("/documents").json()["total"] == 3


@pytest.mark.parametrize("of_the_key", [False, True])
def test_a_graph_with_labels_accepts_no_documents(
    index: ga_dspy.Index, tmp_path: Path, of_the_key: bool
) -> None:
    labels = {} if of_the_key else {"tower.md": ["staff"]}
    corpus = graph_of(index, tmp_path / "graph", labels=labels)
    keys = [Key.of(b"the-key-of-staff", labels={"staff"})] if of_the_key else []
    with writing(corpus, keys, program=GraphRAG) as client:
        refused = client.post("/documents", json=HALDEN)
        assert refused.status_code == 409 and "ga-dspy graph update" in refused.text
        assert client.get("/documents").status_code == 409
        assert not client.get("/about").json()["can_write"]


# --- Two tenants in one index

FOREIGN = re.compile("zenith|Brackwater|Burwick", re.IGNORECASE)


def tenant(name: str, **more: Any) -> Key:
    rights = {"ask", "write"}
    return Key.of(f"the-key-of-{name}".encode(), name=name, where={"tenant": name}, rights=rights,
                  **more)  # fmt: skip


@contextmanager
def as_tenant(client: httpx.Client, name: str) -> Iterator[httpx.Client]:
    headers = {"X-API-Key": f"the-key-of-{name}"}
    with httpx.Client(base_url=client.base_url, headers=headers, timeout=60) as own:
        yield own


def test_two_tenants_of_one_index_are_isolated(index: ga_dspy.Index) -> None:
    keys = [tenant("acme"), tenant("zenith")]
    with (
        writing(index, keys) as admin,
        as_tenant(admin, "acme") as acme,
        as_tenant(admin, "zenith") as zenith,
    ):
        # Before anybody has such a field, and after only the other has.
        for _ in range(2):
            assert found(acme, "bridge tower harbour Brackwater") == []
            assert acme.get("/documents").json() == {"total": 0, "documents": []}
            empty = acme.post("/ask", json={"question": "Who designed the bridge?"})
            assert empty.status_code == 200 and empty.json()["passages"] == []
            text = "Brackwater designed the bridge in Burwick."
            theirs = zenith.post("/documents", json={**HALDEN, "text": text}).json()
        their_id = theirs["documents"][0]["id"]
        assert zenith.post("/documents", json={"id": "own", "text": "Burwick."}).is_success
        their_run = zenith.post("/ask", json={"question": "Who designed the bridge?"}).json()
        assert "Brackwater" in json.dumps(their_run)

        # The same id, and the same name of a file, are two documents.
        ours = acme.post("/documents", json=HALDEN)
        assert ours.status_code == 201
        acme.post("/documents", files={"file": ("own", "The mill of acme is old.")})
        our_id = ours.json()["documents"][0]["id"]
        assert our_id != their_id
        replies = [
            acme.post("/ask", json={"question": "Who designed the Halden bridge?"}),
            acme.post("/search", json={"query": "Brackwater bridge Burwick", "k": 50}),
            acme.post("/search", json={"query": "a", "where": {"nothing": 1}}),
            acme.post("/search", json={"query": "bridge", "where": {"tenant": ["acme", "zenith"]}}),
            acme.post("/v1/chat/completions",
                      json={"messages": [{"role": "user", "content": "Who designed the bridge?"}]}),
            acme.get("/documents"),
            acme.get("/documents/halden"),
            acme.get("/documents/own"),
            ours,
        ]  # fmt: skip
        assert not FOREIGN.search("".join(reply.text for reply in replies))
        assert "Haug" in replies[0].text and replies[2].status_code == 400
        assert acme.get("/documents").json()["total"] == 2

        # What is another's is as what does not exist.
        for method, there, nowhere in (
            ("GET", f"/runs/{their_run['id']}", "/runs/unknown"),
            ("GET", f"/documents/{their_id}", "/documents/unknown"),
            ("DELETE", f"/documents/{their_id}", "/documents/unknown"),
            ("DELETE", "/documents/tower.md", "/documents/unknown"),
        ):
            one, other = acme.request(method, there), acme.request(method, nowhere)
            assert one.status_code == other.status_code == 404
            there, nowhere = (path.split("/", 2)[2] for path in (there, nowhere))
            assert one.text.replace(there, nowhere) == other.text
        assert acme.post("/sync").status_code == 403
        assert acme.get("/metrics").status_code == 403
        their = acme.post("/documents", json={**HALDEN, "id": their_id, "text": "Mine."})
        assert their.status_code == 201

        assert zenith.get(f"/documents/{their_id}").json()["texts"][0]["text"] == text
        assert acme.delete("/documents/halden").is_success
        assert zenith.get("/documents").json()["total"] == 2
        assert admin.get("/documents").json()["total"] == 2 + 2 + 2
        assert zenith.get(f"/runs/{their_run['id']}").is_success


def test_each_tenant_sees_only_its_own_passages_over_mcp(index: ga_dspy.Index) -> None:
    texts = {"acme": "Nils Haug built it.", "zenith": "Brackwater built it."}
    index.add(
        ga_dspy.Passage(id=name, text=text, metadata={"tenant": name})
        for name, text in texts.items()
    )
    with dspy.context(lm=ga_dspy.extractive_lm()):
        server = make_mcp(Service(ga_dspy.VanillaRAG(index)))
    keys = [tenant("acme"), tenant("zenith"), Key.of(b"the-key-of-none", rights={"write"})]
    with serving(make_http_app(server, Limits(), keys=keys)) as url:

        def told(name: str, tool: str, **arguments: Any) -> str:
            params = {"name": tool, "arguments": arguments}
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            accept = {"Accept": "application/json, text/event-stream"}
            headers = {"X-API-Key": f"the-key-of-{name}", **accept}
            return httpx.post(f"{url}/mcp", json=call, headers=headers, timeout=60).text

        for name, other in (("acme", "Brackwater"), ("zenith", "Haug")):
            replies = [
                told(name, "search", query="Who built it?", k=9),
                told(name, "ask", question="Who built it?"),
            ]
            assert all(texts[name] in reply and other not in reply for reply in replies)
        assert "may not ask" in told("none", "search", query="Who built it?")


def test_a_key_grants_access_to_a_graph_by_its_labels() -> None:
    passages = [ga_dspy.Passage(id="p", text="Red.", metadata={"lang": "en"}),
                ga_dspy.Passage(id="q", text="Red too.", metadata={"salary": 7})]  # fmt: skip
    index = ga_dspy.Index.from_passages(passages, kind="sparse")
    updates = {passage.id: GraphUpdate() for passage in passages}
    corpus = GraphIndex(index, CorpusGraph.of(updates, labels={"q": ["staff"]}))
    keys = [Key.of(name.encode(), labels=labels) for name, labels in
            (("staff-key", {"staff"}), ("public-key", set()))]  # fmt: skip
    app = make_app(Service(ga_dspy.VanillaRAG(corpus)), keys=keys)
    with serving(app) as url:
        for name, ids in (("staff-key", {"p", "q"}), ("public-key", {"p"})):
            with httpx.Client(base_url=url, headers={"X-API-Key": name}) as client:
                assert {*found(client, "red")} == ids
                assert found(client, "red", where={"lang": "en"}) == ["p"]
                # Which fields hidden passages have, and of which types, is hidden too.
                wheres: Any = ({"salary": 7}, {"salary": "x"}, {"nothing": 1})
                asked = [{"query": "red", "where": where} for where in wheres]
                replies = [client.post("/search", json=one) for one in asked]
                if name == "staff-key":
                    assert [one.status_code for one in replies] == [200, 400, 400]
                else:
                    told = {one.text.replace("salary", "nothing") for one in replies}
                    assert told == {replies[-1].text} and "lang" in replies[0].text


def test_an_upload_that_contradicts_the_conditions_of_its_key_is_refused(
    index: ga_dspy.Index,
) -> None:
    where = {"tenant": "acme", "year": {">=": 2020}, "labels": {"within": ["staff"]}}
    key = tenant("acme").model_copy(update={"where": where})
    with writing(index, [key]) as admin, as_tenant(admin, "acme") as acme:

        def status(**metadata: Any) -> int:
            given = {"text": f"Text of {metadata}.", "metadata": {"year": 2021, **metadata}}
            return acme.post("/documents", json=given).status_code

        assert status() == status(tenant="acme") == status(labels=["staff"]) == 201
        wrong: list[dict[str, Any]] = [
            {"tenant": "zenith"}, {"tenant": ["acme", "zenith"]}, {"year": 2019},
            {"year": "new"}, {"labels": ["staff", "board"]},
        ]  # fmt: skip
        assert [status(**each) for each in wrong] == [400] * len(wrong)
        front = {"file": ("a.md", "---\ntenant: zenith\nyear: 2022\n---\nText.")}
        refused = acme.post("/documents", files=front)
        assert refused.status_code == 400 and "tenant" in refused.json()["found"]
        assert acme.get("/documents").json()["total"] == 3


def test_a_required_condition_is_met_by_the_conditions_of_a_key() -> None:
    passages = [ga_dspy.Passage(id=t, text=f"Red {t}.", metadata={"tenant": t}) for t in "ab"]
    index = ga_dspy.Index.from_passages(passages, kind="sparse", require=["tenant"])
    service = Service(ga_dspy.VanillaRAG(index))
    with pytest.raises(InputError, match="no condition on 'tenant'"):
        make_app(service, keys=[KEY.encode()])
    with serving(make_app(service, keys=[tenant("a")])) as url:
        client = httpx.Client(base_url=url, headers={"X-API-Key": "the-key-of-a"})
        assert found(client, "red") == ["a"] and client.get("/readyz").is_success
        assert client.post("/documents", json=HALDEN).status_code == 201
        assert len(found(client, "red Haug")) == 2


# --- Keys


def entry(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    return path


def test_a_key_file_consists_of_entries_printed_by_the_command(
    tmp_path: Path, command: Callable[..., Any]
) -> None:
    done = command("serve", "--new-key", "acme", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    key = done.stdout.splitlines()[1]
    path = entry(tmp_path, done.stdout.partition("keys.toml:\n")[2] + 'where = {tenant = "acme"}\n')
    assert key not in path.read_text() and len(key) > 40
    assert read_key_file(path) == [Key.of(key.encode(), name="acme", where={"tenant": "acme"},
                                          rights={"ask"})]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no entry"),
        ("[a", "Expected ']'"),
        ("a = 1", "keys.toml"),
        ('[a]\nkey = "secret-of-a"', "a.sha256: Field required"),
        ('[a]\nsha256 = "secret-of-a"', "a.sha256: "),
        (f'[a]\nsha256 = "{"0" * 64}"\nrights = ["everything"]', "rights"),
        (f'[a]\nsha256 = "{"0" * 64}"\n[b]\nsha256 = "{"0" * 64}"', "two entries with one key"),
    ],
)
def test_a_key_file_with_a_mistake_is_refused_without_repeating_a_key(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(InputError, match=said) as refused:
        read_key_file(entry(tmp_path, text))
    assert "secret-of-a" not in str(refused.value)


@pytest.mark.parametrize("place", ["GA_DSPY_API_KEY", "acme"])
def test_a_key_in_two_places_is_refused_at_the_start(
    place: str, index: ga_dspy.Index, tmp_path: Path, command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("GA_DSPY_WRITE_KEY", f"another-key-that-may-write,{WRITE}")
    options = list[str | Path]()
    if place == "GA_DSPY_API_KEY":
        monkeypatch.setenv(place, WRITE)
    else:
        digest = Key.of(WRITE.encode()).sha256
        options = ["--keys", entry(tmp_path, f'[acme]\nsha256 = "{digest}"\n')]
    done = command("serve", "--index", str(index.path), *options, cwd=tmp_path)
    assert done.returncode == 2 and WRITE not in done.stderr
    assert f"{place} and GA_DSPY_WRITE_KEY hold the same key" in done.stderr


def test_a_key_with_conditions_that_cannot_apply_is_refused(index: ga_dspy.Index) -> None:
    service = Service(ga_dspy.VanillaRAG(index))
    with pytest.raises(InputError, match="condition"):
        make_app(service, keys=[Key.of(b"k", where={})])
    with pytest.raises(InputError, match="labels, and the server has no graph"):
        make_app(service, keys=[Key.of(b"k", labels={"staff"})])


# --- Many at once, and kills


def test_questions_are_answered_while_documents_are_added_in_constant_memory(
    index: ga_dspy.Index,
) -> None:
    import gc

    from ga_dspy.retrieval.engine import LocalEngine

    def engines() -> list[LocalEngine]:
        gc.collect()
        return [one for one in gc.get_objects() if isinstance(one, LocalEngine)]

    limits, before = Limits(per_minute=0), engines()
    with writing(index, limits=limits) as client:
        failures: list[Any] = []

        def add(n: int) -> None:
            for number in range(15):
                id = f"{n}-{number}"
                reply = client.post("/documents", json={"id": id, "text": f"The pier word{id}."})
                if reply.status_code != 201 or f"upload:{id}" not in found(client, f"word{id}"):
                    failures.append(reply.text)

        threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        asked = 0
        while any(thread.is_alive() for thread in threads):
            assert client.post("/search", json={"query": "tower"}).json()[0]["id"] == "tower.md"
            asked += 1
        assert not failures and asked > 10
        assert client.get("/documents").json()["total"] == 62
        assert len(engines()) - len(before) < 10


def test_a_killed_service_loses_no_confirmed_document(
    index: ga_dspy.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GA_DSPY_WRITE_KEY", WRITE)
    port, confirmed = free_port(), list[str]()
    with begun(index.path or Path(), port, "--per-minute", "0") as process:
        until(lambda: is_up(port), 60)

        def add() -> None:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}",
                              headers={"X-API-Key": WRITE}, timeout=60) as client:  # fmt: skip
                for n in range(10_000):
                    try:
                        reply = client.post("/documents", json={"id": f"{n}", "text": f"Pier {n}."})
                    except httpx.TransportError:
                        return
                    assert reply.status_code == 201, reply.text
                    confirmed.append(f"upload:{n}")

        thread = threading.Thread(target=add)
        thread.start()
        until(lambda: len(confirmed) >= 20, 30)
        time.sleep(0.013)
        process.send_signal(signal.SIGKILL)
        thread.join(20)
    opened = ga_dspy.Index.open(index.path or "")
    opened.verify()
    assert len(confirmed) >= 20 and all(id in opened for id in confirmed)
    opened.add([ga_dspy.Passage(id="next", text="It goes on.")])


def test_a_slow_upload_is_allowed_longer_than_an_idle_request(
    index: ga_dspy.Index,
) -> None:
    body = json.dumps({"id": "slow", "text": "x " * 150_000}).encode()
    head = (f"POST /documents HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {WRITE}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")  # fmt: skip
    with writing(index, limits=Limits(arrival=0.5)) as client, socket.socket() as slow:
        slow.connect((client.base_url.host, client.base_url.port or 0))
        slow.sendall(head.encode())
        for at in range(0, len(body), 40_000):
            slow.sendall(body[at : at + 40_000])
            time.sleep(0.15)
        assert slow.recv(20).startswith(b"HTTP/1.1 201")
