// Formats `cifar10` and `cifar100`: their binary versions. A record is the label (of CIFAR-100 the
// coarse one and the fine one), then 32x32 pixels of red, of green and of blue. Images are
// delivered as HWC, as every image op takes them, which costs a copy of 3 KiB a sample.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/source/digest.h"
#include "server/source/file_stream.h"
#include "server/source/format.h"
#include "server/source/interleave.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kFiles = MakeIndexTag("file");       // paths below the root, in record order
constexpr IndexTag kFileStarts = MakeIndexTag("fsta");  // first record of each file, and the end

constexpr int64_t kSide = 32, kPixels = kSide * kSide, kChannels = 3;
constexpr int64_t kImageBytes = kPixels * kChannels;

// What differs between the two.
struct Variant {
  const char* format;
  int64_t label_bytes;                   // at the begin of a record; the last one is the label
  std::vector<const char*> classes;      // well-known names by label
  size_t coarse_classes;                 // 0: there are none
  const char* class_file;                // with the same names, where it is there
  const char *train_files, *test_files;  // how their names begin
  const char *archive, *folder;          // what is unpacked, and to where
  const char* pickles;                   // the folder of Python's version, which is not read

  int64_t record_bytes() const { return label_bytes + kImageBytes; }
};

const Variant& Cifar10Variant() {
  static const Variant variant = {
      "cifar10",
      1,
      {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"},
      0,
      "batches.meta.txt",
      "data_batch_",
      "test_batch",
      "cifar-10-binary.tar.gz",
      "cifar-10-batches-bin",
      "cifar-10-batches-py"};
  return variant;
}

const Variant& Cifar100Variant() {
  static const Variant variant = {
      "cifar100",
      2,
      {"apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
       "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
       "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
       "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
       "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
       "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
       "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
       "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
       "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
       "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
       "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
       "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
       "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
       "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
       "table",       "tank",          "telephone", "television", "tiger",        "tractor",
       "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
       "willow_tree", "wolf",          "woman",     "worm"},
      20,
      "fine_label_names.txt",
      "train",
      "test",
      "cifar-100-binary.tar.gz",
      "cifar-100-binary",
      "cifar-100-python"};
  return variant;
}

class CifarDataset final : public IndexedDataset {
 public:
  static absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts,
                                                             const Variant& variant) {
    const int64_t records = parts.records;
    std::shared_ptr<CifarDataset> dataset(new CifarDataset(std::move(parts), variant));
    FW_ASSIGN_OR_RETURN(TextColumn files, dataset->parts().index->Texts(kFiles));
    FW_ASSIGN_OR_RETURN(dataset->starts_, dataset->parts().index->Numbers(kFileStarts));
    if (records > INT64_MAX / variant.record_bytes() || files.size() == 0 ||
        files.size() > UINT32_MAX || dataset->starts_.size() != files.size() + 1 ||
        !dataset->starts_.Divides(static_cast<uint64_t>(records)) ||
        dataset->classes().size() != variant.classes.size()) {
      return absl::DataLossError("an index whose columns do not fit together");
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
    return static_cast<int64_t>(starts_[object + 1] - starts_[object]) * variant_.record_bytes();
  }

  void Extents(int64_t record, std::vector<Extent>* extents) const override {
    const size_t file = starts_.RangeOf(static_cast<uint64_t>(record));
    const int64_t place = record - static_cast<int64_t>(starts_[file]);
    const int64_t bytes = variant_.record_bytes();
    extents->assign(1, {static_cast<uint32_t>(file), place * bytes, bytes});
  }

  std::optional<StoredField> StoredAt(size_t field) const override {
    const int64_t fine = variant_.label_bytes - 1;
    if (field == 0) return StoredField{0, variant_.label_bytes, 0, Unpack};
    if (field == 1) return StoredField{0, fine, static_cast<int64_t>(variant_.classes.size())};
    return StoredField{0, 0, static_cast<int64_t>(variant_.coarse_classes)};
  }

  absl::Status Parse(int64_t record, absl::Span<const absl::Span<const std::byte>> bytes,
                     Record* out) const override {
    if (bytes.size() != 1 || bytes[0].size() != static_cast<size_t>(variant_.record_bytes())) {
      return absl::DataLossError(
          absl::StrCat("a ", variant_.format, " record has ", variant_.record_bytes(), " bytes"));
    }
    const std::byte* from = bytes[0].data();
    const auto label = static_cast<size_t>(from[variant_.label_bytes - 1]);
    const size_t coarse = variant_.coarse_classes > 0 ? static_cast<size_t>(from[0]) : 0;
    if (label >= variant_.classes.size()) {
      return absl::InvalidArgumentError(absl::StrCat("record ", record, " has label ", label,
                                                     ", not 0 to ", variant_.classes.size() - 1));
    }
    if (variant_.coarse_classes > 0 && coarse >= variant_.coarse_classes) {
      return absl::InvalidArgumentError(absl::StrCat("record ", record, " has coarse label ",
                                                     coarse, ", not 0 to ",
                                                     variant_.coarse_classes - 1));
    }
    Prepare(out, static_cast<size_t>(variant_.label_bytes));
    out->scratch.resize(kImageBytes);
    std::byte* to = out->scratch.data();
    Unpack(from + variant_.label_bytes, kImageBytes, to);
    out->fields[0].data = to;
    out->inline_values[0] = static_cast<int64_t>(label);
    if (variant_.coarse_classes > 0) out->inline_values[1] = static_cast<int64_t>(coarse);
    for (size_t i = 0; i < out->inline_values.size(); ++i)
      out->fields[1 + i].data = reinterpret_cast<std::byte*>(&out->inline_values[i]);
    return absl::OkStatus();
  }

 private:
  CifarDataset(IndexedParts parts, const Variant& variant)
      : IndexedDataset(std::move(parts)), variant_(variant) {}
  static void Unpack(const std::byte* planes, size_t /*bytes*/, std::byte* pixels) {
    Interleave3(reinterpret_cast<const uint8_t*>(planes), kPixels, kPixels,
                reinterpret_cast<uint8_t*>(pixels));
  }

  const Variant& variant_;
  TextColumn files_;
  NumberColumn starts_;
};

class Cifar : public Format {
 public:
  struct Params {
    std::string split = "train";
    std::vector<std::string> files;
  };
  Cifar(Params params, const Variant& variant) : params_(std::move(params)), variant_(variant) {}

  std::vector<FieldSpec> fields() const override {
    const TensorSpec label{DType::kInt64, Layout::kPlain, {}};
    std::vector<FieldSpec> fields = {
        {"image", {DType::kUInt8, Layout::kHWC, {kSide, kSide, kChannels}}, "The image, RGB."},
        {"label", label, absl::StrCat("Class, 0 to ", variant_.classes.size() - 1, ".")}};
    if (variant_.coarse_classes > 0) {
      fields.push_back({"coarse_label", label,
                        absl::StrCat("Superclass, 0 to ", variant_.coarse_classes - 1, ".")});
    }
    return fields;
  }
  int64_t sections_version() const override { return 2; }

  absl::Status BuildIndex(const DatasetLocation& location, IndexBuilder* builder) const override {
    const absl::StatusOr<struct stat> there = builder->DependOn(*location.root, location.path);
    if (!there.ok()) return WithPickles(there.status(), location);
    const struct stat info = *there;
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
      FW_ASSIGN_OR_RETURN(names, FindFiles(location, builder));
    }

    Digest digest;
    digest.Add(variant_.format);
    TextList files;
    std::vector<uint64_t> starts = {0};
    for (const std::string& name : names) {
      const std::string path = DatasetLocation::JoinPath(folder, name);
      FW_RETURN_IF_ERROR(builder->Take(static_cast<int64_t>(2 * (sizeof(Stamp) + path.size()))));
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(starts.back()), 0));
      FW_ASSIGN_OR_RETURN(struct stat file, builder->DependOn(*location.root, path));
      const std::string what = location.root->Describe(path);
      if (!S_ISREG(file.st_mode))
        return absl::InvalidArgumentError(absl::StrCat(what, " is not a regular file"));
      if (file.st_size == 0) {
        return absl::InvalidArgumentError(absl::StrCat(what, " is empty"));
      }
      const int64_t record_bytes = variant_.record_bytes();
      if (file.st_size % record_bytes != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " has ", file.st_size, " bytes, which is not a multiple of ",
                         record_bytes, ": ", file.st_size % record_bytes,
                         " bytes are left over; it is truncated or not the binary "
                         "version that ",
                         variant_.format, " reads"));
      }
      files.Add(path);
      digest.Add(name);
      digest.Add(static_cast<uint64_t>(file.st_size));
      starts.push_back(starts.back() + static_cast<uint64_t>(file.st_size / record_bytes));
    }
    FW_ASSIGN_OR_RETURN(builder->classes, ClassNames(*location.root, folder, builder));
    builder->records = static_cast<int64_t>(starts.back());
    builder->digest = digest.Hex();
    builder->columns.Add(kFiles, files);
    builder->columns.Add(kFileStarts, starts);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) const override {
    return CifarDataset::Open(std::move(parts), variant_);
  }

 private:
  absl::StatusOr<std::vector<std::string>> FindFiles(const DatasetLocation& location,
                                                     IndexBuilder* builder) const {
    const absl::string_view prefix =
        params_.split == "train" ? variant_.train_files : variant_.test_files;
    FW_ASSIGN_OR_RETURN(std::vector<std::string> names,
                        ListFolder(*location.root, location.path, builder));
    std::vector<std::string> found;
    for (std::string& name : names) {
      if (absl::StartsWith(name, prefix) && absl::EndsWith(name, ".bin"))
        found.push_back(std::move(name));
    }
    if (found.empty()) {
      return absl::NotFoundError(absl::StrCat(
          location.Describe(), " has no ", prefix, "*.bin; cure: unpack the binary version (",
          variant_.archive, ") there, point `path` at its folder ", variant_.folder,
          ", or name the `files`"));
    }
    return found;
  }

  // Where Python's version lies in its stead, as torchvision downloads it.
  absl::Status WithPickles(const absl::Status& status, const DatasetLocation& location) const {
    const size_t slash = location.path.rfind('/');
    const std::string beside = DatasetLocation::JoinPath(
        slash == std::string::npos ? "" : location.path.substr(0, slash), variant_.pickles);
    if (!absl::IsNotFound(status) || !location.root->Stat(beside).ok()) return status;
    return absl::NotFoundError(absl::StrCat(
        status.message(), "; there is '", variant_.pickles,
        "': Python's pickles, which no format reads; cure: unpack the binary version (",
        variant_.archive, ") beside it, whose folder is ", variant_.folder));
  }

  // From the dataset's own list where it has one, else the well-known names.
  absl::StatusOr<std::vector<std::string>> ClassNames(const Root& root, const std::string& folder,
                                                      IndexBuilder* builder) const {
    const std::string path = DatasetLocation::JoinPath(folder, variant_.class_file);
    std::vector<std::string> names;
    absl::StatusOr<struct stat> info = builder->DependOn(root, path);
    if (info.ok()) {
      FW_ASSIGN_OR_RETURN(std::string text, ReadHead(root, path, 4096));
      for (absl::string_view line : absl::StrSplit(absl::StripPrefix(text, kByteOrderMark), '\n')) {
        line = absl::StripAsciiWhitespace(line);
        if (!line.empty()) names.emplace_back(line);
      }
      if (names.size() != variant_.classes.size()) {
        return absl::InvalidArgumentError(absl::StrCat(root.Describe(path), " has ", names.size(),
                                                       " class names, not ",
                                                       variant_.classes.size()));
      }
      return names;
    }
    if (!absl::IsNotFound(info.status())) return info.status();
    names.assign(variant_.classes.begin(), variant_.classes.end());
    return names;
  }

  const Params params_;
  const Variant& variant_;
};

