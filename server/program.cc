#include "server/program.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "feedwater/version.h"
#include "server/background.h"
#include "server/base/escape.h"
#include "server/base/logging.h"
#include "server/base/printed.h"
#include "server/daemon.h"
#include "server/decoder/decoder_host.h"
#include "server/graph/advice.h"
#include "server/lifeline.h"
#include "server/pipeline/breadcrumbs.h"
#include "server/process.h"
#include "server/service/batch_check.h"
#include "server/service/config.h"
#include "server/service/runtime_dir.h"
#include "server/service/systemd.h"

namespace feedwater::server {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitBadConfig = 2;
constexpr double kDrainSeconds = 8;
constexpr double kDrainAloneSeconds = 1.2;  // of a daemon whose last client is gone

constexpr char kExamples[] =
    "Examples:\n"
    "  feedwaterd --print-config > feedwater.yaml          a file with every key, its default and "
    "description\n"
    "  feedwaterd --config feedwater.yaml --check          check it and its pipelines\n"
    "  feedwaterd --config feedwater.yaml                  run\n"
    "  feedwaterd --config feedwater.yaml --set storage.engine=pread --set cpus=2\n"
    "Pipeline files are checked for changes whenever a loader is opened. SIGHUP reads the list of "
    "pipeline "
    "folders, roots and the access list again; SIGTERM drains and ends.";

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  bool check = false;
  bool print_config = false;
  bool attachable = false;
  std::string lifeline;
  bool background = false;
  std::string log_format = "text";
  std::string log_level = "info";
};

int Complain(const absl::Status& status, int exit_code) {
  std::cerr << EscapedLines(status.message()) << std::endl;
  return exit_code;
}

int WithWhatWasPrinted(int exit_code) { return ExitStatusOfPrinting("feedwaterd", exit_code); }

int Check(const Arguments& arguments) {
  auto settings = LoadSettings(arguments.config, arguments.overrides);
  if (!settings.ok()) return Complain(settings.status(), kExitBadConfig);
  if (absl::Status loaded = LoadPlugins(*settings); !loaded.ok())
    return Complain(loaded, kExitBadConfig);
  int exit_code = 0;
  for (const auto& [name, path] : FindPipelineFiles({settings->config.pipelines, settings->file})) {
    const auto spec = CheckPipelineFile(path, *settings->roots, CapsOf(settings->config.limits));
    const absl::Status good = spec.ok() ? CheckBatchFits(*spec, *settings) : spec.status();
    if (good.ok()) {
      std::cout << "pipeline " << Escaped(name) << ": good" << std::endl;
      for (const std::string& advice : AdviceOn(*spec))
        std::cout << "  warning: " << Escaped(advice) << std::endl;
    } else {
      exit_code = Complain(good, kExitBadConfig);
    }
  }
  if (IsolatesImages(settings->config, settings->access)) {
    const auto decoders = FindDecoders(nullptr);
    if (!decoders.ok()) exit_code = Complain(decoders.status(), kExitBadConfig);
  }
  if (exit_code == 0) std::cout << arguments.config << ": good" << std::endl;
  return exit_code;
}

void Reload(const Arguments& arguments, Daemon* daemon) {
  NotifyReloading();
  auto settings = LoadSettings(arguments.config, arguments.overrides);
  if (settings.ok()) {
    daemon->Reload(*settings);
  } else {
    spdlog::error("the configuration stays as it was: {}",
                  std::string(settings.status().message()));
  }
  NotifyReady(daemon->Summary());
}

// What a daemon with a lifeline leaves of its folder when it ends: nothing.
std::vector<std::string> FilesOf(const Arguments& arguments) {
  return {std::filesystem::absolute(arguments.lifeline).string(),
          std::filesystem::absolute(arguments.config).string()};
}

