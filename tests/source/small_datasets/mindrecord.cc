#include "tests/source/mindrecord_text.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

MindRecordText Shard(uint64_t shard, size_t rows) {
  MindRecordText file;
  file.schema = {{"data", {{"type", "bytes"}}},
                 {"ids", {{"type", "int32"}, {"shape", {-1}}}},
                 {"label", {{"type", "int64"}}},
                 {"name", {{"type", "string"}}},
                 {"point", {{"type", "float32"}, {"shape", {2}}}}};
  file.blob_fields = {"data", "ids", "point"};
  file.names = {"a.mindrecord0", "a.mindrecord1"};
  file.shard = shard;
  for (size_t i = 0; i < rows; ++i) {
    const uint64_t seed = shard * 10 + i;
    file.rows.emplace_back(
        MindRecordMap({{"label", seed}, {"name", "row"}, {"other", {1, {2, {3}}}}}),
        MindRecordBlobText({RandomBytes(20 + i, seed),
                            MindRecordPacked({static_cast<int64_t>(seed), -1, 70000}),
                            MindRecordNumber(0.5f) + MindRecordNumber(-1.0f)}));
  }
  return file;
}

const Registrar<SmallDataset> kRegistrar("mindrecord",
                                         {"{format: mindrecord, root: root, path: d}",
                                          [](const TempFolder& folder) {
                                            folder.Write("d/a.mindrecord0", Shard(0, 5).text());
                                            folder.Write("d/a.mindrecord1", Shard(1, 1).text());
                                          },
                                          6, "d/a.mindrecord1", 16});

}  // namespace
}  // namespace feedwater::server
