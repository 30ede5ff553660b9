#include "tests/source/small_datasets.h"
#include "tests/source/tf_text.h"

namespace feedwater::server {
namespace {

std::string Record(int64_t label, uint64_t seed) {
  return TfRecordText(TfExample(TfEntry("image", TfBytes({RandomBytes(60, seed)})) +
                                TfEntry("label", TfPacked(std::vector<int64_t>{label})) +
                                TfEntry("box", TfPacked(std::vector<float>{1, 2, 3, 4.5f}))));
}

const Registrar<SmallDataset> kRegistrar("tfrecord",
                                         {"{format: tfrecord, root: root, path: records}",
                                          [](const TempFolder& folder) {
                                            folder.Write("records/a-0.tfrecord",
                                                         Record(3, 1) + Record(-1, 2));
                                            folder.Write("records/a-1.tfrecord", Record(7, 3));
                                          },
                                          3, "records/a-1.tfrecord", Record(7, 3).size()});

}  // namespace
}  // namespace feedwater::server
