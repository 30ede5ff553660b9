"""Control of the daemon: gRPC over the Unix socket ``control.sock`` of its runtime directory.

The message classes are made at import time from the descriptor in `_control_descriptor`, in a pool
of their own: that works with every protobuf from 3.20 on, whatever its generated code would demand,
and cannot collide with another package's messages.

A channel lives only as long as its calls: a connection of a program that forks would be its
child's, too. gRPC itself is kept once it is there. It shuts down with its last channel, in a thread
of its own, and a fork in between waits for that thread and never returns (seen with grpcio 1.85).
"""

from __future__ import annotations

import functools
import math
import os
import random
import re
import time
from types import SimpleNamespace
from typing import Any, Optional

import grpc
from google.protobuf import descriptor_pool, message_factory

from . import errors
from ._control_descriptor import FILE_DESCRIPTOR

SERVICE = "feedwater.v1.Control"

_MIB = 1 << 20
# A Unix socket whose queue is full refuses a connection at once (EAGAIN), which gRPC takes for one
# that will come about; what it then says is what the kernel says of a socket without a peer. The
# queue has room again when the daemon gets on.
_NOT_CONNECTED = re.compile("recvmsg:Invalid argument|endpoint is not connected")
_QUEUE_S = 5.0
_DETAILS, _NOT_SERVED = "grpc-status-details-bin", b"not-served"  # as control.proto says
_PAUSE_S = 0.05
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.default_authority", "localhost"),
    ("grpc.max_send_message_length", _MIB),
    ("grpc.max_receive_message_length", 64 * _MIB),
)


def _load() -> tuple[SimpleNamespace, dict[str, tuple[Any, Any]], dict[int, str]]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(FILE_DESCRIPTOR)
    file = pool.FindFileByName("feedwater/v1/control.proto")
    if hasattr(message_factory, "GetMessageClass"):
        make = message_factory.GetMessageClass
    else:
        make = message_factory.MessageFactory(pool).GetPrototype
    classes = {name: make(message) for name, message in file.message_types_by_name.items()}
    service = file.services_by_name["Control"]
    methods = {
        method.name: (classes[method.input_type.name], classes[method.output_type.name])
        for method in service.methods
    }
    dtypes = {
        value.number: value.name[len("DTYPE_") :].lower()
        for value in file.enum_types_by_name["DType"].values
    }
    return SimpleNamespace(**classes), methods, dtypes


messages, METHODS, DTYPE_NAMES = _load()


@functools.cache
def _keep_grpc() -> grpc.Channel:
    """Return a channel that is never used or closed: as long as there is one, gRPC stays."""
    return grpc.insecure_channel("unix:/", options=_OPTIONS)


class Control:
    """The daemon's control service. Use it as a context manager.

    Parameters
    ----------
    address : str
        The daemon's runtime directory, as `address.resolve` returns it: absolute, and with its
        ``..``, which behind a link is the parent of what the link names.
    """

    def __init__(self, address: str) -> None:
        self._path = os.path.join(address, "control.sock")
        self._address = address
        self._channel = self._connect()

    def _connect(self) -> grpc.Channel:
        _keep_grpc()
        return grpc.insecure_channel("unix:" + self._path, options=_OPTIONS)

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *unused: object) -> None:
        self._channel.close()

    def call(self, method: str, request: Any, timeout: Optional[float]) -> Any:
        """Call an RPC.

        Raises
        ------
        Error
            As the daemon's status says, and its details (`NotServed`); `DaemonLost` when it cannot
            be reached.
        """
        patience = time.monotonic() + min(_QUEUE_S, math.inf if timeout is None else timeout)
        while True:
            stub = self._channel.unary_unary(
                f"/{SERVICE}/{method}",
                request_serializer=METHODS[method][0].SerializeToString,
                response_deserializer=METHODS[method][1].FromString,
            )
            # What is needed of the error, not the error: in a variable of this frame it would keep
            # the frame, and through it those of the loader with their batch, until a garbage
            # collection.
            try:
                return stub(request, timeout=timeout)
            except grpc.RpcError as error:
                code = error.code().name
                text = error.details() or code
                details = dict(error.trailing_metadata() or ()).get(_DETAILS)
            was_full = code == "UNAVAILABLE" and _NOT_CONNECTED.search(text)
            if was_full and time.monotonic() < patience:
                self._channel.close()
                time.sleep(_PAUSE_S * random.random())
                self._channel = self._connect()
                continue
            if details == _NOT_SERVED:
                raise errors.NotServed(text)
            if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                text = f"the daemon at {self._address} did not serve {method}: {text}"
            raise errors.from_code(code, text)
