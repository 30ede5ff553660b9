"""feedwater status: what it says to people and to programs, once and again and again."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

import own_datasets as own
import pytest
from command_line import PROGRAM, environment, open_terminal, run
from daemon_process import ROOT
from pictures import write_folder

import feedwater


@pytest.fixture
def busy(make_daemon):
    """A daemon with a trainer that takes batches until the test ends."""
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 24)
    daemon.add_pipeline(
        "some",
        "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\ngraph:\n"
        "  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\nbatch: {size: 4}\n",
    )
    daemon.start()
    stop, opened = threading.Event(), threading.Event()

    def train():
        with feedwater.Loader(
            "some", address=daemon.address, job="a-job", output="numpy"
        ) as loader:
            opened.set()
            while not stop.is_set():
                for _ in loader:
                    if stop.wait(0.005):
                        break

    trainer = threading.Thread(target=train)
    trainer.start()
    assert opened.wait(30)
    yield daemon
    stop.set()
    trainer.join()


def watch(daemon, *arguments, lines: int) -> list[str]:
    """Watch until so many lines have come, then press Ctrl-C."""
    process = subprocess.Popen(
        [
            PROGRAM,
            "--address",
            daemon.address,
            "status",
            "--watch",
            "--interval",
            "200ms",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    got = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and errors == ""
    return got


def job_lines(daemon, lines: int) -> list[dict]:
    """Documents that show the job, from the second look on."""
    documents = [json.loads(line) for line in watch(daemon, "--json", lines=lines)]
    return [document["jobs"][0] for document in documents if document["jobs"]][1:]


def test_json_is_a_line_for_each_look_with_rates(busy):
    for job in job_lines(busy, 8):
        assert job["job"] == "a-job"
        assert job["samples_per_s"] >= 0 and job["waits_for"]
        assert 0 <= job["ranks"][0]["waits_for_data"] <= 1
    assert any(job["samples_per_s"] > 0 for job in job_lines(busy, 8))


def test_a_pipe_gets_lines_and_no_control_characters(busy):
    lines = watch(busy, lines=4)
    assert all("\x1b" not in line for line in lines)
    assert any("samples/s" in line for line in lines)


def test_a_daemon_that_goes_away_is_waited_for(make_daemon):
    daemon = make_daemon()
    daemon.start()
    process = subprocess.Popen(
        [
            PROGRAM,
            "--address",
            daemon.address,
            "status",
            "--watch",
            "--interval",
            "100ms",
            "--json",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )

    def until(key: str) -> None:
        while key not in json.loads(process.stdout.readline()):
            pass

    until("version")
    daemon.stop()
    until("waiting")
    daemon.start()
    until("version")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_stages_and_cache_stand_in_the_status(busy):
    (job,) = run("--address", busy.address, "status", "--json").document["jobs"]
    for key in ("read_s", "parse_s", "graph_s", "batch_s"):
        assert job[key] >= 0
    assert job["cache"]["kind"] in ("none", "bytes", "coefficients", "decoded")
    assert job["cache"]["reason"]


def test_the_reference_has_every_field_of_the_status(busy):
    def paths(value: object, path: str) -> set[str]:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return {path} | paths(value[0], path + "[]") - {path + "[]"}
        # What stands in a map goes by names of its own.
        if not isinstance(value, dict) or path.endswith(("counters", "counter_texts", "decoded")):
            return {path}
        return {path} | {
            at for key, one in value.items() for at in paths(one, f"{path}.{key}" if path else key)
        }

    with feedwater.serve_op("length", len, workers=1, address=busy.address):
        document = run("--address", busy.address, "status", "--json").document
    assert document["jobs"][0]["ranks"]
    page = (ROOT / "config/reference/status.md").read_text()
    listed = set(re.findall(r"^\| `(\S+)` \|", page, re.M))
    groups = {"", "engine", "isolation", "memory"}
    assert paths(document, "") - groups == listed


def test_a_wrong_interval_is_refused(busy):
    result = run("--address", busy.address, "status", "--watch", "--interval", "1ms")
    assert result.status == 2 and "50ms" in result.err


def test_status_bad_lists_each_bad_record_once(make_daemon):
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 40, bad=(7, 21))
    daemon.add_pipeline(
        "some",
        "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\ngraph:\n"
        "  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\nbatch: {size: 4}\n"
        "on_bad_sample: skip_with_count\n",
    )
    daemon.start()
    nothing = run("--address", daemon.address, "status", "--bad", "--json").document
    assert nothing["bad_samples"] == [] and nothing["not_listed"] == 0
    with feedwater.Loader("some", address=daemon.address, job="a-job", output="numpy") as loader:
        for _ in range(2):
            assert sum(1 for _ in loader) == 10
        assert loader.stats()["skipped"] == 4
        assert loader.stats()["real_samples"] == 76
        assert loader.batch_info.real_samples == 4
        status = run("--address", daemon.address, "status", "--json").document
        [job] = status["jobs"]
        assert job["skipped"] == job["substituted"] == job["bad_samples"] >= 4
        assert status["counters"]["bad_records"] == 2
        assert status["counters"]["bad_records_quarantined"] == 0
    listed = run("--address", daemon.address, "status", "--bad", "--json").document
    assert [one["record"] for one in listed["bad_samples"]] == [7, 21]
    seven = listed["bad_samples"][0]
    assert seven["path"] == "pictures/cat/000007.png" and seven["pipeline"] == "some"
    assert seven["offset"] == 0
    assert seven["length"] == (daemon.data / seven["path"]).stat().st_size
    assert seven["count"] >= 2 and seven["action"] == "skip_with_count"
    assert seven["stood_in"] == 8 and seven["crashes"] == 0 and not seven["quarantined"]
    assert seven["first_seen"] <= seven["last_seen"] and seven["reason"]
    text = run("--address", daemon.address, "status", "--bad").out
    assert "record 7" in text and "2 bad records" in text
    # The file has the same, one object a line, and outlives the daemon.
    daemon.stop()
    lines = Path(listed["file"]).read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == [7, 21]
    daemon.start()
    again = run("--address", daemon.address, "status", "--bad", "--json").document
    assert again["bad_samples"][0]["first_seen"] == seven["first_seen"]
    assert run("--address", daemon.address, "status", "--bad", "--watch").status == 2


@pytest.fixture
def own_code(make_daemon, tmp_path):
    """A daemon with a loader over a slow dataset of the user's own, of which two records fail."""
    daemon = make_daemon()
    daemon.start()
    with feedwater.Loader.from_dataset(
        own.Sluggish(), 4, workers=2, shuffle=False, on_bad_sample="substitute", job="a-job",
        address=daemon.address, output="numpy",
    ) as loader:  # fmt: skip
        yield daemon, loader


