#include "client/cli/command.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/json_text.h"
#include "client/cpp/address.h"
#include "server/base/escape.h"

namespace feedwater::cli {
namespace {

// Wrong input rather than a failure of the machine: what a caller can mend by typing something
// else.
bool IsInvalidInput(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsOutOfRange(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<v1::Control::Stub>> Context::Control() const {
  absl::StatusOr<std::string> folder = FindAddress(address);
  if (!folder.ok()) return folder.status();
  return ConnectControl(*folder);
}

void Context::Finish(const absl::Status& ended) {
  if (ended.ok()) return;
  const absl::StatusOr<std::string> folder = FindAddress(address);
  const absl::Status status = folder.ok() ? ExplainNoAnswer(ended, *folder) : ended;
  if (exit_status == 0) exit_status = IsInvalidInput(status) ? 2 : 1;
  const std::string message(status.message());
  if (json) {
    PrintJson(nlohmann::json{
        {"error", {{"code", absl::StatusCodeToString(status.code())}, {"message", message}}}});
  } else {
    std::cerr << "feedwater: " << server::EscapedLines(message) << "\n";
  }
}

CLI::App* AddCommand(CLI::App& app, Context& context, const std::string& name,
                     const std::string& summary, const std::string& examples,
                     std::function<absl::Status()> run) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->footer("Examples:\n" + examples);
  command->fallthrough();  // --address and --json may stand after the command, too
  command->callback([&context, run = std::move(run)] { context.Finish(run()); });
  return command;
}

bool UseColor() {
  static const bool use = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  return use;
}

std::string Bold(const std::string& text) {
  return UseColor() ? absl::StrCat("\033[1m", text, "\033[0m") : text;
}

}  // namespace feedwater::cli
