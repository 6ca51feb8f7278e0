"""What `make demo-serve` runs: a server of tools, called from two languages and by an agent's protocol, then ended."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ropewalk.client import CallInvalid, Client

EXAMPLES = Path(__file__).parent
#: Seconds that any step may take.
PATIENCE = 150
#: A call and a stream, in JavaScript.
NODE = """
const response = await fetch(`${process.env.ROPEWALK_URL}/v1/tools/add`, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ a: 2, b: 3 }),
});
console.log("add:", await response.json());
const stream = await fetch(`${process.env.ROPEWALK_URL}/v1/tools/primes`, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ above: 99950 }),
});
let lines = "";
for await (const text of stream.body.pipeThrough(new TextDecoderStream())) lines += text;
console.log("primes:", ...lines.trim().split("\\n"));
"""


class Served:
    """The command `ropewalk serve` while it runs."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ropewalk", "serve", str(EXAMPLES / "tools.py"), "--http", "127.0.0.1:0"],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self.url = self._find(r"at (http://\S+) ")
        except BaseException:
            self.end(signal.SIGKILL)
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)
            say(line.rstrip())

    def _find(self, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, "".join(self._lines))):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the server did not start")
            time.sleep(0.01)
        return found[1]

    def wait_ready(self) -> None:
        """Asks `/readyz` until it says 200."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=PATIENCE) as answer:
                    answer.read()
                self._find("(ready after)")
                return
            except urllib.error.HTTPError as error:
                error.close()
                if time.monotonic() > deadline:
                    raise SystemExit("the server did not become ready") from None
            time.sleep(0.01)

    def end(self, number: signal.Signals) -> int:
        """Sends a signal, and returns the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


@contextmanager
def served() -> Iterator[Served]:
    """A server, which does not outlive the demo."""
    server = Served()
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


def say(line: str) -> None:
    """Prints a line of what happens."""
    print(f"  {line}", flush=True)


def step(title: str) -> None:
    """Prints what comes next."""
    print(title, flush=True)


def hold(said: object, expected: object) -> None:
    """Ends the demo if something is not as it should be."""
    if said != expected:
        raise SystemExit(f"expected {expected!r}, and got {said!r}")


def run(command: list[str], folder: Path = EXAMPLES, environment: dict[str, str] | None = None) -> str:
    """Runs a program, and returns what it prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def by_curl(url: str) -> None:
    """A call from a shell."""
    if shutil.which("curl") is None:
        say("skipped: no curl here")
        return
    command = [
        "curl",
        "-sS",
        f"{url}/v1/tools/add",
        "-H",
        "content-type: application/json",
        "-d",
        '{"a": 2, "b": 3}',
    ]
    said = run(command)
    say(f'$ curl {url}/v1/tools/add --json \'{{"a": 2, "b": 3}}\'   ->   {said}')
    hold(json.loads(said), 5)


def by_python(url: str) -> None:
    """A call, wrong arguments, and a stream, by the client of this package."""
    with Client(url) as client:
        length = client.call("length", points=[{"x": 0, "y": 0}, {"x": 3, "y": 4}])
        say(f"client.call('length', points=...)   ->   {length}")
        hold(length, 5.0)
        try:
            client.call("add", a="two")
        except CallInvalid as error:
            say(f"client.call('add', a='two')   ->   CallInvalid: {error}")
        else:
            raise SystemExit("wrong arguments were accepted")
        primes = list(client.stream("primes", above=99_950))
        say(f"client.stream('primes', above=99_950)   ->   {primes}")
        hold(primes, [99961, 99971, 99989, 99991])


def by_another_language(url: str) -> None:
    """A few lines in Node, or the example in Go, which may take a minute to compile."""
    environment = os.environ | {"ROPEWALK_URL": url}
    environment.pop("ROPEWALK_TOKEN", None)
    if shutil.which("node"):
        said = run(["node", "--input-type=module", "--eval", NODE], environment=environment)
        say("$ node --eval ...")
    elif shutil.which("go"):
        said = run(["go", "run", "."], EXAMPLES / "clients" / "go", environment)
        say("$ go run ./examples/clients/go")
    else:
        say("skipped: neither Node nor Go here")
        return
    for line in said.splitlines():
        say(line)
    hold(said.splitlines()[0], "add: 5")


def by_mcp(url: str) -> None:
    """A call as agents make it: by the official client if it is installed, else by its messages."""
    try:
        from mcp import Client as Agent
    except ImportError:
        by_messages(url)
        return

    async def call() -> object:
        async with Agent(f"{url}/mcp") as agent:
            say(f"tools: {', '.join(tool.name for tool in (await agent.list_tools()).tools)}")
            return (await agent.call_tool("add", {"a": 2, "b": 3})).structured_content

    result = asyncio.run(call())
    say(f"the client of the MCP SDK: add   ->   {result}")
    hold(result, {"result": 5})


def by_messages(url: str) -> None:
    """The same by a message of JSON-RPC."""
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 2, "b": 3}},
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
    }
    request = urllib.request.Request(f"{url}/mcp", json.dumps(call).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        text = answer.read().decode()
    result = json.loads(text[text.index("{") :])["result"]["structuredContent"]
    say(f"POST /mcp tools/call add   ->   {result}   (the SDK is not installed)")
    hold(result, {"result": 5})


def in_a_browser(url: str) -> None:
    """The dashboard, in a browser without a window."""
    try:
        with urllib.request.urlopen(f"{url}/", timeout=PATIENCE) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        say(f"skipped: the server has no dashboard ({error.code})")
        return
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        say("skipped: no Chromium here")
        return
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--timeout=5000"]
    page = run([browser, *flags, "--dump-dom", f"{url}/"])
    title = re.search(r"<title>(.*?)</title>", page)
    say(
        f"{Path(browser).name} shows {url}/   ->   {title[1] if title else 'no title'}, {len(page)} characters"
    )
    hold("ropewalk" in page.lower(), True)


def main() -> None:
    """Every step; the first that fails ends it with a status other than 0."""
    step("ropewalk serve examples/tools.py")
    with served() as server:
        server.wait_ready()
        for title, call in (
            ("From a shell", by_curl),
            ("From Python", by_python),
            ("From another language", by_another_language),
            ("From an agent", by_mcp),
            ("The dashboard", in_a_browser),
        ):
            step(title)
            call(server.url)
        step("The end: SIGTERM, which answers what has begun")
        status = server.end(signal.SIGTERM)
        say(f"exit status {status}")
        hold(status, 0)


if __name__ == "__main__":
    main()
