// What the daemon says on the data socket: how each message is put together, sent, and how a
// conversation is ended so that the client still reads the last word. The other direction is
// client_message.h.
#pragma once

#include <cstdint>

#include "proto/shm/wire.h"
#include "server/base/fd.h"
#include "server/base/status.h"
#include "server/batch/slot_pool.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

wire::Welcome MakeWelcome(const wire::Hello& hello, const SessionTicket& ticket);
wire::Arena MakeArena(int64_t slot_bytes, int slots);  // REQUIRES: ArenaBytes() accepts them
// Without generation, checksum and time, which Session::Publish adds.
wire::Ready MakeReady(int slot, const BatchMeta& meta);
wire::FailedWithReason MakeFailed(const BatchMeta& meta,
                                  const BatchFailure& failure);  // long texts are cut
wire::Closing MakeClosing(const absl::Status& reason);

// One packet, with a copy of `descriptor` unless that is -1. Never waits and never raises SIGPIPE.
// 0 or the errno: EAGAIN when the client's queue is full.
int SendPacket(int socket, const void* message, size_t size, int descriptor = -1);

// Closes the socket. A socket that is closed with messages unread gives its peer ECONNRESET before
// what was sent to it, so the unread ones are thrown away first.
void CloseWithoutReset(Fd socket);

}  // namespace feedwater::server
