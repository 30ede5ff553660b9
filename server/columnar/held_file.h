// A file of which this process has nothing but a descriptor: Arrow reads it with pread alone, on
// the calling thread. One thread.
#pragma once

#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/util/future.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace feedwater::server {

class HeldFile final : public arrow::io::RandomAccessFile {
 public:
  // The descriptor stays the caller's. `bytes`: as long as it was when it was opened.
  HeldFile(int fd, int64_t bytes, arrow::MemoryPool* pool) : fd_(fd), bytes_(bytes), pool_(pool) {}

  int error() const { return error_; }  // of a read that has failed; 0: none has
  // Read has come to the end of the file, and found fewer bytes than it was asked for.
  bool met_end() const { return met_end_; }

  arrow::Status Close() override;
  bool closed() const override { return is_closed_; }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override;
  arrow::Result<int64_t> GetSize() override { return bytes_; }
  arrow::Result<int64_t> Read(int64_t length, void* to) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t length) override;

  using arrow::io::RandomAccessFile::ReadAsync;
  using arrow::io::RandomAccessFile::ReadAt;
  using arrow::io::RandomAccessFile::ReadManyAsync;
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t length, bool may_be_short,
                                void* to) override;
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t length, void* to) override {
    return ReadAt(position, length, /*may_be_short=*/true, to);
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t length,
                                                       bool may_be_short) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t length) override {
    return ReadAt(position, length, /*may_be_short=*/true);
  }
  // At once: the usual ones start threads.
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(const arrow::io::IOContext&,
                                                          int64_t position, int64_t length,
                                                          bool may_be_short) override;
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(const arrow::io::IOContext& context,
                                                          int64_t position,
                                                          int64_t length) override {
    return ReadAsync(context, position, length, /*may_be_short=*/true);
  }
  std::vector<arrow::Future<std::shared_ptr<arrow::Buffer>>> ReadManyAsync(
      const arrow::io::IOContext& context,
      const std::vector<arrow::io::ReadRange>& ranges) override;

 private:
  const int fd_;
  const int64_t bytes_;
  arrow::MemoryPool* const pool_;
  int64_t position_ = 0;
  bool met_end_ = false;
  int error_ = 0;
  bool is_closed_ = false;
};

}  // namespace feedwater::server
