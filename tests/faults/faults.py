"""The test's side of fault_injection.h: a daemon whose system calls fail as told."""

from __future__ import annotations

import gc
import mmap
import struct
import time
from pathlib import Path

from daemon_process import BUILD, DaemonProcess

LIBRARY = BUILD / "tools/libfault_injection.so"
_RULES = 8
_TEXT = 4 + 4 + 4 * _RULES + 4  # struct Board of fault_injection.cc


class FaultyDaemon(DaemonProcess):
    """A real feedwaterd under the preloaded library.

    Parameters are those of `DaemonProcess`.
    """

    def __init__(self, folder: Path, config: str) -> None:
        super().__init__(folder, config)
        path = self.folder / "faults"
        path.write_bytes(b"\0" * 4096)
        with open(path, "r+b") as file:
            self._board = mmap.mmap(file.fileno(), 4096)
        self._rules = 0
        self.patience_s = 15.0  # of its clients, when it goes away
        self.environment = {
            "LD_PRELOAD": str(LIBRARY),
            "FEEDWATER_FAULT_PLAN": str(path),
            # A sanitizer's own library wants to be the first otherwise.
            "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0",
        }

    def arm(self, rules: str) -> None:
        """Make calls fail from now on; see fault_injection.h for the rules. Forgets older ones."""
        text = rules.strip().encode()
        self._rules = len(rules.strip().splitlines())
        (generation,) = struct.unpack_from("<I", self._board, 0)
        self._board[_TEXT : _TEXT + len(text)] = text
        struct.pack_into("<I", self._board, _TEXT - 4, len(text))
        struct.pack_into("<I", self._board, 0, generation + 1)

    def acted(self) -> list[int]:
        """Return how often each rule has acted."""
        generation, taken_up = struct.unpack_from("<II", self._board, 0)
        if generation != taken_up:
            return [0] * self._rules
        return list(struct.unpack_from(f"<{self._rules}I", self._board, 8))

    def settled_descriptors(self):
        """Return `own_descriptors` once no session is left and nothing changes any more."""
        gc.collect()  # a client keeps its memory as long as an array does
        last = None
        deadline = time.monotonic() + 10
        while (found := self.own_descriptors()) != last or any("arena" in kind for kind in found):
            assert time.monotonic() < deadline, f"a session is left: {found}"
            last = found
            time.sleep(0.05)
        return found

    def wait_for_no_more_descriptors_than(self, wanted, seconds: float = 10) -> None:
        """Wait until it has none that it had not then; those below the state folder stay out."""
        gc.collect()
        deadline = time.monotonic() + seconds
        while more := self.own_descriptors() - wanted:
            assert time.monotonic() < deadline, f"descriptors: {more} more than before"
            time.sleep(0.01)

    def own_descriptors(self):
        """Count its open files by what they are, without files of datasets and caches."""
        kinds = self.file_descriptors()
        for kind in list(kinds):
            if kind.startswith(str(self.folder / "state")):
                del kinds[kind]
        return kinds
