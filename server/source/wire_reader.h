// The fields of one protobuf message in their wire format (protobuf.dev, "Encoding"), for messages
// that hold a sample's data: nothing is copied, a damaged length reads nothing behind the bytes,
// and what follows is the caller's. libprotobuf would copy every value of a record first.
// Any bytes are safe. One thread at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace feedwater::server {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Takes a number from the front of `bytes`; false when there is none of at most 64 bits.
inline bool TakeVarint(absl::string_view* bytes, uint64_t* value) {
  uint64_t result = 0;
  const size_t most = bytes->size() < 10 ? bytes->size() : 10;
  for (size_t i = 0; i < most; ++i) {
    const auto byte = static_cast<unsigned char>((*bytes)[i]);
    result |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);  // of a tenth byte, one bit remains
    if ((byte & 0x80) == 0) {
      bytes->remove_prefix(i + 1);
      *value = result;
      return true;
    }
  }
  return false;
}

class WireReader {
 public:
  explicit WireReader(absl::string_view message) : rest_(message) {}

  // Goes to the next field; false at the end, and where the message is damaged.
  bool Next() {
    if (damaged_ || rest_.empty()) return false;
    uint64_t tag = 0;
    damaged_ = !TakeVarint(&rest_, &tag) || tag > UINT32_MAX || tag < 8 || !TakeValue(tag & 7);
    number_ = static_cast<uint32_t>(tag >> 3);
    return !damaged_;
  }
  bool damaged() const { return damaged_; }

  // Of the field that Next went to.
  uint32_t number() const { return number_; }
  WireType type() const { return type_; }
  bool is_bytes(uint32_t number) const { return number_ == number && type_ == WireType::kBytes; }
  uint64_t value() const { return value_; }           // kVarint
  absl::string_view bytes() const { return bytes_; }  // all other types

 private:
  bool TakeValue(uint64_t type) {
    type_ = static_cast<WireType>(type);
    uint64_t length = 0;
    switch (type_) {
      case WireType::kVarint:
        return TakeVarint(&rest_, &value_);
      case WireType::kFixed64:
        length = 8;
        break;
      case WireType::kFixed32:
        length = 4;
        break;
      case WireType::kBytes:
        if (!TakeVarint(&rest_, &length)) return false;
        break;
      default:  // groups, which proto3 does not have
        return false;
    }
    if (length > rest_.size()) return false;
    bytes_ = rest_.substr(0, static_cast<size_t>(length));
    rest_.remove_prefix(static_cast<size_t>(length));
    return true;
  }

  absl::string_view rest_, bytes_;
  uint64_t value_ = 0;
  uint32_t number_ = 0;
  WireType type_ = WireType::kVarint;
  bool damaged_ = false;
};

}  // namespace feedwater::server
