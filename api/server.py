"""gunicorn around the application, configured in code (figures and traps: docs/decisions/0005-readers.md)."""

from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from api.access_log import AccessLogger
from api.repeated import ASGI
from schema.errors import FreshetError
from schema.settings import Settings

CONFIGURATION: dict[str, Any] = {
    "worker_class": "api.worker.Worker",
    "asgi_loop": "uvloop",
    "asgi_lifespan": "on",
    "http_parser": "python",  # the strictest on malformed requests
    "preload_app": False,  # Master does it: gunicorn's own way reloads nothing
    "max_requests": 0,
    "timeout": 30,
    "keepalive": 5,
    "worker_connections": 400,  # of one process; twice as many stay below the usual limit of 1,024 open files
    "limit_request_line": 8190,
    "limit_request_fields": 100,
    "limit_request_field_size": 8190,
    "asgi_disconnect_grace_period": 0,  # a query that waits for a thread is forgotten when its client leaves
    "control_socket_disable": True,
    "accesslog": "-",
}
_SPARE_SECONDS = 5  # beyond a query's time limit, for what is under way when the server stops


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn master whose workers serve what `factory` makes.

    It is made in the master, anew at a reload, and the workers inherit it: one that takes another's place serves what
    that served, whatever has become of the endpoints' files since. So it may open no file before it is served.
    """

    def __init__(self, settings: Settings, factory: Callable[[], ASGI]) -> None:
        self._settings = settings
        self._factory = factory
        super().__init__()

    def load_config(self) -> None:
        """Called by gunicorn."""
        options = CONFIGURATION | {
            "bind": self._settings.listen,
            "workers": self._settings.api_processes,
            "logger_class": type("Logger", (AccessLogger,), {"form": self._settings.log}),
            "graceful_timeout": self._settings.query_seconds + _SPARE_SECONDS,
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> ASGI:
        """Called for the first workers, and at a reload for the next ones."""
        return self._factory()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self.callable = self.load()
        Master(self).run()


class Master(Arbiter):  # type: ignore[misc]
    """gunicorn's master, which a reload of something that does not start would end with all that runs."""

    def handle_hup(self) -> None:
        """Called by gunicorn on SIGHUP: new workers take over from the old ones."""
        try:
            self.app.callable = self.app.load()
        except FreshetError as error:
            self.log.error("not reloaded, the old processes go on: %s", error)
        except Exception:
            self.log.exception("not reloaded, the old processes go on")
        else:
            super().handle_hup()


def run_server(settings: Settings, factory: Callable[[], ASGI]) -> None:
    """Serve until SIGTERM or SIGINT."""
    Server(settings, factory).run()
