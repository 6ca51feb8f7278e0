"""A Jupyter kernel whose loop is ours: the line that `docs/loop.md` gives for its specification."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")

CODE = """
import asyncio
async def later():
    await asyncio.sleep(0.001)
    return type(asyncio.get_running_loop())
print((await later()).__module__.partition(".")[0], await later())
"""


def _specification() -> dict[str, object]:
    block = re.search(r'```json\n(\{\s*"argv".*?)```', (ROOT / "docs/loop.md").read_text(), re.DOTALL)
    assert block is not None
    specification: dict[str, object] = json.loads(block[1])
    return specification


def test_a_kernel_runs_on_our_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tmp_path / "kernels" / "ropewalk"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(_specification()))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    manager, connection = client.manager.start_new_kernel(kernel_name="ropewalk", startup_timeout=60)
    try:
        said: list[str] = []
        connection.execute_interactive(
            CODE,
            timeout=60,
            output_hook=lambda message: said.append(message["content"].get("text", "")),
        )
    finally:
        connection.stop_channels()
        manager.shutdown_kernel(now=True)
    assert "".join(said).startswith("ropewalk <class 'ropewalk.")