def test_a_users_own_code_stands_in_the_status(own_code):
    daemon, loader = own_code
    assert len(list(loader)) == 10
    text = run("--address", daemon.address, "status").out
    (line,) = [line for line in text.splitlines() if line.startswith("own code")]
    assert re.match(
        r"own code source 'Sluggish-[0-9a-f]+-1': 2 processes, \d+ answered "
        r"in \d+(\.\d+)? ms each, \d failed",
        line,
    ), line
    (job,) = run("--address", daemon.address, "status", "--json").document["jobs"]
    assert len(job["own_code"]) == 1 and job["own_code"][0].startswith("Sluggish-")


def test_slow_own_code_is_blamed_and_not_the_storage(own_code):
    daemon, loader = own_code
    over = threading.Event()

    def train():
        while not over.is_set():
            for _ in loader:
                pass

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        lines = watch(daemon, lines=4)
    finally:
        over.set()
        trainer.join()
    told = [line for line in lines if "It waits for" in line]
    assert any("It waits for your own code: 2 processes of source 'Sluggish-" in t for t in told), (
        lines
    )


def test_more_workers_of_an_iterable_dataset_are_another_order(make_daemon):
    daemon = make_daemon()
    daemon.start()
    with feedwater.Loader.from_dataset(
        own.Slow(), 4, workers=2, length=40, address=daemon.address, output="numpy"
    ) as loader:
        over = threading.Event()

        def train():
            while not over.is_set():
                for _ in loader:
                    pass

        trainer = threading.Thread(target=train)
        trainer.start()
        try:
            lines = watch(daemon, lines=4)
        finally:
            over.set()
            trainer.join()
    assert any("but then states that were saved before do not fit" in line for line in lines), lines


