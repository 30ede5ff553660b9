"""Commands that decode by themselves do so where the daemon would."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from command_line import PROGRAM, environment, run
from daemon_process import BUILD

GRAPH = "  - decode: {in: data, out: image}\n  - random_resized_crop: {size: 24}\n"
COMMANDS = PROGRAM.with_name("feedwater-commands")  # what PROGRAM runs
PHOTOS = 160  # more than a thread takes at a time


def isolate(project, mode: str) -> None:
    text = project.config.read_text()
    project.config.write_text(text.partition("isolation:")[0] + f"isolation: {mode}\n")


def test_the_same_reports_and_pictures_either_way(project):
    project.pictures("pictures", 24, bad=(7,))
    project.pipeline("some", GRAPH)
    reports, sheets = [], []
    for mode in ("none", "process"):
        isolate(project, mode)
        report = run("verify", "some", "--config", project.config, "--json").document
        reports.append(report["bad"])
        sheet = project.folder / f"{mode}.png"
        done = run("preview", "some", "--config", project.config, "-o", sheet)
        assert done.status == 0, done.err
        sheets.append(sheet.read_bytes())
    assert [bad["record"] for bad in reports[0]] == [7]
    assert reports[1] == reports[0]
    assert sheets[1] == sheets[0]


@pytest.fixture
def photos(project):
    """A project with JPEGs, one of them cut, and a picture that is none."""
    tool = BUILD / "tools/make_photos"
    if not tool.exists():
        pytest.skip(f"{tool} is not built")
    folder = project.data / "pictures"
    command = [tool, folder, "--count", str(PHOTOS)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    project.pictures("pictures", 1)
    cut = min(folder.rglob("*.jp*g"))
    cut.write_bytes(cut.read_bytes()[:200])
    return project


def seek_indexes(project) -> dict[bytes, bytes]:
    """Take the file with the seek indexes away, and return what it has kept of which image."""
    (path,) = (project.state / "indexes").glob("*.seek")
    data = path.read_bytes()
    path.unlink()
    found, at = {}, 16
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at + 24)
        found[data[at + 8 : at + 24]] = data[at + 32 : at + 32 + size]
        at += 32 + size
    return found


def filters(pid: int | str) -> int:
    """Return how many seccomp filters a process is behind."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("\nSeccomp_filters:")[2].split()[0])


def confined(process: subprocess.Popen) -> set[int]:
    """Return the process's children that are behind one filter more than this process."""
    found = set()
    for path in Path(f"/proc/{process.pid}/task").glob("*/children"):
        with contextlib.suppress(OSError, IndexError):  # it has ended
            found |= {
                int(pid) for pid in path.read_text().split() if filters(pid) > filters("self")
            }
    return found


# The second graph decodes nothing: the daemon would run it itself, but the command looks into
# images all the same.
@pytest.mark.parametrize(
    ("graph", "mode"), [(GRAPH, "process"), ("", "auto")], ids=["process", "auto"]
)
def test_seek_indexes_are_made_in_sandboxed_processes_and_are_the_same(photos, graph, mode):
    if graph:
        photos.pipeline("some", graph)
    else:
        photos.pipeline("some", "  - one_hot: {in: label, out: hot}\n", outputs="[hot]")
    photos.config.write_text(photos.config.read_text() + "access: {users: [nobody]}\n")
    command = [COMMANDS, "index", "some", "--seek", "--json", "--config", photos.config]
    isolate(photos, "none")
    plain = run(*command[1:])
    assert plain.document["indexes"][0]["seek_indexes"] == PHOTOS - 1
    expected = seek_indexes(photos)
    assert len(expected) == PHOTOS - 1

    isolate(photos, mode)
    seen = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
        while process.poll() is None:
            seen |= confined(process)
            time.sleep(0.002)
        out = process.stdout.read().decode()
    assert process.returncode == 0
    assert f'"seek_indexes": {PHOTOS - 1}' in out
    assert seek_indexes(photos) == expected
    assert len(seen) >= 2, "one for each thread"


def test_a_decoder_that_dies_on_a_record_does_not_end_index_seek(photos):
    photos.pipeline("segv", GRAPH)
    isolate(photos, "process")
    folder = photos.folder / "bin"
    folder.mkdir()
    shutil.copy(COMMANDS, folder)
    shutil.copy(BUILD / "tools/hostile_decoder", folder / "feedwater-decoder")
    done = subprocess.run(
        [folder / COMMANDS.name, "index", "segv", "--seek", "--json", "--config", photos.config],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert '"seek_indexes": 0' in done.stdout
    assert done.stderr.count("died of SIGSEGV") == PHOTOS


@pytest.mark.parametrize("command", ["verify", "preview", "index"])
def test_without_a_decoder_they_refuse(project, command):
    project.pictures("pictures", 4)
    project.pipeline("some", GRAPH)
    isolate(project, "process")
    alone = project.folder / "alone/feedwater-commands"
    alone.parent.mkdir()
    shutil.copy(COMMANDS, alone)
    arguments = [alone, command, "some", "--config", project.config]
    if command == "preview":
        arguments += ["-o", project.folder / "sheet.png"]
    if command == "index":
        arguments += ["--seek"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode != 0
    assert "isolation needs it beside" in done.stderr
