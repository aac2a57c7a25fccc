"""A broker that wants TLS and a login: whatever speaks to it reaches it, and no password is told."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from events import Traffic
from kafka_broker import KafkaBroker
from producers import CONFIGURATIONS, log4j, otel_collector, post_logs, program, running, telegraf
from service import Service, free_port, wait_for

from ops.keys import add_key
from schema.connection import connection
from schema.errors import SettingsError
from schema.settings import Settings, load_settings, to_environment

NOW = 1_750_000_000_123_456
USER, PASSWORD = "freshet", "pass word={'\"ü"
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
PROPERTIES = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},%(others)s
advertised.listeners=PLAINTEXT://127.0.0.1:{port},%(others)s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location=%(keys)s
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
"""
LOGIN = "listener.name.%s.%s.sasl.jaas.config=org.apache.kafka.common.security.%s required%s;\n"


@dataclass(frozen=True)
class Secured:
    """A broker with a listener of each kind, and the certificate to trust."""

    kafka: KafkaBroker
    ports: dict[str, int]
    authority: Path

    def settings(self, security: str, **others: Any) -> dict[str, Any]:
        """The settings that reach it by one of its listeners."""
        given: dict[str, Any] = {"broker": f"kafka://127.0.0.1:{self.ports[security]}", "broker_security": security}
        if security.endswith("SSL"):
            given["broker_ca_file"] = str(self.authority)
        if security.startswith("SASL"):
            given |= {"broker_user": USER, "broker_password": PASSWORD}
        return given | others


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_certificates(folder: Path) -> None:
    """An authority (authority.pem), and a broker's key and certificate of its making (broker.pem)."""
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-x509", "-days", "2")
    openssl(folder, *new, "-subj", "/CN=authority", "-keyout", "authority.key", "-out", "authority.pem")
    openssl(
        *(folder, *new, "-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1", "-CA", "authority.pem"),
        *("-CAkey", "authority.key", "-keyout", "broker.key", "-out", "broker.crt"),
    )
    (folder / "broker.pem").write_bytes((folder / "broker.key").read_bytes() + (folder / "broker.crt").read_bytes())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    make_certificates(folder)
    ports = {security: free_port() for security in ("SSL", "SASL_SSL", "SASL_PLAINTEXT")}
    others = ",".join(f"{security}://127.0.0.1:{port}" for security, port in ports.items())
    properties = PROPERTIES % {"others": others, "keys": folder / "broker.pem"}
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\\\"').replace("{", "{{").replace("ü", "\\u00fc")
    for listener in ("sasl_ssl", "sasl_plaintext"):
        properties += LOGIN % (listener, "plain", "plain.PlainLoginModule", f' user_{USER}="{quoted}"')
        for mechanism in MECHANISMS:
            properties += LOGIN % (listener, mechanism.lower(), "scram.ScramLoginModule", "")
    with KafkaBroker(folder / "kafka", properties) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        users = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for mechanism in MECHANISMS.values()
        ]
        for user in users:
            for done in admin.alter_user_scram_credentials([user]).values():
                done.result(30)
        yield Secured(kafka, ports, folder / "authority.pem")


@pytest.fixture
def service(secured: Secured, tmp_path: Path) -> Iterator[Service]:
    name = uuid4().hex[:12]
    with Service(tmp_path, secured.kafka, f"edge-{name}", f"functions-{name}") as service:
        service.set_clock(NOW)
        yield service


def freshet(settings: Settings, *arguments: str) -> str:
    """What a command says, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-m", "ops", *arguments],
        env={**os.environ, **to_environment(settings)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert PASSWORD not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("security", "mechanism"),
    [
        ("SSL", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
    ],
)
def test_a_worker_creates_topics_and_reads_them(
    secured: Secured, service: Service, security: str, mechanism: str
) -> None:
    worker = service.start("worker", **secured.settings(security, broker_mechanism=mechanism))
    service.wait_for_log(worker, "reading on from")
    messages = Traffic(3, NOW, service.edge, service.functions).messages(200)
    secured.kafka.produce([(m.topic, None, m.key, m.value, None) for m in messages])  # else retention takes them
    service.wait_until_applied()
    assert sum(count for (count,) in service.ask_store("SELECT count FROM entry_blocks")) > 50
    assert service.stop(worker) == 0
    assert PASSWORD not in service.log(worker)


def test_status_replay_verify_import_and_api_log_in_with_a_password_from_a_file(
    secured: Secured, service: Service, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    login = secured.settings("SASL_SSL", broker_password="", broker_password_file=str(file))
    settings = replace(service.settings, **login)
    worker = service.start("worker", **login)
    service.wait_for_log(worker, "reading on from")
    messages = Traffic(4, NOW, service.edge, service.functions).messages(200)
    secured.kafka.produce([(m.topic, None, m.key, m.value, None) for m in messages])  # else retention takes them
    service.wait_until_applied()
    status = json.loads(freshet(settings, "status", "--json"))
    assert status["broker"] == settings.broker  # and not that it does not answer
    assert {place["lag"] for place in status["partitions"]} == {0}
    generation = status["generation"]
    freshet(settings, "replay")
    assert json.loads(freshet(settings, "status", "--json"))["generation"] != generation
    freshet(settings, "verify")
    before = service.ask_store("SELECT sum(count) FROM entry_blocks")[0][0] or 0
    export = tmp_path / "export.ndjson"
    export.write_text(f'{{"timestamp":{NOW},"project":"p","id":"imported"}}\n')
    freshet(settings, "import", str(export))
    service.start_api(**login)
    key = add_key(service.settings.data, "producer", allow=("ingest",))
    event = json.dumps({"timestamp": NOW, "project": "p", "id": "posted"}).encode()
    request = Request(
        f"http://{service.settings.listen}/api/logs?source_name={service.edge}", event, {"X-API-KEY": key}
    )
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        assert json.load(answer) == {"message": "Logged!"}
    service.wait_until_applied()
    assert service.ask_store("SELECT sum(count) FROM entry_blocks")[0][0] == before + 2
    assert service.stop(worker) == 0


@pytest.mark.parametrize("security", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_ends_the_worker_and_is_not_told(
    secured: Secured, service: Service, security: str, mechanism: str
) -> None:
    wrong = "not-the-password"
    worker = service.start("worker", **secured.settings(security, broker_mechanism=mechanism, broker_password=wrong))
    assert worker.wait(60) != 0
    said = service.log(worker)
    assert wrong not in said
    assert "uthentication failed" in said
    assert "FRESHET_BROKER_USER" in said


def test_a_broker_whose_certificate_is_not_trusted_is_refused(secured: Secured, service: Service) -> None:
    worker = service.start("worker", **secured.settings("SSL", broker_ca_file=""))
    assert worker.wait(60) != 0
    assert "CERTIFICATE_VERIFY_FAILED" in service.log(worker)


def test_a_login_that_is_half_given_or_would_not_be_made_is_refused(tmp_path: Path) -> None:
    sasl = {"FRESHET_BROKER": "kafka://b:1", "FRESHET_BROKER_SECURITY": "SASL_SSL"}
    user, password = {"FRESHET_BROKER_USER": "u"}, {"FRESHET_BROKER_PASSWORD": "hush"}
    file = {"FRESHET_BROKER_PASSWORD_FILE": "f"}
    refused: list[dict[str, str]] = [
        *(sasl, sasl | user, sasl | password, sasl | user | password | file, user, password, file),
        *({"FRESHET_BROKER_CA_FILE": "f"}, {"FRESHET_BROKER_SECURITY": "SSL"}, {"FRESHET_BROKER_SECURITY": "ssl"}),
        sasl | user | password | {"FRESHET_BROKER_MECHANISM": "GSSAPI"},
    ]
    nowhere = tmp_path / "freshet.toml"
    for environment in refused:
        with pytest.raises(SettingsError, match="FRESHET_BROKER_") as error:
            load_settings(environment, nowhere)
        assert "hush" not in str(error.value)
    settings = load_settings(sasl | user | password, nowhere)
    nowhere.write_text('broker_password = ["hush"]')
    with pytest.raises(SettingsError, match=r"broker_password in .* must be text") as error:
        load_settings(sasl | user, nowhere)
    assert "hush" not in str(error.value)
    assert "hush" not in repr(settings)
    assert connection(settings)["sasl_plain_password"] == "hush"  # noqa: S105


@pytest.mark.parametrize("setting", ["broker_ca_file", "broker_password_file"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, setting: str) -> None:
    given: dict[str, Any] = {setting: str(tmp_path / "absent")}
    settings = replace(
        Settings(broker="kafka://b:1", broker_security="SASL_SSL", broker_user="u"),
        **given,
    )
    with pytest.raises(SettingsError, match=f"FRESHET_{setting.upper()} is .*absent"):
        connection(settings)


def with_login(name: str) -> str:
    """A producer's configuration in which the lines for TLS and a login, its last comments, are no comments."""
    above, mark, lines = (CONFIGURATIONS / name).read_text().partition("With TLS and a login:\n")
    assert mark
    return above.rpartition("\n")[0] + "\n" + re.sub(r"^( *)(?:# ?|-->$)", r"\1", lines, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["kcat.conf", "log4j2.xml", "otel-collector.yaml", "telegraf.conf"])
def test_a_producer_reaches_it_with_the_lines_for_it(name: str, secured: Secured, tmp_path: Path) -> None:
    """Its configuration has them as comments. Debian 12's librdkafka can't log in by SCRAM to Kafka 4."""
    user, password, topic = "shipper", "its-password", f"edge-{uuid4().hex[:12]}"
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    login = UserScramCredentialUpsertion(user, credential, password.encode())
    admin = AdminClient({"bootstrap.servers": secured.kafka.bootstrap})
    admin.alter_user_scram_credentials([login])[user].result(30)
    secured.kafka.create_topic(topic, 1, {"retention.ms": "-1"})  # Telegraf's records have the lines' time
    broker, port, log = f"127.0.0.1:{secured.ports['SASL_SSL']}", free_port(), tmp_path / "access.json"
    text = with_login(name)
    if name == "kcat.conf":
        user, password, text = USER, PASSWORD, text.replace("SCRAM-SHA-512", "PLAIN")
    for there, here in {
        **{"localhost:9092": broker, "localhost:4318": f"localhost:{port}", "cloudflare.logs.prod": topic},
        **{"/etc/ssl/kafka-ca.pem": str(secured.authority), "freshet": user, "…": password},
        **{"/var/log/nginx/access.json": str(log), "/var/lib/telegraf/state": str(tmp_path / "state")},
    }.items():
        text = text.replace(there, here)
    configuration = tmp_path / name
    configuration.write_text(text)
    log.write_text('{"time":"2025-06-15T15:06:30Z","method":"GET","path":"/","host":"h","status":200,"line":"GET"}\n')
    command = {
        "kcat.conf": [program("kcat"), "-F", str(configuration), "-P", "-t", topic],
        "log4j2.xml": log4j(configuration, "h"),
        "otel-collector.yaml": otel_collector(configuration),
        "telegraf.conf": telegraf(configuration),
    }[name]
    if name in ("kcat.conf", "log4j2.xml"):
        line = b"GET\t/\t200\tGET\n"
        ran = subprocess.run(command, input=line, timeout=60, capture_output=True, cwd=tmp_path, check=False)
        assert ran.returncode == 0, ran.stderr.decode()
    else:
        with running(command, tmp_path):
            if name == "otel-collector.yaml":
                logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "GET"}}]}]}]}
                wait_for("the collector to listen", lambda: post_logs(port, logs))
            wait_for("a message", lambda: secured.kafka.read_all(topic))
    assert len(secured.kafka.read_all(topic)) == 1
