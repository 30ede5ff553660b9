// What the records of a format with columns hold: names and types of the columns, and the values of
// one record on their way from its bytes to the fields of a sample (column_format.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "server/base/status.h"
#include "server/base/tensor.h"
#include "server/storage/engine.h"

namespace feedwater::server {

// What a column holds in every record.
struct ColumnSpec {
  enum class Kind : uint8_t {
    kNumbers,  // a number or a list of them: integers become int64 unless a dtype is asked for
    kArray,    // numbers that are delivered in the dtype that they are stored in
    kText,     // a string in UTF-8
    kBytes,    // anything else, such as an image file
  };
  std::string name;
  Kind kind = Kind::kBytes;
  DType dtype = DType::kUInt8;  // of an element as it is stored; kText and kBytes: uint8
  Shape shape;                  // {}: one number; -1: a length that differs; text and bytes: {-1}
  std::string doc;

  bool is_numeric() const { return kind == Kind::kNumbers || kind == Kind::kArray; }
  std::string TypeText() const;  // for people: "int64[?]", "text", "bytes"

  // Whether both hold the same; what is said about them may differ.
  friend bool operator==(const ColumnSpec& a, const ColumnSpec& b) {
    return a.name == b.name && a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape;
  }

  static ColumnSpec Number(std::string name, DType dtype, Shape shape = {}) {
    return {std::move(name), Kind::kNumbers, dtype, std::move(shape), ""};
  }
  static ColumnSpec Array(std::string name, DType dtype, Shape shape) {
    return {std::move(name), Kind::kArray, dtype, std::move(shape), ""};
  }
  static ColumnSpec Text(std::string name) {
    return {std::move(name), Kind::kText, DType::kUInt8, {-1}, ""};
  }
  static ColumnSpec Bytes(std::string name) {
    return {std::move(name), Kind::kBytes, DType::kUInt8, {-1}, ""};
  }
};

// The values of one record, one for each column; a column without one is missing in this record.
// A value is a view into the record's bytes, or was made in `scratch`. Numbers are of the column's
// dtype and may stand at any address.
class ColumnValues {
 public:
  // What a record may make beside its own bytes.
  static constexpr size_t kMaxScratchBytes = 64 << 20;

  ColumnValues(size_t columns, std::vector<std::byte>* scratch)
      : values_(columns), scratch_(scratch) {
    scratch_->clear();
  }

  // The value is the `bytes` at `data`, which live as long as the record's bytes.
  void Set(size_t column, const void* data, size_t bytes, Shape shape) {
    values_[column] = {static_cast<const std::byte*>(data), 0, bytes, std::move(shape), true};
  }
  void SetBytes(size_t column, const void* data, size_t bytes) {
    Set(column, data, bytes, {static_cast<int64_t>(bytes)});
  }
  // Makes room for a value of `bytes` in scratch, to be filled before the next call of anything
  // here; null when the record would take more than kMaxScratchBytes.
  std::byte* Make(size_t column, Shape shape, size_t bytes) {
    const std::optional<size_t> at = Grow(bytes);
    if (!at.has_value()) return nullptr;
    values_[column] = {nullptr, *at, bytes, std::move(shape), true};
    return scratch_->data() + *at;
  }
  // Makes room for `bytes` at the end of scratch, zeros, and for kReadPadding behind them. Their
  // offset; nothing when the record would take more than kMaxScratchBytes.
  std::optional<size_t> Grow(size_t bytes) {
    const size_t at = (scratch_->size() + kAlign - 1) / kAlign * kAlign;
    if (bytes > kMaxScratchBytes || at > kMaxScratchBytes - bytes) return std::nullopt;
    const size_t needed = at + bytes + kReadPadding;
    if (needed > scratch_->capacity()) {
      scratch_->reserve(
          std::min(std::max(needed, 2 * scratch_->capacity()), kMaxScratchBytes + kReadPadding));
    }
    scratch_->resize(at + bytes);
    return at;
  }
  // The value is a part of what Make made for the column: `bytes` from byte `offset` on.
  void Narrow(size_t column, size_t offset, size_t bytes) {
    values_[column].at += offset;
    values_[column].bytes = bytes;
    values_[column].shape = {static_cast<int64_t>(bytes)};
  }
  template <typename T>
  void SetNumber(size_t column, T number) {
    std::byte* at = Make(column, {}, sizeof(T));
    if (at != nullptr) std::memcpy(at, &number, sizeof(T));
  }

  size_t size() const { return values_.size(); }
  bool has(size_t column) const { return values_[column].is_there; }
  const Shape& shape(size_t column) const { return values_[column].shape; }
  // How many elements of `dtype` a value has. InvalidArgument: its shape has not as many as it has
  // bytes for.
  absl::StatusOr<int64_t> CountOf(size_t column, DType dtype) const;
  const std::byte* data(size_t column) const {  // valid until the next Make
    const Value& value = values_[column];
    return value.data != nullptr ? value.data : scratch_->data() + value.at;
  }
  bool is_in_scratch(size_t column) const { return values_[column].data == nullptr; }
  size_t scratch_at(size_t column) const { return values_[column].at; }
  std::vector<std::byte>& scratch() { return *scratch_; }

 private:
  static constexpr size_t kAlign = 8;
  struct Value {
    const std::byte* data = nullptr;
    size_t at = 0;  // in scratch, where data is null
    size_t bytes = 0;
    Shape shape;
    bool is_there = false;
  };
  absl::InlinedVector<Value, 8> values_;
  std::vector<std::byte>* const scratch_;
};

}  // namespace feedwater::server
