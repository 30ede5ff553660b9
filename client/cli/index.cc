// feedwater index: builds the indexes of datasets ahead of time, so that the first trainer does not
// wait for them.
#include <filesystem>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "client/cli/every_record.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/progress.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/no_throw.h"
#include "server/base/units.h"
#include "server/cache/seek_index_store.h"
#include "server/pipeline/cache_choice.h"
#include "server/service/catalogue.h"
#include "server/source/saved_indexes.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;

struct Indexed {
  std::string pipeline;
  LocalPipeline local;
  bool built = false;  // else the saved one was good
  double seconds = 0;
  server::SeekIndexStore::Counts seek;  // after --seek
};

// The seek index of every JPEG, where the daemon looks for them.
absl::Status IndexSeek(Indexed* indexed) {
  const LocalPipeline& local = indexed->local;
  if (!server::HasImages(local.dataset())) return absl::OkStatus();
  if (local.settings.seek_index_bytes <= 0) {
    return absl::FailedPreconditionError(
        "cache.seek_indexes of the configuration is 0: the daemon would not use them");
  }
  server::SeekIndexStore::Options options;
  FW_ASSIGN_OR_RETURN(const std::string name,
                      server::CacheName(local.loaded->spec, local.dataset()));
  options.file = server::SeekIndexFile(local.settings.config.state_dir, name);
  options.quota = std::make_shared<server::ByteQuota>(local.settings.seek_index_bytes);
  server::SeekIndexStore store(options);
  store.WaitUntilRead();

  struct Room {
    std::unique_ptr<server::SampleMaker> maker;
    server::Record record;
  };
  EveryRecord every;
  every.what = "seek index";
  every.make_look = [&]() -> absl::StatusOr<EveryRecord::Look> {
    auto room = std::make_shared<Room>();
    room->maker = local.NewMaker(local.loaded->plan,
                                 server::SetupOf(local.loaded->spec, local.dataset()), &store);
    return [&local, room](const server::RecordBytes& bytes) {
      absl::Status status = bytes.status();
      if (status.ok()) {
        status = server::NoThrow(
            [&] { return local.dataset().Parse(bytes.record(), bytes.extents(), &room->record); });
      }
      if (status.ok()) status = room->maker->MakeSeekIndexes(room->record);
      if (server::TellsOfTheMachine(status, bytes)) {
        return server::Annotate(status, absl::StrCat("record ", bytes.record()));
      }
      return absl::OkStatus();  // of a bad record, too: `feedwater verify` says why
    };
  };
  FW_RETURN_IF_ERROR(every.Run(local));
  indexed->seek = store.counts();
  if (indexed->seek.refused > 0) {
    std::cerr << "feedwater: " << indexed->seek.refused
              << " images found no room in cache.seek_indexes\n";
  }
  return store.Save();
}

absl::StatusOr<Indexed> Index(const std::string& pipeline, const ConfigChoice& config, bool force,
                              bool seek) {
  Indexed result;
  Progress progress("index", "records");
  LocalOptions options;
  options.config = config;
  options.rebuild = force;
  options.reads_images = seek;
  options.must_save_index = true;
  options.progress = [&](int64_t done, int64_t total) {
    result.built = true;
    progress.Update(done, total);
  };
  const int64_t start_ns = server::MonotonicNs();
  FW_ASSIGN_OR_RETURN(result.local, OpenLocalPipeline(pipeline, options));
  result.seconds = static_cast<double>(server::MonotonicNs() - start_ns) * 1e-9;
  result.pipeline = result.local.loaded->spec.name;
  if (seek) FW_RETURN_IF_ERROR(IndexSeek(&result));
  return result;
}

json Document(const Indexed& indexed) {
  const server::Dataset& dataset = indexed.local.dataset();
  return {{"pipeline", indexed.pipeline},
          {"state", indexed.built ? "built" : "fresh"},
          {"records", dataset.size()},
          {"classes", dataset.classes().size()},
          {"digest", dataset.digest()},
          {"index_bytes", dataset.memory_bytes()},
          {"notes", dataset.notes()},
          {"seconds", indexed.seconds},
          {"state_dir", indexed.local.settings.config.state_dir},
          {"seek_indexes", indexed.seek.images}};
}

