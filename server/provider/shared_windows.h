// The memory that the daemon shares with one process of a provider: windows, then the provider's
// last words (proto/shm/README.md). Both sides may write to all of it at any time, so whatever is
// read from here is copied once and then checked, and nothing here is ever taken for an address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "proto/shm/wire.h"
#include "server/base/fd.h"
#include "server/base/memory_budget.h"
#include "server/base/room_maker.h"
#include "server/base/status.h"
#include "server/transport/arena_watch.h"

namespace feedwater::server {

// Whose memory windows are, who counts it for as long as anybody keeps it, and what makes room for
// it; all may be null.
struct WindowMemory {
  uint32_t owner = 0;
  std::shared_ptr<MemoryBudget> share;
  std::shared_ptr<ArenaWatch> watch;
  RoomMaker make_room = nullptr;
};

class SharedWindows {
 public:
  // Of Entry::input_offset, of a source: nobody waits for the record any more.
  static constexpr uint64_t kUnwanted = 1;

  // Windows with room for `data_bytes` behind their entries. ResourceExhausted: there is no memory
  // for them.
  static absl::StatusOr<std::shared_ptr<SharedWindows>> Make(int64_t data_bytes,
                                                             const WindowMemory& memory);
  // The same, once more where room was made for them. No lock is held meanwhile.
  static absl::StatusOr<std::shared_ptr<SharedWindows>> MakeWithRoom(int64_t data_bytes,
                                                                     const WindowMemory& memory) {
    return OnceMoreWithRoom(memory.make_room, memory.owner,
                            [&] { return Make(data_bytes, memory); });
  }
  ~SharedWindows();
  SharedWindows(const SharedWindows&) = delete;
  SharedWindows& operator=(const SharedWindows&) = delete;

  wire::Region message() const;
  int fd() const { return fd_.get(); }
  void CloseFile() { fd_ = Fd(); }  // the mapping stays
  uint32_t windows() const { return windows_; }
  int64_t data_bytes() const { return window_bytes_ - kEntriesBytes; }

  void WriteEntry(uint32_t window, uint32_t entry, const wire::Entry& value);
  // Tells a process that has the entry that it need not make it.
  void WriteUnwanted(uint32_t window, uint32_t entry);
  wire::Entry ReadEntry(uint32_t window, uint32_t entry) const;
  // What [offset, offset + bytes) of the window is; nothing where that is not behind the entries
  // and within the window.
  absl::Span<std::byte> Data(uint32_t window, uint64_t offset, uint64_t bytes) const;
  // Text that the process has left, a copy.
  std::string LastWords() const;

  static constexpr int64_t kEntriesBytes = wire::kMaxEntries * sizeof(wire::Entry);

 private:
  SharedWindows() = default;
  std::byte* Window(uint32_t window) const {
    return data_ + static_cast<int64_t>(window) * window_bytes_;
  }

  Fd fd_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0, window_bytes_ = 0;
  uint32_t windows_ = 0;
  MemoryReservation reservation_;  // where nobody watches the file
};

}  // namespace feedwater::server
