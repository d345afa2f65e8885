"""The command line itself: quick to start, complete, and one line for a mistake."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posttrain import doctor
from posttrain.cli import COMMANDS, app
from posttrain.engine import Engine, load
from posttrain.errors import UserError

ROOT = Path(__file__).parents[2]
REQUIRED = {
    "run", "render", "lint", "validate", "submit", "list", "get", "logs", "watch", "stop", "resume", "retry", "rerun",
    "report", "doctor",
}  # fmt: skip


def command_line(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "posttrain.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **options)  # type: ignore[call-overload]


def refused(*arguments: str, given: bytes = b"") -> str:
    """What a command that has to refuse says, in this process: a new one costs a second."""
    done = CliRunner().invoke(app, list(arguments), input=given)
    assert done.stdout == ""
    if isinstance(done.exception, UserError):
        return str(done.exception)
    assert done.exit_code == 2, done.exception
    return done.stderr


def test_every_command_that_was_promised_is_there() -> None:
    assert set(COMMANDS) >= REQUIRED


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0 and "Usage" in shown.output


def test_the_help_costs_a_quarter_of_a_second_of_processor() -> None:
    best = 9.0
    for _ in range(5):
        before = os.times()
        done = command_line("--help")
        assert done.returncode == 0 and "Usage: posttrain [OPTIONS]" in done.stdout
        after = os.times()
        best = min(best, after.children_user + after.children_system - before.children_user - before.children_system)
    assert best < 0.4


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["run", "stf"],
            "error: ROUTE: no such route (got 'stf'); known: sft, standard, pure_rl, cold_start_rl, evaluation",
        ),
        (["render", "sft", "--profile", "labtop"], "error: --profile: no such profile (got 'labtop')"),
        (["render", "sft", "--preset", "huge"], "error: --preset: no such preset (got 'huge'); known: demo, tiny"),
        (["render", "sft", "-f", "nowhere.yaml"], "error: --file: no such file (got 'nowhere.yaml')"),
        (["get", "nothing", "-w", "/nowhere"], "error: --workspace: no such directory (got '/nowhere')"),
        (["lint", "nowhere.yaml"], "error: nowhere.yaml: cannot be read: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], line: str) -> None:
    done = command_line(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1


def test_submit_without_a_cluster_says_what_to_set() -> None:
    bare = {"PATH": "", "HOME": os.environ.get("HOME", "/")}
    done = command_line("submit", "sft", env=bare)
    assert done.returncode == 2
    assert done.stderr == "error: ARGO_SERVER: no cluster is known; set it, or put kubectl on PATH\n"


@pytest.mark.parametrize("server", ["127.0.0.1:9", "me:secret@127.0.0.1:9", "http://me:sec/ret@127.0.0.1:none"])
def test_a_server_that_is_not_there_is_named_without_what_opens_it(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"ARGO_SERVER": server, "ARGO_SECURE": "false", "ARGO_TOKEN": "Bearer secret"}
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    line = refused("submit", "sft")
    assert line.startswith("ARGO_SERVER: does not answer") and "\n" not in line
    told = doctor.cluster()
    assert "does not answer" in told.found
    assert not any(word in f"{line} {told}" for word in ("sec", "ret", "Bearer"))


def test_a_rendered_route_goes_through_lint() -> None:
    rendered = command_line("render", "sft")
    done = command_line("lint", "-", input=rendered.stdout)
    assert (done.returncode, done.stdout) == (0, "no fault found\n")
    wrong = command_line("lint", "-", input=rendered.stdout.replace("workingDir:", "workingDirectory:"))
    assert wrong.returncode == 2 and "workingDirectory" in wrong.stderr


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (b"", "<manifest>: is empty; give it a Workflow"),
        (b"kind: Workflow", "<manifest>:1: "),
        (b"\xff\xfe", "standard input: is no UTF-8 text"),
    ],
)
def test_what_standard_input_holds_is_no_path(given: bytes, line: str) -> None:
    assert refused("lint", "-", given=given).startswith(line)


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    said = refused("report", "mine", "-w", str(tmp_path), "-o", str(tmp_path))
    assert said == f"--output: cannot be written: is a directory (got '{tmp_path}')"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


MANIFEST = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: hello-}
spec:
  entrypoint: main
  arguments: {parameters: [{name: who, value: world}]}
  templates: [{name: main, container: {image: "i:1", command: [echo, "{{workflow.parameters.who}}"]}}]
"""


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("whom=you", "whom: the workflow has no such parameter (got 'you'); known: who"),
        ("who", "who: is no parameter; write KEY=VALUE"),
    ],
)
def test_a_parameter_that_the_manifest_lacks_is_named(tmp_path: Path, given: str, line: str) -> None:
    (tmp_path / "hello.yaml").write_text(MANIFEST)
    workspace = tmp_path / "workspace"
    assert refused("run", str(tmp_path / "hello.yaml"), given, "-w", str(workspace)) == line
    assert not workspace.exists()
    assert refused("submit", str(tmp_path / "hello.yaml"), given) == line


