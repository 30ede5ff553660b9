#!/usr/bin/env python3
"""A feedwaterd of a few hundred lines, for tests of the client: real sockets, a real sealed arena,
made-up samples.

It runs in threads of the test (`FakeDaemon(directory)`), where its faults can be set, or as a
process of its own that can be killed:

    fake_daemon.py DIRECTORY [--records N] [--delay SECONDS]

The pipeline ``numbers`` delivers the outputs and the records of fake_samples.py.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import mmap
import os
import select
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from fake_asker import Asker
from fake_samples import OUTPUTS, sample

from feedwater import wire
from feedwater.control import DTYPE_NAMES, METHODS, SERVICE, messages
from feedwater.crc32c import crc32c
from feedwater.cursor import Cursor

PAGE = mmap.PAGESIZE
SEALS = 1 | 2 | 4 | 16  # SEAL, SHRINK, GROW, FUTURE_WRITE
DATASET_DIGEST, PIPELINE_DIGEST = "d" * 32, "p" * 32
_STATUS = {code.value[0]: code for code in grpc.StatusCode}


class Packets:
    """The daemon's side of the messages."""

    welcome = struct.Struct("<HHIIHHII16s")
    arena = struct.Struct("<HHIQQII")
    ready = struct.Struct("<HHIIIQQqqIIIIIIq")
    failed = struct.Struct("<HHIIIQqqq256s512sII")
    failed_of_1_0 = struct.Struct("<HHIIIQqqq256s512s")
    closing = struct.Struct("<HHIII512s")
    hello = struct.Struct("<HHIIHHII")
    release = struct.Struct("<HHIIIQ")
    seek = struct.Struct("<HHIIIQq")

    @classmethod
    def pack(cls, kind: int, layout: struct.Struct, *values) -> bytes:
        """Put a header in front."""
        return layout.pack(kind, layout.size, 0, *values)


class Faults:
    """What goes wrong. Set from a test at any time."""

    def __init__(self) -> None:
        self.version = (wire.MAJOR, wire.MINOR)
        self.refuse_open: tuple[int, str] | None = None  # code, text
        self.knows_no_workers = False  # of iterable datasets
        self.refuse_opens = -1  # how many times; -1: always
        self.refuse_details = b""
        self.closing_instead_of_welcome: tuple[int, str] | None = None
        self.fail_at: dict[tuple[int, int], wire.Failed] = {}  # (epoch, step)
        self.wrong_crc_at: set[tuple[int, int]] = set()
        self.flip_a_byte_at: set[tuple[int, int]] = set()  # once each, after the checksum was made
        self.no_crc = False
        self.seals = SEALS
        self.announce_bytes = 0  # added to the announced size
        self.arena_instead: bytes | None = None
        self.substituted_at: dict[tuple[int, int], int] = {}
        self.steps_per_epoch: int | None = None
        self.edit_answer: Callable[[Any], object] = bool  # gets each OpenStreamResponse


