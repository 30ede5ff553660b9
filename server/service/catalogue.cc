#include "server/service/catalogue.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/log_limiter.h"
#include "server/base/status_message.h"
#include "server/base/units.h"
#include "server/graph/advice.h"
#include "server/graph/digest.h"
#include "server/graph/op_caller.h"
#include "server/graph/unknown_field.h"
#include "server/pipeline/cache_choice.h"
#include "server/pipeline/dataset_order.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

// Pipelines that are opened at a time for one user, and datasets: one that was given up may take a
// while to notice it.
constexpr int kOpeningOfUser = 4;
// Trainers that lost the connection ask again within a second.
constexpr absl::Duration kPatience = absl::Seconds(2);
constexpr int kTextsOfUser = 8;  // that stay open
// What a text takes when it is read, a byte of it (the tree of a list of short numbers).
constexpr int64_t kTreeBytesPerByte = 100;
constexpr int64_t kProgressEveryNs = 3'000'000'000;
constexpr int kProgressLines = 20;      // of a user in a minute: one opening has so many
constexpr size_t kAdvice = 4;           // texts of it for whoever opens a pipeline
constexpr int64_t kFieldHeadBytes = 4;  // of a text in an answer

// Whether an opened dataset is still what its files are.
bool IsCurrent(const Dataset& dataset) {
  absl::Status same;
  for (const Root* root : dataset.roots()) {
    const absl::StatusOr<bool> is_in_place = root->IsInPlace();
    same = is_in_place.status();
    if (same.ok() && !*is_in_place)
      same = absl::FailedPreconditionError("its root leads to another folder now");
    if (!same.ok()) break;
  }
  if (same.ok()) same = dataset.LookAgain();
  if (!same.ok() &&
      ClientLog().Admits("datasets that changed", LogLimiter::kNoSource, LogLimiter::kOpenLines)) {
    spdlog::info("an opened dataset is not given out again: {}", std::string(same.message()));
  }
  return same.ok();
}

// Whether the user may have it, and all that it is made of is still so.
bool PipelineIsCurrent(const LoadedPipeline& pipeline, uid_t user) {
  if (pipeline.only_user.value_or(user) != user) return false;
  if (pipeline.is_current != nullptr && !pipeline.is_current()) return false;
  return IsCurrent(*pipeline.dataset);
}

void AddOwnOps(const std::vector<OpSpec>& ops, std::vector<std::string>* names) {
  for (const OpSpec& op : ops) {
    const YamlNode* const name = op.name == kOwnOp ? op.params.Find("name") : nullptr;
    if (name != nullptr) names->push_back(name->scalar);
    AddOwnOps(op.inner, names);
  }
}

std::vector<std::string> OwnOps(const PipelineSpec& spec) {
  std::vector<std::string> names;
  AddOwnOps(spec.graph, &names);
  AddOwnOps(spec.batch_graph, &names);
  return names;
}

// The pipeline with the files of its ops, which may wait for storage.
absl::StatusOr<PipelineSpec> WithFiles(const PipelineSpec& unread, const Roots& roots,
                                       std::shared_ptr<MemoryBudget> budget) {
  if (unread.files().empty()) return unread;
  RootFiles files(roots, std::move(budget));
  return ParsePipeline(unread.text, unread.file_name, unread.caps, &files);
}

// Tells the log how far an index is, every few seconds.
IndexProgress LogProgress(const std::string& name, uid_t user) {
  return [name, user, last_ns = MonotonicNs()](int64_t done, int64_t total) mutable {
    int64_t now_ns = MonotonicNs();
    if (now_ns - last_ns < kProgressEveryNs) return;
    last_ns = now_ns;
    if (!ClientLog().Admits("indexing", user, kProgressLines)) return;
    if (total > 0) {
      spdlog::info("pipeline {}: indexing its dataset, {} of {} records", name, done, total);
    } else {
      spdlog::info("pipeline {}: indexing its dataset, {} records so far", name, done);
    }
  };
}

std::string FirstAdvice(const PipelineSpec& spec, const Dataset& dataset) {
  std::vector<std::string> texts = AdviceOn(spec);
  for (std::string& text : AdviceOnMoves(spec, dataset.fields())) texts.push_back(std::move(text));
  if (texts.size() > kAdvice) texts.resize(kAdvice);
  return absl::StrJoin(texts, "; ");
}

}  // namespace

Catalogue::Catalogue(Options options)
    : options_(std::move(options)),
      files_(options_.caps),
      datasets_("datasets", kOpeningOfUser, absl::ZeroDuration(), options_.charge),
      pipelines_("pipelines", kOpeningOfUser, kPatience, options_.charge) {}

