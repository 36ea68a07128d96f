"""The HTTP server: Uvicorn with limits on slow and idle connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from ipaddress import ip_network
from math import ceil
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ga_dspy.errors import InputError
from ga_dspy.serve.service import Limits

_GRACE = 10.0  # seconds after the deadline, in which `Guard` answers

_MINIMUM_RATE = 100_000
"""Bytes per second. While a body arrives faster, the connection is not closed."""


class BoundedProtocol(H11Protocol):
    """A connection with a time limit for incomplete requests, and a limit on their number.

    A connection is waiting while it has no complete request: it is idle, or headers or body arrive
    slowly. If too many connections are waiting, the oldest one of the address with the most is
    closed; so a client that opens a thousand connections closes its own. A long body gets more
    time while it arrives at `_MINIMUM_RATE` or faster.
    """

    limits = Limits()
    is_waiting = True
    timer: asyncio.TimerHandle | None = None
    since = 0.0
    received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start waiting for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._start(True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self.is_waiting = False
        if self.timer:
            self.timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the received bytes."""
        self.received += len(data)
        super().data_received(data)

    def handle_events(self) -> None:
        """Handle received data, which may complete a request."""
        super().handle_events()
        self._update()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._update()

    def _update(self) -> None:
        cycle = self.cycle
        is_waiting = cycle is None or cycle.response_complete or cycle.more_body
        if is_waiting != self.is_waiting:
            self._start(is_waiting)

    def _start(self, is_waiting: bool) -> None:
        """Start waiting for a request or answering one, with the timeout for either."""
        self.is_waiting, self.since, self.received = is_waiting, self.loop.time(), 0
        if self.timer:
            self.timer.cancel()
        # A long answer may still be in transit to a slow client.
        is_slow = not is_waiting or self.transport.get_write_buffer_size() > 0
        seconds = self.limits.deadline + _GRACE if is_slow else self.limits.arrival
        self.timer = self.loop.call_later(seconds, self._expire, seconds)
        bounded = (one for one in self.connections if isinstance(one, BoundedProtocol))
        waiting = [connection for connection in bounded if connection.is_waiting]
        if is_waiting and len(waiting) > self.limits.waiting:
            counts = Counter(map(_address, waiting))
            min(waiting, key=lambda one: (-counts[_address(one)], one.since))._abort()

    def _expire(self, seconds: float) -> None:
        """Close the connection, unless the bytes received since then give it more time."""
        left = self.since + seconds + self.received / _MINIMUM_RATE - self.loop.time()
        if left > 0.01:
            self.timer = self.loop.call_later(left, self._expire, seconds)
        else:
            self._abort()

    def _abort(self) -> None:
        self.is_waiting = False
        self.transport.abort()


def _address(connection: BoundedProtocol) -> str:
    return connection.client[0] if connection.client else ""


def make_server(
    app: Any, limits: Limits, *, host: str = "127.0.0.1", port: int = 8000,
    trusted_proxies: str = "", **options: Any,
) -> uvicorn.Server:  # fmt: skip
    """Return an HTTP server for an app; `run()` serves until SIGTERM or Ctrl-C.

    Args:
        app: The app, from `make_app`, or another one behind `Guard`.
        limits: The limits.
        host: Address to listen on.
        port: Port to listen on.
        trusted_proxies: Comma-separated addresses or networks of proxies, whose `X-Forwarded-For`
            header names the client. The header is ignored if another address sends it, because a
            client could then choose the address under which its requests are counted.
        options: More options of `uvicorn.Config`.

    Raises:
        InputError: A trusted proxy is not an address.
    """
    for proxy in filter(None, map(str.strip, trusted_proxies.split(","))):
        try:
            ip_network(proxy)
        except ValueError:
            found, expected = f"the trusted proxy {proxy!r}", "addresses, such as 172.16.0.0/12"
            remedy = "pass the proxy's own address: a trusted client can choose its address"
            raise InputError(found, expected=expected, remedy=remedy) from None
    protocol = type("Protocol", (BoundedProtocol,), {"limits": limits})
    config = uvicorn.Config(
        app, host=host, port=port, http=protocol, ws="none", access_log=False,
        server_header=False, timeout_graceful_shutdown=ceil(limits.deadline),
        proxy_headers=bool(trusted_proxies), forwarded_allow_ips=trusted_proxies, **options,
    )  # fmt: skip
    return uvicorn.Server(config)
