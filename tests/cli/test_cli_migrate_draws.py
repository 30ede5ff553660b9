"""feedwater migrate: loaders that draw: made again, several of them, and over other samplers."""

from __future__ import annotations

import pytest
import yaml
from migration import DATA, head, migrate, write

MAKE = "DataLoader(data, shuffle=True)"
GET = f"def get():\n    return {MAKE}\n"
CLASS = f"class Data:\n    def loader(self):\n        return {MAKE}\n"
AGAIN = {
    "in a loop": f"for epoch in range(3):\n    train({MAKE})",
    "in a loop over it": f"for epoch in range(3):\n    for x, y in {MAKE}:\n        train(x)",
    "in a while": f"while True:\n    train({MAKE})",
    "in a comprehension": f"loaders = [{MAKE} for _ in range(3)]",
    "in a dict of them": f"loaders = {{x: {MAKE} for x in names}}",
    "by a function in a loop": f"{GET}for epoch in range(3):\n    train(get())",
    "by a function of a function": (
        f"{GET}def run(epoch):\n    train(get())\nfor epoch in range(3):\n    run(epoch)"
    ),
    "by two calls": f"{GET}a = get()\nb = get()",
    "by a function that is kept": f"{GET}make = get\nmake()",
    "by a function that is handed on": f"{GET}trainer.fit(get)",
    "by a function in a list": f"{GET}for f in [get]:\n    f()",
    "by itself": f"def run(n):\n    train({MAKE})\n    run(n - 1)",
    "by a generator": f"def batches():\n    while True:\n        yield from {MAKE}\nbatches()",
    "by a lambda": f"make = lambda: {MAKE}\nfor epoch in range(3):\n    train(make())",
    "by a lambda that is handed on": f"trainer.fit(lambda: {MAKE})",
    "by a method": f"{CLASS}d = Data()\nfor epoch in range(3):\n    train(d.loader())",
    "by a method of self": (
        f"{CLASS}    def fit(self):\n        for epoch in range(3):\n            self.loader()"
    ),
    "by a property": (
        CLASS.replace("    def", "    @property\n    def", 1)
        + "d = Data()\nfor epoch in range(3):\n    train(d.loader)"
    ),
    "by a method without a name": (
        CLASS.replace("loader(", "__iter__(") + "for x in Data():\n    train(x)"
    ),
    "by a method that a text names": f"{CLASS}getattr(Data(), 'loader')()",
    "by a decorator": f"@retry(3)\n{GET}get()",
    "by a decorator of its own": f"def twice(f):\n    f()\n    return f\n@twice\n{GET}get()",
    "by two objects": (
        f"class Data:\n    def __init__(self):\n        self.loader = {MAKE}\na, b = Data(), Data()"
    ),
    "by an object of a class below": (
        f"class Data:\n    def __init__(self):\n        self.loader = {MAKE}\n"
        "class More(Data):\n    pass\nfor epoch in range(3):\n    More()"
    ),
    "by Lightning": (
        CLASS.replace("loader(", "train_dataloader(")
        + "trainer = Trainer(reload_dataloaders_every_n_epochs=1)"
    ),
    "behind an if that may go on": f"{GET}if x:\n    get()\nget()",
}  # fmt: skip


@pytest.mark.parametrize("lines", AGAIN.values(), ids=AGAIN)
def test_a_loader_that_draws_and_is_made_again_stays(project, lines):
    done = migrate(write(project.folder, head(f"{DATA}\n{lines}\n")), "--json")
    assert done.status == 1 and done.document["diff"] == "" and len(done.document["files"]) == 1
    (told,) = done.document["untranslated"]
    assert "may make this DataLoader more than once" in told["text"]
    assert "make the loader once, before the loop" in told["text"]
    done = migrate(
        write(project.folder, head(f"{DATA}\n{lines}\n").replace(", shuffle=True", "")), "--json"
    )
    assert done.status == 0 and done.document["diff"], "of one without draws each time is the same"


