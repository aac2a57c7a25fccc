"""A pattern whose search takes longer than a query may: what a client sees of it, from a real process."""

import json
import os
import time
from pathlib import Path
from urllib.parse import quote

from service import wait_for
from test_api_http import Api, error_in
from test_api_reader import NOW
from test_api_remembered import seal
from test_api_request_counts import Request, stored

from ops.keys import add_key
from schema.timestamps import HOUR

HARD = "(?:[0-7][^z]{0,60}){3}zz|/rest/v1/found"
"""RE2 takes some 3 ms for a KB of hexadecimal digits."""


def test_a_search_past_the_time_limit_is_a_503_and_is_complete_for_a_later_call(tmp_path: Path) -> None:
    urls = [f"https://aaa.supabase.co/{os.urandom(500).hex()}{number}" for number in range(1200)]
    requests = [Request(HOUR * (2 + number % 6), url=url, batch=number % 6) for number, url in enumerate(urls)]
    requests.append(Request(HOUR, url="https://aaa.supabase.co/rest/v1/found", batch=6))
    requests.append(Request(HOUR, project="bbb", url="https://bbb.supabase.co/rest/v1/found", batch=6))
    stored(tmp_path / "data", NOW, requests)
    seal(tmp_path / "data")
    keys = {name: add_key(tmp_path / "data", name, projects=[name]) for name in ("aaa", "bbb")}
    everybody = add_key(tmp_path / "data", "everybody")
    target = f"/api/endpoints/usage.api-counts?interval=daily&project={quote(HARD)}"

    def asked(key: str) -> int | None:
        """The requests counted, None where that took too long."""
        began = time.monotonic()
        reply = api.get(target, {"X-API-KEY": key, "Origin": "https://studio.example.org"})
        assert time.monotonic() - began < 10
        if reply.status == 200:
            return sum(int(row["total_rest_requests"]) for row in reply.body["result"])
        assert "longer than 1 s" in error_in(reply, 503)["message"]
        assert int(reply.headers["Retry-After"]) > 0
        assert reply.headers["Access-Control-Allow-Origin"] == "*"
        return None

    with Api(tmp_path, FRESHET_QUERY_SECONDS="1") as api:
        assert asked(everybody) is None
        assert wait_for("the search to be complete", lambda: asked(everybody)) == 2
        assert asked(keys["bbb"]) == 1  # what is remembered for all is not for a scope
        lines = [json.loads(line) for line in api.log.read_text().splitlines() if line.startswith("{")]
        assert {line["status"] for line in lines if line.get("endpoint")} == {200, 503}
