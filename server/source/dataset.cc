// OpenDataset: from the `dataset:` map to a dataset over a saved or a newly built index.
#include "server/source/dataset.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "server/base/clock.h"
#include "server/base/log_limiter.h"
#include "server/base/mutex.h"
#include "server/base/units.h"
#include "server/source/contents.h"
#include "server/source/digest.h"
#include "server/source/format.h"
#include "server/source/missing_path.h"
#include "server/source/mix.h"
#include "server/source/saved_indexes.h"
#include "server/source/staging.h"
#include "server/storage/fault.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {

std::string FieldSpec::ShapeText() const {
  if (!is_ragged()) return spec.ToString();
  return absl::StrCat(spec.ToString(), ", at most ", FormatCount(max_rows, "row"));
}

namespace {

// The floor's own sections of every index.
constexpr IndexTag kAbout = MakeIndexTag("ABOU");  // texts in the order below
constexpr IndexTag kClasses = MakeIndexTag("CLAS");
constexpr IndexTag kUnpacked = MakeIndexTag("UNPK");  // 1: some of its files were unpacked
enum About : size_t { kAboutKey, kAboutRecords, kAboutDigest, kAboutNotes, kAboutCount };

// What every format's map has.
struct CommonParams {
  std::string format, root, path;
};
const Schema<CommonParams>& CommonSchema() {
  static const Schema<CommonParams> schema =
      Schema<CommonParams>()
          .Required("format", &CommonParams::format, "How the records are stored.",
                    OneOf(Registry<FormatEntry>::Get().Names()))
          .Required("root", &CommonParams::root,
                    "Name of a root that feedwater.yaml declares; for a private daemon an absolute "
                    "path.")
          .Param("path", &CommonParams::path,
                 "Folder or file of the dataset below the root; the root itself when left out.");
  return schema;
}

struct DatasetSpec {
  CommonParams common;
  FormatEntry::Made made;
};

absl::StatusOr<DatasetSpec> ReadSpec(const YamlNode& node) {
  if (!node.is_map()) return node.Error(absl::StrCat("'dataset' takes a map, not ", node.Found()));
  const YamlNode* name = node.Find("format");
  if (name == nullptr) return CheckKeys(node, CommonSchema().params(), "dataset");
  if (!name->is_scalar())
    return name->Error(absl::StrCat("'format' must be a name, not ", name->KindName()));
  const FormatEntry* entry = Registry<FormatEntry>::Get().Find(name->scalar);
  if (entry == nullptr) return name->Error(Registry<FormatEntry>::Get().Unknown(name->scalar));

  const std::string what = absl::StrCat("format '", name->scalar, "'");
  YamlNode common = node, own = node;
  common.entries.clear();
  own.entries.clear();
  for (const auto& [key, value] : node.entries) {
    const bool is_place = key.scalar == "root" || key.scalar == "path";
    if (is_place && !entry->has_files) {
      return key.Error(absl::StrCat(what, " has no '", key.scalar,
                                    "': its records come from your program, not from files"));
    }
    (is_place || key.scalar == "format" ? common : own).entries.emplace_back(key, value);
  }
  DatasetSpec spec;
  if (entry->has_files) {
    std::vector<ParamInfo> known = CommonSchema().params();
    known.insert(known.end(), entry->params.begin(), entry->params.end());
    FW_RETURN_IF_ERROR(CheckKeys(node, known, what));
    FW_ASSIGN_OR_RETURN(spec.common, CommonSchema().Read(common, "dataset"));
    const YamlNode* path = node.Find("path");
    FW_ASSIGN_OR_RETURN(spec.common.path,
                        NormalizePath("path", spec.common.path, path != nullptr ? *path : node));
  } else {
    spec.common.format = name->scalar;
  }
  FW_ASSIGN_OR_RETURN(spec.made, entry->create(own, what));
  return spec;
}

// To be raised when the floor's own sections change, or what a digest is made of.
constexpr int64_t kIndexVersion = 6;
constexpr int kIndexTries = 3;  // while files change

// Everything that decides which index this is.
Key IndexKey(const DatasetSpec& spec, const DatasetLocation& location) {
  return Key("index")
      .Add("version", kIndexVersion)
      .Add("format", spec.common.format)
      .Add("sections", spec.made.format->sections_version())
      .Add("root", location.root->path())
      .Add("path", location.path)
      .Add("parameters", spec.made.values);
}

// One lock a key: of two threads that open the same dataset at once, the second finds the first
// one's index.
std::shared_ptr<Mutex> LockOf(const std::string& key) {
  static Mutex mu;
  static auto* locks = new absl::flat_hash_map<std::string, std::weak_ptr<Mutex>>;
  MutexLock lock(&mu);
  std::weak_ptr<Mutex>& slot = (*locks)[key];
  std::shared_ptr<Mutex> mutex = slot.lock();
  if (mutex == nullptr) {
    absl::erase_if(*locks,
                   [&](const auto& entry) { return entry.second.expired() && entry.first != key; });
    mutex = std::make_shared<Mutex>();
    (*locks)[key] = mutex;
  }
  return mutex;
}

// The name of a dataset's folder of unpacked files: the same for every format that reads them.
std::string StagedAs(const DatasetLocation& location) {
  return Key("unpacked").Add("root", location.root->path()).Add("path", location.path).Name();
}

// An index, and what is known of its files beside it.
struct Indexed {
  std::shared_ptr<const Index> index;
  std::shared_ptr<const StagedFolder> staged;  // holds the unpacked files; null: there are none
  StampDevices devices;
  int64_t unsettled_until_ns = 0;  // as IndexedParts
};

// `location` is watched by the builder.
absl::StatusOr<Indexed> BuildOnce(const DatasetSpec& spec, const DatasetLocation& location,
                                  const DatasetOptions& options, IndexBuilder& builder) {
  FW_RETURN_IF_ERROR(spec.made.format->BuildIndex(location, &builder));
  FW_RETURN_IF_ERROR(builder.TakeOwnAlone());
  if (builder.records <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(location.Describe(), " holds no records"));
  }
  FW_RETURN_IF_ERROR(builder.Progress(builder.records, builder.records));

