// One suite over every registered format: what is indexed, parsed, saved and reused must hold for
// all of them.
#include <xxhash.h>

#include <numeric>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/source/format.h"
#include "tests/source/dataset_reader.h"
#include "tests/source/small_datasets.h"
#include "tests/storage/path_looks.h"
#include "tests/storage/system_calls.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 77;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Everything that a dataset says, to compare two of them.
std::string Everything(const Dataset& dataset) {
  std::string text = absl::StrCat(dataset.size(), "|", dataset.digest(), "|", dataset.notes(), "|");
  for (const std::string& name : dataset.classes()) absl::StrAppend(&text, name, ",");
  for (int64_t start : dataset.shard_starts()) absl::StrAppend(&text, start, ",");
  for (int64_t i = 0; i < dataset.size(); ++i) {
    std::vector<Extent> extents;
    dataset.Extents(i, &extents);
    for (const Extent& e : extents) {
      // What was unpacked is named after inode and times first.
      std::string path = dataset.ObjectPath(e.object);
      if (&dataset.RootOf(e.object) != &dataset.root()) path = path.substr(path.find('-'));
      absl::StrAppend(&text, path, "@", e.offset, "+", e.length, ";");
    }
  }
  return text;
}

std::vector<std::string> FormatsWithFiles() {
  std::vector<std::string> names;
  for (const std::string& name : Registry<FormatEntry>::Get().Names()) {
    if (Registry<FormatEntry>::Get().Find(name)->has_files) names.push_back(name);
  }
  return names;
}

class FormatConformance : public ::testing::TestWithParam<std::string> {
 protected:
  FormatConformance() : opener_(folder_.path()) {
    auto it = SmallDatasets().find(GetParam());
    if (it != SmallDatasets().end()) small_ = it->second;
  }
  void SetUp() override {
    ASSERT_TRUE(small_.make) << "tests/source/small_datasets.h has no dataset for format "
                             << GetParam();
    const std::string why_absent = small_.why_absent ? small_.why_absent() : "";
    if (!why_absent.empty()) GTEST_SKIP() << why_absent;
    small_.make(folder_);
    opener_.state_dir = state_.path() + "/state";
    opener_.staging = StagingArea::Below(state_.path(), 64 << 20);
  }
  std::shared_ptr<const Dataset> MustOpen() { return opener_.MustOpen(small_.yaml); }
  std::string IndexFile() {
    for (const auto& entry : std::filesystem::directory_iterator(opener_.state_dir + "/indexes")) {
      return entry.path();
    }
    ADD_FAILURE() << "no index was saved";
    return "";
  }

  SmallDataset small_;
  TempFolder folder_, state_;
  Opener opener_;
};

TEST_P(FormatConformance, EverythingIsDocumentedAndTheExampleIsValid) {
  const FormatEntry* entry = Registry<FormatEntry>::Get().Find(GetParam());
  EXPECT_FALSE(entry->summary.empty());
  for (const ParamInfo& param : entry->params) EXPECT_FALSE(param.doc.empty()) << param.name;
  YamlNode example = ParseNode(entry->example);
  const YamlNode* map = example.Find("dataset");
  ASSERT_NE(map, nullptr) << entry->example;
  auto fields = DescribeDataset(*map);
  ASSERT_TRUE(fields.ok()) << fields.status();
  const auto dataset = MustOpen();
  for (const FieldSpec& field : fields->value_or(dataset->fields()))
    EXPECT_FALSE(field.doc.empty()) << field.name;
}

TEST_P(FormatConformance, UnknownParametersAreRefusedWithTheirPlace) {
  YamlNode node = ParseNode(small_.yaml.substr(0, small_.yaml.size() - 1) + ", pathh: x}");
  auto fields = DescribeDataset(node);
  EXPECT_EQ(fields.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(fields.status().message()),
              ::testing::AllOf(HasSubstr("test.yaml:1:"), HasSubstr("'pathh'")));
}

