"""The client and the port check against real sockets: what does not speak the interface is one line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from posttrain.errors import UserError
from posttrain.serving.client import ChatClient, ServerFailed
from posttrain.serving.server import check_port


@contextmanager
def server(status: int, body: bytes) -> Iterator[ChatClient]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    client = ChatClient(f"http://127.0.0.1:{listening.server_port}", timeout=5)
    try:
        yield client
    finally:
        client.close()
        listening.shutdown()
        listening.server_close()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, b"out of memory", "answers 500 to /v1/chat/completions: out of memory"),
        (200, b"<html>", "with no JSON"),
        (200, b"{}", "answers in another form"),
        (200, b'{"choices": [], "usage": {"completion_tokens": 1}}', "answers in another form"),
    ],
)
def test_an_answer_that_is_none_is_one_line(status, body, said):
    with server(status, body) as client, pytest.raises(ServerFailed, match=said) as problem:
        client.chat("m", [{"role": "user", "content": "1"}])
    assert problem.value.exit_code == 1 and "\n" not in str(problem.value)


def test_a_well_formed_answer_is_read():
    body = b'{"choices": [{"message": {"content": "2"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}'
    with server(200, body) as client:
        reply = client.chat("m", [{"role": "user", "content": "1"}])
        client.wait_healthy(1)
    assert (reply.text, reply.tokens, reply.finish_reason) == ("2", 3, "stop") and reply.seconds > 0


def test_a_server_without_a_model_or_health_is_told_apart():
    with server(200, b'{"data": []}') as client, pytest.raises(ServerFailed, match="lists no model"):
        client.model()
    with server(503, b"") as client, pytest.raises(ServerFailed, match="answers 503 to /health"):
        client.wait_healthy(0)


def test_a_port_is_free_on_one_address_and_taken_on_another():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        check_port("127.0.0.2", port)
        for host in ("127.0.0.1", "0.0.0.0"):
            with pytest.raises(UserError, match="is in use") as problem:
                check_port(host, port)
            assert (problem.value.field, problem.value.value) == ("serve.port", port)
    check_port("127.0.0.1", port)


def test_an_address_that_is_not_this_machines_is_named():
    with pytest.raises(UserError) as problem:
        check_port("203.0.113.7", 8000)
    assert problem.value.field == "serve.host"
