#include "tests/source/mds_text.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const std::vector<MdsColumnText> kColumns = {
    {"image", "jpeg"}, {"label", "int", 8}, {"tokens", "ndarray:uint16"}};

std::string Sample(int64_t label, uint64_t seed) {
  const std::string tokens = std::string("\4\2", 2) + RandomBytes(4, seed);
  return MdsSampleText(kColumns, {RandomBytes(40, seed), MdsNumberText(label), tokens});
}

const Registrar<SmallDataset> kRegistrar(
    "mds", {"{format: mds, root: root, path: train}",
            [](const TempFolder& folder) {
              const std::string one = MdsShardText(kColumns, {Sample(3, 1), Sample(-1, 2)});
              const std::string two = MdsShardText(kColumns, {Sample(9, 3)});
              folder.Write("train/shard.00000.mds", one);
              folder.Write("train/shard.00001.mds", two);
              folder.Write(
                  "train/index.json",
                  MdsIndexText({MdsShardJson(kColumns, "shard.00000.mds", one.size(), 2),
                                MdsShardJson(kColumns, "shard.00001.mds", two.size(), 1)}));
            },
            3, "", 0});

}  // namespace
}  // namespace feedwater::server
