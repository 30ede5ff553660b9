// One worker thread's work: it takes tickets, has their records read (record_reader.h), has each
// made into a sample as soon as its bytes are there (sample_runner.h), and sleeps when there is
// nothing to do. What becomes of a bad record is in substitution.h. Everything it needs is its own:
// engine, buffers, decoder state or decoder processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/pipeline/cpu_account.h"
#include "server/pipeline/free_list.h"
#include "server/pipeline/parking.h"
#include "server/pipeline/record_reader.h"
#include "server/pipeline/sample_runner.h"
#include "server/pipeline/scheduler.h"
#include "server/pipeline/substitution.h"
#include "server/pipeline/turns.h"

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
    int64_t left = 0;     // places not done
    size_t ops_done = 0;  // batch ops, of whoever finishes the batch
    OpenedFiles files;    // that were read for it, and not proven to be unchanged since
  };

  // One place of it.
  struct Sample : Turns::Sample {
    Work* work = nullptr;
    int64_t place = 0;
    Placement placement;
    PhiloxKey key{};  // of the draws of the record that is tried
    Substitution substitution;
    RecordBytes bytes;      // of the place's own record, or of the substitute that is tried
    bool finishes = false;  // not a sample: the batch ops
  };

  // Calls of users' own ops leave the worker to others' work.
  class Turn final : public CallTurn {
   public:
    explicit Turn(Worker* worker) : worker_(*worker) {}
    void Begin(Sample* sample) { sample_ = sample; }  // null: calls keep the worker
    // Whether a call of what was begun last has left; asks once.
    bool TakeLeft() { return std::exchange(has_left_, false); }

    bool IsOver(int64_t waited_ns) override;
    SuspendedCalls& calls() override { return sample_->calls; }

   private:
    Worker& worker_;
    Sample* sample_ = nullptr;
    bool has_left_ = false;
  };

  bool IsUnwanted(const RecordBytes& bytes) override;
  void HeldUp(const RecordBytes& bytes, int change) override;
  uint32_t UserOf(const RecordBytes& bytes) override;
  bool IsPointless(const Sample& sample) const;
  void TakeTickets();
  // True: it is made already.
  bool StartTicket(Ticket ticket);
  static void PrepareGiven(Sample* sample, int64_t record);
  bool MakeDirectly(Work* work);
  // Whether its records have been read ahead; has those read that come later.
  static bool IsReadAhead(const Ticket& ticket);
  void ProcessInTurn(Sample* sample);
  void Process(Sample* sample);
  Sample* NextSample();
  bool OthersWait(uint32_t user) const;
  void Suspend(Sample* sample);
  Sample* Resume(bool any);
  absl::Status Make(const Sample& sample);
  SampleInput InputOf(const Sample& sample) const;
  bool StartSubstitute(Sample* sample);
  void GiveUp(Sample* sample, BatchFailure failure);
  static void Fail(Work* work, int64_t place, BatchFailure failure);
  static void ProveFiles(Work* work);
  BadSample Bad(const Sample& sample, const absl::Status& status) const;
  void Done(Sample* sample);
  void Complete(Work* work);
  void FinishBatch(Work* work, Sample* sample);

  const int number_;
  Scheduler* const scheduler_;
  Parking* const parking_;
  const std::atomic<bool>* const stop_;
  const std::unique_ptr<RecordReader> reader_;
  const std::shared_ptr<SampleRooms> rooms_;
  const BadSampleLog* const bad_samples_;  // may be null
  Turn turn_{this};
  SampleRunner runner_;
  FreeList<Work> works_;
  FreeList<Sample> samples_;
  // Scratch.
  std::vector<Placement> placements_;
  std::vector<Sample*> starting_;
  DirectCopies::Scratch direct_;
  int64_t held_up_ = 0;  // of them, by storage
  CpuAccount account_;
  Turns turns_;  // in which samples of several users are made
  bool made_directly_ =
      false;                 // the last ticket: others may be ready by now, and are not waited for
  bool no_tickets_ = false;  // Take found none at no_tickets_since_
  uint64_t no_tickets_since_ = 0;
};

}  // namespace feedwater::server
