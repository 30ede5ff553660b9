// feedwater convert: the records of a pipeline's dataset as tar shards, which tar and the
// webdataset library read, and the `dataset:` section that reads them as the same records.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "client/cli/convert_options.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/progress.h"
#include "client/cli/shard_journal.h"
#include "client/cli/shard_maker.h"
#include "server/base/atomic_file.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/process_lock.h"
#include "server/base/schema.h"
#include "server/base/units.h"
#include "server/source/digest.h"

namespace feedwater::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr int64_t kLeastShardBytes = 64 << 10;
constexpr int64_t kMostShardBytes = int64_t{1} << 40;
constexpr int kMaxJpegSide = 65'500;
constexpr int64_t kRecordsForText = 16;  // that decide whether bytes are a text
// More class names than these go into a file of their own.
constexpr size_t kListedClasses = 1000, kListedClassBytes = 32 << 10;
constexpr const char* kClassFile = "classes.txt";
constexpr int64_t kLayoutVersion = 1;  // of what the same records become; another one is not mixed

struct Arguments {
  std::string pipeline, out, config, shard_bytes = "256MiB", jpeg = "keep";
  std::optional<uint64_t> shuffle;
  int resize_max = 0, quality = 90;
  size_t jobs = 0;
  int64_t allow_bad = 0;
};

volatile std::sig_atomic_t interrupted = 0;

// The first signal ends the work after the record at hand, the second one the program.
void EndWithWholeShards() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

absl::StatusOr<ConvertOptions> OptionsOf(const Arguments& arguments) {
  ConvertOptions options;
  const absl::StatusOr<int64_t> bytes = server::ParseBytes(arguments.shard_bytes);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--shard-bytes: ", bytes.status().message()));
  }
  options.shard_bytes = *bytes;
  if (*bytes < kLeastShardBytes || *bytes > kMostShardBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard-bytes must be ", server::FormatBytes(kLeastShardBytes), " to ",
                     server::FormatBytes(kMostShardBytes), ", not ", arguments.shard_bytes));
  }
  options.shuffle = arguments.shuffle;
  options.resize_max = arguments.resize_max;
  options.quality = arguments.quality;
  options.makes_baseline = arguments.jpeg == "baseline";
  return options;
}

// For the files' names: what neither a shell nor `files:` takes for a pattern.
std::string SafeFileName(absl::string_view name) {
  std::string safe;
  for (const char c : name) {
    const bool is_safe = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                         c == '_' || (c == '.' && !safe.empty());
    safe.push_back(is_safe ? c : '_');
  }
  return safe.empty() ? "dataset" : safe;
}