void Catalogue::Reload(const PipelineFolders& where, std::shared_ptr<const Roots> roots) {
  files_.Reload(where, std::move(roots));
  std::vector<Lingering> dropped;  // destroyed without the lock
  MutexLock lock(&mu_);
  dropped.swap(lingering_);
}

Catalogue::Loaded Catalogue::LoadNamed(uid_t user, const std::string& name,
                                       const Cancelled& cancelled) {
  DropWithoutDisk();
  // What was opened before a reload is not found after it.
  const uint64_t asked_in = reload();
  // A reload may come before it begins: what it opens is of one reload, the file's.
  auto make = [this, user, name](const Cancelled& given_up) -> Loaded {
    FW_ASSIGN_OR_RETURN(const std::shared_ptr<const PipelineFile> file, files_.Look(name));
    if (!file->spec.ok()) return file->spec.status();
    return Open(user, *file->spec, MemoryReservation(), file->reload, file->roots, given_up, file);
  };
  const auto is_current = [this, user, name](const LoadedPipeline& pipeline) {
    const auto file = files_.Look(name);
    return file.ok() && *file == pipeline.file &&
           AreCurrent(pipeline.spec.files(), *(*file)->roots) && PipelineIsCurrent(pipeline, user);
  };
  return pipelines_.Get(user, Key("pipeline").Add("reload", asked_in).Add("name", name).Name(),
                        make, cancelled, is_current);
}

Catalogue::Loaded Catalogue::LoadText(uid_t user, const std::string& file_name,
                                      const std::string& yaml, const Cancelled& cancelled) {
  if (yaml.size() > options_.max_text_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the pipeline has ", yaml.size(),
                     " bytes, more than limits.pipeline_bytes = ", options_.max_text_bytes));
  }
  DropWithoutDisk();
  const auto [roots, reload] = files_.reloaded();
  // The caller may have left when this runs.
  auto make = [this, user, file_name, yaml, roots = roots,
               reload = reload](const Cancelled& given_up) -> Loaded {
    MemoryReservation text;
    if (const std::shared_ptr<MemoryBudget> share = ShareOf(user); share != nullptr) {
      FW_ASSIGN_OR_RETURN(text, share->Reserve("pipeline texts", static_cast<int64_t>(yaml.size()) *
                                                                     kTreeBytesPerByte));
    }
    DeclaredFiles files(*roots);
    FW_ASSIGN_OR_RETURN(PipelineSpec spec, ParsePipeline(yaml, file_name, options_.caps, &files));
    FW_RETURN_IF_ERROR(CheckRoot(spec, *roots));
    return Open(user, spec, std::move(text), reload, roots, given_up);
  };
  // The whole text is in the key: a digest of the pipeline would leave out batch size and seed.
  const Key key = Key("pipeline").Add("reload", reload).Add("file", file_name).Add("text", yaml);
  const auto is_current = [user, roots = roots](const LoadedPipeline& pipeline) {
    return AreCurrent(pipeline.spec.files(), *roots) && PipelineIsCurrent(pipeline, user);
  };
  return pipelines_.Get(user, key.Name(), make, cancelled, is_current);
}

Catalogue::Loaded Catalogue::Open(uid_t user, const PipelineSpec& spec, MemoryReservation text,
                                  uint64_t reload, const std::shared_ptr<const Roots>& roots,
                                  const Cancelled& given_up,
                                  const std::shared_ptr<const PipelineFile>& file) {
  Loaded loaded = OpenOnce(user, spec, &text, reload, roots, given_up, file);
  RetryWithRoom(
      user, [&] { return OpenOnce(user, spec, &text, reload, roots, given_up, file); }, &loaded);
  if (!loaded.ok()) {
    if (ClientLog().Admits("pipelines that cannot be opened", user))
      spdlog::warn("pipeline {}: {}", spec.name, std::string(loaded.status().message()));
    return loaded;
  }
  std::shared_ptr<const LoadedPipeline> dropped;  // destroyed without the lock
  MutexLock lock(&mu_);
  if (reload != this->reload()) return loaded;
  const int64_t now_ns = MonotonicNs();
  lingering_.push_back({*loaded, now_ns, user, now_ns});
  if ((*loaded)->text == nullptr) return loaded;
  const auto of_user = [user](const Lingering& entry) {
    return entry.user == user && entry.pipeline->text != nullptr;
  };
  if (std::count_if(lingering_.begin(), lingering_.end(), of_user) > kTextsOfUser) {
    const auto oldest = std::find_if(lingering_.begin(), lingering_.end(), of_user);
    dropped = std::move(oldest->pipeline);
    lingering_.erase(oldest);
  }
  return loaded;
}