class Cifar10 final : public Cifar {
 public:
  explicit Cifar10(Params params) : Cifar(std::move(params), Cifar10Variant()) {}
};
class Cifar100 final : public Cifar {
 public:
  explicit Cifar100(Params params) : Cifar(std::move(params), Cifar100Variant()) {}
};

FormatSchema<Cifar::Params> CifarSchema(const std::string& splits) {
  return FormatSchema<Cifar::Params>()
      .Param("split", &Cifar::Params::split, splits, OneOf({"train", "test"}))
      .Files("files", &Cifar::Params::files,
             "File names below `path`, in this order, instead of the split's.");
}

const Registrar kCifar10(
    "cifar10", DeclareFormat<Cifar10>(
                   "CIFAR-10, binary version: files of 3,073-byte records.",
                   "dataset: {format: cifar10, root: data, path: cifar-10-batches-bin}",
                   CifarSchema("train reads data_batch_*.bin, test reads test_batch.bin.")));
const Registrar kCifar100(
    "cifar100",
    DeclareFormat<Cifar100>("CIFAR-100, binary version: files of 3,074-byte records.",
                            "dataset: {format: cifar100, root: data, path: cifar-100-binary}",
                            CifarSchema("train reads train*.bin, test reads test*.bin.")));

}  // namespace
}  // namespace feedwater::server
