"""feedwater migrate: the order of a loader, its rank, and what a script does with its sampler."""

from __future__ import annotations

import pytest
import yaml
from migration import DATA, beside, head, migrate, translated, write


def test_the_order_follows_the_sampler_and_shuffle(project):
    data = "data = datasets.ImageFolder('/d/x', transforms.ToTensor())\n"
    module, ordered = "torch.utils.data", "DistributedSampler(data, shuffle=False)"
    none = "s = None\nloader = DataLoader(data, sampler=s, "
    cases = {
        "loader = DataLoader(data)": ("none", "partial"),
        "loader = DataLoader(data, 4, True, drop_last=True)": ("full", "drop"),
        f"loader = DataLoader(data, sampler={module}.{ordered})": ("none", "partial"),
        f"loader = DataLoader(data, sampler={module}.RandomSampler(data))": ("full", "partial"),
        f"{none}shuffle=(s is not None))": ("none", "partial"),
        f"{none}shuffle=(s is None))": ("full", "partial"),
    }  # fmt: skip
    for lines, (shuffle, last) in cases.items():
        section = translated(project, f"{data}{lines}\n")["sampler"]
        assert section == {"shuffle": shuffle, "last": last}, lines


@pytest.mark.parametrize("is_named", [True, False])
def test_a_sampler_of_one_branch_alone_is_followed(project, is_named):
    value = "torch.utils.data.DistributedSampler(data, seed=3) if is_spread else None"
    named, given = (f"s = {value}\n", "s") if is_named else ("", value)
    shuffle = "(s is None)" if is_named else "True"
    body = f"{DATA}\n{named}loader = DataLoader(data, shuffle={shuffle}, sampler={given})\n"
    done = migrate(write(project.folder, head(body)), "--json")
    assert done.status == 0, done.document["untranslated"]
    assert f"+loader = feedwater.Loader({beside('train.yaml')})\n" in done.document["diff"]
    assert "shuffle: full" in done.document["files"]["train.yaml"]
    assert "seed: 3" in done.document["files"]["train.yaml"]


SAMPLERS = {
    "drawn again": ("RandomSampler(data, replacement=True)", None, "no replacement and no num_"),
    "a number of samples": ("RandomSampler(data, False, 100)", None, "no replacement and no num_"),
    "as is": ("RandomSampler(data, replacement=False, num_samples=None)", "", {"shuffle": "full"}),
    "a place": (
        "DistributedSampler(data, num_replicas=world, rank=place, seed=7)",
        ", rank=place, world_size=world", {"shuffle": "full", "seed": 7},
    ),
    "the only rank": (
        "DistributedSampler(data, num_replicas=1, rank=0)", ", rank=0, world_size=1",
        {"shuffle": "full"},
    ),
    "torch's own place": (
        "DistributedSampler(data, torch.distributed.get_world_size(), "
        "torch.distributed.get_rank())", "", {"shuffle": "full"},
    ),
    "torch's own number of ranks, and a rank": (
        "DistributedSampler(data, num_replicas=torch.distributed.get_world_size(), rank=place)",
        ", rank=place, world_size=torch.distributed.get_world_size()", {"shuffle": "full"},
    ),
    "torch's own rank, and a number": (
        "DistributedSampler(data, world, torch.distributed.get_rank())",
        ", rank=torch.distributed.get_rank(), world_size=world", {"shuffle": "full"},
    ),
    "torch's own number of ranks alone": (
        "DistributedSampler(data, torch.distributed.get_world_size(), None)", "",
        {"shuffle": "full"},
    ),
    "a rank for the number": (
        "DistributedSampler(data, torch.distributed.get_rank(), place)", None, "the order depends"
    ),
    "a rank alone": ("DistributedSampler(data, rank=place)", None, "takes both"),
    "a place that a function gives": (
        "DistributedSampler(data, world(), place())", None, "the order depends on world()"
    ),
    "a seed that a function gives": (
        "DistributedSampler(data, seed=now())", None, "the order depends on now()"
    ),
    "arguments of a dict": ("DistributedSampler(data, **options)", None, "the order depends on"),
}  # fmt: skip