// By field, whether the first records that can be read hold texts there.
absl::StatusOr<std::vector<bool>> FindTexts(const LocalPipeline& local) {
  const server::Dataset& dataset = local.dataset();
  std::vector<bool> is_text(dataset.fields().size(), true);
  FW_ASSIGN_OR_RETURN(RecordLoader loader, RecordLoader::Create(local));
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

class Convert {
 public:
  Convert(const Context& context, Arguments arguments)
      : context_(context), arguments_(std::move(arguments)) {}

  absl::Status Run() {
    start_ns_ = server::MonotonicNs();
    FW_ASSIGN_OR_RETURN(options_, OptionsOf(arguments_));
    FW_RETURN_IF_ERROR(Open());
    FW_RETURN_IF_ERROR(OpenFolder());
    kept_shards_ = static_cast<int64_t>(journal_->shards().size());
    if (!note_.empty()) std::cerr << "feedwater: " << server::Escaped(note_) << "\n";
    if (kept_shards_ > 0) {
      std::cerr << "convert: going on behind " << server::FormatCount(kept_shards_, "whole shard")
                << ", at record " << journal_->next_position() << " of " << local_.dataset().size()
                << "\n";
    }
    ShardMaker maker;
    maker.local = &local_;
    maker.members = &*members_;
    maker.options = options_;
    maker.jobs = arguments_.jobs > 0 ? arguments_.jobs : local_.settings.cpus.size();
    maker.is_interrupted = [] { return interrupted != 0; };
    EndWithWholeShards();
    if (const absl::Status status = maker.Run(&*journal_); !status.ok()) return Explain(status);
    if (journal_->shards().empty()) {
      return absl::DataLossError(absl::StrCat("no record of ", local_.loaded->spec.name,
                                              " could be converted; see ", journal_->bad_file()));
    }
    if (const absl::Status same = local_.dataset().LookAgain(); !same.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the dataset changed while it was converted: ", same.message(),
                       ". Cure: rm -r ", arguments_.out, ", and convert it again"));
    }
    FW_RETURN_IF_ERROR(WriteSection());
    return CheckShards();
  }

  bool is_too_bad() const { return journal_ && journal_->bad() > arguments_.allow_bad; }

  void Report() const {
    const double seconds = static_cast<double>(server::MonotonicNs() - start_ns_) * 1e-9;
    const ShardJournal& journal = *journal_;
    if (context_.json) {
      const json document = {{"pipeline", local_.loaded->spec.name},
                             {"records", local_.dataset().size()},
                             {"converted", journal.records()},
                             {"bad", journal.bad()},
                             {"bad_records", journal.bad() > 0 ? json(journal.bad_file()) : json()},
                             {"shards", journal.shards().size()},
                             {"kept_shards", kept_shards_},
                             {"bytes", journal.bytes()},
                             {"dataset", section_file()},
                             {"seconds", seconds}};
      std::cout << document.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
      return;
    }
    std::cerr << absl::StrFormat(
        "convert: %s: %s in %s, %s, in %s; read them with %s\n",
        server::Escaped(local_.loaded->spec.name), server::FormatCount(journal.records(), "record"),
        server::FormatCount(static_cast<int64_t>(journal.shards().size()), "shard"),
        server::FormatBytes(journal.bytes()), server::FormatSeconds(seconds),
        server::Escaped(section_file()));
    if (journal.bad() > 0) {
      std::cerr << absl::StrFormat("convert: %s left out: %s\n",
                                   server::FormatCount(journal.bad(), "bad record"),
                                   server::Escaped(journal.bad_file()));
    }
    if (!hint_.empty()) std::cerr << "convert: " << server::Escaped(hint_) << "\n";
  }

 private:
  absl::Status Open() {
    Progress progress("index", "records");
    LocalOptions options;
    options.config = {arguments_.config, context_.address};
    options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
    FW_ASSIGN_OR_RETURN(local_, OpenLocalPipeline(arguments_.pipeline, options));
    progress.Finish();
    const server::Dataset& dataset = local_.dataset();
    if (dataset.mix() != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          arguments_.pipeline,
          ": convert writes the records of one dataset, and this is a mix, whose shares no shards "
          "hold. Cure: convert each source, with a pipeline that has it as its `dataset:`, and mix "
          "the results"));
    }
    for (const std::string& name : dataset.classes()) {
      if (absl::StrContains(name, '\n')) {
        return absl::InvalidArgumentError(
            absl::StrCat("class '", server::Printable(name),
                         "' has a line break in its name, which a list of classes cannot hold; "
                         "cure: give it another name"));
      }
    }
    FW_ASSIGN_OR_RETURN(const std::vector<bool> is_text, FindTexts(local_));
    FW_ASSIGN_OR_RETURN(members_, RecordMembers::Plan(dataset.fields(), is_text));
    return absl::OkStatus();
  }

  // Everything that decides a byte of the shards.
  absl::StatusOr<json> MadeFrom() const {
    const server::Dataset& dataset = local_.dataset();
    const server::PipelineSpec& spec = local_.loaded->spec;
    FW_ASSIGN_OR_RETURN(const std::string key, server::DatasetKey(spec.dataset));
    server::Digest section;
    section.Add(key);
    server::Digest classes;
    for (const std::string& name : dataset.classes()) classes.Add(name);
    json made_from = {{"pipeline", server::ToUtf8(spec.name)},
                      {"dataset_digest", dataset.digest()},
                      {"dataset_section", section.Hex()},
                      {"records", dataset.size()},
                      {"classes", classes.Hex()},
                      {"fields", members_->Describe()},
                      {"layout", kLayoutVersion},
                      {"shard-bytes", options_.shard_bytes},
                      {"shuffle", options_.shuffle ? json(*options_.shuffle) : json("none")},
                      {"resize-max", options_.resize_max},
                      {"quality", options_.resize_max > 0 ? options_.quality : 0},
                      {"jpeg", options_.makes_baseline ? "baseline" : "keep"}};
    if (options_.decodes()) made_from["max_pixels"] = spec.limits.max_pixels;
    return made_from;
  }

  absl::Status OpenFolder() {
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
      return server::Annotate(lock.status(), "another `feedwater convert` writes into this folder");
    }
    lock_ = *std::move(lock);
    FW_ASSIGN_OR_RETURN(const json made_from, MadeFrom());
    FW_ASSIGN_OR_RETURN(
        journal_, ShardJournal::Open(folder_, SafeFileName(local_.loaded->spec.name), made_from,
                                     members_->fields(), &note_));
    return absl::OkStatus();
  }

  // What stopped the work, and how it goes on.
  absl::Status Explain(const absl::Status& status) const {
    const std::string left = absl::StrCat(
        server::FormatCount(static_cast<int64_t>(journal_->shards().size()), "whole shard"),
        " with ", journal_->next_position(), " of ", local_.dataset().size(), " records in ",
        arguments_.out, "; ");
    const bool is_full = absl::StrContains(status.message(), "No space left") ||
                         absl::StrContains(status.message(), "quota exceeded");
    return absl::Status(status.code(), absl::StrCat(status.message(), ". ", left,
                                                    is_full ? "free some space, and " : "",
                                                    "the same command goes on from there"));
  }

  std::string section_file() const { return folder_ + "/dataset.yaml"; }

  // Sets root and path to where the shards lie below a declared root, or below one that has to be
  // declared.
  void FindRoot() {
    size_t longest = 0;
    root_ = SafeFileName(local_.loaded->spec.name);
    path_.clear();
    hint_ = absl::StrCat("no declared root holds ", folder_, "; feedwater.yaml needs  roots: {",
                         root_, ": ", folder_, "}");
    for (const auto& [name, folder] : local_.settings.config.roots) {
      std::error_code error;
      const std::filesystem::path root = std::filesystem::canonical(std::string(folder), error);
      if (error) continue;
      const std::filesystem::path relative =
          std::filesystem::path(folder_).lexically_relative(root);
      if (relative.empty() || *relative.begin() == "..") continue;
      if (root.string().size() <= longest) continue;
      longest = root.string().size();
      root_ = name;
      path_ = relative == "." ? "" : relative.string();
      hint_.clear();
    }
  }

  // A list where it is short, else a file.
  absl::StatusOr<std::string> ClassLines() const {
    const std::vector<std::string>& classes = local_.dataset().classes();
    const std::string file = absl::StrCat(folder_, "/", kClassFile);
    size_t bytes = 0;
    bool is_listed = classes.size() <= kListedClasses;
    std::vector<std::string> words;
    for (const std::string& name : classes) {
      bytes += name.size();
      is_listed = is_listed && bytes <= kListedClassBytes &&
                  IsPlainText({reinterpret_cast<const std::byte*>(name.data()), name.size()});
      if (is_listed) words.push_back(server::ParamType<std::string>::Text(name));
    }
    if (is_listed) {
      unlink(file.c_str());  // of another time
      return classes.empty() ? "" : absl::StrCat("  classes: [", absl::StrJoin(words, ", "), "]\n");
    }
    FW_RETURN_IF_ERROR(
        server::WriteFileAtomically(file, {absl::StrJoin(classes, "\n"), "\n"}, 0666));
    return absl::StrCat("  class_file: ", kClassFile, "\n");
  }

  absl::Status WriteSection() {
    FindRoot();
    const size_t shards = journal_->shards().size();
    const std::string first = journal_->FileOf(0), last = journal_->FileOf(shards - 1);
    // NAME-{000000..000012}.tar
    const size_t digits = last.size() - journal_->FileOf(0).size() + 6, tail = 4 + digits;
    const std::string number_of_last = last.substr(last.size() - tail, digits);
    const std::string files = shards == 1 ? first
                                          : absl::StrCat(first.substr(0, first.size() - 10), "{",
                                                         first.substr(first.size() - 10, 6), "..",
                                                         number_of_last, "}.tar");
    FW_ASSIGN_OR_RETURN(const std::string classes, ClassLines());
    const auto text = [](const std::string& word) {
      return server::ParamType<std::string>::Text(word);
    };
    section_ = absl::StrCat("dataset:\n  format: webdataset\n  root: ", text(root_), "\n",
                            path_.empty() ? "" : absl::StrCat("  path: ", text(path_), "\n"),
                            "  files: [", text(files), "]\n", classes, "  fields:\n",
                            members_->Section(journal_->kinds(), "    "));
    const std::string head = absl::StrCat(
        "# ", server::FormatCount(journal_->records(), "record"), " of pipeline ",
        server::Escaped(local_.loaded->spec.name),
        " by `feedwater convert`. Put this section into ", "a pipeline in the place of its own.\n",
        hint_.empty() ? "" : absl::StrCat("# ", server::Escaped(hint_), "\n"));
    return server::WriteFileAtomically(section_file(), {head, section_}, 0666);
  }

  // Opens what was written as a daemon would.
  absl::Status CheckShards() const {
    FW_ASSIGN_OR_RETURN(const server::YamlNode node, server::ParseYaml(section_, section_file()));
    const server::YamlNode* dataset = node.Find("dataset");
    const std::string root =
        path_.empty() ? folder_ : folder_.substr(0, folder_.size() - path_.size() - 1);
    server::DatasetOptions options;
    FW_ASSIGN_OR_RETURN(options.roots, server::Roots::Create({{root_, root}}));
    options.save = false;
    options.budget = local_.budget;
    FW_ASSIGN_OR_RETURN(const std::shared_ptr<const server::Dataset> written,
                        server::OpenDataset(*dataset, options));
    bool is_same = written->size() == journal_->records() &&
                   written->fields().size() == members_->fields() &&
                   written->classes() == local_.dataset().classes();
    for (size_t i = 0; is_same && i < members_->fields(); ++i) {
      const server::FieldSpec &now = written->fields()[i], &was = local_.dataset().fields()[i];
      is_same = now.name == was.name && now.spec.dtype == was.spec.dtype &&
                now.spec.shape == was.spec.shape;
    }
    if (is_same) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "the shards in ", arguments_.out, " do not hold the ", journal_->records(),
        " records that were written; cure: rm -r ", arguments_.out, ", and convert again"));
  }

  const Context& context_;
  const Arguments arguments_;
  ConvertOptions options_;
  int64_t start_ns_ = 0, kept_shards_ = 0;
  LocalPipeline local_;
  std::optional<RecordMembers> members_;
  std::string folder_, root_, path_, hint_, section_, note_;
  server::ProcessLock lock_;
  std::optional<ShardJournal> journal_;
};

