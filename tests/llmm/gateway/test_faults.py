"""Engines that die, hang or come back; clients that are slow; many at once."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.llmm.gateway.conftest import CLIENT, Gateway, gateway
from tests.llmm.gateway.test_clients import openai_of, script

pytestmark = pytest.mark.xdist_group("gateway")  # one gateway for all that ask it nothing special

HEADERS = {"authorization": f"Bearer {CLIENT}"}


def ask(served: Gateway, text: str, **more: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    return httpx.post(served.url + "/v1/chat/completions", json=body, headers=HEADERS | more.pop("headers", {}),
                      timeout=60)  # fmt: skip


@pytest.mark.parametrize("fault", ["@die", "@half"])
def test_an_answer_that_breaks_off_is_an_error_and_never_taken_for_whole(shared: Gateway, fault: str):
    events = ask(shared, script(f"one two {fault}"), stream=True).text.split("\n\n")
    assert "lost in the middle" in events[-2] and "[DONE]" not in events[-2]


def test_two_engines_with_one_killed(tmp_path: Path):
    """What was not answered yet is asked of the other; what had begun is an error; drained engines get nothing."""
    timeouts = {"first_token": 1.0, "between_tokens": 1.0, "request": 5.0}
    with gateway(tmp_path, engines=2, timeouts=timeouts, max_in_flight=8, max_waiting=4) as served:
        texts = [f"conversation {n}" for n in range(12)]
        for text in texts:
            assert ask(served, text).status_code == 200
        homes = [len(served.told(n)["seen"]) for n in range(2)]
        assert sum(homes) == 12 and min(homes) > 0
        for text in texts:  # each finds the engine that has its prefix
            ask(served, text)
        assert [len(served.told(n)["seen"]) for n in range(2)] == [2 * n for n in homes]

        served.admin("PUT", "/engines", {"url": served.engines[0], "draining": True})
        for text in texts:
            ask(served, text)
        assert len(served.told(0)["seen"]) == 2 * homes[0]
        served.admin("PUT", "/engines", {"url": served.engines[0], "draining": False})

        assert ask(served, script("a @hang"), stream=True).text.count("took too long") == 1
        assert ask(served, script("a @hang")).status_code == 504

        served.admin("PUT", "/engines", {"url": served.engines[1], "draining": True})
        slow = {"model": "m", "stream": True, "messages": [{"role": "user", "content": script("one two three @slow")}]}
        with httpx.stream("POST", served.url + "/v1/chat/completions", json=slow, headers=HEADERS) as answer:
            lines = answer.iter_lines()
            while '"content"' not in next(lines):
                pass
            served.processes[1].send_signal(signal.SIGKILL)
            rest = "".join(lines)
        assert "lost in the middle" in rest and "[DONE]" not in rest
        served.admin("PUT", "/engines", {"url": served.engines[1], "draining": False})
        assert [ask(served, text).status_code for text in texts] == [200] * 12
        time.sleep(0.5)
        shown = served.admin("GET", "/versions")["main"]["replicas"]
        assert [replica["healthy"] for replica in shown] == [False, True]
        assert httpx.get(served.url + "/health").status_code == 200

        served.processes[2].send_signal(signal.SIGKILL)
        served.processes[2].wait()
        assert ask(served, "x").status_code in (502, 503)
        time.sleep(0.5)
        assert httpx.get(served.url + "/health").status_code == 503


def test_versions_shadow_and_limits(tmp_path: Path):
    versions = [
        {"name": "old", "replicas": [0], "policy": 1},
        {"name": "new", "replicas": [1], "policy": 2, "weight": 0},
    ]
    keys = [
        {"name": "client", "variable": "CLIENT_KEY"},
        {"name": "limited", "variable": "LIMITED_KEY", "limits": {"requests_per_minute": 2}},
    ]
    shadow = {"version": "new", "share": 1.0}
    with gateway(tmp_path, engines=2, versions=versions, keys=keys, shadow=shadow, any_model=False) as served:

        def asked() -> list[int]:
            return [sum(not s["request_id"].startswith("shadow-") for s in served.told(n)["seen"]) for n in range(2)]

        policy: dict[str, Any] = {"model": "policy"}
        assert ask(served, "x").status_code == 404  # only the policy's own name
        assert ask(served, "x", **policy).status_code == 200
        assert asked() == [1, 0]
        body = policy | {"messages": [{"role": "user", "content": "x"}]}
        url, pinned = served.url + "/v1/chat/completions", HEADERS | {"x-posttrain-version": "new"}
        assert httpx.post(url, json=body, headers=pinned).status_code == 200
        assert asked() == [1, 1]
        name, key = served.trajectory("kept")
        openai_of(served, key).chat.completions.create(**body)  # type: ignore[call-overload]
        served.admin("PUT", "/versions", {"weights": {"new": 1, "old": 0.001}})
        openai_of(served, key).chat.completions.create(**body)  # type: ignore[call-overload]
        assert asked() == [3, 1] and served.finish(name)["version"] == "old"
        served.admin("PUT", "/versions", {"weights": {"new": 1}})
        assert ask(served, "x", **policy).status_code == 200 and asked() == [3, 2]
        served.admin("POST", "/versions/rollback")
        served.admin("POST", "/versions/rollback")
        assert ask(served, "x", **policy).status_code == 200 and asked() == [4, 2]
        assert any(s["request_id"].startswith("shadow-") for s in served.told(1)["seen"])

        limited = openai_of(served, "limited-secret")
        for _ in range(2):
            limited.chat.completions.create(**body)  # type: ignore[call-overload]
        with pytest.raises(openai.RateLimitError, match="requests of a minute") as refused:
            limited.chat.completions.create(**body)  # type: ignore[call-overload]
        assert int(refused.value.response.headers["retry-after"]) >= 1


def test_two_hundred_streams_at_once(shared: Gateway):
    async def one(client: httpx.AsyncClient, number: int) -> str:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": script(f"answer {number}")}]}
        said = ""
        async with client.stream("POST", "/v1/chat/completions", json=body, headers=HEADERS) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    said += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        return said

    async def all_of_them() -> list[str]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=shared.url, timeout=120, limits=limits, trust_env=False) as client:
            return await asyncio.gather(*(one(client, n) for n in range(200)))

    assert asyncio.run(all_of_them()) == [f"answer {n}" for n in range(200)]
    assert shared.metric("running")["running"] == 0


def test_a_flood_is_refused_and_a_burst_waits(tmp_path: Path):
    with gateway(tmp_path, max_in_flight=2, max_waiting=4) as served:

        async def one(client: httpx.AsyncClient) -> int:
            body = {"model": "m", "messages": [{"role": "user", "content": script("slow answer @slow")}]}
            return (await client.post("/v1/chat/completions", json=body, headers=HEADERS)).status_code

        async def flood(count: int) -> list[int]:
            async with httpx.AsyncClient(base_url=served.url, timeout=120, trust_env=False) as client:
                return sorted(await asyncio.gather(*(one(client) for _ in range(count))))

        assert asyncio.run(flood(5)) == [200] * 5
        found = asyncio.run(flood(30))
        assert found.count(429) >= 20 and found.count(200) >= 6 and set(found) == {200, 429}


def test_a_client_that_does_not_read_is_let_go(tmp_path: Path):
    with gateway(tmp_path, timeouts={"client": 1.0}) as served:
        host, port = served.url.removeprefix("http://").split(":")
        body = json.dumps(
            {"stream": True, "n": 100, "messages": [{"role": "user", "content": script("a" * 50 + " @long")}]}
        )
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((host, int(port)))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CLIENT}\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            until = time.monotonic() + 40
            while served.metric("abandoned_total").get("abandoned_total") != 1:
                assert time.monotonic() < until, "the client is still waited for"
                time.sleep(0.3)
        assert served.metric("running")["running"] == 0


def test_answers_under_way_may_end_when_the_gateway_is_stopped(tmp_path: Path):
    with gateway(tmp_path) as served:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": script("a slow answer @slow")}]}
        with httpx.stream(
            "POST", served.url + "/v1/chat/completions", json=body, headers=HEADERS, timeout=60
        ) as answer:
            lines = answer.iter_lines()
            next(lines)
            served.processes[0].send_signal(signal.SIGTERM)
            rest = list(lines)
        assert "data: [DONE]" in rest
        assert served.processes[0].wait(20) is not None
