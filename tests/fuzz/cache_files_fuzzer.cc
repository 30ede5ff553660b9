// A cache folder with any journal and any segment, or with changes of good ones whose hashes were
// made right: it opens, and every block that it then names is either refused or proves itself.
//
//   input: changes of a good folder, each {kind, 2 bytes where, 8 bytes what}
// LIBS: feedwater_cache GTest::gtest
#include <xxhash.h>

#include <cstring>
#include <filesystem>

#include "server/cache/record_cache.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/start_inputs.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::fuzz {
namespace {

using namespace server;  // NOLINT: the cache floor

constexpr int64_t kRecords = 16;
constexpr uint64_t kStamp = 77;
// disk_tier.h and disk_tier.cc have the journal's layout, block.h that of a block.
constexpr size_t kJournalHeader = 32, kEntry = 32, kEntryHashed = 24;
constexpr size_t kRecordAt = offsetof(BlockHeader, record);
constexpr uint64_t kJournalSeed = 0x314c4e4a43574600;

std::vector<std::byte> PayloadOf(int64_t record) {
  const std::string bytes = RandomBytes(static_cast<size_t>(record * 37 % 300), record);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

class CacheFolder {
 public:
  CacheFolder() {
    auto cache = Open();
    for (int64_t i = 0; i < kRecords; ++i) cache->Put(i, kStamp, PayloadOf(i));
    cache->Flush();
    cache.reset();
    for (const auto& path : FilesBelow(Folder())) files_[path.filename()] = ReadFile(path);
  }

  std::string Folder() const { return temp_.path() + "/cache"; }
  const std::string& content(const std::string& name) const { return files_.at(name); }

  void Fill(const std::map<std::string, std::string>& files) const {
    std::filesystem::remove_all(Folder());
    std::filesystem::create_directories(Folder());
    for (const auto& [name, content] : files)
      std::ofstream(Folder() + "/" + name, std::ios::binary) << content;
  }

  std::unique_ptr<RecordCache> Open() const {
    RecordCache::Options options;
    options.records = kRecords;
    options.memory_limit = 1 << 16;
    options.memory_quota = std::make_shared<ByteQuota>(1 << 16);
    options.disk_quota = std::make_shared<ByteQuota>(1 << 20);
    options.folder = Folder();
    options.identity = "fuzz";
    auto cache = RecordCache::Open(std::move(options));
    Require(cache.ok(), "a cache opens whatever its folder holds");
    return *std::move(cache);
  }

  const std::map<std::string, std::string>& files() const { return files_; }

 private:
  TempFolder temp_;
  std::map<std::string, std::string> files_;
};

void Put(std::string* file, size_t at, uint64_t value, size_t bytes = 8) {
  if (at + bytes <= file->size()) std::memcpy(file->data() + at, &value, bytes);
}

void MakeEntryWhole(std::string* journal, size_t at) {
  if (at + kEntry > journal->size()) return;
  Put(journal, at + kEntryHashed,
      XXH3_64bits_withSeed(journal->data() + at, kEntryHashed, kJournalSeed));
}
void MakeBlockWhole(std::string* segment, size_t at) {
  if (at + kBlockUnit > segment->size()) return;
  Put(segment, at + kBlockUnit - 8, XXH3_64bits(segment->data() + at, kBlockUnit - 8));
}

void Change(std::map<std::string, std::string>* files, Reader changes) {
  std::string& journal = (*files)["journal"];
  std::string& segment = (*files)["segment-00000"];
  const std::string good_segment = segment;
  const size_t entries = (journal.size() - kJournalHeader) / kEntry;
  while (!changes.empty()) {
    const uint8_t kind = changes.Byte();
    const size_t where = changes.Number(2);
    const uint64_t what = changes.Number(8);
    const size_t entry = kJournalHeader + where % entries * kEntry;
    const size_t block = segment.empty() ? 0 : where % segment.size() / kBlockUnit * kBlockUnit;
    switch (kind % 8) {
      case 0:  // a whole entry that says something else
      case 1:
      case 2:
        Put(&journal, entry + kind % 8 * 8, what);
        MakeEntryWhole(&journal, entry);
        break;
      case 3:  // a damaged one
        Put(&journal, where % journal.size(), what, 1);
        break;
      case 4:  // a block's header with a right hash; another record's number would be a forgery
        Put(&segment, block + what % 7 * 8, what >> 8);
        if (block + kBlockUnit <= segment.size())
          segment.replace(block + kRecordAt, 8, good_segment, block + kRecordAt, 8);
        MakeBlockWhole(&segment, block);
        break;
      case 5:
        if (!segment.empty()) Put(&segment, where % segment.size(), what, 1);
        break;
      case 6:
        segment.resize(where % (segment.size() + 1));
        break;
      default:
        journal.resize(std::max(kJournalHeader + kEntry, where % (2 * journal.size())));
    }
  }
}

void Run(Input input) {
  static auto* folder = new std::unique_ptr<CacheFolder>(new CacheFolder);
  static const bool registered = std::atexit([] { folder->reset(); }) == 0;
  (void)registered;
  std::map<std::string, std::string> files = (*folder)->files();
  if (!input.empty() && input[0] == 0xff) {  // no change, but anything
    Reader reader(input.subspan(1));
    files["segment-00000"] = AsText(reader.Bytes(reader.Byte()));
    files["journal"] =
        (*folder)->content("journal").substr(0, kJournalHeader) + AsText(reader.rest());
  } else {
    Change(&files, Reader(input));
  }
  (*folder)->Fill(files);
  const auto cache = (*folder)->Open();
  int64_t found_records = 0;
  for (int64_t i = 0; i < kRecords; ++i) {
    const RecordCache::Found found = cache->Find(i, kStamp);
    if (found.where != RecordCache::Where::kDisk) continue;
    const auto file = cache->disk()->root().OpenFile(cache->disk()->ObjectPath(found.extent.object),
                                                     /*direct_io=*/false);
    Require(file.ok(), "a place is in a segment that there is");
    Require(found.extent.length <= static_cast<int64_t>(kMaxBlockBytes), "a place is a block's");
    std::vector<std::byte> bytes(static_cast<size_t>(found.extent.length));
    const ssize_t got = pread(file->get(), bytes.data(), bytes.size(), found.extent.offset);
    Require(got == found.extent.length, "a place lies within its segment");
    const auto block = cache->TakeFromDisk(i, kStamp, found.extent, bytes);
    if (!block.ok()) continue;
    ++found_records;
    const std::vector<std::byte> wanted = PayloadOf(i);
    Require(std::equal(block->payload.begin(), block->payload.end(), wanted.begin(), wanted.end()),
            "a payload is that of its record");
  }
  Require(!input.empty() || found_records == kRecords, "a good folder gives everything back");
  cache->Put(3, kStamp, PayloadOf(3));
  cache->Flush();
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {""};
  for (int kind = 0; kind < 8; ++kind) {
    for (int where = 0; where < 4; ++where) {
      std::string seed{static_cast<char>(kind), static_cast<char>(where * 64 + where)};
      seeds.push_back(seed + std::string(1, '\0') + std::string(8, static_cast<char>(where)));
    }
  }
  const CacheFolder good;
  seeds.push_back("\xff" + std::string(1, static_cast<char>(192)) +
                  good.content("segment-00000").substr(0, 192) +
                  good.content("journal").substr(kJournalHeader));
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 2048};
  return target;
}

}  // namespace feedwater::fuzz
