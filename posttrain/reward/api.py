"""Bodies of the reward service's requests and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from posttrain.json_text import LARGEST_WHOLE, Body, Whole, storable
from posttrain.reward.answers import AnswerForm
from posttrain.reward.model import Question, Status

LARGEST_BATCH = 1000


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/+#@-]*$", max_length=300)]
Key = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Text = Annotated[str, AfterValidator(storable)]
Details = Annotated[dict[str, Any], AfterValidator(storable)]


class Form(Body):
    """Where the answer stands: see `posttrain.reward.answers.AnswerForm`."""

    tag: str = Field(default="answer", pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,30}$")
    take: Literal["first", "last", "only"] = "last"
    strict: bool = False


class Ask(Body):
    """`trajectory` is the trajectory's digest or id; `version`, where given, must be the verifier's present one."""

    task: Name
    trajectory: Name
    verifier: Name
    version: Name | None = None
    completion: Text
    answer: Text = ""
    metadata: Details = Field(default_factory=dict)
    form: Form = Field(default_factory=Form)

    def question(self) -> Question:
        form = AnswerForm(self.form.tag, self.form.take, self.form.strict)
        return Question(self.verifier, self.completion, self.answer, self.metadata, form)


class Batch(Body):
    questions: list[Ask] = Field(min_length=1, max_length=LARGEST_BATCH)


class Verdict(BaseModel):
    """`reward` is a number if and only if `status` is `scored`. `stored` says that it was known before."""

    key: str
    task: str
    trajectory: str
    verifier: str
    version: str
    status: Status
    reward: float | None
    correct: bool | None
    well_formed: bool | None
    components: dict[str, float]
    evidence: dict[str, Any]
    seconds: float
    stored: bool


class Verdicts(BaseModel):
    verdicts: list[Verdict]


class VerdictPage(BaseModel):
    """`next` is what to give as `after` for more; null at the end."""

    verdicts: list[Verdict]
    next: int | None


class ReplayRequest(Body):
    """Stored verdicts behind `after`, computed again by today's verifiers. Nothing is stored."""

    verifier: Name | None = None
    version: Name | None = None
    after: Whole = Field(default=0, ge=0, le=LARGEST_WHOLE)
    limit: Whole = Field(default=100, ge=1, le=LARGEST_BATCH)


class Difference(BaseModel):
    key: str
    verifier: str
    version: str
    status: Status
    reward: float | None
    other_version: str
    other_status: Status
    other_reward: float | None


class Replay(BaseModel):
    compared: int
    same: int
    differences: list[Difference]
    next: int | None


class VerifierView(BaseModel):
    name: str
    lane: str
    waiting: int


class ServiceStatus(BaseModel):
    verifiers: list[VerifierView]
    stored: dict[str, int]
    unstreamed: int


class Detail(BaseModel):
    detail: str
