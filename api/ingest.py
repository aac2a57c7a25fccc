"""HTTP ingest, as Logflare's clients and Vector know it (contract section 2; docs/ingest.md says what answers mean)."""

import asyncio
import time
from itertools import islice

import falcon
from falcon.asgi import Request, Response

from api.auth import Caller
from api.errors import RETRY_SECONDS, error_body
from api.ingest_body import Body, IngestRequest, Room
from api.ingest_elements import Decode, Judge, Message, Refusal
from api.ingest_producer import IngestProducer
from schema.decoding import decode_edge, decode_functions
from schema.errors import NotTaken, ParameterError, Unacknowledged
from schema.messages import WHOLE_MESSAGE, Element, Reject, is_utf8, pair_surrogates, split, trim
from schema.settings import Settings

PATHS = ("/api/logs", "/logs", "/api/events")
_LOGGED = b'{"message":"Logged!"}'
_SLICE = 50  # elements that are looked at in one go, a millisecond of work
_MOST_ERRORS = 1000  # told in an answer


class IngestResource:
    """Takes log events by POST and answers when they are durable in Kafka."""

    needs = "ingest"

    def __init__(self, settings: Settings) -> None:
        self._producer = IngestProducer(settings)
        self._room = Room()
        self._turn = asyncio.Lock()  # one slice between two looks at what else there is to do, queries first of all
        edge: tuple[str, Decode] = (settings.topic_edge, decode_edge)
        functions: tuple[str, Decode] = (settings.topic_functions, decode_functions)
        self._topics = {
            **{"cloudflare.logs.prod": edge, "deno-relay-logs": functions},
            **{settings.topic_edge: edge, settings.topic_functions: functions},
        }

    async def on_post(self, request: IngestRequest, response: Response) -> None:
        """Answer 200 where all is in Kafka, 406 where some of it was refused and the rest is."""
        topic, decode = self._topics[self._source(request)]
        caller: Caller = request.context.caller
        try:
            with Body(request, self._room) as body:
                parts = await self._split(await body.read())
                session = await self._producer.session()
                now = time.time_ns() // 1_000_000
                judge = Judge(decode, caller.projects, session.limits[topic], now)
                messages: list[Message] = []
                refusals: list[Refusal] = []
                for start in range(0, len(parts), _SLICE):
                    async with self._turn:
                        for judged in judge.judge(parts[start : start + _SLICE]):
                            messages.append(judged) if isinstance(judged, Message) else refusals.append(judged)
                        await asyncio.sleep(0)
                await self._producer.send(session, topic, messages, now)
        except NotTaken as error:
            response.set_header("Retry-After", str(RETRY_SECONDS))
            _fail(response, 429, f"{error}; nothing was taken: try again in a moment")
            return
        except Unacknowledged as error:
            response.set_header("Retry-After", str(RETRY_SECONDS))
            _fail(response, 503, f"{error}: they may be in the log or not; sent again, they may be there twice")
            return
        response.content_type = falcon.MEDIA_JSON
        response.data = _LOGGED
        if refusals:
            foreign = not messages and all(refusal.reason == "forbidden" for refusal in refusals)
            text = f"{len(refusals)} of {len(parts)} events were not taken, {len(messages)} were logged"
            _fail(response, 403 if foreign else 406, text, refusals)

    async def process_shutdown(self, scope: object, event: object) -> None:
        """Called by the server when it stops."""
        await self._producer.close()

    async def _split(self, body: bytes) -> list[Element | Reject]:
        """The body's elements. Raises HTTPBadRequest, HTTPContentTooLarge where it is not made of elements at all."""
        message = trim(body)
        if not message:
            raise falcon.HTTPBadRequest(description="the body is empty")
        if not is_utf8(message):
            raise falcon.HTTPBadRequest(description="the body is not UTF-8")
        found, parts = split(pair_surrogates(message)), []
        async with self._turn:
            while piece := list(islice(found, 10 * _SLICE)):
                parts += piece
                await asyncio.sleep(0)
        if len(parts) == 1 and isinstance(parts[0], Reject) and parts[0].index == WHOLE_MESSAGE:
            if parts[0].reason == "too_large":
                raise falcon.HTTPContentTooLarge(description="a body may hold 100,000 events")
            raise falcon.HTTPBadRequest(
                description=f"the body is neither a JSON object, nor an array or lines of them ({parts[0].reason})"
            )
        return parts

    def _source(self, request: Request) -> str:
        given = [name for word in ("source_name", "source") for name in request.get_param_as_list(word) or ()]
        names = sorted(self._topics)
        if len(set(given)) != 1:
            reason = "given more than once" if given else f"missing; allowed: {', '.join(names)}"
            raise ParameterError("source_name", ", ".join(given) or None, reason, names)
        if given[0] not in self._topics:
            raise ParameterError("source_name", given[0], f"no source of logs here: {', '.join(names)}", names)
        return given[0]


def _fail(response: Response, code: int, message: str, refusals: list[Refusal] | None = None) -> None:
    response.status = falcon.code_to_http_status(code)
    response.content_type = falcon.MEDIA_JSON
    response.data = error_body(code, message, [refusal.detail for refusal in (refusals or [])[:_MOST_ERRORS]])