  // What a dataset over this index says of its files tells which to look into, whatever the format.
  Contents contents;
  {
    FW_ASSIGN_OR_RETURN(const std::shared_ptr<const Index> draft,
                        builder.columns.Finish(options.budget.get()));
    IndexedParts parts;
    parts.location = location;
    parts.index = draft;
    parts.records = builder.records;
    parts.fields = spec.made.format->fields();
    parts.classes = builder.classes;
    parts.staged = builder.staged();
    FW_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> dataset,
                        spec.made.format->Open(std::move(parts)));
    FW_ASSIGN_OR_RETURN(contents, ReadContents(*dataset));
  }
  Digest digest;
  digest.Add(builder.digest);
  digest.Add(contents.digest);
  builder.stamps.insert(builder.stamps.end(), contents.stamps.begin(), contents.stamps.end());
  builder.unsettled_until_ns = std::max(builder.unsettled_until_ns, contents.unsettled_until_ns);

  TextList about, classes;
  about.Add(IndexKey(spec, location).text());
  about.Add(absl::StrCat(builder.records));
  about.Add(digest.Hex());
  about.Add(builder.notes);
  for (const std::string& name : builder.classes) classes.Add(name);
  builder.columns.Add(kUnpacked, std::vector<uint64_t>{builder.staged() != nullptr});
  builder.columns.Add(kAbout, about);
  builder.columns.Add(kClasses, classes);
  AddStamps(builder.stamps, builder.empty_folders, &builder.columns);
  Indexed indexed;
  indexed.staged = builder.staged();
  indexed.devices = StampDevices(builder.stamps, builder.empty_folders);
  indexed.unsettled_until_ns = builder.unsettled_until_ns;
  FW_ASSIGN_OR_RETURN(indexed.index, builder.columns.Finish(options.budget.get()));
  return indexed;
}

