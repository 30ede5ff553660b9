"""A loader without a daemon starts one for its job, and that ends with its last client, however
that one ends, and leaves nothing but its state.

Programs run as processes of their own, with folders of their own (`private_home`).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from daemon_process import BUILD, DAEMON, NO_OTHER_USERS, OTHER_USER, other_users
from private_home import PIPELINE, Home, jobs_at

ROUNDS = int(os.environ.get("FEEDWATER_PRIVATE_ROUNDS", "30"))
STARTED = "started a private feedwaterd"
AGAIN = "started again"

TRAIN = """
loader = open_loader()
batches = [digest(batch) for batch in loader]
say([loader.address, batches])
"""
OPEN = """
loader = open_loader()
say(loader.address)
"""
WAIT = """
sys.stdin.readline()
"""
ENDINGS = {
    "exit": "",
    "close": "loader.close()\n",
    "exception": "raise SystemExit(0) from RuntimeError('an exception')\n",
    "abrupt exit": "os._exit(0)\n",
    "kill": "os.kill(os.getpid(), signal.SIGKILL)\n",
    "terminate": "os.kill(os.getpid(), signal.SIGTERM)\n",
    "interrupt": "os.killpg(0, signal.SIGINT); time.sleep(60)\n",
    "in the midst of an epoch": "next(iter(loader)); os.kill(os.getpid(), signal.SIGKILL)\n",
}


@pytest.fixture
def home(folder):
    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built (FEEDWATER_BUILD_DIR says where)")
    home = Home(folder / "h")
    home.environment["FEEDWATERD"] = str(DAEMON)
    yield home
    home.end()


def rank(number: int, size: int = 2) -> dict[str, str]:
    """Return torchrun's environment of a rank."""
    return {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
    }


@pytest.fixture
def expected(home):
    """The batches of an epoch that nothing disturbs."""
    return json.loads(home.run(TRAIN)[0])[1]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_daemon_is_started_and_ends_with_its_client(home, ending):
    program = home.start(OPEN + WAIT + ENDINGS[ending])
    address = json.loads(program.line())
    assert address.startswith(str(home.runtime / "feedwater/private"))
    assert len(home.daemons()) == 1
    program.go_on()
    program.process.wait(60)
    home.wait_until_nothing_is_left()
    told = program.told()
    assert told.count(STARTED) == 1
    assert str(home.state) in told and "CPU" in told and "GiB" in told and "feedwaterd --" in told


def test_a_daemon_ends_soon_after_its_last_loader_in_a_program_that_goes_on(home):
    program = home.start(OPEN + "loader.close()\n" + WAIT)
    program.line()
    home.wait_until_nothing_is_left()
    program.go_on()
    program.end()


def test_loaders_that_follow_one_another_or_stand_beside_one_another_have_one_daemon(home):
    out, told = home.run("""
addresses = set()
for turn in range(3):
    with open_loader() as train:
        addresses.add(train.address)
        next(iter(train))
    with open_loader() as first, open_loader(job="validation") as second:
        addresses |= {first.address, second.address}
say(len(addresses))
""")
    assert json.loads(out) == 1
    assert told.count(STARTED) == 1
    home.wait_until_nothing_is_left()


def test_ranks_of_a_job_share_a_daemon(home):
    programs = [home.start(TRAIN + WAIT, **rank(number)) for number in range(2)]
    said = [json.loads(program.line()) for program in programs]
    assert said[0][0] == said[1][0]
    assert len(home.daemons()) == 1
    ids = [i for _, batches in said for _, ids in batches for i in ids]
    assert sorted(ids) == list(range(40))
    assert sum(program.told().count(STARTED) for program in programs) == 1
    programs[0].kill()
    assert len(home.daemons()) == 1 and jobs_at(said[1][0])
    programs[1].kill()
    home.wait_until_nothing_is_left()


