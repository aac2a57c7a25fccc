"""How to reach the broker and show it who one is: what aiokafka's clients take, made from the settings."""

import ssl
from pathlib import Path
from typing import Any

from schema.errors import SettingsError
from schema.settings import Settings


def connection(settings: Settings) -> dict[str, Any]:
    """The arguments of any of aiokafka's clients that say where the broker is, and how to speak to it.

    The password and the authorities' certificates are read from their files now. Raises SettingsError where that
    can't be done; it never shows a password.
    """
    arguments: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap,
        "security_protocol": settings.broker_security,
    }
    if settings.broker_security.endswith("SSL"):
        arguments["ssl_context"] = _context(settings.broker_ca_file)
    if settings.broker_security.startswith("SASL"):
        arguments |= {
            "sasl_mechanism": settings.broker_mechanism,
            "sasl_plain_username": settings.broker_user,
            "sasl_plain_password": _password(settings),
        }
    return arguments


def librdkafka_connection(settings: Settings) -> dict[str, Any]:
    """The same for confluent-kafka's clients, whose log stays silent: what they fail with is told by exceptions.

    Raises SettingsError where the password can't be read.
    """
    properties: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.bootstrap),
        "security.protocol": settings.broker_security,
        "log_level": 0,
    }
    if settings.broker_security.endswith("SSL") and settings.broker_ca_file:
        properties["ssl.ca.location"] = settings.broker_ca_file
    if settings.broker_security.startswith("SASL"):
        properties |= {
            "sasl.mechanism": settings.broker_mechanism,
            "sasl.username": settings.broker_user,
            "sasl.password": _password(settings),
        }
    return properties


def _context(authorities: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"FRESHET_BROKER_CA_FILE is {authorities!r}, no file of certificates: {error}") from error


def _password(settings: Settings) -> str:
    if not settings.broker_password_file:
        return settings.broker_password
    try:
        return Path(settings.broker_password_file).expanduser().read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"FRESHET_BROKER_PASSWORD_FILE is {settings.broker_password_file!r}: {type(error).__name__}"
        ) from error
