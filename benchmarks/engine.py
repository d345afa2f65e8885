"""What the embedded engine costs, against a bare subprocess measured in the same run.

    python benchmarks/engine.py                 all of it, some minutes
    python benchmarks/engine.py --quick         fewer rounds, smaller workflows
    KUBECONFIG=… python benchmarks/engine.py --image busybox:1
                                                also the same workflow on that cluster, as a ratio

A pod is `true` in a container: from `start` to the moment that the engine knows it has Succeeded.
Workflows are DAGs: a fan-out of tasks that depend on nothing, and a chain. Those that measure the
engine alone have suspend nodes of no duration, the others pods.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from posttrain.engine import isolation
from posttrain.engine.engine import Engine
from posttrain.engine.manifest import load
from posttrain.engine.pods import PodRunner
from posttrain.engine.podspec import PodSpec

BAR_MS = 50.0  # for a pod with isolation, over a bare subprocess
GROWTH_BAR = 1.5
SUSPEND = {"suspend": {"duration": "0"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller workflows")
    parser.add_argument("--image", help="an image with `true` that the cluster of KUBECONFIG has")
    options = parser.parse_args()
    rounds, small = (20, 100) if options.quick else (100, 1000)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="posttrain-benchmark-") as place:
        scratch = Path(place)
        drivers: list[isolation.Driver] = ["bubblewrap", "paths"]
        if isolation.choose().driver != "bubblewrap":
            console.print(f"no isolation here: {isolation.choose().reason}")
            drivers = ["paths"]
        console.print(overhead(scratch, drivers, rounds))
        console.print(at_once(scratch, drivers, 2 * rounds))
        console.print(growth(scratch, small, 10 * small))
        console.print(with_pods(scratch, small, options.image if os.environ.get("KUBECONFIG") else None))


def overhead(scratch: Path, drivers: list[isolation.Driver], rounds: int) -> Table:
    """One after the other, peers taking turns so that what else the machine does meets them alike."""
    runners = {driver: PodRunner(scratch / driver, driver) for driver in drivers}
    tasks: dict[str, Callable[[int], None]] = {"bare subprocess": lambda _: bare()}
    for driver, runner in runners.items():
        tasks[f"pod, {driver}"] = lambda n, runner=runner: finish(runner, [start(runner, f"one-{n}")])
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        for name, task in tasks.items():
            begun = time.perf_counter()
            task(number)
            if number:  # the first starts the zygote
                times[name].append(1000 * (time.perf_counter() - begun))
    for runner in runners.values():
        runner.close()
    table = Table(
        "", "least ms", "median ms", "p95 ms", "over bare, median ms", title=f"One pod after the other, {rounds} rounds"
    )
    peer = statistics.median(times["bare subprocess"])
    for name, found in times.items():
        over = statistics.median(found) - peer
        verdict = (
            "" if name == "bare subprocess" else f"{over:.1f} ({'within' if over < BAR_MS else 'ABOVE'} {BAR_MS:.0f})"
        )
        p95 = statistics.quantiles(found, n=20)[-1]
        table.add_row(name, f"{min(found):.1f}", f"{statistics.median(found):.1f}", f"{p95:.1f}", verdict)
    return table


def at_once(scratch: Path, drivers: list[isolation.Driver], count: int) -> Table:
    """Many at once: how long each takes of the machine."""
    table = Table("", "seconds", "ms each", "ratio", title=f"{count} at once")
    begun = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: bare(), range(count)))
    peer = time.perf_counter() - begun
    table.add_row("bare subprocess, 16 threads", f"{peer:.2f}", f"{1000 * peer / count:.1f}", "1")
    for driver in drivers:
        with PodRunner(scratch / f"many-{driver}", driver) as runner:
            finish(runner, [start(runner, "first")])
            begun = time.perf_counter()
            finish(runner, [start(runner, f"many-{n}") for n in range(count)])
            took = time.perf_counter() - begun
        table.add_row(f"pods, {driver}", f"{took:.2f}", f"{1000 * took / count:.1f}", f"{took / peer:.1f}")
    return table


def growth(scratch: Path, small: int, large: int) -> Table:
    """The engine's own time per node, and how it grows with the workflow."""
    title = f"Nodes without pods; the bar is {GROWTH_BAR} for ms per node at {large:,} over {small:,}"
    table = Table("", f"{small:,} nodes, ms each", f"{large:,} nodes, ms each", "ratio", title=title)
    for shape in ("fan-out", "chain"):
        each = [1000 * run(scratch, workflow(shape, count, SUSPEND)) / count for count in (small, large)]
        ratio = each[1] / each[0]
        verdict = "within" if ratio <= GROWTH_BAR else "ABOVE"
        table.add_row(shape, f"{each[0]:.2f}", f"{each[1]:.2f}", f"{ratio:.2f} ({verdict})")
    return table


