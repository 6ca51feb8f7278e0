"""The servers of the suite `serving`, each in a process of its own.

    python -m harness.serving_servers CONTENDER PROTOCOL SETTING

Prints its port once it has answered. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from harness.serving import BODY, PATIENCE, WORKERS

TOOLS = str(Path(__file__).with_name("serving_tools.py"))


def echo(text: str) -> dict[str, str]:
    """Run by the executors of the peers."""
    return {"text": text}


def _free() -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    return made


def _port() -> int:
    with _free() as made:
        port: int = made.getsockname()[1]
        return port


def _say_when_ready(port: int, path: str = "/v1/tools/echo") -> None:
    """Says the port when the server has answered."""

    def ask() -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{path}", BODY.encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=10):
                    break
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.02)
        print(port, flush=True)

    threading.Thread(target=ask, daemon=True).start()


def _end_with_input() -> None:
    def wait() -> None:
        # Not by `sys.stdin`, whose lock the executors' processes would inherit as it is held here.
        while os.read(0, 1024):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _ropewalk(setting: str) -> None:
    from ropewalk.serving import Server

    text = {
        "one": "[pools.all]\nworkers = 1\n",
        "small": f"[pools.all]\nworkers = {WORKERS}\ncapacity = 100\n",
    }.get(setting, f"[pools.all]\nworkers = {WORKERS}\n")
    text = f'default = "all"\n{text}[pools.heavy]\nworkers = 1\ncapacity = 4\n'
    if setting == "patient":
        text += "[serve]\nhead_timeout = '10 min'\n"
    Path("serve.toml").write_text(text, encoding="ascii")
    with Server(TOOLS, http="127.0.0.1:0", config="serve.toml") as server:
        server.wait_ready(PATIENCE)
        print((server.http or "").rpartition(":")[2], flush=True)
        sys.stdin.read()


def _executor() -> ProcessPoolExecutor:
    executor = ProcessPoolExecutor(WORKERS)
    # It starts a process for each of the first tasks.
    for ready in [executor.submit(time.sleep, 0.1) for _ in range(WORKERS)]:
        ready.result()
    return executor


def _fastapi() -> None:
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Arguments(BaseModel):
        text: str

    executor = _executor()
    app = FastAPI()

    # Its annotations are looked up in the module, where the class is not.
    async def called(arguments: Any) -> dict[str, str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(executor, echo, arguments.text)

    called.__annotations__["arguments"] = Arguments
    app.post("/v1/tools/echo")(called)
    port = _port()
    _say_when_ready(port)
    uvicorn.run(app, port=port, http="httptools", loop="uvloop", log_level="critical", access_log=False)


_EXECUTOR: ProcessPoolExecutor | None = None


async def application(scope: Any, receive: Any, send: Any) -> None:
    """A bare ASGI application, for granian."""
    global _EXECUTOR
    if scope["type"] != "http":
        return
    if _EXECUTOR is None:
        _EXECUTOR = _executor()
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    loop = asyncio.get_running_loop()
    said = await loop.run_in_executor(_EXECUTOR, echo, json.loads(body)["text"])
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


def _granian() -> None:
    from granian import Granian
    from granian.constants import Interfaces

    port = _port()
    _say_when_ready(port)
    Granian(
        "harness.serving_servers:application",
        address="127.0.0.1",
        port=port,
        interface=Interfaces.ASGI,
        log_enabled=False,
    ).serve()


def _litserve() -> None:
    from harness.serving_litserve import Echo, litserve

    port = _port()
    _say_when_ready(port)
    api = Echo(api_path="/v1/tools/echo")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=WORKERS)
    server.run(
        host="127.0.0.1", port=port, generate_client_file=False, log_level="critical", access_log=False
    )


def _ray() -> None:
    from ray import serve

    @serve.deployment(num_replicas=WORKERS)
    class Echo:
        async def __call__(self, request: Any) -> Any:
            return {"text": (await request.json())["text"]}

    port = _port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(Echo.bind(), route_prefix="/v1/tools/echo")  # type: ignore[attr-defined]
    print(port, flush=True)
    threading.Event().wait()


def _grpc() -> None:
    import grpc

    executor = _executor()

    # The frame of the one message that the load sends: the handler reads no protobuf, which is the peer's gain.
    async def execute(request: bytes, _: Any) -> bytes:
        loop = asyncio.get_running_loop()
        said = await loop.run_in_executor(executor, echo, json.loads(request[request.index(b"{") :])["text"])
        value = json.dumps(said).encode()
        value = bytes([0x0A, len(value)]) + value
        return bytes([0x0A, len(value)]) + value

    async def serve() -> None:
        made = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler(
            "ropewalk.v1.Tools", {"Execute": grpc.unary_unary_rpc_method_handler(execute)}
        )
        made.add_generic_rpc_handlers((handler,))
        port = made.add_insecure_port("127.0.0.1:0")
        await made.start()
        print(port, flush=True)
        await made.wait_for_termination()

    asyncio.run(serve())


def _mcp() -> None:
    import uvicorn
    from mcp.server.mcpserver import MCPServer

    made = MCPServer("echo")

    @made.tool()
    def echo(text: str) -> dict[str, str]:
        """Says the text again."""
        return {"text": text}

    port = _port()
    _say_when_ready(port, "/mcp")
    app = made.streamable_http_app(stateless_http=True, json_response=True)
    uvicorn.run(app, port=port, http="httptools", loop="uvloop", log_level="critical", access_log=False)


def main() -> None:
    """Serve until the parent is gone."""
    contender, _, setting = sys.argv[1:4]
    if contender != "ropewalk":
        _end_with_input()
    if contender == "ropewalk":
        _ropewalk(setting)
    elif contender.startswith("FastAPI"):
        _fastapi()
    elif contender.startswith("granian"):
        _granian()
    elif contender == "LitServe":
        _litserve()
    elif contender == "Ray Serve":
        _ray()
    elif contender.startswith("grpc"):
        _grpc()
    elif contender == "MCP SDK":
        _mcp()


if __name__ == "__main__":
    main()
