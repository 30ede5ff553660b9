#include "client/cli/conversion.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/cli/interrupt.h"
#include "client/cli/json_text.h"
#include "client/cli/progress.h"
#include "client/cli/source_files.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/source/contents.h"
#include "server/source/digest.h"

namespace feedwater::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr int64_t kLeastShardBytes = 64 << 10;
constexpr int64_t kMostShardBytes = int64_t{1} << 40;
constexpr int64_t kRecordsForText = 16;  // that decide whether bytes are a text
constexpr int64_t kLayoutVersion = 1;  // of what the same records become; another one is not mixed

// Where a file of the dataset lies as the kernel knows it; "" where it is not there any more.
std::string CanonicalPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::canonical(path, error);
  return error ? "" : found.string();
}

bool IsAtOrBelow(absl::string_view path, absl::string_view folder) {
  if (folder == "/") return true;
  return absl::ConsumePrefix(&path, folder) && (path.empty() || path[0] == '/');
}

}  // namespace

void AddConversionOptions(CLI::App* command, ConversionArguments* arguments) {
  command
      ->add_option("pipeline", arguments->pipeline, "a .yaml file, or a name of the configuration")
      ->required()
      ->type_name("PIPELINE");
  command
      ->add_option("out,-o,--out", arguments->out,
                   "the folder for the shards; made if it is not there")
      ->required()
      ->type_name("DIR");
  command->add_option("--config", arguments->config, kConfigHelp)->type_name("FILE");
  command
      ->add_option("--shard-bytes", arguments->shard_bytes,
                   "a shard is closed before it would be larger; a record is never divided")
      ->capture_default_str()
      ->type_name("SIZE");
  command
      ->add_option("--jobs", arguments->jobs,
                   "threads; default: the configuration's cpus. Nothing that is written "
                   "depends on it")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--allow-bad", arguments->allow_bad, "exit status 0 with at most N bad records")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  command->add_flag("--verify", arguments->verify,
                    "then read all shards back and compare every record with its source, as "
                    "`feedwater verify PIPELINE --against OUT` does");
}

Conversion::Conversion(const Context& context, std::string command,
                       const ConversionArguments& arguments)
    : context_(context),
      command_(std::move(command)),
      arguments_(arguments),
      start_ns_(server::MonotonicNs()) {}

absl::StatusOr<int64_t> Conversion::ShardBytes() const {
  const absl::StatusOr<int64_t> bytes = server::ParseBytes(arguments_.shard_bytes);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--shard-bytes: ", bytes.status().message()));
  }
  if (*bytes >= kLeastShardBytes && *bytes <= kMostShardBytes) return *bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("--shard-bytes must be ", server::FormatBytes(kLeastShardBytes), " to ",
                   server::FormatBytes(kMostShardBytes), ", not ", arguments_.shard_bytes));
}

absl::Status Conversion::Open() {
  Progress progress("index", "records");
  LocalOptions options;
  options.config = {arguments_.config, context_.address};
  options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
  FW_ASSIGN_OR_RETURN(local_, OpenLocalPipeline(arguments_.pipeline, options));
  progress.Finish();
  FW_RETURN_IF_ERROR(local_.CheckEngine());
  const server::Dataset& dataset = local_.dataset();
  if (dataset.mix() != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        arguments_.pipeline, ": ", command_,
        " writes the records of one dataset, and this is a mix, whose shares no shards "
        "hold. Cure: ",
        command_,
        " each source, with a pipeline that has it as its `dataset:`, and mix the results"));
  }
  for (const std::string& name : dataset.classes()) {
    if (absl::StrContains(name, '\n')) {
      return absl::InvalidArgumentError(
          absl::StrCat("class '", server::Printable(name),
                       "' has a line break in its name, which a list of classes cannot hold; "
                       "cure: give it another name"));
    }
  }
  FW_ASSIGN_OR_RETURN(dataset_key_, server::DatasetKey(local_.loaded->spec.dataset));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<bool>> Conversion::FindTexts() const {
  const server::Dataset& dataset = local_.dataset();
  std::vector<bool> is_text(dataset.fields().size(), true);
  FW_ASSIGN_OR_RETURN(RecordLoader loader, RecordLoader::Create(local_));
  for (int64_t i = 0; i < std::min(dataset.size(), kRecordsForText); ++i) {
    const absl::StatusOr<const server::Record*> record = loader.Load(i);
    if (!record.ok()) continue;  // told when its turn comes
    for (size_t f = 0; f < is_text.size(); ++f) {
      const server::Tensor& value = (*record)->fields[f];
      if (is_text[f]) is_text[f] = IsPlainText({value.data, value.bytes()});
    }
  }
  return is_text;
}

