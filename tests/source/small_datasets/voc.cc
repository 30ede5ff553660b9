#include "absl/strings/str_cat.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

std::string Annotation(const std::string& objects) {
  return absl::StrCat("<annotation><size><width>20</width><height>10</height></size>", objects,
                      "</annotation>");
}

const Registrar<SmallDataset> kRegistrar(
    "voc",
    {"{format: voc, root: root, path: year, fields: {data: data, boxes: boxes, labels: labels, "
     "difficult: difficult, masks: masks, instance: instance}}",
     [](const TempFolder& folder) {
       folder.Write("year/ImageSets/Main/train.txt", "b\na  1\n\nc -1\n");
       folder.Write("year/Annotations/a.xml", Annotation(""));
       folder.Write("year/Annotations/b.xml",
                    Annotation("<object><name>cat</name><difficult>1</difficult><bndbox>"
                               "<xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>"
                               "<part><name>head</name><bndbox><xmin>9</xmin></bndbox></part>"
                               "</object>"));
       folder.Write("year/Annotations/c.xml",
                    Annotation("<object><name>dog</name><bndbox><ymin>2</ymin><xmin>1.5</xmin>"
                               "<xmax>30</xmax><ymax>4</ymax></bndbox></object>"));
       for (const char* name : {"a", "b", "c"}) {
         folder.Write(absl::StrCat("year/JPEGImages/", name, ".jpg"),
                      RandomBytes(30, static_cast<uint64_t>(name[0])));
         folder.Write(absl::StrCat("year/SegmentationObject/", name, ".png"),
                      RandomBytes(20, static_cast<uint64_t>(name[0]) + 100));
       }
     },
     3, "", 0});

}  // namespace
}  // namespace feedwater::server
