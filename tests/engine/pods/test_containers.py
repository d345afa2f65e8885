"""What a container is given, what it may see and write, and how its end is told."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.engine import isolation
from posttrain.engine.kubelet import expand
from tests.engine.pods.conftest import Pods, files, parameter

_KILLED = """sh -c 'kill -{} "$PPID"'; sleep 20"""  # `$$` would arrive as `$`, as it does from the kubelet


def _beside(tmp_path: Path, script: str, name: str) -> dict:
    """A sidecar, and a directory that it shares with main: main ends no earlier than the sidecar has begun."""
    (tmp_path / "desk").mkdir()
    mount = {"volumeMounts": [{"name": "desk", "mountPath": "/desk"}]}
    sidecar = {"name": name, "command": ["sh", "-c", script], **mount}
    return {"main": mount, "sidecars": [sidecar], "volumes": {"desk": str(tmp_path / "desk")}}


def test_a_pod_succeeds_with_its_exit_code(pods: Pods) -> None:
    status = pods.sh("exit 0")
    assert (status.phase, status.message, status.outputs) == ("Succeeded", "", {"exitCode": "0"})
    assert status.started is not None and status.finished is not None and status.started <= status.finished


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 42", 42), (_KILLED.format("KILL"), 137), (_KILLED.format("TERM"), 143), (_KILLED.format("SEGV"), 139)],
)
def test_exit_codes(pods: Pods, script: str, code: int) -> None:
    status = pods.sh(script)
    assert (status.phase, status.message) == ("Failed", f"main: Error (exit code {code})")
    assert status.outputs["exitCode"] == str(code)


def test_what_is_inherited_reaches_the_container_and_no_file(
    tmp_path: Path, driver: isolation.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKING_PASSWORD", "sesame-" + "x" * 9)
    monkeypatch.setenv("NOT_NAMED", "1")
    pods = Pods(tmp_path, driver)
    try:
        status = pods.sh(
            'test ${#TRACKING_PASSWORD} = 16 && test -z "$NOT_NAMED"', inherit=["TRACKING_PASSWORD", "ABSENT"]
        )
    finally:
        pods.runner.close()
    assert status.phase == "Succeeded"
    assert [path for path in _files(tmp_path) if b"sesame-xxx" in path.read_bytes()] == []


def _files(root: Path) -> Iterator[Path]:
    """Also while a pod's last directories are being removed."""
    for directory, _, names in os.walk(root):
        yield from (path for name in names if (path := Path(directory, name)).is_file())


@pytest.mark.parametrize("command", ["no-such-program", "/no/such/program"])
def test_a_command_that_is_not_there(pods: Pods, command: str) -> None:
    status = pods.run(pods.spec(command))
    assert status.phase == "Failed" and status.outputs["exitCode"] == "64"
    assert status.message.startswith(f'main: Error (exit code 64): failed to find name in PATH: exec: "{command}": ')


def test_a_last_word_is_part_of_the_message(pods: Pods) -> None:
    status = pods.sh("printf 'upstream said: i/o timeout' > /dev/termination-log; exit 1")
    assert status.message == "main: Error (exit code 1): upstream said: i/o timeout"


