// feedwater: asks a running feedwaterd, and works on pipelines without one.
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "client/cli/help_format.h"
#include "feedwater/client.h"
#include "server/base/logging.h"
#include "server/base/printed.h"
#include "server/base/registry.h"
#include "server/base/yaml.h"

namespace {

// Commands that others have, and what does it here.
const std::map<std::string, std::string>& UsualWords() {
  static const auto* words = new std::map<std::string, std::string>{
      {"top", "status --watch"}, {"watch", "status --watch"}, {"ps", "status --all"},
      {"version", "--version"},  {"help", "--help"},          {"check", "validate"}};
  return *words;
}

// For a command line that failed over a word that nothing took: which, and what may have been
// meant. "" where that is not the reason.
std::string AboutUnknownWord(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr &&
      dynamic_cast<const CLI::RequiredError*>(&error) == nullptr) {
    return "";
  }
  const std::vector<std::string> left = app.remaining(/*recurse=*/true);
  if (left.empty()) return "";
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const bool is_option = left[0][0] == '-';
  if (!is_option && !chosen.empty()) return "";
  const std::string word = is_option ? left[0].substr(0, left[0].find('=')) : left[0];
  std::vector<std::string> known;
  if (is_option) {
    std::vector<const CLI::App*> owners(chosen.begin(), chosen.end());
    owners.push_back(&app);
    for (const CLI::App* owner : owners) {
      for (const CLI::Option* option : owner->get_options()) {
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      }
    }
  } else {
    for (const CLI::App* command : app.get_subcommands(nullptr))
      known.push_back(command->get_name());
  }
  std::string meant = feedwater::server::DidYouMean(word, known);
  if (const auto usual = UsualWords().find(word); !is_option && usual != UsualWords().end())
    meant = absl::StrCat(": it is `feedwater ", usual->second, "`");
  return absl::StrCat("feedwater", chosen.empty() ? "" : " " + chosen[0]->get_name(), ": unknown ",
                      is_option ? "option" : "command", " '", feedwater::server::Printable(word),
                      "'", meant);
}

// What a command needs and was not given, each with what it is. "" where that is not the reason.
std::string AboutMissing(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr || chosen.empty()) return "";
  std::vector<std::string> missing;
  for (const CLI::Option* option : std::as_const(*chosen[0]).get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    missing.push_back(absl::StrCat("'", option->get_name(/*positional=*/option->get_positional()),
                                   "' (", option->get_description(), ")"));
  }
  if (missing.empty()) return "";
  return absl::StrCat("feedwater ", chosen[0]->get_name(), " needs ",
                      absl::StrJoin(missing, " and "));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Looks into a running feedwaterd, and works on pipelines without one.\n\n"
      "A daemon is found by its runtime_dir: --address, else $FEEDWATER_ADDRESS, else the instance "
      "of this NUMA node.\n"
      "Exit status: 0 done, 1 it failed, 2 wrong usage or invalid input.");
  app.name("feedwater");
  app.formatter(std::make_shared<feedwater::cli::HelpFormat>());  // of the commands, too
  app.set_version_flag("--version", std::string("feedwater ") + feedwater::kClientVersion);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  feedwater validate pipelines/imagenet-train.yaml\n"
      "  feedwater preview imagenet-train -o sheet.png\n"
      "  feedwater describe op random_resized_crop\n"
      "  feedwater status --json\n"
      "  feedwater COMMAND --help");

  // The server's floors log what they do; here only what a user should know, and never on stdout.
  (void)feedwater::server::SetUpLogging(feedwater::server::LogFormat::kText, "warning");

  feedwater::cli::Context context;
  app.add_option("--address", context.address, "runtime_dir of the daemon")->type_name("DIR");
  app.add_flag("--json", context.json, "print one JSON document on stdout and nothing else");
  using feedwater::cli::CommandEntry;
  const auto& commands = feedwater::server::Registry<CommandEntry>::Get();
  for (const std::string group : {CommandEntry::kPipelines, CommandEntry::kDaemons,
                                  CommandEntry::kThisProgram, CommandEntry::kForScripts}) {
    for (const std::string& name : commands.Names()) {
      const CommandEntry& entry = *commands.Find(name);
      if (entry.group != group) continue;
      entry.add(app, context);
      app.get_subcommand(name)->group(group);
    }
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::string about = AboutUnknownWord(app, error);
    if (about.empty()) about = AboutMissing(app, error);
    if (!about.empty()) {
      std::cerr << about << "\nRun with --help for more information.\n";
      return 2;
    }
    return feedwater::server::ExitStatusOfPrinting("feedwater", app.exit(error) == 0 ? 0 : 2);
  }
  return feedwater::server::ExitStatusOfPrinting("feedwater", context.exit_status);
}
