"""Rules for steps and DAGs: names, loops, arguments, dependencies, and what each may name of the others."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from posttrain.engine.graph.dag import Plan
from posttrain.engine.graph.depends import unknown_words
from posttrain.engine.graph.fanout import LOOPS
from posttrain.engine.library import Source
from posttrain.engine.linting import scopes
from posttrain.engine.manifest.findings import Path

if TYPE_CHECKING:
    from posttrain.engine.linting.checks import Checks

JSON = dict[str, Any]


class GraphChecks:
    """Of one walk over a manifest: what concerns steps and DAGs."""

    def __init__(self, checks: Checks):
        self.checks = checks

    def steps(self, template: JSON, source: Source, scope: set[str], where: Path) -> None:
        self._not_for_graphs(template, where)
        names: set[str] = set()
        for group, steps in enumerate(template["steps"]):
            for place, step in enumerate(steps):
                path = (*where, "steps", group, place)
                name = step.get("name") or ""
                if not name or not scopes.FIELD_NAME.fullmatch(name) or name in names:
                    word = (
                        "is required"
                        if not name
                        else f"'{name}' is not unique"
                        if name in names
                        else f"'{name}' is invalid"
                    )
                    self.checks.say((*path, "name"), word)
                    return
                names.add(name)
                if not self._step(template, step, source, scope, path):
                    return

    def _step(self, template: JSON, step: JSON, source: Source, scope: set[str], path: Path) -> bool:
        prefix = f"steps.{step['name']}"
        scope.add(f"{prefix}.status")
        if not self._loop(step, path):
            return False
        scope |= scopes.of_items(step)
        self.checks.arguments(step.get("arguments") or {}, (*path, "arguments"), need_values=True)
        before = len(self.checks.findings)
        called = self.checks.holder(step, source, None, path)
        if len(self.checks.findings) > before and called is None:
            return False
        if (step.get("hooks") or {}).get("exit") is not None or step.get("onExit"):
            self._offer(called, prefix, scope, aggregate=False)
        self.checks.hooks(step.get("hooks") or {}, (*path, "hooks"), source)
        self._resolvable(step, (scope, self.checks.globals, self._inline(step)), path)
        self._offer(called, prefix, scope, aggregate=bool(step.get("withItems") or step.get("withParam")))
        if called is not None:
            self.checks.supplied(called, step.get("arguments") or {}, path)
        return True

    def _offer(self, called: JSON | None, prefix: str, scope: set[str], *, aggregate: bool) -> None:
        offered, added = scopes.of_outputs(called, prefix, aggregate=aggregate)
        scope |= offered | added
        self.checks.globals |= added

    def _inline(self, holder: JSON) -> set[str]:
        inputs = (holder.get("inline") or {}).get("inputs") or {}
        return {f"inputs.parameters.{one.get('name')}" for one in inputs.get("parameters") or []}

    def _resolvable(self, holder: JSON, layers: tuple[Container[str], ...], path: Path) -> None:
        unknown = scopes.unresolvable(holder, *layers)
        if unknown is not None:
            self.checks.say(path, f"failed to resolve {{{{{unknown}}}}}")
        self.checks.leaves.functions({key: one for key, one in holder.items() if key != "inline"}, path)
        for hook in (holder.get("hooks") or {}).values():
            self.checks.leaves.expression(hook.get("expression") or "true", path)

    def _loop(self, holder: JSON, path: Path) -> bool:
        given = [one for one in LOOPS if holder.get(one)] + ["withSequence"] * (holder.get("withSequence") == {})
        if len(given) > 1:
            self.checks.say((*path, given[1]), "only one of withItems, withParam, withSequence can be specified")
            return False
        sequence = holder.get("withSequence") or {}
        if sequence.get("count") is not None and sequence.get("end") is not None:
            self.checks.say((*path, "withSequence"), "only one of count or end can be defined in withSequence")
            return False
        return True

    def _not_for_graphs(self, template: JSON, where: Path) -> None:
        if template.get("activeDeadlineSeconds") is not None:
            self.checks.say((*where, "activeDeadlineSeconds"), "is only valid for leaf templates")

    # -- DAGs

    def dag(self, template: JSON, source: Source, scope: set[str], where: Path) -> None:
        self._not_for_graphs(template, where)
        tasks, path = template["dag"].get("tasks") or [], (*where, "dag", "tasks")
        if not tasks:
            self.checks.say((*where, "dag"), "must have at least one task")
            return
        if not self.checks.names(tasks, path, scopes.FIELD_NAME):
            return
        plan = Plan(template["dag"])
        if not self._dependencies(template, plan, where):
            return
        called: dict[str, JSON | None] = {}
        for place, task in enumerate(tasks):
            before = len(self.checks.findings)
            called[task["name"]] = self.checks.holder(task, source, None, (*path, place))
            if called[task["name"]] is None and len(self.checks.findings) > before:
                return
            aggregate = bool(task.get("withItems") or task.get("withParam"))
            self._offer(called[task["name"]], f"tasks.{task['name']}", scope, aggregate=aggregate)
        for place, task in enumerate(tasks):
            self._task(plan, task, source, scope, called, (*path, place))

    def _task(
        self,
        plan: Plan,
        task: JSON,
        source: Source,
        scope: set[str],
        called: dict[str, JSON | None],
        path: Path,
    ) -> None:
        name = task["name"]
        if task.get("hooks"):
            scope.add(f"tasks.{name}.status")
        self.checks.hooks(task.get("hooks") or {}, (*path, "hooks"), source)
        if not self._loop(task, path):
            return
        layers = (scope, self.checks.globals, self._inline(task), scopes.of_items(task), scopes.Statuses(plan, name))
        self._resolvable(task, layers, path)
        self.checks.arguments(task.get("arguments") or {}, (*path, "arguments"), need_values=True)
        self._needed(plan, task, path)
        found = called[name]
        if found is not None:
            self.checks.supplied(found, task.get("arguments") or {}, path)

    def _needed(self, plan: Plan, task: JSON, path: Path) -> None:
        """An argument that is an output of another task needs that task among its dependencies."""
        arguments = task.get("arguments") or {}
        for side, field in (("parameters", "value"), ("artifacts", "from")):
            for place, one in enumerate(arguments.get(side) or []):
                text = one.get(field) or ""
                if text.startswith("{{tasks.") and not plan.is_ancestor(text.split(".")[1], task["name"]):
                    self.checks.say(
                        (*path, "arguments", side, place),
                        f"missing dependency '{text.split('.')[1]}' for {side[:-1]} '{one.get('name')}'",
                    )

    def _dependencies(self, template: JSON, plan: Plan, where: Path) -> bool:
        tasks, path = template["dag"]["tasks"], (*where, "dag", "tasks")
        depends = any(task.get("depends") for task in tasks)
        before = len(self.checks.findings)
        for place, task in enumerate(tasks):
            here = (*path, place)
            if (depends or task.get("dependencies")) and task["name"][0].isdigit():
                words = "cannot begin with a digit when using either 'depends' or 'dependencies'"
                self.checks.say((*here, "name"), words)
            if depends and task.get("dependencies"):
                self.checks.say(
                    (*here, "dependencies"), "cannot use both 'depends' and 'dependencies' in the same DAG template"
                )
            if depends and task.get("continueOn"):
                words = "Instead use 'dep-task.Failed'/'dep-task.Errored'"
                self.checks.say((*here, "continueOn"), f"cannot use 'continueOn' when using 'depends'. {words}")
            for other, word in unknown_words(task.get("depends") or ""):
                self.checks.say((*here, "depends"), f"task result '{word}' for task '{other}' is invalid")
            for name in plan.needs[task["name"]].names:
                self._dependency(plan, task, name, here)
        if len(self.checks.findings) == before:
            self._no_cycles(plan, where)
        for target in (template["dag"].get("target") or "").split():
            if "{{" not in target and target not in plan.tasks:
                self.checks.say((*where, "dag", "target"), f"target '{target}' is not defined")
        return len(self.checks.findings) == before

    def _dependency(self, plan: Plan, task: JSON, name: str, here: Path) -> None:
        field = "depends" if task.get("depends") else "dependencies"
        other = plan.tasks.get(name)
        if other is None:
            self.checks.say((*here, field), f"invalid dependency {name}: there is no such task")
        elif name in plan.needs[task["name"]].by_items and not any(other.get(loop) for loop in LOOPS):
            self.checks.say(
                (*here, field),
                f"dependency '{name}' uses an items-based condition such as .AnySucceeded or .AllFailed "
                "but does not contain any items",
            )

    def _no_cycles(self, plan: Plan, where: Path) -> None:
        open_needs = {name: set(plan.needs[name].names) for name in plan.tasks}
        ready = [name for name, needs in open_needs.items() if not needs]
        done = 0
        while ready:
            name = ready.pop()
            done += 1
            for other in plan.dependents.get(name, ()):
                open_needs[other].discard(name)
                if not open_needs[other]:
                    ready.append(other)
        if done < len(plan.tasks):
            stuck = ", ".join(sorted(name for name, needs in open_needs.items() if needs))
            self.checks.say((*where, "dag"), f"dependency cycle detected among {stuck}")
