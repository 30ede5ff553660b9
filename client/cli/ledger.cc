// feedwater ledger: which records make up a batch, and when a record is used. A running job is
// asked at its daemon; a pipeline's order is computed here, from its file and its data.
#include "server/pipeline/ledger.h"

#include <filesystem>
#include <iostream>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/status_all.h"
#include "client/cli/text.h"
#include "server/base/escape.h"
#include "server/base/status.h"
#include "server/base/units.h"
#include "server/pipeline/dataset_order.h"
#include "server/service/reports.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

// The options as typed; -1 and "" where they were not.
struct Options {
  std::string job, pipeline, find, config;
  int64_t batch = -1, rank = -1, epoch = -1, world_size = -1, batch_size = -1, seed = -1;
};

// InvalidArgument where an option was typed that a running job decides.
absl::Status CheckOptionsOfJob(const Options& options) {
  for (const auto& [name, value] :
       {std::pair<const char*, int64_t>{"--world-size", options.world_size},
        {"--batch-size", options.batch_size},
        {"--seed", options.seed}}) {
    if (value < 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is the job's own, since '", options.job,
                     "' is a running job; for a pipeline of that name give --config, too"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::GetLedgerResponse> AskDaemon(const Context& context, const Options& options) {
  auto control = context.Control();
  if (!control.ok()) return control.status();
  v1::GetLedgerRequest request;
  request.set_job(options.job);
  request.set_pipeline(options.pipeline);
  if (options.epoch >= 0) request.set_epoch(static_cast<uint64_t>(options.epoch));
  if (options.rank >= 0) request.set_rank(options.rank);
  if (options.find.empty()) {
    request.set_step(options.batch);
  } else {
    request.set_record(options.find);
  }
  grpc::ClientContext call;
  v1::GetLedgerResponse ledger;
  const grpc::Status got = (*control)->GetLedger(&call, request, &ledger);
  if (!got.ok()) return FromGrpc(got);
  return ledger;
}

// The answer that a daemon would give if such a job ran.
absl::StatusOr<v1::GetLedgerResponse> Compute(const Context& context, const Options& options) {
  LocalOptions local;
  local.config = {options.config, context.address};
  FW_ASSIGN_OR_RETURN(const LocalPipeline pipeline, OpenLocalPipeline(options.job, local));
  const server::Dataset& dataset = pipeline.dataset();
  const server::PipelineSpec& spec = pipeline.loaded->spec;
  server::SamplerSpec sampler = spec.sampler;
  if (options.seed >= 0) sampler.seed = static_cast<uint64_t>(options.seed);
  const int64_t batch_size = options.batch_size >= 0 ? options.batch_size : spec.batch_size;
  if (batch_size == 0)
    return absl::InvalidArgumentError("the pipeline sets no batch size: give --batch-size");
  FW_ASSIGN_OR_RETURN(server::OrderConfig order,
                      server::MakeOrderConfig(sampler, dataset, batch_size,
                                              options.world_size >= 0 ? options.world_size : 1));
  server::LedgerQuery query;
  query.epoch = options.epoch >= 0 ? static_cast<uint64_t>(options.epoch) : 0;
  if (options.rank >= 0) query.rank = options.rank;
  if (options.find.empty()) {
    query.step = options.batch;
  } else {
    absl::StatusOr<int64_t> record = server::FindRecord(dataset, options.find);
    if (!record.ok()) return absl::InvalidArgumentError(record.status().message());
    query.record = *record;
  }
  v1::GetLedgerResponse response;
  response.set_pipeline(spec.name);
  response.set_epoch(query.epoch);
  response.set_world_size(order.world_size);
  response.set_batch_size(order.batch_size);
  response.set_seed(order.seed);
  response.set_records(dataset.size());
  FW_ASSIGN_OR_RETURN(
      const server::Ledger ledger,
      server::ReadLedger(dataset, std::make_shared<const server::OrderConfig>(order), query));
  server::AddLedger(ledger, &response);
  return response;
}

// Names of jobs may look like paths: "pid-17/train#1".
bool IsFile(const std::string& name) {
  std::error_code error;
  return IsPipelineFile(name) && (absl::EndsWith(name, ".yaml") || absl::EndsWith(name, ".yml") ||
                                  std::filesystem::exists(name, error));
}

// A name is a running job's, or else a pipeline's.
absl::StatusOr<v1::GetLedgerResponse> Read(const Context& context, const Options& options) {
  if (IsFile(options.job) || !options.config.empty()) return Compute(context, options);
  Context asked = context;  // a private daemon's configuration knows no pipelines by name
  FW_RETURN_IF_ERROR(
      UseOwnDaemon(asked, absl::StrCat("ledger ", server::Printable(options.job), " ...")));
  const absl::StatusOr<v1::GetLedgerResponse> of_job = AskDaemon(asked, options);
  if (of_job.ok()) {
    FW_RETURN_IF_ERROR(CheckOptionsOfJob(options));
    return of_job;
  }
  const bool may_be_pipeline =
      absl::IsNotFound(of_job.status()) || absl::IsUnavailable(of_job.status());
  if (!may_be_pipeline || IsPipelineFile(options.job) ||
      !FindPipelineFile(options.job, {"", context.address}).ok())
    return of_job;
  // Whether such a job runs, only a daemon can tell.
  const std::string why =
      absl::IsNotFound(of_job.status())
          ? absl::StrCat("no job '", server::Printable(options.job), "' is running")
          : absl::StrCat("no daemon has answered, so whether a job '",
                         server::Printable(options.job), "' is running is not known");
  std::cerr << "feedwater: " << why << "; this is the ledger of the pipeline of that name\n";
  return Compute(context, options);
}

json EntryJson(const v1::LedgerEntry& entry) {
  json document = {{"step", entry.step()},     {"rank", entry.rank()},
                   {"place", entry.place()},   {"position", entry.position()},
                   {"record", entry.record()}, {"is_real", entry.is_real()},
                   {"path", entry.path()},     {"offset", entry.offset()},
                   {"bytes", entry.bytes()},   {"label", nullptr}};
  if (entry.has_label()) document["label"] = entry.label();
  if (entry.has_dataset_id()) document["dataset_id"] = entry.dataset_id();
  document["bad"] = nullptr;
  if (entry.is_bad()) {
    document["bad"] = {{"reason", entry.bad_reason()}, {"stood_in", nullptr}};
    if (entry.has_stood_in()) document["bad"]["stood_in"] = entry.stood_in();
  }
  return document;
}

json LedgerJson(const v1::GetLedgerResponse& ledger) {
  json entries = json::array();
  for (const v1::LedgerEntry& entry : ledger.entries()) entries.push_back(EntryJson(entry));
  json document = {{"pipeline", ledger.pipeline()},
                   {"epoch", ledger.epoch()},
                   {"world_size", ledger.world_size()},
                   {"batch_size", ledger.batch_size()},
                   {"seed", ledger.seed()},
                   {"steps", ledger.steps()},
                   {"records", ledger.records()},
                   {"entries", entries}};
  if (!ledger.job().empty()) document["job"] = ledger.job();
  return document;
}

void PrintEntry(const v1::LedgerEntry& entry, bool with_step) {
  if (with_step) std::cout << Padded(absl::StrCat("step ", entry.step()), 14);
  std::cout << Padded(absl::StrCat("rank ", entry.rank()), 10)
            << Padded(absl::StrCat("place ", entry.place()), 12)
            << Padded(absl::StrCat("record ", entry.record()), 18)
            << Padded(entry.has_dataset_id() ? absl::StrCat("dataset ", entry.dataset_id()) : "",
                      entry.has_dataset_id() ? 12 : 0)
            << Padded(entry.has_label() ? absl::StrCat("label ", entry.label()) : "", 12)
            << server::Escaped(entry.path());
  if (entry.offset() > 0) std::cout << " at byte " << entry.offset();
  std::cout << (entry.is_real() ? "" : "  (padding)");
  if (entry.has_stood_in()) std::cout << "  BAD: record " << entry.stood_in() << " stands in";
  if (entry.is_bad() && !entry.has_stood_in()) std::cout << "  BAD: nothing stands in";
  std::cout << "\n";
}

void PrintLedger(const v1::GetLedgerResponse& ledger, const Options& options) {
  std::cout << Bold(server::Escaped(ledger.job().empty()
                                        ? ledger.pipeline()
                                        : absl::StrCat(ledger.job(), ", ", ledger.pipeline())))
            << ": epoch " << ledger.epoch() << " of " << server::FormatCount(ledger.steps(), "step")
            << ", " << server::FormatCount(ledger.world_size(), "rank") << ", batches of "
            << ledger.batch_size() << ", seed " << ledger.seed() << "\n";
  if (options.find.empty()) {
    std::cout << "step " << options.batch << ":\n";
  } else if (ledger.entries().empty()) {
    std::cout << "record " << server::Escaped(options.find)
              << " is not used in this epoch (last: drop)\n";
  }
  for (const v1::LedgerEntry& entry : ledger.entries()) PrintEntry(entry, !options.find.empty());
}

absl::Status ShowLedger(const Context& context, const Options& options) {
  if ((options.batch < 0) == options.find.empty()) {
    return absl::InvalidArgumentError(
        "give --batch STEP for the records of a batch (--batch-size is how many those are), or "
        "--find "
        "RECORD for when one is used");
  }
  FW_ASSIGN_OR_RETURN(const v1::GetLedgerResponse ledger, Read(context, options));
  if (context.json) {
    PrintJson(LedgerJson(ledger));
  } else {
    PrintLedger(ledger, options);
  }
  return absl::OkStatus();
}

void AddLedger(CLI::App& app, Context& context) {
  static Options options;
  CLI::App* command = AddCommand(
      app, context, "ledger",
      "name the records of any batch, or say when a record is used; of a running job or a pipeline",
      "  feedwater ledger train-7 --batch 41200                 # a job that runs; its present "
      "epoch\n"
      "  feedwater ledger train-7 --batch 41200 --rank 3 --json\n"
      "  feedwater ledger train-7 --find dog/0123.jpg --epoch 4\n"
      "  feedwater ledger imagenet-train --config feedwater.yaml --batch 12 --world-size 8 "
      "--batch-size 256\n"
      "The order is a pure function, so any epoch can be asked about, also one of long ago. It "
      "does not know which records are bad: the ledger of a running job takes them from the "
      "daemon's report (feedwater status --bad) and names their substitutes; that of a pipeline "
      "does not.",
      [&context] { return ShowLedger(context, options); });
  command
      ->add_option(
          "job", options.job,
          "a running job's name (`feedwater status` lists them); else a pipeline's, or its .yaml "
          "file")
      ->required()
      ->type_name("JOB|PIPELINE");
  const auto whole = CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max());
  command->add_option("--batch", options.batch, "step of the epoch, from 0: a global batch")
      ->type_name("STEP")
      ->check(whole);
  command
      ->add_option("--find", options.find,
                   "a record's number, or its file: the path below the root, or the end of it")
      ->type_name("RECORD");
  command->add_option("--epoch", options.epoch, "default: the job's current one; of a pipeline 0")
      ->check(whole);
  command->add_option("--rank", options.rank, "with --batch: this rank's part alone")->check(whole);
  command
      ->add_option("--pipeline", options.pipeline,
                   "where a job of that name runs several pipelines")
      ->type_name("NAME");
  command->add_option("--config", options.config, kConfigHelp)->type_name("FILE");
  command->add_option("--world-size", options.world_size, "of a pipeline; default 1")->check(whole);
  command->add_option("--batch-size", options.batch_size, "of a pipeline; default: the file's")
      ->check(whole);
  command->add_option("--seed", options.seed, "of a pipeline; default: the file's")->check(whole);
}

const server::Registrar<CommandEntry> kRegistrar("ledger", {CommandEntry::kPipelines, AddLedger});

}  // namespace

}  // namespace feedwater::cli
