"""docs/operations/alerts.yaml and grafana.json by Prometheus' own promtool: every alert fires, and keeps still."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from producers import program

HERE = Path(__file__).parent
OPERATIONS = HERE.parent / "docs" / "operations"
CASES = HERE / "alerts.yaml"


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *map(str, arguments)], cwd=HERE, capture_output=True, text=True, timeout=60
    )


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((OPERATIONS / "alerts.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_promtool_takes_the_rules() -> None:
    done = promtool("check", "rules", OPERATIONS / "alerts.yaml")
    assert done.returncode == 0, done
    assert f"SUCCESS: {len(rules())} rules found" in done.stdout


def test_promtool_takes_the_configuration_that_the_page_shows(tmp_path: Path) -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```$", (OPERATIONS / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(shown) == 1
    (tmp_path / "prometheus.yaml").write_text(shown[0])
    (tmp_path / "alerts.yaml").write_text((OPERATIONS / "alerts.yaml").read_text())
    done = promtool("check", "config", tmp_path / "prometheus.yaml")
    assert done.returncode == 0, done
    assert "1 rule files found" in done.stdout


def test_each_alert_is_quiet_first_and_fires_then() -> None:
    told: dict[str, list[bool]] = {}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for look in case["alert_rule_test"]:
            told.setdefault(look["alertname"], []).append(bool(look["exp_alerts"]))
    assert set(told) == {rule["alert"] for rule in rules()}
    assert all(looks[:2] == [False, True] for looks in told.values()), told
    done = promtool("test", "rules", CASES)
    assert done.returncode == 0, done


@pytest.mark.parametrize("alert", [rule["alert"] for rule in rules()])
def test_the_cases_notice_when_a_threshold_moves(alert: str, tmp_path: Path) -> None:
    """With the comparison turned round, promtool must say that the cases fail."""
    document = yaml.safe_load((OPERATIONS / "alerts.yaml").read_text())
    (rule,) = (rule for rule in document["groups"][0]["rules"] if rule["alert"] == alert)
    other = {">": "<", "==": "!="}
    rule["expr"] = re.sub(r" (>|==) ", lambda match: f" {other[match[1]]} ", rule["expr"], count=1)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(document))
    cases = yaml.safe_load(CASES.read_text()) | {"rule_files": ["rules.yaml"]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    done = promtool("test", "rules", tmp_path / "cases.yaml")
    assert done.returncode != 0
    assert alert in done.stdout + done.stderr


def test_promtool_reads_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    panels = json.loads((OPERATIONS / "grafana.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    written = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions)
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": written}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done
    assert f"SUCCESS: {len(expressions)} rules found" in done.stdout
