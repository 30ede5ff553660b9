// What a fuzzer is: one file <name>_fuzzer.cc that defines Target(). The same file is linked twice:
// with libFuzzer (engine.cc; the preset `fuzz`), which looks for new inputs, and with replay.cc,
// which runs the seeds, what was found before, and some mutations of both as an ordinary test with
// any compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace feedwater::fuzz {

using Input = absl::Span<const uint8_t>;

struct FuzzTarget {
  // Must come back whatever the bytes are. What must not happen ends the process: Fail, a
  // sanitizer.
  void (*run)(Input input) = nullptr;
  // Good inputs to start from, made on the spot.
  std::vector<std::string> (*seeds)() = nullptr;
  // Folders of the test data ($FEEDWATER_TEST_DATA) whose files are inputs as they are.
  std::vector<std::string> outside;
  // Words that inputs are made of, for libFuzzer's dictionary. May be null.
  std::vector<std::string> (*words)() = nullptr;
  size_t max_bytes = 4096;  // of an input
};

const FuzzTarget& Target();  // each fuzzer's own

// An invariant does not hold: the message, then the end.
[[noreturn]] inline void Fail(absl::string_view what) {
  std::fprintf(stderr, "the fuzzer's invariant does not hold: %.*s\n",
               static_cast<int>(what.size()), what.data());
  std::abort();
}
inline void Require(bool holds, absl::string_view what) {
  if (!holds) Fail(what);
}

// A number that follows from the input's bytes alone, to draw from what the input does not say.
inline uint32_t SeedOf(Input input) {
  uint32_t hash = 2166136261u;
  for (const uint8_t byte : input) hash = (hash ^ byte) * 16777619u;
  return hash;
}

// Takes an input apart from its front; zeroes once it is used up.
class Reader {
 public:
  explicit Reader(Input input) : rest_(input) {}
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_.remove_prefix(1);
    return byte;
  }
  uint64_t Number(int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= uint64_t{Byte()} << (8 * i);
    return value;
  }
  Input Bytes(size_t count) {
    const Input bytes = rest_.first(count < rest_.size() ? count : rest_.size());
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  Input rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  Input rest_;
};

inline std::string AsText(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}
inline Input AsInput(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace feedwater::fuzz
