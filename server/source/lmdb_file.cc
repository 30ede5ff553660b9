#include "server/source/lmdb_file.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

// Of a page's header.
constexpr size_t kPageNumber = 0, kPageFlags = 10, kPageLower = 12, kOverflowPages = 12;
constexpr uint16_t kBranchPage = 0x01, kLeafPage = 0x02, kOverflowPage = 0x04, kMetaPage = 0x08;
constexpr uint16_t kFixedValuesPage = 0x20;
// Of a meta page.
constexpr size_t kMagicAt = 16, kVersionAt = 20, kFreeAt = 40, kMainAt = 88, kTransactionAt = 144;
constexpr size_t kMetaBytes = 152;
constexpr uint32_t kMagic = 0xBEEFC0DE, kVersion = 1;
// Of a database in it.
constexpr size_t kPageBytes = 0, kFlags = 4, kDepth = 6, kEntries = 32, kRoot = 40;
constexpr uint32_t kReverseKeys = 0x02, kSeveralValues = 0x04, kIntegerKeys = 0x08;
constexpr uint64_t kNoRoot = UINT64_MAX;
constexpr uint32_t kMaxDepth = 32;  // CURSOR_STACK
// Of a node.
constexpr size_t kNodeHeader = 8;
constexpr uint16_t kLargeValue = 0x01, kNestedDatabase = 0x02, kNestedValues = 0x04;

template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

absl::Status Wrong(uint64_t page, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("page ", page, " ", what));
}

absl::Status HasDatabases() {
  return absl::DataLossError(
      "holds named databases; cure: put one into a file of its own, mdb_dump -s NAME | mdb_load");
}

absl::Status HasSeveralValues() {
  return absl::DataLossError(
      "has several values for a key (MDB_DUPSORT); cure: write each under a key of its own");
}

bool IsPageSize(uint32_t bytes) {
  return bytes >= 256 && bytes <= kLmdbMaxPage && (bytes & (bytes - 1)) == 0;
}

// One page of the walk from the root to a leaf.
struct Step {
  std::string page;
  uint64_t number = 0;
  size_t nodes = 0, next = 0;
};

// Checks what is common to branches and leaves.
absl::Status CheckPage(const std::string& page, uint64_t number, bool is_leaf, size_t* nodes) {
  const auto flags = Load<uint16_t>(page.data() + kPageFlags);
  if (Load<uint64_t>(page.data() + kPageNumber) != number)
    return Wrong(number, "says that it is another one: the file is damaged");
  if ((flags & kFixedValuesPage) != 0) return HasSeveralValues();
  if ((flags & (kBranchPage | kLeafPage)) != (is_leaf ? kLeafPage : kBranchPage))
    return Wrong(number, absl::StrCat("is no ", is_leaf ? "leaf" : "branch", " of the tree"));
  const auto lower = Load<uint16_t>(page.data() + kPageLower);
  if (lower < kLmdbPageHeader || lower > page.size() || lower % 2 != 0)
    return Wrong(number, "has a list of nodes that does not fit into it");
  *nodes = (lower - kLmdbPageHeader) / 2;
  if (!is_leaf && *nodes == 0) return Wrong(number, "is a branch without leaves");
  return absl::OkStatus();
}

// Where node `i` of a page begins; 0 when it does not fit into the page with its key.
size_t NodeAt(const std::string& page, size_t i) {
  const size_t at = Load<uint16_t>(page.data() + kLmdbPageHeader + 2 * i);
  const size_t lower = Load<uint16_t>(page.data() + kPageLower);
  if (at < lower || at + kNodeHeader > page.size()) return 0;
  return at + kNodeHeader + Load<uint16_t>(page.data() + at + 6) > page.size() ? 0 : at;
}

}  // namespace

bool IsLmdbOverflow(const char* header, uint64_t page, uint64_t value_bytes, uint32_t page_bytes) {
  const uint64_t room = uint64_t{Load<uint32_t>(header + kOverflowPages)} * page_bytes;
  return Load<uint64_t>(header + kPageNumber) == page &&
         (Load<uint16_t>(header + kPageFlags) & kOverflowPage) != 0 && room >= kLmdbPageHeader &&
         value_bytes <= room - kLmdbPageHeader;
}

bool LmdbFile::ReadMeta(const char* page, uint32_t page_bytes, absl::Status* wrong) {
  if (Load<uint32_t>(page + kMagicAt) != kMagic) return false;
  if (const auto version = Load<uint32_t>(page + kVersionAt); version != kVersion) {
    *wrong = absl::DataLossError(
        absl::StrCat("has LMDB's format ", version, ", not ", kVersion,
                     "; cure: mdb_dump of the version that wrote it | mdb_load of LMDB 0.9"));
    return false;
  }
  const char* main = page + kMainAt;
  const auto root = Load<uint64_t>(main + kRoot);
  const auto depth = Load<uint16_t>(main + kDepth);
  const auto transaction = Load<uint64_t>(page + kTransactionAt);
  if ((Load<uint16_t>(page + kPageFlags) & kMetaPage) == 0 ||
      Load<uint32_t>(page + kFreeAt + kPageBytes) != page_bytes || depth > kMaxDepth ||
      (root == kNoRoot) != (depth == 0)) {
    return false;
  }
  if (is_known_ && transaction <= transaction_) return true;
  is_known_ = true;
  page_bytes_ = page_bytes;
  transaction_ = transaction;
  entries_ = Load<uint64_t>(main + kEntries);
  root_ = root;
  depth_ = depth;
  flags_ = Load<uint16_t>(main + kFlags);
  return true;
}

