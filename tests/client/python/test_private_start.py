"""What a private daemon is started with, and whose it is: without starting one."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
import time

import pytest

import feedwater
from feedwater import lifeline, machine, private, private_folder
from feedwater.placement import local_ranks, placement

WAIT_S = 60.0
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 1),
        (TORCHRUN, 8),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": ""}, 16),
        (
            {
                "OMPI_COMM_WORLD_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            },
            4,
        ),
        (
            {
                "SLURM_PROCID": "3",
                "SLURM_STEP_NUM_TASKS": "11",
                "SLURM_LOCALID": "3",
                "SLURM_STEP_ID": "0",
                "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
            },
            4,
        ),
        # More than there are in the job: what a larger allocation says.
        (
            {
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_ID": "0",
                "SLURM_NTASKS_PER_NODE": "8",
            },
            2,
        ),
    ],
)
def test_local_ranks_are_those_that_the_launcher_says(environment, expected):
    assert local_ranks(placement(env=environment), environment) == expected


@pytest.mark.parametrize(
    ("usable", "ranks", "alone", "beside_another", "beside_three"),
    [
        (1, 1, 1, 1, 1),
        (2, 1, 1, 1, 1),
        (4, 1, 3, 1, 1),
        (8, 1, 7, 3, 1),
        (8, 8, 4, 2, 1),
        (64, 8, 56, 28, 14),
        (3, 9, 2, 1, 1),
    ],
)
def test_trainers_keep_a_cpu_each_and_the_daemon_at_least_half(
    usable, ranks, alone, beside_another, beside_three
):
    assert private.split_cpus(usable, ranks, 0) == alone
    assert private.split_cpus(usable, ranks, 1) == beside_another
    assert private.split_cpus(usable, ranks, 3) == beside_three


def test_the_memory_of_all_private_daemons_is_less_than_the_machine_has():
    machine_has = 64 << 30
    taken: list[str] = []
    for _ in range(8):
        taken.append(str(private.split_memory(machine_has, taken)))
    assert int(taken[0]) == int(machine_has * 0.4) and int(taken[1]) == int(machine_has * 0.2)
    assert sum(map(int, taken)) < machine_has
    # What somebody chose counts, in any unit.
    for text in ("32GiB", "32 GiB", str(32 << 30)):
        assert private.split_memory(machine_has, [text]) == int(
            (machine_has * 0.8 - (32 << 30)) / 2
        )
    for text in ("auto", "1PiB", "1TiB"):
        assert 0 < private.split_memory(machine_has, [text]) < machine_has * 0.05


def test_ranks_of_a_launch_have_one_daemon_and_other_processes_their_own(monkeypatch):
    launch = {**TORCHRUN, "MASTER_ADDR": "host", "MASTER_PORT": "1"}
    one = private.key_of(placement(env=launch), None)
    assert one == private.key_of(placement(env={**launch, "RANK": "2", "LOCAL_RANK": "2"}), "x")
    assert one != private.key_of(placement(env={**launch, "MASTER_PORT": "2"}), None)
    # A group that torchrun starts again is the same launch.
    run = {"TORCHELASTIC_RUN_ID": "run"}
    again = {"TORCHELASTIC_RUN_ID": "run", "TORCHELASTIC_RESTART_COUNT": "3"}

    def key(**environment: str) -> str:
        with monkeypatch.context() as patch:
            for name, value in {**launch, **environment}.items():
                patch.setenv(name, value)
            return private.key_of(placement(), None)

    assert key(**run) == key(**again)
    # Jobs whose names look like a restart of one another.
    names = ("run", "run.0", "run.3")
    assert len({key(TORCHELASTIC_RUN_ID=name) for name in names}) == len(names)
    for name in names:
        restarted = {"TORCHELASTIC_RUN_ID": name, "TORCHELASTIC_RESTART_COUNT": "1"}
        assert key(**restarted) == key(TORCHELASTIC_RUN_ID=name)
    # A loader of a rank's own (every rank validates alone) is the launch's, too.
    own = placement(0, 1, launch)
    assert own.job is None and private.key_of(own, None) == one
    assert local_ranks(own, launch) == 8
    alone = private.key_of(placement(env={}), None)
    assert alone.startswith(f"pid-{os.getpid()}.")
    assert private.key_of(placement(0, 2), "sweep") == "sweep"


@pytest.fixture
def runtime(folder, monkeypatch):
    """Folders for private daemons in which no other test's are."""
    monkeypatch.setattr(private_folder, "_runtime_bases", lambda: [str(folder / "feedwater")])
    monkeypatch.setattr(private_folder, "_tmp", lambda: str(folder / "tmp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return folder


class Daemon:
    """What a daemon has of its folder while it serves."""

    def __init__(self, folder: str, config: dict | None = None) -> None:
        _, self.config = private_folder.write_config(folder, {}, config or {})
        self.fifo = os.open(os.path.join(folder, lifeline.FIFO), os.O_RDONLY | os.O_NONBLOCK)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(os.path.join(folder, "data.sock"))
        self.socket.listen()

    def end(self) -> None:
        lifeline.close(self.config)
        os.close(self.fifo)
        self.socket.close()


def test_the_sockets_of_a_daemon_whose_files_a_cleaner_took_are_left(runtime):
    with private_folder.StartLock() as lock:
        folder = os.path.join(lock.private, "job")
        assert lock.make(folder)
        daemon = Daemon(folder)
        line = lifeline.lifeline_of(folder)
        line.take(lifeline.open_end(folder))
        assert line.is_joined() and not private_folder.put_aside(folder)
        for name in (lifeline.FIFO, private_folder.CONFIG):
            os.unlink(os.path.join(folder, name))
        assert private_folder.has_daemon(folder)
        assert line.is_lost() and not line.is_joined()  # nobody else can join it
        assert lock.others("") == []
        assert private_folder.listens(folder)
        assert private_folder.put_aside(folder)  # makes room for another one
        assert not os.path.exists(folder) and private_folder.listens(f"{folder}.0")
        assert lock.make(folder)
        daemon.end()
        assert lock.others(folder) == [] and os.listdir(lock.private) == ["job"]
        line.drop()


def test_the_times_of_a_daemons_files_are_renewed(runtime):
    with private_folder.StartLock() as lock:
        folder = os.path.join(lock.private, "job")
        assert lock.make(folder)
    daemon = Daemon(folder)
    line = lifeline.lifeline_of(folder)
    line.take(lifeline.open_end(folder))
    paths = [folder, *(os.path.join(folder, name) for name in os.listdir(folder))]
    for path in paths:
        os.utime(path, (1.0, 1.0))
    line.renew()
    assert len(paths) == 4 and all(os.stat(path).st_mtime > 1.0 for path in paths)
    assert all(os.stat(path).st_atime > 1.0 for path in paths)
    line.drop()
    daemon.end()


def test_a_folder_that_an_ending_daemon_takes_away_is_made_anew(runtime, monkeypatch):
    mkfifo, turns = os.mkfifo, iter((True, False))

    def race(path: str, mode: int) -> None:
        if next(turns, False):  # the ending daemon: its folder, and the one above
            os.rmdir(os.path.dirname(path))
            os.rmdir(os.path.dirname(os.path.dirname(path)))
        mkfifo(path, mode)

    monkeypatch.setattr(os, "mkfifo", race)
    made = []
    while not any(made):
        with private_folder.StartLock(str(runtime / "feedwater/private")) as lock:
            made.append(lock.make(os.path.join(lock.private, "job")))
    assert made == [False, True]


def test_a_folder_whose_user_has_logged_out_is_named_with_the_cure(runtime):
    with pytest.raises(feedwater.DaemonLost, match="enable-linger"):
        private_folder.StartLock(str(runtime / "run/0/feedwater/private")).__enter__()


def test_state_is_a_hosts_own_and_elsewhere_where_it_cannot_be_locked(runtime, monkeypatch, caplog):
    monkeypatch.setattr(socket, "gethostname", lambda: "one")
    first = private_folder.StateSlot()
    monkeypatch.setattr(socket, "gethostname", lambda: "other/..")
    other = private_folder.StateSlot()
    state = runtime / "state/feedwater/private"
    assert [first.path, other.path] == [f"{state}/one/0", f"{state}/other/0"]
    flock = fcntl.flock

    def without_locks(fd: int, how: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(state)):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", without_locks)
    slot = private_folder.StateSlot()
    assert slot.path == str(runtime / "tmp/state/private/other/0")
    assert "XDG_STATE_HOME" in caplog.text and slot.path[:-2] in caplog.text
    for taken in (first, other, slot):
        taken.close()


@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_daemon_that_does_not_serve_did_not_start_whatever_its_status(
    runtime, monkeypatch, is_reaped
):
    program = runtime / "feedwaterd"
    program.write_text(
        "#!/bin/sh\necho the reason\nexit 0\n" if is_reaped else "#!/bin/sh\nexit 0\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("FEEDWATERD", str(program))
    words = "did not start: " + ("the reason" if is_reaped else "it said nothing")
    with pytest.raises(feedwater.DaemonLost, match=words):
        private.start_or_join(placement(env={}), None, private.Wanted(None, None))
    assert not os.path.exists(runtime / "feedwater/private")


@pytest.mark.parametrize(
    ("wanted", "said", "told"),
    [
        (
            private.Wanted("64", None),
            "cpus: must be a count from 1 to 2, not 64",
            "cpus=64: must be a count from 1 to 2, not 64. Cure: another cpus=, or leave it out",
        ),
        (
            private.Wanted(None, "1 B"),
            "memory: 1 B is too little",
            "memory=1 B: 1 B is too little. Cure: another memory=, or leave it out",
        ),
        # Of a machine that has too little for what the loader chose.
        (
            private.Wanted("1", None),
            "memory: 9 MiB is too little",
            "memory: 9 MiB is too little (of a private daemon; memory= says another one)",
        ),
    ],
)
def test_a_refused_argument_is_named_and_not_a_file_that_nobody_wrote(
    runtime, monkeypatch, wanted, said, told
):
    program = runtime / "feedwaterd"
    program.write_text(f'#!/bin/sh\necho "feedwaterd: $2:13:11: {said}"\nexit 2\n')
    program.chmod(0o755)
    monkeypatch.setenv("FEEDWATERD", str(program))
    with pytest.raises(feedwater.InvalidArgument) as refused:
        private.start_or_join(placement(env={}), None, wanted)
    assert str(refused.value) == f"a private daemon did not start: {told}"


def test_arguments_that_come_too_late_are_told_once(runtime, caplog):
    with private_folder.StartLock() as lock:
        folder = os.path.join(lock.private, "job")
        assert lock.make(folder)
    daemon = Daemon(folder, {"cpus": "1", "memory": str(1 << 30)})
    made = [private.PrivateDaemon(folder, private.Wanted("1", None))]  # as another process has it
    made.append(private.PrivateDaemon(folder, private.Wanted(" 1", "1GiB")))
    assert not caplog.records
    for _ in range(2):
        made.append(private.PrivateDaemon(folder, private.Wanted("2", "2GiB")))
    cpus, memory = (record.getMessage() for record in caplog.records)
    assert cpus.startswith("cpus=2 has no effect") and "with cpus=1," in cpus and "Cure" in cpus
    assert memory.startswith("memory=2GiB has no effect") and f"with memory={1 << 30}," in memory
    for one in made:
        one.release()
    lifeline.lifeline_of(folder).drop()
    daemon.end()


def test_a_list_of_cpus_is_the_same_however_it_is_written(runtime, caplog):
    with private_folder.StartLock() as lock:
        folder = os.path.join(lock.private, "job")
        assert lock.make(folder)
    daemon = Daemon(folder, {"cpus": "0-1,3", "memory": str(1 << 30)})
    made = [
        private.PrivateDaemon(folder, private.Wanted(cpus, None))
        for cpus in ("0-1,3", "0,1,3", "3, 0 - 1")
    ]
    assert not caplog.records
    for cpus in ("0-3", "3", "9-99999999999"):
        made.append(private.PrivateDaemon(folder, private.Wanted(cpus, None)))
        assert f"cpus={cpus} has no effect" in caplog.text
    for one in made:
        one.release()
    lifeline.lifeline_of(folder).drop()
    daemon.end()


def test_a_start_is_told_in_one_line_with_what_changes_it(runtime, monkeypatch, caplog):
    monkeypatch.setattr(private.PrivateDaemon, "ensure", lambda self: None)
    daemon = private.PrivateDaemon(str(runtime / "none"), private.Wanted(None, None))
    slot = private_folder.StateSlot(None)
    daemon._tell(slot, [], again=False)
    slot.close()
    daemon.release()
    (record,) = caplog.records
    text = record.getMessage()
    assert len(text.replace(slot.log, "")) < 160 and "\n" not in text
    assert slot.log in text and "GiB" in text and "help(feedwater.Loader)" in text


def test_a_thread_waits_for_the_start_that_another_one_has_begun(runtime, monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(private, "find_program", lambda: "/bin/true")
    monkeypatch.setattr(private.PrivateDaemon, "_tell", lambda *unused: None)
    monkeypatch.setattr(private.PrivateDaemon, "_check_same", lambda *unused: None)
    readers: list[int] = []

    def serves(self: private.PrivateDaemon, process, log: str, wanted) -> None:
        process.wait()
        readers.append(
            os.open(os.path.join(self.address, lifeline.FIFO), os.O_RDONLY | os.O_NONBLOCK)
        )
        began.set()
        assert go_on.wait(WAIT_S)

    monkeypatch.setattr(private.PrivateDaemon, "_wait", serves)
    made: list[private.PrivateDaemon] = []

    def make() -> None:
        made.append(private.start_or_join(placement(env={}), "job", private.Wanted(None, None)))

    threads = [threading.Thread(target=make) for _ in range(2)]
    threads[0].start()
    assert began.wait(WAIT_S)
    threads[1].start()
    time.sleep(0.3)
    assert not made  # not before it serves
    go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(made) == 2 and len(readers) == 1
    assert made[0].address == made[1].address
    lifeline.lifeline_of(made[0].address).drop()
    os.close(readers[0])
    for daemon in made:
        daemon.release()


def test_a_daemon_is_looked_for_in_the_places_of_other_ranks_too(monkeypatch, folder):
    user = os.geteuid()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    mine = str(folder / "feedwater")
    elsewhere = {f"/run/user/{user}/feedwater", f"/tmp/feedwater-{user}"}
    assert {mine} | elsewhere == set(private_folder._searched_bases())
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert elsewhere == set(private_folder._searched_bases())
    # One that another rank has in its place is found, and started again in that one.
    monkeypatch.setattr(private_folder, "_searched_bases", lambda: [mine])
    with private_folder.StartLock(f"{mine}/private") as lock:
        place = placement(env=TORCHRUN)
        job = os.path.join(lock.private, private_folder.name_of(private.key_of(place, "job")))
        assert lock.make(job)
        daemon = Daemon(job)
    assert private.running(place, "job") == job
    daemon.end()
    assert private.running(place, "job") is None


def test_a_folders_name_is_short_whatever_the_job_is_called():
    names = [private_folder.name_of(key) for key in ("a/b c", "a-b-c", "x" * 4000, "\n", "..", "")]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 35 and "/" not in name and name[0] != "." for name in names)


def test_the_program_is_looked_for_beside_the_package_then_in_the_path(monkeypatch, tmp_path):
    monkeypatch.delenv("FEEDWATERD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(private, "__file__", str(tmp_path / "site/feedwater/private.py"))
    with pytest.raises(feedwater.DaemonLost) as caught:
        private.find_program()
    for word in ("site/feedwater/bin/feedwaterd", str(tmp_path), "$FEEDWATERD", "install"):
        assert word in str(caught.value)
    for place in ("feedwaterd", "site/feedwater/bin/feedwaterd"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("#!/bin/sh\n")
        (tmp_path / place).chmod(0o755)
        assert private.find_program() == str(tmp_path / place)
    monkeypatch.setenv("FEEDWATERD", str(tmp_path))
    with pytest.raises(feedwater.DaemonLost, match="FEEDWATERD = "):
        private.find_program()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/link").symlink_to(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEEDWATERD", "other/link/../feedwaterd")
    assert os.path.samefile(private.find_program(), tmp_path / "feedwaterd")
    assert os.path.isabs(private.find_program())


@pytest.mark.parametrize("package", ["/app/feedwater", "/feedwater"])
def test_a_package_near_the_root_of_the_file_system_finds_no_sources_there(monkeypatch, package):
    """As `pip install --target /app` puts it."""
    monkeypatch.delenv("FEEDWATERD", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(private, "__file__", f"{package}/private.py")
    with pytest.raises(feedwater.DaemonLost, match=f"looked for {package}/bin/feedwaterd"):
        private.find_program()


def test_a_folder_of_somebody_else_is_not_used(monkeypatch, tmp_path):
    base = tmp_path / "feedwater"
    monkeypatch.setattr(private_folder, "_runtime_bases", lambda: [str(base)])
    base.symlink_to(tmp_path)
    with pytest.raises(feedwater.PermissionDenied, match="not a folder of user"):
        private_folder.StartLock().__enter__()
    base.unlink()
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(feedwater.PermissionDenied, match="chmod 700"):
        private_folder.StartLock().__enter__()


def test_cpus_and_memory_are_within_the_control_groups(monkeypatch, tmp_path):
    inner = tmp_path / "outer/inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (tmp_path / "outer/cpu.max").write_text("150000 100000\n")
    (tmp_path / "outer/memory.max").write_text("1048576\n")
    monkeypatch.setattr(machine, "_CGROUPS", str(tmp_path))
    groups = machine._groups
    (tmp_path / "cgroup").write_text("0::/outer/inner\n")
    monkeypatch.setattr(machine, "_groups", lambda name: groups(name, str(tmp_path / "cgroup")))
    assert machine.usable_cpus() == 1
    assert machine.usable_memory() == 1 << 20


def test_a_lifeline_is_let_go_a_while_after_its_last_user(monkeypatch, tmp_path):
    monkeypatch.setattr(lifeline, "GRACE_S", 0.05)
    os.mkfifo(tmp_path / lifeline.FIFO)
    assert lifeline.open_end(str(tmp_path)) is None  # no daemon
    daemon = os.open(tmp_path / lifeline.FIFO, os.O_RDONLY | os.O_NONBLOCK)
    line = lifeline.lifeline_of(str(tmp_path))
    assert lifeline.lifeline_of(str(tmp_path)) is line and not line.is_joined()
    users = [line.hold() for _ in range(2)]
    line.take(lifeline.open_end(str(tmp_path)))
    assert line.is_joined()
    users.pop().release()
    users.append(line.hold())
    users.clear()  # dropped without a word
    os.set_blocking(daemon, True)
    assert os.read(daemon, 1) == b""  # waits for the last writer's end
    assert not line.is_joined()
    # A daemon that ends is noticed, too.
    user = line.hold()
    os.set_blocking(daemon, False)
    line.take(lifeline.open_end(str(tmp_path)))
    assert line.is_joined()
    os.close(daemon)
    assert not line.is_joined()
    user.release()
