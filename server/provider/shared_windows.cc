#include "server/provider/shared_windows.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/sealed_file.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 40;
// One that is filled, one that is made, one that is read; of large ones fewer have to do.
constexpr uint32_t kWindows = 3, kLargeWindows = 2, kHugeWindows = 1;
constexpr int64_t kLargeBytes = 8 << 20, kHugeBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<SharedWindows>> SharedWindows::Make(int64_t data_bytes,
                                                                   const WindowMemory& memory) {
  constexpr int64_t kUnit = wire::kWindowUnit;
  if (data_bytes < 0 || data_bytes > kMostBytes)
    return absl::InvalidArgumentError("the size of a window overflows");
  std::shared_ptr<SharedWindows> shared(new SharedWindows);
  shared->windows_ = data_bytes > kHugeBytes    ? kHugeWindows
                     : data_bytes > kLargeBytes ? kLargeWindows
                                                : kWindows;
  shared->window_bytes_ = (kEntriesBytes + data_bytes + kUnit - 1) / kUnit * kUnit;
  shared->bytes_ = shared->windows_ * shared->window_bytes_ + int64_t{wire::kWordsBytes};
  if (memory.share != nullptr) {
    FW_ASSIGN_OR_RETURN(shared->reservation_, memory.share->Reserve("providers", shared->bytes_));
  }
  FW_ASSIGN_OR_RETURN(shared->fd_,
                      MakeSealedFile("feedwater-provider", shared->bytes_, /*allocate=*/true));
  if (memory.watch != nullptr) {
    ArenaAccount account;
    account.owner = memory.owner;
    account.of_daemon = std::move(shared->reservation_);
    FW_RETURN_IF_ERROR(memory.watch->Add(shared->fd(), std::move(account)));
  }
  void* const data = mmap(nullptr, static_cast<size_t>(shared->bytes_), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_POPULATE, shared->fd(), 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        ErrnoStatus(errno, absl::StrCat("mapping ", FormatBytes(shared->bytes_), " for a provider"))
            .message());
  }
  shared->data_ = static_cast<std::byte*>(data);
  return shared;
}

SharedWindows::~SharedWindows() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

wire::Region SharedWindows::message() const {
  wire::Region message{};
  message.header = wire::MakeHeader<wire::Region>(wire::Type::kRegion);
  message.region_bytes = static_cast<uint64_t>(bytes_);
  message.window_bytes = static_cast<uint64_t>(window_bytes_);
  message.windows = windows_;
  message.entries = wire::kMaxEntries;
  return message;
}

void SharedWindows::WriteEntry(uint32_t window, uint32_t entry, const wire::Entry& value) {
  std::memcpy(Window(window) + entry * sizeof(value), &value, sizeof(value));
}

void SharedWindows::WriteUnwanted(uint32_t window, uint32_t entry) {
  std::memcpy(Window(window) + entry * sizeof(wire::Entry) + offsetof(wire::Entry, input_offset),
              &kUnwanted, sizeof(kUnwanted));
}

wire::Entry SharedWindows::ReadEntry(uint32_t window, uint32_t entry) const {
  wire::Entry value;
  std::memcpy(&value, Window(window) + entry * sizeof(value), sizeof(value));
  asm volatile("" : : "r"(&value) : "memory");  // the compiler may not read it again
  return value;
}

absl::Span<std::byte> SharedWindows::Data(uint32_t window, uint64_t offset, uint64_t bytes) const {
  const auto end = static_cast<uint64_t>(window_bytes_);
  if (offset < kEntriesBytes || offset > end || bytes > end - offset) return {};
  return {Window(window) + offset, static_cast<size_t>(bytes)};
}

std::string SharedWindows::LastWords() const {
  std::string words(wire::kWordsBytes, '\0');
  std::memcpy(words.data(), Window(windows_), words.size());
  words.resize(std::min(words.find('\0'), words.size()));
  return words;
}

}  // namespace feedwater::server
