// Ops of the user's own for a decoder process: it has no way to the user's program, so its worker
// calls that and puts what comes of it into the region.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "server/decoder/isolated_maker.h"
#include "server/graph/op_caller.h"

namespace feedwater::server {

absl::Status IsolatedMaker::RunCall(const SampleInput& input) {
  const Region& region = process_->region();
  const std::string name = Said(answer_);
  std::vector<Tensor> inputs;
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < answered_.size(); ++i) {
    FW_ASSIGN_OR_RETURN(TensorSpec spec, CheckField(answered_[i], options_.output_bytes));
    if (i < answer_.call_inputs) {
      inputs.push_back({std::move(spec), region.output() + answered_[i].offset});
    } else {
      outputs.push_back(std::move(spec));
    }
  }
  Request reply = {};
  reply.command = static_cast<uint32_t>(DecoderCommand::kReturn);
  // The one before has been taken over.
  const uint64_t record_bytes = input_used_;
  std::vector<RegionField> fields;
  const auto put = [&](const TensorSpec& spec, const std::byte* data, size_t bytes) {
    uint64_t offset = 0;
    RegionField& field = fields.emplace_back();
    return Describe(spec, 0, bytes, &field) &&
           PutInput(data, bytes, options_.input_bytes, &offset) && (field.offset = offset, true);
  };
  OpCall call;
  call.name = &name;
  call.record = input.sample_id;
  call.seed = {answer_.seed[0], answer_.seed[1]};
  call.inputs = inputs;
  call.outputs = outputs;
  call.gone = gone_;
  call.clock = clock_;
  absl::Status status = absl::FailedPreconditionError("nobody runs ops of the user's own here");
  if (caller_.get() != nullptr && inputs.size() == answer_.call_inputs) {
    status = caller_.Call(call, [&](absl::Span<const Tensor> made) {
      for (const Tensor& tensor : made) {
        if (put(tensor.spec, tensor.data, tensor.bytes())) continue;
        return absl::InvalidArgumentError("larger than a decoder process can be given (isolation)");
      }
      return absl::OkStatus();
    });
  }
  if (absl::IsCancelled(status) || absl::IsUnavailable(status) || absl::IsResourceExhausted(status))
    return status;
  if (!status.ok()) {
    fields.clear();
    input_used_ = record_bytes;
    reply.code = static_cast<uint32_t>(status.code());
    TensorSpec text;
    text.shape = {static_cast<int64_t>(status.message().size())};
    const auto* const message = reinterpret_cast<const std::byte*>(status.message().data());
    if (!put(text, message, status.message().size())) fields.clear();
  }
  input_used_ = record_bytes;
  reply.fields = static_cast<uint32_t>(fields.size());
  std::memcpy(region.at(kRequestAt), &reply, sizeof(reply));
  std::memcpy(region.at(kRequestAt + sizeof(reply)), fields.data(),
              fields.size() * sizeof(RegionField));
  return absl::OkStatus();
}

}  // namespace feedwater::server
