#include "server/graph/pipeline_spec.h"

#include <algorithm>
#include <climits>
#include <iterator>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "server/base/schema.h"
#include "server/graph/digest.h"
#include "server/graph/field_ranges.h"
#include "server/graph/op_caller.h"
#include "server/graph/op_spec.h"
#include "server/graph/output_spec.h"
#include "server/source/dataset.h"
#include "server/source/mix.h"

namespace feedwater::server {
namespace {

constexpr absl::string_view kVersion = "1";

struct BatchParams {
  std::optional<int64_t> size;
};

struct BadSampleParams {
  std::string on_bad_sample = std::string(BadSamplePolicyName(PipelineSpec().on_bad_sample));
  double max_bad_fraction = PipelineSpec().max_bad_fraction;
};

struct LimitParams {
  int64_t max_pixels = ImageLimits{}.max_pixels;
  int64_t max_scans = ImageLimits{}.max_scans;
  int64_t max_decode_ms = ImageLimits{}.max_decode_ms;
  int64_t max_sample_ms = ImageLimits{}.max_sample_ms;
};

// Ten times what a large photo needs.
constexpr int64_t kLeastReplacingMs = 100;

struct CacheParams {
  std::string kind = "auto";
  std::optional<ByteCount> ram, disk;
};

const Schema<BatchParams>& BatchSchema() {
  static const auto* schema = new Schema<BatchParams>(Schema<BatchParams>().Param(
      "size", &BatchParams::size, "Samples in a batch of one rank.", Range(1, kMaxBatchSize)));
  return *schema;
}

constexpr BadSamplePolicy kBadSamplePolicies[] = {
    BadSamplePolicy::kFail, BadSamplePolicy::kSubstitute, BadSamplePolicy::kSkipWithCount};
std::vector<std::string> BadSampleWords() {
  std::vector<std::string> words;
  for (const BadSamplePolicy policy : kBadSamplePolicies)
    words.emplace_back(BadSamplePolicyName(policy));
  return words;
}

const Schema<BadSampleParams>& BadSampleSchema() {
  static const auto* schema = new Schema<BadSampleParams>(
      Schema<BadSampleParams>()
          .Param("on_bad_sample", &BadSampleParams::on_bad_sample,
                 "What happens when a sample cannot be made. fail: the stream ends with its "
                 "record and reason. substitute: the next good record of the order takes its "
                 "place, and is counted. skip_with_count: the place stays in the batch, so that "
                 "every rank has the same steps and shapes, but is not real: `is_real` is false, "
                 "the batch's count of real samples is lower, `sample_id` is the bad record's; "
                 "everything else is the next good record's, so that batch statistics and mixing "
                 "see a proper sample, or zeros when none of the next 100 is good. Multiply the "
                 "loss by `is_real` to leave it out.",
                 OneOf(BadSampleWords()))
          .Param("max_bad_fraction", &BadSampleParams::max_bad_fraction,
                 "How many of a rank's samples of one epoch may be bad before the stream fails "
                 "all the same (with substitute and skip_with_count): a wrong mount or a broken "
                 "copy must not pass for training data. Up to 32 are let pass whatever the "
                 "fraction, but no more than a quarter of the samples. 0: none at all; 1: any "
                 "number. The count begins anew where a stream is moved or opened again within an "
                 "epoch: by `replay`, `skip`, a saved state, or a daemon that was restarted. May "
                 "be changed when a job resumes.",
                 Range(0, 1)));
  return *schema;
}

const Schema<LimitParams>& LimitSchema() {
  static const auto* schema = new Schema<LimitParams>(
      Schema<LimitParams>()
          .Param("max_pixels", &LimitParams::max_pixels, "Width times height of an image.",
                 Range(1, 1LL << 30))
          .Param("max_scans", &LimitParams::max_scans, "Scans of a progressive JPEG.",
                 Range(1, INT_MAX))
          .Param("max_decode_ms", &LimitParams::max_decode_ms,
                 "CPU time of decoding one image (JPEG), in ms: a guard "
                 "against images that are made to be slow. An image over it "
                 "is a bad sample. CPU time differs between machines and "
                 "runs, so stay far above what any good image needs, as the "
                 "default is for photos; raise it for very large progressive "
                 "ones. At least 100 with substitute and skip_with_count, "
                 "which would else replace good images on a busy machine.",
                 Range(1, 3'600'000))
          .Param("max_sample_ms", &LimitParams::max_sample_ms,
                 "CPU time of making one sample, decoding and all ops together, in ms. It is "
                 "looked at between ops and now and then within long ones. A sample over it is "
                 "bad. At least 100 with substitute and skip_with_count, as max_decode_ms.",
                 Range(1, 3'600'000)));
  return *schema;
}

const Schema<CacheParams>& CacheSchema() {
  static const auto* schema = new Schema<CacheParams>(
      Schema<CacheParams>()
          .Param("kind", &CacheParams::kind,
                 "What is kept of each record: bytes (as stored), coefficients (a JPEG, also a "
                 "progressive one, without its Huffman coding, which decodes several times "
                 "faster), decoded (what the graph's "
                 "ops before the first random one make of it, such as decoded and resized pixels), "
                 "none; auto chooses and `feedwater status` says why.",
                 OneOf({"auto", "none", "bytes", "coefficients", "decoded"}))
          .Param("ram", &CacheParams::ram,
                 "Memory for it, at most, within the daemon's cache.ram. Default: all of that.")
          .Param("disk", &CacheParams::disk,
                 "Disk for it, at most, within the daemon's cache.disk. Default: all of that."));
  return *schema;
}

absl::Status ReadVersion(const YamlNode& node) {
  if (node.is_scalar() && node.scalar == kVersion) return absl::OkStatus();
  return node.Error(absl::StrCat("'version' must be ", kVersion, ", not ", node.Found(),
                                 ": this daemon reads version ", kVersion,
                                 " of the pipeline file"));
}

absl::Status ReadDataset(const YamlNode& node) {
  if (!node.is_map()) {
    return node.Error(absl::StrCat(
        "'dataset' must be a map such as {format: image_folder, root: NAME, path: train}, not ",
        node.Found()));
  }
  if (IsMix(node)) return ReadMix(node).status();
  const YamlNode* format = node.Find("format");
  if (format == nullptr) {
    return node.Error("'dataset' needs 'format', such as image_folder, or 'mix', several datasets");
  }
  if (!format->is_scalar())
    return format->Error(absl::StrCat("'format' must be a word, not ", format->KindName()));
  return absl::OkStatus();
}

absl::Status ReadBatch(const YamlNode& node, const OpFileSource& source, PipelineSpec* spec) {
  if (node.kind == YamlNode::Kind::kNull) return absl::OkStatus();  // its lines commented out
  if (!node.is_map()) return BatchSchema().Read(node, "'batch'").status();  // says what is wrong
  std::vector<ParamInfo> keys = BatchSchema().params();
  ParamInfo graph;
  graph.name = "graph";
  keys.push_back(graph);
  FW_RETURN_IF_ERROR(CheckKeys(node, keys, "'batch'"));
  YamlNode rest = node;
  rest.entries.erase(
      std::remove_if(rest.entries.begin(), rest.entries.end(),
                     [](const auto& entry) { return entry.first.scalar == "graph"; }),
      rest.entries.end());
  FW_ASSIGN_OR_RETURN(const BatchParams batch, BatchSchema().Read(rest, "'batch'"));
  spec->batch_size = batch.size.value_or(0);
  if (const YamlNode* list = node.Find("graph")) {
    FW_ASSIGN_OR_RETURN(spec->batch_graph, ReadOps(*list, /*is_batch=*/true, source));
  }
  return absl::OkStatus();
}

// Ops of `graph` that say themselves that they work on whole batches come before those of `batch:
// graph`.
absl::Status MoveBatchOps(PipelineSpec* spec) {
  const auto first = std::find_if(spec->graph.begin(), spec->graph.end(), RunsOnBatches);
  for (auto op = first; op != spec->graph.end(); ++op) {
    if (RunsOnBatches(*op)) {
      if (&PlaceOf(*op, kDrawsAs, 0) == &op->node.entries[0].first) continue;
      return PlaceOf(*op, kDrawsAs, 0)
          .Error(absl::StrCat("op '", op->name, "' has '", kDrawsAs,
                              "', which is for ops that work on single samples"));
    }
    return op->node.Error(absl::StrCat(
        "op '", op->name,
        "' works on single samples and comes after an op with batch: true: move it before that"));
  }
  spec->batch_graph.insert(spec->batch_graph.begin(), std::make_move_iterator(first),
                           std::make_move_iterator(spec->graph.end()));
  spec->graph.erase(first, spec->graph.end());
  return absl::OkStatus();
}

// They stand at the top, among keys that are read elsewhere.
absl::Status ReadBadSamples(const YamlNode& root, PipelineSpec* spec) {
  YamlNode own;
  own.kind = YamlNode::Kind::kMap;
  for (const auto& entry : root.entries) {
    if (absl::c_any_of(BadSampleSchema().params(),
                       [&](const ParamInfo& key) { return key.name == entry.first.scalar; }))
      own.entries.push_back(entry);
  }
  FW_ASSIGN_OR_RETURN(const BadSampleParams read, BadSampleSchema().Read(own, "the file"));
  for (const BadSamplePolicy policy : kBadSamplePolicies) {
    if (read.on_bad_sample == BadSamplePolicyName(policy)) spec->on_bad_sample = policy;
  }
  spec->max_bad_fraction = read.max_bad_fraction;
  return absl::OkStatus();
}

// Time is the one limit that the machine has a say in. Where a bad sample is replaced it would
// have one in the bytes, too, if ordinary images came near it.
absl::Status CheckTime(const YamlNode& root, const PipelineSpec& spec, const char* key,
                       int64_t value) {
  if (spec.on_bad_sample == BadSamplePolicy::kFail || value >= kLeastReplacingMs)
    return absl::OkStatus();
  const YamlNode* limits = root.Find("limits");
  const YamlNode* node = limits == nullptr ? nullptr : limits->Find(key);
  return (node == nullptr ? root : *node)
      .Error(absl::StrCat(key, " is ", value,
                          "; with 'on_bad_sample: ", BadSamplePolicyName(spec.on_bad_sample),
                          "' it must be at least ", kLeastReplacingMs,
                          ": it is CPU time, which differs between machines and runs, so that a "
                          "good image would be replaced here and not there"));
}

std::string OverCap(absl::string_view what, int64_t cap, const char* key) {
  return absl::StrCat(what, ", more than the administrator allows: limits.", key, " = ", cap,
                      " in feedwater.yaml");
}

// What the file says goes no further than the administrator lets it; what it leaves out goes as far
// as that at most.
absl::Status Cap(const YamlNode* limits, const char* key, int64_t cap, int64_t* value) {
  if (*value <= cap) return absl::OkStatus();
  const YamlNode* given = limits != nullptr && limits->is_map() ? limits->Find(key) : nullptr;
  if (given != nullptr) return given->Error(OverCap(absl::StrCat(key, " is ", *value), cap, key));
  *value = cap;
  return absl::OkStatus();
}

absl::Status ReadLimits(const YamlNode* node, const ImageLimits& caps, ImageLimits* limits) {
  LimitParams read;
  if (node != nullptr) {
    FW_ASSIGN_OR_RETURN(read, LimitSchema().Read(*node, "'limits'"));
  }
  FW_RETURN_IF_ERROR(Cap(node, "max_pixels", caps.max_pixels, &read.max_pixels));
  FW_RETURN_IF_ERROR(Cap(node, "max_scans", caps.max_scans, &read.max_scans));
  FW_RETURN_IF_ERROR(Cap(node, "max_decode_ms", caps.max_decode_ms, &read.max_decode_ms));
  FW_RETURN_IF_ERROR(Cap(node, "max_sample_ms", caps.max_sample_ms, &read.max_sample_ms));
  limits->max_pixels = read.max_pixels;
  limits->max_scans = static_cast<int>(read.max_scans);
  limits->max_decode_ms = read.max_decode_ms;
  limits->max_sample_ms = read.max_sample_ms;
  return absl::OkStatus();
}

absl::Status CheckCounts(const PipelineSpec& spec) {
  const int64_t ops = CountOps(spec.graph) + CountOps(spec.batch_graph);
  int64_t so_far = 0;
  for (const std::vector<OpSpec>* graph : {&spec.graph, &spec.batch_graph}) {
    for (const OpSpec& op : *graph) {
      so_far += op.count;
      if (so_far <= spec.caps.max_ops) continue;
      return op.node.Error(
          OverCap(absl::StrCat("a graph of ", ops, " ops"), spec.caps.max_ops, "max_ops"));
    }
  }
  const auto outputs = static_cast<int64_t>(spec.outputs.size());
  if (outputs <= spec.caps.max_outputs) return absl::OkStatus();
  return spec.outputs_node.Error(
      OverCap(absl::StrCat(outputs, " outputs"), spec.caps.max_outputs, "max_outputs"));
}

absl::Status ReadCache(const YamlNode& node, CacheSpec* cache) {
  FW_ASSIGN_OR_RETURN(const CacheParams read, CacheSchema().Read(node, "'cache'"));
  cache->kind = read.kind == "none"           ? CacheKind::kNone
                : read.kind == "bytes"        ? CacheKind::kBytes
                : read.kind == "coefficients" ? CacheKind::kCoefficients
                : read.kind == "decoded"      ? CacheKind::kDecoded
                                              : CacheKind::kAuto;
  if (read.ram) cache->memory_bytes = read.ram->bytes;
  if (read.disk) cache->disk_bytes = read.disk->bytes;
  return absl::OkStatus();
}

std::string Stem(absl::string_view path) {
  if (const size_t slash = path.rfind('/'); slash != absl::string_view::npos)
    path.remove_prefix(slash + 1);
  if (const size_t dot = path.rfind('.'); dot != absl::string_view::npos && dot > 0)
    path = path.substr(0, dot);
  return std::string(path);
}

// The root that files of ops lie below where they name none.
std::string RootOf(const YamlNode& dataset) {
  const YamlNode* const root = dataset.Find("root");
  return root != nullptr && root->is_scalar() ? root->scalar : "";
}

absl::StatusOr<PipelineSpec> ReadPipeline(const YamlNode& root, absl::string_view file_name,
                                          const PipelineCaps& caps, OpFileReader* files) {
  if (!root.is_map()) {
    return root.Error(absl::StrCat(
        "a pipeline is a map with the keys version, dataset, graph, ..., not ", root.Found()));
  }
  // The version comes first: a file of a later one may have keys that this one does not know.
  if (const YamlNode* version = root.Find("version")) FW_RETURN_IF_ERROR(ReadVersion(*version));
  FW_RETURN_IF_ERROR(CheckKeys(root, PipelineParams(), "a pipeline"));

  PipelineSpec spec;
  spec.caps = caps;
  spec.name = Stem(file_name);
  spec.dataset = *root.Find("dataset");
  FW_RETURN_IF_ERROR(ReadDataset(spec.dataset));
  std::optional<FilesOnce> once;
  if (files != nullptr) once.emplace(*files);
  const OpFileSource source{once.has_value() ? &*once : nullptr, RootOf(spec.dataset)};
  if (const YamlNode* node = root.Find("sampler")) {
    FW_ASSIGN_OR_RETURN(spec.sampler, SamplerSchema().Read(*node, "'sampler'"));
  }
  if (const YamlNode* node = root.Find("graph")) {
    FW_ASSIGN_OR_RETURN(spec.graph, ReadOps(*node, /*is_batch=*/false, source));
  }
  if (const YamlNode* node = root.Find("batch"))
    FW_RETURN_IF_ERROR(ReadBatch(*node, source, &spec));
  FW_RETURN_IF_ERROR(MoveBatchOps(&spec));
  if (const YamlNode* node = root.Find("outputs")) {
    FW_ASSIGN_OR_RETURN(spec.outputs_node, ExpandOutputs(*node));
    FW_ASSIGN_OR_RETURN(spec.outputs, ReadOutputs(spec.outputs_node));
  } else {
    spec.outputs_node = root;
    spec.outputs_node.kind = YamlNode::Kind::kNull;
    spec.outputs_node.entries.clear();
    spec.outputs = {{.name = "image"}, {.name = "label"}};
  }
  if (spec.sampler.last == "auto") {
    constexpr absl::string_view kIsReal = "is_real";
    const bool looks_at_it =
        absl::c_any_of(spec.outputs,
                       [&](const OutputSpec& output) { return output.name == kIsReal; }) ||
        absl::c_any_of(spec.batch_graph,
                       [&](const OpSpec& op) { return absl::c_linear_search(op.in, kIsReal); });
    spec.sampler.last = std::string(LastBatchName(ResolveLast(spec.sampler, looks_at_it)));
  }
  FW_RETURN_IF_ERROR(ReadBadSamples(root, &spec));
  FW_RETURN_IF_ERROR(ReadLimits(root.Find("limits"), caps.images, &spec.limits));
  FW_RETURN_IF_ERROR(CheckTime(root, spec, "max_decode_ms", spec.limits.max_decode_ms));
  FW_RETURN_IF_ERROR(CheckTime(root, spec, "max_sample_ms", spec.limits.max_sample_ms));
  FW_RETURN_IF_ERROR(CheckCounts(spec));
  if (const YamlNode* node = root.Find("cache")) FW_RETURN_IF_ERROR(ReadCache(*node, &spec.cache));

  FW_ASSIGN_OR_RETURN(const std::string canonical, CanonicalPipeline(spec));
  const std::vector<OpFile> read = spec.files();
  if (absl::c_all_of(read, [](const OpFile& file) { return file.content != nullptr; }))
    spec.digest = Digest128(canonical);
  return spec;
}

}  // namespace

absl::string_view BadSamplePolicyName(BadSamplePolicy policy) {
  switch (policy) {
    case BadSamplePolicy::kFail:
      return "fail";
    case BadSamplePolicy::kSubstitute:
      return "substitute";
    case BadSamplePolicy::kSkipWithCount:
      return "skip_with_count";
  }
  return "";
}

const std::vector<ParamInfo>& PipelineParams() {
  static const std::vector<ParamInfo>* keys = [] {
    auto* list = new std::vector<ParamInfo>;
    const auto add = [list](const char* name, const char* type, const char* json_type,
                            const char* doc, bool required = false,
                            std::vector<ParamInfo> nested = {}) {
      ParamInfo info;
      info.name = name;
      info.type = type;
      info.json_type = json_type;
      info.doc = doc;
      info.required = required;
      info.nested = std::move(nested);
      list->push_back(std::move(info));
    };
    constexpr char kMap[] = R"({"type":"object"})", kList[] = R"({"type":["array","null"]})";
    add("version", "1", R"({"const":1})", "Format of this file.", true);
    add("dataset", "map", kMap,
        "What is read: format, root, path and the format's own parameters; or `mix`, several "
        "datasets in exact shares (formats.md).",
        true, DatasetParams());
    add("sampler", "map", kMap, "Order of the records.", false, SamplerSchema().params());
    add("graph", "list of ops", kList,
        "What happens to each sample, read top to bottom. A field's name in `in` and `out` may "
        "have a range: `out: \"view_{0..9}\"` is ten ops, one for each of view_0 to view_9, with "
        "draws of their own.");
    std::vector<ParamInfo> batch = BatchSchema().params();
    ParamInfo batch_graph;
    batch_graph.name = "graph";
    batch_graph.type = "list of ops";
    batch_graph.json_type = kList;
    batch_graph.doc = "What happens to each batch once all its samples are there.";
    batch.push_back(std::move(batch_graph));
    add("batch", "map", kMap, "Size of a batch and ops on whole batches.", false, std::move(batch));
    const std::string outputs = absl::StrCat(R"({"type":"array","items":)", kFieldNameJson,
                                             R"(,"minItems":1,"uniqueItems":true})");
    add("outputs", "list of fields", outputs.c_str(),
        "Fields that the client receives, in its order; \"view_{0..9}\" are ten. Beside the "
        "dataset's and the graph's own: "
        "sample_id (int64, the record's number), position (int64, place in the epoch's order), "
        "is_real (bool, false for padding and for skipped samples). A field whose first axis "
        "differs from sample to sample, such as boxes float32[?,4], is delivered as it is "
        "(ragged): the rows of all samples together, and where those of each begin; `{boxes: "
        "{max_rows: 128}}` bounds them, `{boxes: {pad_to: 100}}` makes a fixed shape of it. "
        "NAME_length (int64) is the number of a sample's rows of such a field.");
    list->back().default_text = "[image, label]";
    list->back().item = OutputParameters();
    const std::vector<ParamInfo>& bad = BadSampleSchema().params();
    list->insert(list->end(), bad.begin(), bad.end());
    add("limits", "map", kMap, "What an image and a sample may cost.", false,
        LimitSchema().params());
    add("cache", "map", kMap, "What is kept for the next epoch and the next job. Changes no byte.",
        false, CacheSchema().params());
    return list;
  }();
  return *keys;
}

std::vector<OpFile> PipelineSpec::files() const {
  std::vector<OpFile> all;
  for (const std::vector<OpSpec>* ops : {&graph, &batch_graph}) {
    for (const OpSpec& op : *ops) {
      for (const auto& [name, file] : op.files) {
        const bool is_there = absl::c_any_of(all, [&own = file](const OpFile& other) {
          return other.root == own.root && other.path == own.path;
        });
        if (!is_there) all.push_back(file);
      }
    }
  }
  return all;
}

absl::StatusOr<PipelineSpec> ParsePipeline(absl::string_view text, absl::string_view file_name,
                                           const PipelineCaps& caps, OpFileReader* files) {
  FW_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, file_name));
  FW_ASSIGN_OR_RETURN(PipelineSpec spec, ReadPipeline(root, file_name, caps, files));
  spec.text = std::string(text);
  spec.file_name = std::string(file_name);
  return spec;
}

absl::StatusOr<PipelineSpec> ReadPipelineFile(const std::string& path, const PipelineCaps& caps,
                                              OpFileReader* files) {
  std::string text;
  FW_ASSIGN_OR_RETURN(const YamlNode root, ReadYamlFile(path, YamlLimits(), &text));
  FW_ASSIGN_OR_RETURN(PipelineSpec spec, ReadPipeline(root, path, caps, files));
  spec.text = std::move(text);
  spec.file_name = path;
  return spec;
}

}  // namespace feedwater::server
