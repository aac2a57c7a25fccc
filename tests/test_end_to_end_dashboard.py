"""The dashboard in a real Chromium, over a real API, a real store and a worker that filled it from a real Kafka."""

import json
import math
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from browser import chromium, page, sign_in
from conftest import Topics
from kafka_broker import KafkaBroker
from playwright.sync_api import Browser, Page, expect
from service import Service, free_port, wait_for

from ops.demo import PROJECT, edge_event, invocation
from ops.keys import add_key, revoke_key
from schema.clock import system_clock
from schema.timestamps import SECOND

SCREENS = Path(__file__).parents[1] / "build" / "screens"
CONTRAST = Path(__file__).with_name("contrast.js").read_text().partition("\n")[2]
HOSTILE_PROJECT = "hostile"
LONG = "long " + "x" * 30_000
HOSTILE = {  # message: what is to be read of it
    "<script>window.pwned = 1</script>": "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>": "<img src=x onerror='window.pwned = 2'>",
    "</pre></li><b>bold</b> &lt;&amp; &#60;i&#62;": "</pre></li><b>bold</b> &lt;&amp; &#60;i&#62;",
    "user \u202egnp.exe\u202c \u2066x\u2069": "user U+202Egnp.exeU+202C U+2066xU+2069",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07": "␛[31mred␛[0m ␛]0;title␇",
    "nul\0byte \x7f \x9b zero\u200bwidth": "nul␀byte ␡ U+009B zeroU+200Bwidth",
    "two\r\nlines\u2028three\tfour": "two␍␊linesU+2028three␉four",
    "tags \U000e0041 \ufeff": "tags U+E0041 U+FEFF",
    "{{constructor}} ${window.pwned=3} javascript:window.pwned=4": (
        "{{constructor}} ${window.pwned=3} javascript:window.pwned=4"
    ),
    LONG: LONG[:600] + "… 29,405 more characters",
}
FUNCTION = "<img src=x onerror='window.pwned = 6'>\u202e"
METADATA = {"<b>": "</pre><script>window.pwned=5</script>", "big": 9_007_199_254_740_993, "rtl": "\u202eabc\0"}


class Shown(NamedTuple):
    """A service that runs, and a browser to look at it with."""

    service: Service
    browser: Browser
    key: str

    @property
    def address(self) -> str:
        return f"http://{self.service.settings.listen}/"

    @contextmanager
    def open(self, project: str = PROJECT, **options: Any) -> Iterator[Page]:
        """The page, signed in and with a project's answers, once these are there."""
        with page(self.browser, self.address, self.key, **options) as opened:
            sign_in(opened, self.key, project)
            expect(opened.locator("#panels")).to_be_visible()
            if project == PROJECT:
                expect(opened.locator("#invocations-totals dd").first).to_be_visible()
                expect(opened.locator("#families-totals dd").first).to_be_visible()
                expect(opened.locator("#entries > li").first).to_be_visible()
            yield opened

    def send(self, *events: dict[str, Any]) -> None:
        """Edge events onto the topic."""
        now = system_clock() // 1000
        self.service.kafka.produce(
            [(self.service.edge, None, None, json.dumps(event).encode(), now) for event in events]
        )


@pytest.fixture(scope="module")
def shown(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("dashboard")
    topics = Topics(f"edge-{folder.name}", f"functions-{folder.name}")
    for name in topics:
        kafka.create_topic(name, 4, {"retention.ms": "-1"})
    with Service(folder, kafka, *topics) as service:
        service.start("worker")
        service.start_api()
        kafka.produce(list(traffic(topics)))
        service.wait_until_applied()
        with chromium() as browser:
            yield Shown(service, browser, service.key)


def traffic(topics: Topics) -> Iterator[tuple[str, None, None, bytes, int]]:
    """An hour that rises and falls, a day behind it, hostile lines, and messages that can't be taken."""
    chance, now = random.Random(20261121), time.time()
    ages = [chance.random() * 86_400 for _ in range(2500)]
    for minute in range(61):
        load = 130 + 80 * math.sin(minute / 9) + 25 * math.sin(minute / 2.3)
        ages += [60 * minute + 60 * chance.random() for _ in range(int(load))]
    for age in sorted(ages, reverse=True):
        at = now - age
        yield topics.edge, None, None, json.dumps(edge_event(chance, at)).encode(), int(at * 1000)
        if chance.random() < 0.6:
            yield topics.functions, None, None, json.dumps(invocation(chance, at)).encode(), int(at * 1000)
    for number, message in enumerate(HOSTILE):
        event = {"id": f"<i>{number}", "timestamp": int(now * SECOND) - number * SECOND, "project": HOSTILE_PROJECT}
        event |= {"event_message": message, "metadata": METADATA}
        yield topics.edge, None, None, json.dumps(event).encode(), int(now * 1000)
    metadata = {"project_ref": HOSTILE_PROJECT, "function_id": FUNCTION, "response": {"status_code": 200}}
    run = {"timestamp": int(now * SECOND), "metadata": metadata}
    yield topics.functions, None, None, json.dumps(run).encode(), int(now * 1000)
    for bad in (*[b"no json"] * 7, *[b'{"timestamp":"yesterday","project":"p"}'] * 3, b"\xff\xfe"):
        yield topics.edge, None, None, bad, int(now * 1000)
    yield topics.functions, None, None, b'{"timestamp":"2026-01-01T00:00:00Z","metadata":{}}', int(now * 1000)


def screen(name: str) -> Path:
    """Where a picture of the page goes, for people to look at."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    return SCREENS / f"dashboard-{name}.png"


def number(text: str | None) -> int:
    """A whole number with commas between its thousands, at a text's start."""
    match = re.match(r"[0-9,]+", text or "")
    assert match, text
    return int(match[0].replace(",", ""))


def painted(page: Page, chart: str) -> int:
    """How many colours a chart's canvas has."""
    colours: int = page.evaluate(
        """(id) => {
            const canvas = document.querySelector(`#${id} canvas`);
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(data.buffer)).size;
        }""",
        chart,
    )
    return colours


def test_the_panels_show_what_the_endpoints_answer(shown: Shown) -> None:
    with shown.open() as page:
        page.get_by_role("radio", name="1 day").check(force=True)
        statistics = shown.service.rows("functions.statistics", project=PROJECT, interval="1day")
        counts = page.locator("#invocations-totals dd")
        expect(counts.first).to_have_text(f"{statistics[0]['count']:,}")
        expect(counts.nth(3)).to_have_text(f"{statistics[0]['p95_execution_time']:,} ms")
        rows = page.locator("#functions-rows tr")
        expect(rows).to_have_count(len(statistics) - 1)
        for row, statistic in zip(rows.all(), statistics[1:], strict=True):
            assert row.locator("th").inner_text().strip() == statistic["function_id"]
            assert number(row.locator("td").first.inner_text()) == statistic["count"]
        expect(page.locator("#families-span")).to_contain_text("last day, by hour")
        families = shown.service.rows("usage.api-counts", project=PROJECT, interval="1day")
        for place, family in enumerate(("rest", "auth", "storage", "realtime")):
            total = sum(row[f"total_{family}_requests"] for row in families)
            assert total > 10
            expect(page.locator("#families-totals dd").nth(place)).to_have_text(f"{total:,}")
        for chart in ("counts-chart", "times-chart", "families-chart"):
            assert painted(page, chart) > 20
        over = page.locator("#families-chart .u-over").bounding_box()
        assert over is not None
        page.mouse.move(over["x"] + over["width"] * 0.55, over["y"] + 20)  # an hour under the pointer, by its own row
        expect(page.locator("#families-totals")).to_have_attribute("data-at", re.compile(r"\d\d:00$"))
        page.mouse.move(0, 0)
        expect(page.locator("#families-totals")).to_have_attribute("data-at", "")
        expect(page.locator("#complete")).to_contain_text("ago")
        expect(page.locator("#lag")).to_have_text("0 messages")
        expect(page.locator("#rejects-rows li").first).to_contain_text("not_json")
        expect(page.locator("#rejects-rows li").first.locator("b")).to_have_text("7")


def test_hostile_lines_are_text_and_nothing_else(shown: Shown) -> None:
    with shown.open(HOSTILE_PROJECT) as page:
        rows = page.locator("#entries > li")
        expect(rows).to_have_count(len(HOSTILE))
        for row, read in zip(rows.all(), HOSTILE.values(), strict=True):
            assert row.locator(".message").text_content() == read
            row.locator("summary").click()
            whole = row.locator(".whole")
            expect(whole).to_be_visible()
            shown_json = whole.locator(".json").text_content() or ""
            assert '"</pre><script>window.pwned=5</script>"' in shown_json
            assert "9007199254740993" in shown_json
            assert "U+202Eabc\\u0000" in shown_json
            assert (whole.locator(".text").text_content() or "").startswith(read[:500])
        page.screenshot(path=screen("hostile"))
        expect(page.locator("#functions-rows th .name")).to_have_text(FUNCTION.replace("\u202e", "U+202E"))
        made = "[...document.querySelectorAll('#entries *, #functions-rows *')].map((one) => one.localName)"
        rows_of_both = {"li", "details", "summary", "time", "span", "div", "p", "pre", "tr", "th", "td"}
        assert set(page.evaluate(made)) <= rows_of_both


def test_entries_come_live_are_held_and_go_on_without_loss_when_the_api_starts_anew(shown: Shown) -> None:
    def entry(number: int) -> dict[str, Any]:
        return {
            "id": f"live-{number}",
            "project": "lively",
            "timestamp": system_clock() // 1000,
            "event_message": f"number {number}",
        }

    def numbers(page: Page) -> list[int]:
        return [int(text.removeprefix("number ")) for text in page.locator("#entries .message").all_text_contents()]

    with shown.open("lively", may_be_refused=True) as page:
        expect(page.locator("#tail-state")).to_contain_text("Nothing yet")
        shown.send(entry(0))
        expect(page.locator("#entries .message").first).to_have_text("number 0")
        page.get_by_role("button", name="Pause").click()
        shown.send(entry(1), entry(2))
        expect(page.locator("#newer")).to_have_text("2 new entries above")
        assert numbers(page) == [0]
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("#entries > li")).to_have_count(3)
        api = shown.service.processes[-1]
        shown.service.stop(api)
        expect(page.locator("#tail-mode")).to_have_text("waiting for the API")
        shown.send(*(entry(number) for number in range(3, 40)))
        shown.service.wait_until_applied()
        shown.service.start_api()
        expect(page.locator("#entries > li")).to_have_count(40, timeout=30_000)
        shown.service.processes[-1].send_signal(signal.SIGHUP)
        for number in range(40, 60):
            shown.send(entry(number))
            time.sleep(0.1)
        expect(page.locator("#entries > li")).to_have_count(60, timeout=30_000)
        assert sorted(numbers(page)) == [*range(60)]
        expect(page.locator("#tail-mode")).to_have_text("live")


def test_a_range_of_time_and_filters_choose_entries(shown: Shown) -> None:
    start = system_clock() - 3600 * SECOND
    events = [
        {
            "id": str(number),
            "project": "ranged",
            "timestamp": start + number * 60 * SECOND,
            "event_message": f"Number {number}.",
            "metadata": {"response": {"status_code": 500 if number % 10 == 0 else 200}},
        }
        for number in range(60)
    ]
    shown.send(*events)
    shown.service.wait_until_applied()
    with shown.open("ranged") as page:
        messages = page.locator("#entries .message")
        expect(messages).to_have_count(50)
        page.locator("#status").select_option("500")
        expect(messages).to_have_count(6)
        page.locator("#text").fill("number 3")
        expect(messages).to_have_text(["Number 30."])
        page.locator("#text").fill("")
        page.locator("#status").select_option("")
        page.locator("#zone").click()
        expect(page.locator("#zone-said")).to_have_text("Times are in UTC.")
        page.locator("#range").select_option("own")
        fields = [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start / SECOND + 60 * n)) for n in (10, 20)]
        for field, value in zip(("#from", "#to"), fields, strict=True):
            page.locator(field).fill(value)
        expect(messages.first).to_have_text("Number 19.")
        expect(messages).to_have_count(10)
        page.locator("#range").select_option("60")
        page.locator("#older").click()
        expect(messages).to_have_count(59)
        page.locator("#range").select_option("15")
        page.locator("#text").fill("no such text")
        expect(page.locator("#tail-state")).to_contain_text("Widen")


