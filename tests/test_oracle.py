"""The oracle itself, held to cases that were worked out by hand, and the traffic that it is fed with."""

import json
from collections import Counter
from typing import Any

import pytest
import re2
from events import BAD_MESSAGES, Traffic
from oracle import COUNTS_INTERVALS, MAX_BYTES, STATS_INTERVALS, Oracle, Record, percentile_agrees, rows_agree

NOW = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z
MS, SECOND, MINUTE, HOUR, DAY = 1000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
URL = "https://ref.supabase.co/rest/v1/t"


def fed(topic: str, *values: bytes | None, record_ms: int = NOW // MS) -> Oracle:
    """An oracle that has read these messages at the offsets 7, 8, ..."""
    oracle = Oracle("log-1", "edge", "functions")
    oracle.feed(Record(topic, 0, 7 + number, record_ms, value) for number, value in enumerate(values))
    return oracle


def edge(timestamp: Any = NOW, **fields: Any) -> bytes:
    return json.dumps({"timestamp": timestamp, "project": "p", **fields}).encode()


def request(timestamp: int = NOW, **fields: Any) -> bytes:
    return edge(timestamp, metadata={"request": fields})


def invocation(timestamp: int = NOW, status: Any = 200, took: Any = None, **metadata: Any) -> bytes:
    known = {"project_ref": "p", "function_id": "f", "response": {"status_code": status}, "execution_time_ms": took}
    return json.dumps({"timestamp": timestamp, "metadata": {**known, **metadata}}).encode()


def reasons(oracle: Oracle) -> list[tuple[int, int, str]]:
    """Offset, index and reason of each reject."""
    return sorted((offset, index, reason) for _, _, offset, index, reason in oracle.rejects)


def times(oracle: Oracle, project: str = "p") -> list[int]:
    return [row["timestamp"] for row in oracle.logs_all(NOW, project, "PAYG")]


def families(*values: bytes) -> list[int]:
    """The four totals over everything that was fed."""
    (row,) = fed("edge", *values).api_counts(NOW, ".*", "hourly")
    return [value for column, value in row.items() if column != "timestamp"]


@pytest.mark.parametrize(
    "written",
    [
        *('"2023-11-14T22:13:20.123456Z"', '"2023-11-14 22:13:20.123456999"', '"2023-11-14t22:13:20,123456z"'),
        *(
            '" 2023-11-15T00:13:20.123456 +02:00 "',
            '"2023-11-14T16:43:20.123456-0530"',
            '"2023-11-14T21:13:20.123456-01"',
        ),
        *("1700000000.123456", "1700000000.1234569999", "1700000000123.456", "1700000000123456", "1700000000123456789"),
        *("1.700000000123456e9", "1700000000123456E-6", '"1700000000.123456"', '"1700000000123456789"'),
    ],
)
def test_every_form_of_a_time_is_floored_to_the_same_microsecond(written: str) -> None:
    assert times(fed("edge", b'{"project":"p","timestamp":%b}' % written.encode())) == [1_700_000_000_123_456]


def test_times_may_leave_out_seconds_or_the_clock_and_count_as_utc() -> None:
    oracle = fed("edge", edge("2023-11-14T22:13"), edge("2023-11-14"), edge("1700000000"), edge(1_699_999_999))
    assert times(oracle) == [NOW, NOW - SECOND, NOW - 20 * SECOND, 1_699_920_000_000_000]


def test_a_time_is_within_the_years_2000_to_2100() -> None:
    values = (
        946_684_799.999999,
        946_684_800,
        "2100-12-31T23:59:59.999999999Z",
        "2101-01-01",
        99_999_999_999,
        100_000_000_000,
    )
    oracle = fed("edge", *(edge(value) for value in values), record_ms=0)
    assert reasons(oracle) == [(offset, 0, "bad_timestamp") for offset in (7, 10, 11, 12)]


@pytest.mark.parametrize(
    "written", ["true", '""', "{}", "[1]", '"2023-02-29"', '"2023-11-14T22:13:60Z"', '"NaN"', "1e999"]
)
def test_a_time_that_is_present_but_unreadable_has_no_stand_in(written: str) -> None:
    oracle = fed("edge", b'{"project":"p","timestamp":%b,"date":"2023-11-14"}' % written.encode())
    assert (reasons(oracle), times(oracle)) == ([(7, 0, "bad_timestamp")], [])


def test_the_first_time_field_that_is_not_null_counts_then_the_records_own() -> None:
    values = (b'{"project":"p","date":1,"@timestamp":1699999999,"timestamp":null}', b'{"project":"p","timestamp":null}')
    assert times(fed("edge", *values)) == [NOW, NOW - SECOND]
    assert reasons(fed("edge", *values, record_ms=0)) == [(8, 0, "bad_timestamp")]


def test_more_than_a_day_ahead_of_its_record_is_future() -> None:
    record = (NOW - 2 * DAY) // MS
    assert reasons(fed("edge", edge(NOW - DAY), edge(NOW - DAY + 1), record_ms=record)) == [(8, 0, "future")]
    assert reasons(fed("edge", edge(NOW + 5 * DAY), record_ms=-1)) == []


def test_elements_of_every_message_form_keep_their_place() -> None:
    oracle = fed(
        "edge",
        b'\xef\xbb\xbf \n[{"timestamp":true}, {"timestamp":1700000000}, {"timestamp":true}]\n',
        b'{"batch":1,"n":{"batch":[]},"batch":[{"timestamp":true},5,{"timestamp":1700000000}]}',
        b'\r\n{"timestamp":true}\r\n\n  \nnot json\n{"timestamp":1700000000}\n[]\n{"batch":[{}],"timestamp":true}',
        b'{\n "timestamp":\n true }',
        b'{"batch":{},"timestamp":true}',
    )
    assert times(oracle, "") == [NOW] * 3
    wrong = [(7, 0), (7, 2), (8, 0), (9, 0), (9, 6), (10, 0), (11, 0)]
    expected = [(*place, "bad_timestamp") for place in wrong]
    expected += [(8, 1, "not_object"), (9, 3, "not_json"), (9, 5, "not_object")]
    assert reasons(oracle) == sorted(expected)


def test_a_message_without_elements_is_skipped_and_counted() -> None:
    oracle = fed("edge", None, b"", b" \t\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n ", b"[ ]")
    assert (oracle.skipped, oracle.rejects) == (Counter(empty=6), set())


@pytest.mark.parametrize("value", [b"17", b'"a"', b"null", b"true", b"-1.5e3"])
def test_a_message_of_another_json_value_is_no_object(value: bytes) -> None:
    assert reasons(fed("functions", value)) == [(7, -1, "not_object")]


@pytest.mark.parametrize(
    "value",
    [b"plain", b"{", b'{"a":NaN}', b'{"a":1,}', b'{"a":01}', b'{"a":"\t"}', b'{"a":"\\x"}', b"{} {}", b"[1]\n[2]"],
)
def test_what_is_no_json_is_one_reject(value: bytes) -> None:
    assert reasons(fed("edge", value)) == [(7, -1, "not_json")]


@pytest.mark.parametrize("value", [b"\xff\xfe{}", b'{"a":"\xe9"}', b'[{"timestamp":1700000000},"\xed\xa0\x80"]'])
def test_what_is_not_utf8_is_one_reject(value: bytes) -> None:
    assert reasons(fed("edge", value)) == [(7, -1, "not_utf8")]


def test_a_message_over_16_mib_is_one_reject() -> None:
    oracle = fed("edge", edge() + b" " * (MAX_BYTES - len(edge())), edge() + b" " * (MAX_BYTES + 1 - len(edge())))
    assert (reasons(oracle), len(times(oracle))) == ([(8, -1, "too_large")], 1)


def test_64_levels_are_read_and_65_are_too_deep_without_harm_to_siblings() -> None:
    fits, deep, very_deep = (b'{"timestamp":1700000000,"a":%b}' % (b"[" * n + b"]" * n) for n in (63, 64, 50_000))
    oracle = fed("edge", b"[%b,%b,%b]" % (fits, deep, very_deep), deep + b"\n" + fits, b"[" * 5000 + b"]" * 5000)
    assert reasons(oracle) == [(7, 1, "too_deep"), (7, 2, "too_deep"), (8, 0, "too_deep"), (9, 0, "too_deep")]
    assert times(oracle, "") == [NOW, NOW]
    quoted = b'{"timestamp":1700000000,"a":"%b"}' % (b"[{" * 500)
    assert reasons(fed("edge", quoted, b"[" * 5000 + b"}" * 5000, b"[" * 5000)) == [
        (8, -1, "not_json"),
        (9, -1, "not_json"),
    ]


def test_the_last_of_duplicate_keys_counts_and_a_lone_surrogate_is_replaced() -> None:
    value = b'{"timestamp":true,"project":"q","timestamp":1700000000,"project":"\\ud800","id":"\\udfff\\ud83d\\ude00"}'
    assert [row["id"] for row in fed("edge", value).logs_all(NOW, "\ufffd")] == ["\ufffd\U0001f600"]


def test_ids_are_as_sent_or_made_from_the_place_in_the_log() -> None:
    oracle = fed(
        "edge", edge(NOW, id="a"), b'{"timestamp":1699999999,"id":1.50}', b'[1,{"timestamp":1699999998,"id":""}]'
    )
    assert [row["id"] for row in oracle.logs_all(NOW, "p")] == ["a"]
    # UUIDv5 of log-1/edge/0/9/1
    assert [row["id"] for row in oracle.logs_all(NOW, "")] == ["1.50", "0f55f642-f74a-561f-9dcb-6cca95e7ead0"]


def test_an_entry_shows_its_message_and_its_metadata_as_sent() -> None:
    sent: list[dict[str, Any]] = [
        {"event_message": "a", "message": "b"},
        {"event_message": None, "message": {"a": [1.5]}},
    ]
    sent += [{"metadata": [{"a": 1}, {}]}, {"metadata": "text", "message": 7}]
    rows = fed("edge", *(edge(NOW - n, **fields) for n, fields in enumerate(sent))).logs_all(NOW, "p")
    assert [row["event_message"] for row in rows] == ["a", '{"a": [1.5]}', "", "7"]
    assert [row["metadata"] for row in rows] == [{}, {}, [{"a": 1}, {}], {}]
    rows_agree([{**rows[1], "event_message": '{"a":[1.5]}'}], rows[1:2])


def test_a_url_is_as_sent_or_built_from_its_parts() -> None:
    oracle = fed(
        "edge",
        request(url=URL, host="h"),
        request(url="", host="h", protocol="HTTP/1.1", path="/x?y"),
        request(url=5, host="h", protocol=""),
        request(host="", path="/rest/v1"),
        edge(metadata=[{"request": [{"url": "nested"}]}]),
        edge(metadata=[{"request": [{"url": "a"}, {"url": "b"}]}]),
    )
    built = (URL, "http://h/x?y", "https://h", "p/rest/v1", "nested", "p")
    assert [len(oracle.api_counts(NOW, f"^\\Q{url}\\E$", "minutely")) for url in built] == [1] * 6
    assert oracle.api_counts(NOW, "^[ab]$", "minutely") == []


def test_families_are_looked_for_in_the_path_as_sent_or_in_the_urls() -> None:
    assert families(request(url=URL)) == [1, 0, 0, 0]
    assert families(request(url=URL, path="")) == [0, 0, 0, 0]
    assert families(request(url=URL, path="/a?b=/auth/storage/v1")) == [0, 1, 1, 0]
    assert families(request(url="https://a/restful/realtime?next=/auth#/storage")) == [1, 0, 0, 1]
    assert families(request(url="https://a?b=/auth"), request(host="rest", path=5), request(path="/Rest")) == [0] * 4


def test_api_counts_start_at_the_microsecond_and_fall_into_whole_buckets() -> None:
    oracle = fed("edge", *(request(NOW - HOUR + step, url=URL) for step in (-1, 0, 1)), request(NOW + HOUR, url=URL))
    zeros = {"total_storage_requests": 0, "total_auth_requests": 0, "total_realtime_requests": 0}
    first = {"timestamp": "2023-11-14T21:00:00", "total_rest_requests": 2, **zeros}
    late = {"timestamp": "2023-11-14T23:00:00", "total_rest_requests": 1, **zeros}
    assert oracle.api_counts(NOW, "ref", "hourly") == [first, late]
    first, late = {**first, "timestamp": "2023-11-14T21:13:00"}, {**late, "timestamp": "2023-11-14T23:13:00"}
    assert oracle.api_counts(NOW, "ref", "minutely") == [first, late]
    day = {**first, "timestamp": "2023-11-14T00:00:00", "total_rest_requests": 4}
    assert oracle.api_counts(NOW, "ref", "daily") == [day]


def test_patterns_are_searched_by_re2_in_utf8() -> None:
    oracle = fed("edge", request(url=URL + "/é\n"))
    found = ("REST", "(?i)REST", "^ref", "1/t/.\\n", "\\C\\C\n$", "é$", "é\\s\\z", "(?m)é$", "a|", "(?s)t.é.$")
    assert [bool(oracle.api_counts(NOW, pattern, "daily")) for pattern in found] == [False, True, False] + [
        True
    ] * 2 + [*(False, True, True, True, True)]
    with pytest.raises(re2.error):
        oracle.api_counts(NOW, "(?=a)", "daily")


def test_logs_hold_what_is_newer_than_the_tiers_window_and_within_the_range() -> None:
    oracle = fed("edge", *(edge(NOW - days * DAY + step) for days in (1, 7, 90) for step in (0, 1)), edge(NOW + HOUR))
    tiers = ("FREE", "PRO", "PAYG", "ENTERPRISE", None, "pro", "")
    assert [len(oracle.logs_all(NOW, "p", tier)) for tier in tiers] == [2, 4, 6, 6, 2, 2, 2]
    rows = oracle.logs_all(NOW, "p", "PRO", NOW - 7 * DAY + 1, NOW - DAY + 1)
    assert [row["timestamp"] for row in rows] == [NOW - DAY + 1, NOW - DAY]


def test_logs_are_the_newest_hundred_and_ties_go_by_id_then_bytes() -> None:
    values = [edge(NOW - 1, id="b", n=1), edge(NOW - 1, id="B"), edge(NOW - 1, id="é"), edge(NOW - 1, id="b", n=2)]
    rows = fed("edge", *(edge(NOW - 2) for _ in range(99)), *values, edge(NOW)).logs_all(NOW, "p")
    assert ([row["id"] for row in rows[1:5]], len(rows)) == (["é", "b", "b", "B"], 100)
    same = [edge(id="b", metadata={"n": n}) for n in (1, 3, 2)]
    assert [row["metadata"]["n"] for row in fed("edge", *same).logs_all(NOW, "p")] == [3, 2, 1]


def test_statistics_of_a_bucket() -> None:
    oracle = fed(
        "functions",
        *(invocation(NOW, 200, took) for took in (1, "2.0005", 4)),
        *(invocation(NOW, "404", None), invocation(NOW, 399.0, -1), invocation(NOW, 500, True)),
    )
    (row,) = oracle.invocation_stats(NOW, "p")
    rows_agree(
        [
            {
                "timestamp": NOW // HOUR * HOUR,
                "min_execution_time": 1,
                "max_execution_time": 4,
                "avg_execution_time": 7 / 3,
                "p95_execution_time": 4,
                "p99_execution_time": 4,
                "count": 6,
                "error_count": 2,
            }
        ],
        [row],
    )
    (row,) = fed("functions", invocation(NOW, None, 2**31), invocation(NOW, "x", "2.5")).invocation_stats(NOW, "p")
    assert [row[f"{name}_execution_time"] for name in ("min", "max", "avg")] == [2.5, 2**31, 1_073_741_825.25]
    (row,) = fed("functions", invocation(NOW, None, 2**31 + 1)).invocation_stats(NOW, "p")
    assert [row[f"{name}_execution_time"] for name in ("min", "avg", "p95", "p99")] == [None] * 4


def test_percentiles_are_elements_of_the_whole_milliseconds() -> None:
    def percentiles(*took: float) -> tuple[int, int]:
        (row,) = fed("functions", *(invocation(took=one) for one in took)).invocation_stats(NOW, "p")
        return row["p95_execution_time"], row["p99_execution_time"]

    assert percentiles(*range(1, 101)) == (95, 99)
    assert percentiles(*range(1, 21)) == (19, 20)
    assert percentiles(0.4999) == (0, 0)
    assert percentiles(0.5, 1023.5) == (1024, 1024)


@pytest.mark.parametrize(
    ("answer", "exact", "smallest", "agrees"),
    [
        *((1023, 1023, 0, True), (1022, 1023, 0, False), (2047, 2047, 0, True), (2046, 2047, 0, False)),
        *((2048, 2049, 0, True), (2049, 2049, 0, False), (8192, 8199, 0, True), (8195, 8199, 8195, True)),
        *((None, None, None, True), (None, 5, 5, False), (0, None, None, False), (5.0, 5, 5, False)),
    ],
)
def test_a_percentile_is_the_lower_edge_of_its_cell(answer: Any, exact: Any, smallest: Any, agrees: bool) -> None:
    assert percentile_agrees(answer, exact, smallest, None if smallest is None else 9999) is agrees


def test_the_first_bucket_of_a_series_is_whole_and_inclusive() -> None:
    firsts = {"5min": NOW - 300 * SECOND, "15min": NOW - 20 * SECOND - 15 * MINUTE, "1hr": NOW - 20 * SECOND - HOUR}
    firsts |= {"1day": 1_699_999_200_000_000 - DAY, "7day": 1_699_920_000_000_000 - 7 * DAY}
    firsts |= {"other": firsts["1day"], "": firsts["1day"]}
    for interval, first in firsts.items():
        rows = fed("functions", invocation(first), invocation(first - 1)).invocation_stats(NOW, "p", None, interval)
        assert [(row["timestamp"], row["count"]) for row in rows] == [(first, 1)]


def test_functions_are_told_apart_and_one_without_id_counts_for_the_project() -> None:
    others: list[dict[str, Any]] = [
        {"function_id": "g"},
        {"function_id": None},
        {"function_id": 5},
        {"project_ref": "q"},
    ]
    oracle = fed("functions", invocation(), *(invocation(**other) for other in others))
    counts = [
        [row["count"] for row in oracle.invocation_stats(NOW, "p", function)] for function in (None, "", "f", "x")
    ]
    assert counts == [[4], [4], [1], []]


def test_a_function_log_needs_a_project_first_and_a_response_last() -> None:
    nowhere, late = b'{"timestamp":true,"metadata":{"project_ref":""}}', invocation(NOW + 2 * DAY, response=None)
    unreadable: list[Any] = [None, [], [{}, {}], "text"]
    silent = [invocation(response=response) for response in unreadable]
    oracle = fed("functions", nowhere, late, *silent, invocation(response=[{}]))
    assert reasons(oracle) == [(7, 0, "no_project"), (8, 0, "future")]
    assert (oracle.skipped, oracle.invocation_stats(NOW, "p")[0]["count"]) == (Counter(no_response=4), 1)


def test_otlp_records_are_events() -> None:
    def pair(key: str, **value: Any) -> dict[str, Any]:
        return {"key": key, "value": value}

    rest = {"kvlistValue": {"values": [pair("request", arrayValue={"values": [{"kvlistValue": {}}]})]}}
    records = [
        {
            "timeUnixNano": "1700000000000000999",
            "body": {"stringValue": "said"},
            "attributes": [pair("id", intValue="7")],
        },
        {
            "timeUnixNano": "0",
            "observedTimeUnixNano": "1699999999000000000",
            "attributes": [pair("project", stringValue="q")],
        },
        5,
        {
            "body": {
                "kvlistValue": {
                    "values": [pair("timestamp", intValue="1699999998"), {"key": "metadata", "value": rest}]
                }
            }
        },
    ]
    resource = {"attributes": [pair("project", stringValue="p")]}
    groups = [{"resource": resource, "scopeLogs": [{"logRecords": records}]}, "wrong"]
    oracle = fed("edge", json.dumps({"resourceLogs": groups}).encode())
    assert reasons(oracle) == [(7, 2, "not_object"), (7, 4, "not_object")]
    first, last = oracle.logs_all(NOW, "p")
    assert first == {"id": "7", "timestamp": NOW, "event_message": "said", "metadata": {}}
    assert (last["timestamp"], last["metadata"]) == (NOW - 2 * SECOND, {"request": [{}]})
    assert times(oracle, "q") == [NOW - SECOND]


def test_a_difference_is_named_by_row_and_column() -> None:
    rows = [{"timestamp": 1, "count": 5}, {"timestamp": 2, "count": 6}]
    rows_agree([dict(row) for row in rows], rows)
    wrongs: list[tuple[list[dict[str, Any]], str]] = [
        ([rows[0], {"timestamp": 2, "count": 6.0}], r"row 1 \(timestamp 2\), count: answered 6.0, expected 6"),
        ([rows[0], {"timestamp": 2}], "row 1 .* columns"),
        (rows[:1], "answered 1 rows, expected 2"),
        ([*rows, rows[0]], "answered 3 rows, expected 2"),
    ]
    for wrong, message in wrongs:
        with pytest.raises(AssertionError, match=message):
            rows_agree(wrong, rows)


def test_traffic_is_the_same_for_a_seed_and_stays_within_the_logs_retention() -> None:
    first, again = (Traffic(3, NOW, "edge", "functions") for _ in range(2))
    messages = first.messages(500) + first.window_edges()
    assert messages == again.messages(500) + again.window_edges()
    assert messages != Traffic(4, NOW, "edge", "functions").messages(500)
    assert all(NOW - 6 * DAY <= message.timestamp_ms * MS <= NOW for message in messages)


def test_traffic_has_everything_in_it() -> None:
    traffic = Traffic(5, NOW, "edge", "functions")
    oracle = Oracle("log-1", "edge", "functions")
    messages = traffic.messages(3000) + traffic.window_edges()
    oracle.feed(Record(sent.topic, 0, offset, sent.timestamp_ms, sent.value) for offset, sent in enumerate(messages))
    assert {reason for *_, reason in oracle.rejects} == {
        *("not_json", "not_utf8", "too_deep", "not_object", "bad_timestamp", "no_project", "future")
    }
    assert oracle.skipped.keys() == {"empty", "no_response"}
    patterns = traffic.patterns()
    assert len(set(patterns)) == len(patterns) > 60
    assert [bool(oracle.api_counts(NOW, f"{start}{traffic.ghost}", "daily")) for start in ("", "://")] == [True, True]
    for interval in COUNTS_INTERVALS:
        assert oracle.api_counts(NOW, traffic.quiet, interval)
    for project in traffic.projects:
        assert len(oracle.logs_all(NOW, project)) > 20
        assert all(oracle.invocation_stats(NOW, project, None, interval) for interval in STATS_INTERVALS)
    assert oracle.logs_all(NOW, traffic.ghost, "PAYG") == []
    assert fed("edge", traffic.too_large().value).rejects == {("edge", 0, 7, -1, "too_large")}
    assert len(fed("edge", *BAD_MESSAGES).rejects) == len(BAD_MESSAGES)


def test_refused_patterns_are_refused() -> None:
    traffic = Traffic(1, NOW, "edge", "functions")
    for pattern in traffic.refused_patterns():
        with pytest.raises(re2.error):
            fed("edge").api_counts(NOW, pattern, "daily")
    for pattern in traffic.patterns():
        assert fed("edge").api_counts(NOW, pattern, "daily") == []
