"""Generators that user code does not name: seeded by what the daemon says, once they are used."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

from feedwater import seeding
from feedwater.seeding import Draws, Seeding

DRAWS = {
    "random": random.random,
    "gauss": lambda: (random.gauss(0, 1), random.gauss(0, 1)),
    "shuffle": lambda: random.sample(range(100), 10),
    "numpy": np.random.rand,
    "normal": np.random.randn,
    "as many as the state has": lambda: np.random.rand(312).tolist(),
    "as many twice": lambda: [random.random() for _ in range(624)],
    "both": lambda: (random.random(), np.random.rand()),
}


def drawn(seeding, first, second, draw):
    while True:
        seeding.seed(first, second)
        made = draw()
        if seeding.is_complete():
            return made


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_depends_on_the_seeds_alone(name):
    draw = DRAWS[name]
    one, two = Seeding(), None
    first = [drawn(one, seed, 5, draw) for seed in (1 << 32, 2 << 32, 1 << 32)]
    two = Seeding()
    drawn(two, 9, 9, lambda: None)
    assert drawn(two, 2 << 32, 5, draw) == first[1]
    assert first[0] == first[2] != first[1]


def test_generators_that_nobody_uses_are_not_seeded(monkeypatch):
    seeds = []
    monkeypatch.setattr(seeding, "_seed_random", lambda seed: seeds.append(seed) or _real(seed))
    one = Seeding()
    seeds.clear()
    assert drawn(one, 1, 2, lambda: 5) == 5 and seeds == []
    calls = []
    drawn(one, 3, 4, lambda: calls.append(random.random()))
    assert len(calls) == 2 and seeds == [3 ^ 4]
    drawn(one, 5, 6, lambda: calls.append(random.random()))
    assert len(calls) == 3 and seeds == [3 ^ 4, 5 ^ 6]


_real = seeding._seed_random


def test_where_memory_cannot_be_looked_at_all_is_seeded_always(monkeypatch):
    monkeypatch.setattr(seeding.sys.implementation, "name", "another")
    one = Seeding()
    one.seed(7, 8)
    first = random.random()
    assert one.is_complete()
    one.seed(7, 8)
    assert random.random() == first


def test_torch_is_seeded_also_for_those_who_ask_for_its_seed():
    torch = pytest.importorskip("torch")
    Seeding().seed(7, 8)
    assert torch.initial_seed() == 7 ^ 8
    first = torch.rand(3)
    Seeding().seed(7, 8)
    assert (torch.rand(3) == first).all()


def test_numpy_and_torch_do_not_draw_the_same_words():
    torch = pytest.importorskip("torch")
    seeding = Seeding(at_once=True)
    seeding.seed(0x0123456789ABCDEF, 0)
    assert torch.initial_seed() == 0x0123456789ABCDEF
    drawn = np.random.randint(0, 1 << 32, 4, dtype=np.uint32)
    wanted = np.random.RandomState(0x01234567).randint(0, 1 << 32, 4, dtype=np.uint32)
    assert (drawn == wanted).all()
    assert np.random.RandomState(0x89ABCDEF).randint(0, 1 << 32, dtype=np.uint32) != drawn[0]


TORCH = """
class Generator:
    drawn = []
    def manual_seed(self, seed): self.drawn.append(seed)
default_generator = Generator()
"""


def test_torch_is_seeded_where_it_is_imported_within_a_sample(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    (tmp_path / "torch.py").write_text(TORCH)
    monkeypatch.syspath_prepend(tmp_path)
    for at_once in (False, True):  # a record, an op
        one = Seeding(at_once)
        one.seed(7 << 40, 8)
        import torch

        assert torch.default_generator.drawn == [7 << 40 ^ 8]
        assert one.is_complete()
        one.seed(9, 8)
        assert torch.default_generator.drawn[1:] == [9 ^ 8]
        del sys.modules["torch"]


def test_an_ops_generator_is_that_of_a_new_philox():
    draws = Draws()
    for key in ((1, 2), (1 << 63, 3), (1, 2)):
        wanted = np.random.Generator(np.random.Philox(key=np.array(key, dtype=np.uint64)))
        got = draws.of(*key)
        assert got.integers(0, 1 << 30, 5).tolist() == wanted.integers(0, 1 << 30, 5).tolist()
        assert got.random() == wanted.random()
        got.standard_normal(3, dtype=np.float32)  # half of a word is left
