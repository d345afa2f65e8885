"""A proxy before an S3 server that can lose answers, hold requests back and refuse everything."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlparse


class Lost(Exception):
    """Raised by a fault: the connection is closed without an answer."""


@dataclass
class Request:
    """What a client asked; `number` counts from 0 since the proxy began or was reset."""

    number: int
    method: str
    path: str

    @property
    def what(self) -> str:
        """The request in a few words, without the names that differ from run to run."""
        place = next((p for p in ("_versions", "_transactions", "data", "_indices") if f"/{p}/" in self.path), "")
        return f"{self.method} {place or ('list' if 'list-type' in self.path else '')}".strip()


Fault = Callable[[Request], None]


def nothing(request: Request) -> None:
    """No fault."""


@dataclass
class Proxy:
    """`before` is called before a request goes to the store, `after` before the answer goes to the client.

    Either may raise `Lost`, wait, or do whatever a test wants to happen at that moment.
    """

    port: int = 0
    before: Fault = nothing
    after: Fault = nothing
    refuse: bool = False
    seen: list[Request] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self, before: Fault = nothing, after: Fault = nothing) -> None:
        with self.lock:
            self.seen = []
        self.before, self.after = before, after

    def note(self, method: str, path: str) -> Request:
        with self.lock:
            request = Request(len(self.seen), method, path)
            self.seen.append(request)
            return request


@contextmanager
def proxied(endpoint: str) -> Iterator[Proxy]:
    """A proxy before `endpoint` until the block ends."""
    target = urlparse(endpoint)
    proxy = Proxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or every answer with a body waits 40 ms for an acknowledgement

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = proxy.note(self.command, self.path)
            try:
                if proxy.refuse:
                    raise Lost
                proxy.before(request)
                answer, data = self.forward(body)
                proxy.after(request)
                if proxy.refuse:
                    raise Lost
            except (Lost, OSError, http.client.HTTPException):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"transfer-encoding", "connection", "content-length", "date", "server"}:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(data)

        def forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=30)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in {"connection", "expect"}}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            return answer, data

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
