"""Opens every page of the site in Chromium, on a desktop in the light theme and on a phone in the dark one.

    make site && python tools/site.py [FOLDER]

It prints what is wrong, and then ends with exit code 1: a page that scrolls sideways, an error of the browser, a
request to another host, a picture that is broken or has no text, headings out of order, a theme that is not kept, a
search that finds nothing. It needs selenium, chromium and chromedriver.
"""

import contextlib
import functools
import itertools
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

SCREENS = {"default": (1280, 900), "slate": (390, 800)}  # ReportData's names of the light theme and of the dark one
LOOK = """
const images = [...document.querySelectorAll(".md-content img")];
const foreign = performance.getEntriesByType("resource").filter((one) => !one.name.startsWith(location.origin));
return {
  theme: document.body.dataset.mdColorScheme,
  "too wide": document.documentElement.scrollWidth > innerWidth,
  "broken pictures": images.filter((one) => !(one.complete && one.naturalWidth)).map((one) => one.src),
  "pictures without a text": images.filter((one) => !one.alt).map((one) => one.src),
  "requests to other hosts": foreign.map((one) => one.name),
  levels: [...document.querySelectorAll(".md-content :is(h1, h2, h3, h4)")].map((one) => Number(one.tagName[1])),
};
"""
CHOOSE = "document.querySelector(`input[name=__palette][data-md-color-scheme=${arguments[0]}]`).click()"
SEARCH = """
document.querySelector("[data-md-component=search-query]").focus();
document.querySelector("[data-md-component=search-query]").value = arguments[0];
document.querySelector("[data-md-component=search-query]").dispatchEvent(new Event("keyup", { bubbles: true }));
"""
FOUND = "return [...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder, over HTTP: the search needs it."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def faults(driver: webdriver.Chrome, theme: str) -> dict[str, Any]:
    """What is wrong with the page that is open, each by its name."""
    seen = driver.execute_script(LOOK)
    levels, shown = seen.pop("levels"), seen.pop("theme")
    steps = [after - before for before, after in itertools.pairwise(levels)]
    return {
        "another theme": shown if shown != theme else None,
        "headings": levels if levels.count(1) != 1 or levels[0] != 1 or max(steps, default=0) > 1 else None,
        "errors": [entry["message"] for entry in driver.get_log("browser")],
        **seen,
    }


def main(folder: Path) -> int:
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html") if path.name != "404.html")
    if not pages:
        print(f"{folder} has no pages: make them with `make site`")
        return 1
    wrong: list[str] = []
    driver = browser()
    try:
        with served(folder) as address:
            for theme, (width, height) in SCREENS.items():
                shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
                driver.get(f"{address}/index.html")
                driver.execute_script(CHOOSE, theme)  # once: the other pages keep it
                for page in pages:
                    driver.get(f"{address}/{page}")
                    found = {name: what for name, what in faults(driver, theme).items() if what}
                    wrong += [f"{page}, {width} px: {name}: {what}" for name, what in found.items()]
            driver.execute_script(SEARCH, "alibi")
            WebDriverWait(driver, 20).until(lambda _: driver.execute_script(FOUND))
    except TimeoutException:
        wrong.append("the search finds no page on ALiBi")
    finally:
        driver.quit()
    print(*wrong, f"pages, each opened twice: {len(pages)}; faults: {len(wrong)}", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else "site")))
