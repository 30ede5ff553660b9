// Format `coco`: images with boxes as COCO's files of instances have them, and as most tools for
// annotating images export them. The file of annotations is read once, when the index is made; a
// record is then one read, of the image file. Records have the order of torchvision's
// CocoDetection: by image id; the boxes of an image have that of the file. Where `fields` asks for
// `masks`, they are made of the segmentations once, and a record reads its own besides
// (coco_masks.h).
//
// The index keeps the boxes: 32 bytes each, and some 30 bytes and the file's name for each image;
// with masks 4 more.
#include <algorithm>
#include <bit>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/base/units.h"
#include "server/source/annotated_images.h"
#include "server/source/coco_annotations.h"
#include "server/source/coco_masks.h"
#include "server/source/value_conversion.h"

namespace feedwater::server {
namespace {

struct CocoParams {
  std::string annotations;
  std::string invalid_boxes = "drop";
  FieldRequests fields;
};

// What else a box has, in the order of its numbers.
enum Number : size_t { kArea, kIsCrowd, kCategoryId, kNumbers };
std::vector<BoxNumber> Numbers() {
  std::vector<BoxNumber> numbers(kNumbers);
  numbers[kArea] = {"area", DType::kFloat32,
                    "Pixels of each instance, or of its box where the file does not say."};
  numbers[kIsCrowd] = {"iscrowd", DType::kInt64, "1: the box holds a crowd of the class, else 0."};
  numbers[kCategoryId] = {"category_id", DType::kInt64,
                          "The class of each box by the id that the file gives it."};
  return numbers;
}

class Coco final : public AnnotatedImagesFormat {
 public:
  explicit Coco(CocoParams params)
      : AnnotatedImagesFormat(params.fields, /*has_mask_files=*/false),
        params_(std::move(params)) {}
  int64_t sections_version() const override { return 2; }

 protected:
  absl::Status FindRecords(const DatasetLocation& location, IndexBuilder* builder,
                           std::vector<ColumnSpec>* columns) const override {
    FW_RETURN_IF_ERROR(CheckHasImageFile(requests()));
    FW_RETURN_IF_ERROR(location.root->Stat(location.path).status());  // the images' folder
    FW_ASSIGN_OR_RETURN(const struct stat info,
                        builder->DependOn(*location.root, params_.annotations));
    FoundFile file;
    file.path = params_.annotations;
    file.bytes = info.st_size;
    std::vector<char> buffer;
    FW_ASSIGN_OR_RETURN(FileStream stream, FileStream::Open(location, file, &buffer, builder));
    const bool with_masks = AsksFor("masks");
    FW_ASSIGN_OR_RETURN(CocoAnnotations found, ReadCocoAnnotations(&stream, builder, with_masks));
    AnnotatedImages list(Numbers(), InvalidBoxesOf(params_.invalid_boxes));
    CocoMaskPlan masks;
    Digest digest;
    const absl::Status added = Add(&found, builder, &digest, &list, with_masks ? &masks : nullptr);
    if (absl::IsInvalidArgument(added))
      return absl::InvalidArgumentError(absl::StrCat(stream.what(), " ", added.message()));
    FW_RETURN_IF_ERROR(added);
    if (with_masks && masks.images() > 0) {
      FW_ASSIGN_OR_RETURN(
          StagedMasks staged,
          StageCocoMasks(location, params_.annotations, params_.invalid_boxes, masks, builder));
      list.SetMasks(std::move(staged));
    }
    list.AddTo(location, digest, builder);
    *columns = list.Columns();
    return absl::OkStatus();
  }

  std::vector<FieldRequest> DefaultFields(const std::vector<ColumnSpec>&) const override {
    return ImageFileAnd({"boxes", "labels", "image_id", "area", "iscrowd"});
  }

 private:
  using Ids = absl::flat_hash_map<int64_t, size_t>;

  // Sorts by id, and refuses one that is there twice.
  template <typename T>
  static absl::Status SortById(absl::string_view what, std::vector<T>* entries) {
    std::sort(entries->begin(), entries->end(), [](const T& a, const T& b) { return a.id < b.id; });
    const auto twice = std::adjacent_find(entries->begin(), entries->end(),
                                          [](const T& a, const T& b) { return a.id == b.id; });
    if (twice == entries->end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("has two ", what, " with the id ", twice->id));
  }