// The index, or the error, of files and folders that all were what their stamps say.
absl::StatusOr<Indexed> BuildIndex(const DatasetSpec& spec, const DatasetLocation& location,
                                   const DatasetOptions& options) {
  for (int tries = 1;; ++tries) {
    IndexBuilder builder(options, StagedAs(location));
    FW_ASSIGN_OR_RETURN(const DatasetLocation watched, builder.Watch(location));
    absl::StatusOr<Indexed> built = BuildOnce(spec, watched, options, builder);
    const std::optional<std::string> other = builder.FindUnproven();
    if (!other.has_value()) {
      return absl::IsResourceExhausted(built.status())
                 ? Annotate(built.status(), absl::StrCat("indexing ", location.Describe()))
                 : built;
    }
    if (tries == kIndexTries) {
      return FileChangedError(absl::StrCat(
          DatasetLocation{location.root, *other}.Describe(), " changed each of the ", tries,
          " times that the dataset was indexed; cure: open a new loader when nothing writes there "
          "or turns its links"));
    }
  }
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenIndex(const DatasetSpec& spec,
                                                         const DatasetLocation& location,
                                                         const std::string& file, Indexed indexed,
                                                         MemoryBudget* budget) {
  const std::shared_ptr<const Index>& index = indexed.index;
  IndexedParts parts;
  FW_ASSIGN_OR_RETURN(TextColumn about, index->Texts(kAbout));
  FW_ASSIGN_OR_RETURN(TextColumn classes, index->Texts(kClasses));
  if (about.size() != kAboutCount || !absl::SimpleAtoi(about[kAboutRecords], &parts.records) ||
      parts.records <= 0) {
    return absl::DataLossError("an index without a description");
  }
  if (about[kAboutKey] != IndexKey(spec, location).text())
    return absl::DataLossError("the index of another dataset");
  parts.digest = std::string(about[kAboutDigest]);
  parts.notes = std::string(about[kAboutNotes]);
  if (indexed.unsettled_until_ns != 0) {
    const int64_t left_ns =
        std::max<int64_t>(1, indexed.unsettled_until_ns - ClockNs(CLOCK_REALTIME));
    absl::StrAppend(&parts.notes, parts.notes.empty() ? "" : "; ", kIndexNotSaved, " for ",
                    (left_ns + 999'999'999) / 1'000'000'000,
                    " s: a large file was changed a moment ago, and may be being written still");
  }
  if (budget != nullptr) {
    // With what finds a stamp by its path (IndexedDataset::IndexedAs).
    FW_ASSIGN_OR_RETURN(const int64_t stamps, CountStamps(*index));
    auto names_bytes = stamps * static_cast<int64_t>(2 * sizeof(size_t));
    for (size_t i = 0; i < classes.size(); ++i)
      names_bytes += static_cast<int64_t>(sizeof(std::string) + classes[i].size() + 1);
    FW_ASSIGN_OR_RETURN(parts.classes_memory, budget->Reserve("indexes", names_bytes));
  }
  parts.classes = classes.ToVector();
  parts.fields = spec.made.format->fields();
  parts.location = location;
  parts.index = index;
  parts.saved_as = file;
  parts.staged = std::move(indexed.staged);
  parts.devices = std::move(indexed.devices);
  parts.unsettled_until_ns = indexed.unsettled_until_ns;
  return spec.made.format->Open(std::move(parts));
}

// Where the path itself is not there, with its place in the file and with what is there.
absl::Status WithPlace(const absl::Status& status, const DatasetLocation& location,
                       const YamlNode& node) {
  const YamlNode* const path = node.Find("path");
  if (!absl::IsNotFound(status) || path == nullptr ||
      !absl::IsNotFound(location.root->Stat(location.path).status()))
    return status;
  const bool has_cure = absl::StrContains(status.message(), "; cure: ");
  return absl::NotFoundError(
      absl::StrCat(path->Where(), ": ", status.message(), has_cure ? "" : Neighbours(location)));
}

// The saved index as a dataset. NotFound when there is none or the files have changed; DataLoss
// when it is damaged.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenSaved(const DatasetSpec& spec,
                                                         const DatasetLocation& location,
                                                         const std::string& file,
                                                         const DatasetOptions& options) {
  Indexed indexed;
  FW_ASSIGN_OR_RETURN(indexed.index, LoadIndex(file, options.budget.get()));
  FW_ASSIGN_OR_RETURN(const std::string change,
                      FindChange(*indexed.index, *location.root,
                                 {.found = &indexed.devices, .given_up = options.given_up}));
  if (!change.empty()) return absl::NotFoundError(change);
  FW_ASSIGN_OR_RETURN(const NumberColumn unpacked, indexed.index->Numbers(kUnpacked));
  std::shared_ptr<const StagedFolder> staged;
  if (unpacked.size() == 1 && unpacked[0] != 0) {
    if (options.staging == nullptr)
      return absl::NotFoundError("its files were unpacked, and here they cannot be");
    FW_ASSIGN_OR_RETURN(staged, options.staging->Open(StagedAs(location)));
    indexed.staged = staged;
  }
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset,
                      OpenIndex(spec, location, file, std::move(indexed), options.budget.get()));
  if (staged == nullptr) return dataset;
  const auto goes_on = [&options] {
    return options.given_up != nullptr && options.given_up()
               ? absl::CancelledError("nobody waits for the dataset any more")
               : absl::OkStatus();
  };
  for (uint32_t object = 0; object < dataset->objects(); ++object) {
    if (&dataset->RootOf(object) != staged->root().get()) continue;
    const std::string name = dataset->ObjectPath(object);
    FW_RETURN_IF_ERROR(staged->Hold(name, goes_on));
    const absl::StatusOr<int64_t> bytes = staged->Prove(name, goes_on);
    if (!bytes.ok() && !absl::IsNotFound(bytes.status())) return bytes.status();
    if (!bytes.ok() || *bytes != dataset->ObjectBytes(object))
      return absl::NotFoundError("what was unpacked of its files has gone, or has changed");
  }
  return dataset;
}

