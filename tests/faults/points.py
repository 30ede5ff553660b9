"""The table of injected faults: what fails, when, and what must come of it.

`rules` are those of fault_injection.h; names of errors stand for their numbers. `when`:

start    from the daemon's first call on
open     once it serves, before the victim opens its loader
running  once the victim has its first batch
restart  as start, of a daemon that finds what an earlier one saved

What must come of it:

Recovers   the victim's batches are those of a run without faults; the log has `log`
Refused    the victim gets an error with this text; the next one is served as if nothing had been
Ends       the daemon does not start: exit status 1 or 2, with this text in the log
Either     the victim is served or refused, or the daemon ends by itself with this text in its log
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, field

ENGINES = ("io_uring", "pread")


@dataclass
class Recovers:
    """The victim sees nothing of it."""

    log: str = ""


@dataclass
class Refused:
    """The victim gets an error."""

    text: str


@dataclass
class Ends:
    """The daemon ends by itself, and says why."""

    text: str


@dataclass
class Either:
    """Any of the above; if the daemon ends, with this text."""

    text: str


@dataclass
class Point:
    """One fault."""

    name: str
    when: str
    rules: str
    expect: Recovers | Refused | Ends | Either
    engines: tuple[str, ...] = ENGINES
    config: str = ""  # lines of feedwater.yaml
    pipeline: str = ""  # lines of the victim's pipeline
    epochs: int = 1
    damage: str = ""  # what happens to the victim's files: a method of the test's Files
    limits: dict = field(default_factory=dict)  # resource limits of the process
    reload: bool = False  # the daemon has to read its configuration again before the next one
    may_not_act: bool = False  # the point is the absence of harm, not that the call comes

    def plan(self) -> str:
        """Return the rules with numbers for names of errors."""
        return re.sub(
            r"errno=([A-Z0-9]+)", lambda m: f"errno={getattr(errno, m[1])}", self.rules.strip()
        )


URING = ("io_uring",)
PREAD = ("pread",)
VICTIM = "path=victim/"
DIRECT = "storage: {engine: ENGINE, direct_io: true}"
SOON = "storage: {engine: ENGINE, retry_for: 300ms}"
SUBSTITUTE = "on_bad_sample: substitute"
AUTO = "storage: {engine: auto}"
CACHED = "cache: {ram: 0, disk: 64MiB}"
CACHE = "cache: {kind: bytes, ram: 0, disk: 64MiB}"

READS = [
    Point("reads of a hundred bytes", "running", f"read short=100 count=0 {VICTIM}", Recovers()),
    Point(
        "every third read gives one byte",
        "running",
        f"read short=1 every=3 count=0 {VICTIM}",
        Recovers(),
    ),
    Point("a read is interrupted", "running", f"read errno=EINTR count=3 {VICTIM}", Recovers()),
    Point("a read would block", "running", f"read errno=EAGAIN count=3 {VICTIM}", Recovers()),
    Point(
        "reads are interrupted for ever",
        "running",
        f"read errno=EINTR count=0 {VICTIM}",
        Refused("Interrupted system call.*tried again"),
        config=SOON,
    ),
    Point(
        "a read fails for good",
        "running",
        f"read errno=EIO count=0 {VICTIM}",
        Refused("record .*Input/output error.*tried again"),
        config=SOON,
    ),
    Point(
        "a read fails for good, and bad samples are substituted",
        "running",
        f"read errno=EIO count=0 {VICTIM}",
        Refused("record .*Input/output error.*tried again"),
        config=SOON,
        pipeline=SUBSTITUTE,
    ),
    Point(
        "no space for a read",
        "running",
        f"read errno=ENOSPC {VICTIM}",
        Refused("No space left"),
        pipeline=SUBSTITUTE,
    ),
    Point(
        "the file ends early",
        "running",
        f"read short=0 count=2 {VICTIM}",
        Refused("truncated since it was indexed"),
        pipeline=SUBSTITUTE,
    ),
    Point("one read stands still", "running", f"read delay_ms=1500 {VICTIM}", Recovers()),
    Point("all reads are slow", "running", f"read delay_ms=60 count=0 {VICTIM}", Recovers()),
    Point(
        "read-ahead advice is refused",
        "running",
        f"posix_fadvise errno=ENOSYS count=0 {VICTIM}",
        Recovers(),
        engines=PREAD,
    ),
    Point(
        "direct reads come in parts",
        "running",
        f"read short=512 every=2 count=0 {VICTIM}",
        Recovers(),
        config=DIRECT,
    ),
    Point(
        "O_DIRECT is refused",
        "open",
        f"open_direct errno=EINVAL count=0 {VICTIM}",
        Recovers("direct I/O is refused"),
        config=DIRECT,
    ),
    Point(
        "a direct read is refused",
        "running",
        f"read errno=EINVAL {VICTIM}",
        Refused("storage.direct_io: false"),
        config=DIRECT,
    ),
    Point(
        "no buffer for a read",
        "start",
        "mmap errno=ENOMEM count=0 thread=fw-worker\naligned_alloc errno=ENOMEM thread=fw-worker",
        Recovers("no memory for a read buffer"),
    ),
]
for error in ("EIO", "ESTALE", "ETIMEDOUT", "ENOTCONN", "ENOMEM"):
    READS.append(
        Point(
            f"reads give {error} for a while",
            "running",
            f"read errno={error} count=5 {VICTIM}",
            Recovers("tried again for at most"),
            pipeline=SUBSTITUTE,
        )
    )
for damage, text in (
    ("truncate", "has changed|when the dataset was indexed"),
    ("unlink", "not exist|has changed"),
    ("replace", ""),
    ("make_folder", "is a folder|not exist|has changed|bytes and had"),
    ("make_fifo", "not a regular file|not exist|has changed|was indexed"),
):
    READS.append(
        Point(
            f"files are damaged while they are read: {damage}",
            "running",
            "",
            Refused(text),
            damage=damage,
            pipeline=SUBSTITUTE,
        )
    )

OPENING_FILES = [
    Point("no descriptor for a file, once", "running", f"open errno=EMFILE {VICTIM}", Recovers()),
    Point(
        "no descriptor for any file",
        "running",
        f"open errno=EMFILE count=0 {VICTIM}",
        Refused("LimitNOFILE"),
        config=SOON,
    ),
    Point(
        "the system has no descriptor",
        "running",
        f"open errno=ENFILE count=0 {VICTIM}",
        Refused("LimitNOFILE"),
        config=SOON,
    ),
    Point("opening a file is interrupted", "running", f"open errno=EINTR {VICTIM}", Recovers()),
    Point(
        "a rename makes openat2 give up",
        "running",
        f"open errno=EAGAIN count=3 {VICTIM}",
        Recovers(),
    ),
    Point(
        "a file may not be read",
        "running",
        f"open errno=EACCES {VICTIM}",
        Refused("may not be read"),
        pipeline=SUBSTITUTE,
    ),
    Point("opening a file fails", "running", f"open errno=EIO {VICTIM}", Recovers()),
    Point(
        "opening files fails for good",
        "running",
        f"open errno=EIO count=0 {VICTIM}",
        Refused("Input/output error.*tried again"),
        config=SOON,
    ),
    Point("a file cannot be looked at", "running", f"fstat errno=EIO {VICTIM}", Recovers()),
    Point("a file's flags cannot be set", "running", f"fcntl arg=4 errno=EIO {VICTIM}", Recovers()),
]

RINGS = [
    Point(
        "entering the ring is interrupted",
        "running",
        "io_uring_enter errno=EINTR count=5 thread=fw-worker",
        Recovers(),
        engines=URING,
    ),
    Point(
        "the kernel has no memory for reads, for a while",
        "running",
        "io_uring_enter errno=EAGAIN count=20 thread=fw-worker",
        Recovers(),
        engines=URING,
    ),
    Point(
        "the completion queue overflows, for a while",
        "running",
        "io_uring_enter errno=EBUSY count=20 thread=fw-worker",
        Recovers(),
        engines=URING,
    ),
    Point(
        "the completion queue overflows for good",
        "running",
        "io_uring_enter errno=EBUSY count=0 thread=fw-worker",
        Recovers("reads with pread"),
        engines=URING,
    ),
    Point(
        "a ring breaks",
        "running",
        "io_uring_enter errno=ENXIO count=0 thread=fw-worker",
        Recovers("reads with pread"),
        engines=URING,
    ),
    Point(
        "a ring breaks once",
        "running",
        "io_uring_enter errno=EBADFD thread=fw-worker",
        Recovers("reads with pread"),
        engines=URING,
    ),
    Point(
        "workers find no memory for their rings",
        "start",
        "io_uring_setup errno=ENOMEM count=0 thread=fw-worker",
        Recovers("reads with pread"),
        engines=URING,
        config=AUTO,
    ),
    Point(
        "workers find no descriptor for their rings",
        "start",
        "io_uring_setup errno=EMFILE count=0 thread=fw-worker",
        Recovers("reads with pread"),
        engines=URING,
        config=AUTO,
    ),
    Point(
        "workers that must have rings get none",
        "start",
        "io_uring_setup errno=ENOMEM count=0 thread=fw-worker",
        Ends("io_uring refused"),
        engines=URING,
    ),
    Point(
        "the ring cannot be restricted",
        "start",
        "io_uring_register arg=11 errno=EINVAL count=0",
        Recovers("storage engine pread"),
        engines=URING,
        config=AUTO,
    ),
    Point(
        "the ring cannot be enabled",
        "start",
        "io_uring_register arg=12 errno=EPERM count=0",
        Recovers("storage engine pread"),
        engines=URING,
        config=AUTO,
    ),
    Point(
        "the kernel has no DEFER_TASKRUN",
        "start",
        "io_uring_setup errno=EINVAL count=1",
        Recovers("storage engine io_uring"),
        engines=URING,
        config=AUTO,
    ),
    Point(
        "the probe's read fails",
        "start",
        "read errno=EPERM path=feedwater-probe count=0",
        Recovers("storage engine pread"),
        engines=URING,
        config=AUTO,
    ),
    Point(
        "the probe has no file",
        "start",
        "memfd_create errno=EMFILE path=feedwater-probe",
        Recovers("storage engine pread"),
        engines=URING,
        config=AUTO,
    ),
]
for error in ("EPERM", "ENOSYS", "ENOMEM", "EMFILE", "EINVAL"):
    RINGS.append(
        Point(
            f"io_uring is refused with {error}",
            "start",
            f"io_uring_setup errno={error} count=0",
            Recovers("storage engine pread"),
            engines=URING,
            config=AUTO,
        )
    )
    RINGS.append(
        Point(
            f"io_uring is asked for and refused with {error}",
            "start",
            f"io_uring_setup errno={error} count=0",
            Ends("io_uring refused"),
            engines=URING,
        )
    )

STARTING = [
    Point(
        "the runtime folder cannot be made",
        "start",
        "mkdir errno=EROFS path=/run",
        Ends("/run"),
        may_not_act=False,
    ),
    Point(
        "the disk is full at the runtime folder",
        "start",
        "mkdir errno=ENOSPC path=/run",
        Ends("No space left"),
    ),
    Point(
        "the disk is full at the state folder",
        "start",
        "mkdir errno=ENOSPC path=/state",
        Ends("No space left"),
    ),
    Point("no lock file", "start", "open errno=ENOSPC path=feedwaterd.lock", Ends("No space left")),
    Point("no locks", "start", "flock errno=ENOLCK path=feedwaterd.lock", Ends("No locks")),
    Point(
        "the lock file cannot be emptied",
        "start",
        "ftruncate errno=EIO path=feedwaterd.lock",
        Ends("Input/output error"),
    ),
    Point(
        "the lock file cannot be written",
        "start",
        "write errno=ENOSPC path=feedwaterd.lock",
        Ends("No space left"),
    ),
    Point("no sockets at all", "start", "socket errno=EMFILE count=0", Ends("Too many open files")),
    Point("no second socket", "start", "socket errno=EMFILE skip=1", Ends("Too many open files")),
    Point("the data socket cannot be bound", "start", "bind errno=EACCES", Ends("data.sock")),
    Point(
        "the control socket cannot be bound",
        "start",
        "bind errno=EADDRINUSE skip=1",
        Ends("control.sock"),
    ),
    Point("listening fails", "start", "listen errno=EOPNOTSUPP", Ends("data.sock")),
    Point("no epoll for providers", "start", "epoll_create1 errno=EMFILE", Ends("epoll_create1")),
    Point("no epoll for data", "start", "epoll_create1 errno=EMFILE skip=1", Ends("epoll_create1")),
    Point(
        "no epoll for control", "start", "epoll_create1 errno=EMFILE skip=2", Ends("epoll_create1")
    ),
    Point(
        "no inotify instance",
        "start",
        "inotify_init1 errno=EMFILE",
        Ends("max_user_instances"),
    ),
    Point("no eventfd for providers", "start", "eventfd errno=EMFILE", Ends("eventfd")),
    Point("no eventfd for data", "start", "eventfd errno=EMFILE skip=1", Ends("eventfd")),
    Point("no eventfd for control", "start", "eventfd errno=EMFILE skip=2", Ends("eventfd")),
    Point("no watch for providers", "start", "epoll_ctl errno=ENOSPC", Ends("epoll_ctl")),
    Point("no watch on the socket", "start", "epoll_ctl errno=ENOSPC skip=2", Ends("epoll_ctl")),
    Point(
        "no watch on the control socket",
        "start",
        "epoll_ctl errno=ENOSPC skip=5",
        Ends("epoll_ctl"),
    ),
    Point(
        "a CPU cannot be used",
        "start",
        "pthread_setaffinity_np errno=EINVAL caller=any",
        Ends("CPU|cpu"),
    ),
    Point(
        "the configuration cannot be opened",
        "start",
        "fopen errno=EMFILE path=feedwater.yaml",
        Ends("feedwater.yaml"),
    ),
    Point(
        "a pipeline cannot be opened",
        "start",
        "fopen errno=EMFILE path=victim.yaml",
        Recovers(),  # it is read again when it is asked for
    ),
    Point("a root cannot be opened", "start", "open errno=EACCES path=/data", Ends("root 'data'")),
    Point(
        "the kernel has no openat2", "start", "open errno=ENOSYS arg=437 count=0", Ends("openat2")
    ),
    Point(
        "no lock file for the cache",
        "start",
        "open errno=ENOSPC path=cache/lock",
        Recovers("nothing is cached on disk"),
        config=CACHED,
    ),
]
# The start first tries whether there are threads enough: so many, with two workers.
TRIED = 22
STARTING.append(
    Point(
        "too few threads for the start",
        "start",
        "pthread_create errno=EAGAIN skip=20 caller=libstdc++",
        Ends("needs 22 and got 19"),
    )
)
for thread in range(8):
    STARTING.append(
        Point(
            f"no thread, after {thread}",
            "start",
            f"pthread_create errno=EAGAIN skip={TRIED + thread} caller=libstdc++",
            Either("no thread for|Resource temporarily unavailable"),
            may_not_act=thread > 5,
        )
    )

SESSIONS = [
    Point("no descriptor for an arena, once", "open", "memfd_create errno=EMFILE", Recovers()),
    Point(
        "no descriptor for an arena",
        "open",
        "memfd_create errno=EMFILE count=0",
        Refused("memfd_create: Too many open files"),
    ),
    Point("no memory files", "open", "memfd_create errno=ENOSYS count=0", Refused("memfd_create")),
    Point("a kernel without MFD_NOEXEC_SEAL", "open", "memfd_create errno=EINVAL", Recovers()),
    Point(
        "the arena cannot be sized",
        "open",
        "ftruncate errno=EFBIG path=feedwater-arena",
        Refused("sizing an arena"),
    ),
    Point(
        "the arena cannot be mapped",
        "open",
        "mmap errno=ENOMEM path=feedwater-arena count=0",
        Refused("mapping an arena"),
    ),
    Point("no memory for the arena, once", "open", "fallocate errno=ENOSPC", Recovers()),
    Point(
        "no memory for the arena",
        "open",
        "fallocate errno=ENOSPC count=0",
        Refused("allocating .* of shared memory: No space left"),
    ),
    Point(
        "allocating the arena is interrupted", "open", "fallocate errno=EINTR count=3", Recovers()
    ),
    Point(
        "the arena may not be allocated",
        "open",
        "fallocate errno=EPERM",
        Refused("allocating .* of shared memory"),
    ),
    Point(
        "mbind is not allowed",
        "open",
        "mbind errno=EPERM",
        Recovers("not bound to NUMA node 0"),
        config="numa_node: 0",
    ),
    Point("pages cannot be populated", "open", "madvise errno=EINVAL count=0", Recovers()),
    Point(
        "the arena cannot be sealed",
        "open",
        "fcntl arg=1033 errno=EPERM",
        Refused("sealing the arena"),
    ),
    Point(
        "no descriptor for the client",
        "open",
        "open errno=EMFILE path=/proc/self/fd/ count=0",
        Refused("opening the arena to read"),
    ),
    Point(
        "the kernel has no watch left for the arena",
        "open",
        "inotify_add_watch errno=ENOSPC count=0",
        Refused("max_user_watches"),
    ),
    Point(
        "the arena cannot be watched",
        "open",
        "inotify_add_watch errno=ENOENT count=0",
        Refused("cannot be watched"),
    ),
    Point("no /proc", "open", "open errno=ENOENT count=0 path=/proc/self/fd/", Recovers()),
    Point(
        "accepting is interrupted", "open", "accept errno=EINTR count=3 thread=fw-data", Recovers()
    ),
    Point(
        "a client gives up in the queue",
        "open",
        "accept errno=ECONNABORTED thread=fw-data",
        Recovers(),
    ),
    Point(
        "no descriptor for a client",
        "open",
        "accept errno=EMFILE thread=fw-data",
        Recovers(),
    ),
    Point(
        "no memory for a client",
        "open",
        "accept errno=ENOMEM count=2 thread=fw-data",
        Recovers("accepting a client"),
    ),
    Point(
        "no descriptor for a call",
        "open",
        "accept errno=EMFILE count=3 thread=fw-control",
        Recovers(),
    ),
    Point("calls cannot be watched", "open", "epoll_ctl errno=ENOSPC thread=fw-gate", Recovers()),
    Point(
        "who connects is not known",
        "open",
        "getsockopt arg=17 errno=ENOBUFS thread=fw-data",
        Recovers(),
    ),
    Point(
        "who calls is not known",
        "open",
        "getsockopt arg=17 errno=ENOBUFS thread=fw-control",
        Recovers(),
    ),
    Point("no SO_PEERPIDFD", "open", "getsockopt arg=77 errno=ENOPROTOOPT", Recovers()),
    Point(
        "no descriptor for a pidfd",
        "open",
        "getsockopt arg=77 errno=EMFILE\nsyscall arg=434 errno=EMFILE",
        Recovers(),
    ),
    Point(
        "no pidfd at all",
        "open",
        "getsockopt arg=77 errno=ENOPROTOOPT count=0\nsyscall arg=434 errno=ENOSYS count=0",
        Recovers(),
    ),
    Point(
        "no random bytes",
        "open",
        "getrandom errno=ENOSYS thread=fw-data",
        Refused("no random bytes"),
    ),
    Point(
        "too few random bytes",
        "open",
        "getrandom short=7 thread=fw-data",
        Refused("no random bytes"),
    ),
    Point(
        "no watch on a client",
        "open",
        "epoll_ctl errno=ENOSPC thread=fw-data",
        Refused("epoll_ctl"),
    ),
    Point(
        "no watch on a client's process",
        "open",
        "epoll_ctl errno=ENOMEM skip=1 thread=fw-data",
        Refused("epoll_ctl"),
    ),
    Point(
        "waiting is interrupted",
        "open",
        "epoll_wait errno=EINTR count=5 thread=fw-data",
        Recovers(),
    ),
    Point(
        "waiting for calls is interrupted",
        "open",
        "epoll_wait errno=EINTR count=5 thread=fw-control",
        Recovers(),
    ),
    Point(
        "no thread to open a dataset",
        "open",
        "pthread_create errno=EAGAIN caller=libstdc++ count=0",
        Refused("no thread for opening pipelines"),
    ),
    Point(
        "no eventfd later on", "open", "eventfd errno=EMFILE count=0", Recovers(), may_not_act=True
    ),
    Point(
        "a welcome does not fit",
        "open",
        "sendmsg errno=EAGAIN thread=fw-data",
        Refused("does not read its messages"),
    ),
    Point(
        "the arena cannot be sent",
        "open",
        "sendmsg errno=ETOOMANYREFS thread=grpcpp",
        Recovers("send_failed"),
    ),
    Point(
        "a welcome cannot be sent",
        "open",
        "sendmsg errno=ETOOMANYREFS thread=fw-data",
        Recovers("send_failed"),
    ),
    Point(
        "the second message of all cannot be sent",  # to whomever it goes
        "open",
        "sendmsg errno=ETOOMANYREFS skip=1",
        Recovers("send_failed"),
    ),
    Point("sending is interrupted", "running", "sendmsg errno=EINTR count=3", Recovers()),
    Point(
        "a batch does not fit into the queue",
        "running",
        "sendmsg errno=EAGAIN thread=fw-worker",
        Refused("does not read its messages"),
    ),
    Point(
        "the client is gone when a batch is sent",
        "running",
        "sendmsg errno=EPIPE thread=fw-worker",
        Recovers(),
    ),
    Point(
        "no buffers to send a batch",
        "running",
        "sendmsg errno=ENOBUFS thread=fw-worker",
        Recovers("send_failed"),
    ),
    Point(
        "no memory to send a batch",
        "running",
        "sendmsg errno=ENOMEM thread=fw-worker",
        Recovers("send_failed"),
    ),
    Point("receiving is interrupted", "running", "recvmsg errno=EINTR count=3", Recovers()),
    Point("receiving fails", "running", "recvmsg errno=ECONNRESET", Recovers()),
    Point("no memory to receive", "running", "recvmsg errno=ENOMEM", Recovers()),
    Point("real time jumps ahead by an hour", "open", "clock step_s=3600 count=0", Recovers()),
    # Its files are newer than the clock: whether they were changed since cannot be known.
    Point(
        "real time jumps back by an hour",
        "open",
        "clock step_s=-3600 count=0",
        Recovers(),
    ),
    Point(
        "real time jumps before a start",
        "start",
        "clock step_s=-3600 count=0",
        Recovers(),
        may_not_act=True,
    ),
]

SAVED_FILES = [
    Point("the disk is full at a saved index", "open", "open errno=ENOSPC path=.new", Recovers()),
    Point("the disk is full in a saved index", "open", "write errno=ENOSPC path=.new", Recovers()),
    Point(
        "a saved index is written in parts", "open", "write short=100 count=0 path=.new", Recovers()
    ),
    Point("a saved index is not safe on disk", "open", "fsync errno=EIO", Recovers()),
    Point("a saved index cannot be renamed", "open", "rename errno=ENOSPC", Recovers()),
    Point(
        "a saved index cannot be opened",
        "restart",
        "open errno=EACCES path=/state/ count=0",
        Recovers(),
        may_not_act=False,
    ),
    Point(
        "a saved index cannot be read", "restart", "read errno=EIO path=/state/ count=0", Recovers()
    ),
    Point(
        "a saved index is shorter than it was",
        "restart",
        "read short=100 skip=1 path=/state/",
        Recovers(),
    ),
    Point(
        "a saved index cannot be looked at", "restart", "fstat errno=EIO path=/state/", Recovers()
    ),
    Point("a folder cannot be listed", "open", f"readdir errno=EIO {VICTIM}", Recovers()),
    Point(
        "a folder cannot be listed for good",
        "open",
        f"readdir errno=EIO count=0 {VICTIM}",
        Refused("Input/output error.*tried again"),
        config=SOON,
    ),
    Point(
        "no descriptor to list a folder, once",
        "open",
        "open errno=EMFILE path=victim/cat",
        Recovers(),
    ),
    Point(
        "no descriptor to list a folder",
        "open",
        "open errno=EMFILE path=victim/cat count=0",
        Refused("LimitNOFILE|Too many open files"),
        config=SOON,
    ),
    Point(
        "a file cannot be looked at for the index",
        "open",
        "fstatat errno=EIO path=.png",
        Recovers(),
    ),
    Point(
        "the disk is full in the cache",
        "running",
        "write errno=ENOSPC path=segment-",
        Recovers("no more records are kept on disk"),
        config=CACHED,
        pipeline=CACHE,
        epochs=2,
    ),
    Point(
        "the disk is full in the cache's journal",
        "running",
        "write errno=ENOSPC path=journal",
        Recovers("no more records are kept on disk"),
        config=CACHED,
        pipeline=CACHE,
        epochs=2,
    ),
    Point(
        "the cache is written in parts",
        "open",
        "write short=7 count=0 path=segment-",
        Recovers(),
        config=CACHED,
        pipeline=CACHE,
        epochs=2,
    ),
    Point(
        "writing the cache is interrupted",
        "open",
        "write errno=EINTR count=3 path=/state/cache",
        Recovers(),
        config=CACHED,
        pipeline=CACHE,
        epochs=2,
    ),
    Point(
        "no file for the cache",
        "running",
        "open errno=ENOSPC path=segment-",
        Recovers(),
        config=CACHED,
        pipeline=CACHE,
        epochs=2,
        may_not_act=True,
    ),
    Point(
        "no journal for the cache",
        "open",
        "open errno=EMFILE path=journal",
        Recovers(),
        config=CACHED,
        pipeline=CACHE,
        epochs=2,
    ),
    Point(
        "the cache cannot be read",
        "open",
        "read errno=EIO path=segment- count=0",
        Recovers(),
        config=CACHED,
        pipeline=CACHE,
        epochs=3,
    ),
    Point(
        "the cache is read in parts",
        "open",
        "read short=3 every=2 count=0 path=segment-",
        Recovers(),
        config=CACHED,
        pipeline=CACHE,
        epochs=3,
    ),
    Point(
        "the cache has lost bytes",
        "open",
        "read short=0 count=0 path=segment-",
        Recovers(),
        config=CACHED,
        pipeline=CACHE,
        epochs=3,
    ),
    Point(
        "the journal cannot be read",
        "restart",
        "read errno=EIO path=journal count=0",
        Recovers(),
        config=CACHED,
        pipeline=CACHE,
    ),
]

LIMITS = [
    Point("8 MiB of locked memory", "start", "", Recovers(), limits={"MEMLOCK": 8 << 20}),
    Point("no locked memory", "start", "", Recovers(), limits={"MEMLOCK": 0}),
    Point("64 open files", "start", "", Recovers(), limits={"NOFILE": 64}),
    Point("60 open files", "start", "", Recovers(), limits={"NOFILE": 60}),
    Point("40 open files", "start", "", Ends("LimitNOFILE"), limits={"NOFILE": 40}),
    Point(
        "no file may grow beyond 16 KiB",
        "start",
        "",
        Recovers("no more records are kept on disk"),
        config=CACHED,
        pipeline=CACHE,
        epochs=2,
        limits={"FSIZE": 16384},
    ),
]
for k in (1, 2, 5, 10, 30, 100, 300, 500, 1000, 3000):
    LIMITS.append(
        Point(
            f"allocation {k} of the start fails",
            "start",
            f"new errno=ENOMEM after=fopen skip={k - 1} caller=any",
            Either("out of memory|bad_alloc"),
            may_not_act=True,
        )
    )
for thread in ("fw-worker", "fw-data", "fw-control", "fw-house"):
    for k in (1, 2, 3, 5, 8, 13, 30, 100):
        LIMITS.append(
            Point(
                f"allocation {k} of {thread} fails",
                "open",
                f"new errno=ENOMEM skip={k - 1} thread={thread} caller=any",
                Either("out of memory"),
                may_not_act=True,
            )
        )

for point in STARTING + LIMITS:  # that the engine has no part in
    point.engines = PREAD

POINTS = [*READS, *OPENING_FILES, *RINGS, *STARTING, *SESSIONS, *SAVED_FILES, *LIMITS]