def test_environment_is_the_pods_own(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_ENGINE", "leaked")
    variables = [
        {"name": "COLOUR", "value": "dark red"},
        {"name": "PHRASE", "value": "so $(COLOUR), $(NO_SUCH), $$(COLOUR)"},
    ]
    spec = pods.spec(
        "sh", "-c", 'echo "$1|$PHRASE|$RUN|$SECRET_OF_THE_ENGINE|$POD_IP"; cat /proc/1/environ /proc/self/environ',
        main={"args": ["sh", "$(COLOUR)"], "env": variables}, environment={"RUN": "r1"}, capture_result=True,
        ip="127.0.9.9",
    )  # fmt: skip
    result = pods.run(spec).outputs["result"]
    assert result.splitlines()[0] == "dark red|so dark red, $(NO_SUCH), $(COLOUR)|r1||127.0.9.9"
    assert pods.driver == "paths" or "leaked" not in result


def test_hostile_values_arrive_as_written(pods: Pods) -> None:
    odd = "dq\" sq' bs\\ dollar$HOME tab\t <a&b> {{x}} %s ünï ☃ 🎈\nsecond line; exit 9"
    script = 'printf %s "$ODD" > /tmp/a; printf %s "$1" > /tmp/b'
    spec = pods.spec("sh", "-c", script, outputs=files(a="/tmp/a", b="/tmp/b"),
                     main={"env": [{"name": "ODD", "value": odd}], "args": ["sh", odd]})  # fmt: skip
    status = pods.run(spec)
    assert (parameter(status, "a"), parameter(status, "b")) == (odd, odd)


def test_an_argument_too_long_for_the_kernel_is_one_clear_line(pods: Pods) -> None:
    status = pods.run(pods.spec("true", main={"args": ["x" * (1 << 18)]}))
    assert (status.phase, status.message) == (
        "Failed",
        "main: Error (exit code 64): cannot be started: Argument list too long",
    )


def test_working_directory_is_made_and_entered(pods: Pods) -> None:
    spec = pods.spec("sh", "-c", "pwd; echo x > written", main={"workingDir": "/tmp/some/where"}, capture_result=True,
                     outputs=files(x="/tmp/some/where/written"))  # fmt: skip
    status = pods.run(spec)
    assert parameter(status, "x") == "x"
    assert status.outputs["result"].endswith("/tmp/some/where")


def test_script_is_a_file_after_the_arguments(pods: Pods) -> None:
    source = (
        "case $- in *e*) echo flag > /tmp/flag;; esac\n"
        "printf '%s' 'two $$ four $$$$ \"q\" ☃' > /tmp/text\n"
        '[ -f "$0" ]'
    )
    spec = pods.spec("sh", main={"args": ["-e"]}, source=source, outputs=files(flag="/tmp/flag", text="/tmp/text"))
    status = pods.run(spec)
    assert status.phase == "Succeeded"
    assert (parameter(status, "flag"), parameter(status, "text")) == ("flag", 'two $ four $$ "q" ☃')


def test_a_result_loses_one_newline_and_keeps_its_end(pods: Pods) -> None:
    assert pods.sh(r"printf ' c\n\n\n'", capture_result=True).outputs["result"] == " c\n\n"
    long = pods.sh("head -c 600000 /dev/zero | tr '\\0' a; printf 'zz\\n'; echo aside >&2", capture_result=True)
    assert long.outputs["result"] == "a" * (262_144 - 2) + "zz"
    assert pods.sh("exit 0", capture_result=True).outputs["result"] == ""
    assert "result" not in pods.sh("echo unasked").outputs


def test_a_log_holds_both_streams(pods: Pods, tmp_path: Path) -> None:
    spec = pods.spec(
        "sh", "-c", "until test -e /desk/up; do sleep 0.05; done; echo out; echo err >&2",
        **_beside(tmp_path, "echo hi; touch /desk/up; sleep 9", "beside"),
    )  # fmt: skip
    pods.run(spec)
    written = {log.name: log.read_text() for log in Path(spec.directory, "logs").iterdir()}
    assert sorted(written["main"].splitlines()) == ["err", "out"] and written["beside"] == "hi\n"


def test_a_container_that_cannot_be_isolated_says_why(pods: Pods, tmp_path: Path) -> None:
    if pods.driver != "bubblewrap":
        pytest.skip("there is nothing to make")
    (tmp_path / "v").mkdir()
    main = {"volumeMounts": [{"name": "v", "mountPath": "/proc/1/nowhere"}]}
    status = pods.run(pods.spec("true", main=main, volumes={"v": str(tmp_path / "v")}))
    assert status.phase == "Failed" and status.outputs["exitCode"] == "64"
    assert status.message.startswith("main: Error (exit code 64): bwrap: Can't")


def test_output_parameters(pods: Pods) -> None:
    outputs = files(first="/tmp/first", second="/tmp/second", third="/tmp/third")
    status = pods.sh("echo 1 > /tmp/first; echo 3 > /tmp/third", outputs=outputs)
    assert status.phase == "Error" and status.outputs["exitCode"] == "0"
    assert (
        status.message
        == "wait: Error (exit code 64): output parameter second: open /tmp/second: no such file or directory"
    )
    assert status.outputs["parameters"] == [{"name": "first", "value": "1"}]

    outputs["parameters"][1]["valueFrom"]["default"] = "so be it"
    status = pods.sh("echo 1 > /tmp/first; printf '  a\\n\\tb \\r\\n\\n' > /tmp/third", outputs=outputs)
    assert status.phase == "Succeeded"
    assert (parameter(status, "second"), parameter(status, "third")) == ("so be it", "  a\n\tb \r\n")


def test_a_failing_main_still_reports_what_it_wrote(pods: Pods) -> None:
    status = pods.sh("echo 1 > /results/value; exit 3", outputs=files(value="/results/value", other="/results/other"))
    assert (status.phase, status.message) == ("Failed", "main: Error (exit code 3)")
    assert parameter(status, "value") == "1"


def test_volumes(pods: Pods, tmp_path) -> None:
    data, code = tmp_path / "data", tmp_path / "code"
    for directory in (data, code):
        directory.mkdir()
    (code / "tool").write_text("#!/bin/sh\necho tool\n")
    (code / "tool").chmod(0o755)
    mounts = [
        {"name": "data", "mountPath": "/workspace"},
        {"name": "data", "mountPath": "/workspace/inner", "subPath": "a/b"},
        {"name": "data", "mountPath": "/frozen", "readOnly": True},
    ]
    script = (
        "/opt/code/tool > /workspace/one; echo two > /workspace/inner/two; "
        "(echo > /frozen/x) 2>/dev/null || echo refused > /tmp/r"
    )
    spec = pods.spec(
        "sh", "-c", script, main={"volumeMounts": mounts}, volumes={"data": str(data)},
        image_roots={"test": {"/opt/code": str(code)}}, outputs=files(one="/workspace/one"),
    )  # fmt: skip
    status = pods.run(spec)
    assert parameter(status, "one") == "tool"
    assert (data / "one").read_text() == "tool\n" and (data / "a/b/two").read_text() == "two\n"
    if pods.driver == "bubblewrap":  # a mapped path is the host's own, and what may be written there too
        assert not (data / "x").exists()


def test_an_unknown_volume_is_named(pods: Pods) -> None:
    status = pods.run(pods.spec("true", main={"volumeMounts": [{"name": "nowhere", "mountPath": "/x"}]}))
    assert status.phase == "Error" and "main.volumeMounts[0].name" in status.message and "nowhere" in status.message


def test_each_container_has_a_tmp_of_its_own(pods: Pods) -> None:
    status = pods.sh(
        "ls -A /tmp | wc -l", capture_result=True, init=[{"name": "first", "command": ["touch", "/tmp/left"]}]
    )
    assert status.outputs["result"].strip() == "0"


def test_bubblewrap_shows_the_host_read_only(pods: Pods) -> None:
    if pods.driver != "bubblewrap":
        pytest.skip("path mapping cannot")
    status = pods.sh(
        "echo x > /etc/posttrain-test || echo refused; echo $$$$; ls /proc | grep -c '^[0-9]'", capture_result=True
    )
    refused, pid, count = status.outputs["result"].split()
    assert refused == "refused" and int(pid) < 10 and int(count) < 10
    assert not os.path.exists("/etc/posttrain-test")


def test_files_may_be_made_beside_the_hosts(pods: Pods) -> None:
    if pods.driver != "bubblewrap":
        pytest.skip("path mapping cannot")
    assert pods.sh("mkdir -p /in/tree && echo a > /srv/a && echo b > /in/tree/b && cat /srv/a").phase == "Succeeded"


def test_init_containers_run_in_order_before_main(pods: Pods, tmp_path) -> None:
    (tmp_path / "desk").mkdir()
    mount = {"volumeMounts": [{"name": "desk", "mountPath": "/desk"}]}
    init = [
        {"name": n, "command": ["sh", "-c", f"sleep {s}; printf {n} >> /desk/line"], **mount}
        for n, s in (("z", 0.2), ("a", 0))
    ]
    fields = {"main": mount, "volumes": {"desk": str(tmp_path / "desk")}, "outputs": files(line="/desk/line")}
    assert parameter(pods.sh("printf m >> /desk/line", init=init, **fields), "line") == "zam"

    status = pods.sh(
        "printf m >> /desk/line", init=[*init, {"name": "bad", "command": ["sh", "-c", "exit 7"]}], **fields
    )
    assert (status.phase, status.message) == ("Failed", "bad: Error (exit code 7)")
    assert (tmp_path / "desk/line").read_text() == "zamza" and "exitCode" not in status.outputs


@pytest.mark.parametrize(
    ("sidecar", "message"),
    [
        ("touch /desk/up; sleep 60", ""),
        ("touch /desk/up; exit 5", "broken: Error (exit code 5)"),
        ("trap 'exit 3' TERM; touch /desk/up; while :; do sleep 0.1; done", "broken: Error (exit code 3)"),
        ("trap '' TERM; touch /desk/up; while :; do sleep 0.1; done", ""),
        (f"touch /desk/up; {_KILLED.format('KILL')}", ""),
    ],
)
def test_sidecars(pods: Pods, sidecar: str, message: str, tmp_path: Path) -> None:
    status = pods.sh(
        "until test -e /desk/up; do sleep 0.05; done; sleep 0.4; echo done > /tmp/word",
        **_beside(tmp_path, sidecar, "broken"), grace_seconds=0.5, outputs=files(word="/tmp/word"),
    )  # fmt: skip
    assert (status.phase, status.message) == ("Failed" if message else "Succeeded", message)
    assert parameter(status, "word") == "done" and status.outputs["exitCode"] == "0"


def test_deadline(pods: Pods) -> None:
    begun = time.monotonic()
    status = pods.sh("sleep 60", deadline_seconds=0.5)
    assert (status.phase, status.message) == ("Failed", "Pod was active on the node longer than the specified deadline")
    assert status.outputs["exitCode"] == "143" and 0.4 < time.monotonic() - begun < 10


def test_stop_gives_grace_and_then_kills(pods: Pods) -> None:
    polite = pods.spec(
        "sh", "-c", "trap 'echo saved > /tmp/x; exit 0' TERM; while :; do sleep 0.1; done", outputs=files(x="/tmp/x")
    )
    stubborn = pods.spec("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
    for spec in (polite, stubborn):
        pods.runner.start(spec)
        pods.wait(spec, lambda status: status.phase == "Running")
    time.sleep(0.3)
    pods.runner.stop(polite.directory, 10)
    pods.runner.stop(stubborn.directory, 0.5)
    ended = [pods.wait(spec, lambda status: status.ended) for spec in (polite, stubborn)]
    assert [s.phase for s in ended] == ["Failed", "Failed"]
    assert [s.outputs["exitCode"] for s in ended] == ["0", "137"]
    assert parameter(ended[0], "x") == "saved"


def test_kill_does_not_wait(pods: Pods) -> None:
    spec = pods.spec("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", grace_seconds=60)
    pods.runner.start(spec)
    pods.runner.stop(spec.directory, 60)  # before it can be up
    pods.runner.kill(spec.directory)
    begun = time.monotonic()
    assert pods.wait(spec, lambda status: status.ended).phase == "Failed"
    assert time.monotonic() - begun < 5


def test_what_a_container_leaves_running_ends_with_it(pods: Pods, tmp_path) -> None:
    (tmp_path / "d").mkdir()
    loop = "setsid sh -c 'while :; do date > /d/alive; sleep 0.05; done' >/dev/null 2>&1"
    script = f"for i in 1 2 3; do ({loop} &); done; sleep 0.3"
    spec = pods.spec(
        "sh",
        "-c",
        script,
        main={"volumeMounts": [{"name": "d", "mountPath": "/d"}]},
        volumes={"d": str(tmp_path / "d")},
    )
    assert pods.run(spec).phase == "Succeeded"
    (tmp_path / "d/alive").unlink()
    time.sleep(0.3)
    assert not (tmp_path / "d/alive").exists()


def test_memory_limit(pods: Pods) -> None:
    from posttrain.isolation import cgroups

    if cgroups.unavailable(["memory"]):
        pytest.skip(cgroups.unavailable(["memory"]))
    spec = pods.spec(
        sys.executable, "-S", "-c", "x = bytearray(300 << 20)", main={"resources": {"limits": {"memory": "64Mi"}}}
    )
    status = pods.run(spec)
    assert (status.phase, status.message) == ("Failed", "main: OOMKilled (exit code 137)")
    enough = pods.spec(
        sys.executable, "-S", "-c", "x = bytearray(30 << 20)", main={"resources": {"limits": {"memory": "64Mi"}}}
    )
    assert pods.run(enough).phase == "Succeeded"


def test_expand_follows_the_kubelet() -> None:
    given = {"A": "1", "B": "$(A)"}
    for text, expected in {
        "$(A)": "1", "$$(A)": "$(A)", "$$$(A)": "$1", "$(B)": "$(A)", "$(C)": "$(C)", "$": "$", "$$": "$", "$(A": "$(A",
        "$((1 + 1))": "$((1 + 1))", "$A": "$A", "x$(A)y$(A)": "x1y1",
    }.items():  # fmt: skip
        assert expand(text, given) == expected, text
