// feedwater bench: how fast a pipeline is, where its time goes, and what it waits for. Takes the
// batches as a trainer would, through the data socket, and does nothing with them.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/private_daemon.h"
#include "client/cli/progress.h"
#include "client/cli/status_document.h"
#include "client/cpp/address.h"
#include "feedwater/client.h"
#include "server/base/clock.h"
#include "server/base/cpus.h"
#include "server/base/escape.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/base/thread.h"
#include "server/base/units.h"
#include "server/storage/storage_kind.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

struct BenchOptions {
  std::string pipeline, config, cpus;
  double seconds = 10, warm_up_s = 1;
  int64_t epochs = 0, warm_up_epochs = 1;  // epochs 0: by time
  int64_t batch_size = 0, ranks = 1;
};

// What all ranks took while they were measured.
struct Taken {
  int64_t samples = 0, batches = 0, bytes = 0;
  int64_t waited_ns = 0;  // of all ranks, for their next batch

  void Add(const Taken& other) {
    samples += other.samples;
    batches += other.batches;
    bytes += other.bytes;
    waited_ns += other.waited_ns;
  }
};

struct Result {
  Taken taken;
  double wall_s = 0, cpu_s = 0;
  StageTimes stages;
  int workers = 0;
  int64_t steps_per_epoch = 0;
  v1::JobCache cache;
  std::map<std::string, uint64_t> storage;  // the daemon's counters of reads, of all its jobs
  bool storage_is_ours = true;              // no other job ran
  std::string own_code;                     // of BusyProvider

  // What was asked of storage for 1,000 samples, ahead of time or not.
  double PerThousand(const std::string& what) const {
    const auto of = [&](const std::string& name) {
      const auto found = storage.find(name);
      return found == storage.end() ? 0.0 : static_cast<double>(found->second);
    };
    const double samples = static_cast<double>(std::max<int64_t>(taken.samples, 1));
    const std::string plain = what == "bytes" ? "read_bytes" : what;
    return 1000 * (of("storage_" + plain) + of("storage_ahead_" + what)) / samples;
  }
  double StorageSeconds(server::StorageKind kind) const {
    return server::CostsOf(kind).Seconds(PerThousand("reads"), PerThousand("bytes"),
                                         PerThousand("seeks"));
  }
  std::string pipeline, mode;
};

volatile std::sig_atomic_t interrupted = 0;

// The first Ctrl-C ends the measurement, the second one the program.
void EndWithFigures() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    interrupted = 1;
    constexpr char kNote[] =
        "\nfeedwater: ending with the figures so far; Ctrl-C again ends at once\n";
    (void)!write(STDERR_FILENO, kNote, sizeof(kNote) - 1);
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

int64_t BytesOf(const Batch& batch) {
  int64_t bytes = 0;
  for (size_t i = 0; i < batch.size(); ++i) bytes += static_cast<int64_t>(batch[i].bytes.size());
  return bytes;
}

// The ranks of one job, each on its own thread.
class Ranks {
 public:
  static absl::StatusOr<std::unique_ptr<Ranks>> Open(Client& client, const BenchOptions& options,
                                                     const std::string& job) {
    auto ranks = std::make_unique<Ranks>();
    for (int64_t rank = 0; rank < options.ranks; ++rank) {
      StreamOptions stream;
      stream.pipeline = options.pipeline;
      if (options.batch_size > 0) stream.batch_size = options.batch_size;
      stream.rank = rank;
      stream.world_size = options.ranks;
      stream.job = job;
      FW_ASSIGN_OR_RETURN(Stream opened, client.Open(stream));
      ranks->streams_.push_back(std::move(opened));
    }
    return ranks;
  }

