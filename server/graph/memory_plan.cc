// Decides before the first sample where every value lies: in the slot, in staging memory, or in a
// buffer of the worker.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/graph/plan_impl.h"

namespace feedwater::server {
namespace {

constexpr int64_t kStagingAlignment = 64;

class BatchPlacer {
 public:
  explicit BatchPlacer(Plan::Impl* plan)
      : plan_(*plan), flow_(plan->flow), is_placed_(plan->flow.batch_values.size()) {
    plan_.batch_places.resize(flow_.batch_values.size());
  }

  absl::Status Run() {
    for (size_t i = 0; i < flow_.batch_values.size(); ++i) {
      const BatchValue& value = flow_.batch_values[i];
      FW_ASSIGN_OR_RETURN(
          plan_.batch_places[i].sample_bytes,
          (value.max_rows > 0 ? value.spec.WithRows(value.max_rows) : value.spec).ByteSize());
    }
    for (size_t i = 0; i < flow_.outputs.size(); ++i) {
      plan_.batch_places[flow_.outputs[i]].output = static_cast<int>(i);
      is_placed_[flow_.outputs[i]] = true;
    }
    // Backwards, so that an op's outputs have their place before its inputs look for one to share.
    for (auto node = flow_.batch_nodes.rbegin(); node != flow_.batch_nodes.rend(); ++node) {
      if (!node->is_live) continue;
      for (int value : node->out) FW_RETURN_IF_ERROR(Stage(value));
      for (size_t i = 0; i < node->in.size(); ++i) {
        const int value = node->in[i];
        plan_.batch_scratch_bytes =
            std::max(plan_.batch_scratch_bytes, plan_.batch_places[value].sample_bytes);
        if (CanWorkInPlace(*node, i)) {
          plan_.batch_places[value] = plan_.batch_places[node->out[i]];
          is_placed_[value] = true;
        }
        FW_RETURN_IF_ERROR(Stage(value));
      }
    }
    return absl::OkStatus();
  }

 private:
  bool CanWorkInPlace(const BatchNode& node, size_t i) const {
    const int value = node.in[i];
    return !is_placed_[value] && i < node.out.size() &&
           flow_.batch_values[value].readers.size() == 1 &&
           flow_.batch_values[value].spec == flow_.batch_values[node.out[i]].spec;
  }

  absl::Status Stage(int value) {
    if (is_placed_[value]) return absl::OkStatus();
    is_placed_[value] = true;
    BatchPlace& place = plan_.batch_places[value];
    place.staging_offset = plan_.staging_bytes;
    int64_t next = 0;
    if (__builtin_add_overflow(place.sample_bytes, kStagingAlignment - 1, &next) ||
        __builtin_add_overflow(plan_.staging_bytes, next / kStagingAlignment * kStagingAlignment,
                               &plan_.staging_bytes)) {
      return absl::InvalidArgumentError("the memory between batch ops overflows 64 bits");
    }
    return absl::OkStatus();
  }

  Plan::Impl& plan_;
  const Dataflow& flow_;
  std::vector<bool> is_placed_;
};

}  // namespace

absl::Status PlaceBatchValues(Plan::Impl* plan) { return BatchPlacer(plan).Run(); }

void PlaceValues(const Dataflow& flow, const std::vector<int>* kept, Program* program) {
  std::vector<ValuePlace>& places = program->places;
  places.resize(flow.values.size());
  program->buffers = program->first_buffer;
  if (kept != nullptr) {
    for (size_t i = 0; i < kept->size(); ++i) {
      const int value = (*kept)[i];
      if (flow.values[value].source >= 0) continue;  // the record has it
      places[value].buffer = static_cast<int>(i);
      places[value].is_kept = true;
    }
    program->buffers = std::max(program->buffers, kept->size());
  } else {
    std::vector<bool> is_written(flow.values.size());
    for (const Step& step : program->steps) {
      for (int value : step.out) is_written[value] = true;
    }
    for (size_t v = 0; v < flow.values.size(); ++v) {
      const Value& value = flow.values[v];
      if (value.length_value >= 0 || (value.batch_value >= 0 && value.spec.HasVaryingRows()))
        program->varying.push_back(static_cast<int>(v));
      if (value.batch_value < 0) continue;
      if (is_written[v]) {
        places[v].batch_value = flow.values[v].batch_value;
      } else {
        program->copied.push_back(static_cast<int>(v));
      }
    }
  }
  // A buffer serves another value as soon as the last reader of its value has run.
  std::vector<int> last_reader(flow.values.size(), -1);
  for (size_t s = 0; s < program->steps.size(); ++s) {
    for (int value : program->steps[s].in) last_reader[value] = static_cast<int>(s);
  }
  // A slot's memory that nobody here reads again must not push other things out of the caches.
  for (Step& step : program->steps) {
    if (step.parts.size() < 2 || last_reader[step.out[0]] >= 0) continue;
    const int value = places[step.out[0]].batch_value;
    step.format.stream =
        value >= 0 && flow.batch_values[value].readers.empty() &&
        std::find(flow.outputs.begin(), flow.outputs.end(), value) != flow.outputs.end();
  }
  std::vector<int> free;
  for (size_t s = 0; s < program->steps.size(); ++s) {
    const Step& step = program->steps[s];
    for (int value : step.out) {
      if (places[value].batch_value >= 0 || places[value].is_kept) continue;
      if (free.empty()) free.push_back(static_cast<int>(program->buffers++));
      places[value].buffer = free.back();
      free.pop_back();
    }
    const auto release = [&](int value) {
      if (places[value].buffer >= 0 && !places[value].is_kept) free.push_back(places[value].buffer);
    };
    for (int value : step.in) {
      if (last_reader[value] == static_cast<int>(s)) release(value);
    }
    for (int value : step.out) {
      if (last_reader[value] < 0) release(value);  // an op's second output that nobody needs
    }
  }
}

}  // namespace feedwater::server