// The sources one after the other: each has its own index, which others may use, too.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenMix(const YamlNode& node,
                                                       const DatasetOptions& options) {
  FW_ASSIGN_OR_RETURN(const MixSpec spec, ReadMix(node));
  FW_RETURN_IF_ERROR(DescribeDataset(node).status());  // before anything is indexed
  std::vector<std::shared_ptr<const Dataset>> sources;
  int64_t records = 0;
  for (const MixSpec::Source& source : spec.sources) {
    DatasetOptions of_source = options;
    const bool is_last = sources.size() + 1 == spec.sources.size();
    if (options.progress != nullptr) {
      of_source.progress = [&](int64_t done, int64_t total) {
        options.progress(records + done, is_last && total > 0 ? records + total : 0);
      };
    }
    absl::StatusOr<std::shared_ptr<const Dataset>> opened = OpenDataset(source.dataset, of_source);
    if (!opened.ok()) {
      // What begins with its place in the file says enough.
      const bool is_placed =
          source.dataset.file != nullptr &&
          absl::StartsWith(opened.status().message(), absl::StrCat(*source.dataset.file, ":"));
      return is_placed ? opened.status() : Annotate(opened.status(), source.name);
    }
    records += (*opened)->size();
    sources.push_back(*std::move(opened));
  }
  return MixOf(spec, std::move(sources));
}

absl::StatusOr<std::optional<std::vector<FieldSpec>>> DescribeMix(const YamlNode& node) {
  FW_ASSIGN_OR_RETURN(const MixSpec spec, ReadMix(node));
  std::vector<std::optional<std::vector<FieldSpec>>> fields;
  for (const MixSpec::Source& source : spec.sources) {
    FW_ASSIGN_OR_RETURN(std::optional<std::vector<FieldSpec>> of_source,
                        DescribeDataset(source.dataset));
    fields.push_back(std::move(of_source));
  }
  return FieldsOfMix(spec, fields);
}

absl::StatusOr<std::string> MixKey(const YamlNode& node) {
  FW_ASSIGN_OR_RETURN(const MixSpec spec, ReadMix(node));
  Key key("mix");
  for (const MixSpec::Source& source : spec.sources) {
    FW_ASSIGN_OR_RETURN(const std::string of_source, DatasetKey(source.dataset));
    key.Add("source", of_source).Add("weight", source.weight);
  }
  return key.Add("stop", static_cast<int64_t>(spec.stop)).Add("samples", spec.samples).text();
}

}  // namespace

RecordPlace PlaceOf(const Dataset& dataset, int64_t record) {
  std::vector<Extent> extents;
  dataset.Extents(record, &extents);
  RecordPlace place;
  if (extents.empty()) return place;
  const Extent& naming = extents[dataset.NamingExtent(record)];
  place.path = dataset.PathText(naming.object);
  place.offset = naming.offset;
  for (const Extent& extent : extents) place.bytes += extent.length;
  return place;
}

bool IsOfUser(const YamlNode& node) {
  const YamlNode* const name = node.is_map() ? node.Find("format") : nullptr;
  const FormatEntry* const entry = name != nullptr && name->is_scalar()
                                       ? Registry<FormatEntry>::Get().Find(name->scalar)
                                       : nullptr;
  return entry != nullptr && !entry->has_files;
}

