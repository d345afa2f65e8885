"""Routes: what is rendered follows from the specs and the profile, and from nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest

from posttrain.contract import StepSpec
from posttrain.contract.config import to_plain
from posttrain.errors import UserError
from workflows.definition import ROUTES, define, presets
from workflows.profile import load_profile, profile_names

JSON = dict[str, Any]


def spec_of(manifest: JSON) -> JSON:
    return manifest["spec"].get("workflowSpec") or manifest["spec"]


def templates(manifest: JSON) -> dict[str, JSON]:
    return {t["name"]: t for t in spec_of(manifest)["templates"]}


def step_templates(manifest: JSON) -> list[tuple[StepSpec, JSON]]:
    return [
        (import_module(t["container"]["command"][-1]).SPEC, t)
        for t in templates(manifest).values()
        if "container" in t and t["container"]["command"][0] == "envs/run"
    ]


def tasks(manifest: JSON) -> dict[str, JSON]:
    return {t["name"]: t for t in templates(manifest)["main"]["dag"]["tasks"]}


EVERY = [(route, profile) for route in ROUTES for profile in profile_names()]


@pytest.mark.parametrize(("route", "profile"), EVERY)
def test_each_steps_template_says_what_its_spec_says(route: str, profile: str) -> None:
    definition = define(route, profile)
    found = step_templates(definition.render())
    assert found
    for spec, template in found:
        container, settings = template["container"], definition.profile.settings(spec)
        assert [p["name"] for p in template["inputs"]["parameters"]] == [
            "step", "config", *(f.name for f in fields(spec.Inputs)),
        ]  # fmt: skip
        outputs = {p["name"]: p["valueFrom"]["path"] for p in template.get("outputs", {}).get("parameters", [])}
        assert outputs == {f.name: f"/tmp/outputs/{f.name}" for f in fields(spec.Outputs)}
        environment = definition.profile.environments.get(spec.environment, spec.environment)
        assert container["command"] == ["envs/run", environment, "python", "-m", spec.package]
        assert container["workingDir"] == "/opt/posttrain"
        assert {"name": "workspace", "mountPath": "/workspace"} in container["volumeMounts"]
        assert container["resources"]["requests"]["cpu"] == settings.cpu
        assert container["resources"]["requests"]["memory"] == settings.memory
        gpus = container["resources"].get("limits", {}).get("nvidia.com/gpu")
        assert gpus == (str(settings.gpu) if settings.gpu else None)
        assert template["activeDeadlineSeconds"] == settings.deadline_seconds
        assert template["retryStrategy"]["limit"] == str(settings.retries)
        assert template["metadata"]["labels"]["app.kubernetes.io/component"] == spec.name.replace("_", "-")
        if spec.kind == "service":
            assert template["daemon"] is True
            assert container["readinessProbe"]["httpGet"] == {"path": spec.ready, "port": spec.port}


@pytest.mark.parametrize(("route", "profile"), EVERY)
def test_the_process_of_each_step_understands_its_arguments(route: str, profile: str) -> None:
    """With every reference put in, a step's arguments are those that its runner takes."""
    from posttrain.contract.runner import _parser, parse_inputs

    for spec, template in step_templates(define(route, profile).render()):
        arguments = [a.replace("{{workflow.parameters.seed}}", "3") for a in template["container"]["args"]]
        parsed = _parser(spec).parse_args([*arguments])
        names = [item.split("=")[0] for item in parsed.input]
        assert names == [f.name for f in fields(spec.Inputs)]
        parse_inputs(spec, [f"{n}=1" for n in names])
        assert str(parsed.workspace) == "/workspace" and parsed.seed == 3


