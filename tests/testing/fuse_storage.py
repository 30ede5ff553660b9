"""A file system that fails or hangs as a test wants it: a folder, seen through raw FUSE.

    with FuseStorage(source, mount) as storage:
        storage.hang("lookup")              # every look-up from now on gets no answer
        storage.fail("read", errno.EIO)     # every read fails
        storage.heal()                      # what hung is answered now

It speaks the kernel's protocol over /dev/fuse by itself, in a process of its own, and needs neither
libraries nor fusermount; it needs root. Nothing is cached by the kernel, so that every call comes,
unless it `keeps` names and attributes for so many seconds, as NFS does: then changes of the folder
are not seen meanwhile by who does not ask for them.
Ending that process ends every call that hangs with an error, as unmounting by force would.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import struct
import subprocess
import sys
from pathlib import Path

_LOOKUP, _FORGET, _GETATTR, _READLINK, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 5, 14, 15, 17, 18
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _INTERRUPT, _FORGETS = 25, 26, 27, 28, 29, 36, 42
_NAMES = {_LOOKUP: "lookup", _GETATTR: "getattr", _OPEN: "open", _READ: "read", _FLUSH: "flush"}
_DIRECT_IO = 1  # of an open file: reads are not kept by the kernel
_HEADER = struct.Struct("<IIQQIIII")
_MS_FLAGS = 1 | 2 | 4  # read-only, no set-user-id, no devices


def available() -> bool:
    """Return whether this process may mount such a file system."""
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


class FuseStorage:
    """A mount at `mount` that shows `source`."""

    def __init__(self, source: Path, mount: Path, keeps: int = 0) -> None:
        mount.mkdir(parents=True, exist_ok=True)
        self.mount = mount
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(source), str(mount), str(keeps)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if self._process.stdout.readline() != "ready\n":
            raise OSError(f"nothing could be mounted at {mount}")

    def hang(self, call: str) -> None:
        """Answer no such call."""
        self._tell({call: 0})

    def fail(self, call: str, error: int) -> None:
        """Fail every such call."""
        self._tell({call: error})

    def heal(self) -> None:
        """Answer everything, what hangs too."""
        self._tell({})

    def hanging(self) -> int:
        """Return how many calls are not answered."""
        return self._tell(None)

    def _tell(self, rules: dict | None) -> int:
        self._process.stdin.write(json.dumps(rules) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def break_off(self) -> None:
        """End the server and leave the mount: every call fails with ENOTCONN from now on."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Unmount it; calls that hang fail."""
        self.break_off()
        self._process.stdin.close()
        self._process.stdout.close()
        ctypes.CDLL(None).umount2(os.fsencode(self.mount), 2)  # MNT_DETACH

    def __enter__(self) -> FuseStorage:
        return self

    def __exit__(self, *unused) -> None:
        self.close()


class _Server:
    def __init__(self, source: str, device: int, keeps: int) -> None:
        self.source, self.device, self.keeps = source, device, keeps
        self.paths, self.numbers = {1: ""}, {"": 1}
        self.rules: dict[str, int] = {}
        self.hanging: list[bytes] = []

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.device, select.POLLIN)
        poll.register(0, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.device:
                    try:
                        self.answer(os.read(self.device, 1 << 20))
                    except OSError as error:
                        if error.errno == errno.ENODEV:  # unmounted
                            return
                    continue
                line = sys.stdin.readline()
                if not line:
                    return
                rules = json.loads(line)
                if rules is not None:
                    self.rules = rules
                    waiting, self.hanging = self.hanging, []
                    for request in waiting:
                        self.answer(request)
                print(len(self.hanging), flush=True)

    def reply(self, unique: int, error: int = 0, data: bytes = b"") -> None:
        with contextlib.suppress(OSError):  # the caller was interrupted
            os.write(self.device, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)

    def answer(self, request: bytes) -> None:
        _, code, unique, node, *_ = _HEADER.unpack_from(request)
        if code in (_FORGET, _FORGETS, _INTERRUPT):
            return
        error = self.rules.get(_NAMES.get(code, ""))
        if error == 0:
            self.hanging.append(request)
            return
        if error is not None:
            self.reply(unique, error)
            return
        try:
            self.reply(unique, 0, self.result(code, node, request[_HEADER.size :]))
        except OSError as failed:
            self.reply(unique, failed.errno or errno.EIO)

    def result(self, code: int, node: int, body: bytes) -> bytes:
        path = self.paths.get(node, "")
        full = os.path.join(self.source, path)
        if code == _INIT:
            return struct.pack("<IIIIHHIIHH28x", 7, 31, 131072, 0, 64, 48, 131072, 1, 32, 0)
        if code == _LOOKUP:
            name = os.path.join(path, os.fsdecode(body.split(b"\0")[0]))
            info = os.lstat(os.path.join(self.source, name))
            number = self.numbers.setdefault(name, len(self.numbers) + 1)
            self.paths[number] = name
            entry = struct.pack("<QQQQII", number, 0, self.keeps, self.keeps, 0, 0)
            return entry + self.attributes(number, info)
        if code == _GETATTR:
            return struct.pack("<QII", self.keeps, 0, 0) + self.attributes(node, os.lstat(full))
        if code == _OPEN:
            return struct.pack("<QII", os.open(full, os.O_RDONLY), _DIRECT_IO, 0)
        if code == _OPENDIR:
            return struct.pack("<QII", 0, 0, 0)
        if code == _READ:
            handle, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(handle, size, offset)
        if code == _READDIR:
            return self.entries(full, *struct.unpack_from("<QQI", body)[1:])
        if code == _READLINK:
            return os.fsencode(os.readlink(full))
        if code == _STATFS:
            return struct.pack("<QQQQQIIII24x", 1, 1, 1, 1, 1, 4096, 255, 4096, 0)
        if code == _RELEASE:
            os.close(struct.unpack_from("<Q", body)[0])
            return b""
        if code in (_FLUSH, _RELEASEDIR):
            return b""
        raise OSError(errno.ENOSYS, "not here")

    @staticmethod
    def attributes(number: int, info: os.stat_result) -> bytes:
        return struct.pack(
            "<QQQQQQIIIIIIIIII", number, info.st_size, (info.st_size + 511) // 512,
            int(info.st_atime), int(info.st_mtime), int(info.st_ctime), 0,
            info.st_mtime_ns % 10**9, info.st_ctime_ns % 10**9, info.st_mode, info.st_nlink,
            info.st_uid, info.st_gid, 0, 4096, 0,
        )  # fmt: skip

    @staticmethod
    def entries(folder: str, offset: int, size: int) -> bytes:
        data = b""
        for index, name in enumerate(sorted(os.listdir(os.fsencode(folder)))):
            if index < offset:
                continue
            kind = os.lstat(os.path.join(os.fsencode(folder), name)).st_mode >> 12
            entry = struct.pack("<QQII", 1 << 40 | index, index + 1, len(name), kind) + name
            entry += b"\0" * (-len(entry) % 8)
            if len(data) + len(entry) > size:
                break
            data += entry
        return data


def _main(source: str, mount: str, keeps: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"test", os.fsencode(mount), b"fuse", _MS_FLAGS, options.encode()) != 0:
        print(os.strerror(ctypes.get_errno()), flush=True)
        return
    print("ready", flush=True)
    _Server(source, device, int(keeps)).serve()


if __name__ == "__main__":
    _main(*sys.argv[1:])
