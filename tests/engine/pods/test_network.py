"""Pods on one network: addresses of their own, localhost within a pod, probes and readiness."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.engine.network import Redirect, redirect
from posttrain.engine.podspec import PodSpec
from posttrain.engine.probes import Tally
from tests.engine.pods.conftest import Pods
from tests.processes import free_port

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path != "/no" else 500)
        self.end_headers()
        self.wfile.write(sys.argv[2].encode())
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = {4: 2, 6: 10}[int(sys.argv[3])]
Server((sys.argv[4], int(sys.argv[1])), Handler).serve_forever()
"""
GET = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=3).read().decode())"


def server(port: int, text: str, family: int = 4, host: str = "") -> list[str]:
    return [sys.executable, "-c", SERVER, str(port), text, str(family), host]


def get(pods: Pods, *urls: str, **fields) -> list[str]:
    script = "; ".join(f'{sys.executable} -c "{GET}" {url} 2>/dev/null || echo none' for url in urls)
    return pods.sh(script, capture_result=True, **fields).outputs["result"].split()


def daemon(pods: Pods, command: list[str], **probe) -> PodSpec:
    main = {"readinessProbe": {"periodSeconds": 0.1, **probe}} if probe else {}
    spec = pods.spec(*command, daemon=True, main=main, grace_seconds=1)
    pods.runner.start(spec)
    return spec


@pytest.mark.parametrize(("family", "host"), [(4, ""), (4, "127.0.0.1"), (6, "::")])
def test_two_daemons_on_one_port_are_told_apart(pods: Pods, family: int, host: str) -> None:
    port = free_port()
    two = [daemon(pods, server(port, text, family, host), httpGet={"port": port, "path": "/x"}) for text in ("L", "R")]
    for spec in two:
        assert pods.wait(spec, lambda status: status.ready or status.ended).ready
    urls = [f"http://{spec.ip}:{port}/" for spec in two]
    assert get(pods, *urls, f"http://127.0.0.1:{port}/") == ["L", "R", "none"]
    pods.runner.stop(two[0].directory, 1)
    assert pods.wait(two[0], lambda status: status.ended).phase == "Failed"
    assert get(pods, *urls) == ["none", "R"]


def test_containers_of_a_pod_meet_at_localhost_and_the_host_stays_reachable(pods: Pods) -> None:
    port = free_port()
    sidecars = [
        {
            "name": "web",
            "command": server(port, "beside"),
            "startupProbe": {"tcpSocket": {"port": port}, "periodSeconds": 0.1, "failureThreshold": 600},
        }
    ]
    with closing(socket.create_server(("127.0.0.1", 0))) as host:
        other = host.getsockname()[1]
        wait = f'until {sys.executable} -c "{GET}" http://localhost:{port}/ 2>/dev/null; do sleep 0.05; done'
        reach = (
            f'{sys.executable} -c \'import socket; socket.create_connection(("127.0.0.1", {other}), 2); print("host")\''
        )
        status = pods.sh(f"{wait}; {reach}", sidecars=sidecars, capture_result=True, grace_seconds=1)
    assert status.outputs["result"].split() == ["beside", "host"]


def test_a_daemon_that_leaves_by_itself_has_failed(pods: Pods) -> None:
    spec = daemon(pods, ["sleep", "0.3"])
    assert pods.wait(spec, lambda status: status.phase != "Pending").ready
    status = pods.wait(spec, lambda status: status.ended)
    assert (status.phase, status.message, status.outputs["exitCode"], status.ready) == ("Failed", "", "0", False)


def test_ready_only_once_every_container_is(pods: Pods) -> None:
    probe = {"exec": {"command": ["test", "-f", "/tmp/ready"]}, "periodSeconds": 0.1}
    late = [{"name": "late", "command": ["sh", "-c", "sleep 0.6; touch /tmp/ready; sleep 60"], "readinessProbe": probe}]
    spec = pods.spec(
        "sh", "-c", "touch /tmp/ready; sleep 60", main={"readinessProbe": probe}, sidecars=late, grace_seconds=1
    )
    begun = time.monotonic()
    pods.runner.start(spec)
    assert pods.wait(spec, lambda status: status.phase == "Running").ready is False
    pods.wait(spec, lambda status: status.ready)
    assert time.monotonic() - begun > 0.5


