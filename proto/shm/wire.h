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
inline constexpr uint16_t kMinor = 2;
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
  // On a connection that provides a source or an op, since 1.2.
  kRegion = 9,   // daemon -> provider, with the region's file descriptor
  kAsk = 10,     // daemon -> provider: the entries of a window are to be made
  kAnswer = 11,  // provider -> daemon: they are made
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
  kNotServed = 3,   // no process serves a source or an op of the user's own any more
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

// Memory that daemon and provider share: windows, then kWordsBytes for the provider's last words.
struct Region {
  Header header;
  uint64_t region_bytes;  // windows * window_bytes + kWordsBytes
  uint64_t window_bytes;  // a multiple of kWindowUnit
  uint32_t windows;       // 1 to kMaxWindows
  uint32_t entries;       // of a window, at its beginning; 1 to kMaxEntries
};

inline constexpr size_t kWordsBytes = 8192;  // text, zero-terminated where it is shorter
inline constexpr size_t kWindowUnit = 4096;
inline constexpr size_t kPayloadUnit = 64;  // payloads, and tensors in them, begin at multiples
inline constexpr uint32_t kMaxWindows = 8;
inline constexpr uint32_t kMaxEntries = 64;
inline constexpr uint32_t kMaxTensors = 64;  // of a payload
inline constexpr uint32_t kMaxAxes = 6;

// One thing to be made: a record of a source, or what an op makes of one sample or batch. Offsets
// are from the window's beginning.
struct Entry {
  // The daemon's, written before ASK.
  int64_t record;         // of a source; of an op the sample's sample_id, or the global batch
  uint64_t seed[2];       // of all randomness: of (seed, epoch, record, op) alone
  uint64_t input_offset;  // of an op: a payload
  uint64_t input_bytes;   // 0: a source's
  // The provider's, written before ANSWER.
  uint64_t offset;  // kMade: of a payload; kFailed: of a text
  uint64_t bytes;   // of it; kTooLarge: what the payload would take
  uint32_t code;
  uint32_t reserved;
};

enum class EntryCode : uint32_t {
  kMade = 0,
  kFailed = 1,    // the text says why, UTF-8
  kTooLarge = 2,  // for the window: the same entry comes again with more room, alone
};

// A payload begins with one of these for each of its tensors; then come the tensors in their
// order, in C order each, the first one at the next multiple of kPayloadUnit and so on.
struct TensorHead {
  uint8_t dtype;  // as DType of feedwater/v1/control.proto
  uint8_t axes;   // at most kMaxAxes
  uint16_t reserved;
  uint32_t reserved2;
  uint64_t offset;          // from the payload's beginning
  int64_t shape[kMaxAxes];  // 0 behind the last axis
};

// A window is the daemon's until ASK, then the provider's until ANSWER.
struct Ask {
  Header header;
  uint32_t window;
  uint32_t entries;  // the first so many of the window
  uint64_t serial;   // grows by one
};

struct Answer {
  Header header;
  uint32_t window;
  uint32_t entries;
  uint64_t serial;  // of the ASK
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
static_assert(sizeof(Region) == 32 && offsetof(Region, window_bytes) == 16 &&
              offsetof(Region, entries) == 28);
static_assert(sizeof(Entry) == 64 && offsetof(Entry, input_offset) == 24 &&
              offsetof(Entry, offset) == 40 && offsetof(Entry, code) == 56);
static_assert(sizeof(TensorHead) == 64 && offsetof(TensorHead, offset) == 8 &&
              offsetof(TensorHead, shape) == 16);
static_assert(sizeof(Ask) == 24 && offsetof(Ask, serial) == 16);
static_assert(sizeof(Answer) == 24 && offsetof(Answer, serial) == 16);
static_assert(sizeof(FailedWithReason) == 824 && offsetof(FailedWithReason, reason) == 816);
static_assert(sizeof(Closing) == 528 && offsetof(Closing, message) == 16);
static_assert(sizeof(Release) == 24 && offsetof(Release, generation) == 16);
static_assert(sizeof(Seek) == 32 && offsetof(Seek, epoch) == 16 && offsetof(Seek, position) == 24);
static_assert(std::is_trivially_copyable_v<FailedWithReason> &&
              std::is_standard_layout_v<FailedWithReason>);

}  // namespace feedwater::wire
