"""feedwater migrate: what a script does with the parts of its loaders, and odd numbers."""

from __future__ import annotations

import pytest
from migration import DATA, head, migrate, write

LOAD = f"{DATA}\nloader = DataLoader(data, batch_size=4)\n"
MORE = {
    "a sample": "picture, label = loader.dataset[0]",
    "a sample's shape": "print(loader.dataset[0][0].shape)",
    "its samples": "for picture, label in loader.dataset:\n    show(picture)",
    "the first sample": "show(next(iter(loader.dataset)))",
    "its arrays": "print(loader.dataset.data.mean())",
    "its transform": "print(loader.dataset.transform)",
    "another name": "d = loader.dataset\nshow(d[0])",
    "another loader": "other = DataLoader(loader.dataset, batch_size=1)",
    "its order": "order = list(loader.sampler)",
    "its batches": "batches = list(loader.batch_sampler)",
    "its batches' order": "order = list(loader.batch_sampler.sampler)",
    "its collation": "x = loader.collate_fn([data[0]])",
    "another collation": "loader.collate_fn = mine",
    "its collation by setattr": "setattr(loader, 'collate_fn', mine)",
    "its dataset by getattr": "print(getattr(loader, 'dataset')[0])",
    "its workers": "loader.worker_init_fn = mine",
    "its generator": "loader.generator.manual_seed(3)",
}


@pytest.mark.parametrize("lines", MORE.values(), ids=MORE)
def test_a_loader_whose_parts_serve_for_more_stays(project, lines):
    done = migrate(write(project.folder, head(f"{LOAD}{lines}\n")), "--json").document
    assert done["files"] == {} and done["diff"] == ""
    text = done["untranslated"][0]["text"]
    assert "of a feedwater.Loader " in text or "data may be changed here" in text, done


def test_a_loader_of_an_object_and_one_without_a_name_stay(project):
    body = (
        f"{DATA}\nclass C:\n    def __init__(self):\n        self.loader = DataLoader(data)\n"
        "    def show(self):\n        return self.loader.dataset[0]\n"
        "show(DataLoader(data).dataset[0])\n"
    )
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["diff"] == "" and len(done["untranslated"]) == 2


FEW = {
    "lengths": "print(len(loader.dataset), len(loader.sampler), len(loader.batch_sampler))",
    "classes": "print(loader.dataset.classes, loader.dataset.class_to_idx)",
    "labels of a folder": "labels = loader.dataset.targets\nfor p, y in loader.dataset.samples:\n"
    "    print(p)",
    "another name": "d = loader.dataset\nprint(len(d), d.classes)",
    "a size": "print(loader.batch_sampler.batch_size, loader.batch_size)",
    "an epoch": "if hasattr(loader.sampler, 'set_epoch'):\n    loader.sampler.set_epoch(3)",
    "whether there is one": "assert loader.collate_fn is not None and loader.dataset",
    "a model's generator": "net = Net()\nnet.generator(1)",
    "another thing's": "gan.generator.step()\nprint(cfg.dataset, args.sampler)",
}  # fmt: skip


@pytest.mark.parametrize("lines", FEW.values(), ids=FEW)
def test_what_the_parts_of_a_loader_have_leaves_it_replaced(project, lines):
    done = migrate(write(project.folder, head(f"{LOAD}{lines}\n")), "--json").document
    assert done["diff"] and not done["untranslated"] and not done["notes"], done


def test_labels_that_stand_in_the_records_leave_the_loader(project):
    body = (
        "data = datasets.MNIST('/d', transform=transforms.ToTensor())\nloader = DataLoader(data)\n"
    )
    done = migrate(
        write(project.folder, head(f"{body}print(loader.dataset.targets)\n")), "--json"
    ).document
    assert done["diff"] == "" and "the dataset of a feedwater.Loader" in str(done["untranslated"])


NOTED = {
    "an argument": ("def show(x):\n    print(x.dataset[0])\nshow(loader)", "where x is a feed"),
    "another name": ("l = loader\nprint(l.dataset[0])", "where l is a feedwater.Loader"),
    "a pair": ("l, m = loader, 1\nprint(l.dataset[0])", "where l is a feedwater.Loader"),
    "an order": ("l = loader\norder = list(l.sampler)", "the sampler of a feedwater.Loader"),
    "a dict": ("d = {'a': loader}\nprint(d['a'].dataset[0])", "where d['a'] is a feedwater.L"),
    "isinstance": ("if isinstance(loader, (list, DataLoader)):\n    go()", "is no DataLoader"),
    "its type": ("if type(loader) is DataLoader:\n    go()", "is no DataLoader"),
}


@pytest.mark.parametrize(("lines", "message"), NOTED.values(), ids=NOTED)
def test_what_may_be_done_with_a_loader_is_noted(project, lines, message):
    done = migrate(write(project.folder, head(f"{LOAD}{lines}\n")), "--json").document
    assert done["diff"] and not done["untranslated"]
    (note,) = done["notes"]
    assert message in note["text"] and note["line"] >= 7


ODD = {
    "true": ("batch_size=True", "batch_size=True): not a number of samples"),
    "zero": ("batch_size=0", "batch_size=0): not a number"),
    "a fraction": ("batch_size=2.5", "batch_size=2.5): not a number"),
    "a text": ("batch_size='4'", "batch_size='4'): not a number"),
    "too many": (f"batch_size={10**30}", "the DataLoader stays"),
    "a seed": (
        f"sampler=torch.utils.data.DistributedSampler(data, seed={10**30})", "the order depends on"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("argument", "message"), ODD.values(), ids=ODD)
def test_odd_numbers_leave_the_other_loaders(project, argument, message):
    body = f"{DATA}\none = DataLoader(data, {argument})\ntwo = DataLoader(data)\n"
    done = migrate(write(project.folder, head(body)), "--json")
    assert done.status == 1 and list(done.document["files"]) == ["two.yaml"]
    (told,) = done.document["untranslated"]
    assert told["line"] == 6 and message in told["text"]


def test_a_transform_of_infinite_numbers_leaves_the_other_loaders(project):
    step = "transforms.Pad(1, fill=1e400)"
    body = (
        f"one = DataLoader(datasets.ImageFolder('/d/x', transforms.Compose([{step}])))\n"
        f"{DATA}\ntwo = DataLoader(data)\n"
    )
    done = migrate(write(project.folder, head(body)), "--json").document
    assert "+two = feedwater.Loader(" in done["diff"] and "-one" not in done["diff"]
    assert "images are bytes before normalize" in str(done["untranslated"])
