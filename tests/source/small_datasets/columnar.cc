#include "server/source/columnar_program.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

// Files that pyarrow has written; columnar/make.py makes them again.
std::string FileOf(const std::string& name) {
  std::ifstream file(FEEDWATER_SOURCE_DIR "/tests/source/columnar/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

SmallDataset DatasetOf(const std::string& format) {
  SmallDataset dataset = {"{format: " + format + ", root: root, path: d}",
                          [format](const TempFolder& folder) {
                            folder.Write("d/a." + format, FileOf("a." + format));
                            folder.Write("d/b." + format, FileOf("b." + format));
                          },
                          5, "d/a." + format, 0};
  dataset.flip = "flip 1";
  dataset.build_bytes = ColumnarMemory(4 << 10);
  dataset.why_absent = [format] {
    return std::string(ColumnarProgram::Find(format).status().message());
  };
  return dataset;
}

const Registrar<SmallDataset> kParquet("parquet", DatasetOf("parquet"));
const Registrar<SmallDataset> kArrow("arrow", DatasetOf("arrow"));

}  // namespace
}  // namespace feedwater::server
