"""Processes that run a user's own op, against a fake daemon."""

from __future__ import annotations

import numpy as np
import own_datasets as own
from fake_asker import FAILED, MADE, payload


def test_an_op_gets_arrays_and_gives_arrays(serve):
    asker = serve(own.double)
    assert asker.request.WhichOneof("kind") == "op"
    image = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = asker.get(4, 5, inputs=[payload([image]), payload([image + 1])])
    assert (got[0].tensors[0] == image * 2).all() and (got[1].tensors[0] == image * 2 + 2).all()
    asker = serve(own.two, name="two")
    got = asker.get(4, inputs=[payload([image, np.array(3)])])[0]
    assert (got.tensors[0] == image[:, ::-1]).all() and got.tensors[1] == 4
    assert got.dtypes == (10, 7)


def test_an_ops_generator_depends_on_the_seed_alone(serve):
    asker, image = serve(own.jitter), payload([np.zeros((2, 2), np.uint8)])
    seed = (11, 23)  # odd: the graph says `random: true`
    rng = np.random.Generator(np.random.Philox(key=[11, 23]))
    wanted = rng.integers(0, 1000)
    one, two = asker.get(4, 5, seed=seed, inputs=[image, image])
    assert (one.tensors[0] == two.tensors[0]).all()
    assert int(one.tensors[0][0, 0]) in (wanted, wanted + 1)


def test_an_op_that_is_not_random_gets_no_generator(serve):
    image = payload([np.zeros((2, 2), np.uint8)])
    plain = serve(own.jitter).get(4, seed=(11, 22), inputs=[image])[0]
    assert plain.code == MADE and plain.tensors[0][0, 0] < 1
    asker = serve(own.needs_rng, name="needs")
    refused, made = (
        asker.get(4, seed=(11, 22), inputs=[image])[0],
        asker.get(4, seed=(11, 23), inputs=[image])[0],
    )
    assert refused.text.startswith("the function needs_rng has the argument rng, and the op gives")
    assert "'random: true'" in refused.text and made.code == MADE
    asker = serve(own.any_keywords, name="any")
    assert asker.get(4, seed=(11, 22), inputs=[image])[0].tensors[0][0, 0] == 0
    assert asker.get(4, seed=(11, 23), inputs=[image])[0].tensors[0][0, 0] == 1


def test_an_op_that_returns_nothing_is_told_so(serve):
    answer = serve(own.forgetful).get(1, inputs=[payload([np.zeros(3)])])[0]
    assert answer.text.startswith("the function forgetful returned None: it returns the array of")


def test_an_op_may_change_its_input_and_draw(serve):
    image = np.zeros((2, 2), np.float32)
    got = serve(own.shift).get(4, inputs=[payload([image])])[0]
    assert (got.tensors[0] == 2).all()


def test_an_op_that_raises_is_a_failure_of_that_call(serve):
    answer = serve(own.fussy).get(1, inputs=[payload([np.zeros(3)])])[0]
    assert answer.code == FAILED and answer.text.startswith("RuntimeError: not this one")
