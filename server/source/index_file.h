// An Index is what a format found out about a dataset's files: named sections of numbers and texts
// in one block of memory, which is byte for byte the saved file. Building gives the same block as
// loading, so there is one way to read it.
//
//   bytes 0-63   magic "FWINDEX\n", version, file size, XXH3-128 of everything behind; the rest is
//   zero then         number of sections (8 bytes), their table (tag, offset, bytes), the sections,
//   each at a multiple of 8
//
// A file with a wrong magic, version, size or checksum is not an index. What the checksum cannot
// tell - sections that do not fit together - is checked by the column accessors and by the format
// that wrote them. Little-endian.
//
// An Index is immutable and thread-safe; columns are views into it.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/memory_budget.h"
#include "server/base/status.h"

namespace feedwater::server {

using IndexTag = uint32_t;
constexpr IndexTag MakeIndexTag(const char (&text)[5]) {
  return static_cast<IndexTag>(static_cast<unsigned char>(text[0])) |
         static_cast<IndexTag>(static_cast<unsigned char>(text[1])) << 8 |
         static_cast<IndexTag>(static_cast<unsigned char>(text[2])) << 16 |
         static_cast<IndexTag>(static_cast<unsigned char>(text[3])) << 24;
}

// Unsigned numbers, 4 or 8 bytes each.
class NumberColumn {
 public:
  NumberColumn() = default;
  NumberColumn(const char* data, size_t count, size_t width)
      : data_(data), count_(count), width_(width) {}
  size_t size() const { return count_; }
  uint64_t operator[](size_t i) const {  // REQUIRES: i < size()
    if (width_ == 4) {
      uint32_t value;
      std::memcpy(&value, data_ + i * 4, 4);
      return value;
    }
    uint64_t value;
    std::memcpy(&value, data_ + i * 8, 8);
    return value;
  }
  // Whether it divides [0, total) into size() - 1 ranges: starts with 0, never falls, ends with
  // total.
  bool Divides(uint64_t total) const;
  // The range that holds `value`. REQUIRES: Divides(total), value < total.
  size_t RangeOf(uint64_t value) const;

 private:
  const char* data_ = nullptr;
  size_t count_ = 0, width_ = 8;
};

class TextColumn {
 public:
  TextColumn() = default;
  TextColumn(NumberColumn offsets, absl::string_view blob) : offsets_(offsets), blob_(blob) {}
  size_t size() const { return offsets_.size() - 1; }
  absl::string_view operator[](size_t i) const {  // REQUIRES: i < size()
    return blob_.substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }
  std::vector<std::string> ToVector() const;

 private:
  NumberColumn offsets_;
  absl::string_view blob_;
};

class Index {
 public:
  int64_t bytes() const { return static_cast<int64_t>(size_); }
  // DataLoss when the section is missing or not such a column.
  absl::StatusOr<NumberColumn> Numbers(IndexTag tag) const;
  absl::StatusOr<TextColumn> Texts(IndexTag tag) const;

 private:
  friend class IndexWriter;
  friend absl::Status SaveIndex(const Index& index, const std::string& path);
  friend absl::StatusOr<std::shared_ptr<const Index>> LoadIndex(const std::string& path,
                                                                MemoryBudget* budget);

  static absl::StatusOr<std::shared_ptr<Index>> Allocate(size_t bytes, MemoryBudget* budget);
  absl::Status Verify() const;  // header, checksum, section table
  absl::StatusOr<absl::string_view> Section(IndexTag tag) const;
  char* data() const { return reinterpret_cast<char*>(block_.get()); }

  MemoryReservation reservation_;
  std::unique_ptr<uint64_t[]> block_;
  size_t size_ = 0;
};

// Texts on their way into an index, without an allocation each.
class TextList {
 public:
  void Add(absl::string_view text) {
    blob_.append(text.data(), text.size());
    offsets_.push_back(blob_.size());
  }
  size_t size() const { return offsets_.size() - 1; }

 private:
  friend class IndexWriter;
  std::string blob_;
  std::vector<uint64_t> offsets_{0};
};

class IndexWriter {
 public:
  void Add(IndexTag tag, const std::vector<uint64_t>& numbers);
  void Add(IndexTag tag, const TextList& texts);
  size_t bytes() const;
  // The finished block, accounted for under "indexes". `budget` may be null.
  absl::StatusOr<std::shared_ptr<const Index>> Finish(MemoryBudget* budget) const;

 private:
  std::vector<std::pair<IndexTag, std::string>> sections_;
};

// Whether a file is an index, of whatever version, whole or not.
bool IsIndexFile(const std::string& path);

// Writes the file beside `path` and renames it, so that `path` is never half written.
absl::Status SaveIndex(const Index& index, const std::string& path);
// NotFound when there is none; DataLoss when it is damaged or no index; ResourceExhausted when the
// budget has no room.
absl::StatusOr<std::shared_ptr<const Index>> LoadIndex(const std::string& path,
                                                       MemoryBudget* budget);

}  // namespace feedwater::server
