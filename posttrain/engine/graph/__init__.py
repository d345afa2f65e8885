"""Decisions: given a template and the states of nodes, what may start, what is left out, which phase holds.

Everything here is a pure function over plain data; posttrain.engine.run carries it out.
"""
