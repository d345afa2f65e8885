"""Lint says file, line and path; a manifest of any shape is refused by a line and never by a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from posttrain.engine import Engine, lint, load
from posttrain.engine.manifest import parse
from posttrain.errors import UserError
from tests.engine.laws.support import WORK, workflow

CASES = sorted((Path(__file__).parent / "conformance" / "cases").rglob("*.yaml"))

BROKEN = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata:
  name: broken
spec:
  entrypoint: main
  templates:
    - name: main
      container:
        image: i
        imge: typo
        lifecycle: {}
"""


def test_an_unknown_key_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(BROKEN)
    (finding,) = lint(parse(file))
    assert (finding.file, finding.line, finding.path) == (str(file), 11, "spec.templates[0].container.imge")
    assert "did you mean image?" in finding.message
    with pytest.raises(UserError, match=r"broken.yaml:11: spec.templates"):
        load(file)


def test_what_is_not_carried_is_named_and_sent_to_argo(tmp_path: Path) -> None:
    (finding,) = lint(parse(BROKEN.replace("        imge: typo\n", "")))
    assert (finding.line, finding.path) == (11, "spec.templates[0].container.lifecycle")
    assert finding.message.startswith("lifecycle is not carried by this engine") and "run it on Argo" in finding.message
    with pytest.raises(UserError, match="lifecycle is not carried"):
        Engine(tmp_path).submit(load(BROKEN.replace("        imge: typo\n", "")))
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize("expression", ["nosuch(1)", "sprig.nosuch('a')"])
def test_an_unknown_function_is_refused(expression: str) -> None:
    step = {
        "name": "a",
        "template": "work",
        "arguments": {"parameters": [{"name": "end", "value": f"{{{{={expression}}}}}"}]},
    }
    (finding,) = lint(parse(workflow({"name": "main", "steps": [[step]]}, WORK)))
    assert "there is no function" in finding.message


def looked_at(text: str) -> None:
    """A text is a manifest, or is refused by one line."""
    try:
        findings = lint(parse(text + "\n"))
    except UserError as error:
        assert "Traceback" not in str(error)
        return
    for one in findings:
        assert one.line >= 1 and one.message


@given(st.text(max_size=200))
@example("a: &a [*a]")
@example("a: " + "[" * 2000)
@example("!!python/object/apply:os.system [id]")
def test_any_text(text: str) -> None:
    looked_at(text)


@given(st.data())
def test_a_real_manifest_with_something_else_in_one_place(data) -> None:
    documents = list(yaml.safe_load_all(data.draw(st.sampled_from(CASES)).read_text(encoding="utf-8")))
    place = documents[-1]
    while True:  # walk down to some place and put something else there
        keys = list(range(len(place))) if isinstance(place, list) else list(place)
        key = data.draw(st.sampled_from(keys))
        below = place[key]
        if not isinstance(below, (dict, list)) or not below or data.draw(st.booleans()):
            break
        place = below
    junk = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10)
    place[key] = data.draw(junk | st.lists(junk, max_size=2) | st.dictionaries(st.text(max_size=5), junk, max_size=2))
    looked_at(yaml.safe_dump_all(documents, allow_unicode=True))
