#include "server/decoder/decoder_host.h"

#include <signal.h>

#include <utility>

#include "server/decoder/isolated_maker.h"

namespace feedwater::server {
namespace {

// Starts and ends a process that has nothing to do.
absl::Status TryDecoder(const std::shared_ptr<DecoderHost>& host) {
  DecoderSetup setup;
  setup.text = "version: 1\ndataset: {format: none}\noutputs: [sample_id]\n";
  setup.file_name = "nothing.yaml";
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, PlanOf(setup));
  return IsolatedMaker(host, std::move(plan), std::move(setup), ImageLimits()).Start();
}

}  // namespace

absl::StatusOr<std::shared_ptr<DecoderHost>> FindDecoders(std::shared_ptr<MemoryBudget> budget) {
  // Ignored, which is inherited, nobody could learn how a decoder ended.
  signal(SIGCHLD, SIG_DFL);
  auto host = std::make_shared<DecoderHost>();
  host->budget = std::move(budget);
  FW_ASSIGN_OR_RETURN(host->program, DecoderProgram::Find());
  FW_RETURN_IF_ERROR(Annotate(TryDecoder(host), "a decoder process cannot work here (isolation)"));
  return host;
}

void DecoderHost::Stop() {
  MutexLock lock(&mu_);
  is_stopped_ = true;
  for (const DecoderProcess* process : processes_) process->Kill();
}

absl::Status DecoderHost::Enter(const DecoderProcess* process) {
  MutexLock lock(&mu_);
  if (is_stopped_) return absl::UnavailableError("no decoder process: the daemon is ending");
  processes_.insert(process);
  ++running;
  return absl::OkStatus();
}

void DecoderHost::Leave(const DecoderProcess* process) {
  MutexLock lock(&mu_);
  if (processes_.erase(process) > 0) --running;
}

}  // namespace feedwater::server
