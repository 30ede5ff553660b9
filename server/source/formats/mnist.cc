// Format `mnist`: a pair of idx files, images and labels, as of MNIST, Fashion-MNIST, KMNIST and
// EMNIST. An idx file begins with a magic number that names type and number of axes, then the axes,
// big-endian, then the data. The header is checked against the file's size when the index is built;
// a sample is one read in each file.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "server/source/digest.h"
#include "server/source/file_patterns.h"
#include "server/source/format.h"

namespace feedwater::server {
namespace {

constexpr IndexTag kFiles = MakeIndexTag("file");     // paths of images and labels
constexpr IndexTag kUnpacked = MakeIndexTag("unpk");  // of both: 1: among the unpacked files

constexpr uint32_t kImagesMagic = 0x00000803,
                   kLabelsMagic = 0x00000801;  // unsigned bytes; 3 axes, 1 axis
constexpr int64_t kImagesHeader = 16, kLabelsHeader = 8;
constexpr uint32_t kImages = 0, kLabels = 1;  // object numbers

struct MnistParams {
  std::string split = "train";
  std::string images, labels;
  int64_t height = 28, width = 28;
  std::vector<std::string> classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
};

class MnistDataset final : public IndexedDataset {
 public:
  static absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts,
                                                             int64_t image_bytes) {
    FW_ASSIGN_OR_RETURN(TextColumn files, parts.index->Texts(kFiles));
    FW_ASSIGN_OR_RETURN(NumberColumn unpacked, parts.index->Numbers(kUnpacked));
    if (files.size() != 2 || unpacked.size() != 2 ||
        parts.records > (INT64_MAX - kImagesHeader) / image_bytes) {
      return absl::DataLossError("an mnist index whose columns do not fit together");
    }
    std::shared_ptr<MnistDataset> dataset(new MnistDataset(std::move(parts)));
    dataset->files_ = files;
    dataset->unpacked_ = unpacked;
    dataset->image_bytes_ = image_bytes;
    dataset->SetShardStarts({0});
    return dataset;
  }

  std::string ObjectPath(uint32_t object) const override { return std::string(files_[object]); }
  const Root& RootOf(uint32_t object) const override {
    const bool is_unpacked = unpacked_[object] != 0 && parts().staged != nullptr;
    return is_unpacked ? *parts().staged->root() : root();
  }
  int64_t objects() const override { return 2; }
  int64_t ObjectBytes(uint32_t object) const override {
    return object == kImages ? kImagesHeader + size() * image_bytes_ : kLabelsHeader + size();
  }

  void Extents(int64_t record, std::vector<Extent>* extents) const override {
    extents->assign({{kImages, kImagesHeader + record * image_bytes_, image_bytes_},
                     {kLabels, kLabelsHeader + record, 1}});
  }

  std::optional<StoredField> StoredAt(size_t field) const override {
    if (field == 0) return StoredField{kImages, 0};
    return StoredField{kLabels, 0, static_cast<int64_t>(classes().size())};
  }

  absl::Status Parse(int64_t record, absl::Span<const absl::Span<const std::byte>> bytes,
                     Record* out) const override {
    if (bytes.size() != 2 || bytes[0].size() != static_cast<size_t>(image_bytes_) ||
        bytes[1].size() != 1) {
      return absl::DataLossError(
          absl::StrCat("a record has an image of ", image_bytes_, " bytes and a label of 1"));
    }
    const auto label = static_cast<int64_t>(bytes[1][0]);
    if (label >= static_cast<int64_t>(classes().size())) {
      return absl::InvalidArgumentError(absl::StrCat("record ", record, " has label ", label,
                                                     ", but there are ", classes().size(),
                                                     " classes"));
    }
    Prepare(out, 1);
    out->fields[0].data =
        const_cast<std::byte*>(bytes[0].data());  // a Tensor is also how outputs are written
    out->inline_values[0] = label;
    out->fields[1].data = reinterpret_cast<std::byte*>(out->inline_values.data());
    return absl::OkStatus();
  }

