"""The child's side of `isolated`: one question a line on stdin, one answer a line on stdout.

Invariants: nothing that a model wrote is run as Python. Several scorers of reasoning-gym hand the answer to `eval`
or to sympy's parser, which is one; they get an answer only when it can call nothing (`callable_free`). An answer is
`{"reward": float, "evidence": {…}}`, or `{"status": …, "evidence": {…}}` where the question itself is at fault.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

_HARMLESS = r"(?:sin|cos|tan|exp|log|ln|sqrt|abs)"
_CALL = re.compile(rf"(?<![A-Za-z_])(?!{_HARMLESS}\s*\()[A-Za-z]\w*\s*\(|[\])'\"]\s*\(")
_COMMAND = re.compile(r"\\[A-Za-z]+(?:\{[A-Za-z]+\*?\})?")  # of LaTeX, with a name in braces behind it
_PROSE = re.compile(r"[A-Za-z]{4,}|[A-Za-z]{2,}\s+[A-Za-z]{2,}|\n|[.;:?]\s")
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z_]|__|[{}@`;]|\blambda\b|\bimport\b")


def callable_free(text: str) -> bool:
    """Whether `text`, read as Python, can call nothing but a few functions of mathematics."""
    return not (_CALL.search(text) or _ATTRIBUTE.search(text))


@cache
def _dataset(name: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, size=1, seed=0)


@cache
def _evaluates(name: str) -> bool:
    import inspect

    source = inspect.getsource(inspect.getmodule(type(_dataset(name))))  # type: ignore[arg-type]
    return re.search(r"\b(eval|exec|parse_expr|sympify)\(", source) is not None


def _known(name: str) -> bool:
    """Whether there is such a verifier. Loads what it needs, so that no answer's time is spent on it."""
    if name == "math":
        return _math("1", "1")["reward"] == 1.0
    from reasoning_gym.factory import DATASETS

    return name in DATASETS and _dataset(name) is not None


def _prepare(what: str) -> bool:
    """Load the libraries of one lane."""
    if what == "math":
        _math("1", "1")
    elif what == "units":
        _units()
    elif what == "patterns":
        import jsonschema  # noqa: F401
    elif what == "reasoning_gym":
        import reasoning_gym  # noqa: F401
    elif what == "preference":
        import transformers  # noqa: F401
    return True


def _math(answer: str, given: str) -> dict[str, Any]:
    from math_verify import verify

    try:
        gold, found = _expressions(answer), _expressions(given)
        right = bool(gold and found) and verify(gold, found, timeout_seconds=None)
    except Exception as problem:  # the library's own failure on a strange answer is the answer's fault
        return _wrong("math", problem)
    read = {"expected": [str(e)[:200] for e in gold], "read": [str(e)[:200] for e in found]}
    if not gold:
        return {"status": "invalid_answer", "reward": 0.0, "evidence": read | {"error": "the answer is no expression"}}
    return {"reward": float(right), "evidence": read}


def _expressions(text: str) -> list[Any]:
    """What math-verify reads in `text`. Without delimiters it would read a part of it (of `x^2 - 1` the 1), so that
    an answer which is an expression and nothing else is given some."""
    from math_verify import parse

    bare = not re.search(r"\$|\\boxed|\\\(|\\\[", text) and not _PROSE.search(_COMMAND.sub(" ", text))
    forms = (f"${text}$", text) if bare else (text, f"${text}$")
    return next(filter(None, (parse(form, parsing_timeout=None) for form in forms)), [])


def _reasoning_gym(name: str, entry: dict[str, Any], given: str) -> dict[str, Any]:
    if _evaluates(name) and not callable_free(given):
        return {"reward": 0.0, "evidence": {"error": "the answer calls something"}}
    try:
        return {"reward": float(_dataset(name).score_answer(given, entry)), "evidence": {}}
    except Exception as problem:
        return _wrong(name, problem)


def _regex(pattern: str, flags: int, whole: bool, given: str) -> dict[str, Any]:
    try:
        compiled = re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError) as problem:
        return _invalid(f"the pattern cannot be read: {problem}")
    match = compiled.fullmatch(given) if whole else compiled.search(given)
    return {"reward": float(match is not None), "evidence": {"match": match.group(0)[:500] if match else None}}


def _json_schema(schema: Any, given: str) -> dict[str, Any]:
    import jsonschema
    from referencing import Registry

    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
        validator = kind(schema, registry=Registry())  # its own default would fetch what a schema refers to
    except (jsonschema.SchemaError, TypeError) as problem:
        return _invalid(f"the schema cannot be read: {getattr(problem, 'message', problem)}")
    try:
        value = json.loads(given)
    except (ValueError, RecursionError) as problem:
        return {"reward": 0.0, "evidence": {"errors": [f"is no JSON: {problem}"]}}
    try:
        errors = [f"{e.json_path}: {e.message}"[:500] for e in validator.iter_errors(value)][:20]
    except Exception as problem:  # a reference that leads nowhere, say
        return _invalid(f"the schema cannot be used: {problem}")
    return {"reward": float(not errors), "evidence": {"errors": errors}}


