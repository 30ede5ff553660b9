// What lets go of memory that nobody uses when memory was refused to somebody.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace feedwater::server {

// Lets go of what nobody uses, for what was refused to the user. Whether that may help. May be
// null. It may take long, and is called with no lock held.
using RoomMaker = std::function<bool(uint32_t user, const absl::Status& refusal)>;

// Does the work, which gives a StatusOr: once more where it was refused memory and room was made.
template <typename Work>
auto OnceMoreWithRoom(const RoomMaker& make_room, uint32_t user, Work work) {
  auto result = work();
  if (make_room != nullptr && absl::IsResourceExhausted(result.status()) &&
      make_room(user, result.status())) {
    result = work();
  }
  return result;
}

}  // namespace feedwater::server
