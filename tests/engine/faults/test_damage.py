"""Files of a run's store that were damaged, a full disk, and a machine that lacks what an image stands for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from posttrain.engine import Engine, EngineSettings, load
from posttrain.errors import UserError
from tests.engine.laws.support import workflow
from tests.engine.whole import run_whole

DAMAGES = {
    "empty": lambda _: b"",
    "cut": lambda data: data[: len(data) // 2],
    "noise": lambda data: b"\xff\xfe" + data[::-1],
}


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a run that has done a step, holds a lock, waits for an approval, and was told to end."""
    workspace = tmp_path_factory.mktemp("half")
    tasks = [{"name": "first", "template": "work"}, {"name": "ask", "template": "ask", "depends": "first"}]
    work = {"name": "work", "container": {"image": "i", "command": ["true"]}}
    locked = {"mutexes": [{"name": "one"}]}
    manifest = workflow(
        {"name": "main", "dag": {"tasks": tasks}}, work, {"name": "ask", "suspend": {}, "synchronization": locked}
    )
    assert run_whole(workspace, yaml.safe_dump(manifest))[0] == "waits"
    Engine(workspace).terminate("w")
    return workspace


def files_of(workspace: Path) -> list[Path]:
    found = [path for path in (workspace / "engine").rglob("*") if path.is_file() and path.stat().st_size]
    return sorted(path.relative_to(workspace) for path in found if path.name != "lock")


@pytest.mark.parametrize("how", DAMAGES)
def test_each_file_of_the_store_damaged_is_one_line_and_put_right_the_run_goes_on(
    tmp_path: Path, half_done: Path, how: str
) -> None:
    files = files_of(half_done)
    assert {"workflow.json", "events.jsonl", "manifest.yaml"} <= {file.name for file in files}
    for number, file in enumerate(files):
        workspace = tmp_path / str(number)
        shutil.copytree(half_done, workspace)
        whole = (workspace / file).read_bytes()
        (workspace / file).write_bytes(DAMAGES[how](whole))
        engine = Engine(workspace)
        try:
            phase = engine.run("w")
        except UserError as error:
            assert file.name in str(error) and "is damaged" in str(error) and "\n" not in str(error)
            (workspace / file).write_bytes(whole)
            phase = engine.run("w")
        assert phase == "Failed", file


def test_a_full_disk_stops_the_engine_by_one_line_and_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    disk, notes = tmp_path / "disk", tmp_path / "notes"
    disk.mkdir()
    notes.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.decode().strip()}")
    try:
        step = {
            "image": "i", "command": ["sh"], "source": "echo {{inputs.parameters.n}} >> /notes/ran",
            "volumeMounts": [{"name": "notes", "mountPath": "/notes"}],
        }  # fmt: skip
        manifest = workflow(
            {"name": "main", "parallelism": 1, "steps": [[{"name": "each", "template": "work", "withSequence": {
                "count": "6"}, "arguments": {"parameters": [{"name": "n", "value": "n{{item}}"}]}}]]},
            {"name": "work", "inputs": {"parameters": [{"name": "n"}]}, "script": step},
            volumes=[{"name": "notes", "persistentVolumeClaim": {"claimName": "notes"}}],
        )  # fmt: skip
        engine = Engine(disk / "workspace", settings=EngineSettings(claims={"notes": str(notes)}))
        name = engine.submit(load(manifest))

        def fill(event: dict) -> None:
            if event["node"].endswith("(2:2)") and event["phase"] == "Running" and not (disk / "filler").exists():
                with pytest.raises(OSError), open(disk / "filler", "wb", buffering=0) as filler:
                    while True:
                        filler.write(bytes(4096))

        with pytest.raises(UserError, match="No space left on device") as full:
            engine.run(name, on_event=fill)
        assert "\n" not in str(full.value)
        (disk / "filler").unlink()
        hit: set[str] = set()
        if engine.run(name) == "Failed":  # the disk was full for a pod as well, which says so and can be tried again
            pods = [node for node in engine.get(name)["status"]["nodes"].values() if node["type"] == "Pod"]
            failed = [node for node in pods if node["phase"] in ("Failed", "Error")]
            assert all("disk" in node["message"] or "No space" in node["message"] for node in failed), failed
            hit = {f"n{node['displayName'].partition('(')[2].partition(':')[0]}" for node in failed}
            engine.retry(name)
            assert engine.run(name) == "Succeeded"
        ran = (notes / "ran").read_text().split()
        assert set(ran) == {f"n{number}" for number in range(6)}
        assert all(ran.count(each) == 1 for each in set(ran) - hit)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_what_an_image_stands_for_and_is_not_there_is_one_line(tmp_path: Path) -> None:
    settings = EngineSettings(images={"steps:1": {"/opt/env": str(tmp_path / "envs" / "missing")}})
    engine = Engine(tmp_path, settings=settings)
    manifest = workflow({"name": "main", "container": {"image": "steps:1", "command": ["/opt/env/bin/python"]}})
    assert engine.run(engine.submit(load(manifest))) in ("Error", "Failed")
    message = engine.get("w")["status"]["message"]
    assert str(tmp_path / "envs" / "missing") in message and "\n" not in message


def test_an_image_without_a_mapping_is_one_line(tmp_path: Path) -> None:
    engine = Engine(tmp_path, settings=EngineSettings(known_images_only=True))
    manifest = workflow({"name": "main", "container": {"image": "unknown:1", "command": ["true"]}})
    assert engine.run(engine.submit(load(manifest))) == "Error"
    message = engine.get("w")["status"]["message"]
    assert "image 'unknown:1' stands for nothing on this machine" in message and "\n" not in message
    assert not list((tmp_path / "engine" / "w" / "pods").glob("w*")) or not os.listdir(tmp_path / "engine/w/pods/w")
