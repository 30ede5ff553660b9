"""feedwater migrate: scripts in the style of PyTorch's examples, and scripts that are none.

The scripts are in migrate/, with what is printed about each beside it. FEEDWATER_UPDATE_GOLDEN=1 is
to write those files anew, and read the difference.
"""

from __future__ import annotations

import ast
import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_line import PROGRAM, environment, run
from migration import LOADER, beside, head, migrate, write

SCRIPTS = Path(__file__).parent / "migrate"
NAMES = ("classify", "generate", "pairs")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_of_a_script_is_as_written_down(project, name):
    shutil.copy(SCRIPTS / f"{name}.py", project.folder)
    done = migrate(f"{name}.py", cwd=project.folder)
    assert (done.status, done.err) == (1, "")  # each has something that cannot be translated
    golden = SCRIPTS / f"{name}.txt"
    if os.environ.get("FEEDWATER_UPDATE_GOLDEN"):
        golden.write_text(done.out)
    assert done.out == golden.read_text()


def make_data(project) -> None:
    """Data for every pipeline of the scripts: folders, CIFAR-10 and MNIST, below two roots."""
    project.pictures("train", 12)
    project.pictures("val", 12)
    cifar = project.data / "cifar-10-batches-bin"
    cifar.mkdir()
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        (cifar / f"{name}.bin").write_bytes(bytes(3073) * 4)
    mnist = project.data / "MNIST/raw"
    mnist.mkdir(parents=True)
    for split in ("train", "t10k"):
        images = np.array([0x803, 4, 28, 28], ">i4").tobytes() + bytes(4 * 784)
        labels = np.array([0x801, 4], ">i4").tobytes() + bytes(4)
        (mnist / f"{split}-images-idx3-ubyte").write_bytes(images)
        (mnist / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    text = project.config.read_text()
    project.config.write_text(text.replace("{data: data}", "{data: data, dataroot: data}"))


@pytest.mark.parametrize("name", NAMES)
def test_the_pipelines_are_valid_and_the_changed_script_is_one(project, name):
    make_data(project)
    shutil.copy(SCRIPTS / f"{name}.py", project.folder)
    done = migrate(f"{name}.py", "--out", "made", "--json", cwd=project.folder)
    document = done.document
    assert done.status == 1 and document["files"] and document["untranslated"]
    for file, text in document["files"].items():
        path = project.folder / "made" / file
        assert path.read_text() == text
        if "-image_folder" in file:  # its root itself has the class folders
            path.write_text(text.replace("root: dataroot", "root: dataroot, path: train"))
        checked = run("validate", path, "--config", project.config)
        assert checked.status == 0, text + checked.err
    diff = project.folder / "made" / f"{name}.py.diff"
    subprocess.run(["patch", "-p0", "-s", "-i", diff], cwd=project.folder, check=True)
    changed = (project.folder / f"{name}.py").read_text()
    tree = ast.parse(changed)
    assert "import feedwater\n" in changed
    # Every file is opened by its path, and every name that the new lines use is there.
    opened = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {f"made/{file}" for file in document["files"]} <= opened
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
             and isinstance(node.ctx, ast.Store)}  # fmt: skip
    for word in re.findall(r"feedwater\.Loader\((\w+)", changed):
        assert word in {*bound, "os"}, word