TEST_P(FormatConformance, ParseGivesTheFieldsThatWereDescribed) {
  auto dataset = MustOpen();
  ASSERT_EQ(dataset->size(), small_.records);
  auto described = DescribeDataset(ParseNode(small_.yaml));
  ASSERT_TRUE(described.ok());
  const std::vector<FieldSpec> fields = described->value_or(dataset->fields());
  ASSERT_EQ(fields.size(), dataset->fields().size());
  Record record;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const std::vector<std::string> bytes = ReadExtents(*dataset, i);
    absl::Status status = ParseBytes(*dataset, i, bytes, &record);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(record.fields.size(), fields.size());
    for (size_t f = 0; f < fields.size(); ++f) {
      const FieldSpec& field = dataset->fields()[f];
      EXPECT_EQ(field.name, fields[f].name);
      EXPECT_EQ(field.spec, fields[f].spec);
      EXPECT_EQ(record.fields[f].spec.dtype, field.spec.dtype);
      EXPECT_EQ(record.fields[f].spec.layout, field.spec.layout);
      ASSERT_EQ(record.fields[f].spec.shape.size(), field.spec.shape.size());
      EXPECT_TRUE(record.fields[f].spec.IsStatic());
      for (size_t axis = 0; axis < field.spec.shape.size(); ++axis) {
        if (field.spec.shape[axis] >= 0) {
          EXPECT_EQ(record.fields[f].spec.shape[axis], field.spec.shape[axis]);
        }
      }
    }
    // Boxes have labels of their own, and none is a record's.
    const bool has_label = std::any_of(
        fields.begin(), fields.end(), [](const FieldSpec& field) { return field.name == "label"; });
    if (dataset->classes().empty() || !has_label) continue;
    const int64_t label = LabelOf(*dataset, i);
    EXPECT_GE(label, 0);
    EXPECT_LT(label, static_cast<int64_t>(dataset->classes().size()));
  }
}

TEST_P(FormatConformance, RandomOrderGivesWhatSequentialOrderGives) {
  auto dataset = MustOpen();
  Record scratch;
  std::vector<std::vector<std::string>> sequential;
  for (int64_t i = 0; i < dataset->size(); ++i)
    sequential.push_back(ReadFields(*dataset, i, &scratch));
  std::vector<int64_t> order(static_cast<size_t>(dataset->size()));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 5; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (int64_t i : order)
      EXPECT_EQ(ReadFields(*dataset, i, &scratch), sequential[static_cast<size_t>(i)]);
  }
}

TEST_P(FormatConformance, ParseSurvivesAnyBytes) {
  auto dataset = MustOpen();
  Record record;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const std::vector<std::string> whole = ReadExtents(*dataset, i);
    for (size_t e = 0; e < whole.size(); ++e) {
      for (size_t keep = 0; keep <= whole[e].size(); ++keep) {
        std::vector<std::string> cut = whole;
        cut[e] = whole[e].substr(0, keep);
        cut[e].shrink_to_fit();
        if (ParseBytes(*dataset, i, cut, &record).ok()) {
          for (const Tensor& field :
               record.fields) {  // every byte that a field claims must be there
            volatile uint8_t sum = 0;
            for (size_t k = 0; k < field.bytes(); ++k)
              sum = sum + static_cast<uint8_t>(field.data[k]);
          }
        }
      }
      std::vector<std::string> noise = whole;
      for (uint64_t seed = 0; seed < 50; ++seed) {
        noise[e] = RandomBytes(whole[e].size(), seed);
        (void)ParseBytes(*dataset, i, noise, &record);
      }
    }
    EXPECT_FALSE(ParseBytes(*dataset, i, {}, &record).ok());
    EXPECT_FALSE(ParseBytes(*dataset, i, {"a", "b", "c", "d"}, &record).ok());
  }
}

