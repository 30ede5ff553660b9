#include "client/cli/prefix_values.h"

#include <utility>

#include "server/base/work_clock.h"
#include "server/source/tar_writer.h"

namespace feedwater::cli {

absl::StatusOr<std::unique_ptr<ValueMaker>> PrefixValues::Create(const LocalPipeline& local) {
  std::unique_ptr<PrefixValues> values(new PrefixValues(local));
  if (local.decoders != nullptr) {
    FW_ASSIGN_OR_RETURN(
        SampleBatch batch,
        SampleBatch::Create(local.plan(), /*samples=*/1,
                            local.NewMaker(local.loaded->plan,
                                           server::SetupOf(local.loaded->spec, local.dataset()))));
    values->isolated_ = std::make_unique<SampleBatch>(std::move(batch));
  }
  return std::unique_ptr<ValueMaker>(std::move(values));
}

absl::StatusOr<const server::Record*> PrefixValues::Make(int64_t record,
                                                         const server::Record& parsed) {
  server::SampleInput input;
  input.record = &parsed;
  input.sample_id = input.position = record;
  if (isolated_ != nullptr) {
    FW_RETURN_IF_ERROR(MakeIsolated(input));
    return &values_;
  }
  workspace_.clock().Begin(local_.plan().limits().max_sample_ms, nullptr);
  FW_RETURN_IF_ERROR(
      local_.plan().RunPrefix(input, server::kMaxTarBytes / 2, workspace_, &values_));
  return &values_;
}

absl::Status PrefixValues::MakeIsolated(const server::SampleInput& input) {
  bool is_made = false;
  const absl::Status status =
      isolated_->RunKeeping(input, server::kMaxTarBytes / 2, [&](const server::Record& kept) {
        Copy(kept);
        is_made = true;
      });
  // What comes behind the prefix is another run's, with other draws.
  if (is_made) return absl::OkStatus();
  return status.ok() ? absl::DataLossError("the graph's prefix cannot be made of it") : status;
}

void PrefixValues::Copy(const server::Record& kept) {
  values_.fields = kept.fields;
  bytes_.resize(kept.fields.size());
  for (size_t i = 0; i < kept.fields.size(); ++i) {
    const server::Tensor& field = kept.fields[i];
    bytes_[i].assign(field.data, field.data + field.bytes());
    values_.fields[i].data = bytes_[i].data();
  }
}

}  // namespace feedwater::cli
