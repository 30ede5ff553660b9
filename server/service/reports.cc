#include "server/service/reports.h"

#include <hwy/targets.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "feedwater/version.h"
#include "server/base/clock.h"
#include "server/base/counters.h"
#include "server/base/escape.h"
#include "server/base/heap.h"
#include "server/base/status.h"
#include "server/base/yaml.h"
#include "server/decoder/isolated_maker.h"
#include "server/service/answers.h"
#include "server/source/given_records.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"bad_records", {"bad records known (feedwater status --bad)"}},
    {"bad_records_quarantined", {"records put aside, because the daemon died of them"}},
    {"decoders_started", {"decoder processes started"}},
    {"decoder_deaths", {"decoder processes that died"}},
};

constexpr int64_t kMostRecordBytes = 16 << 10;  // of one: a path has 4 KiB, its UTF-8 may be longer
constexpr int64_t kRecordFrameBytes = 8;        // its tag and length

// The user's own job, or whose ever it is.
absl::StatusOr<JobStats> FindJob(std::vector<JobStats> jobs, const std::string& name,
                                 const std::string& pipeline, uid_t user) {
  const auto is_meant = [&](const JobStats& job) {
    return job.job == name && (pipeline.empty() || job.pipeline == pipeline);
  };
  const bool has_own = std::any_of(jobs.begin(), jobs.end(), [&](const JobStats& job) {
    return is_meant(job) && job.owner_uid == user;
  });
  std::vector<std::string> names;
  const JobStats* found = nullptr;
  for (const JobStats& job : jobs) {
    names.push_back(job.job);
    if (!is_meant(job) || (has_own && job.owner_uid != user)) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "job '", Printable(name), "' runs for several users or over several pipelines, such as ",
          found->pipeline, " and ", job.pipeline, "; name the pipeline"));
    }
    found = &job;
  }
  if (found != nullptr) return *found;
  return absl::NotFoundError(absl::StrCat("no job '", Printable(name), "' is running",
                                          Suggest(name, names),
                                          "; `feedwater status` lists the running "
                                          "jobs, `feedwater ledger NAME --config FILE` shows a "
                                          "pipeline's order without a job"));
}

void SetDecoded(const DecodeCounts& counts, v1::Job* job) {
  auto& decoded = *job->mutable_decoded();
  if (counts.from_coefficients > 0) decoded["coefficients"] = counts.from_coefficients;
  const uint64_t from_the_top = counts.own_decoder - counts.with_seek_index;
  if (from_the_top > 0) decoded["own"] = from_the_top;
  if (counts.with_seek_index > 0) decoded["own_with_seek_index"] = counts.with_seek_index;
  for (int i = 0; i < jpeg::kUncoveredKinds; ++i) {
    if (counts.libjpeg[i] == 0) continue;
    const absl::string_view why = jpeg::UncoveredName(static_cast<jpeg::Uncovered>(i));
    decoded[absl::StrCat("libjpeg_", why)] = counts.libjpeg[i];
  }
}

void SetCache(const JobStats& stats, v1::JobCache* cache) {
  cache->set_kind(stats.cache_kind);
  cache->set_reason(stats.cache_reason);
  cache->set_records(stats.records);
  cache->set_memory_records(stats.cache.memory_records);
  cache->set_disk_records(stats.cache.disk_records);
  cache->set_memory_bytes(stats.cache.memory_bytes);
  cache->set_disk_bytes(stats.cache.disk_bytes);
  cache->set_memory_hits(stats.cache.memory_hits);
  cache->set_disk_hits(stats.cache.disk_hits);
  cache->set_misses(stats.cache.misses);
  cache->set_damaged(stats.cache.damaged);
  cache->set_out_of_date(stats.cache.out_of_date);
  cache->set_seek_indexes(stats.seek_indexes.images);
  cache->set_seek_index_bytes(stats.seek_indexes.bytes);
}

void SetJob(const JobStats& stats, v1::Job* job) {
  job->set_job(ToUtf8(stats.job));
  job->set_pipeline(ToUtf8(stats.pipeline));
  job->set_owner_uid(stats.owner_uid);
  job->set_epoch(stats.epoch);
  job->set_step(stats.step);
  job->set_world_size(stats.world_size);
  job->set_samples(stats.samples);
  job->set_bad_samples(stats.bad_samples);
  job->set_substituted(stats.substituted);
  job->set_skipped(stats.skipped);
  job->set_batches(stats.batches);
  job->set_bytes_read(stats.bytes_read);
  job->set_cpu_s(stats.cpu_seconds);
  job->set_read_wait_s(stats.read_wait_seconds);
  job->set_reads_held_up(stats.held_up);
  job->set_read_s(stats.read_seconds);
  job->set_parse_s(stats.parse_seconds);
  job->set_run_s(stats.run_seconds);
  job->set_batch_s(stats.batch_seconds);
  for (const std::string& name : stats.loaded->own_code) job->add_own_code(name);
  SetCache(stats, job->mutable_cache());
  SetDecoded(stats.decoded, job);
  for (const RankStats& of_rank : stats.ranks) {
    v1::Rank* rank = job->add_ranks();
    rank->set_rank(of_rank.rank);
    rank->set_pid(of_rank.pid);
    rank->set_epoch(of_rank.epoch);
    rank->set_step(of_rank.step);
    rank->set_slots(static_cast<uint32_t>(of_rank.slots));
    rank->set_slots_ready(static_cast<uint32_t>(of_rank.slots_ready));
    rank->set_slots_lent(static_cast<uint32_t>(of_rank.slots_lent));
  }
}

