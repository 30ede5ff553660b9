// One pipeline file, read and checked as far as that is possible without data: keys, types, op
// names and parameters.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/base/schema.h"
#include "server/base/status.h"
#include "server/base/yaml.h"
#include "server/codec/image.h"
#include "server/graph/op_file.h"
#include "server/sampler/order.h"

namespace feedwater::server {

struct OpSpec {
  std::string name;
  std::vector<std::string> in, out;
  // The number that its draws are keyed by: its place in `graph`, unless `draws_as` gives another.
  uint32_t draws_as = 0;
  YamlNode params;            // the op's map without the keys that every op has
  std::vector<OpSpec> inner;  // of a combinator: its ops
  int64_t count = 1;          // how many ops it stands for: with those of a combinator, repeated
  YamlNode node;              // the whole entry, for its place
  OpFiles files;              // by parameter
  // Of a batch op: the place that its draws are keyed by, where ops before it were left out.
  std::optional<uint32_t> batch_place = std::nullopt;
};

// A field that the client receives, and how it does where the number of its rows differs from
// sample to sample ([?,4]): as they are (ragged), or as many as `pad_to` says.
struct OutputSpec {
  std::string name;
  // Of a sample, at most; not given: a default by their size.
  std::optional<int64_t> max_rows = std::nullopt;
  std::optional<int64_t> pad_to = std::nullopt;
  double pad_value = 0;

  bool is_plain() const { return !max_rows.has_value() && !pad_to.has_value(); }
};

// What happens to the place of a sample that cannot be made. kSkipWithCount: another stands in as
// with kSubstitute, but the place is not real.
enum class BadSamplePolicy { kFail, kSubstitute, kSkipWithCount };
absl::string_view BadSamplePolicyName(BadSamplePolicy policy);  // as in a pipeline file

// What is kept of the dataset for the next epoch and the next job. Changes no byte of a batch.
enum class CacheKind { kAuto, kNone, kBytes, kCoefficients, kDecoded };
struct CacheSpec {
  CacheKind kind = CacheKind::kAuto;
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();  // at most, of what the daemon has
  int64_t disk_bytes = std::numeric_limits<int64_t>::max();
};

// What an administrator lets a pipeline file ask for (`limits` in feedwater.yaml). A file that says
// nothing gets the default or this, whichever is less.
struct PipelineCaps {
  ImageLimits images{.max_pixels = 1 << 30,
                     .max_scans = std::numeric_limits<int>::max(),
                     .max_decode_ms = 3'600'000,
                     .max_sample_ms = 3'600'000};
  int64_t max_ops = std::numeric_limits<int64_t>::max();  // of both graphs together
  int64_t max_outputs = std::numeric_limits<int64_t>::max();
};

struct PipelineSpec {
  std::string name;  // the file's stem
  YamlNode dataset;  // for OpenDataset
  SamplerSpec sampler;
  std::vector<OpSpec> graph;
  int64_t batch_size = 0;  // 0: the client must give one
  std::vector<OpSpec> batch_graph;
  std::vector<OutputSpec> outputs;  // in order; each name once
  BadSamplePolicy on_bad_sample = BadSamplePolicy::kFail;
  double max_bad_fraction = 0.001;  // of a rank's samples of an epoch; changes no byte
  ImageLimits limits;
  CacheSpec cache;
  std::string
      digest;  // of everything that can change a byte, except batch size and seed: 32 hex digits
  YamlNode outputs_node;  // for its place
  // What all this was read from: ParsePipeline gives the same again.
  std::string text, file_name;
  PipelineCaps caps;

  std::vector<OpFile> files() const;  // of all ops, each once
};

// The keys of a pipeline file, for reference pages and schemas. The ops of a graph are in their
// registry.
const std::vector<ParamInfo>& PipelineParams();

// `files`: who reads the files that ops name. Null: nobody; a pipeline that names some has no
// digest then.
absl::StatusOr<PipelineSpec> ParsePipeline(absl::string_view text, absl::string_view file_name,
                                           const PipelineCaps& caps = {},
                                           OpFileReader* files = nullptr);
absl::StatusOr<PipelineSpec> ReadPipelineFile(const std::string& path,
                                              const PipelineCaps& caps = {},
                                              OpFileReader* files = nullptr);

}  // namespace feedwater::server
