#include "tests/source/npy_text.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar(
    "npy", {"{format: npy, root: root, path: arrays}",
            [](const TempFolder& folder) {
              folder.Write("arrays/x.npy", NpyText("<f4", "(3, 2)", RandomBytes(24, 1)));
              folder.Write("arrays/y.npy", NpyText("|u1", "(3,)", RandomBytes(3, 2)));
            },
            3, "", 0});

}  // namespace
}  // namespace feedwater::server
