// The messages on data.sock, a SOCK_SEQPACKET Unix socket: one struct is one packet.
// proto/shm/README.md documents them byte by byte; tests/transport/wire_test.cc compares them with
// a golden file. All numbers are little-endian, all padding is explicit and zero. Nothing here
// depends on anything but the C++ standard library.
//
// Rules of compatibility: a struct never changes; a new field is a new message or a new struct at
// the end of a message under a higher minor version. Another major version is refused with both
// versions in the message.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace feedwater::wire {

static_assert(std::endian::native == std::endian::little, "the wire structs are used in place");

inline constexpr uint32_t kMagic = 0x52545746;  // "FWTR"
inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 1;
inline constexpr uint32_t kMaxSlots = 64;

enum class Type : uint16_t {
  kHello = 1,    // client -> daemon, first
  kWelcome = 2,  // daemon -> client, answer to kHello
  kArena = 3,    // daemon -> client, once, with the arena's file descriptor
  kReady = 4,    // daemon -> client: a slot is lent
  kFailed = 5,   // daemon -> client: in a batch's place; the stream stands still until kSeek
  kClosing = 6,  // daemon -> client, last: why the daemon ends the session
  kRelease = 7,  // client -> daemon: a lent slot goes back
  kSeek = 8,     // client -> daemon: start over elsewhere
};

struct Header {
  uint16_t type;
  uint16_t size;  // of the whole message
  uint32_t reserved;
};

struct Hello {
  Header header;
  uint32_t magic;
  uint16_t major, minor;
  uint32_t features;  // none defined
  uint32_t reserved;
};

struct Welcome {
  Header header;
  uint32_t magic;
  uint16_t major, minor;
  uint32_t features;
  uint32_t daemon_pid;
  uint8_t ticket[16];  // for OpenStream
};

struct Arena {
  Header header;
  uint64_t arena_bytes;  // slots * slot_bytes
  uint64_t slot_bytes;
  uint32_t slots;
  uint32_t reserved;
};

inline constexpr uint32_t kReadyLastInEpoch = 1;
inline constexpr uint32_t kReadyHasCrc = 2;
inline constexpr uint32_t kReadySkipped = 4;  // those that stand in for bad samples are not real

struct Ready {
  Header header;
  uint32_t slot;
  uint32_t serial;      // of the last kSeek the daemon has seen; 0 before the first
  uint64_t generation;  // counts the times the slot was lent; starts with 1
  uint64_t epoch;
  int64_t step;           // within the epoch
  int64_t next_position;  // the cursor after this batch
  uint32_t samples;       // places filled
  uint32_t real_samples;  // of them neither padding nor skipped
  uint32_t substituted;   // of them standing in for a bad sample
  uint32_t flags;         // kReady*
  uint32_t crc32c;        // over the filled part of each field, in order; 0 without kReadyHasCrc
  uint32_t reserved;
  int64_t published_ns;  // CLOCK_MONOTONIC when the daemon sent it
};

struct Failed {
  Header header;
  uint32_t serial;
  uint32_t code;  // gRPC status code
  uint64_t epoch;
  int64_t step;
  int64_t next_position;
  int64_t record;     // -1: not about one record
  char path[256];     // UTF-8, zero-terminated, cut if longer
  char message[512];  // of a record: what is wrong with it, without number and path
};

enum class FailReason : uint32_t {
  kOther = 0,       // not about a record, as a rule; what 1.0 does not say
  kBadRecord = 1,   // `record` cannot be made into a sample, and the pipeline says `fail`
  kTooManyBad = 2,  // more records than max_bad_fraction allows; `record` is the last of them
};

// kFailed since 1.1. What speaks 1.0 gets Failed alone.
struct FailedWithReason {
  Failed failed;
  uint32_t reason;  // FailReason
  uint32_t reserved;
};

struct Closing {
  Header header;
  uint32_t code;
  uint32_t reserved;
  char message[512];
};

struct Release {
  Header header;
  uint32_t slot;
  uint32_t reserved;
  uint64_t generation;
};

struct Seek {
  Header header;
  uint32_t serial;  // greater than the last one's
  uint32_t reserved;
  uint64_t epoch;
  int64_t position;  // global position within the epoch
};

inline constexpr size_t kMaxMessage = sizeof(FailedWithReason);

template <typename M>
constexpr Header MakeHeader(Type type) {
  return {static_cast<uint16_t>(type), static_cast<uint16_t>(sizeof(M)), 0};
}

static_assert(sizeof(Header) == 8);
static_assert(sizeof(Hello) == 24 && offsetof(Hello, magic) == 8 &&
              offsetof(Hello, features) == 16);
static_assert(sizeof(Welcome) == 40 && offsetof(Welcome, daemon_pid) == 20 &&
              offsetof(Welcome, ticket) == 24);
static_assert(sizeof(Arena) == 32 && offsetof(Arena, slot_bytes) == 16 &&
              offsetof(Arena, slots) == 24);
static_assert(sizeof(Ready) == 80 && offsetof(Ready, generation) == 16 &&
              offsetof(Ready, next_position) == 40 && offsetof(Ready, samples) == 48 &&
              offsetof(Ready, crc32c) == 64 && offsetof(Ready, published_ns) == 72);
static_assert(sizeof(Failed) == 816 && offsetof(Failed, record) == 40 &&
              offsetof(Failed, path) == 48 && offsetof(Failed, message) == 304);
static_assert(sizeof(FailedWithReason) == 824 && offsetof(FailedWithReason, reason) == 816);
static_assert(sizeof(Closing) == 528 && offsetof(Closing, message) == 16);
static_assert(sizeof(Release) == 24 && offsetof(Release, generation) == 16);
static_assert(sizeof(Seek) == 32 && offsetof(Seek, epoch) == 16 && offsetof(Seek, position) == 24);
static_assert(std::is_trivially_copyable_v<FailedWithReason> &&
              std::is_standard_layout_v<FailedWithReason>);

}  // namespace feedwater::wire
