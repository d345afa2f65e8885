"""A run's key makes its calls a trajectory: the ids that the engine saw, in the stream exactly once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest
from typer.testing import CliRunner

from posttrain.cli.trace import app as commands
from posttrain.lakestream import Stream
from posttrain.llmm import ir, trace
from posttrain.llmm.gateway.experience import Keeper
from posttrain.llmm.gateway.journal import CallFailed, Closed, Journal, Opened
from posttrain.llmm.ir import arrow
from posttrain.llmm.replay import replay
from tests.llmm.gateway.conftest import ADMIN, CLIENT, Gateway, directory_of, gateway, started
from tests.llmm.gateway.test_clients import CALL, IMAGE, TOOL, anthropic_of, google_of, openai_of, script
from tests.llmm.tokens.families import model
from tests.processes import wait_until

pytestmark = pytest.mark.xdist_group("gateway")  # one gateway for all that ask it nothing special


def converse(served: Gateway, key: str, turns: int, **more: Any) -> list[dict[str, Any]]:
    """A conversation in which the model calls a tool in every turn but the last."""
    answers = [CALL.replace("1}", f"{n}}}") for n in range(turns - 1)] + ["done"]
    messages: list[Any] = [{"role": "user", "content": script(*answers)}]
    for turn in range(turns):
        answer = openai_of(served, key).chat.completions.create(model="m", messages=messages, tools=[TOOL], **more)  # type: ignore[list-item]
        said = answer.choices[0].message
        messages.append(said.to_dict())
        if said.tool_calls:
            messages.append({"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": f"result {turn}"})
    return messages


def stream_of(workspace: Path, name: str) -> list[dict[str, Any]]:
    return Stream.open(workspace / "lake" / f"{name}.lance").snapshot().to_table().to_pylist()


def rows_of(served: Gateway, name: str) -> list[dict[str, Any]]:
    return [row for row in served.rows() if row["trajectory"].partition("#")[0] == name]


def test_twenty_turns_are_one_row_with_the_ids_that_the_engine_saw(shared: Gateway):
    name, key = shared.trajectory("twenty", group="g")
    begun = len(shared.told()["seen"])
    converse(shared, key, 20)
    seen = [call["token_ids"] for call in shared.told()["seen"][begun:]]
    ended = shared.finish(name, reward=0.5)
    assert (ended["turns"], ended["rows"], ended["forks"]) == (20, 1, {})
    [row] = rows_of(shared, name)
    assert all(row["tokens"][: len(ids)] == ids for ids in seen) and len(seen) == 20
    assert (row["task"], row["group"], row["status"], row["reward"]) == ("twenty", "g", "finished", 0.5)
    sampled = [t for t, kept in zip(row["tokens"], row["loss_mask"], strict=True) if kept]
    text = model("qwen2_5").codec.decode(sampled)
    assert text == "<|im_end|>".join([CALL.replace("1}", f"{n}}}") for n in range(19)] + ["done", ""])
    assert [p for p, kept in zip(row["logprobs"], row["loss_mask"], strict=True) if kept] == pytest.approx(
        [-(t % 100) / 100 for t in sampled]
    )
    assert [v["version"] for v in row["policy_versions"]] == [7] * 20
    lived = arrow.trajectory(row)
    assert [turn.parent for turn in lived.turns] == [None, *range(19)] and all(turn.said for turn in lived.turns)
    for turn in lived.turns:
        assert turn.said is not None
        for message in (*turn.seen, turn.said.message):
            origin, [part] = message.origin, message.parts
            assert origin is not None and origin.span is not None
            assert (origin.turn, origin.call, origin.trainable) == (turn.index, turn.call.id, origin.author == "policy")
            written = model("qwen2_5").codec.decode(row["tokens"][slice(*origin.span)])
            result = part.content[0] if isinstance(part, ir.ToolResult) else part
            assert (result.text if isinstance(result, ir.Text) else '"add"') in written


def test_the_ledger_of_a_run_replays_without_a_difference(shared: Gateway):
    name, key = shared.trajectory("ledger")
    converse(shared, key, 3)
    for kind in ("responses", "messages", "google"):
        ask(shared, key, kind)
    shared.finish(name, reward=1.0)
    file = shared.journal() / "traces" / f"{name}.jsonl"
    told = trace.read(file)
    assert replay(told) is None
    again = CliRunner().invoke(commands, ["replay", str(file), "--model", shared.url, "--key", CLIENT])
    assert (again.exit_code, again.stdout.strip()) == (0, "all comes out the same"), again.output
    [row] = [row for row in rows_of(shared, name) if row["trajectory"] == f"{name}#0"]
    lived = trace.rebuild(told)
    assert list(lived.turns[2].tokens.ids) == row["tokens"]
    assert [turn.call.dialect for turn in lived.turns] == [
        "openai_chat", "openai_chat", "openai_chat", "openai_responses", "anthropic_messages", "google_genai"
    ]  # fmt: skip


def test_the_ledger_tells_of_tools_and_of_what_the_model_was_not_told(shared: Gateway):
    name, key = shared.trajectory("tools", metadata={"seed": "7"})
    client = anthropic_of(shared, key)
    hosted: Any = {"type": "web_search_20250305", "name": "web_search"}
    tools: Any = [{"name": "add", "input_schema": TOOL["function"]["parameters"]}, hosted]
    messages: list[Any] = [{"role": "user", "content": script(CALL, "done")}]
    said = client.messages.create(model="m", max_tokens=99, messages=messages, tools=tools)
    result = {"type": "tool_result", "tool_use_id": said.content[0].id, "content": "no such file", "is_error": True}
    messages += [{"role": "assistant", "content": [b.to_dict() for b in said.content]}]
    messages += [{"role": "user", "content": [result]}]
    client.messages.create(model="m", max_tokens=99, messages=messages, tools=tools)
    shared.finish(name)
    start, first, tool, second, end = shared.ledger(name)
    assert isinstance(start, trace.Started) and start.metadata == {"seed": "7"}
    assert isinstance(first, trace.Asked) and isinstance(second, trace.Asked) and isinstance(tool, trace.Used)
    assert [event.cause for event in (first, tool, second, end)] == ["start", first.id, tool.id, second.id]
    assert (tool.name, tool.result, tool.error) == ("add", "no such file", "failed")
    assert tool.at >= first.at and (tool.seconds or 0) >= 0
    assert [(lost.path, lost.value) for lost in second.losses] == [
        ("messages.2.error", True),
        ("tools.1", "web_search_20250305"),
    ]


def test_an_image_is_named_to_a_model_of_text_where_the_settings_say_so(tmp_path: Path):
    with gateway(tmp_path, media="name") as served:
        name, key = served.trajectory("image")
        image = {"type": "image_url", "image_url": {"url": IMAGE}}
        asked: Any = [{"role": "user", "content": [{"type": "text", "text": "look"}, image]}]
        openai_of(served, key).chat.completions.create(model="m", messages=asked)
        served.finish(name)
        assert "look\n[image]<|im_end|>" in model("qwen2_5").codec.decode(served.told()["seen"][-1]["token_ids"])
        [told] = [e for e in served.ledger(name) if isinstance(e, trace.Asked)]
        assert [(lost.path, lost.value) for lost in told.losses] == [("messages.0", "image")]
        assert told.request["messages"] == asked


def ask(served: Gateway, key: str, kind: str) -> None:
    if kind == "responses":
        openai_of(served, key).responses.create(model="m", input="x")
    elif kind == "messages":
        client = anthropic_of(served, key)
        client.messages.create(model="m", max_tokens=99, messages=[{"role": "user", "content": "y"}])
    else:
        google = google_of(served, key)
        google.models.generate_content(model="m", contents="z")


def test_an_edited_history_is_another_row_and_counted(shared: Gateway):
    name, key = shared.trajectory("edited")
    messages = converse(shared, key, 3)
    messages[2]["content"] = "[Old tool result content cleared]"
    openai_of(shared, key).chat.completions.create(model="m", messages=[*messages, {"role": "user", "content": "x"}])
    ended = shared.finish(name)
    assert (ended["rows"], ended["forks"]) == (2, {"tool_result_changed": 1})
    assert [row["trajectory"] for row in rows_of(shared, name)] == [f"{name}#0", f"{name}#1"]
    assert shared.metric("forks_total")['forks_total{reason="tool_result_changed"}'] >= 1


def test_several_samples_are_rows_of_one_prompt(shared: Gateway):
    name, key = shared.trajectory("samples")
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 3}
    openai_of(shared, key).chat.completions.create(**asked)
    assert shared.finish(name)["rows"] == 3
    assert len({tuple(row["tokens"]) for row in rows_of(shared, name)}) == 1


def test_a_call_that_failed_is_in_no_row(shared: Gateway):
    name, key = shared.trajectory("failed")
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": script("abc @die")}]}
    with pytest.raises(openai.APIError):
        list(openai_of(shared, key).chat.completions.create(**asked, stream=True))
    assert shared.finish(name, status="failed")["rows"] == 0
    journal = (shared.journal() / "settled" / f"{name}.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in journal] == ["open", "failed", "close"]
    ledger = shared.ledger(name)
    [told] = [event for event in ledger if isinstance(event, trace.Asked)]
    assert "lost in the middle" in (told.failure or "") and told.response is None
    assert told.request["messages"][0]["content"] == asked["messages"][0]["content"]


def test_an_end_is_an_end(shared: Gateway):
    name, key = shared.trajectory("ended")
    openai_of(shared, key).chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    with ThreadPoolExecutor(8) as pool:
        endings = list(pool.map(lambda n: shared.finish(name, reward=float(n)), range(8)))
    assert len({ending["reward"] for ending in endings}) == 1
    assert len(rows_of(shared, name)) == 1
    with pytest.raises(openai.ConflictError, match="has ended"):
        openai_of(shared, key).chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])


def test_who_may_do_what(shared: Gateway):
    name, key = shared.trajectory("owned")
    post, headers = httpx.post, {"authorization": f"Bearer {key}"}
    assert post(f"{shared.url}/trajectories", json={"task": "t"}, headers=headers).status_code == 403
    assert post(f"{shared.url}/trajectories", json={"task": "t"}).status_code == 401
    own = httpx.get(f"{shared.url}/trajectories/{name}", headers=headers)
    assert own.json()["status"] == "open" and key not in own.text
    other = {"authorization": f"Bearer {shared.trajectory('other')[1]}"}
    assert post(f"{shared.url}/trajectories/{name}/finish", headers=other).status_code == 403
    admin = {"authorization": f"Bearer {ADMIN}"}
    for body, status in (({"task": ""}, 422), ({"task": "t", "id": "../x"}, 422), ({"task": "t", "x": 1}, 422),
                         ({"task": "t", "id": name}, 409)):  # fmt: skip
        assert post(f"{shared.url}/trajectories", json=body, headers=admin).status_code == status
    assert post(f"{shared.url}/trajectories/{name}/finish", json={"status": "x"}, headers=admin).status_code == 422
    assert post(f"{shared.url}/trajectories/{name}/finish", headers=headers).json()["status"] == "finished"
    assert httpx.get(f"{shared.url}/trajectories/none", headers=admin).status_code == 404


def test_no_key_and_no_message_is_in_what_the_gateway_writes_of_itself(shared: Gateway):
    name, key = shared.trajectory("secret")
    openai_of(shared, key).chat.completions.create(model="m", messages=[{"role": "user", "content": "a word of mine"}])
    shared.finish(name)
    written = shared.workspace / "runs" / "r" / "gateway" / "log"
    wait_until(lambda: name in written.read_text(), "the request's line is in the log")
    log = written.read_text()
    assert "a word of mine" not in log
    everything = log + "".join(path.read_text() for path in shared.journal().rglob("*.jsonl"))
    assert not any(secret in everything for secret in (key, ADMIN, CLIENT))


def test_a_killed_gateway_loses_nothing_that_ended_and_closes_what_was_open(tmp_path: Path):
    with gateway(tmp_path, ledgers="lake/ledgers.lance") as first:
        done, key = first.trajectory("done")
        converse(first, key, 2)
        first.finish(done, reward=1.0)
        left, key = first.trajectory("left")
        converse(first, key, 3)
        for n in range(20):  # some end while the gateway dies
            first.trajectory(f"racing-{n}", id=f"racing-{n}")
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        threads = [threading.Thread(target=_end, args=(first, f"racing-{n}")) for n in range(20)]
        for thread in threads:
            thread.start()
        first.processes[0].send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join()
        journal = first.journal() / "open" / f"{left}.jsonl"
        with open(journal, "ab") as cut:  # half a line, as a machine that stops leaves one
            cut.write(b'{"kind": "tu')
        versions = [{"name": "main", "replicas": first.engines, "policy": 7}]
        settings = {"versions": versions, "ledgers": "lake/ledgers.lance"}
        with started(tmp_path, "qwen2_5", settings) as (url, _):
            second = Gateway(url, tmp_path, first.engines)
            name, key = second.trajectory("after")
            openai_of(second, key).chat.completions.create(**asked)
            second.finish(name)  # in the stream after all that ended before it
            rows = second.rows()
            again = second.finish(left)
            ledgers = stream_of(tmp_path, "ledgers")
    assert again["status"] == "interrupted"
    assert [row["status"] for row in rows if row["task"] == "done"] == ["finished"]
    assert [row["status"] for row in rows if row["task"] == "left"] == ["aborted"]  # the stream's word for it
    assert sum(next(r for r in rows if r["task"] == "left")["loss_mask"]) > 0
    starts = [row["trajectory"] for row in ledgers if row["event"] == "started"]
    assert len(starts) == len(set(starts)) == 23 and {done, left, name} < set(starts)
    assert not list((first.journal() / "open").iterdir()) and not list((first.journal() / "closed").iterdir())


def test_a_crash_between_the_two_streams_leaves_neither_with_a_run_twice(tmp_path: Path):
    experience, ledgers, asked = str(tmp_path / "experience"), str(tmp_path / "ledgers"), ir.Call(id="c")
    journal = Journal(tmp_path / "journal")
    for number in (1, 2):
        journal.write(f"t{number}", Opened(id=f"t{number}", task="t", group="t", key="", started=1.0))
        journal.write(
            f"t{number}",
            CallFailed(call=msgspec.structs.replace(asked, request=ir.ChatRequest(messages=())), error="e"),
        )
    paths = [journal.close(f"t{n}", Closed(status="failed", at=2.0), n) for n in (1, 2)]
    half = Keeper(Journal(tmp_path / "journal"), "g", experience=experience)
    half._append([(1, paths[0], Future())])
    half.close()
    (tmp_path / "journal" / "settled" / "t1.jsonl").rename(paths[0])  # as it stood before the crash
    whole = Keeper(journal, "g", experience=experience, ledgers=ledgers)
    assert whole.cursor == 0
    for number, path in enumerate(paths, 1):
        whole.put(number, path).result(60)
    whole.close()
    assert whole.cursor == 2 and whole.failure is None
    starts = [
        row["trajectory"] for row in Stream.open(ledgers).snapshot().to_table().to_pylist() if row["event"] == "started"
    ]
    assert starts == ["t1", "t2"]


def _end(served: Gateway, name: str) -> None:
    with suppress(httpx.HTTPError, AssertionError):  # the gateway is being killed
        served.finish(name, status="aborted")


def test_a_directory_without_a_template_is_told_before_anything_starts(tmp_path: Path):
    made = directory_of("qwen2_5", tmp_path)
    (made / "chat_template.jinja").unlink()
    command = [sys.executable, "-m", "steps.gateway", "--workspace", str(tmp_path), "--run", "r", "--input"]
    done = subprocess.run([*command, "model=models/qwen2_5"], capture_output=True,
                          text=True, timeout=60)  # fmt: skip
    assert done.returncode == 2 and "gateway.model: has no chat template" in done.stderr
    assert "Traceback" not in done.stderr