def test_each_refusal_says_what_to_do(shown: Shown) -> None:
    data = shown.service.settings.data
    expired = add_key(data, "expired", expires_at=system_clock() - SECOND)
    ingest = add_key(data, "ingest", allow=("ingest",))
    with page(shown.browser, shown.address, shown.key, may_be_refused=True) as opened:
        for key, said in (
            ("fr_0_0", "is not known here. Check that all of it was copied"),
            (expired, "has expired. Make another"),
            (ingest, "may not query. Make one that may"),
        ):
            sign_in(opened, key)
            expect(opened.locator("#refusal")).to_contain_text(said)
            expect(opened.locator("#panels")).to_be_hidden()
            opened.screenshot(path=screen("refused"))
            assert opened.evaluate("sessionStorage.getItem('freshet.key')") is None
        sign_in(opened, shown.key)
        expect(opened.locator("#invocations-state")).to_contain_text("Name a project above")
        opened.locator("#project").fill("never-heard-of")
        expect(opened.locator("#invocations-state")).to_contain_text("No invocations in this interval. Choose a longer")
        expect(opened.locator("#families-state")).to_contain_text("No API requests in this interval")
        expect(opened.locator("#tail-state")).to_contain_text("Nothing yet. Entries show here as they come")
        opened.screenshot(path=screen("empty"))
        opened.get_by_role("button", name="Sign out").click()
        expect(opened.locator("#sign-in")).to_be_visible()
        assert opened.evaluate("sessionStorage.getItem('freshet.key')") is None
        opened.reload()
        expect(opened.locator("#sign-in")).to_be_visible()


