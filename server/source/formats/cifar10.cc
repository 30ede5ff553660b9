// Format `cifar10`: the binary version of CIFAR-10. A record is 3,073 bytes: the label, then 32x32
// pixels of red, of green and of blue. Images are delivered as HWC, as every image op takes them,
// which costs a copy of 3 KiB a sample.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "server/source/digest.h"
#include "server/source/format.h"
#include "server/source/interleave.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kFiles = MakeIndexTag("file");       // paths below the root, in record order
constexpr IndexTag kFileStarts = MakeIndexTag("fsta");  // first record of each file, and the end

constexpr int64_t kSide = 32, kPixels = kSide * kSide, kChannels = 3;
constexpr int64_t kRecordBytes = 1 + kPixels * kChannels;
constexpr size_t kClasses = 10;
constexpr const char* kClassNames[kClasses] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                               "dog",      "frog",       "horse", "ship", "truck"};
constexpr const char* kClassFile = "batches.meta.txt";

class Cifar10Dataset final : public IndexedDataset {
 public:
  static absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) {
    const int64_t records = parts.records;
    std::shared_ptr<Cifar10Dataset> dataset(new Cifar10Dataset(std::move(parts)));
    FW_ASSIGN_OR_RETURN(TextColumn files, dataset->parts().index->Texts(kFiles));
    FW_ASSIGN_OR_RETURN(dataset->starts_, dataset->parts().index->Numbers(kFileStarts));
    if (records > INT64_MAX / kRecordBytes || files.size() == 0 || files.size() > UINT32_MAX ||
        dataset->starts_.size() != files.size() + 1 ||
        !dataset->starts_.Divides(static_cast<uint64_t>(records)) ||
        dataset->classes().size() != kClasses) {
      return absl::DataLossError("a cifar10 index whose columns do not fit together");
    }
    dataset->files_ = files;
    std::vector<int64_t> starts;
    for (size_t i = 0; i < files.size(); ++i)
      starts.push_back(static_cast<int64_t>(dataset->starts_[i]));
    dataset->SetShardStarts(std::move(starts));
    return dataset;
  }

  std::string ObjectPath(uint32_t object) const override { return std::string(files_[object]); }
  int64_t objects() const override { return static_cast<int64_t>(files_.size()); }
  int64_t ObjectBytes(uint32_t object) const override {
    return static_cast<int64_t>(starts_[object + 1] - starts_[object]) * kRecordBytes;
  }

  void Extents(int64_t record, std::vector<Extent>* extents) const override {
    const size_t file = starts_.RangeOf(static_cast<uint64_t>(record));
    const int64_t place = record - static_cast<int64_t>(starts_[file]);
    extents->assign(1, {static_cast<uint32_t>(file), place * kRecordBytes, kRecordBytes});
  }

  absl::Status Parse(int64_t record, absl::Span<const absl::Span<const std::byte>> bytes,
                     Record* out) const override {
    if (bytes.size() != 1 || bytes[0].size() != static_cast<size_t>(kRecordBytes)) {
      return absl::DataLossError(absl::StrCat("a CIFAR-10 record has ", kRecordBytes, " bytes"));
    }
    const std::byte* from = bytes[0].data();
    const auto label = static_cast<int64_t>(from[0]);
    if (label >= static_cast<int64_t>(kClasses)) {
      return absl::InvalidArgumentError(
          absl::StrCat("record ", record, " has label ", label, ", not 0 to 9"));
    }
    Prepare(out, 1);
    out->scratch.resize(kPixels * kChannels);
    std::byte* to = out->scratch.data();
    Interleave3(reinterpret_cast<const uint8_t*>(from + 1), kPixels, kPixels,
                reinterpret_cast<uint8_t*>(to));
    out->fields[0].data = to;
    out->inline_values[0] = label;
    out->fields[1].data = reinterpret_cast<std::byte*>(out->inline_values.data());
    return absl::OkStatus();
  }

 private:
  using IndexedDataset::IndexedDataset;
  TextColumn files_;
  NumberColumn starts_;
};

class Cifar10 final : public Format {
 public:
  struct Params {
    std::string split = "train";
    std::vector<std::string> files;
  };
  explicit Cifar10(Params params) : params_(std::move(params)) {}

  std::vector<FieldSpec> fields() const override {
    return {{"image", {DType::kUInt8, Layout::kHWC, {kSide, kSide, kChannels}}, "The image, RGB."},
            {"label", {DType::kInt64, Layout::kPlain, {}}, "Class, 0 to 9."}};
  }
  int64_t sections_version() const override { return 1; }