const std::vector<ParamInfo>& DatasetParams() { return CommonSchema().params(); }

absl::StatusOr<std::optional<std::vector<FieldSpec>>> DescribeDataset(const YamlNode& node) {
  if (IsMix(node)) return DescribeMix(node);
  FW_ASSIGN_OR_RETURN(DatasetSpec spec, ReadSpec(node));
  if (!spec.made.format->knows_fields()) return std::nullopt;
  return std::make_optional(spec.made.format->fields());
}

absl::StatusOr<std::string> DatasetKey(const YamlNode& node) {
  if (IsMix(node)) return MixKey(node);
  FW_ASSIGN_OR_RETURN(const DatasetSpec spec, ReadSpec(node));
  return Key("dataset")
      .Add("format", spec.common.format)
      .Add("root", spec.common.root)
      .Add("path", spec.common.path)
      .Add("parameters", spec.made.values)
      .text();
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const YamlNode& node,
                                                           const DatasetOptions& options) {
  if (IsMix(node)) return OpenMix(node, options);
  FW_ASSIGN_OR_RETURN(DatasetSpec spec, ReadSpec(node));
  if (IsOfUser(node)) return spec.made.format->OpenGiven(options);
  if (options.roots == nullptr) return absl::FailedPreconditionError("no roots are declared");
  DatasetLocation location;
  absl::StatusOr<std::shared_ptr<const Root>> root = options.roots->FindNow(spec.common.root);
  if (!root.ok()) return Annotate(root.status(), node.Find("root")->Where());
  location.root = *std::move(root);
  location.path = spec.common.path;

  const Key key = IndexKey(spec, location);
  // Each user's own: another one's opening may hang.
  const std::shared_ptr<Mutex> mutex = LockOf(absl::StrCat(options.user, " ", key.text()));
  MutexLock lock(mutex.get());
  const int64_t start_ns = MonotonicNs();
  const std::string what = location.Describe();
  const auto admits = [&options](absl::string_view kind) {
    return ClientLog().Admits(kind, options.user, LogLimiter::kOpenLines);
  };
  std::string file;
  if (!options.state_dir.empty()) {
    file = absl::StrCat(options.state_dir, "/indexes/", key.Name(), ".index");
  }
  if (!file.empty() && !options.rebuild) {
    absl::StatusOr<std::shared_ptr<const Dataset>> saved = OpenSaved(spec, location, file, options);
    if (saved.ok()) {
      TouchSavedIndex(file);
      if (admits("datasets opened")) {
        spdlog::info("dataset {}: {} from the saved index in {}", what,
                     FormatCount((*saved)->size(), "record"),
                     FormatSeconds(static_cast<double>(MonotonicNs() - start_ns) * 1e-9));
      }
      return saved;
    }
    if (absl::IsResourceExhausted(saved.status()) || absl::IsCancelled(saved.status()))
      return saved.status();
    const std::string why(saved.status().message());
    if (!absl::IsNotFound(saved.status())) {
      if (admits("saved indexes dropped"))
        spdlog::warn("dataset {}: saved index dropped: {}", what, why);
    } else if (admits("indexes begun")) {
      spdlog::info("dataset {}: building the index: {}", what, why);
    }
  }
  absl::StatusOr<Indexed> built = BuildIndex(spec, location, options);
  if (!built.ok()) return WithPlace(built.status(), location, node);
  // What is written to meanwhile may be half of what it was and half of what it becomes.
  if (!file.empty() && options.save && built->unsettled_until_ns == 0)
    SaveIndexInFolder(*built->index, file);
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset,
                      OpenIndex(spec, location, file, *std::move(built), options.budget.get()));
  if (!admits("indexes built")) return dataset;
  spdlog::info("dataset {}: {}, {}, index of {} built in {}{}{}", what,
               FormatCount(dataset->size(), "record"),
               FormatCount(static_cast<int64_t>(dataset->classes().size()), "class"),
               FormatBytes(dataset->memory_bytes()),
               FormatSeconds(static_cast<double>(MonotonicNs() - start_ns) * 1e-9),
               dataset->notes().empty() ? "" : "; ", dataset->notes());
  return dataset;
}

}  // namespace feedwater::server