def test_ranks_that_are_restarted_one_by_one_find_the_daemon_of_the_others(home):
    programs = [home.start(OPEN + WAIT, **rank(number)) for number in range(2)]
    addresses = {json.loads(program.line()) for program in programs}
    daemons = home.daemons()
    for _ in range(2):
        for number in range(2):
            programs[number].kill()
            programs[number] = home.start(OPEN + WAIT, **rank(number))
            addresses.add(json.loads(programs[number].line()))
    assert len(addresses) == 1 and home.daemons() == daemons
    for program in programs:
        program.kill()
    home.wait_until_nothing_is_left()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_daemon_that_is_killed_is_started_again_and_the_same_batches_go_on(home, ranks):
    slow = """
loader = open_loader(slots=2, batch_size=2)
batches = []
for batch in loader:
    batches.append(digest(batch))
    if len(batches) == 2:
        say(loader.address)
        sys.stdin.readline()
say([batches, loader.stats()["reconnects"]])
"""

    def train(kill: bool):
        environments = [rank(n) if ranks > 1 else {} for n in range(ranks)]
        programs = [home.start(slow, **environment) for environment in environments]
        for program in programs:
            program.line()
        if kill:
            (daemon,) = home.daemons()
            os.kill(daemon, signal.SIGKILL)
        for program in programs:
            program.go_on()
        said = [json.loads(program.end()) for program in programs]
        home.wait_until_nothing_is_left()
        told = "".join(program.told() for program in programs)
        assert told.count(AGAIN) == kill, told
        return [batches for batches, _ in said], [reconnects for _, reconnects in said]

    undisturbed, reconnects = train(kill=False)
    assert reconnects == [0] * ranks
    batches, reconnects = train(kill=True)
    assert batches == undisturbed
    assert reconnects == [1] * ranks


def test_a_daemon_whose_folder_is_gone_is_replaced_for_the_next_loader(home):
    program = home.start("""
first = open_loader()
batches = [digest(batch) for batch in first]
say(first.address)
for line in sys.stdin:
    with open_loader() as second:
        say([digest(batch) for batch in second] == batches)
""")
    address = Path(program.line())
    address = Path(json.loads(str(address)))
    for turn in range(2):
        (old,) = home.daemons()
        for path in list(address.iterdir()):
            # As systemd-tmpfiles does, which leaves sockets in use; and all of it.
            if turn == 1 or not path.is_socket():
                path.unlink()
        if turn == 1:
            address.rmdir()
        program.go_on()
        assert program.line() == "true"
        home.wait_for(lambda old=old: old not in home.daemons(), "the old one ends")
        assert len(home.daemons()) == 1 and jobs_at(str(address)) is not None
        assert (address / "data.sock").exists() and (address / "lifeline").exists()
    program.kill()
    home.wait_for(lambda: not home.daemons(), "it ends")
    home.run(OPEN)  # removes what was put aside
    home.wait_until_nothing_is_left()


