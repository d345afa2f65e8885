"""Environments: tasks, tools and a verifier. See docs/rl-environments.md and `posttrain env list`.

base.py       what an environment is
catalogue.py  those that there are, by name
math.py       reasoning-gym and files
code.py       HumanEval and generated functions with hidden tests
research.py   questions over a corpus, with the tools search and open
"""
