#include "client/cli/materialize_work.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/prefix_values.h"
#include "server/base/status.h"

namespace feedwater::cli {
namespace {

// Of a record whose size only its image tells, a thread takes few at a time.
constexpr size_t kLargeRecords = 4;
constexpr int64_t kChunkBytes = 4 << 20;

size_t ChunkRecords(const std::vector<server::FieldSpec>& fields) {
  int64_t bytes = 0;
  for (const server::FieldSpec& field : fields) {
    const absl::StatusOr<int64_t> size = field.spec.ByteSize();
    const bool is_image =
        field.spec.layout == server::Layout::kHWC || field.spec.layout == server::Layout::kCHW;
    if (!size.ok() && is_image) return kLargeRecords;
    if (size.ok() && __builtin_add_overflow(bytes, *size, &bytes)) return 1;
  }
  return std::clamp(static_cast<size_t>(kChunkBytes / std::max<int64_t>(bytes, 1)), size_t{1},
                    ShardMaker::kMostChunkRecords);
}

}  // namespace

absl::StatusOr<ConversionWork> MaterializeWork(const Conversion& conversion, int64_t shard_bytes,
                                               server::Continuation* continuation) {
  const LocalPipeline& local = conversion.local();
  const server::Dataset& dataset = local.dataset();
  const server::PipelineSpec& spec = local.loaded->spec;
  FW_ASSIGN_OR_RETURN(*continuation,
                      server::ContinuationOf(spec, dataset.fields(),
                                             static_cast<int64_t>(dataset.classes().size())));
  ConversionWork work;
  work.more_files = {kPipelineFile};
  work.fields = continuation->fields;
  FW_ASSIGN_OR_RETURN(const std::vector<bool> field_is_text, conversion.FindTexts());
  std::vector<bool> is_text;
  for (const int source : continuation->sources)
    is_text.push_back(source >= 0 && field_is_text[static_cast<size_t>(source)]);
  FW_ASSIGN_OR_RETURN(work.members, RecordMembers::Plan(work.fields, is_text));
  work.made_from = {{"command", "materialize"},
                    {"prefix", local.plan().prefix().digest},
                    {"max_pixels", spec.limits.max_pixels},
                    {"max_scans", spec.limits.max_scans},
                    {"max_decode_ms", spec.limits.max_decode_ms},
                    {"max_sample_ms", spec.limits.max_sample_ms}};
  work.maker.shard_bytes = shard_bytes;
  // `shuffle: block` goes by shards: the same ones give the same order.
  if (spec.sampler.shuffle == "block") {
    work.maker.shard_starts = dataset.shard_starts();
    if (!work.maker.shard_starts.empty()) work.made_from["shards"] = "the dataset's";
  }
  work.maker.keeps_bad_places = true;
  work.maker.chunk_records = ChunkRecords(work.fields);
  work.maker.new_values = [&local] { return PrefixValues::Create(local); };
  return work;
}

}  // namespace feedwater::cli