  absl::Status BuildIndex(const DatasetLocation& location, IndexBuilder* builder) const override {
    FW_ASSIGN_OR_RETURN(struct stat info, builder->DependOn(*location.root, location.path));
    std::string folder = location.path;
    std::vector<std::string> names = params_.files;
    if (!S_ISDIR(info.st_mode)) {
      if (!names.empty())
        return absl::InvalidArgumentError(
            absl::StrCat(location.Describe(), " is a file; `files` needs a folder"));
      const size_t slash = folder.rfind('/');
      names = {slash == std::string::npos ? folder : folder.substr(slash + 1)};
      folder = slash == std::string::npos ? "" : folder.substr(0, slash);
    } else if (names.empty()) {
      FW_ASSIGN_OR_RETURN(names, FindFiles(location));
    }

    Digest digest;
    digest.Add("cifar10");
    TextList files;
    std::vector<uint64_t> starts = {0};
    for (const std::string& name : names) {
      const std::string path = DatasetLocation::JoinPath(folder, name);
      FW_ASSIGN_OR_RETURN(struct stat file, builder->DependOn(*location.root, path));
      const std::string what = location.root->Describe(path);
      if (!S_ISREG(file.st_mode))
        return absl::InvalidArgumentError(absl::StrCat(what, " is not a regular file"));
      if (file.st_size == 0) {
        return absl::InvalidArgumentError(absl::StrCat(what, " is empty"));
      }
      if (file.st_size % kRecordBytes != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " has ", file.st_size, " bytes, which is not a multiple of ",
                         kRecordBytes, ": ", file.st_size % kRecordBytes,
                         " bytes are left over; it is truncated or not CIFAR-10's binary version"));
      }
      files.Add(path);
      digest.Add(name);
      digest.Add(static_cast<uint64_t>(file.st_size));
      starts.push_back(starts.back() + static_cast<uint64_t>(file.st_size / kRecordBytes));
    }
    FW_ASSIGN_OR_RETURN(builder->classes, ClassNames(*location.root, folder, builder));
    builder->records = static_cast<int64_t>(starts.back());
    builder->digest = digest.Hex();
    builder->columns.Add(kFiles, files);
    builder->columns.Add(kFileStarts, starts);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) const override {
    return Cifar10Dataset::Open(std::move(parts));
  }

 private:
  absl::StatusOr<std::vector<std::string>> FindFiles(const DatasetLocation& location) const {
    const absl::string_view prefix = params_.split == "train" ? "data_batch_" : "test_batch";
    FW_ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(*location.root, location.path));
    std::vector<std::string> found;
    for (std::string& name : names) {
      if (absl::StartsWith(name, prefix) && absl::EndsWith(name, ".bin"))
        found.push_back(std::move(name));
    }
    if (found.empty()) {
      return absl::NotFoundError(absl::StrCat(location.Describe(), " has no ", prefix,
                                              "*.bin; cure: unpack CIFAR-10's binary version "
                                              "(cifar-10-binary.tar.gz) there, point `path` at its "
                                              "folder cifar-10-batches-bin, or name the `files`"));
    }
    return found;
  }

  // From the dataset's own list where it has one, else the well-known names.
  static absl::StatusOr<std::vector<std::string>> ClassNames(const Root& root,
                                                             const std::string& folder,
                                                             IndexBuilder* builder) {
    const std::string path = DatasetLocation::JoinPath(folder, kClassFile);
    std::vector<std::string> names;
    FW_RETURN_IF_ERROR(
        builder->DependOn(root, folder).status());  // shows when the list appears later
    absl::StatusOr<struct stat> info = builder->DependOn(root, path);
    if (info.ok()) {
      FW_ASSIGN_OR_RETURN(std::string text, ReadHead(root, path, 4096));
      for (absl::string_view line : absl::StrSplit(text, '\n')) {
        line = absl::StripAsciiWhitespace(line);
        if (!line.empty()) names.emplace_back(line);
      }
      if (names.size() != kClasses) {
        return absl::InvalidArgumentError(absl::StrCat(root.Describe(path), " has ", names.size(),
                                                       " class names, not ", kClasses));
      }
      return names;
    }
    if (!absl::IsNotFound(info.status())) return info.status();
    names.assign(std::begin(kClassNames), std::end(kClassNames));
    return names;
  }

  const Params params_;
};

const Registrar kRegistrar(
    "cifar10", DeclareFormat<Cifar10>(
                   "CIFAR-10, binary version: files of 3,073-byte records.",
                   "dataset: {format: cifar10, root: data, path: cifar-10-batches-bin}",
                   FormatSchema<Cifar10::Params>()
                       .Param("split", &Cifar10::Params::split,
                              "train reads data_batch_*.bin, test reads test_batch.bin.",
                              OneOf({"train", "test"}))
                       .Files("files", &Cifar10::Params::files,
                              "File names below `path`, in this order, instead of the split's.")));

}  // namespace
}  // namespace feedwater::server