ONCE = {
    "in a module": f"loader = {MAKE}\nfor epoch in range(3):\n    train(loader)",
    "over it": f"for x, y in {MAKE}:\n    train(x)",
    "over it in a comprehension": f"all([check(x) for x, y in {MAKE}])",
    "by a function": f"{GET}loader = get()\nfor epoch in range(3):\n    train(loader)",
    "by a function that nothing calls": GET,
    "by main()": f"def main():\n    loader = {MAKE}\nif __name__ == '__main__':\n    main()",
    "by main() in other processes": (
        f"def main(rank):\n    loader = {MAKE}\nif many:\n    mp.spawn(main, args=(1,))\n"
        "else:\n    main(0)"
    ),
    "by either call": f"def run():\n    {GET.replace('    ', '        ')}    if x:\n"
    "        return get()\n    return get()\nrun()",
    "by an object": (
        f"class Data:\n    def __init__(self):\n        self.loader = {MAKE}\nDATA = Data()"
    ),
    "by the Trainer": CLASS.replace("loader(", "train_dataloader("),
    "by another class's method": (
        f"{CLASS}class Other:\n    def f(self):\n        for x in y:\n            self.loader()"
    ),
    "by a method below": (
        f"{CLASS}class More(Data):\n    def loader(self):\n        return super().loader()\n"
        "More().loader()"
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", ONCE.values(), ids=ONCE)
def test_a_loader_that_is_made_once_is_replaced(project, lines):
    done = migrate(write(project.folder, head(f"{DATA}\n{lines}\n")), "--json")
    assert done.status == 0, done.document["untranslated"]
    assert "+" in done.document["diff"] and "feedwater.Loader(" in done.document["diff"]


def test_the_order_of_a_distributed_sampler_is_the_same_each_time(project):
    data, sampler = DATA, "sampler=torch.utils.data.DistributedSampler(data)"
    lines = f"for epoch in range(3):\n    train(DataLoader(data, {sampler}))\n"
    done = migrate(write(project.folder, head(f"{data}\n{lines}")), "--json")
    assert done.status == 0 and done.document["diff"]
    crops = data.replace("transforms.ToTensor()", "transforms.RandomCrop(8), transforms.ToTensor()")
    done = migrate(write(project.folder, head(f"{crops}\n{lines}")), "--json")
    assert done.status == 1 and done.document["diff"] == ""


def test_each_loader_that_draws_has_a_seed_of_its_own(project):
    flips = DATA.replace("transforms.ToTensor()", "transforms.RandomHorizontalFlip()")
    body = (
        f"{DATA}\n{flips.replace('data =', 'other =')}\n"
        f"one = {MAKE}\ntwo = {MAKE}\nval = DataLoader(data)\nthree = DataLoader(other)\n"
        "sampled = DataLoader(data, sampler=torch.utils.data.DistributedSampler(data, seed=3))\n"
        "again = DataLoader(other, sampler=torch.utils.data.DistributedSampler(other, seed=3))\n"
        f"four = {MAKE}\n"
    )
    body = body.replace("import torch\n", "")
    done = migrate(write(project.folder, head(body)), "--json").document
    seeds = {
        name: yaml.safe_load(text)["sampler"].get("seed") for name, text in done["files"].items()
    }
    assert seeds == {
        "one.yaml": None, "two.yaml": 1, "val.yaml": None, "three.yaml": 2, "sampled.yaml": 3,
        "again.yaml": 3, "four.yaml": 4,
    }  # fmt: skip
    notes = [note for note in done["notes"] if "its sampler has the same seed" in note["text"]]
    assert [note["line"] for note in notes] == [12] and "of line 11" in notes[0]["text"]


OTHERS = {
    "a range": "SequentialSampler(range(10))",
    "another dataset": "RandomSampler(other)",
    "another dataset by its name": "RandomSampler(data_source=other)",
    "another dataset over ranks": "DistributedSampler(other)",
    "a part": "RandomSampler(torch.utils.data.Subset(data, [1]))",
    "nothing": "RandomSampler()",
}


@pytest.mark.parametrize("sampler", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("is_named", [False, True])
def test_a_sampler_of_other_records_leaves_the_loader(project, sampler, is_named):
    other = DATA.replace("data =", "other =").replace("/d/x", "/d/y")
    made = f"torch.utils.data.{sampler}"
    named, given = (f"s = {made}\n", "s") if is_named else ("", made)
    body = f"{DATA}\n{other}\n{named}loader = DataLoader(data, sampler={given})\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["files"] == {} and done["diff"] == ""
    (told,) = done["untranslated"]
    assert ("samples" in told["text"] and "loader's own dataset" in told["text"]) or (
        "the order depends on" in told["text"]
    )


SAME = {
    "another name of it": f"{DATA}\nb = data\nloader = DataLoader(data, sampler=R(b))",
    "of self": (
        "class C:\n    def f(self):\n"
        f"        self.{DATA}\n        loader = DataLoader(self.data, sampler=R(self.data))"
    ),
    "of branches": (
        f"if x:\n    {DATA}\nelse:\n    {DATA.replace('/x', '/y')}\n"
        "s = R(data)\nloader = DataLoader(data, sampler=s)"
    ),
}


@pytest.mark.parametrize("lines", SAME.values(), ids=SAME)
def test_a_sampler_of_the_same_records_gives_the_order(project, lines):
    body = f"from torch.utils.data import RandomSampler as R\n{lines}\n"
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["files"] and not done["untranslated"], done["untranslated"]
    assert all("shuffle: full" in text for text in done["files"].values())


def test_a_sampler_of_what_the_name_was_before_leaves_the_loader(project):
    body = (
        f"{DATA}\ns = torch.utils.data.RandomSampler(data)\n{DATA.replace('/x', '/y')}\n"
        "loader = DataLoader(data, sampler=s)\n"
    )
    done = migrate(write(project.folder, head(body)), "--json").document
    assert done["files"] == {} and done["diff"] == "" and done["untranslated"]