std::shared_ptr<MemoryBudget> Catalogue::ShareOf(uid_t user) const {
  return options_.shares == nullptr ? nullptr : options_.shares->Of(user);
}

namespace {

absl::StatusOr<std::shared_ptr<const MemoryReservation>> TablesOf(
    const Plan& plan, const std::shared_ptr<MemoryBudget>& share) {
  if (share == nullptr || plan.table_bytes() == 0) return nullptr;
  FW_ASSIGN_OR_RETURN(MemoryReservation tables, share->Reserve("tables", plan.table_bytes()));
  return std::make_shared<const MemoryReservation>(std::move(tables));
}

}  // namespace

Catalogue::Loaded Catalogue::OpenOnce(uid_t user, const PipelineSpec& unread,
                                      MemoryReservation* text, uint64_t reload,
                                      const std::shared_ptr<const Roots>& roots,
                                      const Cancelled& given_up,
                                      const std::shared_ptr<const PipelineFile>& file) {
  int64_t start_ns = MonotonicNs();
  auto loaded = std::make_shared<LoadedPipeline>();
  FW_ASSIGN_OR_RETURN(loaded->spec, WithFiles(unread, *roots, ShareOf(user)));
  const PipelineSpec& spec = loaded->spec;
  // A broken graph is found before the dataset is indexed.
  {
    const std::shared_ptr<Mutex> making = MakingOpsOf(user);
    MutexLock one_at_a_time(making.get());
    FW_RETURN_IF_ERROR(Plan::Validate(spec));
  }

  loaded->file = file;
  loaded->reload = reload;
  if (file != nullptr && !file->mistake.ok()) {
    loaded->warning =
        absl::StrCat("pipeline '", spec.name,
                     "' is used as it was before its file was broken: ", file->mistake.message());
  }
  FW_ASSIGN_OR_RETURN(loaded->dataset, OpenShared(user, spec, reload, roots, given_up));
  const std::string advice = FirstAdvice(spec, *loaded->dataset);
  if (!advice.empty() && !loaded->warning.empty()) loaded->warning.insert(0, "; ");
  loaded->warning.insert(0, advice);
  FW_RETURN_IF_ERROR(JoinProviders(user, loaded.get()));
  FW_RETURN_IF_ERROR(MixOrderOf(*loaded->dataset).status());  // a mix whose epochs make no sense
  for (const std::string& name : loaded->dataset->classes())
    loaded->class_names_bytes += kFieldHeadBytes + static_cast<int64_t>(ToUtf8(name).size());
  {
    const std::shared_ptr<Mutex> making = MakingOpsOf(user);
    MutexLock one_at_a_time(making.get());
    absl::StatusOr<std::shared_ptr<const Plan>> plan = Plan::Create(
        spec, loaded->dataset->fields(), static_cast<int64_t>(loaded->dataset->classes().size()));
    if (IsUnknownField(plan.status())) {
      return WithMessage(plan.status(),
                         absl::StrCat(plan.status().message(), NamesCure(*loaded->dataset)));
    }
    FW_ASSIGN_OR_RETURN(loaded->plan, std::move(plan));
    FW_ASSIGN_OR_RETURN(loaded->tables, TablesOf(*loaded->plan, ShareOf(user)));
  }
  if (options_.cache != nullptr) FW_RETURN_IF_ERROR(OpenCache(user, loaded.get()));
  if (ClientLog().Admits("pipelines opened", user, LogLimiter::kOpenLines)) {
    spdlog::info("pipeline {}: {} in {}, opened in {:.3f} s; index {} bytes, digest {}{}{}",
                 spec.name, FormatCount(loaded->dataset->size(), "record"),
                 FormatCount(static_cast<int64_t>(loaded->dataset->classes().size()), "class"),
                 (MonotonicNs() - start_ns) / 1e9, loaded->dataset->memory_bytes(),
                 loaded->dataset->digest(), loaded->dataset->notes().empty() ? "" : "; ",
                 loaded->dataset->notes());
    if (!advice.empty()) spdlog::warn("pipeline {}: {}", spec.name, advice);
  }
  if (text->bytes() > 0) loaded->text = std::make_shared<const MemoryReservation>(std::move(*text));
  return loaded;
}

