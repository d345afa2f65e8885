"""How a call can end other than by its node's phase."""

from __future__ import annotations


class TemplateError(Exception):
    """The template itself cannot be carried out: its node is Error, and the caller has to cope."""


class DepthExceeded(TemplateError):
    """Calls are nested too deeply."""


class ExitHookBroken(TemplateError):
    """The template of an exit hook cannot be started. Said once; after that the hook counts as over."""


class TimedOut(TemplateError):
    """The node waited longer than its template allows."""


class LimitReached(Exception):
    """Nothing wrong: not now."""
