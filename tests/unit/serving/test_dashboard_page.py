"""The dashboard in Chromium: what it shows, what its buttons do, for eyes, keyboards and readers of the screen.

With `ROPEWALK_SCREENSHOTS=FOLDER` it leaves pictures there: see `make dashboard-screenshots`.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ropewalk.serving import Server

pytest.importorskip("pydantic")
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe is not installed")

playwright.expect.set_options(timeout=60_000)
CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
if CHROMIUM is None:
    pytest.skip("there is no Chromium", allow_module_level=True)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP, PHONE = (1280, 860), (390, 844)
TOOLS = """
import time
from pathlib import Path

from ropewalk.serving import tool
from tests.tasks import Gate

@tool
def resize_image(width: int, folder: str = "") -> int:
    until, rounds = time.perf_counter() + width / 1e6, 0
    while time.perf_counter() < until or (folder and not (Path(folder) / "open").exists()):
        rounds += blur(width)
        if folder and rounds < 10**9:
            Gate(Path(folder)).mark("spins")
            rounds += 10**9
    return rounds

def blur(width: int) -> int:
    return sum(one * one % 7 for one in range(width))

@tool
def look_up(word: str) -> int:
    return {"rope": 4, "walk": 4}[word]

@tool
def embed(text: str) -> list[float]:
    return [ord(letter) / 128 for letter in text]
