#include "client/cli/doctor_dataset.h"

#include <linux/unistd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/doctor_samples.h"
#include "client/cli/interrupt.h"
#include "client/cli/mix_text.h"
#include "client/cli/read_estimate.h"
#include "server/base/cpus.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/pipeline/cache_choice.h"
#include "server/pipeline/record_reader.h"
#include "server/storage/mounts.h"

namespace feedwater::cli {
namespace {

using server::FormatBytes;
using server::FormatCount;
using server::Shuffle;
using server::StorageKind;

constexpr int64_t kFilesLookedAt = 64;
constexpr int64_t kManyFiles = 1000;      // where each costs a seek or a request
constexpr int64_t kSmallBytes = 1 << 20;  // of a file, beside what a seek costs
constexpr double kMuchFaster = 2;         // else another shuffle is not worth a word
constexpr double kSeeksShare = 0.2;       // of the time, from which larger windows help

// What is looked at, and what was found of it so far.
struct Patient {
  const FoundDataset& found;
  const server::Dataset& dataset;
  RecordSizes sizes;
  int64_t bytes = 0;  // of all files
  StorageKind kind = StorageKind::kUnknown;
  server::SamplerSpec sampler;
  bool has_sampler = false;  // else data was named, and a full shuffle is what it will get

  // Every record is a file of its own, or nearly.
  bool is_lone() const { return sizes.lone_share >= 0.5; }
  bool seeks() const { return server::HabitsOf(kind).reads_ahead; }
  Shuffle shuffle() const {
    return !has_sampler || sampler.shuffle == "full" ? Shuffle::kFull
           : sampler.shuffle == "block"              ? Shuffle::kBlock
                                                     : Shuffle::kNone;
  }
  std::string ShuffleText() const {
    if (!has_sampler) return "a full shuffle";
    return absl::StrCat("shuffle: ", sampler.shuffle,
                        shuffle() == Shuffle::kBlock
                            ? absl::StrCat(", block_records: ", sampler.block_records)
                            : "");
  }
};

std::string Percent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }

// Files, spread evenly, at most so many.
std::vector<uint32_t> SomeFiles(const server::Dataset& dataset, int64_t most) {
  std::vector<uint32_t> files;
  const int64_t count = std::min(dataset.objects(), most);
  for (int64_t i = 0; i < count; ++i)
    files.push_back(static_cast<uint32_t>(i * dataset.objects() / count));
  return files;
}

// --- records

Finding CheckRecords(const Patient& patient) {
  const server::Dataset& dataset = patient.dataset;
  const RecordSizes& sizes = patient.sizes;
  const bool are_all = sizes.looked_at == dataset.size();
  const std::string found = absl::StrCat(
      FormatCount(dataset.size(), "record"), " in ", FormatCount(dataset.objects(), "file"), ", ",
      FormatBytes(patient.bytes), "; a record has ", FormatBytes(sizes.bytes_median),
      " in the middle and at most ", FormatBytes(sizes.bytes_max),
      are_all ? "" : absl::StrCat(", of ", sizes.looked_at, " looked at"), "; ",
      server::Escaped(absl::StripSuffix(patient.found.section, "\n")));
  if (sizes.bytes_max > server::RecordReader::kMaxRecordBytes) {
    return Failure("records", found,
                   absl::StrCat("record ", sizes.record_max, " is larger than the ",
                                FormatBytes(server::RecordReader::kMaxRecordBytes),
                                " that one may have: split it, or leave it out"));
  }
  const int64_t a_file = dataset.objects() == 0 ? 0 : patient.bytes / dataset.objects();
  if (patient.is_lone() && patient.seeks() && dataset.objects() >= kManyFiles &&
      a_file < kSmallBytes) {
    return Warning(
        "records", found,
        absl::StrCat(ConvertText(dataset),
                     "; that puts them into shards, which are read in large pieces: each of these "
                     "files costs ",
                     patient.kind == StorageKind::kRotational
                         ? "a seek, which takes as long as reading 1 MiB"
                         : "requests for its name and its bytes, however small it is"));
  }
  return Good("records", found);
}

Finding CheckIndex(const Patient& patient) {
  const server::Dataset& dataset = patient.dataset;
  const double each =
      static_cast<double>(dataset.memory_bytes()) / static_cast<double>(dataset.size());
  std::string found = absl::StrFormat("%s in memory, %.3g bytes a record",
                                      FormatBytes(dataset.memory_bytes()), each);
  const bool is_staged =
      dataset.objects() > 0 && dataset.mix() == nullptr && &dataset.RootOf(0) != &dataset.root();
  if (is_staged)
    absl::StrAppend(&found, "; staged: unpacked files below ", dataset.RootOf(0).path());
  if (!dataset.notes().empty()) absl::StrAppend(&found, "; ", dataset.notes());
  if (!patient.found.pipeline.has_value()) return Good("index", found);
  const LocalPipeline& pipeline = *patient.found.pipeline;
  absl::StrAppend(
      &found, "; cache of the pipeline: ", server::CacheKindName(pipeline.loaded->spec.cache.kind));
  if (pipeline.saves_index) return Good("index", absl::StrCat(found, "; saved in state_dir"));
  return Warning(
      "index", absl::StrCat(found, "; not saved by this user"),
      "the daemon saves it when it first opens the dataset; feedwater index PIPELINE, run "
      "as the daemon's user, does so ahead of time");
}

// --- where it lies

Finding CheckStorage(Patient* patient) {
  const server::Dataset& dataset = patient->dataset;
  std::map<std::string, StorageKind> places;
  for (const uint32_t file : SomeFiles(dataset, kFilesLookedAt)) {
    const auto fd = dataset.RootOf(file).OpenFile(dataset.ObjectPath(file), /*direct_io=*/false);
    if (!fd.ok()) {
      return Failure("storage", std::string(fd.status().message()),
                     "put the file back, or give the daemon's user the right to read it");
    }
    const auto mount = server::FactsOfMount(fd->get());
    places[absl::StrCat(
        mount->mount.type.empty() ? "a file system of no known type" : mount->mount.type,
        mount->storage.device.empty() ? "" : " on ", mount->storage.device, ": ",
        server::StorageKindName(mount->storage.kind), ", since ", mount->storage.why)] =
        mount->storage.kind;
  }
  std::vector<std::string> texts;
  for (const auto& [text, kind] : places) {
    texts.push_back(text);
    // The dearest one counts.
    if (patient->kind == StorageKind::kUnknown || kind == StorageKind::kRotational ||
        (kind == StorageKind::kNetwork && patient->kind != StorageKind::kRotational)) {
      patient->kind = kind;
    }
  }
  std::string found = absl::StrJoin(texts, "; ");
  if (patient->found.pipeline.has_value()) {
    const std::string& key = patient->found.pipeline->settings.config.storage.kind;
    if (const auto kind = server::StorageKindOf(key); kind.has_value()) {
      patient->kind = *kind;
      absl::StrAppend(&found, "; storage.kind of the configuration says ", key);
    }
  }
  if (patient->kind != StorageKind::kNetwork) return Good("storage", found);
  const bool keeps = patient->found.pipeline.has_value() &&
                     patient->found.pipeline->settings.config.cache.disk.bytes > 0;
  if (keeps) return Good("storage", absl::StrCat(found, "; cache.disk keeps records here"));
  return Warning("storage", found,
                 absl::StrCat("cache.disk of the configuration keeps records on a local drive from "
                              "the first epoch on, or copy the ",
                              FormatBytes(patient->bytes), " there: every epoch asks the network"));
}

struct CacheStatRange {
  uint64_t offset, length;
};
struct CacheStat {
  uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

// Pages of an open file in the page cache; -1 where this kernel does not say.
int64_t CachedBytes(int fd, int64_t length) {
  constexpr long kCacheStat = 451;
  const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  CacheStatRange range{0, static_cast<uint64_t>(length)};
  CacheStat cached{};
  if (syscall(kCacheStat, fd, &range, &cached, 0) == 0)
    return std::min(length, static_cast<int64_t>(cached.cached) * page);
  // A mapping that nobody touches asks the file for nothing.
  void* const at = mmap(nullptr, static_cast<size_t>(length), PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return -1;
  std::vector<unsigned char> pages(static_cast<size_t>((length + page - 1) / page));
  const bool knows = mincore(at, static_cast<size_t>(length), pages.data()) == 0;
  munmap(at, static_cast<size_t>(length));
  if (!knows) return -1;
  const auto count =
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; });
  return std::min(length, count * page);
}

Finding CheckPageCache(const Patient& patient) {
  constexpr int64_t kMostOfFile = int64_t{1} << 30;
  const server::Dataset& dataset = patient.dataset;
  int64_t cached = 0, looked_at = 0;
  for (const uint32_t file : SomeFiles(dataset, kFilesLookedAt)) {
    const auto fd = dataset.RootOf(file).OpenFile(dataset.ObjectPath(file), /*direct_io=*/false);
    struct stat info;
    if (!fd.ok() || fstat(fd->get(), &info) != 0) continue;
    const int64_t length = std::min<int64_t>(info.st_size, kMostOfFile);
    const int64_t here = length == 0 ? 0 : CachedBytes(fd->get(), length);
    if (here < 0) continue;
    cached += here;
    looked_at += length;
  }
  const int64_t memory = server::MemoryLimitBytes();
  const std::string found = absl::StrCat(
      looked_at == 0
          ? "nothing is known of it"
          : absl::StrCat(Percent(static_cast<double>(cached) / static_cast<double>(looked_at)),
                         " of ", FormatBytes(looked_at), " looked at"),
      "; ", FormatBytes(patient.bytes), " in all, ",
      patient.bytes <= memory / 2
          ? "which the memory here can hold: later epochs need few reads"
          : "more than the memory here holds: every epoch reads from storage",
      " (", FormatBytes(memory), ")");
  return Good("page cache", found);
}

// --- reads

std::string PatternText(const ReadPattern& pattern, StorageKind kind) {
  const double seconds = server::CostsOf(kind).Seconds(pattern.reads, pattern.bytes, pattern.seeks);
  return absl::StrFormat("%.0f reads of %s and %.0f seeks for 1,000 samples, about %s",
                         std::ceil(pattern.reads),
                         FormatBytes(static_cast<int64_t>(pattern.bytes_a_read())),
                         std::ceil(pattern.seeks), server::FormatSeconds(seconds));
}

std::string ModelText(StorageKind kind) {
  const server::CostModel costs = server::CostsOf(kind);
  std::vector<std::string> terms;
  if (costs.seek_s > 0)
    terms.push_back(absl::StrCat(server::FormatSeconds(costs.seek_s), " a seek"));
  if (costs.request_s > 0) {
    terms.push_back(absl::StrCat(
        server::FormatSeconds(costs.request_s), " a request",
        costs.request_bytes > 0 ? absl::StrCat(" of at most ", FormatBytes(costs.request_bytes))
                                : ""));
  }
  terms.push_back(absl::StrFormat("%.0f MB/s", costs.bytes_per_s / 1e6));
  return absl::StrCat(server::StorageKindName(kind), " storage taken as ",
                      absl::StrJoin(terms, ", "), ", one read at a time");
}

// A window that is still read ahead, of some shards where that is possible.
int64_t GoodBlockRecords(const Patient& patient) {
  const auto shards = static_cast<int64_t>(patient.dataset.shard_starts().size());
  const int64_t in_shard = shards == 0 ? 0 : patient.dataset.size() / shards;
  return std::clamp<int64_t>(std::max<int64_t>(4096, 4 * in_shard), 1,
                             std::min(MostBlockRecords(patient.sizes), patient.dataset.size()));
}

Finding CheckReads(const Patient& patient) {
  const server::Dataset& dataset = patient.dataset;
  const Shuffle shuffle = patient.shuffle();
  const auto estimate = [&](Shuffle as, int64_t block_records) {
    return EstimateReads(dataset, patient.sizes, as, block_records, patient.kind);
  };
  const auto seconds = [&](const ReadPattern& pattern) {
    return server::CostsOf(patient.kind).Seconds(pattern.reads, pattern.bytes, pattern.seeks);
  };
  const ReadPattern now = estimate(shuffle, patient.sampler.block_records);
  const std::string found = absl::StrCat(
      patient.ShuffleText(), ": ", PatternText(now, patient.kind), "; ", ModelText(patient.kind));
  const auto shards = static_cast<int64_t>(dataset.shard_starts().size());
  const int64_t good = GoodBlockRecords(patient);
  if (shuffle == Shuffle::kBlock && shards == 1 && dataset.mix() == nullptr) {
    return Warning("reads", found,
                   "the dataset is one shard, so that windows come in stored order in every epoch: "
                   "split it (feedwater convert PIPELINE.yaml OUT), or take shuffle: full");
  }
  if (!patient.seeks() || patient.is_lone()) return Good("reads", found);
  if (shuffle == Shuffle::kFull) {
    const ReadPattern block = estimate(Shuffle::kBlock, good);
    if (!block.is_ahead || shards == 1 || seconds(now) < kMuchFaster * seconds(block))
      return Good("reads", found);
    return Warning("reads", found,
                   absl::StrCat("sampler: {shuffle: block, block_records: ", good,
                                "}: ", PatternText(block, patient.kind),
                                ", since shards are read in large pieces"));
  }
  if (shuffle != Shuffle::kBlock || dataset.mix() != nullptr) return Good("reads", found);
  if (!now.is_ahead) {
    return Warning(
        "reads", found,
        absl::StrCat("block_records: ", good, ": two windows of ", patient.sampler.block_records,
                     " are too large for the page cache, so that nothing is read ahead"));
  }
  const double of_seeks = server::CostsOf(patient.kind).seek_s * now.seeks;
  const ReadPattern larger = estimate(shuffle, good);
  if (good > patient.sampler.block_records && of_seeks > kSeeksShare * seconds(now) &&
      seconds(larger) < seconds(now)) {
    return Warning(
        "reads", found,
        absl::StrCat(
            "block_records: ", good, ": ", PatternText(larger, patient.kind),
            ", since a window then continues in fewer places; it also mixes more records"));
  }
  return Good("reads", found);
}

}  // namespace