// Everything that decides a byte of the shards.
json Conversion::MadeFrom() const {
  const server::Dataset& dataset = local_.dataset();
  server::Digest section;
  section.Add(dataset_key_);
  server::Digest classes;
  for (const std::string& name : dataset.classes()) classes.Add(name);
  json made_from = {{"pipeline", server::ToUtf8(local_.loaded->spec.name)},
                    {"dataset_digest", dataset.digest()},
                    {"dataset_section", section.Hex()},
                    {"records", dataset.size()},
                    {"classes", classes.Hex()},
                    {"fields", work_.members->Describe()},
                    {"layout", kLayoutVersion},
                    {"shard-bytes", work_.maker.shard_bytes}};
  made_from.update(work_.made_from);
  return made_from;
}

// What writes into the dataset changes it, and whoever then follows the advice to remove OUT loses
// it. So OUT is no folder that holds a part of the dataset, and none within its own.
absl::Status Conversion::CheckOutIsElsewhere() const {
  if (local_.dataset().giver() != nullptr) return absl::OkStatus();  // it has no files
  std::error_code error;
  const std::string out =
      std::filesystem::weakly_canonical(std::filesystem::absolute(arguments_.out, error), error)
          .string();
  if (error || out.empty()) return absl::OkStatus();  // told when it is made
  const auto refuse = [&](absl::string_view why, absl::string_view where) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments_.out, why, server::Printable(where), ", and what ", command_,
                     " writes, or whoever removes it later, would change the dataset. Cure: a "
                     "folder beside the dataset's"));
  };
  const server::Dataset& dataset = local_.dataset();
  const server::YamlNode* path = local_.loaded->spec.dataset.Find("path");
  const std::string own =
      CanonicalPath(absl::StrCat(dataset.root().path(), "/", path == nullptr ? "" : path->scalar));
  if (!own.empty() && IsAtOrBelow(own, out)) return refuse(" holds the dataset, ", own);
  if (!own.empty() && IsAtOrBelow(out, own)) return refuse(" lies in the dataset's folder, ", own);
  // Its files may lie elsewhere: those that records name, or that links lead to.
  std::set<std::pair<const server::Root*, std::string>> seen;
  std::string last;
  for (int64_t i = 0; i < dataset.objects(); ++i) {
    const auto object = static_cast<uint32_t>(i);
    std::string folder = dataset.ObjectPath(object);
    const size_t slash = folder.rfind('/');
    folder.resize(slash == std::string::npos ? 0 : slash);
    if (i > 0 && folder == last) continue;
    const server::Root& root = dataset.RootOf(object);
    last = folder;
    if (!seen.emplace(&root, folder).second) continue;
    const std::string holder = CanonicalPath(absl::StrCat(root.path(), "/", folder));
    if (!holder.empty() && IsAtOrBelow(holder, out))
      return refuse(" holds files of the dataset, in ", holder);
  }
  return absl::OkStatus();
}

