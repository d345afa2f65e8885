"""What the gateway tells of a call: a span by OpenTelemetry's names, and a line of log without contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient

from posttrain.llmm.gateway.app import build
from posttrain.llmm.gateway.settings import GatewaySettings, VendorSettings, VersionSettings
from tests.llmm.gateway.conftest import ADMIN, CLIENT, ENVIRONMENT, Gateway
from tests.llmm.gateway.test_clients import script
from tests.llmm.tokens.families import model

pytestmark = pytest.mark.xdist_group("gateway")


def test_every_call_is_a_span_and_one_that_fails_says_why(
    shared: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr("posttrain.llmm.gateway.telemetry.tracer", trace.get_tracer("test", tracer_provider=provider))
    for name in ("POSTTRAIN_GATEWAY_ADMIN", "CLIENT_KEY"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    vendor = VendorSettings("outside", "openai_chat", f"{shared.url}/v1", "CLIENT_KEY", ["theirs"])
    settings = GatewaySettings(versions=[VersionSettings("new", [shared.engines[0]])], vendors=[vendor])
    with TestClient(build(settings, model("qwen2_5"), tmp_path)) as client:
        made = client.post("/trajectories", json={"task": "t"}, headers={"authorization": f"Bearer {ADMIN}"}).json()

        def ask(text: str, name: str = "policy") -> int:
            body: Any = {"model": name, "messages": [{"role": "user", "content": text}]}
            return client.post(
                "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {made['key']}"}
            ).status_code

        assert [ask("a secret"), ask(script("@500")), ask("a secret", "theirs")] == [200, 502, 200]
    answered, failed, passed = kept.get_finished_spans()
    for span in (answered, failed, passed):
        assert span.attributes is not None
        assert span.attributes["gen_ai.operation.name"] == "chat"
        assert span.attributes["posttrain.trajectory"] == made["id"]
        assert "secret" not in str(span.to_json()) and CLIENT not in str(span.to_json())
    assert answered.attributes and answered.attributes["gen_ai.usage.output_tokens"] == 3
    assert [span.attributes["posttrain.version"] for span in (answered, passed) if span.attributes] == [
        "new",
        "outside",
    ]
    assert not failed.status.is_ok and "a defect" in (failed.status.description or "")