def test_tracebacks_are_read_line_by_line_and_programs_are_kept_apart(own_code):
    daemon, loader = own_code
    list(loader)
    loader.close()
    text = run("--address", daemon.address, "status", "--bad").out
    assert (
        "\n  ValueError: record 3 is\\x1b[31m bad\n    Traceback (most recent call last):\n" in text
    )
    assert re.search(
        r'^      File ".*own_datasets.py", line \d+, in __getitem__$', text, re.MULTILINE
    )
    assert "\x1b" not in text
    listed = run("--address", daemon.address, "status", "--bad", "--json").document
    assert [one["record"] for one in listed["bad_samples"]] == [3, 21]
    with feedwater.Loader.from_dataset(  # another program with a dataset of that form
        own.Sluggish(bad=(3,)), 4, workers=1, shuffle=False, on_bad_sample="substitute",
        address=daemon.address, output="numpy",
    ) as loader:  # fmt: skip
        list(loader)
    listed = run("--address", daemon.address, "status", "--bad", "--json").document
    assert sorted(one["record"] for one in listed["bad_samples"]) == [3, 3, 21]


def test_status_speaks_to_people(make_daemon):
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 40)
    daemon.add_pipeline(
        "some",
        "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\ngraph:\n"
        "  - decode: {in: data, out: image}\n  - resize: {size: [64, 64]}\nbatch: {size: 4}\n",
    )
    daemon.start()
    with feedwater.Loader(
        "some", address=daemon.address, job="a-job", output="numpy", slots=3
    ) as loader:
        held = next(iter(loader))

        def ranks() -> list[dict]:
            return run("--address", daemon.address, "status", "--json").document["jobs"][0]["ranks"]

        deadline = time.monotonic() + 20
        while ranks()[0]["slots_lent"] < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        (rank,) = ranks()
        assert (rank["slots_lent"], rank["slots_ready"]) == (3, 2)  # one is in the loop's hands
        text = run("--address", daemon.address, "status").out
        assert re.search(r"rank +pid +epoch +step +ready +held +empty\n.* 2 +1 +0\n", text), text
        assert "clients let in: 1 (accepted)" in text and "sessions opened: 1 (opened)" in text
        assert "step -1" not in text
        del held


