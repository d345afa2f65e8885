"""Laws of the environments: the same tasks each time, no answer shown, right answers accepted and others not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.reward.model import Status
from posttrain.reward.settings import RewardSettings
from posttrain.rollout.environments import catalogue, world
from posttrain.rollout.environments.base import ToolError, call, described
from posttrain.rollout.environments.code import generated
from tests.reward.conftest import Running

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def running():
    engine = Running(RewardSettings())
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("name", "settings"), [("math", []), ("code", []), ("code", ["source=humaneval"]), ("research", [])]
)
def test_the_same_seed_gives_the_same_tasks_and_ids_are_distinct(name, settings):
    one, other = (list(islice(catalogue.make(name, settings).tasks(), 60)) for _ in range(2))
    assert one == other and len({task.id for task in one}) == len(one) >= 50
    if not settings:
        assert list(islice(catalogue.make(name, ["seed=1"]).tasks(), 60)) != one


@pytest.mark.parametrize("name", ["math", "research"])
def test_a_right_answer_is_accepted_and_anothers_is_not(name, running):
    tasks = list(islice(catalogue.make(name).tasks(), 24))
    right = running.find_all([task.question(f"<answer>{task.answer}</answer>") for task in tasks])
    assert all(finding.correct for finding in right)
    wrong = running.find_all([task.question("<answer>no idea at all</answer>") for task in tasks])
    assert all(finding.status is Status.scored and not finding.correct for finding in wrong)


def test_a_generated_task_hides_its_calls_and_agrees_with_its_own_words():
    task = generated(3, 0, 12)
    shown = task.messages[-1]["content"]
    assert len(task.metadata["calls"]) == 12
    hidden = [str(c["args"][0]) for c in task.metadata["calls"] if len(c["args"][0]) > 1]
    assert not any(arguments in shown for arguments in hidden)
    examples = {generated(n, 0, 12).messages[-1]["content"].split("\n")[0] for n in range(60)}
    assert len(examples) > 40


def test_every_page_is_found_by_its_name_and_every_question_is_answered_by_reading():
    """Following the words of a question through search and open alone gives its answer."""
    environment = catalogue.make("research", ["people=20"])
    search, open_ = environment.tools
    made = world.make(20, 0)
    for person in made.people:
        ids = [row["id"] for row in json.loads(call(search, {"query": person.name, "limit": 20}))]
        assert f"person-{made.people.index(person)}" in ids

    def read(name: str) -> str:
        found = json.loads(call(search, {"query": name, "limit": 20}))
        (page,) = [row["id"] for row in found if row["title"] == name]
        return call(open_, {"id": page})

    asked = [t for t in environment.tasks() if "town where" in t.messages[-1]["content"]]
    for task in asked[:8]:
        (person,) = re.findall(r"where (.+) lived given", task.messages[-1]["content"])
        (town,) = re.findall(r"who lived in (\w+)\.", read(person))
        assert re.findall(r"charter in (\d+)", read(town)) == [task.answer]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (0, {}, "'query' is a required property"),
        (0, {"query": "x", "limit": 100}, "greater than the maximum"),
        (0, {"query": "?!"}, "holds no word"),
        (0, [], "is not of type 'object'"),
        (1, {"id": "person-9999"}, "there is no page"),
        (1, {"id": "' OR 1=1 --"}, "there is no page"),
        (1, {"id": "town-0", "more": 1}, "Additional properties"),
    ],
)
def test_a_call_that_does_not_fit_says_why(tool, arguments, said):
    tools = catalogue.make("research", ["people=20"]).tools
    with pytest.raises(ToolError, match=re.escape(said)):
        call(tools[tool], arguments)
    assert described(tools[tool])["function"]["name"] in ("search", "open")


def test_files_of_ones_own(tmp_path, running):
    file = tmp_path / "mine.jsonl"
    file.write_text(
        '{"question": "1/4 + 1/4?", "answer": "1/2"}\n\n{"question": "?", "answer": "x", "verifier": "exact"}\n'
    )
    tasks = list(catalogue.make("math", [f"file={file}"]).tasks())
    found = running.find_all([tasks[0].question("<answer>0.5</answer>"), tasks[1].question("<answer>x</answer>")])
    assert all(finding.correct for finding in found)
    file.write_text('{"question": "one\u2028line", "answer": "2"}\r\n', encoding="utf-8")
    assert next(iter(catalogue.make("math", [f"file={file}"]).tasks())).messages[0]["content"].startswith("one\u2028")
    file.write_text('{"question": "?"}\n')
    with pytest.raises(UserError, match="line 1 is no task"):
        list(catalogue.make("math", [f"file={file}"]).tasks())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "maths"], "ENVIRONMENT: no such environment (got 'maths'); did you mean math?"),
        (["show", "math", "sizes=3"], "math.sizes: unknown key; did you mean size?"),
        (["show", "code", "source=mbpp"], "source: is no source (got 'mbpp')"),
        (["try", "math", "--task", "nothing"], "TASK: math has no such task (got 'nothing')"),
        (["show", "math", "datasets=[nope]"], "datasets: reasoning-gym has no such data set (got 'nope')"),
    ],
)
def test_a_mistake_is_one_line(arguments, said):
    done = env(*arguments)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {said}") and done.stderr.count("\n") == 1


def test_try_shows_a_task_takes_an_answer_and_shows_the_verdict_with_its_evidence():
    answer = next(iter(catalogue.make("math").tasks())).answer
    done = env("try", "math", text=f"I think\nit is <answer>{answer}</answer>\n.\nnot read\n")
    assert done.returncode == 0, done.stderr
    for part in ("task chain_sum-0-0", "verdict by reasoning_gym:chain_sum: scored", "reward 1, correct: True"):
        assert part in done.stdout
    assert f"extracted: {answer}" in done.stdout


def test_try_of_research_calls_tools_on_the_way():
    done = env(
        "try",
        "research",
        text='/search {"query": "town"}\n/open {"id": "town-0"}\n/open {}\n/find {}\n<answer>x</answer>\n',
    )
    assert '"id": "' in done.stdout and "was given its charter" in " ".join(done.stdout.split())
    assert "error: open: $: 'id' is a required property" in done.stdout and "reward 0" in done.stdout
    assert "error: there is no tool 'find'; there are search, open" in done.stdout


def env(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "posttrain.cli", "env", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, timeout=200)
