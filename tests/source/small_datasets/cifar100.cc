#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar("cifar100",
                                         {"{format: cifar100, root: root, path: batches}",
                                          [](const TempFolder& folder) {
                                            folder.Write("batches/train.bin",
                                                         std::string(1, 19) + CifarRecord(99, 1) +
                                                             std::string(1, 0) + CifarRecord(0, 2));
                                          },
                                          2, "batches/train.bin", 3074});

}  // namespace
}  // namespace feedwater::server
