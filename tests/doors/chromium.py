"""Drives a headless Chromium over its debugging pipe: no driver, no port, no further package."""

import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run --hide-scrollbars --allow-pre-commit-input --remote-debugging-pipe"
)

_LOAD_SECONDS = 180.0


class Tab:
    """One page. `console` holds what the browser complained about, refusals by the security policy included."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = os.fdopen(answers, "rb")
        self._count = 0
        self._session = ""
        self.console: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        heard = self._ask(method, **params)
        assert "error" not in heard, heard
        result: dict[str, Any] = heard["result"]
        return result

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._count:
                return heard

    def _hear(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "chromium went away"
            text += byte
        heard: dict[str, Any] = json.loads(text)
        if heard.get("method") == "Log.entryAdded":
            self.console.append(heard["params"]["entry"]["text"])
        elif heard.get("method") == "Runtime.exceptionThrown":
            self.console.append(json.dumps(heard["params"]))
        return heard

    def open(self, url: str) -> None:
        self._leave(lambda: self.call("Page.navigate", url=url))

    def _leave(self, how: Callable[[], object]) -> None:
        """Until another page is there, and not just this one still."""
        self.value("window.left = 1")
        how()
        until = time.monotonic() + _LOAD_SECONDS
        while not self._arrived():
            assert time.monotonic() < until, "no other page came"
            time.sleep(0.02)
        # what asked for the focus has it, and keys are heard, once a frame was drawn
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def _arrived(self) -> bool:
        script = "window.left === undefined && document.readyState === 'complete'"
        heard = self._ask("Runtime.evaluate", expression=script)
        # between two pages there is nobody who could be asked
        return "result" in heard and heard["result"]["result"].get("value") is True

    def value(self, script: str) -> Any:
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return done["result"].get("value")

    def submit(self, selector: str) -> None:
        """Click what leads to another page, and wait for that."""
        self._leave(lambda: self.value(f"document.querySelector({selector!r}).click()"))

    def enter(self) -> None:
        """Press what leads to another page, and wait for that."""
        self._leave(lambda: self.press("Enter", "\r"))

    def press(self, key: str, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text if kind == "keyDown" else "")

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self._answers.close()
        os.close(self._commands)


@contextmanager
def chromium(profile: Path) -> Iterator[Tab]:
    """The browser reads commands at descriptor 3 and answers at 4; a shell puts ours there."""
    binary = shutil.which("chromium")
    assert binary, "these tests need Debian's chromium: scripts/test-needs installs it"
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    script = f'exec "$0" {_FLAGS} "--user-data-dir=$1" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        ["bash", "-c", script, binary, str(profile)],
        pass_fds=(theirs_in, theirs_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    tab = Tab(ours_out, ours_in)
    try:
        yield tab
    finally:
        tab.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
