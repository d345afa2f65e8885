"""Rewards: every verifier there is, and the service that gives and keeps verdicts. See docs/reward.md.

score.py      verdicts by rule, in this process: what evaluation, data and training ask
answers.py    where the answer stands in a completion; rules.py: when two texts or numbers are the same
isolated.py   the child process for code of others; child.py is its side
verifiers/    one file for each way to judge
engine.py     questions to findings: lanes, so that a slow verifier holds up nobody else
service.py    POST /v1/verdicts: idempotent, stored, replayable
"""