def with_pods(scratch: Path, count: int, image: str | None) -> Table:
    """Workflows of small pods, against a loop of bare subprocesses and, where there is one, a cluster."""
    table = Table("", "seconds", "ms a node", "over bare", title=f"DAG of {count:,} small pods")
    begun = time.perf_counter()
    for _ in range(count):
        bare()
    peer = time.perf_counter() - begun
    table.add_row("bare subprocesses, one by one", f"{peer:.2f}", f"{1000 * peer / count:.1f}", "1")
    took = run(scratch, workflow("fan-out", count, pod("none")))
    table.add_row("fan-out on the engine", f"{took:.2f}", f"{1000 * took / count:.1f}", f"{took / peer:.1f}")
    chained = count // 10
    took = run(scratch, workflow("chain", chained, pod("none")))
    each = 1000 * took / chained
    table.add_row(
        f"chain of {chained} on the engine", f"{took:.2f}", f"{each:.1f}", f"{each * count / 1000 / peer:.1f}"
    )
    if image is not None:
        few = min(count, 20)  # a cluster of one node takes seconds for each
        ours = run(scratch, workflow("chain", few, pod("none")))
        theirs = run_on_cluster(workflow("chain", few, pod(image)))
        table.add_row(f"chain of {few} on the engine", f"{ours:.2f}", f"{1000 * ours / few:.1f}", "")
        over = f"{theirs / ours:.0f} times the engine"
        table.add_row(f"chain of {few} on the cluster", f"{theirs:.2f}", f"{1000 * theirs / few:.1f}", over)
    return table


def workflow(shape: str, count: int, leaf: dict) -> dict:
    depends = [{"depends": f"t{i - 1}"} if shape == "chain" and i else {} for i in range(count)]
    tasks = [{"name": f"t{i}", "template": "leaf", **depends[i]} for i in range(count)]
    templates = [{"name": "main", "dag": {"tasks": tasks}}, {"name": "leaf", **leaf}]
    name = f"{shape}-{count}-{'pods' if 'container' in leaf else 'nodes'}"
    spec = {"entrypoint": "main", "templates": templates}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec}


def pod(image: str) -> dict:
    return {"container": {"image": image, "imagePullPolicy": "IfNotPresent", "command": ["true"]}}


def run(scratch: Path, manifest: dict) -> float:
    """Seconds from the start of a submitted workflow to its end on the embedded engine."""
    file = scratch / f"{manifest['metadata']['name']}.json"
    file.write_text(json.dumps(manifest))
    with tempfile.TemporaryDirectory(dir=scratch) as workspace:
        engine = Engine(workspace)
        name = engine.submit(load(file))
        begun = time.perf_counter()
        phase = engine.run(name)
        took = time.perf_counter() - begun
    assert phase == "Succeeded", phase
    return took


def run_on_cluster(manifest: dict, namespace: str = "argo") -> float:
    """Seconds from creation to the end that the controller records, on the cluster of KUBECONFIG."""
    from kubernetes import client, config

    config.load_kube_config()
    workflows = client.CustomObjectsApi()
    kind = {"group": "argoproj.io", "version": "v1alpha1", "namespace": namespace, "plural": "workflows"}
    made = {**manifest, "metadata": {"generateName": "posttrain-benchmark-"}}
    name = workflows.create_namespaced_custom_object(**kind, body=made)["metadata"]["name"]
    begun = time.perf_counter()
    try:
        while True:
            phase = workflows.get_namespaced_custom_object(**kind, name=name).get("status", {}).get("phase")
            if phase in ("Succeeded", "Failed", "Error"):
                assert phase == "Succeeded", phase
                return time.perf_counter() - begun
            time.sleep(0.2)
    finally:
        workflows.delete_namespaced_custom_object(**kind, name=name)


def bare() -> None:
    subprocess.run(["true"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def start(runner: PodRunner, id: str) -> PodSpec:
    container = {"name": "main", "image": "none", "command": ["true"]}
    spec = PodSpec(id=id, name=id, directory=str(runner.pods / id), ip="127.0.0.2", main=container)
    runner.start(spec)
    return spec


def finish(runner: PodRunner, specs: list[PodSpec]) -> None:
    waiting = {spec.id: spec for spec in specs}
    while waiting:
        for id in runner.wait(10) & waiting.keys():
            status = runner.status(waiting[id].directory)
            if status.ended:
                assert status.phase == "Succeeded", status
                del waiting[id]


if __name__ == "__main__":
    main()
