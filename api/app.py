"""The Falcon application."""

import falcon
from falcon.asgi import App, Request, Response

from api.access_log import Noted
from api.answers import Answers
from api.auth import Gate
from api.bodies import MetadataShape
from api.cache import Cache
from api.cors import cors
from api.databases import ControlReader
from api.endpoints import EndpointsResource, load_endpoints
from api.errors import Application, install_errors
from api.ingest import PATHS as INGEST_PATHS
from api.ingest import IngestResource
from api.ingest_body import IngestRequest
from api.key_uses import KeyUses
from api.meters import IN_FLIGHT, Sampler
from api.metrics import Metrics
from api.openapi import OpenApiResource
from api.own_key import OwnKeyResource
from api.queries import PATHS, QueryResource
from api.rates import Rates
from api.ready import Ready
from api.rejects import RejectsResource
from api.repeated import ASGI, Repeated
from api.static_files import StaticFiles
from api.tail import TailResource
from api.warmer import Warmer
from schema.clock import Clock, system_clock
from schema.settings import Settings


class Health:
    """Whether the process is alive."""

    needs = None

    async def on_get(self, request: Request, response: Response) -> None:
        """Answer 200 as long as requests are served at all."""
        response.media = {"status": "ok"}

    on_head = on_get


class Lifespan:
    """Starts and ends what the application does beside answering."""

    def __init__(self, answers: Answers, warmer: Warmer, sampler: Sampler) -> None:
        self._answers = answers
        self._warmer = warmer
        self._sampler = sampler

    async def process_startup(self, scope: object, event: object) -> None:
        """Called by the server in each of its processes, when the event loop runs."""
        self._sampler.start()
        self._warmer.start()

    async def process_shutdown(self, scope: object, event: object) -> None:
        """Called by the server when it stops."""
        await self._warmer.stop()
        self._answers.close()
        await self._sampler.stop()


def create_app(settings: Settings, clock: Clock = system_clock) -> ASGI:
    """The API over a data folder. Raises SavedQueryError where an endpoint's file is wrong."""
    shape: MetadataShape = "arrays" if settings.metadata_shape == "arrays" else "as-sent"
    answers = Answers(settings.data, clock, settings.query_seconds, shape, settings.queries_waiting)
    queries, control = load_endpoints(settings), ControlReader(settings.data)
    cache = Cache(answers.answer, clock, settings.cache_megabytes << 20, answers.at_once)
    warmer = Warmer(cache, control.generation, answers.has_free_thread)
    sampler = Sampler(
        settings.data,
        lambda: {
            "requests_in_flight": IN_FLIGHT.count,
            "cache_entries": len(cache),
            "cache_bytes": cache.bytes,
            "background_searches": answers.background_searches(),
            "queries_waiting": answers.queries_waiting(),
            "warmer_refreshed": warmer.refreshed,
            "warmer_failed": warmer.failed,
        },
    )
    uses = KeyUses(settings.data)
    gate = Gate(control, clock, uses, Rates(settings.rate_limit))
    resource = QueryResource(queries, cache, clock)
    ingest, dashboard = IngestResource(settings), StaticFiles()
    app: Application = App(
        request_type=IngestRequest,
        middleware=[Lifespan(answers, warmer, sampler), ingest, uses, Noted(), gate, *cors(settings.cors_origins)],
    )
    install_errors(app)
    for path in PATHS:
        app.add_route(path, resource)
    app.add_route("/api/endpoints", EndpointsResource(queries))
    app.add_route("/api/rejects", RejectsResource(settings.data))
    app.add_route("/openapi.json", OpenApiResource(queries, control, clock))
    for path in INGEST_PATHS:
        app.add_route(path, ingest)
    app.add_route("/api/key", OwnKeyResource(control, clock))
    app.add_route("/api/tail", TailResource(settings.data, queries, control, clock, shape))
    for path in ("/", "/dashboard/{name:path}"):
        app.add_route(path, dashboard)
    app.add_route("/health", Health())
    app.add_route("/ready", Ready(settings.data, clock, settings.ready_seconds))
    app.add_route("/metrics", Metrics(settings.data, clock))
    app.add_sink(_nowhere)  # type: ignore[arg-type]  # its types want other argument names
    return app if settings.rate_limit else Repeated(app, control, cache, clock, uses)


async def _nowhere(request: Request, response: Response | None, **_: str) -> None:
    raise falcon.HTTPNotFound(description=f"there is nothing at {request.path}")