absl::Status RunConvert(Context& context, const Arguments& arguments) {
  Convert convert(context, arguments);
  const absl::Status status = convert.Run();
  // A file that is wrong in the middle of a dataset is no wrong use of this command.
  if (!status.ok()) return status;
  convert.Report();
  if (convert.is_too_bad()) context.exit_status = 1;
  return absl::OkStatus();
}

void AddConvert(CLI::App& app, Context& context) {
  static Arguments arguments;
  CLI::App* command = AddCommand(
      app, context, "convert",
      "write the records of a pipeline's dataset as tar shards, and the section that reads them; "
      "needs no daemon",
      "  feedwater convert imagenet-train /data/imagenet-shards --config feedwater.yaml\n"
      "  feedwater convert ./photos.yaml shards --shuffle 7 --resize-max 512 --quality 92\n"
      "  feedwater convert ./photos.yaml shards --jpeg baseline   # progressive JPEGs, lossless\n"
      "OUT/NAME-000000.tar and so on are ordinary archives, for tar and for the webdataset "
      "library; "
      "OUT/dataset.yaml reads them as the same records: put it into the pipeline in the place of "
      "its dataset. The graph is not run. After Ctrl-C, a kill or a full disk the same command "
      "goes on behind the last whole shard.\n"
      "Records that cannot be read or parsed, and images that have to be decoded and cannot be, "
      "are left out and listed in OUT/bad_records.jsonl. All others are converted. Exit status 1 "
      "when there are more than --allow-bad of them.",
      [&context] { return RunConvert(context, arguments); });
  command
      ->add_option("pipeline", arguments.pipeline, "a .yaml file, or a name of the configuration")
      ->required()
      ->type_name("PIPELINE");
  command->add_option("out", arguments.out, "the folder for the shards; made if it is not there")
      ->required()
      ->type_name("DIR");
  command->add_option("--config", arguments.config, kConfigHelp)->type_name("FILE");
  command
      ->add_option("--shard-bytes", arguments.shard_bytes,
                   "a shard is closed before it would be larger; a record is never divided")
      ->capture_default_str()
      ->type_name("SIZE");
  command
      ->add_option("--shuffle", arguments.shuffle,
                   "write the records in the order of epoch 0 of `shuffle: full` with this seed; "
                   "default: as they are numbered")
      ->type_name("SEED");
  command
      ->add_option("--resize-max", arguments.resize_max,
                   "images whose longer side is larger are made so large, antialiased, and written "
                   "as JPEG; the others keep their bytes")
      ->check(CLI::Range(1, kMaxJpegSide))
      ->type_name("PX");
  command->add_option("--quality", arguments.quality, "of JPEGs that --resize-max writes")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  const CLI::Validator not_yet(
      [](const std::string& word) -> std::string {
        return word == "coefficients" ? "shards of coefficients cannot be written yet; `baseline` "
                                        "lets all JPEGs enter "
                                        "the coefficient cache"
                                      : "";
      },
      "");
  command
      ->add_option("--jpeg", arguments.jpeg,
                   "baseline: progressive and arithmetic-coded JPEGs become baseline ones of the "
                   "same coefficients, and so of the same pixels")
      ->capture_default_str()
      ->check(not_yet)
      ->check(CLI::IsMember({"keep", "baseline"}));
  command
      ->add_option("--jobs", arguments.jobs,
                   "threads; default: as many as the configuration's cpus. Nothing that is written "
                   "depends on it")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--allow-bad", arguments.allow_bad,
                   "exit status 0 with up to so many bad records left out")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
}

const server::Registrar<CommandEntry> kRegistrar("convert", {CommandEntry::kPipelines, AddConvert});

}  // namespace
}  // namespace feedwater::cli
