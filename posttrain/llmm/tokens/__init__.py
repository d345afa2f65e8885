"""Between chat and tokens: chat templates with exact places, histories of sampled ids, parsers of what was sampled.

template    a chat template, rendered with the place of each message
codec       a tokenizer: text to ids, ids to text, a stream of ids to text
lower       chat -> completion -> tokens, each span with its author
parsers     sampled text -> reasoning, text, tool calls; whole or as a stream, with the same outcome
history     the ids of a trajectory: what goes on from them, what forks and why
model       all of it for one model directory
"""
