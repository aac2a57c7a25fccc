"""The OpenAPI 3.1 description: one part is written by hand (openapi.json), the saved queries give the other."""

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import falcon
import msgspec
from falcon.asgi import Request, Response

from api.auth import authenticate, in_scope, key_text
from api.cursors import CURSOR
from api.databases import ControlReader
from api.endpoints import by_name, default_of
from schema.clock import Clock
from schema.resources import Column, Parameter, SavedQuery
from schema.saved_queries import ENDPOINTS

_WRITTEN = Path(__file__).with_suffix(".json")
_ANSWER_HEADERS = (
    "Age",
    "Cache-Control",
    "Cache-Status",
    "ETag",
    "Freshet-Complete-Until",
    "RateLimit",
    "RateLimit-Policy",
)
_ALWAYS = ("405", "414", "431")
_WITH_KEY = ("401", "403", "429", "503")
_OF_QUERIES = ("304", "400")


def describe(queries: Iterable[SavedQuery]) -> dict[str, Any]:
    """The description of a service with these endpoints."""
    document: dict[str, Any] = json.loads(_WRITTEN.read_text())
    document["info"]["version"] = version("freshet")
    for query in queries:
        document["paths"][f"/api/endpoints/{query.name}"] = {"get": _operation(query)}
    for path in document["paths"].values():
        (operation,) = path.values()
        failures = _ALWAYS if operation.get("security") == [] else _ALWAYS + _WITH_KEY
        for code in sorted(failures + (_OF_QUERIES if operation["tags"] == ["endpoints"] else ())):
            operation["responses"].setdefault(code, {"$ref": f"#/components/responses/{code}"})
    return document


def _operation(query: SavedQuery) -> dict[str, Any]:
    row: dict[str, Any] = {"type": "object"}
    if query.columns:
        properties = {column.name: _column(column) for column in query.columns}
        row |= {"properties": properties, "required": list(properties), "additionalProperties": False}
    answer: dict[str, Any] = {"result": {"type": "array", "maxItems": query.max_rows, "items": row}}
    if query.next_column is not None:
        about = "The cursor to go on from; null at the end."
        answer["next"] = {"type": ["string", "null"], "description": about}
    schema = {"type": "object", "properties": answer, "required": list(answer), "additionalProperties": False}
    return {
        "operationId": query.name,
        "tags": ["endpoints"],
        "summary": query.about or query.name,
        "parameters": [_parameter(parameter) for parameter in query.parameters],
        "responses": {
            "200": {
                "description": f"At most {query.max_rows} rows.",
                "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in _ANSWER_HEADERS},
                "content": {"application/json": {"schema": schema}},
            },
        },
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described = {"name": parameter.name, "in": "query", "required": parameter.required, "schema": _values(parameter)}
    return described | ({"description": parameter.about} if parameter.about else {})


def _values(parameter: Parameter) -> dict[str, Any]:
    """The values of a parameter as a schema. One that is not required may be empty, which counts as absent."""
    schema: dict[str, Any] = {"type": "string"}
    if parameter.type == "word":
        schema["enum"] = list(parameter.words)
    elif parameter.type == "integer":
        schema = {"type": "integer", "minimum": parameter.least, "maximum": parameter.most}
    elif parameter.type == "timestamp":
        schema["format"] = "date-time"
    elif parameter.type == "cursor":
        schema["pattern"] = f"^{CURSOR}$"
    elif parameter.type == "pattern":
        schema["format"] = "re2"
    if parameter.required and parameter.type in ("string", "pattern"):
        schema["minLength"] = 1
    elif not parameter.required and parameter.type != "string":
        schema = {"anyOf": [schema, {"type": "string", "maxLength": 0}]}
    if parameter.default is not None:
        schema["default"] = default_of(parameter)
    return schema


def _column(column: Column) -> dict[str, Any]:
    about = {"description": column.about} if column.about else {}
    if column.type == "json":
        return about
    return {"type": [column.type, "null"] if column.nullable else column.type, **about}


class OpenApiResource:
    """Serves the description."""

    needs = None

    def __init__(self, queries: Mapping[str, SavedQuery], control: ControlReader, clock: Clock) -> None:
        self._queries = by_name(queries)
        self._control = control
        self._clock = clock

    async def on_get(self, request: Request, response: Response) -> None:
        """Answer 200 with the endpoints that come with Freshet, or with a key with those that it may ask."""
        shown = [query for query in self._queries.values() if query.path.parent == ENDPOINTS]
        if key_text(request):
            caller = request.context.caller = authenticate(request, self._control, self._clock)
            shown = [query for query in self._queries.values() if in_scope(query, caller.endpoints)]
        response.data = msgspec.json.encode(describe(shown))
        response.content_type = falcon.MEDIA_JSON

    on_head = on_get
