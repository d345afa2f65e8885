"""What a user may set of the gateway. Imports nothing heavy: the step's spec and `posttrain validate` read it.

Secrets are no settings: a key is the name of an environment variable that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from posttrain.errors import UserError

DIALECTS = ("openai_chat", "openai_responses", "anthropic_messages", "google_genai")


@dataclass
class VersionSettings:
    """One version of the weights and the engines that serve it. `policy` is its number in the `experience` stream,
    for engines that do not tell it themselves; -1: unknown. `weight` is its share of the traffic."""

    name: str = "main"
    replicas: list[str] = field(default_factory=lambda: ["http://127.0.0.1:8000"])  # vLLM with --enable-scale-out
    weight: float = 1.0
    policy: int = -1


@dataclass
class LimitSettings:
    """Of one key; 0 is no limit."""

    concurrency: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0  # prompt and answer


@dataclass
class KeySettings:
    """A client that is served without a trajectory. `variable` names the environment variable with its key."""

    name: str = ""
    variable: str = ""
    limits: LimitSettings = field(default_factory=LimitSettings)


@dataclass
class VendorSettings:
    """A vendor that is asked in the policy's place for some models. `url` is its address as its SDK takes it;
    `variable` names the environment variable with the gateway's key there."""

    name: str = ""
    dialect: str = ""  # openai_chat, openai_responses, anthropic_messages or google_genai
    url: str = ""
    variable: str = ""
    models: list[str] = field(default_factory=list)  # names, or patterns of them: claude-*

    def __post_init__(self) -> None:
        for wanted in ("name", "url", "variable", "models"):
            if not getattr(self, wanted):
                raise UserError("must be given", field=f"vendors.{self.name}.{wanted}")
        if self.dialect not in DIALECTS:
            known = f"one of {', '.join(DIALECTS)}"
            raise UserError("is no dialect", field=f"vendors.{self.name}.dialect", value=self.dialect, remedy=known)


@dataclass
class ShadowSettings:
    """A share of the requests is asked of `version` as well; its answers are measured and thrown away."""

    version: str = ""
    share: float = 0.0


@dataclass
class TimeoutSettings:
    """Seconds."""

    request: float = 1800.0  # a whole answer
    first_token: float = 300.0  # from the request to the first token, waiting in the engine included
    between_tokens: float = 60.0
    client: float = 60.0  # that a client may take to receive one piece of a stream
    connect: float = 5.0  # to an engine
    drain: float = 30.0  # for answers under way when the gateway is stopped


@dataclass
class GatewaySettings:
    name: str = "gateway"  # its producer's name in the stream: another one for each gateway
    model: str = "policy"  # by which clients ask for it
    any_model: bool = True  # agents ask for their vendor's models by name: all of them mean this one
    template: str = ""  # file of a chat template in place of the model's own
    template_arguments: dict[str, Any] = field(default_factory=dict)
    format: str = ""  # how the model writes reasoning and calls, where its template does not tell
    media: str = "refuse"  # images and the like, which a model of text cannot take: refuse, or name them in the prompt
    rewrites: str = "fork"  # where the template would write the past otherwise: fork, or keep what was sampled
    versions: list[VersionSettings] = field(default_factory=lambda: [VersionSettings()])
    shadow: ShadowSettings = field(default_factory=ShadowSettings)
    vendors: list[VendorSettings] = field(default_factory=list)
    keys: list[KeySettings] = field(default_factory=list)
    admin_variable: str = "POSTTRAIN_GATEWAY_ADMIN"  # environment variable with the key that creates trajectories
    trajectory_limits: LimitSettings = field(default_factory=LimitSettings)  # of each trajectory's key
    max_in_flight: int = 256
    max_waiting: int = 1024  # beyond those in flight; more are refused with 429
    max_body_mib: int = 32
    retries: int = 2  # on other replicas, as long as nothing was streamed
    health_seconds: float = 1.0  # between looks at each replica
    stream: str = ""  # URI of the `experience` stream; empty: finished trajectories stay in the journal
    ledgers: str = ""  # URI of a stream for the runs' ledgers, a row an event; empty: they are files alone
    log_contents: bool = False  # messages in the log, for debugging
    timeouts: TimeoutSettings = field(default_factory=TimeoutSettings)

    def __post_init__(self) -> None:
        if self.rewrites not in ("fork", "keep"):
            raise UserError("must be fork or keep", field="rewrites", value=self.rewrites)
        if self.media not in ("refuse", "name"):
            raise UserError("must be refuse or name", field="media", value=self.media)
        names = [version.name for version in self.versions]
        if not names or len(set(names)) != len(names):
            raise UserError("must be at least one, each with a name of its own", field="versions", value=names)
        for version in self.versions:
            if not version.replicas:
                remedy = "give the address of at least one vLLM server"
                raise UserError("has no replicas", field=f"versions.{version.name}", remedy=remedy)
            if version.weight < 0:
                raise UserError("must not be negative", field=f"versions.{version.name}.weight", value=version.weight)
        if not sum(version.weight for version in self.versions) > 0:
            raise UserError("must not all be 0", field="versions.*.weight")
        if self.shadow.share and self.shadow.version not in names:
            known = f"known: {', '.join(names)}"
            raise UserError("is no version", field="shadow.version", value=self.shadow.version, remedy=known)
        if not 0 <= self.shadow.share <= 1:
            raise UserError("must lie in [0, 1]", field="shadow.share", value=self.shadow.share)
        for name in ("max_in_flight", "max_body_mib"):
            if getattr(self, name) < 1:
                raise UserError("must be at least 1", field=name, value=getattr(self, name))
        for key in self.keys:
            if not key.name or not key.variable:
                raise UserError("must name the client and the variable with its key", field="keys", value=key.name)