TEST_P(FormatConformance, TheSavedIndexIsUsedUntilAFolderChanges) {
  auto built = MustOpen();
  EXPECT_EQ(opener_.builds, 1);
  auto reused = MustOpen();
  EXPECT_EQ(opener_.builds, 1) << "nothing has changed, so nothing may be scanned";
  EXPECT_EQ(Everything(*reused), Everything(*built));
  EXPECT_EQ(reused->memory_bytes(), built->memory_bytes());

  const std::string file = small_.one_file.empty() ? MustOpen()->ObjectPath(0) : small_.one_file;
  std::filesystem::rename(folder_ / file, folder_ / (file + ".away"));
  std::filesystem::rename(folder_ / (file + ".away"), folder_ / file);
  auto rebuilt = MustOpen();
  EXPECT_EQ(opener_.builds, 2) << "the folder has changed";
  EXPECT_EQ(Everything(*rebuilt), Everything(*built)) << "but the records have not";
  MustOpen();
  EXPECT_EQ(opener_.builds, 2);
  opener_.rebuild = true;
  MustOpen();
  EXPECT_EQ(opener_.builds, 3);
}

TEST_P(FormatConformance, OpeningAgainListsNoFolder) {
  auto built = MustOpen();
  WithoutSystemCall(SYS_getdents64, EACCES, [&] {
    auto reused = opener_.Open(small_.yaml);
    return reused.ok() && Everything(**reused) == Everything(*built);
  });
}

// Every file that holds records, whatever the format.
TEST_P(FormatConformance, AFileThatChangesIsNoticedAndChangesTheDigest) {
  const auto built = MustOpen();
  EXPECT_TRUE(built->LookAgain().ok()) << built->LookAgain();
  std::set<std::string> digests = {built->digest()};
  ASSERT_GT(built->objects(), 0);
  for (uint32_t object = 0; object < built->objects(); ++object) {
    const bool is_unpacked = &built->RootOf(object) != &built->root();
    if (is_unpacked && object > 0) continue;  // which file it was made of only the format knows
    const std::string path = is_unpacked ? small_.one_file : built->ObjectPath(object);
    const std::string good = ReadFile(folder_ / path);
    if (!is_unpacked) {
      ASSERT_EQ(static_cast<int64_t>(good.size()), built->ObjectBytes(object)) << path;
    }
    std::string other = good;
    char& flipped = small_.flip.empty() ? other.back() : other.at(other.find(small_.flip));
    flipped = static_cast<char>(flipped ^ 1);
    const auto before = MustOpen();
    const int builds = opener_.builds;
    folder_.Write(path, other);  // in place, of the same size
    EXPECT_TRUE(absl::IsFailedPrecondition(before->LookAgain())) << path;
    EXPECT_THAT(std::string(before->LookAgain().message()), HasSubstr("has changed"));
    EXPECT_TRUE(digests.insert(MustOpen()->digest()).second) << path;
    EXPECT_EQ(opener_.builds, builds + 1);
    folder_.Write(path + ".new", good);
    std::filesystem::rename(folder_ / (path + ".new"), folder_ / path);
    EXPECT_EQ(MustOpen()->digest(), built->digest()) << "the same bytes in another file";
  }
}

