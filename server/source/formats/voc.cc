// Format `voc`: images with boxes as Pascal VOC has them. A list of names says which images; each
// has a JPEG file and an XML file of that name. The XML files are read once, when the index is
// made; a record is then one read, of the image file, and with `masks` one of its PNG of objects.
// Records have the order of the list.
//
// The index keeps the boxes: 28 bytes each, and some 30 bytes and the file's name for each image,
// besides the stamp of its XML file.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/source/annotated_images.h"
#include "server/source/file_stream.h"
#include "server/source/voc_annotation.h"

namespace feedwater::server {
namespace {

struct VocParams {
  std::string image_set = "train";
  std::vector<std::string> classes;
  std::string invalid_boxes = "drop";
  FieldRequests fields;
};

constexpr const char* kClasses[] = {"aeroplane",   "bicycle", "bird",  "boat",      "bottle",
                                    "bus",         "car",     "cat",   "chair",     "cow",
                                    "diningtable", "dog",     "horse", "motorbike", "person",
                                    "pottedplant", "sheep",   "sofa",  "train",     "tvmonitor"};
constexpr int64_t kMaxListBytes = 256 << 20;
constexpr int64_t kBytesPerObject = 2 * sizeof(VocAnnotation::Object);
constexpr int64_t kBytesPerStamp = 2 * sizeof(Stamp);

class Voc final : public AnnotatedImagesFormat {
 public:
  explicit Voc(VocParams params)
      : AnnotatedImagesFormat(params.fields, /*has_mask_files=*/true), params_(std::move(params)) {}
  int64_t sections_version() const override { return 2; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_RETURN_IF_ERROR(CheckHasImageFile(requests()));
    FW_ASSIGN_OR_RETURN(const std::vector<std::string> names, ReadNames(location, builder));
    std::vector<VocAnnotation> annotations;
    annotations.reserve(names.size());
    for (const std::string& name : names) {
      FW_ASSIGN_OR_RETURN(VocAnnotation one, ReadOne(location, name, builder));
      annotations.push_back(std::move(one));
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(annotations.size()), 0));
    }
    builder->classes = ClassesOf(annotations);
    if (builder->classes.size() > kMaxClasses) {
      return absl::InvalidArgumentError(
          absl::StrCat(location.Describe(), " has more than ", kMaxClasses, " classes"));
    }
    absl::flat_hash_map<std::string, uint64_t> labels;
    Digest digest;
    for (const std::string& name : builder->classes) {
      if (!labels.emplace(name, labels.size()).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("'classes' names '", Printable(name), "' twice"));
      }
      digest.Add(name);
    }
    AnnotatedImages list({{"difficult", DType::kInt64,
                           "1: hard to recognise, which evaluations leave out; else 0."}},
                         InvalidBoxesOf(params_.invalid_boxes));
    const bool with_masks = AsksFor("mask_file");
    if (with_masks || AsksFor("instance")) list.NumberAsAdded();
    for (size_t i = 0; i < names.size(); ++i) {
      const VocAnnotation& image = annotations[i];
      const std::string file = absl::StrCat("JPEGImages/", names[i], ".jpg");
      FW_RETURN_IF_ERROR(list.AddImage(file, i, static_cast<uint64_t>(image.width),
                                       static_cast<uint64_t>(image.height), builder));
      digest.Add(file);
      if (with_masks) {
        FW_RETURN_IF_ERROR(
            list.AddMaskFile(absl::StrCat("SegmentationObject/", names[i], ".png"), builder));
      }
      for (const VocAnnotation::Object& object : image.objects) {
        const auto label = labels.find(object.name);
        const std::string what = absl::StrCat("an object '", Printable(object.name), "' of ",
                                              location.root->Describe(XmlOf(location, names[i])));
        if (label == labels.end())
          return absl::InvalidArgumentError(
              absl::StrCat(what, " is of none of the dataset's 'classes'"));
        // Pixels from 1 on with those of the edges, to edges from 0 on.
        const auto& [left, top, right, bottom] = object.box;
        FW_RETURN_IF_ERROR(list.AddBox({static_cast<float>(left - 1), static_cast<float>(top - 1),
                                        static_cast<float>(right), static_cast<float>(bottom)},
                                       label->second, {object.is_difficult}, what, builder));
      }
    }
    list.AddTo(location, digest, builder);
    *columns = list.Columns();
    return absl::OkStatus();
  }

  std::vector<FieldRequest> DefaultFields(const std::vector<ColumnSpec>&) const override {
    return ImageFileAnd({"boxes", "labels", "image_id", "difficult"});
  }

 private:
  static std::string XmlOf(const DatasetLocation& location, const std::string& name) {
    return location.Below(absl::StrCat("Annotations/", name, ".xml"));
  }

  // A line is a name, and in the lists of one class a number behind it.
  absl::StatusOr<std::vector<std::string>> ReadNames(const DatasetLocation& location,
                                                     IndexBuilder* builder) const {
    const std::vector<absl::string_view> parts = absl::StrSplit(params_.image_set, '/');
    if (parts.size() > 2 || absl::c_any_of(parts, [](absl::string_view part) {
          return part.empty() || part[0] == '.';
        })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "image_set is '", Printable(params_.image_set),
          "': it is the name of a list in ImageSets/Main of ", location.Describe(),
          ", or FOLDER/NAME of one in another folder of ImageSets, such as Segmentation/train"));
    }
    const std::string path = location.Below(
        absl::StrCat("ImageSets/", parts.size() == 2 ? "" : "Main/", params_.image_set, ".txt"));
    const std::string what = location.root->Describe(path);
    FW_ASSIGN_OR_RETURN(const struct stat info, builder->DependOn(*location.root, path));
    if (info.st_size > kMaxListBytes)
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is no list of names: it has ", info.st_size, " bytes"));
    FW_RETURN_IF_ERROR(builder->Take(3 * info.st_size));
    FW_ASSIGN_OR_RETURN(const std::string text,
                        ReadHead(*location.root, path, static_cast<size_t>(info.st_size)));
    std::vector<std::string> names;
    int64_t line = 0;
    for (const absl::string_view row :
         absl::StrSplit(absl::StripPrefix(text, kByteOrderMark), '\n')) {
      ++line;
      const std::vector<absl::string_view> words = absl::StrSplit(
          absl::StripAsciiWhitespace(row), absl::ByAnyChar(" \t"), absl::SkipEmpty());
      if (words.empty()) continue;
      const absl::string_view name = words[0];
      if (name.find('/') != absl::string_view::npos || name[0] == '.' || words.size() > 2) {
        return absl::InvalidArgumentError(absl::StrCat(
            what, " line ", line, " has '", Printable(absl::StripAsciiWhitespace(row)),
            "', not the name of an image as the files of JPEGImages have it, without '.jpg'"));
      }
      FW_RETURN_IF_ERROR(builder->Take(sizeof(std::string) + sizeof(VocAnnotation)));
      names.emplace_back(name);
    }
    return names;
  }

  static absl::StatusOr<VocAnnotation> ReadOne(const DatasetLocation& location,
                                               const std::string& name, IndexBuilder* builder) {
    const std::string path = XmlOf(location, name);
    FW_RETURN_IF_ERROR(builder->Take(kBytesPerStamp + 2 * static_cast<int64_t>(path.size())));
    FW_ASSIGN_OR_RETURN(const struct stat info, builder->DependOn(*location.root, path));
    const auto bytes = std::min<int64_t>(info.st_size, kMaxVocBytes + 1);
    FW_ASSIGN_OR_RETURN(const std::string text,
                        ReadHead(*location.root, path, static_cast<size_t>(bytes)));
    absl::StatusOr<VocAnnotation> one = ReadVocAnnotation(text);
    if (!one.ok()) {
      return absl::Status(one.status().code(),
                          absl::StrCat(location.root->Describe(path), " ", one.status().message()));
    }
    int64_t taken = 0;
    for (const VocAnnotation::Object& object : one->objects)
      taken += kBytesPerObject + static_cast<int64_t>(object.name.size());
    FW_RETURN_IF_ERROR(builder->Take(taken));
    return one;
  }

  // Every image set of a dataset has to number them alike.
  std::vector<std::string> ClassesOf(const std::vector<VocAnnotation>& annotations) const {
    if (!params_.classes.empty()) return params_.classes;
    std::set<std::string> found;
    for (const VocAnnotation& annotation : annotations) {
      for (const VocAnnotation::Object& object : annotation.objects) found.insert(object.name);
    }
    const bool are_known = absl::c_all_of(
        found, [](const std::string& name) { return absl::c_linear_search(kClasses, name); });
    if (are_known) return {std::begin(kClasses), std::end(kClasses)};
    return {found.begin(), found.end()};
  }

  const VocParams params_;
};

