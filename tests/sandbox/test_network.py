"""The two ways out, and that there is no third."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.sandbox import Network, NetworkPolicy, Outcome, Result
from posttrain.sandbox.bubblewrap import BubblewrapDriver
from posttrain.sandbox.forwarding import allowed, reachable
from tests.sandbox.conftest import Boxes

ASK = """
import os, urllib.request
try:
    print(urllib.request.urlopen(os.environ["POSTTRAIN_GATEWAY"] + "/v1/models", timeout=5).read().decode())
except OSError as problem:
    print("no", problem)
"""


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    body = head.split(b"\r\n")[0]
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    writer.close()


@asynccontextmanager
async def _server(path: str | None = None) -> AsyncIterator[int]:
    made = await (asyncio.start_unix_server(_answer, path) if path else asyncio.start_server(_answer, "127.0.0.1", 0))
    async with made:
        yield 0 if path else made.sockets[0].getsockname()[1]


def test_the_gateway_and_nothing_else_is_reached(boxes: Boxes, tmp_path: Path) -> None:
    async def work() -> tuple[str, str, str]:
        async with _server() as port, _server(str(tmp_path / "s")), _server() as other:
            spec = boxes.spec(network=NetworkPolicy(Network.gateway))
            async with BubblewrapDriver(gateway=f"127.0.0.1:{port}") as driver, driver.sandbox(spec) as sandbox:
                by_port = (await sandbox.exec(["python3", "-I", "-c", ASK])).text
                probe = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {other})))"
                past = (await sandbox.exec(["python3", "-I", "-c", probe])).text
            async with BubblewrapDriver(gateway=f"unix:{tmp_path / 's'}") as driver, driver.sandbox(spec) as sandbox:
                return by_port, past, (await sandbox.exec(["python3", "-I", "-c", ASK])).text

    assert boxes.run(work()) == ("GET /v1/models HTTP/1.1\n", "111\n", "GET /v1/models HTTP/1.1\n")


def test_a_gateway_that_is_away_is_seen_as_such(boxes: Boxes) -> None:
    result = boxes.python(ASK, network=NetworkPolicy(Network.gateway))
    assert result.outcome is Outcome.succeeded and result.text.startswith("no ")


def test_the_list_is_reached_through_a_proxy_and_nothing_else(boxes: Boxes) -> None:
    code = """
import os, socket
host, port = os.environ["https_proxy"].removeprefix("http://").split(":")
for target in {targets}:
    with socket.create_connection((host, int(port))) as proxy:
        proxy.sendall(f"CONNECT {{target}} HTTP/1.1\\r\\nhost: {{target}}\\r\\n\\r\\n".encode())
        status = proxy.recv(4096).split()[1].decode()
        if status == "200":
            proxy.sendall(b"GET /x HTTP/1.1\\r\\n\\r\\n")
            status += " " + proxy.recv(4096).split(b"\\r\\n\\r\\n")[1].decode()
        print(target, status)
with socket.create_connection((host, int(port))) as proxy:
    proxy.sendall(b"GET http://127.0.0.1/ HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n")
    print(proxy.recv(4096).split()[1].decode())
"""

    async def work() -> Result:
        async with _server() as listed, _server() as other:
            targets = [f"127.0.0.1:{listed}", f"127.0.0.1:{other}", f"localhost:{listed}", f"localhost:{other}"]
            policy = NetworkPolicy(Network.allow, [targets[0], targets[3]])
            async with boxes.driver.sandbox(boxes.spec(network=policy)) as sandbox:
                result = await sandbox.exec(["python3", "-I", "-c", code.format(targets=targets)])
                return Result(result.outcome, result.code, result.stdout, result.stderr, listed, str(other))

    result = boxes.run(work())
    listed, other = int(result.seconds), result.detail
    assert result.text.splitlines() == [
        f"127.0.0.1:{listed} 200 GET /x HTTP/1.1",
        f"127.0.0.1:{other} 403",
        f"localhost:{listed} 403",
        f"localhost:{other} 502",  # a name on the list that leads to this machine
        "405",
    ]


def test_a_gateway_that_nobody_set_is_refused_before_anything_starts(boxes: Boxes) -> None:
    async def work() -> None:
        driver = BubblewrapDriver()
        with pytest.raises(UserError, match=r"network\.mode: leads nowhere"):
            driver.sandbox(boxes.spec(network=NetworkPolicy(Network.gateway)))
        await driver.close()

    boxes.run(work())


@pytest.mark.parametrize(
    ("host", "port", "entries", "answer"),
    [
        ("pypi.org", 443, ["pypi.org:443"], True),
        ("PyPI.org", 443, ["pypi.org:443"], True),
        ("pypi.org", 80, ["pypi.org:443"], False),
        ("evilpypi.org", 443, ["pypi.org:443", "*.pypi.org:443"], False),
        ("files.pypi.org", 443, ["*.pypi.org:443"], True),
        ("pypi.org", 443, ["*.pypi.org:443"], False),
        ("pypi.org.evil.net", 443, ["pypi.org:443", "*.pypi.org:443"], False),
        ("", 443, ["pypi.org:443"], False),
    ],
)
def test_what_is_on_the_list(host: str, port: int, entries: list[str], answer: bool) -> None:
    assert allowed(host, port, entries) is answer


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_a_name_never_leads_to_a_private_address(address) -> None:
    assert (reachable("name.example", [str(address)]) == [str(address)]) is address.is_global
    assert reachable(str(address), [str(address)]) == [str(address)]


def test_loopback_is_up_for_the_sandboxs_own_servers(boxes: Boxes) -> None:
    code = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"hello")).start()
print(socket.create_connection(server.getsockname()).recv(9).decode())
"""
    assert boxes.python(code).text == "hello\n"
