// feedwater verify: every record once through the storage engine, the dataset's parser and the
// pipeline's graph with the draws of epoch 0.
//
// The graph runs unfused: the fused decoder looks at no more of an image than the crop needs, and
// damage behind it would come to light in another epoch. Batch ops are left out; they see samples
// that are whole already.
#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/cli/command.h"
#include "client/cli/every_record.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/progress.h"
#include "client/cli/sample_batch.h"
#include "client/cli/verify_against.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/mutex.h"
#include "server/base/no_throw.h"
#include "server/base/units.h"
#include "server/graph/verified_record.h"

namespace feedwater::cli {
namespace {

using json = nlohmann::ordered_json;

struct BadRecord {
  int64_t record = 0;
  server::RecordPlace place;
  std::string reason;
};

json ToJson(const BadRecord& bad) {
  return {{"record", bad.record},
          {"path", bad.place.path},
          {"offset", bad.place.offset},
          {"reason", bad.reason}};
}

class Verifier {
 public:
  // `print_lines`: each bad record at once, as a line of JSON on stdout.
  Verifier(const LocalPipeline& local, std::shared_ptr<const server::Plan> plan, bool print_lines)
      : local_(local), plan_(std::move(plan)), print_lines_(print_lines) {}

  absl::Status Run(size_t jobs) {
    const int64_t start = server::MonotonicNs();
    EveryRecord every;
    every.what = "verify";
    every.jobs = jobs;
    every.make_look = [this]() -> absl::StatusOr<EveryRecord::Look> {
      FW_ASSIGN_OR_RETURN(
          SampleBatch batch,
          SampleBatch::Create(*plan_, /*samples=*/1,
                              local_.NewMaker(plan_, SetupOf(local_.loaded->spec, local_.dataset(),
                                                             /*fuse=*/false))));
      auto room = std::make_shared<Room>(Room{std::move(batch), {}});
      return [this, room](const server::RecordBytes& bytes) { return Check(bytes, *room); };
    };
    every.note = [this] {
      server::MutexLock lock(&mu_);
      return bad_.empty() ? "" : absl::StrCat(bad_.size(), " bad");
    };
    const absl::Status status = every.Run(local_);
    seconds_ = static_cast<double>(server::MonotonicNs() - start) * 1e-9;
    server::MutexLock lock(&mu_);
    std::sort(bad_.begin(), bad_.end(),
              [](const BadRecord& a, const BadRecord& b) { return a.record < b.record; });
    return status;
  }

  // To be called after Run.
  const std::vector<BadRecord>& bad() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return bad_; }
  int64_t bytes() const { return bytes_; }
  double seconds() const { return seconds_; }

 private:
  // A thread's own.
  struct Room {
    SampleBatch batch;
    server::Record parsed;
  };

  // An error is one of the machine; a bad record is noted.
  absl::Status Check(const server::RecordBytes& bytes, Room& room) {
    absl::Status status = bytes.status();
    if (status.ok()) {
      bytes_ += bytes.size();
      status = server::NoThrow([&] {
        return server::ParseVerified(local_.dataset(), bytes.record(), bytes.extents(),
                                     &room.parsed);
      });
    }
    if (status.ok()) {
      server::SampleInput input;
      input.record = &room.parsed;
      input.sample_id = input.position = bytes.record();
      input.key = server::EpochKey(local_.loaded->spec.sampler.seed, /*epoch=*/0);
      status = room.batch.Run(input, 0);
    }
    if (status.ok()) return status;
    if (server::TellsOfTheMachine(status, bytes)) {
      return server::Annotate(status, absl::StrCat("record ", bytes.record()));
    }
    Note(
        {bytes.record(), PlaceOf(local_.dataset(), bytes.record()), std::string(status.message())});
    return absl::OkStatus();
  }

  void Note(BadRecord bad) {
    server::MutexLock lock(&mu_);
    if (print_lines_) std::cout << server::Escaped(JsonText(ToJson(bad), -1)) << std::endl;
    bad_.push_back(std::move(bad));
  }

