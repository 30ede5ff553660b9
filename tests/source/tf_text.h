// TFRecord files and the messages in them, for tests: written as the formats' pages say, field by
// field.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "server/base/crc32c.h"

namespace feedwater::server {

inline std::string Varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}
// A field of a message: of bytes, another message or packed numbers.
inline std::string WireBytes(uint32_t number, const std::string& bytes) {
  return Varint(number << 3 | 2) + Varint(bytes.size()) + bytes;
}
inline std::string TfPacked(const std::vector<int64_t>& values) {
  std::string packed;
  for (const int64_t value : values) packed += Varint(static_cast<uint64_t>(value));
  return WireBytes(3, WireBytes(1, packed));
}
inline std::string TfPacked(const std::vector<float>& values) {
  std::string packed(values.size() * sizeof(float), '\0');
  if (!values.empty()) std::memcpy(packed.data(), values.data(), packed.size());
  return WireBytes(2, WireBytes(1, packed));
}
inline std::string TfBytes(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += WireBytes(1, value);
  return WireBytes(1, list);
}
// An entry of Features or FeatureLists.
inline std::string TfEntry(const std::string& name, const std::string& feature) {
  return WireBytes(1, WireBytes(1, name) + WireBytes(2, feature));
}
inline std::string TfExample(const std::string& entries) { return WireBytes(1, entries); }
inline std::string TfSequence(const std::string& context, const std::string& lists) {
  return WireBytes(1, context) + WireBytes(2, lists);
}
inline std::string TfFeatureList(const std::vector<std::string>& features) {
  std::string list;
  for (const std::string& feature : features) list += WireBytes(1, feature);
  return list;
}

inline std::string TfRecordText(const std::string& data) {
  const auto number = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const std::string length = number(uint64_t{data.size()});
  return length + number(MaskedCrc32c(length)) + data + number(MaskedCrc32c(data));
}

}  // namespace feedwater::server