absl::StatusOr<LmdbFile> LmdbFile::Open(ReadAt read, int64_t file_bytes) {
  absl::Status wrong = absl::DataLossError(
      "is no LMDB file of a 64-bit little-endian machine: no meta page is whole");
  LmdbFile file(std::move(read), file_bytes);
  char page[kMetaBytes];
  const auto read_meta = [&](int64_t at) -> absl::StatusOr<bool> {
    if (at + static_cast<int64_t>(kMetaBytes) > file_bytes) return false;
    FW_RETURN_IF_ERROR(file.read_(at, page, kMetaBytes));
    return true;
  };
  FW_ASSIGN_OR_RETURN(const bool has_first, read_meta(0));
  if (!has_first) return wrong;
  const auto first_bytes = Load<uint32_t>(page + kFreeAt + kPageBytes);
  if (IsPageSize(first_bytes)) file.ReadMeta(page, first_bytes, &wrong);
  // The other one is on the second page, whose place the first one need not know.
  for (uint32_t bytes = 256; bytes <= kLmdbMaxPage; bytes *= 2) {
    if (file.is_known_ && bytes != file.page_bytes_) continue;
    FW_ASSIGN_OR_RETURN(const bool has_second, read_meta(bytes));
    if (has_second && file.ReadMeta(page, bytes, &wrong)) break;
  }
  if (!file.is_known_) return wrong;
  if ((file.flags_ & kSeveralValues) != 0) return HasSeveralValues();
  return file;
}

absl::Status LmdbFile::Walk(const std::function<absl::Status(const LmdbRecord&)>& found) const {
  if (root_ == kNoRoot) return absl::OkStatus();
  const bool sorted = (flags_ & (kReverseKeys | kIntegerKeys)) == 0;
  absl::flat_hash_set<uint64_t> seen;
  std::vector<Step> path;  // from the root to the page that is looked at
  std::string last_key;
  uint64_t records = 0;
  const auto go_to = [&](uint64_t number) -> absl::Status {
    if (number < 2 || number >= pages()) {
      return Wrong(number, absl::StrCat("is a part of the tree, but the file has ", pages(),
                                        " pages: it was cut off, or is damaged"));
    }
    if (!seen.insert(number).second) return Wrong(number, "is reached twice: the tree is damaged");
    Step& step = path.emplace_back();
    step.number = number;
    step.page.resize(page_bytes_);
    FW_RETURN_IF_ERROR(
        read_(static_cast<int64_t>(number * page_bytes_), step.page.data(), page_bytes_));
    return CheckPage(step.page, number, path.size() == depth_, &step.nodes);
  };
  FW_RETURN_IF_ERROR(go_to(root_));
  while (!path.empty()) {
    Step& step = path.back();
    if (step.next == step.nodes) {
      path.pop_back();
      continue;
    }
    const size_t at = NodeAt(step.page, step.next++);
    if (at == 0) return Wrong(step.number, "has a node that does not fit into it");
    const char* node = step.page.data() + at;
    const uint64_t low = Load<uint16_t>(node), high = Load<uint16_t>(node + 2);
    const auto flags = Load<uint16_t>(node + 4), key_bytes = Load<uint16_t>(node + 6);
    if (path.size() < depth_) {
      FW_RETURN_IF_ERROR(go_to(low | high << 16 | uint64_t{flags} << 32));
      continue;
    }
    if ((flags & kNestedValues) != 0) return HasSeveralValues();
    if ((flags & kNestedDatabase) != 0) return HasDatabases();
    LmdbRecord record;
    record.leaf = step.number;
    record.key_at = static_cast<uint32_t>(at + kNodeHeader);
    record.key_bytes = key_bytes;
    record.value_bytes = low | high << 16;
    record.key = absl::string_view(node + kNodeHeader, key_bytes);
    const size_t value_at = record.key_at + key_bytes;
    if ((flags & kLargeValue) == 0) {
      if (record.value_bytes > step.page.size() - value_at)
        return Wrong(step.number, "has a value that does not fit into it");
    } else {
      if (step.page.size() - value_at < sizeof(uint64_t))
        return Wrong(step.number, "has a node that does not fit into it");
      record.overflow = Load<uint64_t>(step.page.data() + value_at);
      const uint64_t needs = (kLmdbPageHeader + record.value_bytes + page_bytes_ - 1) / page_bytes_;
      if (record.overflow < 2 || record.overflow >= pages() || needs > pages() - record.overflow) {
        return Wrong(step.number, absl::StrCat("has a value on page ", record.overflow, ", of ",
                                               needs, ", but the file has ", pages(),
                                               ": it was cut off, or is damaged"));
      }
    }
    if (sorted && records > 0 && record.key <= last_key)
      return Wrong(step.number, "has keys that are not in order: the tree is damaged");
    last_key.assign(record.key.data(), record.key.size());
    if (++records > entries_) break;
    FW_RETURN_IF_ERROR(found(record));
  }
  if (records == entries_) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("says that it has ", entries_, " records, but has ",
                                          records > entries_ ? "more" : absl::StrCat(records)));
}

}  // namespace feedwater::server
