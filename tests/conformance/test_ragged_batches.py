"""Outputs whose number of rows differs from sample to sample: the rows of a batch one after the
other, and where those of each sample begin.
"""

from __future__ import annotations

import json

import pytest
from driver import Refused, digests, output, values

RECORDS = 22
HEAD = """version: 1
dataset:
  format: jsonl
  root: data
  path: boxes.jsonl
  fields: {{boxes: {{from: boxes, dtype: float32}}, labels: labels, name: name}}
sampler: {{shuffle: {shuffle}, seed: 5, last: {last}}}
{more}batch: {{size: 4}}
outputs: [sample_id, {outputs}, is_real]
"""


def pipeline(outputs="boxes, labels, name, boxes_length", shuffle="full", last="pad", more=""):
    return HEAD.format(outputs=outputs, shuffle=shuffle, last=last, more=more)


def boxes(record: int) -> list[list[float]]:
    """Of every fifth record none, of the eleventh many."""
    count = 40 if record == 11 else record % 5
    return [[record + i / 8, i, record, 1.5] for i in range(count)]


def labels(record: int) -> list[int]:
    return [100 * record + i for i in range(len(boxes(record)))]


def name(record: int) -> str:
    return "x" * (record % 3) + str(record)


PIPELINES = {
    "ragged": pipeline(),
    "ragged-partial": pipeline(last="partial", shuffle="none"),
    "bounded": pipeline("{boxes: {max_rows: 8}}, labels, name", shuffle="none"),
    "bounded-substitutes": pipeline(
        "{boxes: {max_rows: 8}}, labels, name",
        shuffle="none",
        more="on_bad_sample: substitute\n",
    ),
    "bounded-skips": pipeline(
        "{boxes: {max_rows: 8}}, labels, name",
        shuffle="none",
        more="on_bad_sample: skip_with_count\n",
    ),
    "padded": pipeline("{labels: {pad_to: 40, pad_value: -1}}, labels_length", shuffle="none"),
}