absl::StatusOr<std::vector<Finding>> CheckDataset(const Context& context,
                                                  const DatasetQuestion& question) {
  const absl::StatusOr<FoundDataset> found = FindDataset(context, question);
  if (absl::IsCancelled(found.status())) return found.status();
  if (!found.ok()) {
    return std::vector<Finding>{
        Failure("dataset", std::string(found.status().message()),
                "as it says; feedwater describe dataset shows what can be read")};
  }
  Patient patient{*found, *found->dataset, SizesOf(*found->dataset), 0, StorageKind::kUnknown, {}};
  for (int64_t i = 0; i < patient.dataset.objects(); ++i)
    patient.bytes += patient.dataset.ObjectBytes(static_cast<uint32_t>(i));
  if (found->pipeline.has_value()) {
    patient.sampler = found->pipeline->loaded->spec.sampler;
    patient.has_sampler = true;
  }
  // What the others say depends on the storage.
  Finding storage = CheckStorage(&patient);
  std::vector<Finding> findings = {CheckRecords(patient), CheckIndex(patient), std::move(storage)};
  if (findings.back().state == Finding::State::kFailure) return findings;
  if (!Interrupted()) findings.push_back(CheckPageCache(patient));
  if (!Interrupted()) findings.push_back(CheckReads(patient));
  if (!Interrupted()) {
    const ConfigChoice config = {question.config, context.address};
    for (Finding& finding : CheckSamples(*found, config, patient.sizes.bytes_max))
      findings.push_back(std::move(finding));
  }
  if (Interrupted()) return absl::CancelledError("interrupted");
  return findings;
}

}  // namespace feedwater::cli
