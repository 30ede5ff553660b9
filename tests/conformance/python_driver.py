"""The Python client behind the driver protocol of README.md."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import logging
import os
import sys
from typing import Any

import numpy as np

import feedwater
from feedwater import outputs
from feedwater.feed import BegunBatch
from feedwater.stream import Batch

outputs.SMALL_BYTES = 0  # the small records of the tests are lent as large ones are


class Recorder(feedwater.Loader):
    """A loader whose batches come with the daemon's message, which a program has no need of."""

    def _show(self, batch: Batch | BegunBatch) -> Any:
        return batch.ready, super()._show(batch)


class Told(logging.Handler):
    """What the client warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Driven:
    """A loader and its running iteration."""

    def __init__(self, loader: Recorder, warning: str) -> None:
        self.loader = loader
        self.warning = warning
        self.iterator = None


class Driver:
    """Does requests."""

    def __init__(self) -> None:
        self._driven: dict[str, Driven] = {}
        self._held: dict[tuple[str, str], list] = {}

    def do(self, request: dict) -> dict:
        """Return the result of a request."""
        operation = getattr(self, "do_" + str(request.get("op")), None)
        if operation is None:
            raise feedwater.Error(f"unknown op {request.get('op')!r}", code="UNIMPLEMENTED")
        options = {key: value for key, value in request.items() if value is not None}
        options.pop("id", None)
        options.pop("op")
        return operation(**options) or {}

    def _get(self, loader: str) -> Driven:
        if loader not in self._driven:
            raise feedwater.NotFound(f"no loader {loader!r}")
        return self._driven[loader]

    def do_hello(self) -> dict:
        return {"client": f"python {feedwater.__version__}", "protocol": 1}

    def do_exit(self) -> None:
        for driven in self._driven.values():
            driven.loader.close()

    def do_open(self, loader: str, pipeline: str, state: Any = None, **options: Any) -> dict:
        told = Told()
        logging.getLogger("feedwater").addHandler(told)
        try:
            opened = Recorder(pipeline, output="numpy", as_dict=True, **options)
        finally:
            logging.getLogger("feedwater").removeHandler(told)
        self._driven[loader] = Driven(opened, "; ".join(told.texts))
        if state is not None:
            opened.load_state_dict(state)
        return self.do_info(loader)

    def do_info(self, loader: str) -> dict:
        x = self._get(loader).loader
        return {
            "job": x.job,
            "rank": x.rank,
            "world_size": x.world_size,
            "local_rank": x.local_rank,
            "batch_size": x.batch_size,
            "seed": x.seed,
            "records": len(x.dataset),
            "steps_per_epoch": len(x),
            "samples_per_epoch": len(x.sampler),
            "classes": x.classes,
            "slots": x.stats()["slots"],
            "epoch": x.epoch,
            "warning": self._get(loader).warning,
            "position": x.state_dict()["position"],
            "fields": [
                {"name": name, "dtype": field.dtype_name, "shape": list(field.shape)}
                for name, field in x.fields.items()
            ],
        }

    def do_next(self, loader: str, count: int = 1, hold: str | None = None, values=()) -> dict:
        driven = self._get(loader)
        if driven.iterator is None:
            driven.iterator = iter(driven.loader)
        batches, end = [], False
        while count == 0 or len(batches) < count:
            try:
                ready, outputs = next(driven.iterator)
            except StopIteration:
                driven.iterator = None
                end = True
                break
            batches.append(describe(ready, outputs, values))
            if hold is not None:
                self._held.setdefault((loader, hold), []).append((ready, outputs))
            del outputs
        return {"batches": batches, "end": end}

    def do_release(self, loader: str, hold: str) -> None:
        self._held.pop((loader, hold), None)

    def do_held(self, loader: str, hold: str, values=()) -> dict:
        batches = self._held.get((loader, hold))
        if batches is None:
            raise feedwater.NotFound(f"nothing is held under the name {hold!r}")
        return {"batches": [describe(ready, outputs, values) for ready, outputs in batches]}

    def do_restart(self, loader: str) -> None:
        self._get(loader).iterator = None

    def do_state(self, loader: str) -> dict:
        return {"state": self._get(loader).loader.state_dict()}

    def do_load(self, loader: str, state: Any) -> None:
        driven = self._get(loader)
        driven.loader.load_state_dict(state)
        driven.iterator = None

    def do_set_epoch(self, loader: str, epoch: int) -> None:
        driven = self._get(loader)
        driven.loader.set_epoch(epoch)
        driven.iterator = None

    def do_skip(self, loader: str, first: int, last: int, epoch: int | None = None) -> None:
        self._get(loader).loader.skip(first, last, epoch=epoch)

    def do_replay(self, loader: str, step: int, epoch: int | None = None, values=()) -> dict:
        ready, outputs = self._get(loader).loader.replay(step, epoch=epoch)
        return {"batch": describe(ready, outputs, values)}

    def do_stale(self, loader: str, hold: str) -> dict:
        batches = self._held.pop((loader, hold))
        addresses = [
            (out.values if isinstance(out, feedwater.Ragged) else out).ctypes.data
            for _, outputs in batches
            for out in outputs.values()
        ]
        del batches
        gc.collect()
        return {"bytes": [ctypes.string_at(address, 1)[0] for address in addresses]}

    def do_forked(self, loader: str, hold: str) -> None:
        child = os.fork()
        if child == 0:
            self._held.pop((loader, hold))
            del self._driven[loader]
            gc.collect()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            raise feedwater.Error(f"the child ended with status {status}")

    def do_stats(self, loader: str) -> dict:
        return self._get(loader).loader.stats()

    def do_close(self, loader: str) -> None:
        self._get(loader).loader.close()
        del self._driven[loader]


def describe(ready: Any, outputs: dict[str, np.ndarray], values) -> dict:
    """Return what the suite compares of a batch."""
    described = []
    for name, output in outputs.items():
        array = output.values if isinstance(output, feedwater.Ragged) else output
        one = {
            "name": name,
            "shape": list(array.shape),
            "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
        }
        if isinstance(output, feedwater.Ragged):
            one["offsets"] = output.offsets.tolist()
        if name in values:
            one["values"] = array.reshape(-1).tolist()
        described.append(one)
    return {
        "epoch": ready.epoch,
        "step": ready.step,
        "samples": ready.samples,
        "real_samples": ready.real_samples,
        "substituted": ready.substituted,
        "skipped": ready.skipped,
        "outputs": described,
    }


def failure(error: feedwater.Error) -> dict:
    """Return what the suite compares of an error."""
    told = {"code": error.code, "message": str(error)}
    for name in ("state", "record", "path", "reason"):
        if hasattr(error, name):
            told[name] = getattr(error, name)
    if isinstance(error, feedwater.NotServed):
        told["not_served"] = True
    return told


def main() -> None:
    """Answer requests until the end."""
    driver = Driver()
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"id": request.get("id"), "ok": True}
        try:
            answer["result"] = driver.do(request)
        except feedwater.Error as error:
            answer = {"id": request.get("id"), "ok": False, "error": failure(error)}
        print(json.dumps(answer), flush=True)
        if request.get("op") == "exit":
            return


if __name__ == "__main__":
    main()