// All that lies in the folder is behind links, which lead to another dataset of the same names and
// sizes for the moment of one look, whichever it is.
TEST_P(FormatConformance, AnIndexOfAnotherDatasetThanItsStampsIsUsedByNobody) {
  namespace fs = std::filesystem;
  std::set<std::string> with_records = {small_.one_file};
  {
    const auto plain = MustOpen();
    for (uint32_t object = 0; object < plain->objects(); ++object)
      with_records.insert(plain->ObjectPath(object));
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    names.push_back(entry.path().filename());
  for (const std::string side : {"a", "b"}) {
    fs::create_directory(folder_ / side);
    for (const std::string& name : names)
      fs::copy(folder_ / name, folder_ / (side + "/" + name), fs::copy_options::recursive);
  }
  for (const std::string& path : with_records) {
    if (path.empty() || !fs::exists(folder_ / path)) continue;  // one that was unpacked
    std::string other = ReadFile(folder_ / path);
    char& flipped = small_.flip.empty() ? other.back() : other.at(other.find(small_.flip));
    flipped = static_cast<char>(flipped ^ 1);
    folder_.Write("b/" + path, other);
  }
  const auto turn_to = [&](const std::string& side) {
    for (const std::string& name : names) {
      fs::create_symlink(side + "/" + name, folder_ / ".next");
      fs::rename(folder_ / ".next", folder_ / name);
    }
  };
  for (const std::string& name : names) fs::remove_all(folder_ / name);
  turn_to("a");

  const std::string good = Everything(*MustOpen());
  for (const std::string other : {"b", "nowhere"}) {
    int looks = 1;
    for (int chosen = -1; chosen < looks; ++chosen) {
      SCOPED_TRACE(absl::StrCat("look ", chosen, " led to ", other));
      fs::remove_all(state_.path());
      fs::create_directory(state_.path());
      std::shared_ptr<const Dataset> opened;
      {
        const PathLooks turned(
            chosen, [&] { turn_to(other); }, [&] { turn_to("a"); });
        if (auto dataset = opener_.Open(small_.yaml); dataset.ok()) opened = *std::move(dataset);
        if (chosen < 0) looks = turned.looks();
      }
      if (opened != nullptr && opened->LookAgain().ok()) {
        EXPECT_EQ(Everything(*opened), good);
      }
      const auto again = MustOpen();
      EXPECT_EQ(Everything(*again), good);
      EXPECT_TRUE(again->LookAgain().ok()) << again->LookAgain();
    }
    EXPECT_GT(looks, 2);
  }
}

TEST_P(FormatConformance, AnIndexThatIsFoundToBeWrongIsBuiltAnew) {
  const auto built = MustOpen();
  built->MarkOutOfDate(/*object=*/0);
  EXPECT_TRUE(absl::IsFailedPrecondition(built->LookAgain()));
  EXPECT_TRUE(MustOpen()->LookAgain().ok());
  EXPECT_EQ(opener_.builds, 2);
}

TEST_P(FormatConformance, OnePathInAnySpellingIsOneDataset) {
  MustOpen();
  const auto key = DatasetKey(ParseNode(small_.yaml));
  ASSERT_TRUE(key.ok()) << key.status();
  for (const char* spelling : {"path: ./", "path: .//", "path: ././"}) {
    std::string yaml = small_.yaml;
    yaml.replace(yaml.find("path: "), 6, spelling);
    EXPECT_EQ(*DatasetKey(ParseNode(yaml)), *key) << yaml;
    opener_.MustOpen(yaml);
  }
  EXPECT_EQ(opener_.builds, 1);
  // Nor does it matter whether a default is written out.
  for (const ParamInfo& param : Registry<FormatEntry>::Get().Find(GetParam())->params) {
    if (param.required || small_.yaml.find(param.name + ":") != std::string::npos) continue;
    const std::string yaml = absl::StrCat(small_.yaml.substr(0, small_.yaml.size() - 1), ", ",
                                          param.name, ": ", param.default_text, "}");
    EXPECT_EQ(*DatasetKey(ParseNode(yaml)), *key) << yaml;
  }
}

TEST_P(FormatConformance, TheDigestIsOfNamesSizesAndContentsAndNothingElse) {
  const std::string first = MustOpen()->digest();
  EXPECT_EQ(first.size(), 32u);
  opener_.rebuild = true;
  EXPECT_EQ(MustOpen()->digest(), first);
  {  // the same files elsewhere
    TempFolder other;
    small_.make(other);
    Opener elsewhere(other.path());
    elsewhere.staging = opener_.staging;
    EXPECT_EQ(elsewhere.MustOpen(small_.yaml)->digest(), first);
  }
  if (small_.one_file.empty()) return;
  if (small_.record_bytes > 0) {  // else its size cannot change alone
    const std::string content = ReadFile(folder_ / small_.one_file);
    folder_.Write(small_.one_file, content + content.substr(0, small_.record_bytes));
    const std::string grown = MustOpen()->digest();
    EXPECT_NE(grown, first);
    folder_.Write(small_.one_file, content);
    EXPECT_EQ(MustOpen()->digest(), first);
  }
  const size_t dot = small_.one_file.rfind('.');
  std::filesystem::rename(folder_ / small_.one_file, folder_ / (small_.one_file.substr(0, dot) +
                                                                "9" + small_.one_file.substr(dot)));
  EXPECT_NE(MustOpen()->digest(), first);
}

TEST_P(FormatConformance, OtherParametersAreAnotherIndex) {
  MustOpen();
  const FormatEntry* entry = Registry<FormatEntry>::Get().Find(GetParam());
  auto dataset = opener_.Open(small_.yaml);
  ASSERT_TRUE(dataset.ok());
  for (const ParamInfo& param : entry->params) {
    if (param.choices.empty()) continue;
    for (const std::string& choice :
         param.choices) {  // may fail for want of files, but not answer from the other's index
      const int builds = opener_.builds;
      auto other = opener_.Open(small_.yaml.substr(0, small_.yaml.size() - 1) + ", " + param.name +
                                ": " + choice + "}");
      const bool is_default =
          absl::StrCat("\"", choice, "\"") == param.default_text || choice == param.default_text;
      if (other.ok() && !is_default) {
        EXPECT_EQ(opener_.builds, builds + 1) << param.name << ": " << choice;
      }
    }
  }
}

TEST_P(FormatConformance, ADamagedIndexIsNoticedAtEveryByteAndBuiltAnew) {
  const std::string expected = Everything(*MustOpen());
  const std::string file = IndexFile();
  const std::string good = ReadFile(file);
  ASSERT_LT(good.size(), 20'000u);
  auto write = [&](const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; };
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x41);
    write(bad);
    ASSERT_EQ(LoadIndex(file, nullptr).status().code(), absl::StatusCode::kDataLoss)
        << "byte " << i;
  }
  for (size_t length = 0; length < good.size(); length += 1 + length / 16) {
    write(good.substr(0, length));
    ASSERT_EQ(LoadIndex(file, nullptr).status().code(), absl::StatusCode::kDataLoss)
        << length << " bytes";
  }
  int builds = opener_.builds;
  for (size_t i = 0; i < good.size(); i += good.size() / 20) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] + 1);
    write(bad);
    EXPECT_EQ(Everything(*MustOpen()), expected);
    EXPECT_EQ(opener_.builds, ++builds);
  }
  for (const std::string& foreign :
       {std::string(), std::string("x"), std::string(5000, '\0'), good + "tail"}) {
    write(foreign);
    EXPECT_EQ(Everything(*MustOpen()), expected);
    EXPECT_EQ(opener_.builds, ++builds);
  }
  MustOpen();
  EXPECT_EQ(opener_.builds, builds) << "the good index is back";
}

