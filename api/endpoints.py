"""Which endpoints there are: those that come with Freshet, those of the operator's own, and their listing."""

from collections.abc import Mapping
from typing import Any

import falcon
import msgspec
from falcon.asgi import Request, Response

from api.auth import in_scope
from api.checking import check_saved_queries
from schema.errors import SavedQueryError
from schema.resources import Column, Parameter, SavedQuery
from schema.saved_queries import ENDPOINTS, load_saved_queries
from schema.settings import Settings


def load_endpoints(settings: Settings) -> dict[str, SavedQuery]:
    """All endpoints, each under its name and under its id, tried on an empty store.

    Raises SavedQueryError with file and line.
    """
    folder = settings.endpoint_folder
    if settings.endpoints and not folder.is_dir():
        raise SavedQueryError(f"{folder} is no folder: FRESHET_ENDPOINTS names that of one's own endpoints")
    queries = load_saved_queries(ENDPOINTS, folder)
    check_saved_queries(by_name(queries).values())
    return queries


def by_name(queries: Mapping[str, SavedQuery]) -> dict[str, SavedQuery]:
    """Each endpoint once, in the order of their names."""
    return {name: query for name, query in sorted(queries.items()) if name == query.name}


def resource(query: SavedQuery) -> dict[str, Any]:
    """The fields of an endpoint (specification 2.1), its parameters and columns; null stands for none."""
    return {
        "id": str(query.id),
        "name": query.name,
        "about": query.about,
        "language": query.language,
        "max_rows": query.max_rows,
        "cache_seconds": query.cache_seconds,
        "warming_seconds": query.warming_seconds,
        "sandboxed": query.sandboxed,
        "parameters": [_parameter(parameter) for parameter in query.parameters],
        "columns": [_column(column) for column in query.columns],
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": parameter.name,
        "type": parameter.type,
        "required": parameter.required,
        "about": parameter.about,
    }
    if parameter.words:
        described["allowed"] = list(parameter.words)
    if parameter.type == "integer":
        described |= {"minimum": parameter.least, "maximum": parameter.most}
    if parameter.default is not None:
        described["default"] = default_of(parameter)
    return described


def default_of(parameter: Parameter) -> str | int | None:
    """What counts where a request has not the parameter."""
    return int(parameter.default) if parameter.type == "integer" and parameter.default else parameter.default


def _column(column: Column) -> dict[str, Any]:
    return {"name": column.name, "type": column.type, "nullable": column.nullable, "about": column.about}


class EndpointsResource:
    """Lists the endpoints."""

    def __init__(self, queries: Mapping[str, SavedQuery]) -> None:
        self._queries = by_name(queries)

    async def on_get(self, request: Request, response: Response) -> None:
        """Answer 200 with `{"result": [endpoint, …]}`, those that the key may ask, by name."""
        scope = request.context.caller.endpoints
        shown = [resource(query) for query in self._queries.values() if in_scope(query, scope)]
        response.data = msgspec.json.encode({"result": shown})
        response.content_type = falcon.MEDIA_JSON

    on_head = on_get
