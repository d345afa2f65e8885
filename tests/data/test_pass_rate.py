"""Pass rates, from an endpoint and from a model that is loaded here."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from posttrain.data.config import Prompt, Tiers
from posttrain.data.formatting import to_example
from posttrain.data.pass_rate import EndpointPassRate, ModelPassRate
from posttrain.data.schema import Raw
from posttrain.data.tiers import assign
from posttrain.errors import UserError
from posttrain.models import tiny
from posttrain.models.config import TinyShape

ROWS = [
    to_example(Raw(0, f"x:{n}", question, str(eval(question)), "numeric"), Prompt(), "x")
    for n, question in enumerate(["1 + 1", "4 - 1", "9 - 5 + 1", "2 + 8"])
]


class Adder(BaseHTTPRequestHandler):
    """Speaks the protocol; adds well, subtracts well in every second sample, and fails where both are asked."""

    def do_POST(self):
        if not self.path.startswith("/v1/"):
            self.send_error(404)
            return
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked | {"key": self.headers["Authorization"]})
        question = asked["messages"][-1]["content"].partition(" Reply")[0]
        both, minus = "+" in question and "-" in question, "-" in question
        texts = [f"<answer>{eval(question) + (both or (minus and n % 2))}</answer>" for n in range(asked["n"])]
        body = json.dumps({"choices": [{"message": {"content": text}} for text in texts]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Adder) as listening:
        listening.asked = []
        Thread(target=listening.serve_forever, daemon=True).start()
        yield listening
        listening.shutdown()


def test_rates_become_tiers_and_the_key_comes_from_the_environment(server, monkeypatch):
    config = Tiers(by="pass_rate", endpoint=f"http://127.0.0.1:{server.server_port}/v1/", model="m", samples=4)
    monkeypatch.setenv("OPENAI_API_KEY", "the-key")
    ask = EndpointPassRate(config, seed=5)
    assert ask(ROWS) == [1.0, 0.5, 0.0, 1.0]
    assert {(asked["model"], asked["n"], asked["seed"], asked["key"]) for asked in server.asked} == {
        ("m", 4, 5, "Bearer the-key")
    }
    assert [row.tier for row in assign(ROWS, config, ask)] == ["easy", "medium", "hard", "easy"]


def test_a_row_that_brings_its_tier_is_not_asked_about(server):
    config = Tiers(by="pass_rate", endpoint=f"http://127.0.0.1:{server.server_port}/v1", model="m", samples=1)
    brought = to_example(Raw(0, "x:9", "1 + 2", "3", "numeric", tier="hard"), Prompt(), "x")
    assert [row.tier for row in assign([brought, ROWS[0]], config, EndpointPassRate(config, 0))] == ["hard", "easy"]
    assert len(server.asked) == 1


def test_an_endpoint_that_does_not_answer_is_named(server):
    nobody = Tiers(by="pass_rate", endpoint="http://127.0.0.1:9/v1", model="m")
    with pytest.raises(UserError, match=r"tiers.endpoint: does not answer: .*127.0.0.1:9/v1"):
        EndpointPassRate(nobody, seed=0)(ROWS)
    lost = Tiers(by="pass_rate", endpoint=f"http://127.0.0.1:{server.server_port}/v2/lost", model="m")
    with pytest.raises(UserError, match=r"tiers.endpoint: does not answer: HTTP 404"):
        EndpointPassRate(lost, seed=0)(ROWS)


@pytest.mark.slow
def test_a_model_is_loaded_and_asked_in_a_process_of_its_own(tmp_path):
    tiny.build(tmp_path / "tiny", TinyShape(), seed=0)
    rates = ModelPassRate(tmp_path / "tiny", Tiers(by="pass_rate", samples=2, max_tokens=8), seed=0)(ROWS)
    assert rates == [0.0] * len(ROWS), "random weights solve nothing"


@pytest.mark.slow
def test_a_model_that_is_damaged_is_named(tmp_path):
    with pytest.raises(UserError, match=r"prepare_data.model: no such model directory"):
        ModelPassRate(tmp_path / "gone", Tiers(by="pass_rate"), seed=0)(ROWS)