def fill(daemon):
    lines = [
        {"boxes": boxes(record), "labels": labels(record), "name": name(record)}
        for record in range(RECORDS)
    ]
    (daemon.data / "boxes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for pipeline_name, text in PIPELINES.items():
        daemon.add_pipeline(pipeline_name, text)


@pytest.fixture
def ragged_daemon(daemon):
    fill(daemon)
    return daemon


def rows(batch: dict, of: str, row: int = 1) -> list[list]:
    """The elements of each sample; `row` of them are a row."""
    one = output(batch, of)
    begins = [row * offset for offset in one["offsets"]]
    return [one["values"][begin:end] for begin, end in zip(begins, begins[1:])]


def check(batches: list[dict]) -> list[int]:
    """Compare every batch with what the file says of its records; return the records."""
    seen = []
    for batch in batches:
        records = output(batch, "sample_id")["values"]
        assert len(output(batch, "boxes")["offsets"]) == batch["samples"] + 1
        assert output(batch, "boxes")["shape"] == [output(batch, "boxes")["offsets"][-1], 4]
        assert rows(batch, "boxes", 4) == [[x for box in boxes(r) for x in box] for r in records]
        assert rows(batch, "labels") == [labels(r) for r in records]
        assert rows(batch, "name") == [list(name(r).encode()) for r in records]
        seen += records
    return seen


WANTED = {"values": ["sample_id", "boxes", "labels", "name", "boxes_length"]}


def test_each_sample_has_the_rows_of_its_record(ragged_daemon, start):
    driver = start(ragged_daemon)
    facts = driver.open("ragged", verify=True)
    shapes = {field["name"]: field["shape"] for field in facts["fields"]}
    assert shapes["boxes"] == [None, 4] and shapes["labels"] == [None]
    assert shapes["boxes_length"] == []
    for _ in range(2):
        batches = driver.batches(**WANTED)
        assert set(check(batches)) == set(range(RECORDS))
        for batch in batches:
            offsets = output(batch, "boxes")["offsets"]
            lengths = [end - begin for begin, end in zip(offsets, offsets[1:])]
            assert output(batch, "boxes_length")["values"] == lengths


def test_the_last_batch_may_be_a_partial_one_or_empty(ragged_daemon, start):
    driver = start(ragged_daemon)
    driver.open("ragged-partial", verify=True, batch_size=7, rank=0, world_size=3)
    driver.open("ragged-partial", "b", verify=True, batch_size=7, rank=2, world_size=3)
    assert [batch["samples"] for batch in driver.batches(count=1, **WANTED)] == [7]
    last = driver.batches(**WANTED) + driver.batches("b", **WANTED)[1:]
    assert sorted(batch["samples"] for batch in last) == [0, 1]
    check(last)


def test_batches_are_the_same_after_a_state_a_replay_and_a_restart_of_the_daemon(own_daemon, start):
    fill(own_daemon)
    driver = start(own_daemon)
    driver.open("ragged", verify=True)
    whole = driver.batches(**WANTED)
    driver.open("ragged", verify=True)
    begin = driver.batches(count=2)
    state = driver.state()
    own_daemon.kill()
    own_daemon.start()
    assert digests(begin + driver.batches()) == digests(whole)
    driver.open("ragged", "b", state=state, verify=True)
    assert digests(driver.batches("b")) == digests(whole[2:])
    again = driver.call("replay", step=1, epoch=0, **WANTED)["batch"]
    assert again["outputs"] == whole[1]["outputs"]
    check([again])


@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize("policy", ["", "-substitutes", "-skips"])
def test_a_sample_of_too_many_rows_is_a_bad_sample(make_daemon, start, policy, isolation):
    daemon = make_daemon(config=f"cpus: 2\nmemory: 1GiB\nisolation: {isolation}\n")
    fill(daemon)
    daemon.start()
    driver = start(daemon)
    driver.open("bounded" + policy, verify=True)
    if not policy:
        assert check(driver.batches(count=2, **WANTED)) == list(range(8))
        with pytest.raises(Refused, match=r"'boxes' has 40 rows.*max_rows: 40") as caught:
            driver.call("next")
        assert caught.value.more["record"] == 11
        assert caught.value.more["path"].startswith("boxes.jsonl")
        return
    batches = driver.batches(values=[*WANTED["values"], "is_real"])
    if policy == "-substitutes":
        assert check(batches)[:13] == [*range(11), 12, 12]
        return
    skipped = batches[2]
    assert output(skipped, "is_real")["values"] == [True, True, True, False]
    assert output(skipped, "sample_id")["values"][3] == 11
    assert rows(skipped, "labels")[3] == labels(12), "everything else is the next good record's"


def test_isolation_and_the_number_of_workers_change_no_byte(ragged_daemon, make_daemon, start):
    driver = start(ragged_daemon)
    driver.open("ragged")
    whole = digests(driver.batches())
    for config in ("cpus: 1\nisolation: process\n", "cpus: 2\n"):
        daemon = make_daemon(config=config + "memory: 1GiB\n")
        fill(daemon)
        daemon.start()
        other = start(daemon)
        other.open("ragged", verify=True)
        assert digests(other.batches()) == whole


def test_padded_rows_have_a_fixed_shape(ragged_daemon, start):
    driver = start(ragged_daemon)
    facts = driver.open("padded", verify=True)
    assert facts["fields"][1] == {"name": "labels", "dtype": "int64", "shape": [40]}
    batches = driver.batches(values=["labels", "labels_length", "sample_id"])
    padded, lengths = values(batches, "labels"), values(batches, "labels_length")
    for place, record in enumerate(values(batches, "sample_id")):
        own = labels(record)
        assert padded[40 * place : 40 * (place + 1)] == own + [-1] * (40 - len(own))
        assert lengths[place] == len(own)


def test_a_held_batch_stays_as_it_was(ragged_daemon, start):
    driver = start(ragged_daemon)
    driver.open("ragged", slots=4)
    kept = driver.batches(count=1, hold="kept", **WANTED)
    driver.batches(count=4)
    assert driver.call("held", hold="kept", **WANTED)["batches"] == kept


def test_a_client_that_knows_no_ragged_outputs_is_refused(ragged_daemon):
    from feedwater import errors
    from feedwater.control import Control, messages
    from feedwater.session import Session

    session = Session(ragged_daemon.address)
    session._greet()
    with Control(ragged_daemon.address) as control:
        for pipeline_name in ("ragged", "padded"):
            request = messages.OpenStreamRequest(
                ticket=session.ticket, client="python 0.0.1", world_size=1
            )
            request.pipeline.name = pipeline_name
            if pipeline_name == "padded":
                assert control.call("OpenStream", request, 60).fields[1].max_rows == 0
                continue
            with pytest.raises(
                errors.FailedPrecondition, match=r"'boxes' is ragged.*0.0.1.*pad_to"
            ):
                control.call("OpenStream", request, 60)
    session.abandon()


def test_offsets_that_make_no_sense_are_not_believed(fake, start):
    """What the fake daemon says are offsets are numbers of records: 0, 7, 14, 21, and a zero."""

    def describe(answer):
        fields = {field.name: field for field in answer.fields}
        image = fields["image"]
        del image.shape[:]
        image.shape.extend([-1, 2])
        image.max_rows = 30
        image.offsets_offset = fields["sample_id"].offset

    fake.faults.edit_answer = describe
    driver = start(fake)
    assert driver.open("numbers")["fields"][0]["shape"] == [None, 2]
    with pytest.raises(Refused, match="impossible offsets of 'image'") as caught:
        driver.call("next")
    assert caught.value.code in ("INTERNAL", "UNKNOWN")


@pytest.mark.parametrize("wrong", ["rows", "offsets", "shape"])
def test_a_ragged_output_that_does_not_fit_into_a_slot_is_refused(fake, start, wrong):
    def describe(answer):
        image = answer.fields[0]
        del image.shape[:]
        image.shape.extend([60] if wrong == "shape" else [-1])
        image.max_rows = 1 << 40 if wrong == "rows" else 1
        image.offsets_offset = answer.slot_bytes - (8 if wrong == "offsets" else 64)

    fake.faults.edit_answer = describe
    with pytest.raises(Refused, match="does not fit into a slot"):
        start(fake).open("numbers")
