// The client's end of the data socket in its rawest form: it says exactly what a test tells it to,
// right or wrong, and nothing by itself. It shares proto/shm/ with the product and nothing else.
// Usable in a forked child.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "proto/shm/wire.h"

namespace feedwater::testing {

class FakeTrainer {
 public:
  struct Packet {
    std::vector<char> bytes;
    int fd = -1;  // the receiver's to close

    uint16_t type() const { return bytes.size() >= 2 ? As<uint16_t>() : 0; }
    bool Is(wire::Type t) const { return type() == static_cast<uint16_t>(t); }
    template <typename M>
    M As() const {
      M message{};
      std::memcpy(&message, bytes.data(), bytes.size() < sizeof(M) ? bytes.size() : sizeof(M));
      return message;
    }
  };

  explicit FakeTrainer(const std::string& socket_path);
  explicit FakeTrainer(int socket) : fd_(socket) {}  // connected already; closed with this
  FakeTrainer(FakeTrainer&& other) noexcept;
  ~FakeTrainer();

  bool connected() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void Close();  // hangs up; the arena stays mapped

  // One packet, as it is. False when it could not be sent (errno says why).
  bool SendBytes(const void* bytes, size_t size, const std::vector<int>& descriptors = {});
  template <typename M>
  bool Send(const M& message) {
    return SendBytes(&message, sizeof(message));
  }
  // The next packet; nullopt at the end of the conversation or after the time.
  std::optional<Packet> Receive(int timeout_ms = 10'000);
  bool HasInput(int timeout_ms);

  // The steps of an honest conversation. Each is false or nullopt when the daemon does not play its
  // part.
  std::optional<std::array<uint8_t, 16>> Hello();
  bool ReceiveArena();                  // maps it read-only
  bool MapArena(const Packet& packet);  // the ARENA that has come
  std::optional<wire::Ready> Next();
  bool Release(uint32_t slot, uint64_t generation);
  bool Release(const wire::Ready& ready) { return Release(ready.slot, ready.generation); }
  bool Seek(uint32_t serial, uint64_t epoch, int64_t position);
  // Skips what comes before it. nullopt when the conversation ends without.
  std::optional<wire::Closing> Closing();

  const wire::Arena& arena() const { return arena_; }
  int arena_fd() const { return arena_fd_; }
  const std::byte* slot(uint32_t slot) const { return data_ + slot * arena_.slot_bytes; }
  void DropArena();

 private:
  int fd_ = -1;
  wire::Arena arena_{};
  int arena_fd_ = -1;
  const std::byte* data_ = nullptr;
};

}  // namespace feedwater::testing
