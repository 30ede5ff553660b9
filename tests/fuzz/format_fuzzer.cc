// Every dataset format of the registry, through the format interface: one file of its small dataset
// has any content or a file has any name, then the index is built and all records are parsed; or a
// record's bytes are anything.
//
//   input: the format's name, '\n', a byte that says what is changed, the bytes
// LIBS: SMALL_DATASETS FORMATS feedwater_source GTest::gtest
#include "tests/fuzz/no_naps.h"
#include "tests/fuzz/small_dataset_folder.h"

namespace feedwater::fuzz {
namespace {

enum Change : uint8_t { kContent, kRecord, kName, kChanges };

void ParseAnything(const server::Dataset& dataset, Input bytes) {
  Reader reader(bytes);
  const int64_t number = reader.Byte() % dataset.size();
  std::vector<server::Extent> extents;
  dataset.Extents(number, &extents);
  const size_t first = extents.size() > 1 ? reader.Byte() : 0;
  // In blocks of their own, so that what is read behind them is seen.
  std::vector<std::vector<uint8_t>> blocks;
  for (size_t i = 0; i < extents.size(); ++i) {
    const Input part = reader.Bytes(i + 1 < extents.size() ? first : bytes.size());
    blocks.emplace_back(part.begin(), part.end());
  }
  std::vector<absl::Span<const std::byte>> spans;
  for (const auto& block : blocks)
    spans.emplace_back(reinterpret_cast<const std::byte*>(block.data()), block.size());
  server::Record record;
  if (!dataset.Parse(number, spans, &record).ok()) return;
  for (const server::Tensor& field : record.fields) {
    volatile unsigned sum = 0;
    for (size_t k = 0; k < field.bytes(); ++k) sum = sum + static_cast<uint8_t>(field.data[k]);
  }
}

void Run(Input input) {
  const auto end = std::find(input.begin(), input.end(), '\n');
  if (end == input.end()) return;
  const auto found = SmallDatasetFolder::All().find(std::string(input.begin(), end));
  if (found == SmallDatasetFolder::All().end()) return;
  const SmallDatasetFolder& small = *found->second;
  Reader reader(input.subspan(static_cast<size_t>(end - input.begin()) + 1));
  const uint8_t what = reader.Byte();
  const size_t file = what / kChanges % small.names().size();
  const std::string& name = small.names()[file];

  if (what % kChanges == kRecord) {
    static auto* opened = new std::map<std::string, std::shared_ptr<const server::Dataset>>;
    std::shared_ptr<const server::Dataset>& dataset = (*opened)[found->first];
    if (dataset == nullptr) dataset = *small.Open();
    ParseAnything(*dataset, reader.rest());
    return;
  }
  if (what % kChanges == kContent) {
    small.folder().Write(name, AsText(reader.rest()));
    if (const auto dataset = small.Open(); dataset.ok()) Exercise(**dataset, /*sound=*/true);
    small.folder().Write(name, small.content(file));
    return;
  }
  std::string odd = AsText(reader.rest()).substr(0, 255);
  std::replace(odd.begin(), odd.end(), '/', '|');
  std::replace(odd.begin(), odd.end(), '\0', '|');
  if (odd.empty() || odd == "." || odd == "..") return;
  const std::string path = small.folder() / (name.substr(0, name.rfind('/') + 1) + odd);
  if (rename((small.folder() / name).c_str(), path.c_str()) != 0) return;
  if (const auto dataset = small.Open(); dataset.ok()) Exercise(**dataset, /*sound=*/true);
  unlink(path.c_str());
  for (size_t i = 0; i < small.names().size(); ++i)  // the new name may have been another file's
    small.folder().Write(small.names()[i], small.content(i));
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const auto& entry : SmallDatasetFolder::All()) {
    const std::string& format = entry.first;
    const auto& small = entry.second;
    for (size_t file = 0; file < small->names().size(); ++file) {
      const auto add = [&](Change change, const std::string& bytes) {
        seeds.push_back(format + "\n" +
                        static_cast<char>(static_cast<int>(file) * kChanges + change) + bytes);
      };
      add(kContent, small->content(file));
      add(kRecord, std::string(1, static_cast<char>(file)) + small->content(file));
      add(kName, std::filesystem::path(small->names()[file]).filename());
    }
  }
  return seeds;
}

std::vector<std::string> Words() {
  std::vector<std::string> words;
  for (const auto& [format, small] : SmallDatasetFolder::All()) words.push_back(format + "\n");
  for (const char* word : {".jpg", ".png", ".tar", "ustar", "cat", "\xff\xfe", "\n"})
    words.push_back(word);
  return words;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, Words, 1 << 14};
  return target;
}

}  // namespace feedwater::fuzz