@pytest.mark.parametrize(("sampler", "added", "expected"), SAMPLERS.values(), ids=SAMPLERS)
def test_arguments_of_samplers_are_kept_or_refused(project, sampler, added, expected):
    body = f"{DATA}\ns = torch.utils.data.{sampler}\nloader = DataLoader(data, sampler=s)\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    if added is None:
        assert done["diff"] == "" and expected in done["untranslated"][0]["text"]
        return
    assert f"+loader = feedwater.Loader({beside('train.yaml')}{added})\n" in done["diff"]
    (text,) = done["files"].values()
    assert yaml.safe_load(text)["sampler"] == {**expected, "last": "partial"}


SPREAD = {
    "torch.distributed": "import torch.distributed as dist\n",
    "a use of it": "torch.distributed.init_process_group('nccl')\n",
    "a part of it": "from torch.distributed import get_rank\n",
    "DDP": "from torch.nn.parallel import DistributedDataParallel as DDP\n",
    "Horovod": "import horovod.torch as hvd\n",
    "DeepSpeed": "import deepspeed\n",
    "TPUs": "import torch_xla.core.xla_model as xm\n",
    "Composer": "from composer import Trainer\n",
    "Colossal-AI": "import colossalai\n",
    "Ignite": "import ignite.distributed as idist\n",
    "the sampler of another loader": "s = torch.utils.data.DistributedSampler(others)\n",
}


@pytest.mark.parametrize("lines", SPREAD.values(), ids=SPREAD)
@pytest.mark.parametrize(
    "order", ["", ", sampler=None", ", sampler=torch.utils.data.SequentialSampler(data)"]
)
def test_what_every_rank_reads_whole_is_read_whole(project, lines, order):
    body = f"{lines}{DATA}\nloader = DataLoader(data, batch_size=n{order})\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    opened = f"feedwater.Loader({beside('train.yaml')}, batch_size=n, rank=0, world_size=1)"
    assert f"+loader = {opened}\n" in done["diff"]
    (note,) = [note for note in done["notes"] if "no DistributedSampler" in note["text"]]
    assert "several ranks (line 5)" in note["text"]
    sampled = "loader = DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))\n"
    path = write(project.folder, head(f"{lines}{DATA}\n{sampled}"))
    done = migrate(path, "--json").document
    assert f"+loader = feedwater.Loader({beside('train.yaml')})\n" in done["diff"]


@pytest.mark.parametrize(
    ("step", "order"),
    [
        ("", ", shuffle=True"),
        ("", ", sampler=torch.utils.data.RandomSampler(data)"),
        ("transforms.RandomCrop(8), ", ""),
        ("transforms.RandomApply([transforms.ColorJitter(0.4)]), ", ""),
    ],
)
def test_what_every_rank_reads_whole_with_draws_of_its_own_stays(project, step, order):
    """A file has one seed: all ranks would have the same order and the same crops."""
    data = DATA.replace("transforms.ToTensor()", f"{step}transforms.ToTensor()")
    body = f"import torch.distributed\n{data}\nloader = DataLoader(data{order})\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert list(done["files"]) == ["train.yaml"] and done["diff"] == "" and not done["notes"]
    (told,) = done["untranslated"]
    for cure in ("feedwater.Loader('train.yaml') gives each rank its share", "seed=RANK)"):
        assert cure in told["text"]


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("from accelerate import Accelerator\n", "Accelerate"),
        ("import pytorch_lightning as pl\n", "Lightning"),
        ("import lightning as L\n", "Lightning"),
        ("import ray.train.torch\n", "Ray Train"),
    ],
)
def test_what_a_framework_shares_out_is_told(project, lines, name):
    body = f"import torch.distributed\n{lines}{DATA}\nloader = DataLoader(data)\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert f"+loader = feedwater.Loader({beside('train.yaml')})\n" in done["diff"]
    (note,) = done["notes"]
    assert f"{name} (line 6) gives each rank its share" in note["text"]
    assert "Loader(rank=0, world_size=1)" in note["text"]


def test_a_place_that_only_a_branch_gives_is_refused(project):
    body = (
        f"{DATA}\ns = None\nif many:\n"
        "    s = torch.utils.data.DistributedSampler(data, num_replicas=world, rank=place)\n"
        "loader = DataLoader(data, sampler=s, shuffle=s is None)\n"
    )
    done = migrate(write(project.folder, head(body)), "--json").document
    assert "s has a rank of its own only in some branches" in done["untranslated"][0]["text"]


