// What makes a job, beside the ranks that attach to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/pipeline/job_files.h"
#include "server/pipeline/loaded_pipeline.h"

namespace feedwater::server {

struct JobConfig {
  std::string name;  // what status shows
  std::shared_ptr<const LoadedPipeline> pipeline;
  int64_t batch_size = 0;  // per rank
  int64_t world_size = 1;
  uint64_t seed = 0;
  uint32_t owner_uid = 0;
  bool isolated = false;  // samples are made in decoder processes, which the runtime then has
  FilesMark files;        // of a rank that lost its daemon
};

}  // namespace feedwater::server
