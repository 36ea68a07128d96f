"""The HTTP server: uvicorn, with bounds on connections that uvicorn leaves open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from ipaddress import ip_network
from math import ceil
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ga_dspy.errors import InputError
from ga_dspy.serve.service import Limits

_GRACE = 10.0  # seconds beyond the deadline, after which `Guard` has answered


class BoundedProtocol(H11Protocol):
    """A connection that may wait for a whole request only so long, and among only so many others.

    A connection waits while no request has arrived whole: it is idle, or sends its headers or its
    body slowly. Where too many wait, the oldest one of the address with the most of them is
    closed, so that a client who opens a thousand closes its own.
    """

    limits = Limits()
    is_waiting = True
    timer: asyncio.TimerHandle | None = None
    since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._start(True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self.is_waiting = False
        if self.timer:
            self.timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle what arrived; a request may be whole by now."""
        super().handle_events()
        self._check()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._check()

    def _check(self) -> None:
        cycle = self.cycle
        is_waiting = cycle is None or cycle.response_complete or cycle.more_body
        if is_waiting != self.is_waiting:
            self._start(is_waiting)

    def _start(self, is_waiting: bool) -> None:
        """Begin to wait, or to answer, with the time that this may take."""
        self.is_waiting, self.since = is_waiting, self.loop.time()
        if self.timer:
            self.timer.cancel()
        # A long answer may still be on its way to a client that reads slowly.
        is_slow = not is_waiting or self.transport.get_write_buffer_size() > 0
        seconds = self.limits.deadline + _GRACE if is_slow else self.limits.arrival
        self.timer = self.loop.call_later(seconds, self._abort)
        waiting = [one for one in self.connections if getattr(one, "is_waiting", False)]
        if is_waiting and len(waiting) > self.limits.waiting:
            _crowding(waiting)._abort()

    def _abort(self) -> None:
        self.is_waiting = False
        self.transport.abort()


def _crowding(waiting: Collection[Any]) -> BoundedProtocol:
    """The oldest connection of the address with the most."""
    counts = Counter(_address(one) for one in waiting)
    most = max(counts.values())
    crowd = [one for one in waiting if counts[_address(one)] == most]
    oldest: BoundedProtocol = min(crowd, key=lambda one: one.since)
    return oldest


def _address(connection: BoundedProtocol) -> str:
    return connection.client[0] if connection.client else ""


def make_server(
    app: Any,
    limits: Limits,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    trusted_proxies: str = "",
    **options: Any,
) -> uvicorn.Server:
    """An HTTP server for an app; `run()` serves until SIGTERM or Ctrl-C.

    Args:
        app: The app: `make_app`, or one behind `Guard`.
        limits: How many connections may wait, and how long a request may take.
        host: Address to listen on.
        port: Port to listen on.
        trusted_proxies: Addresses or networks of proxies, with commas between them, whose
            `X-Forwarded-For` names the client. From others that header is ignored: a client would
            choose the address that its requests are counted by.
        options: More options of `uvicorn.Config`.

    Raises:
        InputError: A trusted proxy is no address.
    """
    for proxy in filter(None, map(str.strip, trusted_proxies.split(","))):
        try:
            ip_network(proxy)
        except ValueError:
            raise InputError(
                f"the trusted proxy {proxy!r}",
                expected="addresses or networks, such as 10.0.0.5,172.16.0.0/12",
                remedy="name the proxy's own address: whoever is trusted chooses its client's",
            ) from None
    protocol = type("Protocol", (BoundedProtocol,), {"limits": limits})
    config = uvicorn.Config(
        app, host=host, port=port, http=protocol, ws="none", access_log=False,
        server_header=False, timeout_graceful_shutdown=ceil(limits.deadline),
        proxy_headers=bool(trusted_proxies), forwarded_allow_ips=trusted_proxies, **options,
    )  # fmt: skip
    return uvicorn.Server(config)
