"""Work spread over a Ray cluster of several nodes, on one machine."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dspy
import pytest
from endpoint import Behaviour, Endpoint

from ga_dspy import GraphAnchor, demo
from ga_dspy.cluster import on_ray
from ga_dspy.errors import InputError
from ga_dspy.eval import Report, load, protocol_of, run
from ga_dspy.retrieval import Index

if find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)
pytestmark = pytest.mark.slow

QUESTIONS = 12


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and another node, each with processes of their own."""
    from ray.cluster_utils import Cluster

    node: Any = {"object_store_memory": 100 * 2**20}
    # A dead node is noticed in a second, not in half a minute.
    config = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": config, **node}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.add_node(num_cpus=1, **node)
    yield made
    made.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return Index.build(demo.corpus(), tmp_path_factory.mktemp("cluster") / "index", kind="sparse")


class Unpicklable(str):
    """A key that must not be sent anywhere."""

    def __reduce__(self) -> Any:
        raise AssertionError("a key was sent to another machine")


UNPICKLED = Unpicklable("none")


def asked(index: Index, lm: dspy.LM, own: dspy.LM | None, out: Path) -> Report:
    examples = load("hotpotqa", demo.questions("dev"), limit=QUESTIONS)
    program = GraphAnchor(index)
    program.answer.lm = own
    protocol = protocol_of(
        program, examples, name="graph-anchor", dataset="hotpotqa", source="demo", lm=lm
    )
    with dspy.context(lm=lm):
        return run(program, examples, out=out, protocol=protocol, threads=4)


def test_a_killed_node_loses_no_question_or_finished_call_and_no_key_is_sent(
    cluster: Any, index: Index, tmp_path: Path
) -> None:
    replies: dict[str, str] = {}
    with Endpoint(replies=replies) as reading, Endpoint(replies=replies) as answering:
        here = asked(index, reading.lm(), answering.lm(api_key=UNPICKLED), tmp_path / "here")
        calls = made(reading), made(answering)
    slow = Behaviour(latency=0.3)
    with Endpoint(slow, replies=replies) as reading, Endpoint(slow, replies=replies) as answering:

        def kill() -> None:
            while len(reading.requests) < calls[0].total() // 2:
                time.sleep(0.01)
            cluster.remove_node(list(cluster.worker_nodes)[-1], allow_graceful=False)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with on_ray(cluster.address):
            own = answering.lm(api_key=UNPICKLED)
            there = asked(index, reading.lm(), own, tmp_path / "there")
        killer.join()
    assert [r.answer for r in there.results] == [r.answer for r in here.results]
    assert not there.failed and there.f1 == here.f1
    # Each call is made once: the replies of a dead node's questions were kept.
    assert (made(reading), made(answering)) == calls
    assert [r.usage for r in there.results] == [r.usage for r in here.results]
    steps = there.summary()["usage"]
    assert calls[0].total() == steps["read"]["calls"]
    assert calls[1].total() == steps["answer"]["calls"] > QUESTIONS / 2
    assert there.protocol.lms == {"answer": "openai/local"}


def made(endpoint: Endpoint) -> Counter[str]:
    """The calls that an endpoint answered."""
    return Counter(str(body["messages"]) for _, body in endpoint.answered)


def test_a_program_that_cannot_be_sent_to_a_cluster_is_named(cluster: Any, tmp_path: Path) -> None:
    lock = threading.Lock()

    def search(query: str, k: int) -> list[str]:
        with lock:
            return ["Red Lodge | A city in Montana."]

    with Endpoint(Behaviour(reply="Montana")) as endpoint, on_ray(cluster.address):  # noqa: SIM117
        with pytest.raises(InputError, match="cannot be pickled for other machines"):
            asked(search, endpoint.lm(), None, tmp_path)  # type: ignore[arg-type]


def test_an_address_without_a_cluster_is_one_clear_error() -> None:
    with pytest.raises(InputError, match="no Ray cluster"), on_ray("127.0.0.1:1"):
        pass


def test_an_index_encoded_on_a_cluster_equals_a_local_one(
    cluster: Any, command: Any, tmp_path: Path
) -> None:
    lines = [passage.model_dump_json() for passage in demo.corpus()]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    for name, more in (("here", ()), ("there", ("--ray", cluster.address))):
        build = ("index", "build", "docs.jsonl", "--out", name, "--encoder", "hash-64", *more)
        done = command(*build, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    here, there = (Index.open(tmp_path / name).manifest.files for name in ("here", "there"))
    assert here == there
