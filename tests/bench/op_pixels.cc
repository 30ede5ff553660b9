// What ops make of pixels, for comparisons with other libraries (parity.py).
//
//   op_pixels < REQUESTS > ANSWERS
//
// A request is a line "HEIGHT WIDTH CHANNELS GRAPH", where GRAPH is a list of ops in one line of
// YAML that reads and writes `image`, and that many bytes of pixels behind it. A height of 0: WIDTH
// bytes of an image file, which is `data`. The answer is a line "BYTES TYPE" with the bytes behind
// it, or "0 MESSAGE".
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/graph/plan.h"
#include "server/storage/engine.h"

namespace {

using namespace feedwater::server;  // NOLINT: a program of one file

constexpr int64_t kMostBytes = int64_t{1} << 30;

struct Made {
  std::string type;
  std::vector<std::byte> bytes;
};

absl::StatusOr<Made> Make(const std::string& graph, const FieldSpec& field, const Tensor& given) {
  FW_ASSIGN_OR_RETURN(
      const PipelineSpec spec,
      ParsePipeline(absl::StrCat("version: 1\ndataset: {format: image_folder, root: r, path: p}\n",
                                 "graph: ", graph, "\noutputs: [image]\n"),
                    "graph"));
  FW_ASSIGN_OR_RETURN(const auto plan, Plan::Create(spec, {field}, /*classes=*/10, PlanOptions{}));
  Made made{plan->outputs()[0].spec.ToString(), {}};
  FW_ASSIGN_OR_RETURN(const int64_t bytes, plan->outputs()[0].SampleBytes());
  made.bytes.resize(static_cast<size_t>(bytes));
  SampleWorkspace workspace;
  BatchMemory memory;
  memory.batch_size = 1;
  memory.outputs = {made.bytes.data()};
  memory.offsets = {nullptr};
  Record record;
  record.fields = {given};
  SampleInput input;
  input.record = &record;
  FW_RETURN_IF_ERROR(plan->Run(input, 0, memory, workspace));
  return made;
}

}  // namespace

int main() {
  int64_t height = 0, width = 0, channels = 0;
  for (std::string graph;
       std::cin >> height >> width >> channels && std::getline(std::cin, graph);) {
    const bool is_file = height == 0;
    if (height < 0 || width < 1 || channels < 0 || width > kMostBytes / 4 ||
        (!is_file && (channels < 1 || height > kMostBytes / (width * channels))))
      return 2;
    const int64_t size = is_file ? width : height * width * channels;
    std::vector<char> bytes(static_cast<size_t>(size) + kReadPadding);
    if (!std::cin.read(bytes.data(), size)) return 2;
    TensorSpec spec{DType::kUInt8, Layout::kHWC, {height, width, channels}}, announced = spec;
    if (is_file) {
      spec = {DType::kUInt8, Layout::kEncoded, {width}};
      announced = {DType::kUInt8, Layout::kEncoded, {-1}};
    }
    const auto made = Make(graph, {is_file ? "data" : "image", announced, ""},
                           {spec, reinterpret_cast<std::byte*>(bytes.data())});
    if (!made.ok()) {
      std::cout << "0 " << made.status().message() << std::endl;
      continue;
    }
    std::cout << made->bytes.size() << " " << made->type << "\n";
    std::cout.write(reinterpret_cast<const char*>(made->bytes.data()),
                    static_cast<std::streamsize>(made->bytes.size()));
    std::cout.flush();
  }
  return 0;
}
