"""Weights from trainer to inference ranks: each slice once, from a rank that has it to a rank that wants it."""
