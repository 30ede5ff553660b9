// What a client may say, checked byte by byte before anything looks at it. Pure: no session, no
// state. Whether the message fits the session's state is checked in session.cc.
#pragma once

#include <cstddef>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/shm/wire.h"

namespace feedwater::server {

// Why a session must end.
struct Violation {
  const char* counter;  // its name in DataServer::counters()
  absl::Status reason;  // what the client reads in CLOSING
};

using ClientMessage = std::variant<wire::Hello, wire::Release, wire::Seek, Violation>;

// One packet. `truncated`: it was longer than `packet` shows.
ClientMessage ParseClientMessage(absl::Span<const std::byte> packet, bool truncated);

}  // namespace feedwater::server