def test_a_key_of_some_projects_chooses_among_them_and_one_without_an_endpoint_is_told_so(shown: Shown) -> None:
    data = shown.service.settings.data
    scoped = add_key(data, "two", projects=(PROJECT, HOSTILE_PROJECT))
    partial = add_key(data, "partial", endpoints=("functions.invocation-stats", "functions.statistics"))
    with page(shown.browser, shown.address, scoped) as opened:
        sign_in(opened, scoped)
        expect(opened.locator("#project-choice option")).to_have_text(sorted((PROJECT, HOSTILE_PROJECT)))
        expect(opened.locator("#project")).to_be_hidden()
        opened.locator("#project-choice").select_option(HOSTILE_PROJECT)
        expect(opened.locator("#entries > li")).to_have_count(len(HOSTILE))
    with page(shown.browser, shown.address, partial, may_be_refused=True) as opened:
        sign_in(opened, partial, PROJECT)
        expect(opened.locator("#functions-rows tr").first).to_be_visible()
        expect(opened.locator("#families-state")).to_contain_text("may not ask usage.api-counts")
        expect(opened.locator("#tail-state")).to_contain_text("may not ask logs.search")


def test_before_a_worker_has_run_and_when_the_api_is_away_the_page_says_so(shown: Shown, tmp_path: Path) -> None:
    with Service(tmp_path, shown.service.kafka, "nothing", "nothing-else") as service:
        service.settings = replace(service.settings, listen=f"127.0.0.1:{free_port()}")
        service.start_api()
        address = f"http://{service.settings.listen}/"
        with page(shown.browser, address, service.key, may_be_refused=True) as opened:
            sign_in(opened, service.key, "p")
            for panel in ("invocations", "families", "tail", "rejects"):
                expect(opened.locator(f"#{panel}-state")).to_contain_text("start a worker")
            service.stop(service.processes[-1])
            expect(opened.locator("#families-state")).to_contain_text("See that “freshet api” runs", timeout=20_000)
            opened.get_by_role("button", name="Sign out").click()
            sign_in(opened, service.key)
            expect(opened.locator("#refusal")).to_contain_text("See that “freshet api” runs")
            service.start_api()
            expect(opened.locator("#panels")).to_be_visible()


