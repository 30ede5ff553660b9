#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

constexpr char kAnnotations[] = R"({
  "info": {"images": [{"id": 0}]},
  "images": [{"id": 7, "file_name": "b.jpg", "width": 20, "height": 10},
             {"id": 3, "file_name": "deep/a.jpg", "width": 20, "height": 10},
             {"id": 9, "file_name": "c.jpg"}],
  "annotations": [
    {"id": 1, "image_id": 7, "category_id": 90, "bbox": [1, 2, 3, 4], "area": 11.5, "iscrowd": 0,
     "segmentation": [[1, 2, 4, 2, 4, 6]]},
    {"id": 2, "image_id": 3, "category_id": 1, "bbox": [0.5, 0, 30, 4], "iscrowd": 1},
    {"id": 3, "image_id": 7, "category_id": 1, "bbox": [5, 5, 0, 2], "area": 0}],
  "categories": [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}]
})";

const Registrar<SmallDataset> kRegistrar(
    "coco", {"{format: coco, root: root, path: pictures, annotations: instances.json}",
             [](const TempFolder& folder) {
               folder.Write("instances.json", kAnnotations);
               folder.Write("pictures/b.jpg", RandomBytes(30, 1));
               folder.Write("pictures/deep/a.jpg", RandomBytes(40, 2));
               folder.Write("pictures/c.jpg", RandomBytes(50, 3));
             },
             3, "", 0});

}  // namespace
}  // namespace feedwater::server
