"""Reinforcement learning on trajectories that others sample: an iteration of updates from a place in the stream.

config      what is learned, from how much, how old
samples     rows of the stream `experience` as samples
feed        whole groups, in the order of the stream, from a place that a checkpoint holds
weights     new weights to the engines
iteration   the loop of updates
"""
