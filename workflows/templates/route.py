"""A route: the workflow around the steps, and tasks that are checked against the steps' specs.

Invariants: a task that lacks an input, names an unknown one, or refers to an output that its step
does not have fails while the definition is read. Which task waits for which follows from the
references; `after` adds what no reference says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from hera.workflows import (
    DAG,
    CronWorkflow,
    EmptyDirVolume,
    ExistingVolume,
    HostPathVolume,
    Step,
    Steps,
    Task,
    Workflow,
)
from hera.workflows.models import ContinueOn, PodSecurityContext, SeccompProfile
from hera.workflows.models.io.k8s.apimachinery.pkg.api.resource import Quantity
from hera.workflows.volume import _BaseVolume

from posttrain.contract import StepSpec
from posttrain.contract.config import to_plain
from workflows.profile import Profile, Volume
from workflows.templates.loop import NAME as ITERATE
from workflows.templates.loop import RESULTS, Until, loop_template
from workflows.templates.step import argo_name, config_of, install_template, plain, step_arguments, step_template

ENTRYPOINT = "main"
FINISH = "finish"

# What an exit handler can know of the workflow it ends.
WORKFLOW_FACTS = {
    "status": "{{workflow.status}}",
    "failures": "{{workflow.failures}}",
    "duration": "{{workflow.duration}}",
}


class Node:
    """One task of the route, as later ones refer to it: `node["model"]` is its output, `node.address` its ip."""

    def __init__(self, name: str, spec: StepSpec, sources: Sequence[Node]):
        self.name, self.spec, self.sources = name, spec, sources
        self.ancestors: frozenset[Node] = frozenset(sources).union(*(node.ancestors for node in sources))

    def __getitem__(self, output: str) -> Reference:
        known = [f.name for f in fields(self.spec.Outputs)]
        assert output in known, f"step {self.spec.name} has no output {output}; known: {', '.join(known)}"
        return Reference(self, f"{{{{tasks.{self.name}.outputs.parameters.{output}}}}}")

    @property
    def address(self) -> Reference:
        assert self.spec.kind == "service", f"step {self.spec.name} is no service: it has no address"
        return Reference(self, f"{{{{tasks.{self.name}.ip}}}}")

    def url(self, port: int) -> Reference:
        return Reference(self, f"http://{self.address.text}:{port}")


class Loop(Node):
    """All iterations as one node: its outputs are the last one's."""

    def __getitem__(self, output: str) -> Reference:
        assert output in RESULTS, f"the loop has no output {output}; known: {', '.join(RESULTS)}"
        return Reference(self, f"{{{{tasks.{self.name}.outputs.parameters.{output}}}}}")


class Reference:
    """A value that exists once `node` has run (or serves)."""

    def __init__(self, node: Node, text: str):
        self.node, self.text = node, text


class Route:
    """Adds steps to the workflow that `route` opened. Every step's template is made once."""

    def __init__(self, workflow: Workflow, config: Any, profile: Profile):
        self._workflow, self._config, self._profile = workflow, config, profile
        self.specs: dict[str, StepSpec] = {}  # every step that is used, by name
        self._installs: list[str] = []  # tasks that install environments: whatever has no other reason waits for them
        self._check: Task | None = None
        self._loop: tuple[StepSpec, StepSpec, Until, tuple[str, ...]] | None = None

    @contextmanager
    def graph(self) -> Iterator[None]:
        """The DAG that the workflow starts with; `task` adds to it."""
        with DAG(name=ENTRYPOINT):
            for environment in self._profile.install:
                install = install_template(environment, self._profile)
                assert install.name is not None
                Task(name=install.name, template=install.name)
                self._installs.append(install.name)
            yield
        if self._loop:
            loop_template(*self._loop)

    def task(self, spec: StepSpec, name: str = "", *, after: Iterable[Node] = (), **inputs: Reference | str) -> Node:
        """Run `spec` with `inputs` once everything they refer to, and `after`, has ended.

        What another dependency waits for anyway is not named again.
        """
        node = Node(argo_name(name or spec.name), spec, _sources(inputs, after))
        Task(
            name=node.name,
            template=self._template(spec),
            arguments=step_arguments(spec, name or spec.name, _texts(inputs)),
            depends=self._depends(node),
        )
        return node

    def loop(
        self, train: StepSpec, evaluate: StepSpec, sidecar: StepSpec, until: Until, *, data: Reference,
        **inputs: Reference | str,
    ) -> Loop:  # fmt: skip
        """Iterations of `train` with `sidecar` in its pod, each evaluated by `evaluate` on `data`; `inputs` stay."""
        node = Loop("loop", train, _sources({"data": data, **inputs}))
        self._template(train, sidecar=sidecar)
        self._template(evaluate)
        self.specs[sidecar.name] = sidecar
        Task(
            name=node.name,
            template=ITERATE,
            arguments=_texts(inputs) | {"number": "1", "checkpoint": "", "data": data.text},
            depends=self._depends(node),
        )
        self._loop = (train, evaluate, until, tuple(inputs))
        return node

    def check(self, spec: StepSpec) -> Node:
        """Run `spec` (validate) on the configuration of every step of the route, as it is when the workflow starts."""
        node = Node(argo_name(spec.name), spec, [])
        step_template(spec, self._profile)
        self._check = Task(name=node.name, template=node.name, depends=" && ".join(self._installs) or None)
        return node

    def close(self, name: str) -> dict[str, str]:
        """The workflow's parameters: the section of every step that is used. Tells the checking step of them."""
        if self._check:
            sections = ", ".join(f'"{step}": {config_of(step)}' for step in self.specs)
            config = f'{{"route": "{name}", "config": {{{sections}}}}}'
            self._check.arguments = {"step": self._check.name, "config": config}
        return {f"{argo_name(step)}-config": _json(to_plain(getattr(self._config, step))) for step in self.specs}

    def finish(self, spec: StepSpec, **inputs: str) -> None:
        """Run `spec` at the end, however the workflow ended. Its own failure changes nothing."""
        with Steps(name=FINISH):
            Step(
                name=argo_name(spec.name),
                template=self._template(spec),
                arguments=step_arguments(spec, spec.name, inputs),
                continue_on=ContinueOn(failed=True, error=True),
            )
        self._workflow.on_exit = FINISH

    def _template(self, spec: StepSpec, *, sidecar: StepSpec | None = None) -> str:
        if spec.name not in self.specs:
            self.specs[spec.name] = spec
            port = getattr(getattr(self._config, spec.name), "port", None)
            step_template(spec, self._profile, port=port, sidecar=sidecar)
        return argo_name(spec.name)

    def _depends(self, node: Node) -> str | None:
        """What `node` waits for: of its sources those that no other of them waits for anyway."""
        direct = [s.name for s in node.sources if not any(s in other.ancestors for other in node.sources)]
        return " && ".join(direct or self._installs) or None