absl::Status Catalogue::JoinProviders(uid_t user, LoadedPipeline* pipeline) const {
  const std::vector<std::string> ops = OwnOps(pipeline->spec);
  const bool is_given = pipeline->dataset->giver() != nullptr;
  if (is_given || !ops.empty()) pipeline->only_user = user;
  pipeline->own_code = ops;
  if (is_given) {
    pipeline->own_code.push_back(pipeline->dataset->ObjectPath(0));
    pipeline->own_identity = pipeline->dataset->giver()->identity();
  }
  const CacheKind cache = pipeline->spec.cache.kind;
  if (is_given && cache != CacheKind::kAuto && cache != CacheKind::kNone) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cache: ", CacheKindName(cache),
        " has no use for format 'python': a program "
        "gives the records, and may give others in the next epoch; cure: leave `cache` "
        "out, or cache in the program"));
  }
  if (is_given && pipeline->dataset->giver()->is_in_order() &&
      pipeline->spec.sampler.shuffle != "none") {
    return absl::InvalidArgumentError(absl::StrCat(
        "sampler: {shuffle: ", pipeline->spec.sampler.shuffle,
        "}: this source is an iterable dataset, which makes its samples one after the other; cure: "
        "shuffle: none, and shuffle in the dataset"));
  }
  if (ops.empty()) return absl::OkStatus();
  if (options_.providers == nullptr)
    return absl::FailedPreconditionError("ops of users' own are not run here");
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<Providers::UserOps> own,
                      options_.providers->OpsOf(user, ops));
  // Another function makes other samples.
  if (const std::string versions = own->Versions(); !versions.empty())
    pipeline->spec.digest = Digest128(absl::StrCat(pipeline->spec.digest, versions));
  absl::StrAppend(&pipeline->own_identity, is_given ? ", " : "", own->Identity());
  pipeline->op_caller = own;
  pipeline->is_current = [own] { return own->AreCurrent(); };
  return absl::OkStatus();
}

absl::StatusOr<std::string> CacheName(const PipelineSpec& spec, const Dataset& dataset) {
  // Where the dataset lies belongs to it: digests do not look at every byte of large ones.
  FW_ASSIGN_OR_RETURN(const std::string map, DatasetKey(spec.dataset));
  Key key("cache");
  key.Add("digest", dataset.digest());
  for (const Root* root : dataset.roots()) key.Add("root", root->path());
  return key.Add("dataset", map).Add("records", dataset.size()).Name();
}

