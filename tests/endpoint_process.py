"""The endpoint that fails on purpose, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from endpoint import Behaviour, Endpoint, Outage, Served


class EndpointProcess(Served):
    """The same in a process of its own, which ends with this one."""

    def __init__(self, url: str) -> None:
        self.url = url

    def counts(self) -> dict[str, int]:
        """As `Endpoint.counts`; the peak is that since they were last asked for."""
        with urllib.request.urlopen(self.url) as reply:
            return Counter(json.load(reply))


@contextmanager
def endpoint_process(behaviour: Behaviour | None = None) -> Iterator[EndpointProcess]:
    """An endpoint in a process of its own: its work takes nothing from what is measured here."""
    settings = json.dumps(asdict(behaviour or Behaviour()))
    with subprocess.Popen(
        [sys.executable, __file__, settings],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        try:
            yield EndpointProcess(process.stdout.readline().strip())
        finally:
            process.stdin.close()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    outages = tuple(Outage(**outage) for outage in given.pop("outages", ()))
    with Endpoint(Behaviour(outages=outages, **given)) as served:
        print(served.url, flush=True)
        sys.stdin.read()
