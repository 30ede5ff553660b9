// A dataset of numbered records in one real file, whose parsing a test can slow down or make fail.
// Fields: `data`, uint8 of `record_bytes`, which repeats a pattern of the record's number; `label`,
// int64, the number times 10.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/source/dataset.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::testing {

class FakeDataset final : public server::Dataset {
 public:
  struct Options {
    int64_t records = 100;
    int64_t record_bytes = 16;
    int64_t stored_records = -1;  // a file cut short; -1: whole
    // Called by every Parse, on worker threads.
    std::function<absl::Status(int64_t record)> parse = nullptr;
    std::vector<int64_t> shard_starts = {};
    bool is_image = false;  // `data` is a row of pixels; record_bytes is a multiple of 3
    bool is_text = false;   // `data` is as long as its record says: that of record 0 is empty
  };
  explicit FakeDataset(Options options);

  static uint8_t ByteOf(int64_t record, int64_t index) {
    return static_cast<uint8_t>(record * 31 + index * 7 + (record >> 8));
  }

  int64_t size() const override { return options_.records; }
  const std::vector<server::FieldSpec>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  const std::string& digest() const override { return digest_; }
  const server::Root& root() const override { return *root_; }
  std::string ObjectPath(uint32_t) const override { return "records.bin"; }
  int64_t objects() const override { return 1; }
  int64_t ObjectBytes(uint32_t) const override {
    const int64_t stored = options_.stored_records;
    return (stored < 0 ? options_.records : stored) * options_.record_bytes;
  }
  void Extents(int64_t record, std::vector<server::Extent>* extents) const override;
  const std::vector<int64_t>& shard_starts() const override { return options_.shard_starts; }
  absl::Status Parse(int64_t record, absl::Span<const absl::Span<const std::byte>> bytes,
                     server::Record* out) const override;
  int64_t memory_bytes() const override { return 0; }
  const std::string& notes() const override { return digest_; }
  // Waits, as an index does, until its records may be kept in caches: what is written into its file
  // from then on shows in its times.
  void AwaitClockTick() const;

 private:
  const Options options_;
  server::TempFolder folder_;
  std::shared_ptr<const server::Root> root_;
  std::vector<server::FieldSpec> fields_;
  std::vector<std::string> classes_;
  std::string digest_;
};

}  // namespace feedwater::testing
