#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar(
    "cifar10", {"{format: cifar10, root: root, path: batches}",
                [](const TempFolder& folder) {
                  folder.Write("batches/data_batch_1.bin", CifarRecord(3, 1) + CifarRecord(9, 2));
                  folder.Write("batches/data_batch_2.bin", CifarRecord(0, 3));
                },
                3, "batches/data_batch_2.bin", 3073});

}  // namespace
}  // namespace feedwater::server
