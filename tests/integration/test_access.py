"""Who may call what: every RPC of the control service, by every kind of user.

The rows are compared with the service's descriptor, so an RPC that is added without a row fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemon_process import NO_OTHER_USERS, ROOT, other_users
from pictures import write_folder

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "conformance"))

from driver import COMMANDS, Driver, digests

import feedwater
from feedwater.control import METHODS, Control

LISTED, STRANGER = 52001, 52002
PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: pictures}
graph:
  - decode: {in: data, out: image}
  - center_crop: {in: image, size: [8, 8]}
batch: {size: 1}
outputs: [image, label]
"""

# What a user who may connect gets for a request without anything in it, and for one with a ticket
# that the daemon never told anybody. An RPC that acts for somebody needs a ticket; one that needs
# none tells nothing that a user of the daemon may not know.
ROWS = {
    "ListPipelines": ("OK", None),
    "DescribePipeline": ("INVALID_ARGUMENT", None),
    "OpenStream": ("INVALID_ARGUMENT", "UNAVAILABLE"),
    "CloseStream": ("INVALID_ARGUMENT", "NOT_FOUND"),
    "Provide": ("INVALID_ARGUMENT", "UNAVAILABLE"),
    "GetLedger": ("NOT_FOUND", None),
    "GetStatus": ("OK", None),
    "ListRecords": ("NOT_FOUND", None),
    "ListBadSamples": ("OK", None),
}

# Imports as root, since the interpreter may be out of the other user's reach; then becomes it.
CALLER = """
import json, os, sys
import feedwater
from feedwater.control import METHODS, Control
address, uid = sys.argv[1], int(sys.argv[2])
if uid != os.geteuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
answers = {}
for method, (request, _) in METHODS.items():
    fields = {field.name for field in request.DESCRIPTOR.fields}
    for ticket in (None, b"\\x5a" * 16):
        if ticket and "ticket" not in fields:
            continue
        with Control(address) as control:
            try:
                control.call(method, request(ticket=ticket) if ticket else request(), 20)
                code = "OK"
            except feedwater.Error as error:
                code = error.code
        answers.setdefault(method, []).append(code)
print(json.dumps(answers))
"""


# Opens what it can before a reload (a line on stdin), and tries the same behind it.
HOLDER = """
import os, sys
import feedwater
from feedwater.control import METHODS, Control
from feedwater.session import Session
address, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
sessions = [Session(address) for _ in range(3)]
for session in sessions:
    session._greet()
with Control(address) as control:
    def ask(method, session, **fields):
        try:
            control.call(method, METHODS[method][0](ticket=session.ticket, **fields), 20)
            code = "OK"
        except feedwater.Error as error:
            code = error.code
        print(code, flush=True)
    def open_stream(session, job):
        request = METHODS["OpenStream"][0]()
        request.pipeline.name = "pictures"
        ask("OpenStream", session, pipeline=request.pipeline, world_size=1, job=job)
    open_stream(sessions[0], "before")
    sys.stdin.readline()
    open_stream(sessions[1], "behind")
    ask("Provide", sessions[2])
    for method in ("DescribePipeline", "GetStatus"):
        request = METHODS[method][0]()
        if method == "DescribePipeline":
            request.pipeline.name = "pictures"
        try:
            control.call(method, request, 20)
            print("OK", flush=True)
        except feedwater.Error as error:
            print(error.code, flush=True)
    sys.stdin.readline()
"""

# Describes a pipeline over each root that a line on stdin names.
ASKER = """
import os, sys
import feedwater
from feedwater.control import METHODS, Control
address, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
for line in sys.stdin:
    request = METHODS["DescribePipeline"][0]()
    request.pipeline.text.file_name = "asked.yaml"
    request.pipeline.text.yaml = (
        "version: 1\\ndataset: {format: raw, root: " + line.strip() + ", path: keys.bin, "
        "record_bytes: 4, fields: {x: {offset: 0, dtype: uint8, shape: [4]}}}\\n"
        "batch: {size: 1}\\noutputs: [x]\\n"
    )
    try:
        with Control(address) as control:
            control.call("DescribePipeline", request, 20)
        print("OK", flush=True)
    except feedwater.Error as error:
        print(error.code, flush=True)
"""


