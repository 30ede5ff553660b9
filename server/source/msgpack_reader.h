// Reads MessagePack from its beginning to its end, one head after the other: a list or a map says
// how many values follow, and none is ever held. So nesting costs no stack, and nothing that the
// bytes say is allocated. Pure; any bytes are safe. One thread at a time.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

struct MsgpackValue {
  enum class Kind : uint8_t {
    kNil,
    kBool,      // `integer`
    kInteger,   // `integer`
    kUnsigned,  // more than an int64 holds
    kFloat,     // `number`, of 32 or 64 bits
    kText,      // `bytes`
    kBytes,     // `bytes`, of extensions too
    kList,      // `items` values follow
    kMap,       // `items` pairs follow
  };
  Kind kind = Kind::kNil;
  int64_t integer = 0;
  double number = 0;
  absl::string_view bytes;  // where they lie
  uint32_t items = 0;

  bool is_number() const {
    return kind == Kind::kBool || kind == Kind::kInteger || kind == Kind::kFloat;
  }
  const char* name() const;  // for messages: "a text"
};

class MsgpackReader {
 public:
  explicit MsgpackReader(absl::string_view bytes) : rest_(bytes) {}

  // DataLoss where the bytes end, or are no MessagePack.
  absl::StatusOr<MsgpackValue> Next();
  // Passes what belongs to a value that Next gave.
  absl::Status Skip(const MsgpackValue& value);
  // What was not read yet.
  absl::string_view rest() const { return rest_; }

 private:
  absl::StatusOr<absl::string_view> Take(uint64_t bytes);
  absl::StatusOr<uint64_t> TakeNumber(size_t bytes);

  absl::string_view rest_;
};

}  // namespace feedwater::server
