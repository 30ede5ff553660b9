// One worker thread's work: it takes tickets, reads their records, runs each sample to completion
// into its place in the slot as soon as its bytes are there, and sleeps when there is nothing to
// do. Everything it needs is its own: engine, buffers, decoder state or decoder processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/decoder/in_process_maker.h"
#include "server/decoder/isolated_maker.h"
#include "server/graph/plan.h"
#include "server/pipeline/free_list.h"
#include "server/pipeline/kept_record.h"
#include "server/pipeline/parking.h"
#include "server/pipeline/record_reader.h"
#include "server/pipeline/scheduler.h"
#include "server/pipeline/turns.h"
#include "server/pipeline/usage.h"

namespace feedwater::server {

class Worker final : private RecordOwner {
 public:
  struct Parts {
    int number = 0;  // of the worker, from 0
    Scheduler* scheduler = nullptr;
    Parking* parking = nullptr;
    const std::atomic<bool>* stop = nullptr;  // set before the scheduler is stopped
    std::unique_ptr<RecordReader> reader;     // of the calling thread, which also calls Run
    std::shared_ptr<SampleRooms> rooms;
    WorkClock* clock = nullptr;                 // beats while it gets on
    const BadSampleLog* bad_samples = nullptr;  // what may not be worked on; may be null
    Breadcrumb* crumb = nullptr;                // may be null
    std::shared_ptr<DecoderHost> decoders;      // for isolated jobs; may be null
  };
  explicit Worker(Parts parts);
  void Run();  // until `stop`, and until everything taken is given back

 private:
  // A ticket that is being worked on.
  struct Work {
    Ticket ticket;
    TicketResult result;
    int64_t left = 0;   // places not done
    OpenedFiles files;  // that were read for it, and not proven to be unchanged since
  };

  // One place of it.
  struct Sample : Turns::Sample {
    Work* work = nullptr;
    int64_t place = 0;
    Placement placement;
    int64_t tries = 0;  // substitutes tried
    BadSample bad;      // the place's own record, once that is known to be bad
    RecordBytes bytes;  // of that record, or of the substitute that is tried
  };

  // Who makes a job's samples in a process; kept while the job lasts.
  struct Seat {
    std::shared_ptr<Job> job;
    std::unique_ptr<IsolatedMaker> maker;
  };

  bool IsUnwanted(const RecordBytes& bytes) override;
  void HeldUp(const RecordBytes& bytes, int change) override;
  uint32_t UserOf(const RecordBytes& bytes) override;
  bool IsPointless(const Sample& sample) const;
  SampleMaker& MakerFor(const Batch& batch);
  void LeaveEndedJobs();
  void TakeTickets();
  void StartTicket(Ticket ticket);
  void ProcessInTurn(Sample* sample);
  void Process(Sample* sample);
  Sample* NextSample();
  absl::Status RunSample(const Sample& sample);
  absl::Status MakeSample(const Sample& sample, SampleMaker& maker, SampleInput* input,
                          int64_t* parse_ns, bool* keep);
  absl::Status EnterRoom(const Sample& sample, const SampleInput& input, SampleWay way, bool packs,
                         SampleMaker& maker);
  void LeaveRoom();
  void GiveBackMemory();
  SampleInput InputOf(const Sample& sample) const;
  void EnterCrumb(const Sample& sample);
  absl::Status OpenKept(const Sample& sample);
  void ReadAnew(Sample* sample);
  absl::StatusOr<bool> PackRecord(const Sample& sample, SampleMaker& maker);
  bool StartSubstitute(Sample* sample);
  void GiveUp(Sample* sample, BatchFailure failure);
  static void Fail(Work* work, int64_t place, BatchFailure failure);
  static void ProveFiles(Work* work);
  BadSample Bad(const Sample& sample, const absl::Status& status) const;
  void Done(Sample* sample);
  void Complete(Work* work);
  absl::Status RunBatchOps(const Batch& batch);

  // The CPU time from here on is this job's.
  void WorkFor(const std::shared_ptr<Job>& job);
  void CountCpu();

  const int number_;
  Scheduler* const scheduler_;
  Parking* const parking_;
  const std::atomic<bool>* const stop_;
  const std::unique_ptr<RecordReader> reader_;
  const std::shared_ptr<SampleRooms> rooms_;
  const BadSampleLog* const bad_samples_;
  Breadcrumb* const crumb_;
  const std::shared_ptr<DecoderHost> decoders_;
  WorkClock* const clock_;
  InProcessMaker in_process_;
  std::vector<Seat> seats_;
  SampleRooms::Room room_;             // of the sample under way, if it is a large one
  const Plan* fitted_plan_ = nullptr;  // for whose samples the buffers were last looked at
  Record record_;                      // scratch
  Record kept_record_;                 // fields that come from the cache
  ByteSpans kept_;               // extents that come from the cache, or go there with payload_
  std::vector<Extent> extents_;  // scratch
  std::vector<std::byte> payload_;
  std::vector<std::vector<std::byte>> documents_;
  FreeList<Work> works_;
  FreeList<Sample> samples_;
  int64_t held_up_ = 0;      // of them, by storage
  Turns turns_;              // in which samples of several users are made
  bool no_tickets_ = false;  // Take found none at no_tickets_since_
  uint64_t no_tickets_since_ = 0;

  std::shared_ptr<Job> job_;  // whose time is running; null: nobody's
  Usage usage_;               // of job_, not told to the scheduler yet
  int64_t cpu_counted_ns_ = 0;
  int64_t used_ns_ = 0;  // in all: CPU time, and what decoder processes took or kept it waiting
  uint32_t stage_clock_ = 0;
};

}  // namespace feedwater::server
