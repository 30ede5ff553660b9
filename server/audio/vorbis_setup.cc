#include "server/audio/vorbis_setup.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

class BitReader {
 public:
  explicit BitReader(absl::Span<const absl::Span<const uint8_t>> parts) : parts_(parts) {}

  // The lowest bit first. 0 behind the end.
  uint32_t Take(int bits) {
    uint32_t value = 0;
    for (int i = 0; i < bits; ++i) {
      while (part_ < parts_.size() && byte_ == parts_[part_].size()) ++part_, byte_ = 0;
      if (part_ == parts_.size()) {
        is_over_ = true;
        return 0;
      }
      value |= (uint32_t{parts_[part_][byte_]} >> bit_ & 1) << i;
      if (++bit_ == 8) bit_ = 0, ++byte_;
    }
    return value;
  }
  void Skip(int64_t bits) {
    for (; bits > 0 && !is_over_; bits -= 32) Take(static_cast<int>(bits < 32 ? bits : 32));
  }
  bool is_over() const { return is_over_; }

 private:
  const absl::Span<const absl::Span<const uint8_t>> parts_;
  size_t part_ = 0, byte_ = 0;
  int bit_ = 0;
  bool is_over_ = false;
};

int BitsOf(int64_t value) {
  int bits = 0;
  for (; value > 0; value >>= 1) ++bits;
  return bits;
}

// The largest whole number whose `dimensions`-th power is not over `entries`.
int64_t RootOf(int64_t entries, int64_t dimensions) {
  const auto power_fits = [&](int64_t base) {
    int64_t power = 1;
    for (int64_t i = 0; i < dimensions && power <= entries; ++i) power *= base;
    return power <= entries;
  };
  auto root = static_cast<int64_t>(
      std::pow(static_cast<double>(entries), 1.0 / static_cast<double>(dimensions)));
  while (root > 0 && !power_fits(root)) --root;
  while (power_fits(root + 1)) ++root;
  return root;
}

absl::Status Damaged() {
  return absl::InvalidArgumentError("Ogg Vorbis has a damaged setup header");
}

struct Book {
  int64_t dimensions = 0, entries = 0;
};

// One code book; adds its numbers.
absl::Status ReadBook(BitReader* reader, int64_t* numbers, Book* book) {
  if (reader->Take(24) != 0x564342) return Damaged();
  const int64_t dimensions = reader->Take(16), entries = reader->Take(24);
  *book = {dimensions, entries};
  if (entries > VorbisSetupReader::kMostEntries) {
    return absl::InvalidArgumentError(absl::StrCat("Ogg Vorbis asks for a code book of ", entries,
                                                   " entries, over ",
                                                   VorbisSetupReader::kMostEntries));
  }
  *numbers += entries * (dimensions > 0 ? dimensions : 1);
  if (*numbers > VorbisSetupReader::kMostNumbers) {
    return absl::InvalidArgumentError(absl::StrCat("Ogg Vorbis asks for code books of ", *numbers,
                                                   " numbers, over ",
                                                   VorbisSetupReader::kMostNumbers));
  }
  if (reader->Take(1) != 0) {  // lengths in ascending order
    reader->Skip(5);
    for (int64_t entry = 0; entry < entries && !reader->is_over();)
      entry += reader->Take(BitsOf(entries - entry));
  } else {
    const bool is_sparse = reader->Take(1) != 0;
    for (int64_t entry = 0; entry < entries && !reader->is_over(); ++entry) {
      if (!is_sparse || reader->Take(1) != 0) reader->Skip(5);
    }
  }
  const uint32_t lookup = reader->Take(4);
  if (lookup > 2 || (lookup > 0 && (dimensions == 0 || entries == 0))) return Damaged();
  if (lookup > 0) {
    reader->Skip(64);
    const int64_t bits = reader->Take(4) + 1;
    reader->Skip(1);
    reader->Skip(bits * (lookup == 1 ? RootOf(entries, dimensions) : entries * dimensions));
  }
  return reader->is_over() ? Damaged() : absl::OkStatus();
}

// One floor: how the coarse spectrum is coded. What libvorbis makes of it is small.
absl::Status SkipFloor(BitReader* reader) {
  constexpr int64_t kMostPlaces = 63;  // libvorbis's own bound
  const uint32_t type = reader->Take(16);
  if (type > 1) return Damaged();
  if (type == 0) {
    reader->Skip(8 + 16 + 16 + 6 + 8);
    const int64_t books = reader->Take(4) + 1;
    reader->Skip(8 * books);
    return reader->is_over() ? Damaged() : absl::OkStatus();
  }
  const uint32_t partitions = reader->Take(5);
  std::array<uint32_t, 32> class_of = {};
  std::array<int64_t, 16> places_of = {};
  uint32_t classes = 0;
  for (uint32_t i = 0; i < partitions; ++i) {
    class_of[i] = reader->Take(4);
    classes = std::max(classes, class_of[i] + 1);
  }
  for (uint32_t i = 0; i < classes; ++i) {
    places_of[i] = reader->Take(3) + 1;
    const uint32_t bits = reader->Take(2);
    if (bits > 0) reader->Skip(8);
    reader->Skip(int64_t{8} << bits);
  }
  reader->Skip(2);
  const int64_t bits = reader->Take(4);
  int64_t places = 0;
  for (uint32_t i = 0; i < partitions; ++i) places += places_of[class_of[i]];
  if (places > kMostPlaces) return Damaged();
  reader->Skip(places * bits);
  return reader->is_over() ? Damaged() : absl::OkStatus();
}