// What an answer with it takes, about.
int64_t BytesOf(const Ledger& ledger) {
  constexpr int64_t kNumbersBytes = 64;
  int64_t bytes = 0;
  for (const LedgerEntry& entry : ledger.entries)
    bytes += kNumbersBytes +
             static_cast<int64_t>(ToUtf8(entry.path).size() + ToUtf8(entry.bad_reason).size());
  return bytes;
}

// As many as one answer holds; the file has them all. Returns the bytes of those.
int64_t ListBad(const BadSampleLog::Report& report, uid_t reader,
                v1::ListBadSamplesResponse* response) {
  constexpr int64_t kMostBytes = 8 << 10;  // of one: its texts are cut
  int64_t bytes = 0, left_out = 0;
  for (const BadSampleLog::Entry& entry : report.entries) {
    if (bytes > kMaxAnswerBytes - kMostBytes) {
      ++left_out;
      continue;
    }
    v1::BadSample* sample = response->add_samples();
    sample->set_dataset_digest(ToUtf8(entry.dataset));
    sample->set_record(entry.record);
    sample->set_pipeline(ToUtf8(entry.pipeline));
    sample->set_path(ToUtf8(entry.path));
    sample->set_offset(entry.offset);
    sample->set_length(entry.length);
    sample->set_reason(ToUtf8(entry.ReasonFor(reader)));
    sample->set_count(entry.count);
    sample->set_first_seen_s(entry.first_seen);
    sample->set_last_seen_s(entry.last_seen);
    sample->set_action(ToUtf8(entry.action));
    sample->set_stood_in(entry.stood_in);
    sample->set_crashes(entry.crashes);
    sample->set_signal(entry.signal);
    sample->set_quarantined(entry.quarantined());
    bytes += static_cast<int64_t>(sample->ByteSizeLong()) + 8;
  }
  response->set_not_listed(report.not_listed + static_cast<uint64_t>(left_out));
  response->set_file(ToUtf8(report.file));
  return bytes;
}

}  // namespace

void AddLedger(const Ledger& ledger, v1::GetLedgerResponse* response) {
  response->set_steps(ledger.steps);
  for (const LedgerEntry& entry : ledger.entries) {
    v1::LedgerEntry* out = response->add_entries();
    out->set_step(entry.use.step);
    out->set_rank(entry.use.rank);
    out->set_place(entry.use.place);
    out->set_is_real(entry.use.is_real);
    out->set_position(entry.position);
    out->set_record(entry.record);
    out->set_path(entry.path);
    out->set_offset(entry.offset);
    out->set_bytes(entry.bytes);
    if (entry.label >= 0) out->set_label(entry.label);
    if (entry.dataset_id >= 0) out->set_dataset_id(entry.dataset_id);
    out->set_is_bad(entry.is_bad);
    out->set_bad_reason(entry.bad_reason);
    if (entry.stood_in >= 0) out->set_stood_in(entry.stood_in);
  }
}

void AddJobs(std::vector<JobStats> jobs, uid_t first, int64_t most_bytes,
             v1::GetStatusResponse* response) {
  constexpr int64_t kFrameBytes = 8;  // of one: its tag and length
  std::stable_partition(jobs.begin(), jobs.end(),
                        [&](const JobStats& job) { return job.owner_uid == first; });
  response->set_jobs_not_listed(jobs.size());  // so that its bytes are counted
  int64_t bytes = static_cast<int64_t>(response->ByteSizeLong());
  uint64_t left_out = 0;
  for (const JobStats& stats : jobs) {
    v1::Job* job = response->add_jobs();
    SetJob(stats, job);
    const int64_t more = static_cast<int64_t>(job->ByteSizeLong()) + kFrameBytes;
    if (bytes + more > most_bytes) {
      response->mutable_jobs()->RemoveLast();
      ++left_out;
    } else {
      bytes += more;
    }
  }
  response->set_jobs_not_listed(left_out);
}

Reports::Reports(Parts parts) : parts_(std::move(parts)), start_ns_(MonotonicNs()) {}

