"""feedwater migrate: a loader over a name that may be one of several datasets."""

from __future__ import annotations

import subprocess
import sys

import pytest
from command_line import environment
from migration import DATA, head, migrate, write

A, B = "datasets.MNIST('/a')", "datasets.FashionMNIST('/b')"
BRANCHES = f"if x:\n    ds = {A}\nelse:\n    ds = {B}\n"
LOADERS = "train = DataLoader(ds, shuffle=True)\ntest = DataLoader(ds)\n"
# Prints what each loader opens, and the dataset's length, without torch.
FAKE = {
    "torch/utils/data.py": (
        "DataLoader = lambda ds, **_: ('DataLoader', ds)\nRandomSampler = lambda ds: ds\n"
    ),
    "torchvision/__init__.py": "",
    "torchvision/datasets.py": (
        "class MNIST(list):\n    def __init__(self, root, train=True):\n"
        "        super().__init__([0] * 10)\nclass FashionMNIST(MNIST):\n    pass\n"
    ),
    "torchvision/transforms.py": "",
    "torch/__init__.py": "",
    "torch/utils/__init__.py": "",
    "feedwater.py": "import os\nLoader = lambda path, **_: os.path.basename(path)\n",
}


def ran(project, body: str) -> list[str]:
    """Migrate a script and run it as it is then; return what it prints."""
    path = write(project.folder, head(body))
    done = migrate(path.name, "--out", ".", cwd=project.folder)
    assert done.status == 0, done.out
    subprocess.run(
        ["patch", "-p0", "-s", "-i", f"{path.name}.diff"], cwd=project.folder, check=True
    )
    fake = project.folder / "fake"
    for name, text in FAKE.items():
        (fake / name).parent.mkdir(parents=True, exist_ok=True)
        (fake / name).write_text(text)
    done = subprocess.run([sys.executable, path.name], cwd=project.folder, capture_output=True,
                          text=True, env=environment(PYTHONPATH=str(fake)))  # fmt: skip
    assert done.returncode == 0, (path.read_text(), done.stderr)
    return done.stdout.split()


SHOW = "print(train, test, len({}))\n"
RUN = {
    "in functions": (
        f"{BRANCHES}steps = len(ds)\ndef train():\n    return DataLoader(ds, shuffle=True)\n"
        "def test():\n    return DataLoader(ds)\nprint(train(), test(), steps)\n"
    ),
    "in functions of a function": (
        "def main():\n"
        + "".join(f"    {line}\n" for line in BRANCHES.splitlines())
        + "    def train():\n        return DataLoader(ds, shuffle=True)\n"
        "    def test():\n        return DataLoader(ds)\n    print(train(), test(), len(ds))\n"
        "main()\n"
    ),
    "of a class": (
        "class Data:\n"
        + "".join(f"    {line}\n" for line in (BRANCHES + LOADERS).splitlines())
        + "print(Data.train, Data.test, len(Data.ds))\n"
    ),
    "by a sampler that goes": (
        f"{BRANCHES}"
        "s = torch.utils.data.RandomSampler(ds)\ntrain = DataLoader(ds, shuffle=True)\n"
        f"test = DataLoader(ds, sampler=s)\n{SHOW.format('list(range(10))')}"
    ),
}


@pytest.mark.parametrize("body", RUN.values(), ids=RUN)
def test_each_loader_opens_its_own_files_and_the_dataset_stays_one(project, body):
    for x, file in ((1, "mnist"), (0, "mnist-2")):
        train, test, length = ran(project, f"x = {x}\n{body}")
        assert train != test and (train.endswith(f"-{file}.yaml") or file not in train)
        assert length == "10"
        for made in [*project.folder.glob("*.yaml"), *project.folder.glob("*.diff")]:
            made.unlink()


TOGETHER = {
    "beside a statement": f"{LOADERS}ds = {B}; n = 1\ntest = DataLoader(ds)\nprint(len(ds))\n",
    "behind a condition": f"if x: ds = {B}\n{LOADERS}print(len(ds))\n",
    "with its type": f"{LOADERS}ds: object = {B}\ntest = DataLoader(ds)\n",
    "with another name": f"if x:\n    other = ds = {B}\n{LOADERS}print(len(other))\n",
    "in a pair": f"if x:\n    ds, other = {B}, {A}\n{LOADERS}print(len(other))\n",
}


