#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar(
    "mnist", {"{format: mnist, root: root, path: raw, height: 2, width: 3}",
              [](const TempFolder& folder) {
                folder.Write("raw/train-images-idx3-ubyte", BigEndian(0x803) + BigEndian(4) +
                                                                BigEndian(2) + BigEndian(3) +
                                                                RandomBytes(24, 1));
                folder.Write("raw/train-labels-idx1-ubyte",
                             BigEndian(0x801) + BigEndian(4) + std::string("\0\1\11\5", 4));
              },
              4, "", 0});

}  // namespace
}  // namespace feedwater::server
