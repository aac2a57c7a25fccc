"""Debian's Chromium, headless, for the dashboard's tests; what a page must never do is held wherever one is open."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = "chromium"
PATIENCE = 20_000  # ms
_REFUSED = re.compile(r"Failed to load resource: (the server responded with a status of (401|403|503)|net::ERR_)")
_WATCH = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Raises where there is no Chromium, or it does not start: a test that can't look has not passed."""
    path = shutil.which(CHROMIUM)
    assert path, "the dashboard's tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Watched:
    """A page, and what it did that it must not: errors, breaches of its policy, requests of others or with a key."""

    def __init__(self, page: Page, address: str, key: str, may_be_refused: bool) -> None:
        self.page, self._address, self._key, self._may_be_refused = page, address, key, may_be_refused
        self.faults: list[str] = []
        self.asked: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", lambda request: self._request(request.url))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not (self._may_be_refused and _REFUSED.match(message.text)):
            self.faults.append(f"{message.type}: {message.text}")

    def _request(self, url: str) -> None:
        self.asked.append(url)
        if not url.startswith(self._address):
            self.faults.append(f"asked {url}")
        if self._key and self._key in url:
            self.faults.append(f"the key is in {url}")


@contextmanager
def page(browser: Browser, address: str, key: str, *, may_be_refused: bool = False, **options: Any) -> Iterator[Page]:
    """The dashboard at an address, opened; raises at the end where the page did anything that it must not."""
    options.setdefault("viewport", {"width": 1280, "height": 900})
    context = browser.new_context(timezone_id="Europe/Berlin", locale="en-GB", **options)
    try:
        opened = context.new_page()
        opened.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        watched = Watched(opened, address, key, may_be_refused)
        opened.add_init_script(_WATCH)
        opened.goto(address)
        yield opened
        assert opened.evaluate("window.pwned") is None
        assert context.cookies() == []
        assert opened.evaluate("localStorage.length") == 0
        assert not watched.faults, watched.faults
        assert len(watched.asked) > 5
    finally:
        context.close()


def sign_in(page: Page, key: str, project: str = "") -> None:
    """With a key; `project` is typed where the key has no projects of its own."""
    page.locator("#key").fill(key)
    page.keyboard.press("Enter")
    if project:
        page.locator("#project").fill(project)
        page.keyboard.press("Enter")