def test_a_file_that_no_step_would_see_is_named_before_anything_starts() -> None:
    """A pod has a /tmp of its own: what is found here would not be found there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        data = Path(place) / "rows.jsonl"
        data.write_text('{"question": "1 + 1", "answer": "2"}\n')
        said = refused("validate", "sft", f"prepare_data.sources=[{{kind: files, path: {data}}}]")
    assert said.startswith("error: prepare_data.sources[0].path: no step sees this directory")
    assert str(data) in said and said.count("\n") == 1


@pytest.mark.parametrize("command", ["get", "watch", "logs", "stop", "resume", "retry", "report", "serve", "rerun"])
def test_a_run_that_is_not_there_is_one_line(tmp_path: Path, command: str) -> None:
    said = refused(command, "nothing", *(["sft"] if command == "rerun" else []), "-w", str(tmp_path))
    assert "no such run" in said and "'nothing'" in said
    assert not [path for path in tmp_path.rglob("*") if "nothing" in path.name]


def test_a_run_can_be_retried_with_what_had_succeeded(tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text(MANIFEST)
    where = ("-w", str(tmp_path / "workspace"))
    assert command_line("run", str(tmp_path / "hello.yaml"), "--name", "hello", *where).returncode == 0
    again = ("retry", "hello", *where)
    both = "--restart-successful and --node-field-selector: go together; give both"
    assert refused(*again, "--restart-successful") == both
    assert refused(*again, "--node-field-selector", "displayName=hello") == both
    nobody = refused(*again, "--restart-successful", "--node-field-selector", "displayName=nobody")
    assert nobody == "node field selector: names no step of the run (got 'displayName=nobody')"
    done = command_line(*again, "--restart-successful", "--node-field-selector", "displayName=hello")
    assert done.returncode == 0, done.stderr
    assert command_line("logs", "hello", *where).stdout == "hello: world\n"


SERVED = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: served}
spec:
  entrypoint: main
  volumes: [{name: workspace, persistentVolumeClaim: {claimName: posttrain-workspace}}]
  templates:
    - name: main
      dag:
        tasks:
          - {name: before, template: before}
          - {name: serve, template: serve, depends: before}
          - {name: ask, template: ask, depends: serve}
    - {name: before, container: {image: "i:1", command: [sh, -c, "echo x >> /w/before"], volumeMounts: MOUNTS}}
    - name: serve
      daemon: true
      retryStrategy: {limit: "1"}
      container:
        image: "i:1"
        command: [sh, -c, "echo x >> /w/serving; touch /w/up; trap 'rm /w/up; exit' TERM; sleep 60 & wait"]
        readinessProbe: {exec: {command: [test, -f, /w/up]}, periodSeconds: 1}
        volumeMounts: MOUNTS
    - {name: ask, container: {image: "i:1", command: [test, -f, /w/up, -a, -f, /w/answer], volumeMounts: MOUNTS}}
""".replace("MOUNTS", "[{name: workspace, mountPath: /w}]")


def test_a_retry_starts_the_service_again_that_what_failed_had_asked(tmp_path: Path) -> None:
    """It ended as the run did; the step before it does not run again."""
    (tmp_path / "served.yaml").write_text(SERVED)
    shared = tmp_path / "workspace"
    assert command_line("run", str(tmp_path / "served.yaml"), "-w", str(shared)).returncode == 1
    assert (shared / "serving").read_text() == "x\n" and not (shared / "up").exists()
    (shared / "answer").touch()
    done = command_line("retry", "served", "-w", str(shared))
    assert done.returncode == 0, done.stderr
    assert "serve ended with the run: it starts again, too" in done.stderr
    assert [(shared / name).read_text() for name in ("before", "serving")] == ["x\n", "x\nx\n"]


@pytest.mark.parametrize(
    ("field", "carried"),
    [
        ("tolerations: [{operator: Exists}]", True),
        ("serviceAccountName: me", True),
        ("securityContext: {seccompProfile: {type: RuntimeDefault}}", True),
        ("nodeSelector: {kubernetes.io/os: linux}", True),
        ("nodeSelector: {gpu: h100}", False),
        ("securityContext: {runAsNonRoot: true}", False),
    ],
)
def test_lint_for_here_refuses_what_a_run_refuses_and_nothing_else(tmp_path: Path, field: str, carried: bool) -> None:
    (tmp_path / "hello.yaml").write_text(MANIFEST.replace("  entrypoint", f"  {field}\n  entrypoint"))
    shown = CliRunner().invoke(app, ["lint", "--here", str(tmp_path / "hello.yaml")])
    assert (shown.exit_code == 0) == carried, shown.output
    engine = Engine(tmp_path)
    if carried:
        assert engine.submit(load(tmp_path / "hello.yaml"))
        return
    with pytest.raises(UserError) as refusal:
        engine.submit(load(tmp_path / "hello.yaml"))
    assert shown.stderr == f"{refusal.value}\n"