@contextlib.contextmanager
def nobody_opens(path: Path):
    """Hold up whoever opens the file. Yields what waits for somebody to be held up."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    file = os.open(path, os.O_RDONLY)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def wait() -> None:
        deadline = time.monotonic() + 30
        while fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
            assert time.monotonic() < deadline, "nobody opens it"
            time.sleep(0.01)

    try:
        yield wait
    finally:
        os.close(file)
        signal.signal(signal.SIGIO, before)


def await_reload(daemon) -> None:
    deadline = time.monotonic() + 60
    while "reloaded; pipelines" not in daemon.tail() and time.monotonic() < deadline:
        time.sleep(0.01)


def answers_to(daemon, uid: int) -> dict[str, list[str]]:
    """Call every RPC as this user."""
    done = subprocess.run(
        [sys.executable, "-c", CALLER, daemon.address, str(uid)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def daemon(make_daemon):
    access = f"access: {{users: [{LISTED}]}}\n" if os.geteuid() == 0 else ""
    daemon = make_daemon(config="cpus: 1\npin_cpus: false\nmemory: 512MiB\n" + access)
    for path in (daemon.folder, daemon.folder.parent):
        path.chmod(0o755)
    write_folder(daemon.data / "pictures", 6)
    daemon.start()
    return daemon


def test_every_rpc_has_a_row():
    assert set(ROWS) == set(METHODS), "give the new RPC a row in ROWS, and think who may call it"
    for method, (request, _) in METHODS.items():
        takes_ticket = "ticket" in {field.name for field in request.DESCRIPTOR.fields}
        assert takes_ticket == (ROWS[method][1] is not None), method


def test_the_daemons_own_user_is_answered(daemon):
    expected = {method: [code for code in row if code] for method, row in ROWS.items()}
    assert answers_to(daemon, os.geteuid()) == expected


@pytest.mark.skipif(not other_users(), reason=NO_OTHER_USERS)
def test_listed_users_are_answered_and_strangers_reach_no_rpc(daemon):
    expected = {method: [code for code in row if code] for method, row in ROWS.items()}
    assert answers_to(daemon, LISTED) == expected
    for opened in (False, True):  # with the sockets' modes, and by the kernel's word alone
        if opened:
            for name in ("", "control.sock", "data.sock"):
                os.chmod(os.path.join(daemon.address, name), 0o777)
        for method, codes in answers_to(daemon, STRANGER).items():
            assert set(codes) == {"UNAVAILABLE"}, method
    assert answers_to(daemon, LISTED) == expected


@pytest.mark.skipif(not other_users(), reason=NO_OTHER_USERS)
def test_who_is_taken_off_the_list_opens_nothing_by_connections_from_before(daemon):
    """The stream that there is goes on; no further one comes of its open connections."""
    daemon.config.write_text(daemon.config.read_text() + "limits: {handshake_timeout: 1min}\n")
    daemon.add_pipeline("pictures", PIPELINE)
    daemon.restart()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, daemon.address, str(LISTED)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "OK\n"
        daemon.config.write_text(daemon.config.read_text().replace(str(LISTED), str(STRANGER)))
        daemon.process.send_signal(signal.SIGHUP)
        await_reload(daemon)
        holder.stdin.write("\n")
        holder.stdin.flush()
        for _ in ("OpenStream", "Provide", "DescribePipeline", "GetStatus"):
            assert holder.stdout.readline() == "PERMISSION_DENIED\n"
        with Control(daemon.address) as control:
            status = control.call("GetStatus", METHODS["GetStatus"][0](), 20)
        assert [job.owner_uid for job in status.jobs] == [LISTED]
        holder.stdin.write("\n")


@pytest.mark.skipif(not other_users(), reason=NO_OTHER_USERS)
def test_refusals_of_one_user_do_not_keep_anothers_out_of_the_log(daemon):
    refused = [method for method, row in ROWS.items() if row[0] != "OK"]
    for _ in range(6):
        answers_to(daemon, LISTED)
    with Control(daemon.address) as control:
        for method in refused:
            with pytest.raises(feedwater.Error):
                control.call(method, METHODS[method][0](), 20)
    log = daemon.log.read_text()
    assert {method: log.count(f"{method} refused: ") for method in refused} == dict.fromkeys(
        refused, 4 + 1
    )


@pytest.mark.skipif(not other_users(), reason=NO_OTHER_USERS)
@pytest.mark.parametrize("kind", ["all folders", "a root that goes"])
def test_who_is_put_on_the_list_never_meets_the_roots_from_before(daemon, kind):
    """The reload stands still where it reads a pipeline, as on slow storage."""
    private = daemon.folder / "private"
    private.mkdir(mode=0o700)
    for folder in (private, daemon.data):
        (folder / "keys.bin").write_bytes(b"0123")
    daemon.add_pipeline("pictures", PIPELINE)
    after = daemon.config.read_text()
    if kind == "all folders":
        before, root = after.replace("access:", "absolute_roots: true #"), str(private)
    else:
        before, root = after.replace(str(LISTED), str(STRANGER)), "private"
        before = before.replace("roots: {", f"roots: {{private: {private}, ")
    daemon.config.write_text(before)
    daemon.restart()
    with subprocess.Popen(
        [sys.executable, "-c", ASKER, daemon.address, str(LISTED)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as asker:

        def ask(root: str) -> str:
            asker.stdin.write(root + "\n")
            asker.stdin.flush()
            return asker.stdout.readline().strip()

        with nobody_opens(daemon.pipelines / "pictures.yaml") as wait:
            daemon.config.write_text(after)
            daemon.process.send_signal(signal.SIGHUP)
            wait()
            assert ask(root) in ("UNAVAILABLE", "PERMISSION_DENIED")
        await_reload(daemon)
        assert ask(root) == ("PERMISSION_DENIED" if kind == "all folders" else "NOT_FOUND")
        assert ask("data") == "OK"
        asker.stdin.close()


@pytest.mark.parametrize("client", ["python", "cpp"])
def test_a_restart_is_a_pause_to_another_user_though_the_door_is_shut_for_a_moment(daemon, client):
    """A daemon makes its sockets for itself first and opens them to others when it can serve."""
    if not Path(COMMANDS[client][-1]).exists():
        pytest.skip(f"the driver {COMMANDS[client][-1]} is not there")
    if not other_users(Path(COMMANDS[client][0]), ROOT / "client/python"):
        pytest.skip(NO_OTHER_USERS)
    daemon.add_pipeline("pictures", PIPELINE)
    daemon.restart()
    driver = Driver(client, daemon.address, user=LISTED)
    try:
        driver.open("pictures", job="other-user")
        golden = digests(driver.batches())
        driver.call("set_epoch", epoch=0)
        daemon.kill()
        os.chmod(daemon.address, 0o700)
        number = driver.send("next", count=0)
        time.sleep(0.5)  # it knocks meanwhile
        daemon.start()
        os.chmod(daemon.address, 0o755)
        assert digests(driver.answer(number)["batches"]) == golden
    finally:
        driver.end()