def test_why_a_daemon_does_not_start_is_told_where_children_are_not_waited_for(home):
    out, told = home.run(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "try:\n    open_loader(memory='1 byte')\n"
        "except feedwater.Error as error:\n    say(str(error))\n"
    )
    assert "did not start" in out and "memory" in out and STARTED not in told
    assert not home.files()
    out, told = home.run("signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + TRAIN)
    assert len(json.loads(out)[1]) == 10 and told.count(STARTED) == 1
    home.wait_until_nothing_is_left()


def test_threads_that_open_the_first_loaders_at_the_same_time_share_a_daemon(home):
    out, told = home.run(
        """
import threading
addresses = []
threads = [
    threading.Thread(target=lambda n=n: addresses.append(open_loader(job=f"job-{n}").address))
    for n in range(4)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say([len(addresses), len(set(addresses))])
""",
        **rank(0, 1),
    )
    assert json.loads(out) == [4, 1]
    assert told.count(STARTED) == 1
    home.wait_until_nothing_is_left()


def test_ranks_that_validate_alone_first_share_a_daemon_too(home):
    text = """
with open_loader(rank=0, world_size=1) as alone:
    ids = [digest(batch)[1] for batch in alone]
    with open_loader() as train:
        say([alone.address, train.address, sum(map(len, ids))])
        sys.stdin.readline()
"""
    programs = [home.start(text, **rank(number)) for number in range(2)]
    said = [json.loads(program.line()) for program in programs]
    assert len({address for *addresses, _ in said for address in addresses}) == 1
    assert [count for *_, count in said] == [40, 40]
    assert len(home.daemons()) == 1
    for program in programs:
        program.kill()
    home.wait_until_nothing_is_left()


def test_a_crash_is_told_once_and_its_log_is_kept_but_not_without_end(home):
    program = home.start("""
train = open_loader(reconnect_timeout=2, batch_size=1)
validation = open_loader(reconnect_timeout=2)

def forever():
    while True:
        yield from train

batches = forever()
for turn in range(6):
    next(batches)
    say(turn)
    sys.stdin.readline()
    try:
        while train.stats()["reconnects"] == turn:
            next(batches)
        say(len(list(validation)))
    except feedwater.DaemonLost as error:
        say([str(error), error.state is not None])
""")
    for turn in range(6):
        assert program.line() == str(turn)
        (daemon,) = home.daemons()
        os.kill(daemon, signal.SIGKILL)
        program.go_on()
        if turn < 5:
            assert program.line() == "10"
    text, has_state = json.loads(program.line())
    assert "5 times" in text and str(home.state) in text and has_state
    assert program.told().count(STARTED) == 1 and program.told().count(AGAIN) == 5
    assert home.log().count("serving at") == 6
    assert len(list((home.state / "feedwater/private").glob("*/*"))) == 1
    program.end()
    home.run(TRAIN)
    home.wait_until_nothing_is_left()


def test_what_a_killed_daemon_left_is_removed_by_the_next_job(home):
    program = home.start(OPEN + WAIT)
    program.line()
    (daemon,) = home.daemons()
    program.process.send_signal(signal.SIGSTOP)
    os.kill(daemon, signal.SIGKILL)
    program.kill()
    assert home.files()
    home.run(TRAIN)
    home.wait_until_nothing_is_left()


def test_two_jobs_have_two_daemons_and_are_told_of_each_other(home):
    epochs = OPEN + "for line in sys.stdin: say(len(list(loader)))\n"
    first = home.start(epochs)
    one = json.loads(first.line())
    second = home.start(epochs)
    other = json.loads(second.line())
    assert one != other and len(home.daemons()) == 2
    assert f"FEEDWATER_ADDRESS={one}" in second.told()
    for _ in range(2):
        first.go_on()
        first.line()
    assert first.told().count(f"FEEDWATER_ADDRESS={other}") == 1
    # As told: a third one shares the first one's, which then outlives the job that started it.
    third = home.start(epochs, FEEDWATER_ADDRESS=one)
    assert json.loads(third.line()) == one
    assert len(home.daemons()) == 2 and STARTED not in third.told()
    first.kill()
    third.go_on()
    assert third.line() == "10"
    second.kill()
    third.kill()
    home.wait_until_nothing_is_left()


def test_an_absolute_root_is_refused_by_a_shared_daemon_with_the_cure(home, make_daemon):
    daemon = make_daemon()
    daemon.start()
    out, told = home.run(
        "try:\n    open_loader(address=sys.argv[-1])\nexcept feedwater.PermissionDenied as error:\n"
        "    say(str(error))\n".replace("sys.argv[-1]", repr(daemon.address))
    )
    assert "absolute path" in out and "private" in out
    assert not told and not home.daemons()


def test_a_name_of_a_root_is_refused_by_a_private_daemon_with_the_cure(home):
    home.pipeline.write_text(PIPELINE.format(root="data"))
    out, _ = home.run(
        "try:\n    open_loader()\nexcept feedwater.NotFound as error:\n    say(str(error))\n"
    )
    assert "absolute path" in out
    home.wait_until_nothing_is_left()


def test_a_daemon_that_answers_is_used(home, make_daemon):
    shared = make_daemon()
    (home.runtime / "feedwater").mkdir()
    shared.address = str(home.runtime / "feedwater/0")
    text = shared.config.read_text().replace(str(shared.folder / "run"), shared.address)
    shared.config.write_text(text.replace(f"data: {shared.data}", f"data: {home.data}"))
    home.pipeline.write_text(PIPELINE.format(root="data"))
    shared.start()
    for options in ("", "daemon='shared'"):
        out, told = home.run(f"say(open_loader({options}).address)")
        assert json.loads(out) == shared.address and STARTED not in told
    _, told = home.run("open_loader(cpus=1)")
    assert "no effect" in told
    # One that was killed answers no more, whatever its sockets are.
    shared.kill()
    home.pipeline.write_text(PIPELINE.format(root=home.data))
    out, told = home.run("say(open_loader().address)")
    assert json.loads(out) != shared.address and STARTED in told


@pytest.mark.skipif(os.geteuid() != 0, reason=NO_OTHER_USERS)
def test_a_daemon_that_lets_this_user_not_in_is_told_and_a_folder_that_hides_one_is_not(home):
    if not other_users(DAEMON):
        pytest.skip(NO_OTHER_USERS)
    user = str(OTHER_USER)
    wrapper = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups")
    home.folder.chmod(0o755)
    home.folder.parent.chmod(0o755)
    text = (
        "try:\n    say(open_loader().address)\n"
        "except feedwater.PermissionDenied as error:\n    say(str(error))\n"
    )
    hidden = {"XDG_RUNTIME_DIR": "/root", "XDG_STATE_HOME": "/root"}
    said = home.start(text, wrapper, **hidden).end()
    assert f"/tmp/feedwater-{user}/private/" in said
    home.wait_for(lambda: not home.daemons(), "it ends")
    # The folder of a daemon that serves others.
    home.runtime.chmod(0o755)
    (home.runtime / "feedwater/0").mkdir(parents=True)
    (home.runtime / "feedwater").chmod(0o755)
    (home.runtime / "feedwater/0").chmod(0o700)
    said = home.start(text, wrapper, XDG_STATE_HOME="/root").end()
    assert "may not connect" in said and "private" in said
    shutil.rmtree(f"/tmp/feedwater-{user}")


@pytest.mark.parametrize("how", ["address", "environment"])
def test_a_daemon_that_was_named_is_never_replaced(home, how):
    nowhere = str(home.folder / "nowhere")
    option = f"address={nowhere!r}, " if how == "address" else ""
    environment = {"FEEDWATER_ADDRESS": nowhere} if how == "environment" else {}
    out, told = home.run(
        f"try:\n    open_loader({option}reconnect_timeout=0)\n"
        "except feedwater.DaemonLost as error:\n    say(str(error))\n",
        **environment,
    )
    assert nowhere in out and STARTED not in told
    assert not home.daemons() and not home.files()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("daemon='own'", "auto, shared, private"),
        ("daemon='private', address='/x'", "address"),
        ("daemon='shared', cpus=1", "private"),
        ("cpus='many'", "cpus"),
        ("cpus=0", "cpus"),
        ("cpus=4096", "must be a count from 1"),
        ("memory='1 byte'", "memory"),
        ("memory=1.5", "memory"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(home, options, words):
    out, _ = home.run(
        f"try:\n    open_loader({options})\n"
        "except feedwater.InvalidArgument as error:\n    say(str(error))\n"
    )
    assert words in out
    home.wait_until_nothing_is_left()


def test_cpus_and_memory_are_taken_as_given(home):
    _, told = home.run("open_loader(cpus=1, memory='512MiB')")
    assert "it takes 1 of" in told and "0.5 GiB" in told
    assert "512.0 MiB" in home.log()


def test_without_the_program_the_error_says_where_it_was_looked_for(home):
    text = "try:\n    open_loader()\nexcept feedwater.DaemonLost as error:\n    say(str(error))\n"
    nowhere = str(home.folder / "no-such-program")
    out, _ = home.run(text, FEEDWATERD=nowhere)
    assert nowhere in out and "$FEEDWATERD" in out and "install" in out
    assert not home.files()
    # One that is no daemon: what it said stands in the error.
    out, _ = home.run(text, FEEDWATERD="/bin/false")
    assert "did not start" in out
    assert not home.files() and not home.daemons()


@pytest.mark.parametrize(
    ("mounted", "words"),
    [
        ("mode=700,ro", "Read-only file system"),
        ("mode=700,size=4k", "No space left"),
        ("mode=700,nr_inodes=3", "No space left"),
    ],
)
def test_a_runtime_folder_without_room_or_right_is_named_with_the_cure(home, mounted, words):
    # A mount namespace of its own, since root may write wherever anybody could.
    fill = 'head -c 4096 /dev/zero >"$0/full"; ' if "size" in mounted else ""
    script = f'mount -t tmpfs -o {mounted} none "$0" && {{ {fill}exec "$@"; }}'
    program = home.start(
        "from feedwater import private_folder\n"
        f"private_folder._tmp = lambda: {str(home.runtime / 'tmp')!r}\n"
        "try:\n    open_loader()\nexcept feedwater.Error as error:\n    say(str(error))\n",
        wrapper=("unshare", "-m", "sh", "-c", script, str(home.runtime)),
    )
    said, _ = program.process.communicate(timeout=60)
    if "unshare" in program.told():
        pytest.skip("no mount namespaces here")
    assert words in said and str(home.runtime) in said and "Cure" in said, said + program.told()
    assert not home.daemons()


def test_a_forked_child_neither_keeps_the_daemon_nor_harms_it(home):
    program = home.start(
        OPEN
        + """
batches = iter(loader)
first = digest(next(batches))
child = os.fork()
if child == 0:
    os.close(1)
    time.sleep(600)
grandchild = os.fork()
if grandchild == 0:
    with open_loader() as own:
        os._exit(0 if digest(next(iter(own))) == first else 1)
status = os.waitpid(grandchild, 0)[1]
say([status, child, len(list(batches))])
"""
        + WAIT
    )
    program.line()
    status, child, rest = json.loads(program.line())
    assert status == 0 and rest == 9
    try:
        home.wait_for(lambda: len(home.daemons()) == 1, "the other child's daemon ends")
        program.kill()
        home.wait_until_nothing_is_left()
        os.kill(child, 0)  # it lives
    finally:
        os.kill(child, signal.SIGKILL)


def test_ten_interrupted_cells_leave_no_process(home):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    out, _ = home.run(f"""
import gc, random, threading
draw = random.Random({seed})

def cell():
    global loader
    loader = open_loader()
    for epoch in range(1000):
        for batch in loader:
            digest(batch)

for turn in range(10):
    timer = threading.Timer(draw.uniform(0.0, 0.6), os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        cell()
    except KeyboardInterrupt:
        pass
    timer.join()
loader = None
gc.collect()
say("through")
sys.stdin.close()
time.sleep(0.1)
""")
    assert "through" in out
    home.wait_until_nothing_is_left()


def test_a_starter_that_is_killed_at_any_moment_leaves_no_daemon(home):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(10):
        program = home.start("say(1)\nopen_loader()\n" + WAIT)
        program.line()
        time.sleep(draw.uniform(0.0, 0.2))
        program.kill()
    home.run(TRAIN)  # removes what a starter had made before there was a daemon
    home.wait_until_nothing_is_left()


def test_a_rank_that_is_killed_while_it_starts_the_daemon_is_replaced_by_another(home):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    for turn in range(8):
        port = {"MASTER_PORT": str(20000 + turn)}
        ranks = [home.start("say(1)\n" + OPEN + WAIT, **{**rank(n, 3), **port}) for n in range(3)]
        for program in ranks:
            program.line()
        time.sleep(draw.uniform(0.0, 0.1))
        ranks.pop(draw.randrange(3)).kill()
        assert len({program.line() for program in ranks}) == 1
        for program in ranks:
            program.kill()
    home.run(TRAIN)
    home.wait_until_nothing_is_left()


def test_many_daemons_are_started_and_ended_in_every_way_and_none_is_left(home):
    shared_memory = set(os.listdir("/dev/shm"))
    endings = list(ENDINGS.values())
    for turn in range(ROUNDS):
        program = home.start(OPEN + endings[turn % len(endings)])
        program.process.communicate(timeout=60)
        assert program.told().count(STARTED) == 1, program.told()
    home.wait_until_nothing_is_left()
    assert set(os.listdir("/dev/shm")) <= shared_memory
    assert len(list((home.state / "feedwater/private").glob("*/*"))) <= len(endings)


def test_status_all_lists_shared_and_private_daemons(home, make_daemon):
    program = home.start(OPEN + WAIT)
    address = json.loads(program.line())
    shared = make_daemon()
    shared.address = str(home.runtime / "feedwater/0")
    text = shared.config.read_text().replace(str(shared.folder / "run"), shared.address)
    shared.config.write_text(text)
    shared.start()

    def ask(*arguments: str) -> str:
        return subprocess.run(
            [BUILD / "bin/feedwater", "status", "--all", *arguments],
            env=home.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    here = [
        d
        for d in json.loads(ask("--json"))["daemons"]
        if d["address"].startswith(str(home.runtime))
    ]
    assert {d["kind"]: d["address"] for d in here} == {"private": address, "shared": shared.address}
    private = next(d for d in here if d["kind"] == "private")
    assert [private["pid"]] == [p for p in home.daemons() if p == private["pid"]]
    assert len(private["cpus"]) >= 1 and len(private["jobs"]) == 1
    text = ask()
    assert address in text and shared.address in text and "jobs: none" in text
    assert Path(address).exists()
    program.kill()