  // Takes batches until `end_ns`, or `steps` of them on each rank when steps > 0, or until Ctrl-C.
  absl::StatusOr<Taken> Take(int64_t end_ns, int64_t steps, const char* what) {
    std::vector<std::thread> threads;
    {
      server::MutexLock lock(&mu_);
      running_ = streams_.size();
      taken_ = Taken();
    }
    for (Stream& stream : streams_) {
      absl::StatusOr<std::thread> thread = server::StartThread(
          "a rank", [this, &stream, end_ns, steps] { TakeOn(stream, end_ns, steps); });
      if (thread.ok()) {
        threads.push_back(*std::move(thread));
        continue;
      }
      // Without this rank the others would be measured as something else: they end, too.
      server::MutexLock lock(&mu_);
      if (failure_.ok()) failure_ = thread.status();
      running_ -= streams_.size() - threads.size();
      break;
    }
    Progress progress(what, "samples");
    const int64_t total = steps * static_cast<int64_t>(streams_.size()) * streams_[0].batch_size();
    {
      server::MutexLock lock(&mu_);
      while (running_ > 0) {
        changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
        progress.Update(taken_.samples, total);
      }
    }
    progress.Finish();
    for (std::thread& thread : threads) thread.join();
    server::MutexLock lock(&mu_);
    FW_RETURN_IF_ERROR(failure_);
    return taken_;
  }

  int64_t steps_per_epoch() const { return streams_[0].steps_per_epoch(); }

 private:
  void TakeOn(Stream& stream, int64_t end_ns, int64_t steps) {
    absl::Status failure;
    const auto goes_on = [&](int64_t step) {
      return interrupted == 0 && (steps > 0 ? step < steps : server::MonotonicNs() < end_ns);
    };
    for (int64_t step = 0; goes_on(step); ++step) {
      const int64_t asked_ns = server::MonotonicNs();
      absl::StatusOr<Batch> batch = stream.Next();
      if (!batch.ok()) {
        failure = batch.status();
        break;
      }
      Taken one{batch->samples(), 1, BytesOf(*batch), server::MonotonicNs() - asked_ns};
      server::MutexLock lock(&mu_);
      taken_.Add(one);
      if (!failure_.ok()) break;
    }
    server::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = failure;
    --running_;
    changed_.SignalAll();
  }

