"""The worker's process: migrations, topics, then the Faust application until it is told to stop."""

import asyncio
import io
import logging
import sys
from typing import NoReturn

from mode.loop import use

use("uvloop")  # before anything of Faust is imported

from faust import Worker  # noqa: E402

from schema.clock import Clock, system_clock  # noqa: E402
from schema.errors import SettingsError  # noqa: E402
from schema.heap import tune_heap  # noqa: E402
from schema.settings import EMBEDDED, Settings  # noqa: E402
from schema.tables import migrate  # noqa: E402
from streams.app import create_app  # noqa: E402
from streams.logs import set_up_logging  # noqa: E402
from streams.meters import METERS, open_meters  # noqa: E402
from streams.topics import prepare_topics  # noqa: E402
from streams.watchdog import watch  # noqa: E402

log = logging.getLogger("freshet.worker")
_LARGE = 1 << 20
"""Bytes. Records are made in one thread and freed in another, a few megabytes at a time: with a heap a thread, and
large pieces kept, a worker at full speed holds 60 MB more (docs/decisions/0013-memory.md)."""
_SWITCH_SECONDS = 0.0005
"""Python's 5 ms keep the thread that writes waiting for its lock at each statement while another one folds."""


def run_worker(settings: Settings, clock: Clock = system_clock) -> NoReturn:
    """Run a worker until SIGTERM or SIGINT (exit code 0) or a failure that time doesn't mend (another).

    Raises FreshetError where it can't start.
    """
    set_up_logging(settings.log)
    tune_heap(mapped_from=_LARGE, heaps=1)
    sys.setswitchinterval(_SWITCH_SECONDS)
    store = migrate(settings.data)
    if settings.broker == EMBEDDED:
        raise SettingsError("the embedded broker lives inside `freshet up`: set FRESHET_BROKER to kafka://host:port")
    cluster = asyncio.run(prepare_topics(settings))
    app = create_app(settings, cluster, clock)
    log.info("reading %s and %s of %s into %s", settings.topic_edge, settings.topic_functions, settings.broker, store)
    open_meters(settings.data)
    watch(app, settings.stuck_seconds)
    try:
        Worker(
            app, loglevel="WARNING", override_logging=False, quiet=True, stdout=io.StringIO()
        ).execute_from_commandline()
    finally:
        app.ingest.close()
        METERS.close()
