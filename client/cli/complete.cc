// feedwater complete: what the last of the words of a command line may be, for the scripts of
// `feedwater completion`. It looks at the commands and options as they are, so that nothing is
// listed twice. Quick, and silent about files that it cannot read.
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/command.h"
#include "client/cli/local_pipeline.h"
#include "server/base/registry.h"
#include "server/graph/op_schema.h"
#include "server/service/catalogue.h"
#include "server/source/format.h"

namespace feedwater::cli {
namespace {

using server::Registry;

// The words before the last one, as far as they matter.
struct Line {
  const CLI::App* command = nullptr;    // null: it is the last word that names one
  const CLI::Option* option = nullptr;  // whose value the last word is
  std::vector<std::string> arguments;   // of the command
  ConfigChoice config;
};

// Candidates for `word`, a line each: the word, a tab, what it is. `:files` and `:folders` ask the
// shell for those, too.
class Candidates {
 public:
  explicit Candidates(std::string word) : word_(std::move(word)) {}

  void Add(const std::string& candidate, const std::string& what = "") const {
    if (!absl::StartsWith(candidate, word_)) return;
    const std::string line = what.substr(0, what.find('\n'));
    std::cout << candidate << "\t" << absl::StrReplaceAll(line, {{"\t", " "}}) << "\n";
  }
  void Add(const std::vector<std::string>& candidates) const {
    for (const std::string& candidate : candidates) Add(candidate);
  }
  void AddFiles() const { std::cout << ":files\n"; }
  void AddFolders() const { std::cout << ":folders\n"; }

 private:
  const std::string word_;
};

bool IsOption(const CLI::Option& option) {
  return !option.get_snames().empty() || !option.get_lnames().empty();
}

std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// Those of the command, and the program's, which may stand after a command, too.
std::vector<const CLI::Option*> OptionsOf(const CLI::App& app, const CLI::App* command) {
  std::vector<const CLI::Option*> found;
  const auto add = [&found](const CLI::App& of, bool all) {
    for (const CLI::Option* option : of.get_options()) {
      const bool is_own = option->check_lname("help") || option->check_lname("version");
      if (IsOption(*option) && !option->get_group().empty() && (all || !is_own))
        found.push_back(option);
    }
  };
  if (command != nullptr) add(*command, /*all=*/true);
  add(app, /*all=*/command == nullptr);
  return found;
}

Line Parse(const CLI::App& app, const std::vector<std::string>& words) {
  Line line;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (absl::StartsWith(word, "-")) {
      for (const CLI::Option* option : OptionsOf(app, line.command)) {
        if (!option->check_name(word) || option->get_items_expected_max() == 0) continue;
        if (i + 2 == words.size()) {
          line.option = option;
        } else {
          if (option->check_lname("config")) line.config.given = words[i + 1];
          if (option->check_lname("address")) line.config.address = words[i + 1];
        }
        ++i;
        break;
      }
    } else if (line.command == nullptr) {
      for (const CLI::App* command : app.get_subcommands(nullptr))
        if (command->get_name() == word) line.command = command;
      if (line.command == nullptr) line.arguments.push_back(word);  // no command of ours
    } else {
      line.arguments.push_back(word);
    }
  }
  return line;
}

template <typename Entry>
void AddNames(const Candidates& candidates) {
  candidates.Add(Registry<Entry>::Get().Names());
}

// Names that the configuration knows, and files.
void AddPipelines(const Candidates& candidates, const ConfigChoice& config) {
  const absl::StatusOr<ConfigSource> source = FindConfig(config);
  if (source.ok()) {
    const absl::StatusOr<server::Settings> settings = LoadConfig(*source);
    if (settings.ok()) {
      for (const auto& [name, path] :
           server::FindPipelineFiles({settings->config.pipelines, settings->file}))
        candidates.Add(name, path);
    }
  }
  candidates.AddFiles();
}

// Kinds of values are told by the names that help shows for them.
void AddValues(const Candidates& candidates, const CLI::Option& option, const Line& line) {
  const std::string type = option.get_type_name();
  const std::string kind = line.arguments.empty() ? "" : line.arguments[0];
  if (type == "FILE") return candidates.AddFiles();
  if (type == "DIR") return candidates.AddFolders();
  if (type == "PIPELINE" || (type == "NAME" && kind == "pipeline"))
    return AddPipelines(candidates, line.config);
  if (type == "NAME" && kind == "op") return AddNames<server::OpEntry>(candidates);
  if (type == "NAME" && kind == "format") return AddNames<server::FormatEntry>(candidates);
  if (type == "KIND") {
    candidates.Add({"op", "format", "pipeline"});
    AddNames<server::OpEntry>(candidates);
    AddNames<server::FormatEntry>(candidates);
    return candidates.AddFiles();
  }
  // The words of CLI::IsMember, which stand in the type as "{a,b}".
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return;
  candidates.Add(absl::StrSplit(type.substr(open + 1, close - open - 1), ','));
}

absl::Status Complete(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string word = words.empty() ? "" : words.back();
  const Candidates candidates(word);
  const Line line = Parse(app, words);
  if (line.option != nullptr) {
    AddValues(candidates, *line.option, line);
  } else if (absl::StartsWith(word, "-")) {
    for (const CLI::Option* option : OptionsOf(app, line.command)) {
      for (const std::string& name : NamesOf(*option))
        candidates.Add(name, option->get_description());
    }
  } else if (line.command != nullptr) {
    size_t left = line.arguments.size();
    for (const CLI::Option* option : line.command->get_options()) {
      if (!option->get_positional() || left-- > 0) continue;  // `out` is `--out`, too
      AddValues(candidates, *option, line);
      break;
    }
  } else if (line.arguments.empty()) {
    for (const CLI::App* command : app.get_subcommands(nullptr)) {
      if (!command->get_group().empty())
        candidates.Add(command->get_name(), command->get_description());
    }
  }
  return absl::OkStatus();
}

void AddComplete(CLI::App& app, Context& context) {
  static std::vector<std::string> words;
  CLI::App* command = AddCommand(
      app, context, "complete", "list what the last of the words of a command line may be",
      "  feedwater complete -- preview --con", [&app] { return Complete(app, words); });
  command->add_option("words", words, "those after `feedwater`; the last one may be empty");
}

const server::Registrar<CommandEntry> kRegistrar("complete",
                                                 {CommandEntry::kForScripts, AddComplete});

}  // namespace
}  // namespace feedwater::cli
