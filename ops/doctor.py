"""`freshet doctor`: looks at everything that Freshet needs, and says what to do where something is wrong.

It changes nothing but for one file that it makes in the data folder and takes away again.
"""

import http.client
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click

from api.endpoints import load_endpoints
from ops.doctor_broker import check_broker
from ops.doctor_data import check_data
from ops.findings import BAD, DOUBTFUL, GOOD, Finding
from schema.errors import FreshetError
from schema.settings import Settings, load_settings

_MARKS = {GOOD: "✓", DOUBTFUL: "!", BAD: "✗"}
_PATIENCE = 10.0  # seconds for the API's answer
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # an address to listen on, not one to ask


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `freshet doctor --json` prints: `healthy` unless a finding is bad."""

    healthy: bool
    findings: list[Finding]


def run_doctor(as_json: bool) -> int:
    """Print what is found, a line each as soon as it is known or all as one JSON object; returns the exit code."""
    findings = []
    for finding in diagnose():
        findings.append(finding)
        if not as_json:
            click.echo(f"{_MARKS[finding.state]} {finding.subject:10} {finding.text}")
            if finding.remedy:
                click.echo(f"  {'':10} → {finding.remedy}")
    healthy = all(finding.state != BAD for finding in findings)
    if as_json:
        click.echo(json.dumps(asdict(Diagnosis(healthy, findings))))
    return 0 if healthy else 1


def diagnose() -> Iterator[Finding]:
    """All findings; with settings that can't be read there is nothing else to look at."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells by exceptions too
    try:
        settings = load_settings()
        endpoints = {query.name for query in load_endpoints(settings).values()}
    except (FreshetError, OSError) as error:
        yield Finding(BAD, "settings", str(error), "correct it: README.md has a table of all settings")
        return
    yield Finding(GOOD, "settings", f"read; {len(endpoints)} endpoints")
    yield from check_broker(settings)
    yield from check_data(settings)
    yield _api(settings)


def _api(settings: Settings) -> Finding:
    host, port = settings.address
    connection = http.client.HTTPConnection(_ANY.get(host, host), port, timeout=_PATIENCE)
    try:
        connection.request("GET", "/ready")
        answer = connection.getresponse()
        told = json.load(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Finding(
            BAD,
            "API",
            f"it does not answer at {settings.listen} ({error})",
            "start it: freshet api; or set FRESHET_LISTEN to where it listens",
        )
    finally:
        connection.close()
    if answer.status == http.HTTPStatus.OK:
        return Finding(GOOD, "API", f"it answers at {settings.listen} and is ready")
    reasons = "; ".join(told.get("reasons", [])) or f"status {answer.status}"
    return Finding(BAD, "API", f"it answers at {settings.listen}, but is not ready: {reasons}", "look at the workers")