const Registrar kRegistrar(
    "voc",
    DeclareFormat<Voc>(
        "Images with boxes, as Pascal VOC has them: JPEGImages, Annotations and "
        "ImageSets/Main/IMAGE_SET.txt below `path`, whose order the records have. Fields: `data`, "
        "the image file; `boxes` float32[?,4], left, top, right and bottom edge, with 0 as the "
        "image's first edge (the files count pixels from 1); `labels` int64[?]; `image_id`, the "
        "place in the list; `difficult` int64[?]. `fields` can also name `width`, `height`, "
        "`file_name`, `masks` and `instance`. `masks` is the file SegmentationObject/NAME.png as "
        "it "
        "is, which `decode: {in: masks, out: mask, mode: index}` reads: a pixel holds the number "
        "of "
        "its object in the XML file, from 1, 0 where none is and 255 at edges. The lists of "
        "ImageSets/Segmentation name the images that have one; another image is a bad sample. "
        "`instance` int64[?] holds those numbers, box by box: it goes behind the boxes (`in: "
        "[image, mask, boxes, labels, instance]`) where an op may drop some.",
        "dataset: {format: voc, root: data, path: VOCdevkit/VOC2012, image_set: train}",
        FormatSchema<VocParams>()
            .Param("image_set", &VocParams::image_set,
                   "The list of images: ImageSets/Main/IMAGE_SET.txt, or of another folder: "
                   "Segmentation/train.")
            .Param("classes", &VocParams::classes,
                   "Names of the classes by label. Left out: VOC's twenty where there are no "
                   "others, else the sorted names that this image set has; name them where another "
                   "set might have others.")
            .Param("invalid_boxes", &VocParams::invalid_boxes, kInvalidBoxesDoc,
                   OneOf({"drop", "fail", "keep"}))
            .Fields(&VocParams::fields)));

}  // namespace
}  // namespace feedwater::server