  const LocalPipeline& local_;
  const std::shared_ptr<const server::Plan> plan_;
  const bool print_lines_;
  double seconds_ = 0;
  std::atomic<int64_t> bytes_{0};

  server::Mutex mu_;
  std::vector<BadRecord> bad_ ABSL_GUARDED_BY(mu_);
};

absl::Status Verify(Context& context, const std::string& pipeline, const std::string& config,
                    size_t jobs) {
  LocalPipeline local;
  {
    Progress progress("index", "records");
    LocalOptions options;
    options.config = {config, context.address};
    options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
    FW_ASSIGN_OR_RETURN(local, OpenLocalPipeline(pipeline, options));
  }
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const server::Plan> plan,
                      server::Plan::Create(local.loaded->spec, local.dataset().fields(),
                                           static_cast<int64_t>(local.dataset().classes().size()),
                                           {.fuse = false}));
  Verifier verifier(local, std::move(plan), /*print_lines=*/!context.json);
  FW_RETURN_IF_ERROR(verifier.Run(jobs > 0 ? jobs : local.settings.cpus.size()));
  const int64_t records = local.dataset().size();
  const auto bad = static_cast<int64_t>(verifier.bad().size());
  if (context.json) {
    json list = json::array();
    for (const BadRecord& record : verifier.bad()) list.push_back(ToJson(record));
    PrintJson(json{{"pipeline", local.loaded->spec.name},
                   {"records", records},
                   {"bytes", verifier.bytes()},
                   {"seconds", verifier.seconds()},
                   {"bad", list}});
  } else {
    std::cerr << absl::StrFormat("verify: %s: %s, %s read and decoded in %s: %s\n",
                                 local.loaded->spec.name, server::FormatCount(records, "record"),
                                 server::FormatBytes(verifier.bytes()),
                                 server::FormatSeconds(verifier.seconds()),
                                 bad == 0 ? "all good" : absl::StrCat(bad, " bad"));
  }
  if (bad > 0) context.exit_status = 1;
  return absl::OkStatus();
}

void AddVerify(CLI::App& app, Context& context) {
  static std::string pipeline, config, against;
  static size_t jobs = 0;
  CLI::App* command = AddCommand(
      app, context, "verify",
      "read and decode every record, and report the bad ones as JSON lines; needs no daemon",
      "  feedwater verify imagenet-train --config feedwater.yaml\n"
      "  feedwater verify ./my-pipeline.yaml --jobs 2 | jq -r .path   # the files to look at\n"
      "  feedwater verify ./photos.yaml --against photos-shards   # what convert or materialize "
      "made\n"
      "Every record runs through the graph of epoch 0, with images decoded whole. Lines come as "
      "bad records are found; with --json they are sorted by record. Exit status 1 when any is "
      "bad.\n"
      "With --against every record of the shards is read and compared, field by field, with what "
      "its source gives now: a line for each difference. Exit status 1 when there is any.",
      [&context] {
        return against.empty() ? Verify(context, pipeline, config, jobs)
                               : VerifyAgainst(context, {pipeline, config, against, jobs});
      });
  command->add_option("pipeline", pipeline, "a .yaml file, or a name of the configuration")
      ->required()
      ->type_name("PIPELINE");
  command->add_option("--config", config, kConfigHelp)->type_name("FILE");
  command
      ->add_option("--against", against,
                   "compare the shards in this folder, which `feedwater convert` or `feedwater "
                   "materialize` made from the pipeline, with their source")
      ->type_name("DIR");
  command->add_option("--jobs", jobs, "threads; default: the configuration's cpus")
      ->check(CLI::Range(1, 1024));
}

const server::Registrar<CommandEntry> kRegistrar("verify", {CommandEntry::kPipelines, AddVerify});

}  // namespace

}  // namespace feedwater::cli