def test_the_changed_script_runs(project):
    """A whole script, with a stand-in for torch's modules that are no longer needed."""
    body = (
        "data = datasets.MNIST('../data', train=False, transform=transforms.ToTensor())\n"
        "sampler = torch.utils.data.DistributedSampler(data)\n"
        "loader = DataLoader(data, batch_size=2 * 2, sampler=sampler, drop_last=True)\n"
        "for epoch in range(2):\n    sampler.set_epoch(epoch)\n    print(loader, epoch)\n"
    )
    path = write(project.folder, head(body))
    done = migrate(path.name, "--out", ".", cwd=project.folder)
    assert done.status == 0, done.out
    subprocess.run(
        ["patch", "-p0", "-s", "-i", f"{path.name}.diff"], cwd=project.folder, check=True
    )
    fake = project.folder / "fake"
    for module in ("torch/utils/data", "torchvision"):
        (fake / module).mkdir(parents=True)
    (fake / "torch/__init__.py").touch()
    (fake / "torch/utils/__init__.py").touch()
    (fake / "torch/utils/data/__init__.py").write_text("DataLoader = None\n")
    (fake / "torchvision/__init__.py").write_text("datasets = transforms = None\n")
    (fake / "feedwater.py").write_text(
        "class Loader:\n"
        "    def __init__(self, pipeline, **options):\n"
        "        self.made, self.sampler = (pipeline, options), self\n"
        "    def set_epoch(self, epoch): self.epoch = epoch\n"
        "    def __repr__(self): return f'{self.made} {self.epoch}'\n"
    )
    ran = subprocess.run([sys.executable, path.name], cwd=project.folder, capture_output=True,
                         text=True, env=environment(PYTHONPATH=str(fake)))  # fmt: skip
    file = f"{project.folder}/train.yaml"
    assert ran.stdout == (
        f"('{file}', {{'batch_size': 4}}) 0 0\n('{file}', {{'batch_size': 4}}) 1 1\n"
    ), ran.stderr
    document = yaml.safe_load((project.folder / "train.yaml").read_text())
    assert document["sampler"] == {"shuffle": "full", "last": "drop"}
    assert document["dataset"]["split"] == "test"


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["Linux", "Windows"])
@pytest.mark.parametrize("out", [None, "my pipelines", "{folder}/made"])
def test_the_printed_line_applies_the_changes_and_the_script_runs_from_anywhere(
    project, out, newline
):
    """Copied into a shell as it stands, for a script in another folder than the present one."""
    scripts = project.folder / "my scripts"
    scripts.mkdir()
    body = LOADER + "print(loader)\nother = DataLoader(Mine())\n"  # exit status 1
    path = write(scripts, body.replace("\n", newline))
    options = () if out is None else ("--out", out.format(folder=project.folder))
    done = migrate(path.relative_to(project.folder), *options, cwd=project.folder)
    assert done.status == 1
    (header,) = [line for line in done.out.splitlines() if line.startswith("=== changes")]
    line = header.partition("; to apply them: ")[2]
    env = environment(PYTHON=sys.executable, PATH=f"{PROGRAM.parent}:{os.environ['PATH']}")
    subprocess.run(line, shell=True, cwd=project.folder, env=env, capture_output=True, check=True)
    changed = path.read_bytes().decode()
    assert changed.count("\n") == changed.count(newline) and "feedwater.Loader" in changed
    # Where it is run from says nothing of where its pipeline is.
    (call,) = re.findall(r"feedwater\.Loader\((.*)\)", changed)
    assert os.path.exists(eval(call, {"os": os, "__file__": str(path)}))


def test_a_script_in_which_os_is_no_module_names_the_file_as_it_is(project):
    done = migrate(write(project.folder, LOADER + "os = 'linux'\n"), "--json")
    assert '+loader = feedwater.Loader("train.yaml")' in done.document["diff"]
    assert "+import os" not in done.document["diff"]
    done = migrate(write(project.folder, "import os\n" + LOADER), "--json")
    assert beside("train.yaml") in done.document["diff"]
    assert "+import os" not in done.document["diff"]


def test_a_script_where_nothing_is_translated_stays_as_it_is(project):
    path = write(project.folder, head("loader = DataLoader(Mine())\n"))
    done = migrate(path, "--json")
    assert done.document["diff"] == "" and done.document["files"] == {}


def test_a_dataset_that_is_used_elsewhere_stays(project):
    path = write(project.folder, LOADER + "print(len(data), data.classes)\n")
    done = migrate(path, "--json")
    assert "-data = " not in done.document["diff"]
    assert f"+loader = feedwater.Loader({beside('train.yaml')})" in done.document["diff"]


def test_a_script_that_has_feedwater_imports_it_once(project):
    done = migrate(write(project.folder, "import feedwater\n" + LOADER), "--json")
    assert "+import feedwater" not in done.document["diff"]


