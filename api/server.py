"""gunicorn around the application, configured in code (figures and traps: docs/decisions/0005-readers.md)."""

from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication

from api.errors import Application
from schema.settings import Settings

CONFIGURATION: dict[str, Any] = {
    "worker_class": "api.worker.Worker",
    "logger_class": "api.worker.AccessLogger",
    "asgi_loop": "uvloop",
    "asgi_lifespan": "on",
    "http_parser": "python",  # the strictest on malformed requests
    "preload_app": False,  # connections and threads don't survive a fork
    "max_requests": 0,
    "timeout": 30,
    "graceful_timeout": 5,
    "keepalive": 5,
    "limit_request_line": 8190,
    "limit_request_fields": 100,
    "limit_request_field_size": 8190,
    "asgi_disconnect_grace_period": 1,
    "control_socket_disable": True,
    "accesslog": "-",
    "access_log_format": "%(t)s %(h)s %(m)s %(U)s %(s)s %(B)s %(D)s",  # %(r)s would log ?api_key=
}


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn master whose workers serve what `factory` makes; each calls it for itself, after the fork."""

    def __init__(self, settings: Settings, factory: Callable[[], Application]) -> None:
        self._settings = settings
        self._factory = factory
        super().__init__()

    def load_config(self) -> None:
        """Called by gunicorn."""
        options = CONFIGURATION | {"bind": self._settings.listen, "workers": self._settings.api_workers}
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Application:
        """Called by gunicorn in each worker."""
        return self._factory()


def run_server(settings: Settings, factory: Callable[[], Application]) -> None:
    """Serve until SIGTERM or SIGINT."""
    Server(settings, factory).run()