  // `masks` may be null.
  absl::Status Add(CocoAnnotations* found, IndexBuilder* builder, Digest* digest,
                   AnnotatedImages* list, CocoMaskPlan* masks) const {
    FW_RETURN_IF_ERROR(SortById("images", &found->images));
    FW_RETURN_IF_ERROR(SortById("categories", &found->categories));
    if (found->categories.size() > kMaxClasses)
      return absl::InvalidArgumentError(absl::StrCat("has more than ", kMaxClasses, " categories"));
    constexpr int64_t kBytesPerId = 64;
    FW_RETURN_IF_ERROR(builder->Take(
        kBytesPerId * static_cast<int64_t>(found->images.size() + found->categories.size())));
    Ids images, categories;
    for (size_t i = 0; i < found->images.size(); ++i) images.emplace(found->images[i].id, i);
    for (const CocoAnnotations::Category& category : found->categories) {
      categories.emplace(category.id, categories.size());
      builder->classes.push_back(category.name);
      digest->Add(category.name);
    }
    const bool has_sizes = absl::c_any_of(found->images, [](const CocoAnnotations::Image& image) {
      return image.width > 0 && image.height > 0;
    });
    if (masks != nullptr && !has_sizes && !found->images.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "gives no image 'width' and 'height', without which there are no masks; ", kCureOfSizes));
    }
    // By image, and in the file's order within one.
    // Those of images that are not there are left out: images are often taken out of a file alone.
    std::vector<size_t> image_of(found->instances.size()), order;
    std::string stray;  // the first one that is left out
    for (size_t i = 0; i < found->instances.size(); ++i) {
      const auto image = images.find(found->instances[i].image_id);
      if (image != images.end()) {
        image_of[i] = image->second;
        order.push_back(i);
      } else if (stray.empty()) {
        stray = absl::StrCat(NameOf(found->instances, i), " of the image ",
                             found->instances[i].image_id);
      }
    }
    if (order.empty() && !stray.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("has no annotation of an image that is among its images, but ", stray));
    }
    if (!stray.empty()) {
      absl::StrAppend(
          &builder->notes, builder->notes.empty() ? "" : ", ",
          FormatCount(static_cast<int64_t>(image_of.size() - order.size()), "annotation"),
          " of images that are not among the file's left out, such as ", stray);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return image_of[a] < image_of[b]; });

    std::vector<uint64_t> values(kNumbers);
    size_t next = 0;
    for (size_t i = 0; i < found->images.size(); ++i) {
      const CocoAnnotations::Image& image = found->images[i];
      FW_RETURN_IF_ERROR(list->AddImage(image.file_name, static_cast<uint64_t>(image.id),
                                        static_cast<uint64_t>(image.width),
                                        static_cast<uint64_t>(image.height), builder));
      if (masks != nullptr) FW_RETURN_IF_ERROR(masks->AddImage(image.width, image.height, builder));
      for (; next < order.size() && image_of[order[next]] == i; ++next) {
        const CocoAnnotations::Instance& instance = found->instances[order[next]];
        const auto category = categories.find(instance.category_id);
        if (category == categories.end()) {
          return absl::InvalidArgumentError(
              absl::StrCat("has ", NameOf(found->instances, order[next]), " of the category ",
                           instance.category_id, ", which is not among its categories"));
        }
        const auto& [left, top, width, height] = instance.box;
        values[kArea] = std::bit_cast<uint32_t>(static_cast<float>(instance.area));
        values[kIsCrowd] = instance.is_crowd;
        values[kCategoryId] = static_cast<uint64_t>(instance.category_id);
        const size_t boxes = list->boxes();
        FW_RETURN_IF_ERROR(
            list->AddBox({static_cast<float>(left), static_cast<float>(top),
                          static_cast<float>(left + width), static_cast<float>(top + height)},
                         category->second, values,
                         absl::StrCat("has ", NameOf(found->instances, order[next]),
                                      " of the image ", image.id, ", which"),
                         builder));
        if (!FitsFloat32(instance.area)) {
          return absl::InvalidArgumentError(
              absl::StrCat("has ", NameOf(found->instances, order[next]), " with the area ",
                           instance.area, ", which float32 cannot hold"));
        }
        if (masks == nullptr || list->boxes() == boxes) continue;
        FW_RETURN_IF_ERROR(masks->AddInstance(found->segments[order[next]],
                                              NameOf(found->instances, order[next]), builder));
      }
      FW_RETURN_IF_ERROR(builder->Progress(static_cast<int64_t>(i), 0));
    }
    return absl::OkStatus();
  }

  static std::string NameOf(const std::vector<CocoAnnotations::Instance>& instances, size_t i) {
    return instances[i].id >= 0 ? absl::StrCat("the annotation ", instances[i].id)
                                : absl::StrCat("annotations[", i, "]");
  }

  const CocoParams params_;
};

const Registrar kRegistrar(
    "coco",
    DeclareFormat<Coco>(
        "Images with boxes, as COCO's files of instances have them; torchvision's order: by image "
        "id. `path` is the folder of the images. Fields: `data`, the image file; `boxes` "
        "float32[?,4], left, top, right and bottom edge; `labels` int64[?], 0 to the number of "
        "categories less one, in the order of their ids, whose names are the classes; `image_id`; "
        "`area` and `iscrowd`. `fields` can also name `category_id`, `width`, `height`, "
        "`file_name`, `masks` and `instance`. An image without annotations has no boxes; "
        "annotations of images that "
        "the file does not list are left out. The name of an image without `file_name` is the end "
        "of its `coco_url`, folder and name, as in LVIS. `masks` "
        "is a PNG of labels, which `decode: {in: masks, out: mask, mode: index}` reads: a pixel "
        "holds "
        "the number of its instance, 1 for the first box of the record, and 0 where none is; where "
        "two overlap, the later one covers. Polygons and both kinds of run lengths cover the "
        "pixels "
        "that pycocotools gives them; a polygon of fewer than three corners covers none. The masks "
        "are made when the dataset is opened for the first "
        "time, below the daemon's state_dir (`stage`); no other field costs that. `instance` "
        "int64[?] holds those numbers, box by box: it goes behind the boxes (`in: [image, mask, "
        "boxes, labels, instance]`) where an op may drop some. An image with more than 255 boxes, "
        "without `width` and `height`, or with a segmentation that makes no sense is a bad sample; "
        "where no image has `width` and `height`, `masks` are refused. Keypoints are not read.",
        "dataset: {format: coco, root: coco, path: train2017, annotations: "
        "annotations/instances_train2017.json}",
        FormatSchema<CocoParams>()
            .Required("annotations", &CocoParams::annotations,
                      "The JSON file of annotations, below the root (not below `path`).")
            .Param("invalid_boxes", &CocoParams::invalid_boxes, kInvalidBoxesDoc,
                   OneOf({"drop", "fail", "keep"}))
            .Fields(&CocoParams::fields)));

}  // namespace
}  // namespace feedwater::server
