// What the tests of the graph share: pipelines written in a line, records made by hand, and one
// sample run through a plan.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/codec/image_writer.h"
#include "server/graph/op_caller.h"
#include "server/graph/pipeline_spec.h"
#include "server/graph/plan.h"
#include "server/storage/engine.h"

namespace feedwater::server::graph_testing {

using Bytes = std::vector<uint8_t>;

inline const TensorSpec kEncodedSpec{DType::kUInt8, Layout::kEncoded, {-1}};
inline const TensorSpec kLabelSpec{DType::kInt64, Layout::kPlain, {}};
inline TensorSpec PixelSpec(int64_t height, int64_t width, int64_t channels) {
  return {DType::kUInt8, Layout::kHWC, {height, width, channels}};
}

// A record under construction: fields by name with bytes of its own.
class TestRecord {
 public:
  TestRecord& Add(const std::string& name, const TensorSpec& announced, const TensorSpec& spec,
                  Bytes bytes) {
    fields_.push_back({name, announced, "A field of the test."});
    bytes.resize(bytes.size() + kReadPadding);
    data_.push_back(std::move(bytes));
    specs_.push_back(spec);
    return *this;
  }
  TestRecord& AddEncoded(Bytes file) {
    const int64_t size = static_cast<int64_t>(file.size());
    return Add("data", kEncodedSpec, {DType::kUInt8, Layout::kEncoded, {size}}, std::move(file));
  }
  TestRecord& AddPixels(int64_t height, int64_t width, int64_t channels, Bytes pixels) {
    return Add("image", PixelSpec(height, width, channels), PixelSpec(height, width, channels),
               std::move(pixels));
  }
  TestRecord& AddLabel(int64_t label) {
    Bytes bytes(sizeof(label));
    std::memcpy(bytes.data(), &label, sizeof(label));
    return Add("label", kLabelSpec, kLabelSpec, std::move(bytes));
  }

  const std::vector<FieldSpec>& fields() const { return fields_; }
  const Record* record() {
    record_.fields.clear();
    for (size_t i = 0; i < data_.size(); ++i) {
      record_.fields.push_back({specs_[i], reinterpret_cast<std::byte*>(data_[i].data())});
    }
    return &record_;
  }

 private:
  std::vector<FieldSpec> fields_;
  std::vector<TensorSpec> specs_;
  std::vector<Bytes> data_;
  Record record_;
};

// "- a\n- b" as the graph of an otherwise ordinary pipeline.
inline std::string PipelineText(const std::string& graph, const std::string& outputs,
                                const std::string& more = "") {
  return absl::StrCat("version: 1\ndataset: {format: image_folder, root: r, path: p}\ngraph:\n",
                      graph, "\noutputs: ", outputs, "\n", more);
}

// Files of ops: those of tests/text/tokenizers, by their last part, below whatever root.
class TestFiles : public OpFileReader {
 public:
  absl::StatusOr<std::shared_ptr<const FileContent>> Read(const std::string& /*root*/,
                                                          const std::string& path) override {
    std::ifstream file(absl::StrCat(FEEDWATER_SOURCE_DIR, "/tests/text/tokenizers/",
                                    path.substr(path.rfind('/') + 1)),
                       std::ios::binary);
    if (!file.good()) return absl::NotFoundError(absl::StrCat("no file '", path, "'"));
    std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return std::make_shared<const FileContent>(std::move(bytes), 0, MemoryReservation());
  }
};

inline absl::StatusOr<std::shared_ptr<const Plan>> MakePlan(const std::string& text,
                                                            const std::vector<FieldSpec>& fields,
                                                            bool fuse = true,
                                                            int64_t classes = 10) {
  TestFiles files;
  FW_ASSIGN_OR_RETURN(const PipelineSpec spec, ParsePipeline(text, "test.yaml", {}, &files));
  return Plan::Create(spec, fields, classes, PlanOptions{fuse});
}

// Memory of a batch, with guards behind every output that show when something was written too far.
class TestBatch {
 public:
  static constexpr size_t kGuardBytes = 256;
  static constexpr uint8_t kGuard = 0xa5;

  TestBatch(const Plan& plan, int64_t size) {
    memory.batch_size = size;
    for (const FieldSpec& field : plan.outputs()) {
      bytes_.push_back(*field.SampleBytes());
      offsets_.emplace_back(field.is_ragged() ? static_cast<size_t>(size) + 1 : 0, -1);
      buffers_.emplace_back(static_cast<size_t>(bytes_.back() * size) + kGuardBytes, kGuard);
    }
    staging_.assign(static_cast<size_t>(plan.staging_bytes_per_sample() * size) + kGuardBytes,
                    kGuard);
    for (Bytes& buffer : buffers_)
      memory.outputs.push_back(reinterpret_cast<std::byte*>(buffer.data()));
    for (std::vector<int64_t>& offsets : offsets_)
      memory.offsets.push_back(offsets.empty() ? nullptr : offsets.data());
    memory.staging = plan.staging_bytes_per_sample() == 0
                         ? nullptr
                         : reinterpret_cast<std::byte*>(staging_.data());
  }
  Bytes Output(size_t i, int64_t k) const {
    const uint8_t* at = buffers_[i].data() + k * bytes_[i];
    return Bytes(at, at + bytes_[i]);
  }
  std::vector<Bytes> Sample(int64_t k) const {
    std::vector<Bytes> all;
    for (size_t i = 0; i < buffers_.size(); ++i) all.push_back(Output(i, k));
    return all;
  }
  bool GuardsHold() const {
    const auto holds = [](const Bytes& buffer) {
      for (size_t i = buffer.size() - kGuardBytes; i < buffer.size(); ++i) {
        if (buffer[i] != kGuard) return false;
      }
      return true;
    };
    for (const Bytes& buffer : buffers_) {
      if (!holds(buffer)) return false;
    }
    return holds(staging_);
  }

