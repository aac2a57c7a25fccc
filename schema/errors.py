"""Every error that Freshet raises on purpose.

FreshetError
├── SettingsError        a setting is unknown or unreadable
├── SavedQueryError      an endpoint's .sql file is wrong; names file and line
├── StoreError           the database can't be used as it is
│   ├── StoreMissing     no worker has made it yet
│   ├── StoreTooNew      a newer Freshet made it
│   └── StoreRetired     a newer generation has taken its place
├── LogError             the log is not the one that the store has read
├── NotTaken             Kafka is away or slow: events were not taken, and none was sent
├── Unacknowledged       Kafka did not say whether it has the events
└── QueryError           a query that can't be answered
    ├── ParameterError   because of one parameter
    ├── QueryTimeout     because it took longer than allowed
    └── Overloaded       because too many others are being answered

Each message says what failed, where, why, and what to do.
"""

from collections.abc import Sequence


class FreshetError(Exception):
    """What the others have in common: a message made for people."""


class SettingsError(FreshetError):
    """A setting is unknown, or its value can't be read."""


class SavedQueryError(FreshetError):
    """An endpoint's .sql file is wrong."""


class StoreError(FreshetError):
    """The database can't be used as it is."""


class StoreMissing(StoreError):
    """The database is not there yet: no worker has run in this data folder."""


class StoreTooNew(StoreError):
    """The database was made by a newer version, whose tables this one does not know."""


class StoreRetired(StoreError):
    """Another generation of the database has taken this one's place."""


class LogError(FreshetError):
    """The log is not the one that the store has read: a topic was deleted and created anew, or cut short."""


class NotTaken(FreshetError):
    """Kafka is away or slow, or too much is on its way to it: nothing was sent, so trying again doubles nothing."""


class Unacknowledged(FreshetError):
    """Events were sent, but Kafka has not said that it has them: some or all may be in the log, now or later."""


class QueryError(FreshetError):
    """A query that can't be answered."""


class ParameterError(QueryError):
    """A query that can't be answered because of one parameter.

    `allowed` lists the values that would have done, where they can be listed.
    """

    def __init__(self, parameter: str, value: str | None, reason: str, allowed: Sequence[str] = ()) -> None:
        super().__init__(f"{parameter}: {reason}")
        self.parameter = parameter
        self.value = value
        self.reason = reason
        self.allowed = tuple(allowed)


class QueryTimeout(QueryError):
    """A query ran longer than its time limit."""


class Overloaded(QueryError):
    """Too many queries are being answered already."""