def _sources(inputs: Mapping[str, Reference | str], after: Iterable[Node] = ()) -> list[Node]:
    return [*dict.fromkeys([*(i.node for i in inputs.values() if isinstance(i, Reference)), *after])]


def _texts(inputs: Mapping[str, Reference | str]) -> dict[str, str]:
    return {name: value.text if isinstance(value, Reference) else value for name, value in inputs.items()}


@contextmanager
def route(
    name: str, config: Any, profile: Profile, *, run: str | None, schedule: str | None = None, timezone: str = "Etc/UTC"
) -> Iterator[tuple[Workflow, Route]]:
    """Open the workflow `name`; the sections of `config` that its steps use become parameters.

    It is called `run`, or gets a generated name. With a `schedule` (cron) it is a CronWorkflow.
    """
    common = _common(profile, {"posttrain/route": name})
    if schedule:
        opened: Workflow = CronWorkflow(
            name=argo_name(name), schedules=[schedule], timezone=timezone, concurrency_policy="Forbid", **common
        )
    else:
        opened = Workflow(name=run, generate_name=None if run else f"{argo_name(name)}-", **common)
    with opened as workflow:
        built = Route(workflow, config, profile)
        yield workflow, built
        workflow.arguments = {"seed": str(config.seed)} | built.close(name)


def single(
    spec: StepSpec, profile: Profile, *, run: str, step: str, seed: int, config: dict[str, Any], inputs: dict[str, Any]
) -> Workflow:
    """A workflow whose only task is `step`, with inputs that are known: how a step is run again from its record."""
    with Workflow(
        name=run, arguments={"seed": str(seed)}, **_common(profile, {"posttrain/step": argo_name(step)})
    ) as workflow:
        step_template(spec, profile)
        with DAG(name=ENTRYPOINT):
            known = {"step": step, "config": _json(config)} | {name: plain(v) for name, v in inputs.items()}
            Task(name=argo_name(step), template=argo_name(spec.name), arguments=known)
    return workflow


def _common(profile: Profile, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "labels": {"app.kubernetes.io/part-of": "posttrain"} | labels | profile.labels,
        "entrypoint": ENTRYPOINT,
        "volumes": [_volume(name, volume) for name, volume in profile.volumes.items()],
        "service_account_name": profile.service_account,
        "security_context": _security(profile),
    }


def _security(profile: Profile) -> PodSecurityContext | None:
    if not (profile.restricted or profile.fs_group or profile.run_as_user):
        return None
    return PodSecurityContext(
        fs_group=profile.fs_group,
        run_as_user=profile.run_as_user,
        run_as_non_root=profile.restricted or None,
        seccomp_profile=SeccompProfile(type="RuntimeDefault") if profile.restricted else None,
    )


def _volume(name: str, volume: Volume) -> _BaseVolume:
    if volume.claim:
        return ExistingVolume(name=name, claim_name=volume.claim, mount_path=volume.mount_path)
    if volume.host_path:
        return HostPathVolume(name=name, path=volume.host_path, mount_path=volume.mount_path)
    size = Quantity(root=volume.memory or "")
    return EmptyDirVolume(name=name, medium="Memory", size_limit=size, mount_path=volume.mount_path)


def _json(value: Any) -> str:
    """`value` as JSON in which no text reads as a tag of Argo's."""
    return json.dumps(value, ensure_ascii=False).replace("{{", "{\\u007b")