def test_readiness_can_be_lost(pods: Pods) -> None:
    spec = daemon(pods, ["sh", "-c", "touch /tmp/ready; sleep 0.6; rm /tmp/ready; sleep 60"],
                  exec={"command": ["test", "-f", "/tmp/ready"]}, failureThreshold=1)  # fmt: skip
    pods.wait(spec, lambda status: status.ready)
    assert pods.wait(spec, lambda status: not status.ready).phase == "Running"


def test_a_failing_liveness_probe_ends_the_container(pods: Pods) -> None:
    probe = {"livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 0.1, "failureThreshold": 2}}
    status = pods.run(pods.spec("sleep", "60", main=probe))
    assert (status.phase, status.message) == ("Failed", "main: Error (exit code 143)")


def test_a_startup_probe_holds_the_others_back_and_ends_a_container_that_never_comes_up(pods: Pods) -> None:
    up = {"exec": {"command": ["test", "-f", "/tmp/up"]}, "periodSeconds": 0.1, "failureThreshold": 600}
    alive = {"exec": {"command": ["test", "-f", "/tmp/up"]}, "periodSeconds": 0.1, "failureThreshold": 1}
    spec = pods.spec(
        "sh", "-c", "sleep 0.5; touch /tmp/up; sleep 0.5", main={"startupProbe": up, "livenessProbe": alive}
    )
    assert pods.run(spec).phase == "Succeeded"
    never = pods.spec("sleep", "60", main={"startupProbe": {**up, "failureThreshold": 2}})
    assert pods.run(never).message == "main: Error (exit code 143)"


def test_probe_by_a_named_port_and_by_http_status(pods: Pods) -> None:
    port = free_port()
    for path, ready in (("/yes", True), ("/no", False)):
        main = {"ports": [{"name": "web", "containerPort": port}],
                "readinessProbe": {"httpGet": {"port": "web", "path": path}, "periodSeconds": 0.1}}  # fmt: skip
        spec = pods.spec(*server(port, "x"), main=main, grace_seconds=1)
        pods.runner.start(spec)
        if ready:
            pods.wait(spec, lambda status: status.ready)
        else:
            time.sleep(0.8)
            assert not pods.runner.status(spec.directory).ready
        pods.runner.kill(spec.directory)


def test_an_exec_probe_sees_the_containers_processes(pods: Pods) -> None:
    if pods.driver != "bubblewrap":
        pytest.skip("processes are the host's")
    command = ["sh", "-c", "grep -l '^sleep' /proc/[0-9]*/cmdline"]
    spec = daemon(pods, ["sleep", "60"], exec={"command": command})
    assert pods.wait(spec, lambda status: status.ready or status.ended).ready


def test_only_a_stated_port_at_a_local_address_is_moved() -> None:
    moved = Redirect(("127.0.0.7", 80), 80)
    for host in ("0.0.0.0", "127.0.0.1"):
        assert redirect("bind", (host, 80), "127.0.0.7", set()) == moved
    for host in ("::", "::1", "::ffff:127.0.0.1"):
        assert redirect("bind", (host, 80), "127.0.0.7", set()) == Redirect(("::ffff:127.0.0.7", 80), 80)
    assert redirect("bind", ("0.0.0.0", 0), "127.0.0.7", set()) is None
    assert redirect("bind", ("::", 80), "127.0.0.7", set(), only_v6=True) == Redirect(("::1", 0))
    assert redirect("connect", ("127.0.0.1", 80), "127.0.0.7", {80}) == Redirect(("127.0.0.7", 80))


@given(
    st.sampled_from(["bind", "connect"]), st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str),
    st.integers(0, 65535), st.sets(st.integers(1, 65535), max_size=3),
)  # fmt: skip
def test_other_addresses_and_ports_of_the_host_are_left_alone(
    call: str, host: str, port: int, listening: set[int]
) -> None:
    changed = redirect(call, (host, port), "127.0.0.7", listening)
    if changed is not None:
        assert host in (
            "0.0.0.0",
            "127.0.0.1",
            "::",
            "::1",
            "::ffff:0.0.0.0",
            "::ffff:127.0.0.1",
            "::ffff:0:0",
            "::ffff:7f00:1",
        )
        assert call == "bind" or port in listening


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_a_tally_changes_only_after_enough_answers_in_a_row(answers: list[bool], successes: int, failures: int) -> None:
    tally, state = Tally(successes, failures), None
    for index, answer in enumerate(answers):
        enough = successes if answer else failures
        if index + 1 >= enough and all(a is answer for a in answers[index + 1 - enough : index + 1]):
            state = answer
        assert tally.add(answer) is state
