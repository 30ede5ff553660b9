"""JAX output: copies, which hold no slot."""

import numpy as np
import pytest
from reading import check, positions

jax = pytest.importorskip("jax")


def test_jax_arrays_are_copies_that_may_be_kept_without_end(daemon, open_loader):
    loader = open_loader(daemon, output="jax", slots=2)
    for epoch in range(2):
        kept = list(loader)
        assert [p for batch in kept for p in positions(batch)] == list(range(40))
        for batch in kept:
            assert isinstance(batch["image"], jax.Array)
            assert batch["half"].dtype == jax.numpy.bfloat16
            arrays = {name: np.asarray(x) for name, x in batch.items()}
            check(arrays, epoch)
