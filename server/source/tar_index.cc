#include "server/source/tar_index.h"

#include <xxhash.h>

#include <cstring>
#include <limits>
#include <optional>

namespace feedwater::server {
namespace {

constexpr absl::string_view kMagic = "FWTI";
constexpr uint32_t kVersion = 1;
constexpr size_t kHashedFrom = 4 + 4 + 8;
constexpr size_t kLooks = 8;  // records that FitsTar reads

template <typename T>
void Append(T number, std::string* text) {
  text->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Takes numbers off the front.
class Numbers {
 public:
  explicit Numbers(absl::string_view text) : rest_(text) {}
  template <typename T>
  bool Take(T* number) {
    if (rest_.size() < sizeof(T)) return false;
    std::memcpy(number, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return true;
  }
  bool Take(size_t bytes, std::string* text) {
    if (rest_.size() < bytes) return false;
    *text = std::string(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    return true;
  }
  size_t left() const { return rest_.size(); }

 private:
  absl::string_view rest_;
};

}  // namespace

absl::Status TarIndex::Add(int64_t offset, absl::string_view members) {
  begins.push_back(static_cast<uint64_t>(offset / kTarBlock));
  end = static_cast<uint64_t>((offset + static_cast<int64_t>(members.size())) / kTarBlock);
  TarReader reader(
      [&](int64_t at, char* to, size_t bytes) {
        std::memcpy(to, members.data() + at, bytes);
        return absl::OkStatus();
      },
      static_cast<int64_t>(members.size()));
  while (true) {
    FW_ASSIGN_OR_RETURN(const std::optional<TarMember> member, reader.Next());
    if (!member) return absl::OkStatus();
    absl::string_view key;
    std::string extension;
    if (SplitMemberName(member->name, &key, &extension)) extensions.insert(std::move(extension));
  }
}

std::string TarIndex::Text() const {
  std::string text(kHashedFrom, '\0');
  Append(static_cast<uint64_t>(tar_bytes), &text);
  Append(static_cast<uint64_t>(begins.size()), &text);
  Append(end, &text);
  Append(static_cast<uint32_t>(extensions.size()), &text);
  for (const std::string& extension : extensions) {
    Append(static_cast<uint32_t>(extension.size()), &text);
    text += extension;
  }
  uint64_t last = 0;
  for (const uint64_t begin : begins) {
    Append(static_cast<uint32_t>(begin - last), &text);
    last = begin;
  }
  const uint64_t hash = XXH3_64bits(text.data() + kHashedFrom, text.size() - kHashedFrom);
  std::memcpy(text.data(), kMagic.data(), kMagic.size());
  std::memcpy(text.data() + 4, &kVersion, sizeof(kVersion));
  std::memcpy(text.data() + 8, &hash, sizeof(hash));
  return text;
}

absl::StatusOr<TarIndex> TarIndex::Parse(absl::string_view text) {
  Numbers numbers(text);
  std::string magic;
  uint32_t version = 0, extensions = 0;
  uint64_t hash = 0, tar_bytes = 0, records = 0;
  TarIndex index;
  if (!numbers.Take(kMagic.size(), &magic) || magic != kMagic || !numbers.Take(&version) ||
      version != kVersion || !numbers.Take(&hash)) {
    return absl::DataLossError("no index of a tar shard, or one of another version");
  }
  if (hash != XXH3_64bits(text.data() + kHashedFrom, text.size() - kHashedFrom))
    return absl::DataLossError("its checksum does not match");
  const auto damaged = [] { return absl::DataLossError("its numbers do not fit together"); };
  if (!numbers.Take(&tar_bytes) || !numbers.Take(&records) || !numbers.Take(&index.end) ||
      !numbers.Take(&extensions) || extensions > kMostExtensions ||
      tar_bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return damaged();
  }
  for (uint32_t i = 0; i < extensions; ++i) {
    uint32_t length = 0;
    std::string extension;
    if (!numbers.Take(&length) || !numbers.Take(length, &extension)) return damaged();
    index.extensions.insert(std::move(extension));
  }
  if (records > numbers.left() / sizeof(uint32_t) || numbers.left() != records * sizeof(uint32_t)) {
    return damaged();
  }
  index.tar_bytes = static_cast<int64_t>(tar_bytes);
  index.begins.reserve(records);
  uint64_t begin = 0;
  for (uint64_t i = 0; i < records; ++i) {
    uint32_t step = 0;
    if (!numbers.Take(&step) || (i > 0 && step == 0)) return damaged();
    begin += step;
    index.begins.push_back(begin);
  }
  const uint64_t blocks = tar_bytes / kTarBlock;
  if (index.end > blocks || (records > 0 && index.end <= begin)) return damaged();
  return index;
}

// One record and nothing else: of one key, no extension twice, none that is not known. So a few
// members are read, however many there are.
absl::Status TarIndex::FitsRecord(const TarReader::ReadAt& read, int64_t begin,
                                  int64_t behind) const {
  TarReader reader(
      [&](int64_t offset, char* to, size_t bytes) { return read(begin + offset, to, bytes); },
      behind - begin);
  std::string key;
  std::set<std::string> found;
  while (true) {
    FW_ASSIGN_OR_RETURN(const std::optional<TarMember> member, reader.Next());
    if (!member) break;
    absl::string_view own;
    std::string extension;
    if (member->kind != TarMember::Kind::kFile || !SplitMemberName(member->name, &own, &extension))
      return absl::DataLossError("a member that belongs to no record");
    if (!found.empty() && own != key)
      return absl::DataLossError("several records where one was indexed");
    key = std::string(own);
    if (extensions.count(extension) == 0 || !found.insert(std::move(extension)).second)
      return absl::DataLossError("a record has other files");
  }
  return found.empty() ? absl::DataLossError("no file where a record was indexed")
                       : absl::OkStatus();
}

absl::Status TarIndex::FitsTar(const TarReader::ReadAt& read, int64_t bytes) const {
  if (bytes != tar_bytes) return absl::DataLossError("the shard has another size");
  if (begins.empty()) return absl::DataLossError("it has no records");
  size_t last = begins.size();
  for (size_t look = 0; look <= kLooks; ++look) {
    const size_t i = (begins.size() - 1) * look / kLooks;
    if (i == last) continue;
    last = i;
    // Nothing but padding may stand before the first one.
    const auto begin = static_cast<int64_t>(i == 0 ? 0 : begins[i]) * kTarBlock;
    const uint64_t behind = i + 1 == begins.size() ? end : begins[i + 1];
    FW_RETURN_IF_ERROR(FitsRecord(read, begin, static_cast<int64_t>(behind) * kTarBlock));
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