"""


def call(server: Server, name: str, **arguments: Any) -> None:
    body = json.dumps(arguments).encode()
    request = urllib.request.Request(
        f"http://{server.http}/v1/tools/{name}", body, {"Content-Type": "application/json"}
    )
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except urllib.error.HTTPError as error:
        error.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "tools_of_the_page.py"
    file.write_text(TOOLS)
    return file


@pytest.fixture(scope="module")
def server(app: Path) -> Iterator[Server]:
    with Server(app, http="127.0.0.1:0", workers=2) as made:
        assert made.wait_ready(60)
        for _ in range(5):
            call(made, "embed", text="rope")
            call(made, "resize_image", width=2000)
        call(made, "look_up", word="knot")
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield made
        made.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens the dashboard of a server; a script or policy that fails, fails the test."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def opened(server: Server, size: tuple[int, int] = DESKTOP, scheme: str = "light", **more: Any) -> Any:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            reduced_motion="reduce",
            **more,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text)
                # What a lost server, or a missing token, makes the browser say.
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        page.goto(f"http://{server.http}/")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong, wrong


def is_live(page: Any) -> None:
    playwright.expect(page.locator("#connection")).to_have_text("live")
    playwright.expect(page.locator("#pools tbody tr").first).to_be_visible()


def violations(page: Any) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {[node['html'][:150] for node in one['nodes']]}" for one in found]


def picture(page: Any, name: str) -> None:
    folder = os.environ.get("ROPEWALK_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"dashboard-{name}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_everybody_can_read_it(
    server: Server, open_page: Callable[..., Any], size: tuple[int, int], scheme: str
) -> None:
    page = open_page(server, size, scheme)
    is_live(page)
    failure = page.locator("#failures details").first
    failure.locator("summary").click()
    assert "in look_up" in failure.locator("pre").inner_text()
    assert not violations(page)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= size[0], "nothing is wider than the screen"
    failure.locator("summary").click()
    # The page says what the server knows.
    assert {"embed", "resize_image", "look_up"} == set(page.locator("#tools th").all_inner_texts())
    page.get_by_role("button", name="Stack of worker tools/1").click()
    playwright.expect(page.locator(".thread").first).to_be_visible()
    assert not violations(page)


def test_it_lives(server: Server, open_page: Callable[..., Any]) -> None:
    page = open_page(server)
    is_live(page)
    row = page.locator("#tools tr", has=page.locator("th", has_text="embed"))
    before = int(row.locator("td").nth(7).inner_text())
    for _ in range(3):
        call(server, "embed", text="walk")
    playwright.expect(row.locator("td").nth(7)).to_have_text(str(before + 3))
    assert "calls a second" in page.locator("#throughput desc").text_content()
    assert "took up to" in page.locator("#latency desc").text_content()


def test_stack_and_flame_show_where_a_worker_is(
    server: Server, open_page: Callable[..., Any], gate: Any
) -> None:
    page = open_page(server)
    is_live(page)
    arguments = {"width": 5000, "folder": str(gate.folder)}
    caller = threading.Thread(target=lambda: call(server, "resize_image", **arguments))
    caller.start()
    row = page.locator("#pools tbody tr", has=page.locator("[data-state=busy]"))
    playwright.expect(row.locator(".task")).to_contain_text("resize_image for")
    number = row.locator("th").inner_text()
    page.get_by_role("button", name=f"Stack of worker tools/{number}").click()
    playwright.expect(page.locator(".thread").first).to_contain_text("resize_image")
    page.keyboard.press("Escape")
    playwright.expect(page.locator("#look")).to_be_hidden()
    page.get_by_role("button", name=f"Flame of worker tools/{number}").click()
    box = page.locator("#flame g", has_text="resize_image").first
    playwright.expect(box).to_be_visible()
    assert not violations(page)
    picture(page, "flame")
    box.click()
    page.mouse.move(1, 1)
    top = page.locator("#flame g").first
    playwright.expect(top).to_be_focused()
    assert top.get_attribute("aria-label").startswith("resize_image (")
    # By keys: down to what it called, and back out.
    page.keyboard.press("ArrowDown")
    playwright.expect(page.locator("#flame-at")).not_to_contain_text("resize_image (")
    page.keyboard.press("Backspace")
    playwright.expect(top).to_be_focused()
    assert not top.get_attribute("aria-label").startswith("resize_image (")
    gate.open()
    caller.join(60)


def test_a_lost_connection_is_shown_and_comes_back(app: Path, open_page: Callable[..., Any]) -> None:
    with Server(app, http="127.0.0.1:0", workers=1) as first:
        assert first.wait_ready(60)
        page = open_page(first)
        is_live(page)
        address = first.http
    playwright.expect(page.locator("#connection")).to_have_text("connection lost")
    playwright.expect(page.locator("#lost")).to_contain_text("What you see is as of")
    with Server(app, http=address, workers=1) as second:
        assert second.wait_ready(60)
        playwright.expect(page.locator("#connection")).to_have_text("live")
        playwright.expect(page.locator("#lost")).to_be_hidden()


def test_orders_are_confirmed(app: Path, open_page: Callable[..., Any]) -> None:
    with Server(app, http="127.0.0.1:0", workers=1) as server:
        assert server.wait_ready(60)
        page = open_page(server)
        is_live(page)
        page.get_by_role("button", name="Recycle worker tools/1").click()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Resize").click()
        page.locator("#ask-input").fill("2")
        assert not violations(page)
        page.locator("#ask-yes").click()
        playwright.expect(page.locator("#pools .facts")).to_contain_text("2 of 2 ready")
        page.get_by_role("button", name="Recycle worker tools/1").click()
        page.locator("#ask-yes").click()
        playwright.expect(page.locator("#pools .facts")).to_contain_text("1 asked")
        page.get_by_role("button", name="Drain").click()
        page.locator("#ask-yes").click()
        playwright.expect(page.locator("#connection")).to_have_text("connection lost")


def test_a_token_is_asked_for_and_stays_in_the_tab(
    app: Path, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("token-secret-of-all\n")
    with Server(app, http="127.0.0.1:0", workers=1, token_file=tmp_path / "tokens") as server:
        assert server.wait_ready(60)
        page = open_page(server)
        for token in ("wrong", "token-secret-of-all"):
            playwright.expect(page.locator("#login")).to_be_visible()
            page.locator("#login-token").fill(token)
            page.keyboard.press("Enter")
        is_live(page)
        page.reload()
        is_live(page)
        assert page.evaluate("[localStorage.length, document.cookie.length]") == [0, 0]


def test_keys_reach_everything(server: Server, open_page: Callable[..., Any]) -> None:
    page = open_page(server)
    is_live(page)
    page.keyboard.press("Tab")
    playwright.expect(page.get_by_role("link", name="Skip to the numbers")).to_be_focused()
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).slice(0, 60)"
        )
        seen.append(name)
    for wanted in (
        "Drain",
        "Resize",
        "Stack of worker tools/1",
        "Flame of worker tools/2",
        "Recycle worker tools/2",
    ):
        assert wanted in seen, (wanted, seen)
    # A dialog takes the focus, and gives it back.
    button = page.get_by_role("button", name="Stack of worker tools/2")
    button.focus()
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#look")).to_be_visible()
    assert page.evaluate("document.querySelector('#look').contains(document.activeElement)")
    page.keyboard.press("Escape")
    playwright.expect(button).to_be_focused()


@pytest.mark.skipif("ROPEWALK_SCREENSHOTS" not in os.environ, reason="make dashboard-screenshots")
def test_pictures(app: Path, open_page: Callable[..., Any]) -> None:
    """A busy server, in four pictures."""
    import random
    import time

    with Server(app, http="127.0.0.1:0", workers=4) as server:
        assert server.wait_ready(60)
        until = time.monotonic() + 75

        def callers() -> None:
            while time.monotonic() < until:
                chance = random.random()
                if chance < 0.5:
                    call(server, "embed", text="rope" * 20)
                elif chance < 0.985:
                    call(server, "resize_image", width=random.choice([1000, 3000, 9000, 40_000]))
                else:
                    call(server, "look_up", word=random.choice(["rope", "knot", "hemp"]))
                time.sleep(random.random() * 0.02)

        threads = [threading.Thread(target=callers) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(60)
        for size, scheme, name in (
            (DESKTOP, "light", "light"),
            (DESKTOP, "dark", "dark"),
            (PHONE, "dark", "phone"),
        ):
            page = open_page(server, size, scheme)
            is_live(page)
            time.sleep(3)
            picture(page, name)
        for thread in threads:
            thread.join()
