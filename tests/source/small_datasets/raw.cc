#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar(
    "raw", {"{format: raw, root: root, path: raw, record_bytes: 7, header_bytes: 3, fields: {x: "
            "{offset: 2, dtype: int16, shape: [2]}, y: {offset: 1}}}",
            [](const TempFolder& folder) {
              folder.Write("raw/a.dat", RandomBytes(3 + 2 * 7, 1));
              folder.Write("raw/b.dat", RandomBytes(3 + 7, 2));
            },
            3, "", 0});

}  // namespace
}  // namespace feedwater::server