absl::Status Conversion::OpenFolder() {
  FW_RETURN_IF_ERROR(CheckOutIsElsewhere());
  std::error_code error;
  std::filesystem::create_directories(arguments_.out, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make the folder ", arguments_.out, ": ", error.message()));
  }
  folder_ = std::filesystem::canonical(arguments_.out, error).string();
  if (error || access(folder_.c_str(), W_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("no right to write into ", arguments_.out, ": name a folder of your own"));
  }
  auto lock = server::ProcessLock::Take(folder_ + "/.convert.lock", 0666);
  if (!lock.ok()) {
    return server::Annotate(
        lock.status(), absl::StrCat("another `feedwater ", command_, "` writes into this folder"));
  }
  lock_ = *std::move(lock);
  FW_ASSIGN_OR_RETURN(place_, FindShardPlace(local_, folder_));
  std::vector<std::string> files = {kSectionFile, kClassFile};
  files.insert(files.end(), work_.more_files.begin(), work_.more_files.end());
  for (const std::string& file : files) {
    if (!std::filesystem::equivalent(local_.file, absl::StrCat(folder_, "/", file), error))
      continue;
    return absl::InvalidArgumentError(absl::StrCat(
        local_.file, " is the pipeline that is read, and ", command_, " would write its own ", file,
        " in its place. Cure: another folder than ", arguments_.out));
  }
  // A digest of every byte says all of the files, whatever their times.
  const std::string identity = server::IsReadWhole(local_.dataset())
                                   ? std::string()
                                   : local_.dataset().dependencies(0).identity;
  FW_ASSIGN_OR_RETURN(
      journal_, ShardJournal::Open(folder_, SafeFileName(local_.loaded->spec.name), MadeFrom(),
                                   identity, work_.members->fields(), files, &note_));
  return absl::OkStatus();
}

// The index of a dataset with a record a file does not know when each of them was written: those of
// whole shards are looked at again.
absl::Status Conversion::LookAtSources() {
  const WritingOrder order(local_.dataset().size(), work_.maker.shuffle);
  FW_ASSIGN_OR_RETURN(const std::string changed,
                      FindChangedSource(local_, *journal_, order, Jobs(), command_));
  if (changed.empty()) return absl::OkStatus();
  if (journal_->next_position() < local_.dataset().size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(changed, ": what is missing would be of another state. Cure: another folder, ",
                     "or rm -r ", folder_, ", and run the command again"));
  }
  absl::StrAppend(&note_, note_.empty() ? "" : "; ", changed,
                  ": the shards stay as they are, and `feedwater verify PIPELINE --against ",
                  folder_, "` compares them with what the files hold now");
  return absl::OkStatus();
}

absl::Status Conversion::Run(ConversionWork work) {
  work_ = std::move(work);
  FW_RETURN_IF_ERROR(OpenFolder());
  FW_RETURN_IF_ERROR(LookAtSources());
  kept_shards_ = static_cast<int64_t>(journal_->shards().size());
  if (!note_.empty()) std::cerr << "feedwater: " << server::Escaped(note_) << "\n";
  if (kept_shards_ > 0) {
    std::cerr << command_ << ": going on behind "
              << server::FormatCount(kept_shards_, "whole shard") << ", at record "
              << journal_->next_position() << " of " << local_.dataset().size() << "\n";
  }
  ShardMaker& maker = work_.maker;
  maker.local = &local_;
  maker.members = &*work_.members;
  maker.what = command_;
  maker.jobs = Jobs();
  maker.is_interrupted = Interrupted;  // after the record at hand
  CatchInterrupts();
  if (const absl::Status status = maker.Run(&*journal_); !status.ok()) return Explain(status);
  // Where bad records keep their places, they are in the shards, too.
  const int64_t places = maker.keeps_bad_places ? journal_->bad() : 0;
  if (journal_->records() == places) {
    return absl::DataLossError(absl::StrCat("no record of ", local_.loaded->spec.name,
                                            " could be made; see ", journal_->bad_file()));
  }
  if (const absl::Status same = local_.dataset().LookAgain(); !same.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the dataset changed while it was read: ", same.message(), ". ", CureOfChange()));
  }
  section_.emplace(local_, *work_.members, work_.fields, *journal_, place_);
  FW_RETURN_IF_ERROR(section_->Write(absl::StrCat(
      server::FormatCount(journal_->records(), "record"), " of pipeline ", local_.loaded->spec.name,
      " by `feedwater ", command_, "`. Put it into a pipeline in place of its `dataset:`.")));
  FW_ASSIGN_OR_RETURN(written_, section_->Open());
  if (!arguments_.verify) return absl::OkStatus();
  FW_ASSIGN_OR_RETURN(const std::unique_ptr<ShardComparison> comparison, CompareAll());
  compared_ = comparison->compared();
  return comparison->Result();
}

absl::StatusOr<std::unique_ptr<ShardComparison>> Conversion::CompareAll() {
  auto comparison =
      std::make_unique<ShardComparison>(local_, *section_, *journal_, work_.fields, work_.maker);
  FW_RETURN_IF_ERROR(comparison->Run(Jobs()));
  return comparison;
}

