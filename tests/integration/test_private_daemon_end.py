"""A private daemon ends with its last client, however that one ends, and leaves nothing but its
state; one that dies is started again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from private_home import (
    AGAIN,
    OPEN,
    STARTED,
    TRAIN,
    WAIT,
    home_fixture,  # noqa: F401
    jobs_at,
    rank,
)

ROUNDS = int(os.environ.get("FEEDWATER_PRIVATE_ROUNDS", "30"))
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
    assert str(home.state) in told and "CPU" in told and "GiB" in told and "cpus=" in told


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
