"""A Chromium without a screen, and what the tests of pages ask of it."""

import contextlib
import shutil
import time

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@contextlib.contextmanager
def chromium():
    """Yields a Chromium; skips where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def until(page, expression, seconds=20):
    """Waits until an expression is true; Playwright's own way of waiting is stopped by the page's policy."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression} is not true after {seconds} s"
        page.wait_for_timeout(50)


def processor_time(page, script):
    """Runs a script in a page and returns the processor seconds that its main thread took, whoever else is busy."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def used():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    begun = used()
    page.evaluate(script)
    seconds = used() - begun
    session.detach()
    return seconds