def test_every_counter_has_a_text(busy):
    """What no counter counted here is looked up by the tests of its owner (DeclaredCount)."""
    status = run("--address", busy.address, "status", "--json").document
    texts = status["counter_texts"]
    table = (ROOT / "server/transport/README.md").read_text().partition("### Counters")[2]
    explained = set(re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\|(.*?)\|", table, re.M))))
    assert len(explained) > 20 and len(texts) > 40 and all(texts.values())
    assert set(status["counters"]) <= set(texts)
    assert explained <= set(texts)


def test_a_daemon_that_was_killed_is_told_without_a_librarys_words(make_daemon):
    daemon = make_daemon()
    daemon.start()
    daemon.kill()
    for command in (["status"], ["status", "--bad"], ["ledger", "x", "--batch", 0], ["health"]):
        done = run("--address", daemon.address, *command)
        assert done.status == 1, command
        assert f"no feedwaterd at {daemon.address}" in done.err
        assert "no process listens" in done.err and "start it with" in done.err
        assert "failed to connect" not in done.err and "UNAVAILABLE" not in done.err
    document = run("--address", daemon.address, "status", "--json").document
    assert document["error"]["code"] == "UNAVAILABLE"


def test_a_closed_runtime_folder_is_no_permission_and_not_no_daemon(make_daemon):
    daemon = make_daemon()
    daemon.start()
    runtime = Path(daemon.address)
    as_other = []
    if os.getuid() == 0:  # whom no folder is closed to
        as_other = ["setpriv", "--reuid=52001", "--regid=52001", "--clear-groups"]
        if subprocess.run([*as_other, "test", "-x", PROGRAM], check=False).returncode != 0:
            pytest.skip("another user may not start the program here")
    runtime.chmod(0)
    try:
        done = subprocess.run(
            [*as_other, PROGRAM, "--address", daemon.address, "status"],
            capture_output=True, text=True, env=environment(), timeout=60, check=False,
        )  # fmt: skip
    finally:
        runtime.chmod(0o755)
    assert done.returncode == 1
    for part in ("permission denied", daemon.address, "access:", "group"):
        assert part in done.stderr
    assert "no feedwaterd" not in done.stderr


HOSTILE = "\x1b[31mx\x7f\u009b2J\u202egpj\u2028\u2066 z\nrecord 999  forged\udcff.jpg"
WRITTEN_OUT = r"\x1b[31mx\u007f\u009b2J\u202egpj\u2028\u2066 z\x0arecord 999  forged"


def test_a_hostile_file_name_is_written_out_wherever_people_read_it(make_daemon):
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 8)
    (daemon.data / "pictures/cat" / HOSTILE).write_bytes(b"no picture")
    daemon.add_pipeline(
        "some",
        "version: 1\ndataset: {format: image_folder, root: data, path: pictures}\n"
        "sampler: {shuffle: none}\ngraph:\n  - decode: {in: data, out: image}\n"
        "  - resize: {size: [8, 8]}\nbatch: {size: 9}\non_bad_sample: skip_with_count\n",
    )
    daemon.start()
    with feedwater.Loader("some", address=daemon.address, job="a-job", output="numpy") as loader:
        assert sum(1 for _ in loader) == 1
        texts = {
            "status --bad": run("--address", daemon.address, "status", "--bad"),
            "ledger": run("--address", daemon.address, "ledger", "a-job", "--batch", 0),
            "ledger of a file": run("ledger", "some", "--config", daemon.config, "--batch", 0),
        }
    verified = run("verify", "some", "--config", daemon.config)
    (bad,) = verified.lines
    # The JSON reader undoes what was escaped; a byte that is not UTF-8 cannot stand in JSON.
    assert bad["path"] == "pictures/cat/" + HOSTILE.replace("\udcff", "\ufffd")
    texts["verify"] = verified
    for name, done in texts.items():
        text = done.out + done.err
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text), name
        assert not re.search("^record 999", text, re.MULTILINE), name
        if name != "verify":
            assert WRITTEN_OUT in done.out, (name, done.out)
    assert not re.search(
        "[\x00-\x08\x0b-\x1a\x7f-\x9f\u2028-\u202e]", daemon.log.read_text(errors="replace")
    )


def test_health_waits_for_a_daemon_that_is_not_up_yet(make_daemon):
    daemon = make_daemon()
    began = time.monotonic()
    assert run("--address", daemon.address, "health", "--wait", 0.3).status == 1
    assert time.monotonic() - began >= 0.3
    later = threading.Timer(0.3, daemon.start)
    later.start()
    done = run("--address", daemon.address, "health", "--wait", 60)
    later.join()
    assert done.status == 0 and "serving at" in done.out


def test_watching_on_a_narrow_terminal_ends_with_q_and_leaves_the_terminal_as_it_was(busy):
    keyboard, terminal = open_terminal()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 12, 50, 0, 0))
    before = termios.tcgetattr(terminal)
    process = subprocess.Popen(
        ["setsid", "--ctty", PROGRAM, "--address", busy.address]
        + ["status", "--watch", "--interval", "200ms"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment(TERM="xterm"),
    )
    shown = b""
    while shown.count(b"samples/s") < 3:
        shown += os.read(keyboard, 65536)
    assert not termios.tcgetattr(terminal)[3] & (termios.ECHO | termios.ICANON)
    os.write(keyboard, b"xq")
    assert process.wait(60) == 0
    assert termios.tcgetattr(terminal) == before
    for one in (keyboard, terminal):
        os.close(one)
    views = shown.decode().split("\033[J")[1:-1]
    for view in views:
        assert view.startswith("\033[?7l") and view.count("\033[?7h") == 1, "lines are cut"
        assert view.count("\n") < 12, "what has scrolled away cannot be drawn over"
        # Sentences are wrapped, not cut.
        assert "q ends" in view or "too low" in view