IMPORTS = {
    "behind its first use": (LOADER + "import feedwater\n", "from torchvision import datasets"),
    "of another name": ("import feedwater as fw\n" + LOADER, "from torchvision import datasets"),
    "in a function": (
        LOADER + "def f():\n    import feedwater\n", "from torchvision import datasets"
    ),
    "of others behind its first use": (LOADER + "import json\n", "from torchvision import datas"),
    "behind a docstring": (
        '#!/usr/bin/python\n"""Trains."""\n' + LOADER.replace("\n", "; pass\n", 3), '"""Trains.'
    ),
    "behind comments": (
        "#!/usr/bin/python\n# coding: utf-8\n" + LOADER.replace("\n", "; pass\n", 3), "# coding"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("script", "before"), IMPORTS.values(), ids=IMPORTS)
def test_feedwater_is_imported_before_it_is_used(project, script, before):
    path = write(project.folder, script)
    done = migrate(path.name, "--out", ".", cwd=project.folder)
    assert done.status == 0, done.out
    subprocess.run(
        ["patch", "-p0", "-s", "-i", f"{path.name}.diff"], cwd=project.folder, check=True
    )
    lines = path.read_text().splitlines()
    place = lines.index("import feedwater")
    assert lines[place - 1] == "import os" and lines[place - 2].startswith(before)
    assert place < lines.index(f"loader = feedwater.Loader({beside('train.yaml')})")


def test_windows_lines_and_a_missing_last_one_survive_the_patch(project):
    text = LOADER.rstrip("\n").replace("\n", "\r\n")
    path = write(project.folder, text.encode())
    assert migrate(path.name, "--out", "made", cwd=project.folder).status == 0
    diff = project.folder / "made/train.py.diff"
    subprocess.run(["patch", "--binary", "-p0", "-s", "-i", diff], cwd=project.folder, check=True)
    changed = path.read_bytes()
    assert changed.count(b"\n") == changed.count(b"\r\n") and b"feedwater.Loader" in changed
    compile(changed, "train.py", "exec")


def test_a_script_as_large_as_may_be_is_read_in_time(project):
    lines = "value = transforms.Resize(3)\n" * 30_000
    done = migrate(write(project.folder, LOADER + lines), "--json")
    assert done.status == 0 and len(done.document["files"]) == 1


def test_many_lines_that_are_told_are_read_in_time(project):
    """The text of each was looked for from the beginning of the file."""
    lines = "k = {'batch_size': 1}\n" + "if x:\n    k['batch_size'] = 1\n" * 2000
    loaders = "loader = DataLoader(data, **k)\n" * 20
    done = migrate(write(project.folder, LOADER + lines + loaders), "--json")
    assert len(done.document["files"]) == 21


def test_nothing_of_the_script_or_its_folder_is_run(project):
    """Neither the script nor modules of its folder with names of Python's own."""
    trap = "open('ran', 'w').close()\n"
    for name in ("ast.py", "json.py", "feedwater.py", "torch.py"):
        write(project.folder, trap, name)
    write(project.folder, trap + LOADER)
    assert migrate("train.py", cwd=project.folder).status == 0
    assert not (project.folder / "ran").exists()


HOSTILE = {
    "a syntax error": (b"x = (\n  1,\ndef", "train.py:1:5: "),
    "of Python 2": (b"print 'x'\n", "train.py:1:1: Missing parentheses"),
    "zero bytes": (b"import torch\0\n", "not a Python script: it has zero bytes"),
    "a program": (b"\x7fELF\x02\x01\x01\x80\xff", "not a Python script"),
    "another encoding": (b"# coding: klingon\nx = 1\n", "not a Python script"),
    "deep parentheses": (b"x = " + b"(" * 5000 + b")" * 5000, "train.py"),
    "deep blocks": (b"".join(b" " * n + b"if x:\n" for n in range(200)), "train.py"),
    "a long sum": (b"x = " + b"+".join([b"1"] * 200_000), "nested too deeply"),
    "too large": (b"#" * (2 << 20), "larger than 1 MiB"),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_script_is_refused_with_its_place(project, data, message):
    path = write(project.folder, data)
    done = migrate(path)
    assert (done.status, done.out) == (2, "")
    assert message in done.err and "Traceback" not in done.err and len(done.err) < 1000
    assert migrate(path, "--json").document["error"]["code"] == "INVALID_ARGUMENT"


def test_words_of_a_script_do_nothing_to_a_terminal(project):
    body = (
        "loader = DataLoader(datasets.ImageFolder('/d/\x1b[31mx', "
        "transforms.Compose([Mine('\x1b[31m\u202e')])))\n"
    )
    done = migrate(write(project.folder, head(body)))
    assert done.status == 1
    listed = done.out.partition("=== changes")[0] + done.out.partition("=== not translated")[2]
    assert "\x1b" not in listed and "\u202e" not in listed


def test_files_that_are_there_are_left_alone(project):
    path = write(project.folder, LOADER)
    assert migrate(path, "--out", project.folder / "made").status == 0
    assert migrate(path, "--out", project.folder / "made").status == 0  # the same once more
    (project.folder / "made/train.py.diff").write_text("mine")
    done = migrate(path, "--out", project.folder / "made")
    assert done.status == 2 and "is there already, and differs; remove it, or" in done.err
    assert (project.folder / "made/train.py.diff").read_text() == "mine"


def test_a_pipeline_whose_name_is_taken_has_the_scripts_name_before_it(project):
    """Two scripts with a `val_loader` may share a folder."""
    text = LOADER.replace("loader =", "val_loader =")
    made = project.folder / "made"
    assert migrate(write(project.folder, text, "a.py"), "--out", made).status == 0
    first = (made / "val.yaml").read_text()
    path = write(project.folder, text.replace("CenterCrop(8)", "CenterCrop(9)"), "b.py")
    for _ in range(2):
        assert migrate(path, "--out", made).status == 0
    assert (made / "val.yaml").read_text() == first
    assert "size: 9" in (made / "b-val.yaml").read_text()
    assert 'made/b-val.yaml"' in (made / "b.py.diff").read_text()


def test_the_line_that_applies_the_changes_goes_on_where_all_was_translated(project):
    """Where something was not, the exit status says so, and the files are written."""
    some = LOADER + "other = DataLoader(None)\n"
    for text, then in ((LOADER, " &&"), (some, "; [ $? -le 1 ] &&")):
        done = migrate(write(project.folder, text), cwd=project.folder)
        assert f"--out pipelines{then} patch " in done.out


@pytest.mark.parametrize("other", ["", "other = DataLoader(None)\n"])
def test_the_printed_line_applies_no_diff_of_an_earlier_script(project, other):
    """The script has changed since the diff was written, which still fits it."""
    path = write(project.folder, LOADER + other)
    first = migrate(path.name, cwd=project.folder)
    (header,) = [line for line in first.out.splitlines() if line.startswith("=== changes")]
    line = header.partition("; to apply them: ")[2]
    assert migrate(path.name, "--out", "pipelines", cwd=project.folder).status == bool(other)
    path.write_text(f"{LOADER}{other}{LOADER.replace('loader =', 'val_loader =')}")
    changed = path.read_text()
    env = environment(PYTHON=sys.executable, PATH=f"{PROGRAM.parent}:{os.environ['PATH']}")
    ran = subprocess.run(
        line, shell=True, cwd=project.folder, env=env, capture_output=True, text=True
    )
    assert ran.returncode != 0 and "is there already, and differs" in ran.stderr
    assert path.read_text() == changed


def test_what_python_warns_about_is_not_repeated(project):
    done = migrate(write(project.folder, LOADER + "x = '\\d'\n"))
    assert (done.status, done.err) == (0, "")


def test_a_script_that_is_not_there(project):
    done = migrate(project.folder / "no.py")
    assert done.status == 2 and "no script" in done.err
    assert migrate().status == 2  # and without any


def test_without_a_python_that_has_the_package_the_cure_is_told(project):
    path = write(project.folder, LOADER)
    for python in ("/nonexistent/python", "false"):
        done = migrate(path, env={"PYTHON": python})
        assert done.status == 2 and done.out == ""
        assert f"no Python with the package feedwater: tried {python}; `pip install`" in done.err
    assert migrate(path, "--json", env={"PYTHON": "false"}).document["error"]["code"]


def test_the_python_of_an_active_environment_is_found(project):
    folder = project.folder / "venv/bin"
    folder.mkdir(parents=True)
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    env = environment(VIRTUAL_ENV=str(folder.parent), PYTHON=None, PATH="/nonexistent")
    done = run("migrate", write(project.folder, LOADER), env=env)
    assert done.status == 0, done.err


def test_the_module_is_the_same_command(project):
    path = write(project.folder, LOADER)
    done = subprocess.run(
        [sys.executable, "-m", "feedwater.migrate", path], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, migrate(path).out)
