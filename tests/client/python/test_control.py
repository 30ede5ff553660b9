"""The message classes are those of control.proto."""

import shutil
import subprocess
from pathlib import Path

import grpc
import pytest

import feedwater
from feedwater.control import DTYPE_NAMES, METHODS, Control, messages

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(shutil.which("protoc") is None, reason="protoc is not installed")
def test_the_shipped_descriptor_is_what_protoc_makes_of_control_proto():
    script = ROOT / "scripts/generate-python-proto"
    done = subprocess.run([script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_message_survives_the_wire():
    request = messages.OpenStreamRequest(ticket=b"t" * 16, rank=1, world_size=2)
    request.pipeline.text.yaml = "version: 1"
    assert not request.HasField("batch_size")
    again = messages.OpenStreamRequest.FromString(request.SerializeToString())
    assert again == request
    assert again.pipeline.WhichOneof("kind") == "text"


def test_the_service_has_its_methods_and_types():
    assert set(METHODS) == {
        "ListPipelines",
        "DescribePipeline",
        "OpenStream",
        "CloseStream",
        "Provide",
        "GetStatus",
        "ListBadSamples",
        "GetLedger",
        "ListRecords",
    }
    assert METHODS["GetStatus"][1] is messages.GetStatusResponse
    assert {1: "uint8", 9: "bfloat16", 10: "float32"}.items() <= DTYPE_NAMES.items()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seed": -1}, "seed is -1; it must be 0 to 18446744073709551615"),
        ({"seed": 1 << 64}, "seed is 18446744073709551616; it must be 0 to"),
        ({"slots": -1}, "slots is -1; it must be 1 to 64"),
        ({"slots": 1 << 32}, "slots is 4294967296; it must be 1 to 64"),
        ({"batch_size": 1 << 63}, "batch_size is 9223372036854775808; it must be at least 1"),
        ({"rank": 0, "world_size": 1 << 63}, "world_size is 9223372036854775808; it must be 1 to"),
        ({"rank": -(1 << 64), "world_size": 1}, "rank is -18446744073709551616; it must be 0 to"),
    ],
)
def test_a_number_that_no_request_can_carry_is_named_with_its_range(
    daemon, open_loader, options, text
):
    with pytest.raises(feedwater.InvalidArgument, match=text):
        open_loader(daemon, **options)


def test_every_status_becomes_its_error(daemon, open_loader):
    wanted = {
        "INVALID_ARGUMENT": feedwater.InvalidArgument,
        "NOT_FOUND": feedwater.NotFound,
        "PERMISSION_DENIED": feedwater.PermissionDenied,
        "FAILED_PRECONDITION": feedwater.FailedPrecondition,
        "ALREADY_EXISTS": feedwater.AlreadyExists,
        "RESOURCE_EXHAUSTED": feedwater.ResourceExhausted,
        "INTERNAL": feedwater.Error,
        "UNIMPLEMENTED": feedwater.Error,
    }
    for code in grpc.StatusCode:
        if code.name not in wanted:
            continue
        daemon.faults.refuse_open = (code.value[0], f"because of {code.name}")
        with pytest.raises(feedwater.Error, match=f"because of {code.name}") as caught:
            open_loader(daemon)
        assert type(caught.value) is wanted[code.name]
        assert caught.value.code == code.name


def test_a_proxy_in_the_environment_is_not_used(daemon, open_loader, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert len(open_loader(daemon)) == 10


def test_a_socket_without_a_server_is_daemon_lost(folder):
    with Control(str(folder)) as control, pytest.raises(feedwater.DaemonLost) as caught:
        control.call("GetStatus", messages.GetStatusRequest(), 2)
    assert caught.value.code == "UNAVAILABLE"
    assert isinstance(caught.value, ConnectionError)


def test_two_dots_behind_a_link_stay(daemon, open_loader, folder):
    """The daemon's folder is reached through a link's `..` alone."""
    (daemon.directory / "below").mkdir()
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere/link").symlink_to(daemon.directory / "below")
    assert len(open_loader(daemon, address=str(folder / "elsewhere/link/.."))) == 10
