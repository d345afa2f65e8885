"""Which phase a pod ends in: laws over every combination of what can have happened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from posttrain.engine.verdict import DEADLINE, STOPPED, Ended, decide

codes = st.sampled_from([0, 1, 2, 64, 137, 143, 255])
ended = st.builds(Ended, st.just("main"), codes, st.just(False), st.sampled_from(["", "why"]))
sidecars = st.lists(st.builds(Ended, st.sampled_from(["a", "b"]), codes), max_size=3)
problems = st.sampled_from(["", "open /tmp/x: no such file or directory"])


@given(ended, sidecars, problems, st.booleans())
def test_main_decides_before_what_surrounds_it_and_that_before_the_sidecars(main, beside, after, daemon) -> None:
    phase, message = decide(main, sidecars=beside, after=after, daemon=daemon)
    bad = [s for s in beside if s.code not in (0, 137, 143)]
    if main.code:
        assert (phase, message) == ("Failed", main.message)
    elif after:
        assert phase == "Error" and message == f"wait: Error (exit code 64): {after}"
    elif bad:
        assert (phase, message) == ("Failed", bad[0].message)
    else:
        assert (phase, message) == ("Failed" if daemon else "Succeeded", "")


@given(st.one_of(st.none(), ended), sidecars, problems)
def test_one_that_was_cut_short_has_failed_whatever_it_did(main, beside, after) -> None:
    assert decide(main, sidecars=beside, after=after, cut_short="deadline") == ("Failed", DEADLINE)
    assert decide(main, sidecars=beside, after=after, cut_short="stop") == ("Failed", STOPPED)


def test_messages() -> None:
    assert Ended("main", 3).message == "main: Error (exit code 3)"
    assert Ended("main", 1, word="i/o timeout").message == "main: Error (exit code 1): i/o timeout"
    assert Ended("main", 137, out_of_memory=True).message == "main: OOMKilled (exit code 137)"
    assert decide(None, init=Ended("setup", 7)) == ("Failed", "setup: Error (exit code 7)")
    assert decide(None, before="no artifact") == ("Error", "init: Error (exit code 64): no artifact")
