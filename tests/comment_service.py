"""A service on this machine that keeps comments, as GitHub and GitLab do."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class Service:
    """A service on this machine that keeps comments; ``refuses`` answers all writing with a status."""

    address: str = ""
    comments: dict[int, str] = field(default_factory=dict)
    refuses: int | None = None
    guarded: set[int] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)


@contextlib.contextmanager
def comment_service() -> Iterator[Service]:
    """Serve comments."""
    state = Service()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, content: object) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def take(self) -> None:
            state.asked.append(f"{self.command} {urlsplit(self.path).path}")
            state.tokens.add(self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN") or "")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            if state.refuses:
                self.answer(state.refuses, {"message": "Resource not accessible by integration"})
            elif path.endswith("/pulls"):
                self.answer(200, [{"number": 7}] if query["head"] == ["someone:topic"] else [])
            elif self.command == "GET":
                page = int(query["page"][0]) - 1
                listed = [{"id": key, "body": text} for key, text in sorted(state.comments.items())]
                self.answer(200, listed[page * 100 : page * 100 + 100])
            elif self.command == "POST":
                state.comments[max(state.comments, default=0) + 1] = body["body"]
                self.answer(201, {})
            elif int(path.rpartition("/")[2]) in state.guarded:
                self.answer(403, {"message": "Must have admin rights"})
            else:
                state.comments[int(path.rpartition("/")[2])] = body["body"]
                self.answer(200, {})

        do_GET = do_POST = do_PATCH = do_PUT = take  # noqa: N815 (the library's names)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