def test_without_a_worker_the_lag_is_unknown_and_the_answers_are_late(shown: Shown, tmp_path: Path) -> None:
    kafka = shown.service.kafka
    topics = Topics(f"edge-{tmp_path.name}", f"functions-{tmp_path.name}")
    for name in topics:
        kafka.create_topic(name, 1)
    with Service(tmp_path, kafka, *topics) as service:
        worker = service.start("worker")
        wait_for("both partitions", lambda: len(service.applied()) == 2)
        service.start_api()
        with page(shown.browser, f"http://{service.settings.listen}/", service.key) as opened:
            sign_in(opened, service.key, "p")
            expect(opened.locator("#lag")).to_have_text("0 messages")
            service.stop(worker)
            service.set_clock(system_clock() + 100 * SECOND)
            expect(opened.locator("#lag")).to_contain_text("unknownno worker for 1")
            expect(opened.locator("#complete")).not_to_contain_text("nothing since")
            expect(opened.locator("#gauge")).to_have_class(re.compile("late"))


def test_a_key_that_is_revoked_while_it_is_used_ends_the_session(shown: Shown) -> None:
    key = add_key(shown.service.settings.data, "short-lived")
    with page(shown.browser, shown.address, key, may_be_refused=True) as opened:
        sign_in(opened, key, PROJECT)
        expect(opened.locator("#entries > li").first).to_be_visible()
        revoke_key(shown.service.settings.data, "short-lived")
        expect(opened.locator("#refusal")).to_contain_text("is not known here")
        expect(opened.locator("#panels")).to_be_hidden()
        assert opened.evaluate("sessionStorage.getItem('freshet.key')") is None
        assert opened.locator("#entries > li").count() == 0


