#include "tests/source/small_datasets.h"
#include "tests/source/tar_text.h"

namespace feedwater::server {
namespace {

std::string Record(const std::string& key, int label, uint64_t seed) {
  return TarMemberText(key + ".jpg", RandomBytes(100 + 10 * seed, seed)) +
         TarMemberText(key + ".cls", std::to_string(label));
}

const Registrar<SmallDataset> kRegistrar("webdataset",
                                         {"{format: webdataset, root: root, path: shards}",
                                          [](const TempFolder& folder) {
                                            folder.Write("shards/a-0.tar",
                                                         Record("x/1", 3, 1) + Record("x/2", 0, 2));
                                            folder.Write("shards/a-1.tar", Record("y", 12, 3));
                                          },
                                          3, "shards/a-0.tar", 2048});

}  // namespace
}  // namespace feedwater::server