TEST_P(FormatConformance, AnIndexWithAValidChecksumAndWrongContentsDoesNoHarm) {
  const std::string expected = Everything(*MustOpen());
  const std::string file = IndexFile();
  const std::string good = ReadFile(file);
  std::mt19937_64 random(kSeed);
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  int opened = 0;
  for (int round = 0; round < 250; ++round) {
    std::string bad = good;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int e = 0; e < edits; ++e) {
      size_t at = 64 + random() % (bad.size() - 64);
      if (random() % 2 == 0) {
        bad[at] = static_cast<char>(random());
      } else {  // a number
        at = at / 8 * 8;
        const uint64_t values[] = {0, 1, UINT64_MAX, UINT32_MAX, uint64_t{1} << 63, random() % 100};
        std::memcpy(&bad[at], &values[random() % 6], std::min<size_t>(8, bad.size() - at));
      }
    }
    const XXH128_hash_t hash = XXH3_128bits(bad.data() + 64, bad.size() - 64);
    std::memcpy(&bad[24], &hash.low64, 8);
    std::memcpy(&bad[32], &hash.high64, 8);
    std::ofstream(file, std::ios::binary) << bad;
    const int builds = opener_.builds;
    auto dataset = opener_.Open(small_.yaml);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    if (opener_.builds > builds) {
      ASSERT_EQ(Everything(**dataset), expected);
      continue;
    }
    ++opened;
    ASSERT_FALSE(Everything(**dataset).empty());  // walks every column
    std::vector<Extent> extents;
    for (int64_t i = 0; i < (*dataset)->size(); ++i) {
      (*dataset)->Extents(i, &extents);
      for (const Extent& extent : extents) {
        ASSERT_GE(extent.offset, 0);
        ASSERT_GE(extent.length, 0);
      }
      Record record;
      (void)ParseBytes(**dataset, i, {"a"}, &record);
    }
  }
  EXPECT_GT(opened, 0) << "the edits should reach the format's own checks";
}

