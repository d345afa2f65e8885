"""What publishers, receivers and the coordinator say to each other, over HTTP (JSON) and on control channels (msgpack).

Everything a member says is its whole state, and everything it is told is all that it shall do now: said twice, or after
a restart of either, it means the same. Durations are seconds.
"""

from __future__ import annotations

from msgspec import Struct

from posttrain.etha.layout import SourceLayout
from posttrain.etha.plan import Bucket
from posttrain.etha.slices import Want


class Address(Struct, frozen=True):
    """Where a destination's control channel listens (a Unix socket, or host and port), and the key that opens it."""

    transport: str
    place: str | tuple[str, int]
    key: str

    def __repr__(self) -> str:
        return f"Address({self.transport!r}, {self.place!r})"  # the key is nobody's to read


class SourceReport(Struct, frozen=True):
    """`offers`: the versions that this rank can send, each with the number of the push that began it: one that is
    pushed again has another. `sent`: by attempt, the digest of what went to each rank of its replica. `broken`: by
    attempt, why it ended."""

    sequence: int
    offers: dict[int, int] = {}
    sent: dict[int, dict[int, str]] = {}
    broken: dict[int, str] = {}


class Checked(Struct, frozen=True):
    """What a rank found in its staging when it looked for the check `number`; `version` None: nothing that is whole."""

    number: int
    version: int | None
    digest: str = ""


class RankReport(Struct, frozen=True):
    """`held`: the attempt that this rank holds all of, and the digest of what came from each source.

    `applied` is the version in the engine, None while or since it holds none for sure; `failed` the last commit that
    could not be carried out, and why.
    """

    sequence: int
    applied: int | None = None
    held: int | None = None
    digests: dict[int, str] = {}
    moved: int = 0  # bytes of the attempt under way, or the last one
    resent: int = 0  # buckets that came damaged and were sent again
    broken: dict[int, str] = {}
    failed: tuple[int, str] | None = None
    checked: Checked | None = None


class JoinSource(Struct, frozen=True, forbid_unknown_fields=True):
    """`layout` is of this rank alone."""

    ranks: int
    layout: SourceLayout


class JoinRank(Struct, frozen=True, forbid_unknown_fields=True):
    ranks: int
    wants: tuple[Want, ...]
    address: Address
    url: str = ""
    applied: int | None = 0


class Joined(Struct, frozen=True):
    """`epoch` is what the member must show from now on; one that is not the last given to it is refused."""

    epoch: int
    lease_seconds: float


class SourceBeat(Struct, frozen=True, forbid_unknown_fields=True):
    epoch: int
    report: SourceReport
    seen: str = ""  # the orders' tag that the member has; others are waited for
    wait: float = 0.0


class RankBeat(Struct, frozen=True, forbid_unknown_fields=True):
    epoch: int
    report: RankReport
    seen: str = ""
    wait: float = 0.0


class Send(Struct, frozen=True):
    """Send version `version` to a replica, by the buckets that the plan `plan` has for this source."""

    attempt: int
    version: int
    replica: str
    plan: str
    ranks: dict[int, Address]


class Outcome(Struct, frozen=True):
    """What became of a version: `state` is moving, committed or aborted; replicas by where they are with it."""

    state: str
    reason: str = ""
    serving: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()


class SourceOrders(Struct, frozen=True):
    sends: tuple[Send, ...] = ()
    outcomes: dict[int, Outcome] = {}


class Receive(Struct, frozen=True):
    attempt: int
    version: int
    plan: str


class Apply(Struct, frozen=True):
    """Only to ranks whose engine nobody drives."""

    commit: int
    version: int


class RankOrders(Struct, frozen=True):
    receive: Receive | None = None
    apply: Apply | None = None
    check: int = 0  # the number of the last check that was asked for


class SourceTold(Struct, frozen=True):
    tag: str
    orders: SourceOrders


class RankTold(Struct, frozen=True):
    tag: str
    orders: RankOrders


class SourcePart(Struct, frozen=True):
    """A plan as one source needs it: `wants` by the number in its transfers, `lists` each rank's wants in order."""

    buckets: tuple[Bucket, ...]
    wants: dict[int, Want]
    lists: dict[int, tuple[Want, ...]]


class RankPart(Struct, frozen=True):
    buckets: tuple[Bucket, ...]
    wants: dict[int, Want]


# On a control channel, source to destination:


class Hello(Struct, frozen=True, tag=True):
    """`window` is the one that the source has open, "" for none."""

    attempt: int
    source: int
    window: str


class Filled(Struct, frozen=True, tag=True):
    """The bucket's bytes are in the window, or follow by `Remote.put`."""

    bucket: int
    digest: int


class Done(Struct, frozen=True, tag=True):
    """All buckets have been sent."""


# and destination to source:


class Welcome(Struct, frozen=True, tag=True):
    """`invite`: the source opens the window anew."""

    window: str
    invite: bool


class Again(Struct, frozen=True, tag=True):
    """After Done: the buckets whose bytes are not those of their digests. None: the source is done."""

    buckets: tuple[int, ...]


FromSource = Hello | Filled | Done
