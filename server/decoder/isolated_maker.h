// Makes samples in a process of its own: a hole in a decoder then costs one record and not the
// daemon. The process gets a record's fields, and gives the finished sample and what a cache may
// keep; it has no file, no network and no memory of any trainer. It is started with the first
// sample and again after each death.
//
// What comes back is believed to be a sample and nothing else: sizes and types are checked, record
// numbers and positions are the worker's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/base/memory_budget.h"
#include "server/base/work_clock.h"
#include "server/decoder/decoder_host.h"
#include "server/decoder/decoder_process.h"
#include "server/decoder/decoder_setup.h"
#include "server/decoder/sample_maker.h"
#include "server/decoder/timed_caller.h"

namespace feedwater::server {

std::string Said(const Answer& answer);  // its message, fit for others

class IsolatedMaker final : public SampleMaker {
 public:
  // `plan` is what Plan::Create has made of `setup`.
  IsolatedMaker(std::shared_ptr<DecoderHost> host, std::shared_ptr<const Plan> plan,
                DecoderSetup setup, const ImageLimits& limits);
  ~IsolatedMaker() override;

  // What a process of this plan takes beside its samples.
  static int64_t ProcessBytes(const Plan& plan, const std::vector<OpFile>& files);

  // Starts the process, unless it runs. Unavailable or ResourceExhausted with the reason.
  absl::Status Start();
  // Where the next calls find and keep seek indexes; null: nowhere.
  void UseSeekIndexes(SeekIndexes* indexes) { seek_indexes_ = indexes; }
  // Looked at while a process is waited for: `clock` (may be null) beats; once
  // `gone` (may be null) is true its work ends with Cancelled.
  void UseClock(WorkClock* clock, const std::atomic<bool>* gone) {
    clock_ = clock;
    gone_ = gone;
  }
  // Who runs ops of the user's own; null: nobody.
  void UseCaller(OpCaller* caller, CallTurn* turn = nullptr) {
    caller_.Use(caller);
    caller_.UseTurn(turn);
  }
  void Allow(int64_t bytes) override { allowed_bytes_ = bytes; }

  absl::Status Run(const SampleInput& input, int64_t k, const BatchMemory& memory) override;
  absl::Status RunFromPrefix(const SampleInput& input, int64_t k,
                             const BatchMemory& memory) override;
  absl::Status RunKeeping(const SampleInput& input, int64_t k, const BatchMemory& memory,
                          int64_t max_field_bytes,
                          absl::FunctionRef<void(const Record&)> keep) override;
  absl::Status Pack(absl::Span<const std::byte> encoded, const ImageLimits& limits,
                    std::vector<std::byte>* document) override;
  absl::Status MakeSeekIndexes(const Record& record) override;
  MakingCost TakeCost() override;

 private:
  absl::Status Launch();
  void End(bool is_death);
  DecoderProcess::Outcome Exchange(std::string* how);  // the process's; counts the wait
  // Once nothing of the answer is needed: of so many bytes of output. A process that holds more
  // than has been reserved for it is ended.
  void TakeBack(uint64_t used);
  // Asks the process, a new one when somebody has killed it. `died` (may be null) becomes true when
  // the error is its death.
  absl::Status Ask(DecoderCommand command, const SampleInput& input,
                   absl::Span<const Tensor> fields, int64_t max_field_bytes, bool* died = nullptr);
  absl::Status Fill(DecoderCommand command, const SampleInput& input,
                    absl::Span<const Tensor> fields, int64_t max_field_bytes);
  absl::Status ReadAnswer();
  // Has the op run that the process asks for, and puts what comes of it into the region. An error
  // tells of the machine.
  absl::Status RunCall(const SampleInput& input);
  bool PutInput(const std::byte* data, size_t bytes, uint64_t room, uint64_t* offset);
  void TakeIndexes();
  absl::Status Finish(const SampleInput& input, int64_t k, const BatchMemory& memory);

  const std::shared_ptr<DecoderHost> host_;
  const std::shared_ptr<const Plan> plan_;
  const DecoderSetup setup_;
  const std::string identity_;
  const double patience_seconds_, working_seconds_;
  DecoderProcess::Options options_;
  absl::StatusOr<SampleArea> area_;
  SeekIndexes* seek_indexes_ = nullptr;
  WorkClock* clock_ = nullptr;
  const std::atomic<bool>* gone_ = nullptr;
  TimedCaller caller_;
  int64_t allowed_bytes_ = -1, limited_to_ = -1;  // -1: no limit but the process's first one
  uint64_t oom_kills_ = 0;                        // when the process was started

  std::unique_ptr<DecoderProcess> process_;  // null: none runs
  MemoryReservation reservation_;
  BatchMemory made_;  // in its region
  // Of the areas, since the last request; `most`: at any time, with what calls have given.
  uint64_t input_used_ = 0, input_most_ = 0;
  uint64_t output_used_ = 0;
  Answer answer_{};  // a copy
  std::vector<RegionField> answered_;
  std::vector<ContentHash> hashes_;  // of the request's fields
  std::vector<std::byte> index_;     // scratch
  Record kept_;                      // scratch
  std::vector<Tensor> jpegs_;        // scratch
  MakingCost cost_;
  int64_t waited_ns_ = 0;  // for processes, since TakeCost
};

}  // namespace feedwater::server
