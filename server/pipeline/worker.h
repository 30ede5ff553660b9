// One worker thread's work: it takes tickets, has their records read (record_reader.h), has each
// made into a sample as soon as its bytes are there (sample_runner.h), and sleeps when there is
// nothing to do. What becomes of a bad record is decided here. Everything it needs is its own:
// engine, buffers, decoder state or decoder processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/pipeline/free_list.h"
#include "server/pipeline/parking.h"
#include "server/pipeline/record_reader.h"
#include "server/pipeline/sample_runner.h"
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
    PhiloxKey key{};    // of that record's draws, or of the substitute's that is tried
    int64_t tries = 0;  // substitutes tried
    BadSample bad;      // the place's own record, once that is known to be bad
    RecordBytes bytes;  // of that record, or of the substitute that is tried
  };

  bool IsUnwanted(const RecordBytes& bytes) override;
  void HeldUp(const RecordBytes& bytes, int change) override;
  uint32_t UserOf(const RecordBytes& bytes) override;
  bool IsPointless(const Sample& sample) const;
  void TakeTickets();
  void StartTicket(Ticket ticket);
  void ProcessInTurn(Sample* sample);
  void Process(Sample* sample);
  Sample* NextSample();
  absl::Status Make(const Sample& sample);
  SampleInput InputOf(const Sample& sample) const;
  bool StartSubstitute(Sample* sample);
  void GiveUp(Sample* sample, BatchFailure failure);
  static void Fail(Work* work, int64_t place, BatchFailure failure);
  static void ProveFiles(Work* work);
  BadSample Bad(const Sample& sample, const absl::Status& status) const;
  void Done(Sample* sample);
  void Complete(Work* work);

  // The CPU time from here on is this job's.
  void WorkFor(const std::shared_ptr<Job>& job);
  void CountCpu();

  const int number_;
  Scheduler* const scheduler_;
  Parking* const parking_;
  const std::atomic<bool>* const stop_;
  const std::unique_ptr<RecordReader> reader_;
  const std::shared_ptr<SampleRooms> rooms_;
  SampleRunner runner_;
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
};

}  // namespace feedwater::server
