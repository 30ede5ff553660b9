#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar("images",
                                         {"{format: images, root: root, path: all}",
                                          [](const TempFolder& folder) {
                                            folder.Write("all/b.jpg", RandomBytes(100, 1));
                                            folder.Write("all/a.png", RandomBytes(50, 2));
                                            folder.Write("all/deep/er/c.jpeg", RandomBytes(70, 3));
                                          },
                                          3, "all/b.jpg", 1});

}  // namespace
}  // namespace feedwater::server