def test_samples_that_a_sampler_leaves_out_are_told(project):
    body = (
        f"{DATA}\ns = torch.utils.data.DistributedSampler(data, drop_last=True)\n"
        "loader = DataLoader(data, sampler=s{})\n"
    )
    for more, count in (("", 1), (", drop_last=True", 0)):
        done = migrate(write(project.folder, head(body.format(more))), "--json").document
        assert len(done["notes"]) == count


def test_a_sampler_that_is_handed_out_is_the_loaders(project):
    body = (
        "def make(root):\n"
        "    data = datasets.ImageFolder('/d/x', transforms.ToTensor())\n"
        "    sampler = torch.utils.data.DistributedSampler(data)\n"
        "    loader = DataLoader(data, sampler=sampler)\n"
        "    return loader, sampler\n"
        "def other():\n"
        "    data = datasets.ImageFolder('/d/y', transforms.ToTensor())\n"
        "    return DataLoader(data)\n"
    )
    done = migrate(write(project.folder, head(body)), "--json")
    added = [line[1:].strip() for line in done.document["diff"].splitlines()[2:] if line[0] == "+"]
    assert added == [
        "import os",
        "import feedwater",
        f"loader = feedwater.Loader({beside('train.yaml')})",
        "return loader, loader.sampler",
        f"return feedwater.Loader({beside('train-2.yaml')}, rank=0, world_size=1)",
    ]


def test_a_sampler_that_is_handed_out_is_asked_for_epochs_and_a_length(project):
    body = (
        f"{MAKE}loader, sampler = make()\nmake()\nprint(len(sampler))\n"
        "for epoch in range(3):\n    if sampler is not None:\n        sampler.set_epoch(epoch)\n"
        "def more(sampler):\n    return list(sampler)\n"
    )
    done = migrate(write(project.folder, head(body)), "--json")
    assert done.status == 0, done.document["untranslated"]
    assert "+    return loader, loader.sampler\n" in done.document["diff"]


