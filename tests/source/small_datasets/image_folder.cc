#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

const Registrar<SmallDataset> kRegistrar("image_folder",
                                         {"{format: image_folder, root: root, path: train}",
                                          [](const TempFolder& folder) {
                                            folder.Write("train/cat/b.jpg", RandomBytes(100, 1));
                                            folder.Write("train/cat/a.png", RandomBytes(50, 2));
                                            folder.Write("train/cat/deep/er/c.jpeg",
                                                         RandomBytes(70, 3));
                                            folder.Write("train/dog/x.webp", RandomBytes(1, 4));
                                          },
                                          4, "train/cat/b.jpg", 1});

}  // namespace
}  // namespace feedwater::server