absl::StatusOr<std::unique_ptr<ShardComparison>> Conversion::Compare(ConversionWork work) {
  work_ = std::move(work);
  std::error_code error;
  folder_ = std::filesystem::canonical(arguments_.out, error).string();
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("no folder ", arguments_.out, ": ", error.message()));
  }
  FW_ASSIGN_OR_RETURN(journal_,
                      ShardJournal::OpenWritten(folder_, SafeFileName(local_.loaded->spec.name),
                                                MadeFrom(), work_.members->fields()));
  if (journal_->next_position() < local_.dataset().size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the shards in ", folder_, " hold the first ", journal_->next_position(),
                     " of ", local_.dataset().size(),
                     " records; cure: run the command that made them, which continues"));
  }
  FW_ASSIGN_OR_RETURN(place_, FindShardPlace(local_, folder_));
  section_.emplace(local_, *work_.members, work_.fields, *journal_, place_);
  FW_RETURN_IF_ERROR(section_->Load());
  return CompareAll();
}

size_t Conversion::Jobs() const {
  return arguments_.jobs > 0 ? arguments_.jobs : local_.settings.cpus.size();
}

// The shards so far are of the dataset as it was.
std::string Conversion::CureOfChange() const {
  return absl::StrCat("Cure: rm -r ", arguments_.out, ", and run the command again");
}

// What stopped the work, and how it goes on.
absl::Status Conversion::Explain(const absl::Status& status) const {
  if (absl::IsFailedPrecondition(status) && !local_.dataset().LookAgain().ok())
    return absl::FailedPreconditionError(absl::StrCat(status.message(), ". ", CureOfChange()));
  const std::string left = absl::StrCat(
      server::FormatCount(static_cast<int64_t>(journal_->shards().size()), "whole shard"), " with ",
      journal_->next_position(), " of ", local_.dataset().size(), " records in ", arguments_.out,
      "; ");
  const bool is_full = absl::StrContains(status.message(), "No space left") ||
                       absl::StrContains(status.message(), "quota exceeded");
  return absl::Status(status.code(), absl::StrCat(status.message(), ". ", left,
                                                  is_full ? "free some space, and " : "",
                                                  "the same command continues from there"));
}

void Conversion::Report(Context* context, const json& more, const std::string& use) const {
  const double seconds = static_cast<double>(server::MonotonicNs() - start_ns_) * 1e-9;
  const ShardJournal& journal = *journal_;
  const bool keeps_places = work_.maker.keeps_bad_places;
  const int64_t good = journal.records() - (keeps_places ? journal.bad() : 0);
  if (journal.bad() > arguments_.allow_bad) context->exit_status = 1;
  if (context->json) {
    json document = {{"pipeline", local_.loaded->spec.name},
                     {"records", local_.dataset().size()},
                     {"converted", good},
                     {"bad", journal.bad()},
                     {"bad_records", journal.bad() > 0 ? json(journal.bad_file()) : json()},
                     {"shards", journal.shards().size()},
                     {"kept_shards", kept_shards_},
                     {"bytes", journal.bytes()},
                     {"compared", compared_ ? json(*compared_) : json()},
                     {"dataset", section_->file()}};
    document.update(more);
    document["seconds"] = seconds;
    PrintJson(document);
    return;
  }
  std::cerr << absl::StrFormat(
      "%s: %s: %s in %s, %s, in %s%s; %s\n", command_, server::Escaped(local_.loaded->spec.name),
      server::FormatCount(good, "record"),
      server::FormatCount(static_cast<int64_t>(journal.shards().size()), "shard"),
      server::FormatBytes(journal.bytes()), server::FormatSeconds(seconds),
      compared_ ? ", all compared with their source" : "", server::Escaped(use));
  if (journal.bad() > 0) {
    std::cerr << absl::StrFormat("%s: %s %s: %s\n", command_,
                                 server::FormatCount(journal.bad(), "bad record"),
                                 keeps_places ? "kept as places that stay bad" : "left out",
                                 server::Escaped(journal.bad_file()));
  }
  if (!section_->hint().empty())
    std::cerr << command_ << ": " << server::Escaped(section_->hint()) << "\n";
}

}  // namespace feedwater::cli
