"""What a search reads of a stored edge entry: method, path and status of its request."""

from collections import Counter
from typing import Any, NamedTuple

import msgspec

from schema.fields import EdgeRequest, Reader, only
from schema.numbers import whole
from schema.urls import build_url, path_of


class Request(NamedTuple):
    """An entry's request; None is what it has not, or not readably. The path is as sent, else the URL's."""

    method: str | None
    path: str
    status: int | None


class _Request(EdgeRequest, gc=False):
    method: Any = None


class _Response(msgspec.Struct, gc=False):
    status_code: Any = None


class _Metadata(msgspec.Struct, gc=False):
    request: _Request | list[_Request] | None = None
    response: _Response | list[_Response] | None = None


class _Element(msgspec.Struct, gc=False):
    metadata: _Metadata | list[_Metadata] | None = None


_reader = Reader(_Element)


def request_of(project: str, data: bytes) -> Request:
    """The request of an entry of a project, from its bytes as they are stored."""
    counts: Counter[str] = Counter()
    try:
        element = _reader.read(data)
    except (msgspec.DecodeError, RecursionError):
        element = _reader.read_by_level(data, counts)
    metadata = only(element.metadata, "metadata", counts)
    if metadata is None:
        return Request(None, "", None)
    request = only(metadata.request, "request", counts)
    response = only(metadata.response, "response", counts)
    return Request(
        _text(request.method) if request is not None else None,
        _path(request, project) if request is not None else "",
        whole(response.status_code) if response is not None else None,
    )


def _path(request: _Request, project: str) -> str:
    path = _text(request.path)
    if path is not None:
        return path
    return path_of(
        _text(request.url) or build_url(_text(request.protocol), _text(request.host) or None, None, project)[0]
    )


def _text(value: Any) -> str | None:
    return value if type(value) is str else None