class Session(threading.Thread):
    """One connection of a client, from accept to its end."""

    def __init__(self, daemon: FakeDaemon, sock: socket.socket) -> None:
        super().__init__(daemon=True)
        self.daemon_ = daemon
        self.sock = sock
        self.ticket = os.urandom(16)
        self.opening = threading.Lock()  # the arena is being made or given back
        self.opened = False
        self.attached: tuple[str, int] | None = None
        self.ended = threading.Event()
        self.lent: dict[int, int] = {}
        self.asker: Asker | None = None  # the connection is a provider's

    # What the gRPC thread calls.
    def open(self, request, epoch: int, position: int) -> None:
        """Make the arena and begin to produce."""
        with self.opening:  # the client may go as soon as it has seen the arena
            self._open(request, epoch, position)

    def _open(self, request, epoch: int, position: int) -> None:
        d = self.daemon_
        self.batch_size = request.batch_size if request.HasField("batch_size") else d.batch_size
        self.rank, self.world = request.rank, request.world_size
        self.checksum = request.checksum
        self.slots = request.slots or 4
        self.offsets, at = [], 0
        for _, dtype, shape, _ in d.outputs:
            size = np.dtype("u2" if dtype == "bfloat16" else dtype).itemsize
            self.offsets.append(at)
            at = -(-(at + size * math.prod(shape) * self.batch_size) // 64) * 64
        self.slot_bytes = -(-at // PAGE) * PAGE
        fd = os.memfd_create("fake", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, self.slots * self.slot_bytes)
        self.memory = mmap.mmap(fd, self.slots * self.slot_bytes)
        fcntl.fcntl(fd, 1033, d.faults.seals)  # F_ADD_SEALS
        self.free = list(range(self.slots))
        self.generation = [0] * self.slots
        self.serial = 0
        self.epoch, self.position = epoch, position
        self.failed = False
        announced = self.slots * self.slot_bytes + d.faults.announce_bytes
        packet = Packets.pack(wire.ARENA, Packets.arena, announced, self.slot_bytes, self.slots, 0)
        socket.send_fds(self.sock, [d.faults.arena_instead or packet], [fd])
        os.close(fd)
        self.opened = True

    def run(self) -> None:
        try:
            self._serve()
        except OSError:
            pass
        finally:
            with self.daemon_.lock:
                if self.attached:
                    self.daemon_.ranks.pop(self.attached, None)
            self.sock.close()
            with self.opening:
                if self.opened:
                    self.memory.close()
            with self.daemon_.lock:  # last: who finds no session here finds no memory of it either
                self.daemon_.sessions.pop(self.ticket, None)
            self.ended.set()

    def close(self, code: int | None = None, message: str = "") -> None:
        """End the session; with a last word if `code` is given."""
        if self.asker is not None:
            self.asker.over.set()
        with contextlib.suppress(OSError):
            if code is not None:
                self.sock.send(
                    Packets.pack(wire.CLOSING, Packets.closing, code, 0, message.encode())
                )
            self.sock.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        d = self.daemon_
        packet = self.sock.recv(4096)
        if not packet:
            return
        hello = Packets.hello.unpack(packet)
        d.check(hello[0] == wire.HELLO and hello[3] == wire.MAGIC, f"HELLO is {hello}")
        if d.faults.closing_instead_of_welcome:
            return self.close(*d.faults.closing_instead_of_welcome)
        values = (wire.MAGIC, *d.faults.version, 0, os.getpid(), self.ticket)
        self.sock.send(Packets.pack(wire.WELCOME, Packets.welcome, *values))
        while True:
            producing = self.opened and self.free and not self.failed and not d.paused.is_set()
            if self.asker is not None:
                return self.asker.over.wait()
            readable = select.select([self.sock], [], [], 0 if producing else 0.002)[0]
            if readable and self.asker is None:
                packet = self.sock.recv(4096)
                if not packet:
                    return None
                self._on_packet(packet)
            elif producing:
                self._produce()

    def _on_packet(self, packet: bytes) -> None:
        d = self.daemon_
        kind = struct.unpack_from("<H", packet)[0]
        if kind == wire.RELEASE:
            slot, _, generation = Packets.release.unpack(packet)[3:]
            if not d.check(self.lent.get(slot) == generation, f"release of {slot}, {generation}"):
                return self.close(3, "RELEASE of a slot that is not lent")
            del self.lent[slot]
            # What a stale view would show.
            begin = slot * self.slot_bytes
            self.memory[begin : begin + self.slot_bytes] = b"\xee" * self.slot_bytes
            self.free.append(slot)
            d.counts["released"] += 1
        elif kind == wire.SEEK:
            serial, _, epoch, position = Packets.seek.unpack(packet)[3:]
            d.check(serial > self.serial, f"serial {serial} after {self.serial}")
            self.serial, self.epoch, self.position = serial, epoch, position
            self.failed = False
            d.counts["seeks"] += 1
        else:
            d.check(False, f"message of type {kind}")
        return None

    def _produce(self) -> None:
        d = self.daemon_
        g = self.batch_size * self.world
        end = {"drop": d.records // g * g, "pad": d.records, "partial": d.records}[d.last]
        if self.position >= end or (d.last == "drop" and self.position + g > d.records):
            self.epoch, self.position = self.epoch + 1, 0
            return
        if d.delay:
            time.sleep(d.delay)
        epoch, start = self.epoch, self.position
        step = start // g
        stop = start + g
        if d.last == "partial" and stop > d.records:
            left = d.records - start
            share = [left * r // self.world for r in range(self.world + 1)]
            places = range(start + share[self.rank], start + share[self.rank + 1])
        else:
            places = range(
                start + self.rank * self.batch_size, start + (self.rank + 1) * self.batch_size
            )
        real = [p < d.records for p in places]
        self.position = min(stop, end)
        # The next batch that could be made tells whether this was the last.
        last = self.position >= end or (d.last == "drop" and self.position + g > d.records)
        position = self.position
        if (epoch, step) in d.faults.fail_at:
            f = d.faults.fail_at[epoch, step]
            self.failed = True
            self.sock.send(
                Packets.pack(
                    wire.FAILED,
                    Packets.failed,
                    self.serial,
                    f.code,
                    epoch,
                    step,
                    position,
                    f.record,
                    f.path.encode(),
                    f.message.encode(),
                    f.reason,
                    0,
                )
            )
            return
        slot = self.free.pop(0)
        self.generation[slot] += 1
        crc = 0
        for (name, dtype, shape, _), offset in zip(d.outputs, self.offsets):
            storage = np.dtype("u2" if dtype == "bfloat16" else dtype)
            values = [sample(name, p, epoch, d.records, r) for p, r in zip(places, real)]
            raw = np.array(values, dtype=storage).reshape(len(values), *shape).tobytes()
            begin = slot * self.slot_bytes + offset
            self.memory[begin : begin + len(raw)] = raw
            if self.checksum:
                crc = crc32c(raw, crc)
        if (epoch, step) in d.faults.wrong_crc_at:
            crc ^= 1
        if (epoch, step) in d.faults.flip_a_byte_at:
            d.faults.flip_a_byte_at.remove((epoch, step))
            self.memory[slot * self.slot_bytes + self.offsets[-1] + 3] ^= 0x10
        has_crc = self.checksum and not d.faults.no_crc
        flags = wire.LAST_IN_EPOCH * last + wire.HAS_CRC * has_crc
        self.lent[slot] = self.generation[slot]
        d.counts["published"] += 1
        self.sock.send(
            Packets.pack(
                wire.READY,
                Packets.ready,
                slot,
                self.serial,
                self.generation[slot],
                epoch,
                step,
                position,
                len(places),
                sum(real),
                d.faults.substituted_at.get((epoch, step), 0),
                flags,
                crc,
                0,
                time.monotonic_ns(),
            )
        )


class FakeDaemon:
    """See the module."""

    def __init__(
        self,
        directory: Path | str,
        *,
        records: int = 40,
        batch_size: int = 4,
        last: str = "drop",
        delay: float = 0.0,
        outputs=OUTPUTS,
        shard: str = "batch",
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.records, self.batch_size, self.last = records, batch_size, last
        self.delay, self.outputs, self.shard = delay, outputs, shard
        self.faults = Faults()
        self.counts: Counter = Counter()
        self.problems: list[str] = []
        self.requests: list = []
        self.sessions: dict[bytes, Session] = {}
        self.ranks: dict[tuple[str, int], Session] = {}
        self.askers: list[Asker] = []  # of the processes that provide something, as they came
        self.lock = threading.RLock()
        self.paused = threading.Event()
        self.silent = threading.Event()  # OpenStream is not answered
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for name in ("data.sock", "control.sock"):
            with contextlib.suppress(FileNotFoundError):
                (self.directory / name).unlink()
        self._listener.bind(str(self.directory / "data.sock"))
        self._grpc = grpc.server(ThreadPoolExecutor(8))
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                getattr(self, "_" + name),
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )
            for name, (request, response) in METHODS.items()
            if hasattr(self, "_" + name)
        }
        self._grpc.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        self._grpc.add_insecure_port(f"unix:{self.directory}/control.sock")
        self._grpc.start()
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def check(self, fine: bool, problem: str) -> bool:
        """Remember a breach of the protocol."""
        if not fine:
            self.problems.append(problem)
        return fine

    def stop(self) -> None:
        """Go away as a killed daemon does: without a word."""
        self._listener.close()
        (self.directory / "data.sock").unlink(missing_ok=True)
        (self.directory / "control.sock").unlink(missing_ok=True)
        for session in list(self.sessions.values()):
            session.close()
        self._grpc.stop(0).wait()

    def __enter__(self) -> FakeDaemon:
        return self

    def __exit__(self, *unused) -> None:
        self.stop()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            session = Session(self, sock)
            with self.lock:
                self.sessions[session.ticket] = session
            session.start()

    def _OpenStream(self, request, context):
        self.requests.append(request)
        faults = self.faults
        while self.silent.is_set() and context.is_active():
            time.sleep(0.01)
        if faults.refuse_open and faults.refuse_opens:
            faults.refuse_opens -= 1
            if faults.refuse_details:
                context.set_trailing_metadata((("grpc-status-details-bin", faults.refuse_details),))
            context.abort(_STATUS[faults.refuse_open[0]], faults.refuse_open[1])
        session = self.sessions.get(request.ticket)
        if session is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no connection holds this ticket")
        name = request.pipeline.name or Path(request.pipeline.text.file_name).stem
        if name != "numbers":
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"no pipeline {name!r}; did you mean 'numbers'?"
            )
        batch = request.batch_size if request.HasField("batch_size") else self.batch_size
        if batch <= 0 or not 0 <= request.rank < request.world_size:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "batch_size or rank is out of range")
        seed = request.seed if request.HasField("seed") else 42
        epoch, position = request.epoch, 0
        if request.cursor:
            cursor = Cursor.from_state(json.loads(request.cursor))
            for name_, value in (("dataset", DATASET_DIGEST), ("pipeline", PIPELINE_DIGEST)):
                if getattr(cursor, name_) != value:
                    context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"another {name_}")
            epoch, position = cursor.epoch, cursor.position
        with self.lock:
            key = (request.job, request.rank)
            if key in self.ranks:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, f"rank {request.rank} is attached")
            self.ranks[key] = session
            session.attached = key
        session.open(request, epoch, position)
        g = batch * request.world_size
        steps = self.records // g if self.last == "drop" else -(-self.records // g)
        if faults.steps_per_epoch is not None:
            steps = faults.steps_per_epoch
        numbers = {name: number for number, name in DTYPE_NAMES.items()}
        response = messages.OpenStreamResponse(
            job=request.job,
            pipeline=name,
            records=self.records,
            batch_size=batch,
            seed=seed,
            world_size=request.world_size,
            steps_per_epoch=steps,
            last=self.last,
            shard=self.shard,
            samples_per_epoch=steps * batch,
            dataset_digest=DATASET_DIGEST,
            pipeline_digest=PIPELINE_DIGEST,
            epoch=epoch,
            position=position,
            slots=session.slots,
            slot_bytes=session.slot_bytes,
            daemon_version="fake",
            classes=[f"class{i}" for i in range(10)],
        )
        for (field, dtype, shape, layout), offset in zip(self.outputs, session.offsets):
            response.fields.add(
                name=field,
                dtype=numbers[dtype],
                shape=shape,
                layout=layout,
                offset=offset,
                doc="made up",
            )
        faults.edit_answer(response)
        return response

    def _Provide(self, request, context):
        faults = self.faults
        if faults.refuse_open and faults.refuse_opens:
            faults.refuse_opens -= 1
            context.abort(_STATUS[faults.refuse_open[0]], faults.refuse_open[1])
        session = self.sessions.get(request.ticket)
        if session is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no connection holds this ticket")
        session.asker = Asker(session.sock, request)
        with self.lock:
            self.askers.append(session.asker)
        return messages.ProvideResponse(
            processes=len(self.askers),
            daemon_version="fake",
            workers=0 if self.faults.knows_no_workers else request.source.workers,
        )

    def _CloseStream(self, request, context):
        session = self.sessions.get(request.ticket)
        if session is not None:
            session.close()
            session.ended.wait(5)
        return messages.CloseStreamResponse()


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--records", type=int, default=40)
    parser.add_argument("--delay", type=float, default=0.0)
    args = parser.parse_args()
    FakeDaemon(args.directory, records=args.records, delay=args.delay)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
