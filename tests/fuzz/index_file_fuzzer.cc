// Saved indexes that somebody has changed, with a right checksum: a dataset is opened over them all
// the same, from what is still sound or from a new index, and nothing that it says does harm.
//
//   input: a format's name, '\n', then changes of the index of its small dataset, each
//          {kind, section, 2 bytes where, 8 bytes what}; or "file\n" and a whole index file
// LIBS: SMALL_DATASETS FORMATS feedwater_source GTest::gtest
#include <xxhash.h>

#include <cstring>

#include "server/source/index_file.h"
#include "tests/fuzz/no_naps.h"
#include "tests/fuzz/small_dataset_folder.h"

namespace feedwater::fuzz {
namespace {

// index_file.h has the layout.
constexpr size_t kHeaderBytes = 64, kTableAt = kHeaderBytes + 8, kEntryBytes = 24;
constexpr size_t kFileBytesAt = 16, kHashAt = 24;

uint64_t Get(const std::string& file, size_t at) {
  uint64_t value = 0;
  if (at + sizeof(value) <= file.size()) std::memcpy(&value, file.data() + at, sizeof(value));
  return value;
}
void Put(std::string* file, size_t at, uint64_t value) {
  if (at + sizeof(value) <= file->size()) std::memcpy(file->data() + at, &value, sizeof(value));
}

// Size and checksum as SaveIndex would have them.
void MakeWhole(std::string* file) {
  if (file->size() < kTableAt) return;
  const XXH128_hash_t hash = XXH3_128bits(file->data() + kHeaderBytes, file->size() - kHeaderBytes);
  Put(file, kFileBytesAt, file->size());
  Put(file, kHashAt, hash.low64);
  Put(file, kHashAt + 8, hash.high64);
}

void Change(std::string* file, Reader changes) {
  while (!changes.empty()) {
    const uint8_t kind = changes.Byte();
    const uint64_t sections = std::max<uint64_t>(1, Get(*file, kHeaderBytes));
    const size_t entry = kTableAt + kEntryBytes * (changes.Byte() % sections);
    const size_t where = changes.Number(2);
    const uint64_t what = changes.Number(8);
    const size_t from = Get(*file, entry + 8), bytes = Get(*file, entry + 16);
    switch (kind % 6) {
      case 0:  // a number of a section
        if (bytes >= 8 && from < file->size()) Put(file, from + where % (bytes - 7), what);
        break;
      case 1:  // a byte of a section
        if (bytes > 0 && from + where % bytes < file->size())
          (*file)[from + where % bytes] = static_cast<char>(what);
        break;
      case 2:  // a section's length
        Put(file, entry + 16, what % 2 == 0 ? bytes - where % 16 : what);
        break;
      case 3:  // a section's place
        Put(file, entry + 8, what % 2 == 0 ? from + 8 * (where % 16) : what);
        break;
      case 4:  // anything
        Put(file, where % file->size(), what);
        break;
      default:
        file->resize(std::max<size_t>(kTableAt, where % (2 * file->size())));
    }
  }
}

// The saved index of a format's small dataset.
struct SavedIndex {
  explicit SavedIndex(const SmallDatasetFolder& small) {
    const std::string state_dir = state.path() + "/state";
    Require(small.Open(state_dir, /*save=*/true).ok(), "the small dataset opens");
    path = FilesBelow(state_dir).front();
    content = ReadFile(path);
  }
  server::TempFolder state;
  std::filesystem::path path;
  std::string content;
};

std::map<std::string, std::unique_ptr<SavedIndex>>& Saved() {
  static auto* saved = new std::map<std::string, std::unique_ptr<SavedIndex>>;
  static const bool registered = std::atexit([] { saved->clear(); }) == 0;
  (void)registered;
  return *saved;
}

void Write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// A whole file of the input's, and every column that it says it has.
void LoadAny(std::string content) {
  static auto* folder = new std::unique_ptr<server::TempFolder>(new server::TempFolder);
  static const bool registered = std::atexit([] { folder->reset(); }) == 0;
  (void)registered;
  MakeWhole(&content);
  Write(**folder / "any.index", content);
  const auto index = server::LoadIndex(**folder / "any.index", nullptr);
  if (!index.ok()) return;
  for (uint64_t i = 0; i < Get(content, kHeaderBytes); ++i) {
    const auto tag = static_cast<server::IndexTag>(Get(content, kTableAt + i * kEntryBytes));
    volatile uint64_t sum = 0;
    if (const auto numbers = (*index)->Numbers(tag); numbers.ok()) {
      for (size_t k = 0; k < numbers->size(); ++k) sum = sum + (*numbers)[k];
    }
    if (const auto texts = (*index)->Texts(tag); texts.ok()) {
      for (const std::string& text : texts->ToVector()) sum = sum + text.size();
    }
  }
}

void Run(Input input) {
  const auto end = std::find(input.begin(), input.end(), '\n');
  if (end == input.end()) return;
  const std::string name(input.begin(), end);
  const Input rest = input.subspan(static_cast<size_t>(end - input.begin()) + 1);
  if (name == "file") return LoadAny(AsText(rest));
  const auto found = SmallDatasetFolder::All().find(name);
  if (found == SmallDatasetFolder::All().end()) return;
  std::unique_ptr<SavedIndex>& saved = Saved()[name];
  if (saved == nullptr) saved = std::make_unique<SavedIndex>(*found->second);

  std::string content = saved->content;
  Change(&content, Reader(rest));
  MakeWhole(&content);
  Write(saved->path, content);
  const auto dataset = found->second->Open(saved->state.path() + "/state");
  Require(dataset.ok(), "a dataset opens whatever its saved index says");
  Exercise(**dataset, /*sound=*/rest.empty());
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const auto& [name, small] : SmallDatasetFolder::All()) {
    seeds.push_back(name + "\n");
    seeds.push_back("file\n" + SavedIndex(*small).content);
    for (uint8_t kind = 0; kind < 6; ++kind) {
      for (uint8_t section = 0; section < 8; ++section) {
        seeds.push_back(name + "\n");
        for (const uint8_t byte : {kind, section, uint8_t{16}, uint8_t{0}, uint8_t{1}})
          seeds.back() += static_cast<char>(byte);
        seeds.back().append(7, '\0');
      }
    }
  }
  return seeds;
}

std::vector<std::string> Words() {
  std::vector<std::string> words = {"file\n"};
  for (const auto& [format, small] : SmallDatasetFolder::All()) words.push_back(format + "\n");
  return words;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, Words, 4096};
  return target;
}

}  // namespace feedwater::fuzz
