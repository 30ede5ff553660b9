#include "server/pipeline/publication.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/source/given_records.h"

namespace feedwater::server {

std::optional<Publication> TakeDone(Stream& stream, bool our_turn) {
  auto& state = stream.guarded_;
  if (state.publishing && !our_turn) return std::nullopt;  // who has the turn will see this batch
  state.publishing = !state.open.empty() && state.open.front()->guarded_.done;
  if (!state.publishing) return std::nullopt;
  Publication next;
  next.batch = std::move(state.open.front());
  state.open.pop_front();
  next.meta = next.batch->meta();
  auto& result = next.batch->guarded_;
  std::swap(next.bad, result.bad);
  const Job& job = stream.job();
  const PipelineSpec& spec = job.config().pipeline->spec;
  PublishedCounts& published = stream.job().guarded_.published;
  if (result.failed) {
    next.failure = result.failure;
    // What else was found in this batch depends on who was faster.
    next.bad.KeepOnly(result.failure.record < 0 ? -1 : result.failed_place);
    if (result.failure.record >= 0) ++published.bad_samples;
    return next;
  }
  next.failure = state.bad.Add(job.dataset(), spec.max_bad_fraction,
                               SamplesPerEpoch(*job.order_config(), stream.rank()), next.meta.epoch,
                               &next.bad);
  if (next.failure.has_value()) {
    published.bad_samples += next.bad.places().size();
    state.producing = false;
    next.ends_stream = true;
    return next;
  }
  next.meta.real_samples = static_cast<uint32_t>(result.real);
  next.meta.substituted = static_cast<uint32_t>(next.bad.places().size());
  next.meta.skipped = spec.on_bad_sample == BadSamplePolicy::kSkipWithCount;
  published.Add(next.meta);
  state.published_epoch = next.meta.epoch;
  state.published_step = next.meta.step;
  return next;
}

void HandOver(const Publication& publication, BadSampleLog* log) {
  const Stream& stream = publication.batch->stream();
  const JobConfig& job = stream.job().config();
  const Dataset& dataset = stream.job().dataset();
  if (log != nullptr) {
    const std::string contents = ContentsIn(dataset, publication.meta.epoch);
    for (const BadPlaces::Entry& place : publication.bad.places()) {
      BadSample bad = publication.bad.At(dataset, place);
      if (WorkersOf(dataset) > 0) bad.path = absl::StrCat("epoch ", publication.meta.epoch);
      bad.is_of_own_code = !job.pipeline->own_code.empty();
      log->Add(contents, job.pipeline->spec, bad, job.owner_uid);
    }
  }
  const int slot = publication.batch->slot();
  if (publication.failure.has_value()) {
    stream.slots().Abandon(slot);
    stream.slots().Fail(publication.meta, *publication.failure);
  } else {
    stream.slots().Publish(slot, publication.meta);
  }
}

}  // namespace feedwater::server
