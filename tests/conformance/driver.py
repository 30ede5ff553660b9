"""The suite's side of the driver protocol: starts a driver program and talks to it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from daemon_process import BUILD

COMMANDS = {
    "python": [sys.executable, str(Path(__file__).with_name("python_driver.py"))],
    "cpp": [str(BUILD / "tools/conformance_driver")],
}
_ANSWER_S = 120.0


class Refused(Exception):
    """The client answered with an error."""

    def __init__(self, error: dict) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: str = error["code"]
        self.message: str = error["message"]
        self.more = error


class Driver:
    """One client process.

    Parameters
    ----------
    client : str
        ``"python"`` or ``"cpp"``.
    address : str
        The daemon's runtime directory.
    user : int
        Run as this user and group.
    prefix : sequence of str
        Words before the program's command line, such as ``("unshare", "--pid", "--fork")``.
    environment : dict
        More variables.
    """

    def __init__(
        self,
        client: str,
        address: str,
        user: int | None = None,
        prefix: Sequence[str] = (),
        **environment: str,
    ) -> None:
        variables = {**os.environ, "FEEDWATER_ADDRESS": address, **environment}
        self.client = client
        self.process = subprocess.Popen(
            [*prefix, *COMMANDS[client]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
            **({} if user is None else {"user": user, "group": user, "extra_groups": []}),
        )
        self._answers: queue.Queue = queue.Queue()
        self._sent = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # killed in the midst of an answer
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def send(self, op: str, loader: str | None = "a", **fields) -> int:
        """Send a request without waiting for its answer."""
        self._sent += 1
        request = {"id": self._sent, "op": op, "loader": loader, **fields}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._sent

    def answer(self, number: int) -> dict:
        """Wait for the answer to a request, and return its result.

        Raises
        ------
        Refused
            The client answered with an error.
        """
        answer = self._answers.get(timeout=_ANSWER_S)
        if answer is None:
            raise RuntimeError(f"the driver ended with status {self.process.wait()}")
        assert answer["id"] == number, answer
        if not answer["ok"]:
            raise Refused(answer["error"])
        return answer["result"]

    def call(self, op: str, loader: str | None = "a", **fields) -> dict:
        """Send a request and wait for its result."""
        return self.answer(self.send(op, loader, **fields))

    def open(self, pipeline: str, loader: str = "a", **options) -> dict:
        """Open a loader; return its facts."""
        return self.call("open", loader, pipeline=pipeline, **options)

    def batches(self, loader: str = "a", count: int = 0, **options) -> list[dict]:
        """Take batches: all of the epoch, or `count`."""
        return self.call("next", loader, count=count, **options)["batches"]

    def state(self, loader: str = "a") -> dict:
        """Return the loader's state."""
        return self.call("state", loader)["state"]

    def kill(self) -> None:
        """End the process without a warning."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Let the process end by itself; sanitizers tell leaks by its status."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                status = self.process.wait(30)
                assert status == 0, f"the driver ended with status {status}"
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self.process.stdout.close()


def output(batch: dict, name: str) -> dict:
    """Return one output of a batch."""
    return next(one for one in batch["outputs"] if one["name"] == name)


def values(batches: list[dict], name: str) -> list:
    """Return the elements of an output over some batches, as one list."""
    return [x for batch in batches for x in output(batch, name)["values"]]


def digests(batches: list[dict]) -> list[tuple]:
    """Return what two runs must have in common: every byte of every batch."""
    return [(b["epoch"], b["samples"], *(one["sha256"] for one in b["outputs"])) for b in batches]