absl::Status Catalogue::OpenCache(uid_t user, LoadedPipeline* pipeline) const {
  const Cache& cache = *options_.cache;
  const CacheChoice choice =
      ChooseCache(pipeline->spec, *pipeline->dataset, *pipeline->plan, cache.memory_of_a_user(),
                  cache.no_disk().empty() ? cache.disk().limit() : 0);
  pipeline->Keep(choice.kind);
  pipeline->cache_reason = choice.reason;
  if (ClientLog().Admits("pipelines' caches", user, LogLimiter::kOpenLines)) {
    spdlog::info("pipeline {}: cache {}: {}", pipeline->spec.name,
                 std::string(CacheKindName(choice.kind)), choice.reason);
  }
  FW_ASSIGN_OR_RETURN(const std::string name, CacheName(pipeline->spec, *pipeline->dataset));
  if (HasImages(*pipeline->dataset))
    pipeline->seek_indexes = options_.cache->SeekIndexesOf(name, user);
  if (choice.kind == CacheKind::kNone) return absl::OkStatus();
  Cache::Request request;
  request.dataset = name;
  request.form = pipeline->kept.name;
  request.records = pipeline->dataset->size();
  request.memory_bytes = pipeline->spec.cache.memory_bytes;
  request.disk_bytes = pipeline->spec.cache.disk_bytes;
  request.user = user;
  FW_ASSIGN_OR_RETURN(pipeline->cache, options_.cache->Get(request, ShareOf(user)));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Dataset>> Catalogue::OpenShared(
    uid_t user, const PipelineSpec& spec, uint64_t reload,
    const std::shared_ptr<const Roots>& roots, const Cancelled& given_up) {
  FW_ASSIGN_OR_RETURN(const std::string map, DatasetKey(spec.dataset));
  Key key = Key("opened").Add("reload", reload).Add("dataset", map);
  if (IsOfUser(spec.dataset)) key.Add("user", static_cast<int64_t>(user));
  // This caller may leave before the work ends: nothing of it is held by reference.
  auto make = [this, user, spec, roots](
                  const Cancelled& nobody_waits) -> absl::StatusOr<std::shared_ptr<const Dataset>> {
    DatasetOptions options;
    options.roots = roots;
    options.state_dir = options_.state_dir;
    options.budget = ShareOf(user);
    options.staging = options_.staging;
    options.offered = options_.providers;
    options.user = user;
    options.progress = LogProgress(spec.name, user);
    options.given_up = nobody_waits;
    absl::StatusOr<std::shared_ptr<const Dataset>> opened = nullptr;
    FW_RETURN_IF_ERROR(RetryTransient(options_.retry_for_ns, [&] {
      if (nobody_waits()) return absl::CancelledError("the dataset is no longer asked for");
      opened = OpenDataset(spec.dataset, options);
      return opened.status();
    }));
    return opened;
  };
  return datasets_.Get(user, key.Name(), make, given_up, IsCurrent);
}

bool Catalogue::MakeRoomFor(uid_t user, const absl::Status& refusal, bool all) {
  if (!absl::IsResourceExhausted(refusal)) return false;
  pipelines_.Tidy(user);
  datasets_.Tidy(user);
  const std::optional<RefusedMemory> refused = RefusedMemoryOf(refusal);
  if (!refused) {  // of the kernel's: its memory, or descriptors
    while (!all && DropOne(user)) {
    }
    return !all;
  }
  const std::shared_ptr<MemoryBudget> share = ShareOf(user);
  if (share == nullptr || refused->bytes > share->limit_bytes()) return false;
  const auto fits = [&] { return !all && refused->bytes <= share->free_bytes(); };
  bool is_more = fits();
  if (refused->by_share) {  // of which caches in memory are no part
    while (!fits() && (DropPipeline(user) || CloseCache(user, /*on_disk=*/true))) is_more = true;
    return is_more;
  }
  while (!fits() && DropOne(user)) is_more = true;
  // Where the share is short as well, others' would be of no help.
  if (share != options_.shares->whole() && refused->bytes > share->own_free_bytes()) return is_more;
  while (!fits() && DropOne(std::nullopt)) is_more = true;
  return is_more;
}

bool Catalogue::CloseCache(std::optional<uid_t> only, bool on_disk) {
  return options_.cache != nullptr && options_.cache->CloseIdle(only, on_disk);
}

bool Catalogue::DropPipeline(std::optional<uid_t> only) {
  std::shared_ptr<const LoadedPipeline> dropped;  // destroyed without the lock
  MutexLock lock(&mu_);
  auto oldest = lingering_.end();
  for (auto it = lingering_.begin(); it != lingering_.end(); ++it) {
    if (it->pipeline.use_count() > 1 || it->user != only.value_or(it->user)) continue;
    if (oldest == lingering_.end() || it->last_used_ns < oldest->last_used_ns) oldest = it;
  }
  if (oldest == lingering_.end()) return false;
  dropped = std::move(oldest->pipeline);
  lingering_.erase(oldest);
  return true;
}

void Catalogue::DropWithoutDisk() {
  std::vector<Lingering> dropped;  // destroyed without the lock
  MutexLock lock(&mu_);
  const int64_t opened_before_ns = MonotonicNs() - options_.disk_retry_ns;
  const auto lost =
      std::stable_partition(lingering_.begin(), lingering_.end(), [&](const Lingering& entry) {
        const std::shared_ptr<RecordCache>& cache = entry.pipeline->cache;
        return entry.pipeline.use_count() > 1 || entry.opened_ns > opened_before_ns ||
               cache == nullptr || !cache->has_lost_disk();
      });
  dropped.assign(std::make_move_iterator(lost), std::make_move_iterator(lingering_.end()));
  lingering_.erase(lost, lingering_.end());
}

std::shared_ptr<Mutex> Catalogue::MakingOpsOf(uid_t user) {
  MutexLock lock(&mu_);
  std::shared_ptr<Mutex> making = making_ops_[user].lock();
  if (making != nullptr) return making;
  making = std::make_shared<Mutex>();
  making_ops_[user] = making;
  for (auto it = making_ops_.begin(); it != making_ops_.end();)
    it = it->second.expired() ? making_ops_.erase(it) : std::next(it);
  return making;
}

void Catalogue::DropIdle(double idle_seconds) {
  pipelines_.Tidy();
  datasets_.Tidy();
  std::vector<Lingering> dropped;  // destroyed without the lock
  MutexLock lock(&mu_);
  int64_t now_ns = MonotonicNs();
  for (size_t i = 0; i < lingering_.size();) {
    Lingering& entry = lingering_[i];
    if (entry.pipeline.use_count() > 1) entry.last_used_ns = now_ns;  // somebody has it
    if (static_cast<double>(now_ns - entry.last_used_ns) / 1e9 < idle_seconds ||
        entry.pipeline.use_count() > 1) {
      ++i;
      continue;
    }
    dropped.push_back(std::move(entry));
    lingering_.erase(lingering_.begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace feedwater::server