SAMPLER = f"{DATA}\ns = torch.utils.data.DistributedSampler(data)\n"
LOAD = "loader = DataLoader(data, batch_size=4, sampler=s)\n"
MAKE = (
    f"def make():\n    {DATA}\n    s = torch.utils.data.DistributedSampler(data)\n"
    f"    {LOAD}    return loader, s\n"
)
USES = {
    "of another loader": f"{SAMPLER}{LOAD}other = DataLoader(data, collate_fn=mix, sampler=s)\n",
    "of another loader before it": f"{SAMPLER}other = DataLoader(mine, sampler=s)\n{LOAD}",
    "of batches": f"{SAMPLER}{LOAD}b = torch.utils.data.BatchSampler(s, 4, False)\n",
    "gone through": f"{SAMPLER}{LOAD}print(list(s)[:3])\n",
    "handed to a function": f"{SAMPLER}{LOAD}train(s)\n",
    "with another name": f"{SAMPLER}{LOAD}t = s\nt.set_epoch(1)\n",
    "an attribute": f"{SAMPLER}{LOAD}print(s.num_samples)\n",
    "handed out and gone through": f"{MAKE}loader, s = make()\nprint(list(s))\n",
    "handed out and asked for its class": (
        f"{MAKE}loader, s = make()\nif isinstance(s, Mine):\n    s.set_epoch(1)\n"
    ),
    "handed out by a method": (
        f"class Data:\n    def make(self):\n        {DATA}\n"
        "        s = torch.utils.data.DistributedSampler(data)\n"
        f"        {LOAD}        return s\nt = Data().make()\nfor i in t:\n    pass\n"
    ),
    "handed out to a name of others": (
        f"{MAKE}def get():\n    global t\n    loader, t = make()\nget()\nprint(list(t))\n"
    ),
    "handed out to an attribute": f"{MAKE}loader, run.sampler = make()\n",
    "handed out with the loader": f"{MAKE}both = make()\n",
    "handed out again": f"{MAKE}def again():\n    return make()\n",
    "handed out by a function that is handed on": f"{MAKE}run(make)\n",
    "handed out, or none": (
        f"def make():\n    {DATA}\n"
        "    s = torch.utils.data.DistributedSampler(data) if x else None\n"
        f"    {LOAD.replace(')', ', shuffle=True)')}    return loader, s\n"
    ),
    "an epoch before it": f"{SAMPLER}s.set_epoch(1)\n{LOAD}",
    "an epoch in a function that does not see the loader": (
        f"{SAMPLER}def make():\n    {LOAD}    return loader\ndef train():\n    s.set_epoch(1)\n"
    ),
    "an epoch of a loader without a name": (
        f"{SAMPLER}def get():\n    return {LOAD[9:]}loader = get()\ns.set_epoch(1)\n"
    ),
    "an epoch of a loader in a dict": (
        f"{SAMPLER}loaders['train'] = {LOAD[9:]}s.set_epoch(1)\n"
    ),
    "an epoch where its name is another's": (
        f"{SAMPLER}{LOAD}loader = DataLoader(mine)\ns.set_epoch(1)\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", USES.values(), ids=USES)
def test_a_loader_stays_whose_sampler_serves_for_more(project, body):
    done = migrate(write(project.folder, head(body)), "--json")
    assert done.status == 1 and done.document["files"] == {} and done.document["diff"] == ""
    texts = [told["text"] for told in done.document["untranslated"]]
    assert any("s in line" in text and " stays. Next: " in text for text in texts), texts


def test_questions_whether_there_is_a_sampler_are_asked_of_it_still(project):
    """A loader has one always: `loader.sampler is None` would be the other branch."""
    body = (
        f"{DATA}\nif many:\n    s = torch.utils.data.DistributedSampler(data)\n"
        "else:\n    s = None\n"
        "loader = DataLoader(data, batch_size=4, shuffle=(s is None), sampler=s)\n"
        "steps = len(data) if s is None else len(s)\n"
        "if s != None and isinstance(s, object):\n    print(bool(s))\n"
        "for epoch in range(3):\n    if s is not None:\n        s.set_epoch(epoch)\n"
    )
    document = migrate(write(project.folder, head(body)), "--json").document
    changed = [line for line in document["diff"].splitlines()[2:] if line[0] in "+-"]
    assert changed == [
        "+import os",
        "+import feedwater",
        "-loader = DataLoader(data, batch_size=4, shuffle=(s is None), sampler=s)",
        "-steps = len(data) if s is None else len(s)",
        f"+loader = feedwater.Loader({beside('train.yaml')})",
        "+steps = len(data) if s is None else len(loader.sampler)",
        "-        s.set_epoch(epoch)",
        "+        loader.sampler.set_epoch(epoch)",
    ]


def test_a_function_before_the_loader_sets_the_epoch_of_its_sampler(project):
    body = f"def train(epoch):\n    s.set_epoch(epoch)\n{SAMPLER}{LOAD}train(1)\n"
    done = migrate(write(project.folder, head(body)), "--json")
    assert done.status == 0, done.document["untranslated"]
    diff = done.document["diff"]
    assert "+    loader.sampler.set_epoch(epoch)\n" in diff and "-s = torch" in diff


def test_another_sampler_of_that_name_keeps_it(project):
    body = (
        "def train(s):\n    s.set_epoch(1)\n"
        f"{SAMPLER}{LOAD}s.set_epoch(2)\n"
        "def test(s):\n    return list(s)\n"
    )
    added = migrate(write(project.folder, head(body)), "--json").document["diff"]
    assert added.count("+loader.sampler.set_epoch(2)\n") == 1 and added.count(".sampler") == 1


def test_a_dataset_stays_where_its_sampler_does(project):
    body = (
        "if c100:\n    data = datasets.CIFAR100('/d', transform=transforms.ToTensor())\n"
        "else:\n    data = datasets.CIFAR10('/d', transform=transforms.ToTensor())\n"
        f"{SAMPLER[len(DATA) + 1 :]}{LOAD}if s is not None:\n    s.set_epoch(1)\n"
    )
    added = migrate(write(project.folder, head(body)), "--json").document["diff"]
    assert "+loader = feedwater.Loader(data_pipeline)\n" in added
    assert "-    data = " not in added and "-s = " not in added


def test_none_is_false_where_true_is_the_default(project):
    body = (
        "data = datasets.MNIST('/d', train=None, transform=transforms.ToTensor())\n"
        "s = torch.utils.data.DistributedSampler(data, shuffle=None)\n"
        "loader = DataLoader(data, sampler=s, shuffle=None, drop_last=None)\n"
    )
    found = translated(project, body)
    assert found["dataset"]["split"] == "test"
    assert found["sampler"] == {"shuffle": "none", "last": "partial"}
