#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar(
    "tokens", {"{format: tokens, root: root, path: text, length: 4, stride: 3, targets: true}",
               [](const TempFolder& folder) {
                 folder.Write("text/a.bin", RandomBytes(2 * 11, 1));
                 folder.Write("text/b.bin", RandomBytes(2 * 5, 2));
               },
               4, "text/b.bin", 6});

}  // namespace
}  // namespace feedwater::server