@cache
def _units() -> Any:
    import pint

    return pint.UnitRegistry()


def _quantity(answer: str, given: str, tolerance: float, absolute: float, unit: str, required: bool) -> dict[str, Any]:
    """Numbers with units; an answer without one is taken in the expected answer's unit, unless one is required."""
    import pint

    expected = _read_quantity(answer, unit)
    if expected is None:
        return _invalid(f"{answer!r} is no quantity")
    found = _read_quantity(given, "")
    if found is None:
        return {"reward": 0.0, "evidence": {"error": "is no quantity"}}
    shown = {"expected": f"{expected:~P}", "read": f"{found:~P}"}
    bare = found.units == _units().dimensionless and expected.units != _units().dimensionless
    if bare and required:
        return {"reward": 0.0, "evidence": shown | {"error": "has no unit"}}
    try:
        value = found.magnitude if bare else found.to(expected.units).magnitude
    except (pint.DimensionalityError, pint.OffsetUnitCalculusError) as problem:
        return {"reward": 0.0, "evidence": shown | {"error": str(problem)}}
    difference = abs(value - expected.magnitude)
    rounding = 1e-9 * abs(expected.magnitude)  # of converting, which is done in floating point
    right = difference <= max(tolerance * abs(expected.magnitude), absolute, rounding)
    return {"reward": float(right), "evidence": shown | {"difference": float(difference)}}


def _read_quantity(text: str, unit: str) -> Any:
    import pint

    tidy = text.strip().strip("$").replace("−", "-").replace("\\,", " ").replace("×", "*").replace("·", "*")
    tidy = re.sub(r"(?<=\d),(?=\d{3}(\D|$))", "", tidy)
    tidy = re.sub(r"\\(?:text|mathrm|operatorname)\{([^{}]*)\}", r" \1", tidy).replace("^{", "^(").replace("}", ")")
    tidy = re.sub(r"\\(?:times|cdot)", "*", tidy).replace("\\%", "%").replace("\\", "")
    parts = re.fullmatch(
        r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*(?:\*\s*10\s*\^\s*\(?([-+]?\d{1,3})\)?)?\s*"
        r"(?:/\s*(\d+\.?\d*))?\s*\*?\s*([^\d\s*/^()+\-.][^\"']{0,60})?\s*",
        tidy,
    )
    if parts is None:
        return None
    mantissa, power, divisor, named = parts.groups()
    try:
        value = float(mantissa) * 10.0 ** int(power or 0) / float(divisor or 1)
        units = _units().parse_units(named or unit)
        return _units().Quantity(value, units)
    except (pint.PintError, ZeroDivisionError, OverflowError, ValueError, TypeError, AttributeError, AssertionError):
        return None


def _function(name: str, question: Mapping[str, Any]) -> dict[str, Any]:
    function = _load(name)
    value = function(dict(question))
    if isinstance(value, Mapping):
        value, evidence = value["reward"], dict(value.get("evidence") or {})
    else:
        evidence = {}
    reward = float(value)
    if reward != reward or abs(reward) == float("inf"):
        raise ValueError(f"gave {value!r} as a reward")
    return {"reward": reward, "evidence": evidence}


@cache
def _load(name: str) -> Callable[[dict[str, Any]], Any]:
    from importlib import import_module

    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def _function_version(name: str) -> str:
    """Of the file that holds it: another text is another version."""
    import inspect

    from posttrain.contract.digest import digest_bytes

    return digest_bytes(inspect.getsource(sys.modules[_load(name).__module__]).encode())[7:19]


def _preference(model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    from posttrain.reward.preference import score

    return score(model, messages)


def _wrong(name: str, problem: Exception) -> dict[str, Any]:
    print(f"{name} verifier: {type(problem).__name__}: {problem}", file=sys.stderr)
    return {"reward": 0.0, "evidence": {"error": f"{type(problem).__name__}: {problem}"[:500]}}


def _invalid(why: str) -> dict[str, Any]:
    return {"status": "invalid_answer", "reward": 0.0, "evidence": {"error": why[:500]}}


QUESTIONS: dict[str, Callable[..., Any]] = {
    "prepare": _prepare, "known": _known, "math": _math, "reasoning_gym": _reasoning_gym, "regex": _regex,
    "json_schema": _json_schema, "quantity": _quantity, "function": _function,
    "function_version": _function_version, "preference": _preference,
}  # fmt: skip
_LOADING = ("prepare", "known", "function_version")  # their time is the libraries', not an answer's


def _serve(seconds: float, memory: int) -> None:
    import resource

    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    print("true", file=answers, flush=True)
    for line in sys.stdin:
        kind, *arguments = json.loads(line)
        if kind not in _LOADING and seconds:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends the process, whatever it is doing
        try:
            found = QUESTIONS[kind](*arguments)
        except Exception as problem:
            found = {"status": "verifier_error", "reward": 0.0,
                     "evidence": {"error": f"{type(problem).__name__}: {problem}"[:2000]}}  # fmt: skip
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(found, default=str), file=answers, flush=True)


if __name__ == "__main__":
    _serve(float(sys.argv[1]), int(sys.argv[2]))
