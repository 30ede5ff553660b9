#include "server/pipeline/dataset_order.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status_message.h"
#include "server/source/mix.h"

namespace feedwater::server {
namespace {

static_assert(kMaxMixSources == MixSchedule::kMaxSources);
static_assert(kMaxMixWeights == MixSchedule::kMaxPeriod);

MixStop StopOf(DatasetMix::Stop stop) {
  switch (stop) {
    case DatasetMix::Stop::kAll:
      return MixStop::kAll;
    case DatasetMix::Stop::kFirst:
      return MixStop::kFirst;
    case DatasetMix::Stop::kSamples:
      return MixStop::kSamples;
  }
  return MixStop::kAll;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Mix>> MixOrderOf(const Dataset& dataset) {
  const DatasetMix* mix = dataset.mix();
  if (mix == nullptr) return nullptr;
  std::vector<MixSource> sources;
  for (const DatasetMix::Source& source : mix->sources)
    sources.push_back({source.records, source.weight, *source.shard_starts});
  absl::StatusOr<std::shared_ptr<const Mix>> order =
      Mix::Create(sources, StopOf(mix->stop), mix->samples);
  if (order.ok()) return order;
  std::string message(order.status().message());
  for (size_t i = sources.size(); i-- > 0;) {  // the sampler knows numbers alone
    const std::string number = absl::StrCat("source ", i, " of the mix");
    const size_t at = message.find(number);
    if (at != std::string::npos) message.replace(at, number.size(), mix->sources[i].name);
  }
  return WithMessage(order.status(), message);
}

absl::StatusOr<OrderConfig> MakeOrderConfig(const SamplerSpec& spec, const Dataset& dataset,
                                            int64_t batch_size, int64_t world_size) {
  if (dataset.mix() == nullptr) {
    return MakeOrderConfig(spec, dataset.size(), batch_size, world_size, dataset.shard_starts());
  }
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const Mix> mix, MixOrderOf(dataset));
  return MakeOrderConfig(spec, std::move(mix), batch_size, world_size);
}

}  // namespace feedwater::server
