#include "server/transport/client_message.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/counters.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"protocol_version", {"clients of another protocol version"}},
    {"protocol_bad_magic", {"connections of something that is no feedwater client"}},
    {"protocol_bad_size", {"sessions ended for a message of a wrong size"}},
    {"protocol_bad_type", {"sessions ended for a message of an unknown type"}},
    {"protocol_bad_reserved", {"sessions ended for a message with bits that must be zero"}},
    {"protocol_bad_seek", {"sessions ended for a seek to nowhere"}},
};

template <typename... Args>
Violation Bad(const char* counter, const Args&... args) {
  return {counter, absl::InvalidArgumentError(absl::StrCat("data protocol: ", args...))};
}

template <typename M>
M As(absl::Span<const std::byte> packet) {  // REQUIRES: packet.size() >= sizeof(M)
  M message;
  std::memcpy(&message, packet.data(), sizeof(M));
  return message;
}

// The first 16 bytes of HELLO are the same in every version, so that any two versions can name
// themselves to each other. A newer minor version may have added fields after ours.
ClientMessage ParseHello(absl::Span<const std::byte> packet) {
  constexpr size_t kFixed = offsetof(wire::Hello, features);
  if (packet.size() < kFixed) return Bad("protocol_bad_size", "HELLO of ", packet.size(), " bytes");
  wire::Hello hello{};
  std::memcpy(&hello, packet.data(), kFixed);
  if (hello.magic != wire::kMagic) {
    return Bad("protocol_bad_magic", "HELLO does not begin as Feedwater's does");
  }
  if (hello.major != wire::kMajor) {
    const bool client_is_older = hello.major < wire::kMajor;
    return Violation{"protocol_version",
                     absl::FailedPreconditionError(absl::StrCat(
                         "client speaks data protocol ", hello.major, ".", hello.minor,
                         ", this daemon ", wire::kMajor, ".", wire::kMinor, ": install a ",
                         client_is_older ? "newer client or an older daemon"
                                         : "newer daemon or an older client"))};
  }
  const bool newer = hello.minor > wire::kMinor;
  if (newer ? packet.size() < sizeof(wire::Hello) : packet.size() != sizeof(wire::Hello)) {
    return Bad("protocol_bad_size", "HELLO of ", packet.size(), " bytes instead of ",
               sizeof(wire::Hello));
  }
  hello = As<wire::Hello>(packet);
  if (hello.reserved != 0)
    return Bad("protocol_bad_reserved", "HELLO with a reserved field that is not 0");
  return hello;
}

template <typename M>
ClientMessage ParseFixed(absl::Span<const std::byte> packet, const char* name) {
  if (packet.size() != sizeof(M)) {
    return Bad("protocol_bad_size", name, " of ", packet.size(), " bytes instead of ", sizeof(M));
  }
  const M message = As<M>(packet);
  if (message.reserved != 0) {
    return Bad("protocol_bad_reserved", name, " with a reserved field that is not 0");
  }
  return message;
}

}  // namespace

ClientMessage ParseClientMessage(absl::Span<const std::byte> packet, bool truncated) {
  if (truncated)
    return Bad("protocol_bad_size", "a message of more than ", packet.size(), " bytes");
  if (packet.size() < sizeof(wire::Header)) {
    return Bad("protocol_bad_size", "a message of ", packet.size(), " bytes");
  }
  const auto header = As<wire::Header>(packet);
  if (header.size != packet.size()) {
    return Bad("protocol_bad_size", "a message of ", packet.size(), " bytes that says it has ",
               header.size);
  }
  if (header.reserved != 0)
    return Bad("protocol_bad_reserved", "a header with a reserved field that is not 0");
  switch (static_cast<wire::Type>(header.type)) {
    case wire::Type::kHello:
      return ParseHello(packet);
    case wire::Type::kRelease:
      return ParseFixed<wire::Release>(packet, "RELEASE");
    case wire::Type::kSeek: {
      ClientMessage message = ParseFixed<wire::Seek>(packet, "SEEK");
      const auto* seek = std::get_if<wire::Seek>(&message);
      if (seek != nullptr && seek->position < 0) {
        return Bad("protocol_bad_seek", "SEEK to position ", seek->position);
      }
      return message;
    }
    default:
      return Bad("protocol_bad_type", "a message of type ", header.type, ", which no client sends");
  }
}

}  // namespace feedwater::server