@pytest.mark.parametrize("route", ROUTES)
def test_every_reference_leads_to_an_output_of_a_task_that_ends_before(route: str) -> None:
    manifest = define(route, "cluster").render()
    found, made = tasks(manifest), templates(manifest)

    def before(name: str) -> set[str]:
        direct = {d for d in found[name].get("depends", "").split(" && ") if d}
        return direct.union(*(before(d) for d in direct)) if direct else set()

    references = 0
    for name, task in found.items():
        for parameter in task.get("arguments", {}).get("parameters", []):
            value = parameter["value"]
            if not value.startswith("{{tasks."):
                continue
            _, source, *rest = value.strip("{}").split(".")
            assert source in before(name), f"{name} does not wait for {source}"
            template = made[found[source]["template"]]
            outputs = {p["name"] for p in template.get("outputs", {}).get("parameters", [])}
            assert (rest == ["ip"] and template.get("daemon")) or rest[-1] in outputs
            references += 1
    assert references


@pytest.mark.parametrize("route", ROUTES)
def test_the_parameters_hold_the_whole_resolved_configuration(route: str) -> None:
    definition = define(route, "cluster", overrides=["seed=7"])
    manifest = definition.render()
    parameters = {p["name"]: p["value"] for p in spec_of(manifest)["arguments"]["parameters"]}
    assert parameters.pop("seed") == "7"
    assert parameters
    for name, text in parameters.items():
        section = name.removesuffix("-config").replace("-", "_")
        assert json.loads(text) == to_plain(getattr(definition.config, section))


def test_the_two_evaluations_are_told_the_same() -> None:
    found = tasks(define("sft", "cluster").render())
    configs = [
        {p["name"]: p["value"] for p in found[t]["arguments"]["parameters"]}["config"] for t in ("baseline", "evaluate")
    ]
    assert configs[0] == configs[1] == "{{workflow.parameters.evaluate-config}}"


def test_start_chooses_the_step_that_trains() -> None:
    for start, name in (("sft", "sft"), ("cold_start", "cold-start")):
        manifest = define("sft", "cluster", overrides=[f"start={start}"]).render()
        assert name in tasks(manifest)
        assert {"sft", "cold-start"} - {name} - set(templates(manifest)) == {"sft", "cold-start"} - {name}


def test_a_service_is_probed_on_the_port_that_it_is_told() -> None:
    manifest = define("sft", "cluster", overrides=["serve.port=9000", "verify.port=9000"]).render()
    container = templates(manifest)["serve"]["container"]
    assert container["readinessProbe"]["httpGet"]["port"] == container["ports"][0]["containerPort"] == 9000


def test_a_failing_exit_handler_changes_nothing() -> None:
    manifest = define("sft", "cluster").render()
    (group,) = templates(manifest)[spec_of(manifest)["onExit"]]["steps"]
    assert [s["continueOn"] for s in group] == [{"failed": True, "error": True}]


def test_evaluation_is_a_cron_workflow_and_one_run_of_it_a_workflow() -> None:
    definition = define("evaluation", "cluster", overrides=["schedule=15 4 * * 1"])
    cron, run = definition.render(), definition.render("nightly")
    assert (cron["kind"], cron["spec"]["schedules"]) == ("CronWorkflow", ["15 4 * * 1"])
    assert run["kind"] == "Workflow"
    assert cron["spec"]["workflowSpec"] == run["spec"]


@pytest.mark.parametrize("route", ROUTES)
def test_every_preset_resolves(route: str) -> None:
    assert {"tiny", "demo"} <= set(presets("sft"))
    for preset in presets(route):
        define(route, "laptop", preset=preset)


