#include "server/source/index_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "absl/strings/str_cat.h"
#include "server/base/atomic_file.h"
#include "server/base/own_files.h"
#include "server/storage/roots.h"

namespace feedwater::server {
namespace {

constexpr char kMagic[8] = {'F', 'W', 'I', 'N', 'D', 'E', 'X', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMaxSections = 64;
constexpr int64_t kMaxFileBytes = int64_t{1} << 40;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t zero;
  uint64_t file_bytes;
  uint64_t hash_low, hash_high;
  uint64_t zeroes[3];
};
static_assert(sizeof(Header) == 64);

struct SectionEntry {
  uint32_t tag;
  uint32_t zero;
  uint64_t offset, bytes;
};
static_assert(sizeof(SectionEntry) == 24);

struct ColumnHeader {
  uint64_t count;
  uint32_t width;
  uint32_t zero;
};
static_assert(sizeof(ColumnHeader) == 16);

constexpr size_t AlignUp8(size_t value) { return (value + 7) & ~size_t{7}; }

std::string EncodeNumbers(const std::vector<uint64_t>& numbers) {
  uint64_t largest = 0;
  for (uint64_t number : numbers) largest = std::max(largest, number);
  const ColumnHeader header = {numbers.size(), largest <= UINT32_MAX ? 4u : 8u, 0};
  std::string section(sizeof(header) + AlignUp8(numbers.size() * header.width), '\0');
  std::memcpy(section.data(), &header, sizeof(header));
  char* to = section.data() + sizeof(header);
  for (uint64_t number : numbers) {
    std::memcpy(to, &number, header.width);
    to += header.width;
  }
  return section;
}

// The column at the start of a section, and what stands behind it.
absl::StatusOr<NumberColumn> DecodeNumbers(absl::string_view section, absl::string_view* rest) {
  ColumnHeader header;
  if (section.size() < sizeof(header)) return absl::DataLossError("a column without a header");
  std::memcpy(&header, section.data(), sizeof(header));
  section.remove_prefix(sizeof(header));
  if ((header.width != 4 && header.width != 8) || header.count > section.size() / header.width ||
      AlignUp8(header.count * header.width) > section.size()) {
    return absl::DataLossError("a column longer than its section");
  }
  *rest = section.substr(AlignUp8(header.count * header.width));
  return NumberColumn(section.data(), header.count, header.width);
}

}  // namespace

bool IsIndexFile(const std::string& path) {
  return BeginningOf(path, sizeof(kMagic)) == absl::string_view(kMagic, sizeof(kMagic));
}

bool NumberColumn::Divides(uint64_t total) const {
  if (count_ == 0 || (*this)[0] != 0 || (*this)[count_ - 1] != total) return false;
  for (size_t i = 1; i < count_; ++i) {
    if ((*this)[i] < (*this)[i - 1]) return false;
  }
  return true;
}

size_t NumberColumn::RangeOf(uint64_t value) const {
  size_t low = 0, high = count_;  // the first entry above `value` lies in (low, high]
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    ((*this)[middle] <= value ? low : high) = middle;
  }
  return low;
}

std::vector<std::string> TextColumn::ToVector() const {
  std::vector<std::string> texts;
  texts.reserve(size());
  for (size_t i = 0; i < size(); ++i) texts.emplace_back((*this)[i]);
  return texts;
}

absl::StatusOr<std::shared_ptr<Index>> Index::Allocate(size_t bytes, MemoryBudget* budget) {
  auto index = std::make_shared<Index>();
  if (budget != nullptr) {
    FW_ASSIGN_OR_RETURN(index->reservation_,
                        budget->Reserve("indexes", static_cast<int64_t>(bytes)));
  }
  index->block_.reset(new (std::nothrow) uint64_t[AlignUp8(bytes) / 8]);
  if (index->block_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for an index of ", bytes, " bytes"));
  }
  index->size_ = bytes;
  return index;
}

