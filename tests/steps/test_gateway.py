"""The step gateway over real vLLM: the vendors' SDKs, a run's rows in the stream, log-probabilities recomputed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from google import genai

from tests.processes import free_port, wait_for
from tests.steps.conftest import ENVIRONMENT, ROOT, Served, command, complaint, run_step

pytestmark = pytest.mark.xdist_group("samples")  # vLLM starts once for all of them

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
# The tiny model's own template knows no tools, and its context has no room for a family's instructions.
TEMPLATE = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": SCHEMA}}


@pytest.fixture(scope="module")
def gateway(workspace: Path, served: Served) -> Iterator[str]:
    """In front of the served model `other`, whose calls are written as Hermes' and Qwen's are."""
    template = workspace / "tools.jinja"
    template.write_text(TEMPLATE)
    settings = {"template": str(template), "versions": [{"name": "main", "replicas": [served.url], "policy": 4}]}
    inputs = {"model": "models/other", "stream": "lake/experience.lance"}
    config = {"host": "127.0.0.1", "gateway": settings}
    with started(workspace, "gateway", inputs, config, run="gate", POSTTRAIN_GATEWAY_ADMIN="admin") as url:
        yield url


@contextmanager
def started(
    workspace: Path, name: str, inputs: dict[str, str], config: dict[str, Any], *, run: str, **environment: str
) -> Iterator[str]:
    """The address of a step that serves, once it answers; the step is stopped in the end."""
    port = free_port()
    process = subprocess.Popen(
        command(workspace, name, inputs, {"port": port, **config}, run=run, step=name), cwd=ROOT,
        env=ENVIRONMENT | environment,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{url}/health", process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def admin(url: str, path: str, body: Any) -> Any:
    answer = httpx.post(url + path, json=body, headers={"authorization": "Bearer admin"}, timeout=60)
    assert answer.is_success, answer.text
    return answer.json()


def rows(workspace: Path, name: str, stream: str = "experience") -> list[dict[str, Any]]:
    from posttrain.lakestream import Stream

    table = Stream.open(workspace / "lake" / f"{stream}.lance").snapshot().to_table()
    return [row for row in table.to_pylist() if row["trajectory"].partition("#")[0] == name]


def test_a_run_with_every_sdk_whose_log_probabilities_the_model_gives_again(gateway: str, workspace: Path):
    made = admin(gateway, "/trajectories", {"task": "t"})
    client = openai.OpenAI(base_url=f"{gateway}/v1", api_key=made["key"], max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "7 + 8 = ?"}]
    for _ in range(3):  # one conversation, a tool's call forced in each of its turns
        answer = client.chat.completions.create(
            model="m", messages=messages, tools=[TOOL], max_tokens=120, seed=1, logprobs=True,  # type: ignore[list-item]
            tool_choice={"type": "function", "function": {"name": "add"}},
        ).choices[0]  # fmt: skip
        [call] = answer.message.tool_calls or []
        assert json.loads(call.function.arguments)["a"] in (1, 2) and answer.finish_reason == "tool_calls"
        messages += [answer.message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "15"}]
    chunks = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], max_tokens=12, n=2, seed=2, stream=True
    )
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}
    form: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    formed = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "y"}], response_format=form, max_tokens=400
    )
    assert json.loads(formed.choices[0].message.content or "")["a"] in (1, 2)
    said = anthropic.Anthropic(base_url=gateway, api_key=made["key"], max_retries=0).messages.create(
        model="m", max_tokens=8, messages=[{"role": "user", "content": "z"}]
    )
    assert said.usage.output_tokens <= 8
    google = genai.Client(api_key=made["key"], http_options={"base_url": gateway})
    config = {"max_output_tokens": 8}
    assert list(google.models.generate_content_stream(model="m", contents="w", config=config))  # type: ignore[arg-type]

    ended = admin(gateway, f"/trajectories/{made['id']}/finish", {"reward": 1.0})
    assert (ended["turns"], ended["rows"], ended["forks"]) == (8, 6, {})
    kept = rows(workspace, made["id"])
    assert len(kept) == 6 and {row["status"] for row in kept} == {"finished"}
    for number, row in enumerate(kept):
        assert {version["version"] for version in row["policy_versions"]} == {4}  # the engine tells none
        sampled = [i for i, loss in enumerate(row["loss_mask"]) if loss]
        again = recomputed(workspace / "models/other", row["tokens"])
        constrained = number in (0, 3)  # those of a distribution from which all that does not fit was taken
        for i in sampled:
            assert constrained or abs(again[i] - row["logprobs"][i]) < 1e-3
            assert row["logprobs"][i] > again[i] - 1e-3


def recomputed(model: Path, ids: list[int]) -> list[float]:
    """Each token's log-probability by Transformers in float32; 0 for the first."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)(torch.tensor([ids])).logits[0]
    logprobs = torch.log_softmax(logits.double(), -1)
    return [0.0, *(float(logprobs[place, token]) for place, token in enumerate(ids[1:]))]


def test_what_it_cannot_serve_is_one_line(workspace: Path):
    done = run_step(workspace, "gateway", {"model": "models/none"}, run="nomodel")
    assert "gateway.model: does not exist in the workspace" in complaint(done)
    done = run_step(
        workspace, "gateway", {"model": "models/other"}, {"gateway": {"versions": [{"replicas": []}]}}, run="noengine"
    )
    assert "versions.main: has no replicas" in complaint(done)