int Run(const Arguments& arguments, Background* background) {
  BlockSignals();  // before any thread
  umask(0027);
  RaiseFileLimit();
  if (!arguments.attachable) ForbidAttaching();
  NoteFaults();
  auto settings = LoadSettings(arguments.config, arguments.overrides);
  if (!settings.ok()) return Complain(settings.status(), kExitBadConfig);
  spdlog::info("feedwaterd {}, pid {}, configuration {}", kFeedwaterVersion, getpid(),
               arguments.config);
  if (absl::Status loaded = LoadPlugins(*settings); !loaded.ok())
    return Complain(loaded, kExitBadConfig);
  std::unique_ptr<Lifeline> lifeline;
  if (!arguments.lifeline.empty()) {
    auto watched = Lifeline::Watch(arguments.lifeline, [] { kill(getpid(), SIGTERM); });
    if (!watched.ok()) return Complain(watched.status(), kExitFailed);
    lifeline = *std::move(watched);
  }
  if (absl::Status room = ProbeResources(settings->cpus.size()); !room.ok())
    return Complain(room, kExitFailed);
  auto sockets = TakeActivatedSockets();
  if (!sockets.ok()) return Complain(sockets.status(), kExitFailed);
  auto daemon = Daemon::Start(*std::move(settings), *sockets);
  if (!daemon.ok()) return Complain(daemon.status(), kExitFailed);
  if (lifeline != nullptr) (*daemon)->RemoveFolderAtEnd(FilesOf(arguments));
  {
    Watchdog watchdog([&] { return (*daemon)->Healthy(); });
    NotifyReady((*daemon)->Summary());
    background->Serving();
    Signal signal = WaitForSignal();
    for (; signal.number == SIGHUP; signal = WaitForSignal()) {
      spdlog::info("SIGHUP of {}: reading {} again", signal.sender, arguments.config);
      Reload(arguments, daemon->get());
    }
    spdlog::info("{} of {}: draining", signal.number == SIGINT ? "SIGINT" : "SIGTERM",
                 signal.sender);
  }
  NotifyStopping();
  const bool is_alone = lifeline != nullptr && lifeline->is_over();
  lifeline.reset();  // nobody joins a daemon that ends
  ExitWithin(is_alone ? kDrainAloneSeconds : kDrainSeconds,
             [decoders = (*daemon)->decoders(),
              runtime_dir = (*daemon)->settings().config.runtime_dir, arguments] {
               if (decoders != nullptr) decoders->Stop();
               if (!arguments.lifeline.empty()) RemoveRuntimeDir(runtime_dir, FilesOf(arguments));
             });
  (*daemon)->Stop();
  spdlog::info("ended");
  return 0;
}

}  // namespace

int RunProgram(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("feedwaterd, the data loading daemon for training hosts");
  app.footer(kExamples);
  app.set_version_flag("--version", absl::StrCat("feedwaterd ", kFeedwaterVersion));
  app.add_option("--config", arguments.config, "The configuration, a YAML file")->type_name("FILE");
  std::string numa_node;
  app.add_option("--numa-node", numa_node, "NUMA node to serve; overrides numa_node of the file")
      ->type_name("N");
  app.add_option("--set", arguments.overrides,
                 "KEY.PATH=VALUE: overrides a key of the file; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--check", arguments.check,
               "Check the configuration, its pipelines and, with isolation, that a decoder starts, "
               "and exit: 0 good, 2 not");
  app.add_flag("--print-config", arguments.print_config,
               "Print a configuration with every key, and exit");
  app.add_option("--log-format", arguments.log_format, "text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_option("--log-level", arguments.log_level, "trace, debug, info, warning or error");
  app.add_flag("--attachable", arguments.attachable,
               "Let debuggers and profilers of this user attach");
  app.add_option(
         "--lifeline", arguments.lifeline,
         "A FIFO that every client holds open for writing: the daemon ends when the last of "
         "them is gone, and removes the FIFO, the configuration and its runtime_dir")
      ->type_name("FIFO");
  app.add_flag("--background", arguments.background,
               "Run in the background, in a session of its own; this command ends when the daemon "
               "serves, or with its exit status if it cannot");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return WithWhatWasPrinted(app.exit(error) == 0 ? 0 : kExitBadConfig);
  }
  if (arguments.print_config) {
    std::cout << SampleConfig();
    return WithWhatWasPrinted(0);
  }
  if (arguments.config.empty()) {
    std::cerr << "--config FILE is missing; `feedwaterd --print-config` shows what the file holds"
              << std::endl;
    return kExitBadConfig;
  }
  if (!numa_node.empty()) arguments.overrides.push_back(absl::StrCat("numa_node=", numa_node));
  Background background;
  if (arguments.background) {
    // Before any thread, and before anything is written.
    if (absl::Status status = background.Enter(); !status.ok())
      return Complain(status, kExitFailed);
  }
  LogFormat format = arguments.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  if (absl::Status status = SetUpLogging(format, arguments.log_level); !status.ok())
    return Complain(status, kExitBadConfig);
  return arguments.check ? WithWhatWasPrinted(Check(arguments)) : Run(arguments, &background);
}

}  // namespace feedwater::server