  BatchMemory memory;

 private:
  std::vector<int64_t> bytes_;
  std::vector<Bytes> buffers_;
  std::vector<std::vector<int64_t>> offsets_;
  Bytes staging_;
};

// Plays a user's program for op `python`: every byte of the input, changed by the seed.
class TestCaller : public OpCaller {
 public:
  absl::Status Call(const OpCall& call,
                    absl::FunctionRef<absl::Status(absl::Span<const Tensor>)> take) override {
    std::vector<Bytes> made;
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const auto bytes = static_cast<size_t>(*call.outputs[i].ByteSize());
      Bytes& output = made.emplace_back(bytes, 0);
      const Tensor& input = call.inputs[i];
      for (size_t at = 0; at < bytes; ++at) {
        output[at] = at < input.bytes() ? input.as<uint8_t>()[at] : 0;
        output[at] ^= static_cast<uint8_t>(call.seed[0]);
      }
    }
    for (size_t i = 0; i < made.size(); ++i)
      outputs.push_back({call.outputs[i], reinterpret_cast<std::byte*>(made[i].data())});
    return take(outputs);
  }
};

// One sample in a batch of one.
inline absl::StatusOr<std::vector<Bytes>> RunPlan(const Plan& plan, TestRecord& record,
                                                  int64_t sample_id = 7, uint64_t seed = 1) {
  SampleWorkspace workspace;
  TestCaller caller;
  workspace.UseCaller(&caller, nullptr);
  TestBatch batch(plan, 1);
  SampleInput input;
  input.record = record.record();
  input.sample_id = sample_id;
  input.position = sample_id + 1000;
  input.key = EpochKey(seed, 0);
  FW_RETURN_IF_ERROR(plan.Run(input, 0, batch.memory, workspace));
  if (!batch.GuardsHold()) return absl::InternalError("written behind an output");
  return batch.Sample(0);
}

// The same in two halves: what a cache may keep, and the rest of the graph from there on.
inline absl::StatusOr<std::vector<Bytes>> RunPlanInHalves(const Plan& plan, TestRecord& record,
                                                          int64_t sample_id = 7,
                                                          uint64_t seed = 1) {
  SampleWorkspace workspace;
  TestCaller caller;
  workspace.UseCaller(&caller, nullptr);
  TestBatch batch(plan, 1);
  SampleInput input;
  input.record = record.record();
  input.sample_id = sample_id;
  input.position = sample_id + 1000;
  Record kept;
  FW_RETURN_IF_ERROR(plan.RunPrefix(input, 1 << 30, workspace, &kept));
  input.record = &kept;
  input.key = EpochKey(seed, 0);
  FW_RETURN_IF_ERROR(plan.RunFromPrefix(input, 0, batch.memory, workspace));
  if (!batch.GuardsHold()) return absl::InternalError("written behind an output");
  return batch.Sample(0);
}

inline absl::StatusOr<std::vector<Bytes>> RunGraph(const std::string& graph, TestRecord& record,
                                                   const std::string& outputs = "[image]",
                                                   int64_t sample_id = 7, bool fuse = true) {
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan,
                      MakePlan(PipelineText(graph, outputs), record.fields(), fuse));
  return RunPlan(*plan, record, sample_id);
}

// The first output of one op on pixels, or a failure of the test.
inline Bytes RunOnPixels(const std::string& graph, int64_t height, int64_t width, int64_t channels,
                         Bytes pixels, int64_t sample_id = 7) {
  TestRecord record;
  record.AddPixels(height, width, channels, std::move(pixels));
  const auto result = RunGraph(graph, record, "[image]", sample_id);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? (*result)[0] : Bytes{};
}

template <typename T>
std::vector<T> As(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Pixels that differ from each other, and from what their neighbours are.
inline Bytes PatternPixels(int64_t height, int64_t width, int64_t channels) {
  Bytes pixels(static_cast<size_t>(height * width * channels));
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>((i * 37 + i / 7 * 11 + i / 101) & 255);
  return pixels;
}

inline Bytes EncodedPixels(const PictureView& picture, const std::string& extension) {
  const std::string file = WritePicture(picture, extension).value();
  return {file.begin(), file.end()};
}

// A picture as a file; `extension` ".png", ".jpg", ...
inline Bytes EncodedImage(int height, int width, const std::string& extension) {
  Bytes pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (const int sample : {x * y / 5, y * 3, x * 5 + y})
        pixels.push_back(static_cast<uint8_t>(sample));
    }
  }
  return EncodedPixels({pixels.data(), {width, height}, 3}, extension);
}

}  // namespace feedwater::server::graph_testing