absl::Status Index::Verify() const {
  Header header;
  uint64_t sections;
  if (size_ < sizeof(header) + sizeof(sections))
    return absl::DataLossError("too short for an index");
  std::memcpy(&header, data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return absl::DataLossError("not an index of Feedwater");
  }
  if (header.version != kVersion) {
    return absl::DataLossError(
        absl::StrCat("an index of version ", header.version, ", this is version ", kVersion));
  }
  const XXH128_hash_t hash = XXH3_128bits(data() + sizeof(header), size_ - sizeof(header));
  if (header.file_bytes != size_ || header.hash_low != hash.low64 ||
      header.hash_high != hash.high64 ||
      (header.zero | header.zeroes[0] | header.zeroes[1] | header.zeroes[2]) != 0) {
    return absl::DataLossError("an index with a wrong size or checksum");
  }
  std::memcpy(&sections, data() + sizeof(header), sizeof(sections));
  const size_t table = sizeof(header) + sizeof(sections);
  if (sections > kMaxSections || table + sections * sizeof(SectionEntry) > size_) {
    return absl::DataLossError("an index with a wrong section table");
  }
  for (uint64_t i = 0; i < sections; ++i) {
    SectionEntry entry;
    std::memcpy(&entry, data() + table + i * sizeof(entry), sizeof(entry));
    if (entry.offset > size_ || entry.bytes > size_ - entry.offset || entry.offset % 8 != 0) {
      return absl::DataLossError("an index with a section outside the file");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> Index::Section(IndexTag tag) const {
  uint64_t sections;
  std::memcpy(&sections, data() + sizeof(Header), sizeof(sections));
  for (uint64_t i = 0; i < sections; ++i) {
    SectionEntry entry;
    std::memcpy(&entry, data() + sizeof(Header) + sizeof(sections) + i * sizeof(entry),
                sizeof(entry));
    if (entry.tag == tag) return absl::string_view(data() + entry.offset, entry.bytes);
  }
  return absl::DataLossError("an index without a section that it needs");
}

absl::StatusOr<NumberColumn> Index::Numbers(IndexTag tag) const {
  FW_ASSIGN_OR_RETURN(absl::string_view section, Section(tag));
  absl::string_view rest;
  return DecodeNumbers(section, &rest);
}

absl::StatusOr<TextColumn> Index::Texts(IndexTag tag) const {
  FW_ASSIGN_OR_RETURN(absl::string_view section, Section(tag));
  absl::string_view blob;
  FW_ASSIGN_OR_RETURN(NumberColumn offsets, DecodeNumbers(section, &blob));
  if (!offsets.Divides(blob.size())) return absl::DataLossError("a text column with wrong offsets");
  return TextColumn(offsets, blob);
}

void IndexWriter::Add(IndexTag tag, const std::vector<uint64_t>& numbers) {
  sections_.emplace_back(tag, EncodeNumbers(numbers));
}

void IndexWriter::Add(IndexTag tag, const TextList& texts) {
  sections_.emplace_back(tag, EncodeNumbers(texts.offsets_) + texts.blob_);
}

size_t IndexWriter::bytes() const {
  size_t bytes = 0;
  for (const auto& [tag, section] : sections_) bytes += section.size();
  return bytes;
}

absl::StatusOr<std::shared_ptr<const Index>> IndexWriter::Finish(MemoryBudget* budget) const {
  const uint64_t count = sections_.size();
  if (count > kMaxSections) return absl::InternalError("an index of too many sections");
  size_t bytes = AlignUp8(sizeof(Header) + sizeof(count) + count * sizeof(SectionEntry));
  for (const auto& [tag, section] : sections_) bytes += AlignUp8(section.size());
  FW_ASSIGN_OR_RETURN(std::shared_ptr<Index> index, Index::Allocate(bytes, budget));
  char* data = index->data();
  std::memset(data, 0, bytes);
  std::memcpy(data + sizeof(Header), &count, sizeof(count));
  size_t offset = AlignUp8(sizeof(Header) + sizeof(count) + count * sizeof(SectionEntry));
  for (size_t i = 0; i < sections_.size(); ++i) {
    const auto& [tag, section] = sections_[i];
    const SectionEntry entry = {tag, 0, offset, section.size()};
    std::memcpy(data + sizeof(Header) + sizeof(count) + i * sizeof(entry), &entry, sizeof(entry));
    std::memcpy(data + offset, section.data(), section.size());
    offset += AlignUp8(section.size());
  }
  const XXH128_hash_t hash = XXH3_128bits(data + sizeof(Header), bytes - sizeof(Header));
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.file_bytes = bytes;
  header.hash_low = hash.low64;
  header.hash_high = hash.high64;
  std::memcpy(data, &header, sizeof(header));
  return index;
}

absl::Status SaveIndex(const Index& index, const std::string& path) {
  return WriteFileAtomically(path, {{index.data(), index.size_}});
}

absl::StatusOr<std::shared_ptr<const Index>> LoadIndex(const std::string& path,
                                                       MemoryBudget* budget) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  struct stat info;
  if (!fd || fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  if (!S_ISREG(info.st_mode) || info.st_size > kMaxFileBytes) {
    return absl::DataLossError(absl::StrCat(path, " is not an index"));
  }
  // A file that is no index at all must not cost memory for all of it.
  char magic[sizeof(kMagic)];
  if (pread(fd.get(), magic, sizeof(magic), 0) != sizeof(magic) ||
      std::memcmp(magic, kMagic, sizeof(magic)) != 0) {
    return absl::DataLossError(absl::StrCat(path, " is not an index of Feedwater"));
  }
  FW_ASSIGN_OR_RETURN(std::shared_ptr<Index> index,
                      Index::Allocate(static_cast<size_t>(info.st_size), budget));
  for (size_t done = 0; done < index->size_;) {
    ssize_t got = pread(fd.get(), index->data() + done,
                        std::min(index->size_ - done, size_t{1} << 30), static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::DataLossError(absl::StrCat(path, " could not be read whole"));
    done += static_cast<size_t>(got);
  }
  if (absl::Status verified = index->Verify(); !verified.ok()) return Annotate(verified, path);
  return index;
}

}  // namespace feedwater::server
