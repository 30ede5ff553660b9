#include "tests/source/riegeli_text.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar(
    "array_record",
    {"{format: array_record, root: root, path: d}",
     [](const TempFolder& folder) {
       ArrayRecordText one, two;
       one.AddGroup({RandomBytes(50, 1)});
       one.AddGroup({RandomBytes(20, 2), "", RandomBytes(7, 3)}, ArrayRecordText::kZstd);
       two.AddGroup({RandomBytes(9, 4)}, ArrayRecordText::kZstd);
       folder.Write("d/a.array_record-00000-of-00002", one.Finish());
       folder.Write("d/a.array_record-00001-of-00002", two.Finish());
     },
     5, "", 0});

}  // namespace
}  // namespace feedwater::server