TEST_P(FormatConformance, AStateFolderThatCannotBeWrittenCostsOnlyTheReuse) {
  std::ofstream(state_ / "file") << "in the way";
  opener_.state_dir = state_ / "file";
  EXPECT_NE(MustOpen(), nullptr);
  opener_.state_dir = "";
  EXPECT_NE(MustOpen(), nullptr);
  EXPECT_EQ(opener_.builds, 2);
}

TEST_P(FormatConformance, ThreadsThatOpenAtOnceBuildOnce) {
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (std::string& result : results) {
    threads.emplace_back([&] { result = Everything(*MustOpen()); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_EQ(opener_.builds, 1);
}

TEST_P(FormatConformance, TheIndexIsAccountedForAndRefusedBeyondTheBudget) {
  opener_.budget = MemoryBudget::Create((1 << 20) + small_.build_bytes);
  {
    auto built = MustOpen();
    EXPECT_GT(opener_.budget->planned_bytes(), 0);
    EXPECT_LE(opener_.budget->planned_bytes(), built->memory_bytes());
    auto reused = MustOpen();
    EXPECT_EQ(opener_.builds, 1);
  }
  EXPECT_EQ(opener_.budget->planned_bytes(), 0);
  opener_.budget = MemoryBudget::Create(64);
  EXPECT_EQ(opener_.Open(small_.yaml).status().code(), absl::StatusCode::kResourceExhausted);
  opener_.rebuild = true;
  EXPECT_EQ(opener_.Open(small_.yaml).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_P(FormatConformance, AnOpeningThatIsGivenUpIsCancelledAndLeavesNothing) {
  opener_.budget = MemoryBudget::Create((1 << 20) + small_.build_bytes);
  opener_.given_up = [] { return true; };
  EXPECT_EQ(opener_.Open(small_.yaml).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(opener_.budget->planned_bytes(), 0);
  opener_.given_up = nullptr;
  MustOpen();
  EXPECT_EQ(opener_.builds, 1) << "no index was saved before";
  opener_.given_up = [] { return true; };
  EXPECT_EQ(opener_.Open(small_.yaml).status().code(), absl::StatusCode::kCancelled)
      << "its files are not all looked at";
  opener_.given_up = nullptr;
  MustOpen();
  EXPECT_EQ(opener_.builds, 1) << "the saved index is still there";
}

TEST_P(FormatConformance, AMissingPathNamesPathAndRoot) {
  TempFolder empty;
  Opener opener(empty.path());
  auto dataset = opener.Open(small_.yaml);
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kNotFound) << dataset.status();
  EXPECT_THAT(std::string(dataset.status().message()),
              HasSubstr("root 'root' (" + empty.path() + ")"));
}

TEST_P(FormatConformance, ADatasetBehindALinkOutOfTheRootIsRefused) {
  TempFolder outer;
  std::string path = small_.yaml.substr(small_.yaml.find("path: ") + 6);
  path = path.substr(0, path.find_first_of(",}"));
  std::filesystem::create_directory_symlink(folder_ / path, outer / path);
  Opener opener(outer.path());
  EXPECT_EQ(opener.Open(small_.yaml).status().code(), absl::StatusCode::kPermissionDenied);
}

INSTANTIATE_TEST_SUITE_P(Formats, FormatConformance, ::testing::ValuesIn(FormatsWithFiles()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace feedwater::server