// One residue; adds the bytes of the table that libvorbis makes for it: of its group book's
// dimensions a number each, for every way to choose one of its partitions' kinds for each of them.
absl::Status ReadResidue(BitReader* reader, absl::Span<const Book> books, int64_t* bytes) {
  constexpr int64_t kRowBytes = 8 + 32;  // a pointer, and what an allocation takes at least
  if (reader->Take(16) > 2) return Damaged();
  reader->Skip(24 + 24 + 24);
  const uint32_t kinds = reader->Take(6) + 1, group_book = reader->Take(8);
  int64_t stages = 0;
  for (uint32_t i = 0; i < kinds; ++i) {
    uint32_t cascade = reader->Take(3);
    if (reader->Take(1) != 0) cascade |= reader->Take(5) << 3;
    for (; cascade > 0; cascade >>= 1) stages += cascade & 1;
  }
  reader->Skip(8 * stages);
  if (reader->is_over() || group_book >= books.size()) return Damaged();
  const Book& book = books[group_book];
  if (book.dimensions < 1) return Damaged();
  int64_t rows = 1;
  for (int64_t i = 0; i < book.dimensions && kinds > 1; ++i) {
    rows *= kinds;
    if (rows > book.entries) return Damaged();  // as libvorbis says
  }
  *bytes += rows * (kRowBytes + book.dimensions * static_cast<int64_t>(sizeof(int)));
  if (*bytes <= VorbisSetupReader::kMostResidueBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Ogg Vorbis asks for residues of ", *bytes,
                                                 " bytes of tables, over ",
                                                 VorbisSetupReader::kMostResidueBytes));
}

// Up to the residues. Mappings and modes, which follow, are at most 64 of a few KiB each.
absl::Status CheckSetup(absl::Span<const absl::Span<const uint8_t>> parts) {
  BitReader reader(parts);
  constexpr char kName[] = "\x05vorbis";
  for (int i = 0; i < 7; ++i) {
    if (reader.Take(8) != static_cast<uint8_t>(kName[i])) return Damaged();
  }
  std::array<Book, 256> books;
  const uint32_t book_count = reader.Take(8) + 1;
  int64_t numbers = 0, residue_bytes = 0;
  for (uint32_t book = 0; book < book_count; ++book)
    FW_RETURN_IF_ERROR(ReadBook(&reader, &numbers, &books[book]));
  const int64_t times = reader.Take(6) + 1;
  reader.Skip(16 * times);
  const uint32_t floors = reader.Take(6) + 1;
  for (uint32_t i = 0; i < floors; ++i) FW_RETURN_IF_ERROR(SkipFloor(&reader));
  const uint32_t residues = reader.Take(6) + 1;
  for (uint32_t i = 0; i < residues; ++i) {
    FW_RETURN_IF_ERROR(
        ReadResidue(&reader, absl::MakeConstSpan(books).first(book_count), &residue_bytes));
  }
  return reader.is_over() ? Damaged() : absl::OkStatus();
}

}  // namespace

absl::Status VorbisSetupReader::Add(absl::Span<const uint8_t> segments,
                                    absl::Span<const uint8_t> body, bool is_continued) {
  if (is_done()) return absl::OkStatus();
  if (!is_continued && packet_ == 1 && count_ > 0) return Damaged();
  size_t begin = 0, end = 0;
  for (size_t i = 0; i < segments.size() && !is_done(); ++i) {
    end += segments[i];
    const bool is_whole = segments[i] < 255;
    if (!is_whole && i + 1 < segments.size()) continue;
    if (packet_ == 1) {
      if (count_ == kMostParts) {
        return absl::InvalidArgumentError(
            absl::StrCat("Ogg Vorbis has a setup header of more than ", kMostParts, " pages"));
      }
      parts_[count_++] = body.subspan(begin, end - begin);
    }
    begin = end;
    if (!is_whole) continue;
    if (packet_ == 1) {
      FW_RETURN_IF_ERROR(CheckSetup(absl::MakeConstSpan(parts_).first(count_)));
    }
    ++packet_;
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
