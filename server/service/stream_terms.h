// What a stream will be: a client's request, checked against the pipeline that it names, before
// anything is made for it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "feedwater/v1/control.pb.h"
#include "server/batch/slot_layout.h"
#include "server/pipeline/job_config.h"
#include "server/sampler/order.h"

namespace feedwater::server {

struct StreamTerms {
  JobConfig job;  // its name and owner are not the request's to say
  std::shared_ptr<const OrderConfig> order;
  uint64_t epoch = 0;
  int64_t position = 0;
  SlotLayout layout;
};

// InvalidArgument or FailedPrecondition, with what to change.
absl::StatusOr<StreamTerms> Negotiate(const v1::OpenStreamRequest& request,
                                      const std::shared_ptr<const LoadedPipeline>& pipeline,
                                      int64_t max_slot_bytes);

}  // namespace feedwater::server