def test_a_layer_wins_over_those_before_it(tmp_path: Any) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("seed: 1\nprofile:\n  backoff: {seconds: 77, factor: 3}\n")
    second.write_text("seed: 2\n")
    found = define("sft", "laptop", files=[first, second], overrides=["profile.backoff.factor=5"])
    assert found.config.seed == 2
    assert (found.profile.backoff.seconds, found.profile.backoff.factor) == (77, 5)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["sft.learning_rat=1"], "sft.learning_rat: unknown key; did you mean learning_rate?"),
        (["sft.learning_rate=fast"], "sft.learning_rate: "),
        (["start=rl"], "start: is no way to start (got 'rl'); write sft or cold_start"),
        (["profile.steps.stf.gpu=1"], "profile.steps.stf: no such step"),
        (["profile.stepz.sft.gpu=1"], "profile.stepz: unknown key"),
        (["profile.volumes.workspace.host_path=/x"], "profile.volumes (the one at /workspace): needs exactly one of"),
        (["seed"], "seed: is no override"),
        (["serve.port=9000"], "verify.port: is not serve.port (got 8000); set both"),
        (["seed=-1"], "seed: is no seed (got -1)"),
        (["profile.steps.sft.cpu=lots"], "profile.steps.sft.cpu: is no number of cores (got 'lots')"),
        (["profile.defaults.memory=4G"], "profile.defaults.memory: is no size (got '4G'); write it as 512Mi or 16Gi"),
        (["profile.steps.sft.gpu=-1"], "profile.steps.sft.gpu: must be at least 0 (got -1)"),
        (["profile.steps.sft.deadline_seconds=0"], "profile.steps.sft.deadline_seconds: must be at least 1"),
        (["sft.lora.alpha=0"], "sft.lora.alpha: must be at least 1 (got 0)"),
        (["cold_start.selection.required='['"], "cold_start.selection.required: is no regular expression"),
        (["evaluate.few_shot=-1"], "evaluate.few_shot: must be at least 0 (got -1)"),
        (["profile.backoff.factor=0"], "profile.backoff.factor: must be at least 1 (got 0)"),
    ],
)
def test_what_does_not_fit_is_named(overrides: list[str], line: str) -> None:
    with pytest.raises(UserError) as problem:
        define("sft", "laptop", overrides=overrides)
    assert str(problem.value).startswith(line)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("schedule=now and then", "schedule: is no schedule: expected exactly 5 fields, found 3"),
        ("schedule=0 25 * * *", "schedule: is no schedule: 25 lies outside of 0-23 (hour)"),
        ("timezone=Mars", "timezone: is no time zone (got 'Mars')"),
    ],
)
def test_a_schedule_that_never_comes_is_named(override: str, line: str) -> None:
    with pytest.raises(UserError) as problem:
        define("evaluation", "laptop", overrides=[override])
    assert str(problem.value).startswith(line)


@pytest.mark.parametrize("name", ["Mine", "a_b", "-a", "a-", "a" * 64, ""])
def test_a_run_is_called_as_a_workflow_may_be(name: str) -> None:
    definition = define("sft", "laptop")
    with pytest.raises(UserError, match="--name: is no name of a run"):
        definition.render(name)
    assert definition.render("a" * 63)["metadata"]["name"] == "a" * 63


def test_a_step_that_the_profile_does_not_name_can_be_set() -> None:
    found = define("sft", "laptop", overrides=["profile.steps.verify.cpu=3", "profile.steps.verify.env.A=b"])
    assert found.profile.steps["verify"].cpu == "3" and found.profile.steps["verify"].env == {"A": "b"}
    assert found.profile.steps["sft"].cpu == define("sft", "laptop").profile.steps["sft"].cpu


def test_a_profile_of_ones_own(tmp_path: Any) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("images: {default: 'mine:1'}\nvolumes: {workspace: {mount_path: /workspace, claim: c}}\n")
    assert load_profile(str(mine)).images == {"default": "mine:1"}
    with pytest.raises(UserError, match="--profile: no such profile"):
        load_profile("labtop")


HEAVY = ("torch", "vllm", "lance", "transformers", "numpy", "pandas", "mlflow", "pyarrow", "datasets")
RENDER = f"""
import sys, time
began = time.process_time()
from workflows.definition import define
from workflows.manifest import to_yaml
for route in ("sft", "cold_start_rl"):
    to_yaml(define(route, "cluster").render())
print(time.process_time() - began)
print([name for name in {HEAVY!r} if name in sys.modules])
"""


def test_rendering_imports_nothing_heavy_and_takes_well_under_a_second() -> None:
    best = 9.0
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", RENDER], capture_output=True, text=True, check=True)
        seconds, heavy = done.stdout.splitlines()
        assert heavy == "[]"
        best = min(best, float(seconds))
    assert best < 1.5, "seconds of processor for both routes, Hera's import among them"