  std::vector<Stream> streams_;
  server::Mutex mu_;
  server::CondVar changed_;
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;
  Taken taken_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

// A bad sample is the data's fault and no wrong input of whoever measures, whatever its own code
// says, and the cure is not in its message.
absl::Status ExplainFailure(const absl::Status& status, const BenchOptions& options) {
  if (!BadSampleOf(status).has_value()) return status;
  return absl::DataLossError(absl::StrCat(
      status.message(), ". The stream ended there, and nothing was measured. `feedwater verify ",
      options.pipeline, options.config.empty() ? "" : absl::StrCat(" --config ", options.config),
      "` lists all bad records: mend or remove them, or let the pipeline say 'on_bad_sample: "
      "substitute'"));
}

absl::StatusOr<v1::Job> FindJob(const v1::GetStatusResponse& status, const std::string& name) {
  for (const v1::Job& job : status.jobs()) {
    if (job.job() == name) return job;
  }
  return absl::InternalError("the daemon does not know the job that it runs");
}

// Whether the daemon had other jobs than that of this name at or between two answers, between which
// this one opened so many streams.
bool HadOthers(const v1::GetStatusResponse& before, const v1::GetStatusResponse& after,
               const std::string& name, int64_t own_streams) {
  for (const v1::GetStatusResponse* status : {&before, &after}) {
    if (status->jobs_not_listed() > 0) return true;
    for (const v1::Job& job : status->jobs()) {
      if (job.job() != name) return true;
    }
  }
  const auto opened = [](const v1::GetStatusResponse& status) {
    const auto found = status.counters().find("streams_opened");
    return found == status.counters().end() ? 0 : static_cast<int64_t>(found->second);
  };
  return opened(after) - opened(before) != own_streams;
}

// What was read between two answers, of the whole daemon.
std::map<std::string, uint64_t> ReadBetween(const v1::GetStatusResponse& before,
                                            const v1::GetStatusResponse& after) {
  std::map<std::string, uint64_t> read;
  for (const auto& [name, count] : after.counters()) {
    if (!absl::StartsWith(name, "storage_")) continue;
    const auto then = before.counters().find(name);
    read[name] = count - (then == before.counters().end() ? 0 : std::min(then->second, count));
  }
  return read;
}

absl::StatusOr<Result> Measure(const std::string& address, const BenchOptions& options) {
  const std::unique_ptr<v1::Control::Stub> control = ConnectControl(address);
  FW_ASSIGN_OR_RETURN(Client client, Client::Connect(address));
  const std::string name = absl::StrCat("bench-", getpid());
  FW_ASSIGN_OR_RETURN(v1::GetStatusResponse before, GetStatus(*control));
  int64_t streams_since = options.ranks;
  FW_ASSIGN_OR_RETURN(const std::unique_ptr<Ranks> ranks, Ranks::Open(client, options, name));
  const auto after = [](double seconds) {
    return server::MonotonicNs() + static_cast<int64_t>(seconds * 1e9);
  };
  const int64_t steps = options.epochs * ranks->steps_per_epoch();
  // Opening files, filling caches and buffers is not what is measured: a second of it, or whole
  // epochs. Without any, the job is measured from its first sample on.
  v1::Job job_before;
  if (options.epochs == 0 || options.warm_up_epochs > 0) {
    const int64_t warm_up =
        options.epochs > 0 ? options.warm_up_epochs * ranks->steps_per_epoch() : 0;
    const auto warmed = ranks->Take(after(options.warm_up_s), warm_up, "warm-up");
    if (!warmed.ok()) return ExplainFailure(warmed.status(), options);
    if (interrupted != 0) return absl::CancelledError("interrupted before anything was measured");
    FW_ASSIGN_OR_RETURN(before, GetStatus(*control));
    streams_since = 0;
    FW_ASSIGN_OR_RETURN(job_before, FindJob(before, name));
  }
  const int64_t start_ns = server::MonotonicNs();
  Result result;
  const auto taken = ranks->Take(after(options.seconds), steps, "bench");
  if (!taken.ok()) return ExplainFailure(taken.status(), options);
  result.taken = *taken;
  result.wall_s = static_cast<double>(server::MonotonicNs() - start_ns) * 1e-9;
  FW_ASSIGN_OR_RETURN(const v1::GetStatusResponse done, GetStatus(*control));
  FW_ASSIGN_OR_RETURN(const v1::Job job_done, FindJob(done, name));
  result.stages = StagesBetween(job_before, job_done);
  result.cpu_s = std::max(0.0, job_done.cpu_s() - job_before.cpu_s());
  result.workers = done.cpus_size();
  result.steps_per_epoch = ranks->steps_per_epoch();
  result.cache = job_done.cache();
  result.storage = ReadBetween(before, done);
  result.storage_is_ours = !HadOthers(before, done, name, streams_since);
  result.own_code = BusyProvider(before, done, job_done, result.wall_s);
  result.pipeline = job_done.pipeline();
  return result;
}

absl::StatusOr<Result> Run(const Context& context, BenchOptions& options) {
  const absl::StatusOr<std::string> address = FindAddress(context.address);
  if (options.config.empty() && !address.ok() && !context.address.empty()) {
    return absl::Status(address.status().code(),
                        absl::StrCat(address.status().message(),
                                     "; or measure without one: --config FILE, no --address"));
  }
  if (options.config.empty() && address.ok()) {
    if (!options.cpus.empty()) {
      return absl::InvalidArgumentError("--cpus goes with --config: a running daemon has its own");
    }
    FW_ASSIGN_OR_RETURN(Result result, Measure(*address, options));
    result.mode = absl::StrCat("the daemon at ", *address);
    return result;
  }
  const ConfigChoice choice{options.config, context.address};
  FW_ASSIGN_OR_RETURN(options.pipeline, FindPipelineFile(options.pipeline, choice));
  FW_ASSIGN_OR_RETURN(ConfigSource config, FindConfigFor(options.pipeline, choice));
  if (!options.cpus.empty()) {
    // Those of the file are the daemon's, and may be others than this process has.
    FW_RETURN_IF_ERROR(
        server::Annotate(server::ChooseCpus(options.cpus, /*numa_node=*/-1).status(), "--cpus"));
    config.overrides.push_back(absl::StrCat("cpus=\"", options.cpus, "\""));
  }
  FW_ASSIGN_OR_RETURN(const PrivateDaemon daemon, PrivateDaemon::Start(config));
  FW_ASSIGN_OR_RETURN(Result result, Measure(daemon.address(), options));
  result.mode = absl::StrCat("a daemon in this process",
                             config.file.empty() ? "" : absl::StrCat(" with ", config.file));
  return result;
}

double PerThousand(const Result& result) {
  return result.taken.samples == 0
             ? 0
             : 1000 * result.cpu_s / static_cast<double>(result.taken.samples);
}

// The first batches of a measurement come from what was under way before it: with few of them, that
// weighs more than what is to be found out.
std::string TooFewToJudge(const Result& result, const BenchOptions& options) {
  constexpr int64_t kLeastBatches = 32;  // of each rank
  const int64_t batches = result.taken.batches / options.ranks;
  if (batches >= kLeastBatches) return "";
  // An epoch of few batches ends before a longer measurement would show more of it.
  const bool is_short = result.steps_per_epoch < kLeastBatches;
  return absl::StrCat("Too few batches to judge what it waits for: ", batches,
                      " on each rank, in epochs of ", result.steps_per_epoch, ". From ",
                      kLeastBatches, " on one can tell: take a smaller --batch-size, or more ",
                      options.epochs > 0 ? "--epochs"
                      : is_short         ? "data"
                                         : "--seconds",
                      ".");
}

std::string WaitsFor(const Result& result, const BenchOptions& options) {
  if (std::string few = TooFewToJudge(result, options); !few.empty()) return few;
  const double waits = result.wall_s <= 0 ? 0
                                          : static_cast<double>(result.taken.waited_ns) * 1e-9 /
                                                result.wall_s / static_cast<double>(options.ranks);
  return Bottleneck(result.stages, result.cpu_s, result.wall_s, result.workers, waits, result.cache,
                    result.own_code);
}

void Print(const Result& result, const BenchOptions& options) {
  const double rate = static_cast<double>(result.taken.samples) / result.wall_s;
  std::cout << Bold(absl::StrFormat("%.0f samples/s", rate)) << "  "
            << absl::StrFormat(
                   "%.3f CPU s per 1,000 samples, %d workers, %s/s into shared memory\n",
                   PerThousand(result), result.workers,
                   server::FormatBytes(static_cast<int64_t>(
                       static_cast<double>(result.taken.bytes) / result.wall_s)))
            << absl::StrFormat("%s in %s on %s in %s, from %s\n",
                               server::FormatCount(result.taken.samples, "sample"),
                               server::FormatCount(result.taken.batches, "batch"),
                               server::FormatCount(options.ranks, "rank"),
                               server::FormatSeconds(result.wall_s), result.mode);
  const json shares = StageShares(result.stages);
  std::cout << "stages ";
  for (const char* stage : {"read_wait", "read", "parse", "graph", "batch"}) {
    std::cout << absl::StrFormat("  %s %.1f %%", stage, 100 * shares[stage].get<double>());
  }
  if (!result.storage_is_ours) {
    std::cout << "\nreads    not told: the daemon, which had other jobs, too, counts those of all";
  } else if (const double reads = result.PerThousand("reads"); reads > 0) {
    std::cout << absl::StrFormat(
        "\nreads    %.0f of %s and %.0f seeks for 1,000 samples: about %s on a disk, %s over a "
        "network",
        reads, server::FormatBytes(static_cast<int64_t>(result.PerThousand("bytes") / reads)),
        result.PerThousand("seeks"),
        server::FormatSeconds(result.StorageSeconds(server::StorageKind::kRotational)),
        server::FormatSeconds(result.StorageSeconds(server::StorageKind::kNetwork)));
  }
  std::cout << "\ncache    " << result.cache.kind() << ": "
            << server::Escaped(result.cache.reason()) << "\n"
            << WaitsFor(result, options) << "\n";
}

// For 1,000 samples. Those of other jobs would be taken for this one's: null, then.
json StorageJson(const Result& result) {
  json document = {
      {"reads_per_1000", result.PerThousand("reads")},
      {"bytes_per_1000", result.PerThousand("bytes")},
      {"seeks_per_1000", result.PerThousand("seeks")},
      {"rotational_s_per_1000", result.StorageSeconds(server::StorageKind::kRotational)},
      {"network_s_per_1000", result.StorageSeconds(server::StorageKind::kNetwork)}};
  for (json& value : document) {
    if (!result.storage_is_ours) value = nullptr;
  }
  document["of_all_jobs"] = !result.storage_is_ours;  // what follows
  document["counters"] = result.storage;
  return document;
}

json Document(const Result& result, const BenchOptions& options) {
  return {{"pipeline", result.pipeline},
          {"mode", result.mode},
          {"samples_per_s", static_cast<double>(result.taken.samples) / result.wall_s},
          {"cpu_s_per_1000", PerThousand(result)},
          {"stages", StageShares(result.stages)},
          {"graph_s", result.stages.graph},
          {"samples", result.taken.samples},
          {"batches", result.taken.batches},
          {"bytes_per_s", static_cast<double>(result.taken.bytes) / result.wall_s},
          {"seconds", result.wall_s},
          {"ranks", options.ranks},
          {"workers", result.workers},
          {"cache", result.cache.kind()},
          {"kept", CacheJson(result.cache)},
          {"storage", StorageJson(result)},
          {"waits_for", WaitsFor(result, options)}};
}

void AddBench(CLI::App& app, Context& context) {
  static BenchOptions options;
  CLI::App* command = AddCommand(
      app, context, "bench",
      "measure a pipeline: samples a second, CPU, share of each stage, and what it waits for",
      "  feedwater bench imagenet-train                          # through the running daemon\n"
      "  feedwater bench ./my-pipeline.yaml --seconds 30 --ranks 4\n"
      "  feedwater bench imagenet-train --config feedwater.yaml --cpus 2   # without a daemon\n"
      "  feedwater bench imagenet-train --json | jq .samples_per_s\n"
      "Batches are taken through shared memory as a trainer takes them, and thrown away. Warm-up "
      "is not counted. Ctrl-C ends it with the figures so far, and exit status 130.",
      [&context]() -> absl::Status {
        EndWithFigures();
        const absl::StatusOr<Result> measured = Run(context, options);
        context.exit_status = interrupted != 0 ? 128 + SIGINT : 0;
        if (!measured.ok()) return measured.status();
        const Result& result = *measured;
        if (context.json) {
          PrintJson(Document(result, options));
        } else {
          Print(result, options);
        }
        return absl::OkStatus();
      });
  command
      ->add_option("pipeline", options.pipeline,
                   "a name that the daemon or the configuration knows, or a .yaml file")
      ->required()
      ->type_name("PIPELINE");
  command
      ->add_option(
          "--config", options.config,
          "measure in this process, with this configuration, and not through a running daemon")
      ->type_name("FILE");
  command->add_option("--seconds", options.seconds, "how long to measure")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  command->add_option("--warm-up", options.warm_up_s, "seconds before that")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--epochs", options.epochs,
                   "measure whole epochs instead of seconds, after --warm-up-epochs")
      ->check(CLI::Range(1, 1000000));
  command
      ->add_option("--warm-up-epochs", options.warm_up_epochs,
                   "with --epochs: how many before that are not counted; 0 measures the first "
                   "epoch, in which caches fill")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command
      ->add_option("--batch-size", options.batch_size,
                   "samples a batch and rank; default: the file's")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--ranks", options.ranks, "ranks that take batches at the same time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--cpus", options.cpus, "with --config: the workers' CPUs, such as 2 or 0-3")
      ->type_name("CPUS");
}

const server::Registrar<CommandEntry> kRegistrar("bench", {CommandEntry::kPipelines, AddBench});

}  // namespace

}  // namespace feedwater::cli