// The scheduler knows what was published; what a trainer has taken of it, its session.
std::vector<JobStats> Reports::Jobs() const {
  using RankKey = std::tuple<uid_t, std::string, std::string, int64_t>;
  std::map<RankKey, SessionTicket> tickets;
  for (const RankSession& session : parts_.streams->Sessions()) {
    const auto& [ticket, user, job, pipeline, rank] = session;
    tickets[RankKey(user, job, pipeline, rank)] = ticket;
  }
  std::vector<JobStats> jobs = parts_.runtime->Snapshot();
  for (JobStats& job : jobs) {
    for (RankStats& rank : job.ranks) {
      const auto ticket = tickets.find(RankKey(job.owner_uid, job.job, job.pipeline, rank.rank));
      if (ticket == tickets.end()) continue;
      const SessionCounts counts = parts_.data->Counts(ticket->second);
      rank.slots = counts.slots;
      rank.slots_ready = counts.ready;
      rank.slots_lent = counts.lent;
      rank.epoch = counts.taken.has_value() ? counts.taken->epoch : rank.began_epoch;
      rank.step = counts.taken.has_value() ? counts.taken->step : rank.began_step;
    }
    const auto behind = std::min_element(
        job.ranks.begin(), job.ranks.end(), [](const RankStats& a, const RankStats& b) {
          return std::tie(a.epoch, a.step) < std::tie(b.epoch, b.step);
        });
    if (behind == job.ranks.end()) continue;
    job.epoch = behind->epoch;
    job.step = behind->step;
  }
  return jobs;
}

void Reports::TellStatus(v1::GetStatusResponse* response) const {
  const Settings& settings = *parts_.settings;
  response->set_version(kFeedwaterVersion);
  response->set_uptime_s(static_cast<double>(MonotonicNs() - start_ns_) / 1e9);
  response->set_engine_name(settings.engine.name);
  response->set_engine_reason(ToUtf8(settings.engine.reason));
  for (int cpu : settings.cpus) response->add_cpus(cpu);
  response->set_memory_limit_bytes(parts_.shares->whole()->limit_bytes());
  response->set_memory_planned_bytes(parts_.shares->whole()->planned_bytes());
  response->set_memory_resident_bytes(ResidentBytes());
  response->set_memory_sum(parts_.shares->whole()->Sum());
  response->set_numa_node(settings.numa_node);
  response->set_workers_active(parts_.runtime->active_workers());
  const int64_t targets = hwy::SupportedTargets();
  response->set_simd(hwy::TargetName(targets & -targets));  // the lowest bit is the best one
  response->set_runtime_dir(ToUtf8(settings.config.runtime_dir));
  response->set_pid(getpid());
  response->set_config_file(ToUtf8(settings.file));
  for (const std::string& override : SettledOverrides(settings))
    response->add_config_overrides(ToUtf8(override));
  for (const std::string& root : parts_.catalogue->SilentRoots())
    response->add_silent_roots(ToUtf8(root));

  auto& counters = *response->mutable_counters();
  for (const auto& [name, count] : parts_.data->counters()) counters[name] += count;
  if (parts_.more_counters != nullptr) {
    for (const auto& [name, count] : parts_.more_counters()) counters[name] += count;
  }
  for (const auto& [name, count] : parts_.runtime->counters()) counters[name] += count;
  if (parts_.providers != nullptr) {
    for (const auto& [name, count] : parts_.providers->Counters()) counters[name] += count;
  }
  counters["bad_records"] = parts_.bad_samples->records();
  counters["bad_records_quarantined"] = parts_.bad_samples->quarantined();
  response->set_isolation(settings.config.isolation);
  if (parts_.decoders != nullptr) {
    response->set_decoders(parts_.decoders->running);
    counters["decoders_started"] = parts_.decoders->started;
    counters["decoder_deaths"] = parts_.decoders->deaths;
  }
}

void Reports::TellProviders(uid_t asker, v1::GetStatusResponse* response) const {
  if (parts_.providers == nullptr) return;
  const std::optional<uint32_t> only =
      asker == geteuid() || asker == 0 ? std::nullopt : std::optional<uint32_t>(asker);
  for (const Providers::Served& served : parts_.providers->List(only)) {
    v1::Provider* provider = response->add_providers();
    provider->set_name(served.name);
    provider->set_kind(served.kind);
    provider->set_owner_uid(served.user);
    provider->set_processes(served.counts.processes);
    provider->set_made(served.counts.made);
    provider->set_failed(served.counts.failed);
    provider->set_died(served.counts.died);
    provider->set_busy_s(static_cast<double>(served.counts.busy_ns) / 1e9);
    provider->set_waiting(served.counts.waiting);
    provider->set_workers(served.workers);
  }
}