def test_all_of_it_can_be_used_by_keyboard(shown: Shown) -> None:
    focused = "document.activeElement.id || document.activeElement.textContent.trim().slice(0, 30)"
    with page(shown.browser, shown.address, shown.key) as opened:
        expect(opened.locator("#key")).to_be_focused()
        opened.keyboard.type(shown.key)
        opened.keyboard.press("Enter")
        expect(opened.locator("#project")).to_be_focused()
        opened.keyboard.type(PROJECT)
        expect(opened.locator("#entries > li").first).to_be_visible()
        opened.locator("#text").focus()
        opened.keyboard.type("rest")
        expect(opened.locator("#entries .message").filter(has_not_text="rest")).to_have_count(0)
        expect(opened.locator("#entries > li").first).to_be_visible()
        first = opened.locator("a, button, input, select, summary, [tabindex]").first
        assert first.text_content() == "Skip to the panels"
        first.focus()
        seen: list[str] = []
        for number in range(16):
            if number:
                opened.keyboard.press("Tab")
            seen.append(opened.evaluate(focused))
            outline = opened.evaluate(
                """() => {
                    const one = document.activeElement;
                    const shown = one.name === "interval" ? one.nextElementSibling : one;
                    const style = getComputedStyle(shown);
                    return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
                }"""
            )
            assert outline, seen[-1]
        assert seen[0] == "Skip to the panels"
        order = ["project", "zone", "theme", "sign-out", "functions-body", "range", "status", "text", "hold", "lines"]
        assert [name for name in seen if name in order] == order
        opened.locator("input[value='1hr']").focus()
        opened.keyboard.press("ArrowRight")
        expect(opened.locator("#families-span")).to_contain_text("last day")
        opened.locator("#hold").focus()
        opened.keyboard.press("Space")
        expect(opened.locator("#hold")).to_have_attribute("aria-pressed", "true")
        opened.locator("#entries summary").first.focus()
        opened.keyboard.press("Enter")
        expect(opened.locator("#entries .whole").first).to_be_visible()
        opened.locator("#theme").focus()
        before = opened.evaluate("document.documentElement.dataset.theme")
        opened.keyboard.press("Enter")
        assert opened.evaluate("document.documentElement.dataset.theme") != before


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(400, 860), (1180, 900), (1440, 900), (1920, 1080)])
def test_it_reads_well_at_every_width_in_both_schemes(shown: Shown, width: int, height: int, scheme: Any) -> None:
    size: Any = {"width": width, "height": height}
    with shown.open(viewport=size, color_scheme=scheme, reduced_motion="reduce") as page:
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
        expect(page.locator("#complete")).to_contain_text("ago")
        wait_for("the charts", lambda: min(painted(page, f"{c}-chart") for c in ("counts", "times", "families")) > 20)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.getAnimations().length") == 0
        page.screenshot(path=screen(f"{width}-{scheme}"), full_page=True)
