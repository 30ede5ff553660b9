"""Opens sessions as another user, keeps their arenas in every way, and hangs up.

    python arena_hoard.py ADDRESS UID PIPELINE SESSIONS

Each arena is opened again and again through an O_PATH descriptor, while the session lives and after
it has been hung up. When the daemon refuses more, half of what was kept goes. Prints as JSON how
many sessions there were, and how often more were refused.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from functools import partial

from feedwater.control import messages
from feedwater.errors import Error
from feedwater.session import Session

REOPENED = 300  # times
PATIENCE_S = 60.0
SIZES = ((64, 48), (1, 1))  # slots, and samples of a batch: many MiB, and the least there is


class Hoarder(Session):
    """A session whose arena is received and not mapped."""

    def _map(self, *unused: object) -> None:
        _, (self.descriptor,) = self._packet(PATIENCE_S)


def reopen(descriptor: int) -> None:
    """Open and close a memory again and again."""
    for _ in range(REOPENED):
        os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY))


def keep(descriptor: int, number: int) -> Callable[[], None]:
    """Keep a memory in one of three ways; return what lets go of it."""
    if number % 3 == 1:
        size = os.fstat(descriptor).st_size
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ).close
    path = f"/proc/self/fd/{descriptor}"
    return partial(os.close, os.open(path, os.O_PATH) if number % 3 == 0 else os.dup(descriptor))


def hoard(address: str, pipeline: str, sessions: int) -> dict[str, int]:
    """Do it."""
    kept, done, refused = [], 0, 0
    deadline = time.monotonic() + PATIENCE_S + sessions
    while done < sessions and time.monotonic() < deadline:
        slots, batch = SIZES[done % len(SIZES)]
        request = messages.OpenStreamRequest(
            client="hoard", job=f"hoard-{done}", world_size=1, slots=slots, batch_size=batch
        )
        request.pipeline.name = pipeline
        try:
            session, _ = Hoarder.open(address, request, writable=False)
        except Error:
            refused += 1
            for release in kept[: (len(kept) + 1) // 2]:
                release()
            del kept[: (len(kept) + 1) // 2]
            time.sleep(0.02)
            continue
        path = os.open(f"/proc/self/fd/{session.descriptor}", os.O_PATH)
        reopen(path)
        kept.append(keep(session.descriptor, done))
        os.close(session.descriptor)
        session.abandon()
        reopen(path)
        os.close(path)
        done += 1
    return {"sessions": done, "refused": refused}


def main() -> None:
    """Become the user, and hoard."""
    address, uid, pipeline, sessions = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    if uid != os.geteuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    print(json.dumps(hoard(address, pipeline, sessions)))


if __name__ == "__main__":
    main()
