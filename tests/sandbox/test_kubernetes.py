"""Sandboxes of a cluster: manifests, claims, calls and ends, against a cluster's answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("k8s_agent_sandbox")
pytest.importorskip("kubernetes_asyncio")
pytest.importorskip("grpc")

from posttrain.errors import UserError
from posttrain.sandbox import NetworkPolicy, Outcome, Result, SandboxGone, SandboxSpec
from posttrain.sandbox.kubernetes import ClusterSettings, KubernetesDriver
from posttrain.sandbox.kubernetes.manifests import WORKER, check, name_of, pool, template
from posttrain.sandbox.kubernetes.remote import RemoteSandbox
from posttrain.sandbox.session import Shell
from posttrain.sandbox.spec import Network
from tests.sandbox.cluster import RECORDED, Cluster
from tests.sandbox.conftest import Boxes

SPEC = SandboxSpec(image="registry/code:1", memory="256Mi", disk="32Mi", wall_seconds=60)


@asynccontextmanager
async def _driver(boxes: Boxes, **settings: Any) -> AsyncIterator[tuple[Cluster, KubernetesDriver]]:
    async with boxes.driver.sandbox(boxes.spec()) as local, Cluster(local) as cluster:
        wanted = ClusterSettings(grpc_port=cluster.grpc_port, **settings)
        async with KubernetesDriver(wanted, api=cluster.api) as driver:
            yield cluster, driver


def _with(boxes: Boxes, work: Callable[[Cluster, RemoteSandbox], Awaitable[Any]], spec: SandboxSpec = SPEC) -> Any:
    async def run() -> Any:
        async with _driver(boxes) as (cluster, driver), driver.sandbox(spec) as sandbox:
            return await work(cluster, sandbox)

    return boxes.run(run())


def test_a_claim_is_made_bound_and_deleted(boxes: Boxes) -> None:
    async def work() -> tuple[list[str], dict, list[str]]:
        async with _driver(boxes) as (cluster, driver):
            async with driver.sandbox(SPEC) as sandbox:
                assert (await sandbox.exec(["true"])).outcome is Outcome.succeeded
                (claim,) = cluster.objects["sandboxclaims"].values()
            async with driver.sandbox(SPEC):
                pass  # the template is there already
            return [*cluster.objects["sandboxtemplates"]], claim, cluster.deleted

    templates, claim, deleted = boxes.run(work())
    assert templates == [name_of(SPEC)] == [claim["spec"]["warmPoolRef"]["name"]]
    assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"  # the cluster ends it without the worker too
    assert "env" not in claim["spec"] and len(deleted) == 2


def test_output_ends_and_streams(boxes: Boxes) -> None:
    async def work(_: Cluster, sandbox: RemoteSandbox) -> tuple[Result, list, Result]:
        seen: list = []
        script = "echo out; echo err >&2; cat; echo $A $PWD; exit 3"
        result = await sandbox.exec(
            ["sh", "-c", script],
            stdin=b"in" * 2_000_000,
            environment={"A": "b"},
            on_output=lambda stream, piece: seen.append(stream),
        )
        return result, seen, await sandbox.exec(["yes"], timeout=20)

    result, seen, flood = _with(boxes, work)
    assert (result.outcome, result.code) == (Outcome.failed, 3)
    assert result.stdout == b"out\n" + b"in" * 2_000_000 + b"b /workspace\n" and result.stderr == b"err\n"
    assert set(seen) == {"stdout", "stderr"}
    assert flood.outcome is Outcome.over_quota and len(flood.stdout) == SPEC.output_bytes


def test_a_time_out_and_a_session(boxes: Boxes) -> None:
    async def work(_: Cluster, sandbox: RemoteSandbox) -> tuple[Result, str, str]:
        slow = await sandbox.exec(["sleep", "60"], timeout=0.2)
        async with Shell(sandbox) as shell:
            await shell.run("X=7")
            await shell.run("sleep 60", timeout=0.2)
            return slow, (await shell.run("echo $X")).stdout, slow.detail

    slow, kept, _ = _with(boxes, work)
    assert slow.outcome is Outcome.timed_out and kept == "7\n"


def test_files(boxes: Boxes, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "d").mkdir(parents=True)
    (tree / "d/x").write_bytes(bytes(range(256)))

    async def work(_: Cluster, sandbox: RemoteSandbox) -> list[str]:
        await sandbox.put(tree, "in")
        await sandbox.write_file("a b/$(c)", b"text", mode=0o600)
        assert await sandbox.read_file("in/d/x") == bytes(range(256))
        assert await sandbox.read_file("a b/$(c)") == b"text"
        with pytest.raises(FileNotFoundError):
            await sandbox.read_file("none")
        with pytest.raises(OSError, match="regular"):
            await sandbox.read_file("in")
        with pytest.raises(UserError, match="more than 3 bytes"):
            await sandbox.read_file("a b/$(c)", limit=3)
        with pytest.raises(OSError, match="Read-only"):
            await sandbox.write_file("/usr/x", b"")
        await sandbox.exec(["sh", "-c", "ln -s /etc/passwd link; mkfifo pipe"])
        snapshot = await sandbox.snapshot(tmp_path / "s.tar")
        await sandbox.exec(["rm", "-r", "in"])
        await sandbox.restore(snapshot)
        return await sandbox.collect(tmp_path / "out", ["in", "link", "pipe"])

    assert _with(boxes, work) == ["in/d/x"]
    assert [p.name for p in (tmp_path / "out").rglob("*")] == ["in", "d", "x"]


@pytest.mark.parametrize(
    ("pod", "outcome"),
    [
        ("out-of-memory", Outcome.out_of_memory),
        ("evicted", Outcome.over_quota),
        ("running", Outcome.infrastructure_error),
        (None, Outcome.infrastructure_error),
    ],
)
def test_a_broken_line_is_told_apart_by_what_became_of_the_pod(boxes: Boxes, pod: str | None, outcome: Outcome) -> None:
    async def work(cluster: Cluster, sandbox: RemoteSandbox) -> Result:
        cluster.pod, cluster.runtime.broken = RECORDED["pods"].get(pod), True
        return await sandbox.exec(["sh", "-c", "echo x; sleep 60"])

    result = _with(boxes, work)
    assert (result.outcome, result.code) == (outcome, None) and result.detail


@pytest.mark.parametrize(("conditions", "said"), [(["no-template"], "does not exist"), (["failed"], "PodFailed")])
def test_a_claim_that_fails_is_told(boxes: Boxes, conditions: list[str], said: str) -> None:
    async def work() -> list[str]:
        async with _driver(boxes) as (cluster, driver):
            cluster.conditions = conditions
            with pytest.raises(SandboxGone, match=said):
                await driver.sandbox(SPEC).start()
            return list(cluster.objects["sandboxclaims"])

    assert boxes.run(work()) == []  # rolled back


def test_a_claim_that_is_never_bound_runs_out(boxes: Boxes) -> None:
    async def work() -> list[str]:
        async with _driver(boxes, ready_seconds=1) as (cluster, driver):
            cluster.conditions = ["pending"]
            with pytest.raises(SandboxGone, match="within 1 seconds"):
                await driver.sandbox(SPEC).start()
            return list(cluster.objects["sandboxclaims"])

    assert boxes.run(work()) == []


@pytest.mark.parametrize(
    ("plural", "status", "said"),
    [
        ("sandboxtemplates", 404, "install kubernetes-sigs/agent-sandbox"),
        ("sandboxwarmpools", 403, "service account"),
    ],
)
def test_a_cluster_that_refuses_says_what_to_do(boxes: Boxes, plural: str, status: int, said: str) -> None:
    async def work() -> None:
        async with _driver(boxes) as (cluster, driver):
            cluster.refuse[plural] = status
            with pytest.raises(UserError, match=said):
                await driver.sandbox(SPEC).start()

    boxes.run(work())


def test_the_deadline_ends_a_sandbox(boxes: Boxes) -> None:
    async def work(_: Cluster, sandbox: RemoteSandbox) -> tuple[Result, Outcome]:
        result = await sandbox.exec(["sleep", "60"])
        with pytest.raises(SandboxGone) as gone:
            await sandbox.exec(["true"])
        return result, gone.value.outcome

    result, later = _with(boxes, work, SandboxSpec(image="x", wall_seconds=0.8))
    assert (result.outcome, later) == (Outcome.timed_out, Outcome.timed_out)


def test_stopping_ends_what_runs_as_cancelled(boxes: Boxes) -> None:
    async def work(_: Cluster, sandbox: RemoteSandbox) -> Outcome:
        task = asyncio.create_task(sandbox.exec(["sleep", "60"]))
        await asyncio.sleep(0.2)
        await sandbox.stop()
        return (await task).outcome

    assert _with(boxes, work) is Outcome.cancelled


def test_a_pod_has_the_specs_limits_and_no_rights() -> None:
    made = template(SPEC, runtime_class="gvisor", gateway="")["spec"]
    pod = made["podTemplate"]["spec"]
    (container,) = pod["containers"]
    assert pod["runtimeClassName"] == "gvisor" and pod["automountServiceAccountToken"] is False
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "256Mi", "ephemeral-storage": "32Mi"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]} and pod["securityContext"]["runAsNonRoot"]
    assert pool(SPEC, replicas=3)["spec"] == {"replicas": 3, "sandboxTemplateRef": {"name": name_of(SPEC)}}


def test_a_policy_lets_through_what_the_spec_says() -> None:
    def policy(network: NetworkPolicy) -> dict:
        spec = SandboxSpec(image="x", network=network)
        return template(spec, runtime_class="", gateway="gateway.ml:8000")["spec"]["networkPolicy"]

    closed, gateway = policy(NetworkPolicy()), policy(NetworkPolicy(Network.gateway))
    listed = policy(NetworkPolicy(Network.allow, ["192.0.2.7:443", "[2001:db8::1]:80"]))
    assert "egress" not in closed and closed["ingress"][0]["from"] == [{"podSelector": {"matchLabels": WORKER}}]
    assert gateway["egress"][0]["ports"] == [{"protocol": "TCP", "port": 8000}]
    assert [rule["to"][0]["ipBlock"]["cidr"] for rule in listed["egress"]] == ["192.0.2.7/32", "2001:db8::1/128"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "image: is needed"),
        ({"image": "x", "root": "/srv"}, "root: is of this machine"),
        ({"image": "x", "mounts": {"/data": "/srv"}}, "mounts: is of this machine"),
        ({"image": "x", "network": NetworkPolicy(Network.allow, ["pypi.org:443"])}, "network.allow: is a name"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused(fields: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check(SandboxSpec(**fields))
