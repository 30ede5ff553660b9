#include "server/service/stream_terms.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/shm/wire.h"
#include "server/base/units.h"
#include "server/pipeline/dataset_order.h"
#include "server/service/cursor.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

struct Start {
  uint64_t epoch = 0;
  int64_t position = 0;
};

absl::StatusOr<Start> ReadStart(const v1::OpenStreamRequest& request,
                                const LoadedPipeline& pipeline, uint64_t seed) {
  if (request.cursor().empty()) return Start{request.epoch(), 0};
  FW_ASSIGN_OR_RETURN(Cursor cursor, ParseCursor(request.cursor()));
  CursorTarget target{pipeline.spec.name, pipeline.dataset->digest(), pipeline.spec.digest, seed,
                      WorkersOf(*pipeline.dataset) == 0 ? 0 : request.world_size()};
  FW_RETURN_IF_ERROR(CheckCursor(cursor, target));
  return Start{cursor.epoch, cursor.position};
}

absl::StatusOr<int64_t> ReadBatchSize(const v1::OpenStreamRequest& request,
                                      const PipelineSpec& spec) {
  if (request.has_batch_size()) return request.batch_size();
  if (spec.batch_size > 0) return spec.batch_size;
  return absl::InvalidArgumentError(
      absl::StrCat("pipeline '", spec.name,
                   "' sets no batch size; give batch_size, or set batch.size in its file"));
}

// A client of before would take the rows for something else.
absl::Status CheckTakesRagged(const v1::OpenStreamRequest& request, const SlotLayout& layout) {
  if (request.takes_ragged()) return absl::OkStatus();
  for (const SlotLayout::Output& output : layout.outputs) {
    if (!output.field.is_ragged()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "output '", output.field.name, "' is ragged (", output.field.ShapeText(),
        "), which this client (", Printable(request.client()),
        ") does not know: install a client of the daemon's version, or let the pipeline say "
        "pad_to of it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FilesMark> ReadMark(const v1::FilesMark& mark) {
  constexpr size_t kMaxIdentity = 64;
  if (mark.identity().size() > kMaxIdentity) {
    return absl::InvalidArgumentError(absl::StrCat("files.identity has ", mark.identity().size(),
                                                   " bytes; it has ", kMaxIdentity, " at most"));
  }
  return FilesMark{mark.as_of_ns(), mark.identity()};
}

}  // namespace

absl::StatusOr<StreamTerms> Negotiate(const v1::OpenStreamRequest& request,
                                      const std::shared_ptr<const LoadedPipeline>& pipeline,
                                      int64_t max_slot_bytes) {
  const PipelineSpec& spec = pipeline->spec;
  StreamTerms terms;
  // One slot is for programs that give a batch back before they ask for the next one.
  if (request.has_slots() && (request.slots() < 1 || request.slots() > wire::kMaxSlots)) {
    return absl::InvalidArgumentError(
        absl::StrCat("slots is ", request.slots(), "; it must be 1 to ", wire::kMaxSlots));
  }
  FW_ASSIGN_OR_RETURN(terms.job.batch_size, ReadBatchSize(request, spec));
  FW_RETURN_IF_ERROR(pipeline->plan->CheckBatchSize(terms.job.batch_size));
  terms.job.pipeline = pipeline;
  terms.job.world_size = request.world_size();
  terms.job.seed = request.has_seed() ? request.seed() : spec.sampler.seed;

  SamplerSpec sampler = spec.sampler;
  sampler.seed = terms.job.seed;
  FW_ASSIGN_OR_RETURN(
      OrderConfig order,
      MakeOrderConfig(sampler, *pipeline->dataset, terms.job.batch_size, terms.job.world_size));
  FW_RETURN_IF_ERROR(CheckRank(order, request.rank()));
  FW_RETURN_IF_ERROR(CheckSteps(order));
  FW_ASSIGN_OR_RETURN(const Start start, ReadStart(request, *pipeline, terms.job.seed));
  FW_RETURN_IF_ERROR(CheckStart(order, start.epoch, start.position));
  terms.order = std::make_shared<const OrderConfig>(std::move(order));
  terms.epoch = start.epoch;
  terms.position = start.position;
  FW_ASSIGN_OR_RETURN(terms.job.files, ReadMark(request.files()));
  FW_ASSIGN_OR_RETURN(terms.layout, SlotLayout::Create(pipeline->plan->outputs(),
                                                       terms.job.batch_size, max_slot_bytes));
  FW_RETURN_IF_ERROR(CheckTakesRagged(request, terms.layout));
  return terms;
}

}  // namespace feedwater::server