void Reports::TellJobs(const Asker& asker, v1::GetStatusResponse* response) const {
  AddJobs(Jobs(), asker.user, kMaxAnswerBytes, response);
}

absl::Status Reports::ReadLedger(const Asker& asker, const v1::GetLedgerRequest& request,
                                 v1::GetLedgerResponse* response) const {
  FW_ASSIGN_OR_RETURN(const JobStats job,
                      FindJob(Jobs(), request.job(), request.pipeline(), asker.user));
  LedgerQuery query;
  query.epoch = request.has_epoch() ? request.epoch() : job.epoch;
  query.start = query.epoch == job.start_epoch ? job.start : 0;
  switch (request.what_case()) {
    case v1::GetLedgerRequest::kStep:
      query.step = request.step();
      break;
    case v1::GetLedgerRequest::kRecord: {
      FW_ASSIGN_OR_RETURN(query.record,
                          FindRecord(*job.loaded->dataset, request.record(), asker.is_gone));
      break;
    }
    case v1::GetLedgerRequest::WHAT_NOT_SET:
      return absl::InvalidArgumentError("give a step, or a record");
  }
  if (request.has_rank()) query.rank = request.rank();
  query.on_bad_sample = job.loaded->spec.on_bad_sample;
  const std::string contents = ContentsIn(*job.loaded->dataset, query.epoch);
  for (const BadSampleLog::Entry& bad : parts_.bad_samples->Get().entries) {
    if (bad.dataset == contents && bad.IsBadFor(job.loaded->spec.digest))
      query.bad.emplace(bad.record, bad.ReasonFor(asker.user));
  }
  FW_ASSIGN_OR_RETURN(const Ledger ledger,
                      server::ReadLedger(*job.loaded->dataset, job.order, query));
  FW_RETURN_IF_ERROR(Annotate(asker.reserve(BytesOf(ledger)), "ask for one rank, or for a record"));
  response->set_job(ToUtf8(job.job));
  response->set_pipeline(ToUtf8(job.pipeline));
  response->set_epoch(query.epoch);
  response->set_world_size(job.world_size);
  response->set_batch_size(job.order->batch_size);
  response->set_seed(job.order->seed);
  response->set_records(job.records);
  AddLedger(ledger, response);
  for (v1::LedgerEntry& entry : *response->mutable_entries()) {
    entry.set_path(ToUtf8(entry.path()));
    entry.set_bad_reason(ToUtf8(entry.bad_reason()));
  }
  return absl::OkStatus();
}

absl::Status Reports::ListRecords(const Asker& asker, const v1::ListRecordsRequest& request,
                                  v1::ListRecordsResponse* response) const {
  FW_ASSIGN_OR_RETURN(const JobStats job,
                      FindJob(Jobs(), request.job(), request.pipeline(), asker.user));
  const Dataset& dataset = *job.loaded->dataset;
  if (request.first() < 0 || request.first() > dataset.size() || request.records() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are no ", request.records(), " records from ", request.first(),
                     " on: there are ", dataset.size(), ", which count from 0"));
  }
  const int64_t asked = std::min(request.records(), dataset.size() - request.first());
  const int64_t most = std::min(asked, kMaxAnswerBytes / kMostRecordBytes) * kMostRecordBytes;
  FW_RETURN_IF_ERROR(asker.reserve(most));
  response->set_dataset_digest(dataset.digest());
  // Those of a mix may lie below several roots: they are told from the whole machine's.
  const bool is_mix = dataset.mix() != nullptr;
  response->set_root(is_mix ? "/" : dataset.root().path());
  std::vector<Extent> extents;
  std::string path;
  int64_t bytes = 0;
  for (int64_t i = 0, last_object = -1; i < asked && bytes + kMostRecordBytes <= most; ++i) {
    const int64_t record = request.first() + i;
    v1::Record* out = response->add_records();
    dataset.Extents(record, &extents);
    if (!extents.empty()) {
      const Extent& naming = extents[dataset.NamingExtent(record)];
      const uint32_t object = naming.object;
      if (object != last_object) {
        path = dataset.ObjectPath(object);
        if (is_mix) path = absl::StrCat(dataset.RootOf(object).path(), "/", path).substr(1);
      }
      last_object = object;
      out->set_path(path);
      out->set_offset(naming.offset);
    }
    for (const Extent& extent : extents) out->set_bytes(out->bytes() + extent.length);
    if (const int64_t label = dataset.LabelOf(record); label >= 0) out->set_label(label);
    bytes += static_cast<int64_t>(out->ByteSizeLong()) + kRecordFrameBytes;
  }
  return absl::OkStatus();
}

absl::Status Reports::ListBadSamples(const Asker& asker,
                                     v1::ListBadSamplesResponse* response) const {
  return asker.reserve(ListBad(parts_.bad_samples->Get(), asker.user, response));
}

}  // namespace feedwater::server
