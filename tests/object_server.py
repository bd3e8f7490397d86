"""An object store with the interface of S3, on this machine alone, which can be made to fail."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
BUCKET = "rows"


@dataclass
class ObjectServer:
    """Answers requests by the store behind it; a fault comes before, and ``asked`` is what was asked for.

    ``denied`` are the methods that nobody may use. ``lost`` is of how many puts the answer gets lost on its
    way. ``held`` makes all requests wait until it is set.
    """

    application: Callable[..., Iterable[bytes]]
    denied: set[str] = field(default_factory=set)
    lost: int = 0
    ignores_conditions: bool = False
    broken: bool = False
    held: threading.Event | None = None
    before: Callable[[str, str], None] | None = None
    asked: list[str] = field(default_factory=list)
    url: str = ""
    _one_put: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: dict[str, Any], begin: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""
        method, path = request["REQUEST_METHOD"], request["PATH_INFO"]
        self.asked.append(f"{method} {path}")
        if self.before is not None:
            self.before(method, path)
        if self.broken:
            request["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        if self.held is not None:
            self.held.wait(60)
        if method in self.denied:
            begin("403 Forbidden", [("Content-Length", str(len(_DENIED)))])
            return [_DENIED]
        if self.ignores_conditions:
            request.pop("HTTP_IF_NONE_MATCH", None)
        # The store behind looks whether a name is there and then puts: a real one does both at once.
        with self._one_put:
            answer = list(self.application(request, begin))
        if method == "PUT" and self.lost:
            self.lost -= 1
            request["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        """Break every connection before it has an answer."""
        self.broken = True
        try:
            yield
        finally:
            self.broken = False

    def environment(self) -> dict[str, str]:
        """Return what the environment of a process that uses this store."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "an-access-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret-of-nobody",
            "AWS_REGION": "us-east-1",
        }

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")  # noqa: S310 (it is http)
        with urllib.request.urlopen(request):  # noqa: S310 (likewise)
            pass


@contextlib.contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Run a store with a bucket until the block ends.

    Raises:
        ImportError: the libraries that it is made of are not installed.
    """
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ObjectServer(DomainDispatcherApplication(create_backend_app))
    listening = make_server("127.0.0.1", 0, server, threaded=True)
    server.url = f"http://127.0.0.1:{listening.port}"
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        server.make_bucket(BUCKET)
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
