// The `feedwater` command line: one file a command. This folder is a composition root: commands
// that ask a daemon use the client's control channel, commands that need no daemon use the server's
// floors in this process.
//
// A command's callback returns absl::Status; Finish turns it into the exit status: 0 done, 1 it
// failed, 2 wrong usage or invalid input. Text goes to stdout for people; with --json one document
// and nothing else.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/control_channel.h"
#include "server/base/registry.h"

namespace feedwater::cli {

// What every command shares.
struct Context {
  std::string address;  // --address, or ""
  bool json = false;    // --json
  int exit_status = 0;

  // A stub for the daemon at `address`, or at the default place. Unavailable with what was tried.
  absl::StatusOr<std::unique_ptr<v1::Control::Stub>> Control() const;
  // Prints the error on stderr (as {"error": {...}} on stdout with --json) and sets exit_status.
  void Finish(const absl::Status& ended);
};

// A subcommand with examples below its help. `run` is called when it was chosen.
CLI::App* AddCommand(CLI::App& app, Context& context, const std::string& name,
                     const std::string& summary, const std::string& examples,
                     std::function<absl::Status()> run);

// A command as its file registers it; `feedwater --help` lists them by group.
struct CommandEntry {
  static constexpr const char* kKind = "command";
  static constexpr const char* kPipelines = "Pipelines and datasets";
  static constexpr const char* kDaemons = "Daemons and hosts";
  static constexpr const char* kThisProgram = "This program";
  static constexpr const char* kForScripts = "";  // not listed
  std::string group;
  void (*add)(CLI::App& app, Context& context);
};

// Whether stdout is a terminal that takes colours (NO_COLOR unset).
bool UseColor();
std::string Bold(const std::string& text);  // plain text when stdout takes no colours

}  // namespace feedwater::cli
