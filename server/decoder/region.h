// The memory that a worker and its decoder process share: a nameless file of fixed size (sealed
// against growing and shrinking, so that neither can give the other a SIGBUS), mapped by both.
//
//   0          RegionHeader; at kRequestAt the Request and its fields, at kAnswerAt the Answer and
//              its fields. Native integers: both sides are of one build.
//   kControl   input_bytes: what the worker gives. First the record, then what a program of the
//              user's has made of a call
//   then       output_bytes: what the decoder makes. First the sample, then what such a program is
//              given (SampleArea), then whatever else the answer points to
//
// Either side may write all of it at any time, so each copies what it reads from here once (CopyIn)
// and checks the copy; bytes of pixels are only ever copied on. Pages are allocated when they are
// first written, and what is large is given back after each sample.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "server/base/fd.h"
#include "server/base/status.h"
#include "server/base/tensor.h"
#include "server/graph/plan.h"

namespace feedwater::server {

inline constexpr uint32_t kRegionMagic = 0x43445746;  // "FWDC"
inline constexpr uint32_t kRegionVersion = 4;
inline constexpr size_t kRegionUnit = 64;
inline constexpr size_t kRequestAt = 4096, kAnswerAt = 64 << 10, kControlBytes = 128 << 10;
inline constexpr size_t kMaxRegionFields = 256, kMaxRegionAxes = 8;
// More than the largest record that is read (pipeline/record_reader.h).
inline constexpr uint64_t kRecordBytes = 272ull << 20;
// Behind sample and calls: what a cache keeps of a record at most (cache/block.h), and some more.
inline constexpr uint64_t kExtraOutputBytes = 80ull << 20;
// Between the fields of a call, and for the text of one that has failed.
inline constexpr uint64_t kCallSlackBytes = 64ull << 10;

struct RegionHeader {
  uint32_t magic, version;
  uint64_t input_bytes, output_bytes;
  uint64_t memory_bytes;  // of the decoder's own, at most
};

enum class DecoderCommand : uint32_t {
  kSetUp = 1,          // input: a DecoderSetup's text
  kRun = 2,            // fields of a record
  kRunKeeping = 3,     // the same
  kRunFromPrefix = 4,  // fields that a cache has kept
  kPack = 5,           // one field: an image file
  kIndex = 6,          // JPEG files, whose whole seek indexes are wanted and nothing else
  kReturn = 7,  // what an op of the user's own has made; or `code` and one field, why it has not
};

// A tensor in the input or the output area.
struct RegionField {
  uint8_t dtype, layout;
  uint16_t axes;
  uint32_t field;                      // answers with seek indexes: whose
  uint64_t offset, bytes;              // from the area's start
  uint64_t index_offset, index_bytes;  // requests: the seek index that is known of it; 0 none
  uint64_t hash_low, hash_high;        // requests: of its bytes; both 0: nobody asks for an index
  int64_t shape[kMaxRegionAxes];
};

struct Request {
  uint32_t command, fields;
  int64_t sample_id, position, stands_for;
  uint32_t is_real, key[2];
  uint32_t code;  // kReturn: absl::StatusCode
  int64_t max_field_bytes;
};

struct Answer {
  uint32_t code;  // absl::StatusCode
  uint32_t message_bytes;
  uint32_t fields;   // kRunKeeping: what is to be kept, if `is_kept`; kPack: the document, or none
  uint32_t indexes;  // behind the fields: seek indexes that are new
  uint32_t is_kept;
  // Not 0: nothing is done yet. An op of the user's own is to be run on the first so many fields;
  // `message` is its name, and the other fields are as what it makes. kReturn answers.
  uint32_t call_inputs;
  uint64_t seed[2];     // of the call
  uint8_t decoded[16];  // images by the way they were decoded, as in DecodeCounts
  char message[1024];
};
static_assert(kRequestAt + sizeof(Request) + kMaxRegionFields * sizeof(RegionField) <= kAnswerAt);
static_assert(kAnswerAt + sizeof(Answer) + kMaxRegionFields * sizeof(RegionField) <= kControlBytes);
static_assert(3 + jpeg::kUncoveredKinds <= sizeof(Answer::decoded));

// A copy that the other side cannot change any more: the compiler may not read `from` again.
template <typename T>
T CopyIn(const std::byte* from) {
  T copy;
  std::memcpy(&copy, from, sizeof(T));
  asm volatile("" : : "r"(&copy) : "memory");
  return copy;
}

class Region {
 public:
  // Makes one. ResourceExhausted: the machine has no memory or no file for it.
  static absl::StatusOr<Region> Make(uint64_t input_bytes, uint64_t output_bytes,
                                     uint64_t memory_bytes);
  // Maps the one that somebody else has made, and checks its header.
  static absl::StatusOr<Region> Open(int fd);
  Region() = default;
  Region(Region&& other) noexcept { *this = std::move(other); }
  Region& operator=(Region&& other) noexcept;
  ~Region();

  int fd() const { return fd_.get(); }
  void CloseFile() { fd_ = Fd(); }  // the mapping stays
  const RegionHeader& header() const { return header_; }
  std::byte* at(size_t offset) const { return data_ + offset; }
  std::byte* input() const { return data_ + kControlBytes; }
  std::byte* output() const { return input() + header_.input_bytes; }
  // Gives pages of an area back of which more than a few MiB were used.
  void GiveBack(std::byte* area, uint64_t used) const;
  // What it takes of the machine's memory now, whoever has written it.
  int64_t held_bytes() const;

 private:
  absl::Status Map(size_t bytes);

  Fd fd_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  RegionHeader header_{};  // a copy
};

// Where a finished sample lies at the start of the output area: a batch of one. Calls of the user's
// own ops have an area of their own behind it, so that what a cache keeps takes none of their room.
struct SampleArea {
  static constexpr uint64_t kNotRagged = UINT64_MAX;
  std::vector<uint64_t> outputs;  // where each begins
  std::vector<uint64_t> rows;     // where the offsets of each ragged one begin; else kNotRagged
  uint64_t staging = 0;
  uint64_t bytes = 0;                          // a multiple of kRegionUnit
  uint64_t call_inputs = 0, call_outputs = 0;  // the same: room for the largest; 0: there are none

  uint64_t extra() const { return bytes + call_inputs; }  // where the rest begins
  uint64_t input_bytes() const { return kRecordBytes + call_outputs; }
  uint64_t output_bytes() const { return extra() + kExtraOutputBytes; }

  static absl::StatusOr<SampleArea> Of(const Plan& plan);
  BatchMemory At(std::byte* area) const;
};

inline uint64_t RoundUpToUnit(uint64_t bytes) {
  return (bytes + kRegionUnit - 1) / kRegionUnit * kRegionUnit;
}

// Describes a tensor at `offset`. False when it has more axes than fit.
bool Describe(const TensorSpec& spec, uint64_t offset, uint64_t bytes, RegionField* field);
// The other way round, checked: a known type, a static shape whose size is `bytes`, all of it
// within an area of `area_bytes`. DataLoss says what is wrong.
absl::StatusOr<TensorSpec> CheckField(const RegionField& field, uint64_t area_bytes);

}  // namespace feedwater::server
