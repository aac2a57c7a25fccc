"""What a check has found."""

from dataclasses import dataclass

GOOD, DOUBTFUL, BAD = "good", "doubtful", "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one subject, and where that is not good, what to do."""

    state: str
    subject: str
    text: str
    remedy: str = ""
