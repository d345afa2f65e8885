"""Runs on disk: one engine at a time, damaged files, and files that were cut short."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from posttrain.engine import Engine, load, operations
from posttrain.errors import UserError
from tests.engine.laws.support import WORK, as_told, run_decided, workflow

FAILS = WORK | {"name": "main", "inputs": {"parameters": [{"name": "end", "default": "Failed"}]}}
PAUSE = workflow({"name": "main", "suspend": {}})


def test_a_second_engine_says_that_the_first_holds_the_run(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    name = engine.submit(load(PAUSE))
    up = threading.Event()
    first = threading.Thread(target=lambda: engine.run(name, on_event=lambda _: up.set()))
    first.start()
    assert up.wait(30)
    with pytest.raises(UserError, match=r"driven by another engine, process [0-9]+"):
        Engine(tmp_path).run(name)
    engine.terminate(name)
    first.join(30)
    assert engine.get(name)["status"]["phase"] == "Failed"


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    engine.submit(load(PAUSE))
    with pytest.raises(UserError, match="there is a run of this name"):
        engine.submit(load(PAUSE))


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"metadata": {}}', "null"])
def test_a_damaged_snapshot_is_one_clear_line(tmp_path: Path, damage: str) -> None:
    engine = Engine(tmp_path)
    name = engine.submit(load(PAUSE))
    file = tmp_path / "engine" / name / "workflow.json"
    file.write_text(damage)
    with pytest.raises(UserError, match=f"{file}: is damaged"):
        engine.run(name)
    assert file.read_text() == damage


def ended(tmp_path: Path) -> tuple[Engine, Path]:
    run_decided(tmp_path, workflow({"name": "main", "steps": [[{"name": "a", "template": "work"}]]}, WORK), as_told)
    return Engine(tmp_path), tmp_path / "engine" / "w"


def test_the_journal_alone_gives_the_same_run(tmp_path: Path) -> None:
    engine, run = ended(tmp_path)
    whole = engine.get("w")
    first = json.loads((run / "workflow.json").read_text())
    for part in ("status", "times"):
        first[part] = {}
    first["metadata"] = {**first["metadata"], "resourceVersion": "0"}
    (run / "workflow.json").write_text(json.dumps(first))
    replayed = engine.get("w")
    for one in (whole, replayed):
        one["metadata"].pop("resourceVersion")
    assert replayed == whole


def test_a_line_that_was_cut_short_is_as_if_it_had_never_been_written(tmp_path: Path) -> None:
    engine, run = ended(tmp_path)
    whole = engine.get("w")
    with (run / "events.jsonl").open("a") as journal:
        journal.write('{"seq": 99, "ops": [["d"')
    assert engine.get("w") == whole
    assert engine.run("w") == "Succeeded"


def test_damage_in_the_midst_of_the_journal_is_named_by_its_line(tmp_path: Path) -> None:
    engine, run = ended(tmp_path)
    lines = (run / "events.jsonl").read_text().splitlines()
    (run / "events.jsonl").write_text("\n".join([lines[0], "garbage", *lines[1:]]) + "\n")
    with pytest.raises(UserError, match=r"events.jsonl:2: is damaged"):
        list(engine.events("w"))


def test_delete_takes_what_has_ended_and_nothing_else(tmp_path: Path) -> None:
    engine, run = ended(tmp_path)
    engine.delete("w")
    assert not run.exists() and engine.list() == []
    with pytest.raises(UserError, match="there is no such run"):
        engine.delete("w")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", ".x", "x" * 3 + "/"])
def test_what_is_no_name_of_a_run_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="is no name of a run"):
        Engine(tmp_path).get(name)


def test_a_suspended_run_can_be_terminated(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    name = engine.submit(load(workflow(WORK | {"name": "main"}, suspend=True)))
    engine.terminate(name)
    assert engine.run(name) == "Failed"


def test_an_order_that_came_too_late_is_not_for_the_run_that_is_tried_again(tmp_path: Path) -> None:
    engine, store = Engine(tmp_path), Engine(tmp_path).store("w")
    run_decided(tmp_path, workflow(FAILS), as_told)
    with pytest.raises(UserError, match="has ended"):  # the run ended while somebody was about to stop it
        operations.ask(store, "stop", {})
    (store.orders / "1.json").write_text('{"operation": "stop", "arguments": {}}')  # and who asked was killed
    engine.retry("w")
    assert list(store.orders.iterdir()) == []


def test_an_expression_in_the_spec_that_means_nothing_ends_the_run(tmp_path: Path) -> None:
    nodes, _ = run_decided(tmp_path, workflow(WORK | {"name": "main"}, onExit="{{=1+}}"), as_told)
    assert nodes[""]["phase"] == "Error" and "unexpected token EOF" in nodes[""]["message"]
