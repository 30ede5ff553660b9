// Makes samples for one worker, one after another: from a record's bytes, or from what the cache
// has kept of it, to its place in the batch. Before that it sees to the memory that the sample
// takes; after it, what the cache wants of the record is put there (cached_record.h).
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/decoder/in_process_maker.h"
#include "server/decoder/isolated_maker.h"
#include "server/graph/plan.h"
#include "server/pipeline/bad_sample_log.h"
#include "server/pipeline/breadcrumbs.h"
#include "server/pipeline/cached_record.h"
#include "server/pipeline/record_reader.h"
#include "server/pipeline/scheduler.h"
#include "server/pipeline/usage.h"

namespace feedwater::server {

class SampleRunner {
 public:
  struct Parts {
    int worker = 0;  // its number, from 0
    std::shared_ptr<SampleRooms> rooms;
    WorkClock* clock = nullptr;                 // beats while a sample gets on
    const BadSampleLog* bad_samples = nullptr;  // what may not be worked on; may be null
    Breadcrumb* crumb = nullptr;                // may be null
    std::shared_ptr<DecoderHost> decoders;      // for isolated jobs; may be null
    CallTurn* turn = nullptr;                   // of calls of users' own ops; may be null
  };
  // What is made of which bytes.
  struct Making {
    const Batch& batch;
    const RecordBytes& bytes;
    int64_t place;
    bool is_cheap;
  };

  explicit SampleRunner(Parts parts);

  // Takes what the cache has kept of a record, for the next Run. An error: it is no use, which says
  // nothing about the record. REQUIRES: the bytes come from the cache.
  absl::Status OpenCached(const Job& job, const RecordBytes& bytes) {
    return cached_.Open(job, bytes);
  }
  // Makes the sample, and counts what that took.
  absl::Status Run(const Making& sample, SampleInput input, Usage* usage);
  // Runs the batch ops over a batch whose samples are all made, but for the first `ops_done`, and
  // packs its ragged outputs.
  absl::Status FinishBatch(const Batch& batch, size_t* ops_done, Usage* usage);

  void GiveBackMemory();
  void LeaveEndedJobs();  // ends the decoder processes of jobs that are over

 private:
  // Who makes a job's samples in a process; kept while the job lasts.
  struct JobMaker {
    std::shared_ptr<Job> job;
    std::unique_ptr<IsolatedMaker> maker;
  };

  SampleMaker& MakerFor(const Batch& batch);
  absl::Status Make(const Making& sample, SampleMaker& maker, SampleInput* input, Usage* usage,
                    int64_t* parse_ns);
  absl::Status EnterRoom(const Making& sample, const SampleInput& input, SampleWay way, bool packs,
                         SampleMaker& maker, Usage* usage);
  void LeaveRoom();
  void EnterCrumb(const Making& sample);
  const std::string& ContentsOf(const Batch& batch);

  const int worker_;
  const std::shared_ptr<SampleRooms> rooms_;
  WorkClock* const clock_;
  const BadSampleLog* const bad_samples_;
  Breadcrumb* const crumb_;
  const std::shared_ptr<DecoderHost> decoders_;
  CallTurn* const turn_;
  InProcessMaker in_process_;
  std::vector<JobMaker> job_makers_;
  SampleRooms::Room room_;    // of the sample under way, if it is a large one
  uint64_t fitted_plan_ = 0;  // the id of that for whose samples the buffers were last
                              // looked at; 0: of none
  Record record_;             // scratch
  CachedRecord cached_;
  std::vector<Extent> extents_;  // scratch
  std::string contents_;         // scratch
  uint32_t stage_clock_ = 0;
};

}  // namespace feedwater::server