@pytest.mark.parametrize("lines", TOGETHER.values(), ids=TOGETHER)
def test_an_assignment_that_cannot_choose_a_file_leaves_the_loaders_as_they_are(project, lines):
    done = migrate(write(project.folder, head(f"ds = {A}\n{lines}")), "--json").document
    assert done["files"] == {} and done["diff"] == "" and done["notes"] == []
    line = head(f"ds = {A}\n{lines}").split(B)[0].count("\n") + 1
    for told in done["untranslated"]:
        assert f"line {line} is not `ds = DATASET` alone; the DataLoader stays" in told["text"]
    assert done["untranslated"]


def test_pairs_in_both_branches_leave_the_loaders_as_they_are(project):
    body = (
        f"if x:\n    train_ds, test_ds = {A}, {A}\nelse:\n    train_ds, test_ds = {B}, {B}\n"
        "train = DataLoader(train_ds)\ntest = DataLoader(test_ds)\n"
    )
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["files"] == {} and done["diff"] == "" and len(done["untranslated"]) == 2


def test_a_condition_of_one_line_is_no_hindrance_where_only_the_loader_needs_the_name(project):
    body = f"if x: ds = {A}\nelse: ds = {B}\ntrain = DataLoader(ds)\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert len(done["files"]) == 2 and not done["untranslated"]


AT_ODDS = {
    "a sampler's length in another loader": (
        f"a, b = {A}, {B}\ns = torch.utils.data.DistributedSampler(a)\n"
        "t = torch.utils.data.DistributedSampler(b)\nfirst = DataLoader(a, sampler=s)\n"
        "second = DataLoader(b, batch_size=len(s), sampler=t)\n"
    ),
    "a loader in another": f"loader = DataLoader({A}, batch_size=len(DataLoader({B})))\n",
}


@pytest.mark.parametrize("body", AT_ODDS.values(), ids=AT_ODDS)
def test_a_script_of_which_a_line_would_be_changed_twice_stays_as_it_is(project, body):
    done = migrate(write(project.folder, head(body)), "--json")
    assert done.status == 1 and done.document["diff"] == ""
    texts = [told["text"] for told in done.document["untranslated"]]
    assert any("change this line in different ways; the script stays" in text for text in texts)


FOLDERS = (
    "both = {x: datasets.ImageFolder('/d/' + x, transforms.ToTensor()) for x in ['train', 'val']}\n"
)
AS_IT_IS = "feedwater.Loader.from_dataset takes it as it is; or a pipeline of the part's own files"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            f"{FOLDERS}loaders = {{x: DataLoader(both[x]) for x in ['train', 'val']}}\n",
            "over both[x]: one of several datasets, by x. Next: write it out, a dataset and a "
            "DataLoader for each; or feedwater.Loader.from_dataset(both[x], ...) takes it as it is",
        ),
        (
            f"{DATA}\npart = torch.utils.data.Subset(data, [1])\nloader = DataLoader(part)\n",
            f"utils.data.Subset(data, [1]): a part of a dataset (Subset). Next: {AS_IT_IS}",
        ),
        (
            f"{DATA}\na, b = torch.utils.data.random_split(data, [1, 2])\nloader = DataLoader(b)\n",
            f"over b: a part of a dataset (random_split). Next: {AS_IT_IS}",
        ),
        (
            f"{DATA}\ndef get(train):\n    return DataLoader(data, shuffle=train)\n",
            "the order depends on train, which only running it tells. Next: a DataLoader for each "
            "value, with True and False written out; or feedwater.Loader.from_dataset, whose",
        ),
        (
            "loader = DataLoader(mine())\n",
            "over mine(): not known to be a dataset of torchvision's. Next: "
            "feedwater.Loader.from_dataset takes any Dataset as it is",
        ),
    ],
)
def test_datasets_that_are_parts_or_several_are_told_as_such(project, body, text):
    (found,) = migrate(write(project.folder, head(body)), "--json").document["untranslated"]
    assert text in found["text"]


def test_a_note_of_a_pipeline_that_is_not_written_is_left_out(project):
    body = f"{FOLDERS}k = {{}}\nif x:\n    k.update(shuffle=True)\nDataLoader(both['val'], **k)\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["untranslated"] and done["files"] == {} and done["notes"] == []