void Print(const Indexed& indexed) {
  const server::Dataset& dataset = indexed.local.dataset();
  std::cout << Bold(server::Escaped(indexed.pipeline)) << ": "
            << (indexed.built ? "built" : "fresh already") << ", "
            << server::FormatCount(dataset.size(), "record") << ", "
            << server::FormatCount(static_cast<int64_t>(dataset.classes().size()), "class")
            << ", index of " << server::FormatBytes(dataset.memory_bytes()) << ", digest "
            << dataset.digest() << ", in " << server::FormatSeconds(indexed.seconds) << ", for "
            << server::Escaped(indexed.local.settings.config.state_dir) << "\n";
  if (indexed.seek.images > 0) {
    std::cout << "  seek indexes of " << server::FormatCount(indexed.seek.images, "JPEG") << ", "
              << server::FormatBytes(indexed.seek.bytes) << " of memory\n";
  }
  if (!dataset.notes().empty()) std::cout << "  " << server::Escaped(dataset.notes()) << "\n";
}

absl::Status IndexAll(const Context& context, std::vector<std::string> pipelines, bool all,
                      const std::string& given, const std::string& state_dir, bool force,
                      bool seek) {
  const ConfigChoice config{given, context.address, state_dir};
  if (all) {
    FW_ASSIGN_OR_RETURN(const ConfigSource source, FindConfig(config));
    FW_ASSIGN_OR_RETURN(const server::Settings settings, ReadConfig(source));
    for (const auto& [name, file] :
         server::FindPipelineFiles({settings.config.pipelines, settings.file}))
      pipelines.push_back(name);
  }
  if (pipelines.empty()) return absl::InvalidArgumentError("name one or more pipelines, or --all");
  json documents = json::array();
  std::vector<std::string> unsaved;
  for (const std::string& pipeline : pipelines) {
    FW_ASSIGN_OR_RETURN(const Indexed indexed, Index(pipeline, config, force, seek));
    if (absl::StrContains(indexed.local.dataset().notes(), server::kIndexNotSaved))
      unsaved.push_back(server::Escaped(pipeline));
    if (context.json) {
      documents.push_back(Document(indexed));
    } else {
      Print(indexed);
    }
  }
  if (context.json) PrintJson(json{{"indexes", documents}});
  if (unsaved.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("not saved, for the reason above: ", absl::StrJoin(unsaved, ", "),
                   "; cure: run this again when that time is over"));
}

void AddIndex(CLI::App& app, Context& context) {
  static std::vector<std::string> pipelines;
  static std::string config, state_dir;
  static bool all = false, force = false, seek = false;
  CLI::App* command = AddCommand(
      app, context, "index",
      "build or refresh the saved indexes of pipelines' datasets ahead of time; needs no daemon",
      "  feedwater index imagenet-train --config feedwater.yaml\n"
      "  feedwater index --all\n"
      "  feedwater index imagenet-train --force      # even when the saved one looks good\n"
      "  feedwater index imagenet-train --seek       # also where in each JPEG decoding can begin\n"
      "  runuser -u feedwater -- feedwater index --all --state-dir /var/lib/feedwater/0\n"
      "The daemon finds them below its state_dir, also while it runs. Run it as the daemon's "
      "user.\nA state_dir that is not there yet is made.",
      [&context] { return IndexAll(context, pipelines, all, config, state_dir, force, seek); });
  command->add_option("pipelines", pipelines, "names that the configuration knows, or .yaml files")
      ->type_name("PIPELINE");
  command->add_flag("--all", all, "all pipelines of the configuration");
  command->add_option("--config", config, kConfigHelp)->type_name("FILE");
  command
      ->add_option("--state-dir", state_dir,
                   "the daemon's, where its command line says it and no daemon runs yet; default: "
                   "that of the configuration")
      ->type_name("DIR");
  command->add_flag("--force", force, "rebuild even when the saved index is up to date");
  command->add_flag(
      "--seek", seek,
      "also build the seek indexes of JPEGs, which make the first epoch as fast as those "
      "after it; reads every record");
}

const server::Registrar<CommandEntry> kRegistrar("index", {CommandEntry::kPipelines, AddIndex});

}  // namespace

}  // namespace feedwater::cli