 private:
  using IndexedDataset::IndexedDataset;
  TextColumn files_;
  NumberColumn unpacked_;
  int64_t image_bytes_ = 0;
};

class Mnist final : public Format {
 public:
  explicit Mnist(MnistParams params) : params_(std::move(params)) {}

  std::vector<FieldSpec> fields() const override {
    return {{"image",
             {DType::kUInt8, Layout::kHWC, {params_.height, params_.width, 1}},
             "The image, gray."},
            {"label", {DType::kInt64, Layout::kPlain, {}}, "Number of the class."}};
  }
  int64_t sections_version() const override { return 2; }

  absl::Status BuildIndex(const DatasetLocation& location, IndexBuilder* builder) const override {
    FW_ASSIGN_OR_RETURN(struct stat info, builder->DependOn(*location.root, location.path));
    if (!S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.Describe(), " is a file; mnist reads a folder with two"));
    }
    FW_ASSIGN_OR_RETURN(const FoundFile images,
                        FindFile(location, "images", params_.images, "idx3-ubyte", builder));
    FW_ASSIGN_OR_RETURN(const FoundFile labels,
                        FindFile(location, "labels", params_.labels, "idx1-ubyte", builder));
    FW_ASSIGN_OR_RETURN(std::vector<int64_t> image_axes,
                        ReadAxes(location, images, kImagesMagic, kImagesHeader));
    FW_ASSIGN_OR_RETURN(std::vector<int64_t> label_axes,
                        ReadAxes(location, labels, kLabelsMagic, kLabelsHeader));
    if (image_axes[1] != params_.height || image_axes[2] != params_.width) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.root->Describe(images.path), " has images of ", image_axes[1], "x",
                       image_axes[2], ", not ", params_.height, "x", params_.width,
                       "; cure: height: ", image_axes[1], ", width: ", image_axes[2]));
    }
    if (image_axes[0] != label_axes[0]) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.root->Describe(images.path), " has ", image_axes[0], " images and ",
                       location.root->Describe(labels.path), " has ", label_axes[0], " labels"));
    }
    Digest digest;
    digest.Add("mnist");
    for (const FoundFile* file : {&images, &labels})
      digest.Add(NameInDataset(location, file->path));
    for (int64_t axis : image_axes) digest.Add(static_cast<uint64_t>(axis));
    TextList files;
    files.Add(images.path_to_read());
    files.Add(labels.path_to_read());
    builder->records = image_axes[0];
    builder->classes = params_.classes;
    builder->digest = digest.Hex();
    builder->columns.Add(kFiles, files);
    builder->columns.Add(kUnpacked,
                         std::vector<uint64_t>{images.staged != nullptr, labels.staged != nullptr});
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(IndexedParts parts) const override {
    return MnistDataset::Open(std::move(parts), params_.height * params_.width);
  }

 private:
  // The usual names of a split's file, compressed or not.
  static std::vector<std::string> NamesOf(absl::string_view split, absl::string_view what,
                                          absl::string_view suffix) {
    const std::string stem = absl::StrCat(split == "train" ? "train" : "t10k", "-", what);
    std::vector<std::string> names = {absl::StrCat(stem, "-", suffix),
                                      absl::StrCat(stem, ".", suffix)};
    for (size_t i = 0; i < 2; ++i) names.push_back(names[i] + ".gz");
    return names;
  }

  // The file that was named, or the one of the split under any of its usual names.
  absl::StatusOr<FoundFile> FindFile(const DatasetLocation& location, absl::string_view what,
                                     const std::string& named, absl::string_view suffix,
                                     IndexBuilder* builder) const {
    const std::vector<std::string> names =
        named.empty() ? NamesOf(params_.split, what, suffix) : std::vector<std::string>{named};
    for (const std::string& name : names) {
      const absl::StatusOr<struct stat> info =
          builder->DependOn(*location.root, location.Below(name));
      if (absl::IsNotFound(info.status())) continue;
      if (!info.ok()) return info.status();
      FW_ASSIGN_OR_RETURN(std::vector<FoundFile> found, FindFiles(location, {name}, {}, builder));
      return std::move(found[0]);
    }
    const char* const other = params_.split == "train" ? "test" : "train";
    for (const std::string& name : NamesOf(other, what, suffix)) {
      if (!named.empty() || !location.root->Stat(location.Below(name)).ok()) continue;
      return absl::NotFoundError(absl::StrCat(
          location.Describe(), " has no ", names[0], ", but ", name, "; cure: `split: ", other,
          "`, which reads that, or the files of `split: ", params_.split, "` beside it"));
    }
    return absl::NotFoundError(
        absl::StrCat(location.Describe(), " has no ", absl::StrJoin(names, " and no "),
                     "; cure: `path` of the folder that holds it, or `", what, ": FILE`"));
  }

  static absl::StatusOr<std::vector<int64_t>> ReadAxes(const DatasetLocation& location,
                                                       const FoundFile& file, uint32_t magic,
                                                       int64_t header_bytes) {
    FW_ASSIGN_OR_RETURN(const std::string head, ReadHead(file.RootIn(location), file.path_to_read(),
                                                         static_cast<size_t>(header_bytes)));
    const std::string what = location.root->Describe(file.path);
    if (absl::StartsWith(head, "\x1f\x8b")) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is compressed with gzip; cure: name it .gz"));
    }
    if (head.size() < static_cast<size_t>(header_bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is shorter than an idx header of ", header_bytes, " bytes"));
    }
    auto number = [&](size_t i) {
      uint32_t value = 0;
      for (size_t k = 0; k < 4; ++k)
        value = value << 8 | static_cast<unsigned char>(head[i * 4 + k]);
      return value;
    };
    if (number(0) != magic) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s begins with %08x, not %08x: not an idx file of unsigned bytes with %d axes", what,
          number(0), magic, magic & 0xff));
    }
    std::vector<int64_t> axes;
    int64_t bytes = 1;
    for (size_t i = 1; i < static_cast<size_t>(header_bytes) / 4; ++i) {
      axes.push_back(number(i));
      if (__builtin_mul_overflow(bytes, axes.back(), &bytes)) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, ": its axes make more bytes than a file can have"));
      }
    }
    int64_t file_bytes;
    if (__builtin_add_overflow(bytes, header_bytes, &file_bytes) || file_bytes != file.bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, " has ", file.bytes, " bytes where its header of ", absl::StrJoin(axes, "x"),
          " asks for ", bytes, " + ", header_bytes, ": truncated or damaged"));
    }
    return axes;
  }

  const MnistParams params_;
};

const Registrar kRegistrar(
    "mnist",
    DeclareFormat<Mnist>(
        "A pair of idx files, also compressed (.gz): MNIST, Fashion-MNIST, KMNIST, EMNIST.",
        "dataset: {format: mnist, root: data, path: MNIST/raw}",
        FormatSchema<MnistParams>()
            .Param("split", &MnistParams::split, "train reads train-*, test reads t10k-*.",
                   OneOf({"train", "test"}))
            .File("images", &MnistParams::images,
                  "Image file below `path`, when it has not the split's usual name.")
            .File("labels", &MnistParams::labels,
                  "Label file below `path`, when it has not the split's usual name.")
            .Param("height", &MnistParams::height, "Rows of an image; the file must agree.",
                   Range(1, 65536))
            .Param("width", &MnistParams::width, "Columns of an image; the file must agree.",
                   Range(1, 65536))
            .Param("classes", &MnistParams::classes, "Class names by label.")));

}  // namespace
}  // namespace feedwater::server
