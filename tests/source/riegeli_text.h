// ArrayRecord files for tests: Riegeli chunks with block headers between them, a footer and a
// postscript, written as riegeli/doc/riegeli_records_file_format.md and array_record's layout.proto
// describe them. Apart from the reader: positions are found here by counting bytes.
#pragma once

#include <highwayhash/c_bindings.h>
#include <zstd.h>

#include <cstdint>
#include <string>
#include <vector>

namespace feedwater::server {

class ArrayRecordText {
 public:
  enum Compression : char { kNone = 0, kZstd = 'z', kBrotli = 'b', kSnappy = 's' };

  ArrayRecordText() { AddChunk('s', "", 0, 0); }

  void AddGroup(const std::vector<std::string>& records, Compression compression = kNone,
                char type = 'r') {
    size_t bytes = 0;
    for (const std::string& record : records) bytes += record.size();
    begins_.push_back(text_.size());
    AddChunk(type, GroupData(records, compression), records.size(), bytes);
    counts_.push_back(records.size());
  }
  // A group whose data are any bytes, with right hashes.
  void AddGroupData(const std::string& data, uint64_t records, uint64_t bytes) {
    begins_.push_back(text_.size());
    AddChunk('r', data, records, bytes);
    counts_.push_back(records);
  }
  void PadToBlock() {
    const size_t used = text_.size() % kBlock;
    if (used == 0) return;
    const size_t left = kBlock - used;
    // A chunk that would not fit goes through the next block.
    const size_t data = left >= 40 ? left - 40 : left + kBlock - 24 - 40;
    AddChunk('p', std::string(data, '\0'), 0, 0);
  }
  // The file; nothing can be added any more.
  std::string Finish(int extra_groups = 0) {
    const size_t footer = text_.size();
    std::vector<std::string> entries = {
        Field(1, Varint(1 << 3) + Varint(1) + Varint(2 << 3) + Varint(begins_.size()))};
    for (size_t i = 0; i < begins_.size() + static_cast<size_t>(extra_groups); ++i) {
      const size_t group = std::min(i, begins_.size() - 1);
      entries.push_back(Varint(1 << 3) + Varint(begins_[group]) + Varint(3 << 3) +
                        Varint(counts_[group]));
    }
    size_t bytes = 0;
    for (const std::string& entry : entries) bytes += entry.size();
    AddChunk('r', GroupData(entries, kNone), entries.size(), bytes);
    PadToBlock();
    const std::string postscript =
        Varint(1 << 3) + Varint(footer) + Varint(2 << 3) + Varint(0x71930e704fdae05e);
    AddChunk('r', GroupData({postscript, postscript, postscript}, kNone), 3, 3 * postscript.size());
    PadToBlock();
    return text_;
  }
  size_t size() const { return text_.size(); }

  static std::string Varint(uint64_t value) {
    std::string text;
    for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
    return text + static_cast<char>(value);
  }
  static std::string GroupData(const std::vector<std::string>& records, Compression compression) {
    std::string sizes, values;
    for (const std::string& record : records) {
      sizes += Varint(record.size());
      values += record;
    }
    sizes = Packed(sizes, compression);
    return std::string(1, compression) + Varint(sizes.size()) + sizes + Packed(values, compression);
  }

 private:
  static constexpr size_t kBlock = 65536;

  static std::string Field(int number, const std::string& bytes) {
    return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(bytes.size()) + bytes;
  }
  static std::string Number(uint64_t value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  static std::string Hash(const std::string& bytes) {
    const HHKey key = {0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952,
                       0x0a7364726f636572};
    return Number(HighwayHash64(key, bytes.data(), bytes.size()));
  }
  static std::string Packed(const std::string& bytes, Compression compression) {
    if (compression != kZstd) return bytes;
    std::string packed(ZSTD_compressBound(bytes.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
    return Varint(bytes.size()) + packed;
  }
  // Bytes of the chunk itself, with block headers where they belong. Those name the chunk's begin
  // and end, which are not known yet here: they are zero, as readers do not need them.
  void Put(const std::string& bytes) {
    for (const char byte : bytes) {
      if (text_.size() % kBlock == 0) text_ += std::string(24, '\0');
      text_ += byte;
    }
  }
  void AddChunk(char type, const std::string& data, uint64_t records, uint64_t decoded) {
    const size_t begin = text_.size();
    const std::string rest = Number(data.size()) + Hash(data) + std::string(1, type) +
                             Number(records).substr(0, 7) + Number(decoded);
    Put(Hash(rest) + rest + data);
    while (text_.size() < begin + records ||
           (text_.size() % kBlock > 0 && text_.size() % kBlock <= 24))
      text_ += '\0';
  }

  std::string text_;
  std::vector<size_t> begins_, counts_;
};

}  // namespace feedwater::server
