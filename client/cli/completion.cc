// feedwater completion: scripts for shells, written from the commands and options as they are, so
// that nothing is listed twice.
#include <algorithm>
#include <iostream>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// --- what there is to complete

// What the value of an option or a positional may be.
enum class ValueKind {
  kAnything,
  kFile,
  kFolder,
  kPipeline,
  kChoice,
  kDescribeKind,
  kDescribeName
};

struct Argument {
  std::vector<std::string> names;  // "--config", "-o"; none for a positional
  std::string doc, type;
  bool takes_value = false;
  ValueKind kind = ValueKind::kAnything;
  std::vector<std::string> choices;
};

struct CommandShape {
  std::string name, doc;
  std::vector<Argument> options, positionals;  // the options include the global ones
};

struct Shape {
  std::vector<Argument> options;
  std::vector<CommandShape> commands;
};

// The words of CLI::IsMember, which stand in the type as "{a,b}".
std::vector<std::string> ChoicesIn(const std::string& type) {
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return absl::StrSplit(type.substr(open + 1, close - open - 1), ',', absl::SkipWhitespace());
}

// Kinds of values are told by the names that help shows for them.
ValueKind KindOf(const std::string& type) {
  if (type == "FILE") return ValueKind::kFile;
  if (type == "DIR") return ValueKind::kFolder;
  if (type == "PIPELINE") return ValueKind::kPipeline;
  if (type == "KIND") return ValueKind::kDescribeKind;
  if (type == "NAME") return ValueKind::kDescribeName;
  return ValueKind::kAnything;
}

Argument ShapeOf(const CLI::Option& option) {
  Argument argument;
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) argument.names.push_back("--" + name);
  argument.doc = option.get_description();
  argument.takes_value = option.get_items_expected_max() > 0;  // a flag takes none
  argument.type = option.get_type_name();
  argument.kind = KindOf(argument.type);
  argument.choices = ChoicesIn(argument.type);
  if (!argument.choices.empty()) argument.kind = ValueKind::kChoice;
  return argument;
}

void AddArguments(const CLI::App& app, std::vector<Argument>* options,
                  std::vector<Argument>* positionals) {
  for (const CLI::Option* option : app.get_options()) {
    Argument argument = ShapeOf(*option);
    const bool is_positional = argument.names.empty();
    (is_positional ? positionals : options)->push_back(std::move(argument));
  }
}

Shape ShapeOf(const CLI::App& app) {
  Shape shape;
  std::vector<Argument> none;
  AddArguments(app, &shape.options, &none);
  const auto is_shown = [](const CLI::App* command) { return !command->get_group().empty(); };
  for (const CLI::App* command : app.get_subcommands(is_shown)) {
    CommandShape made;
    made.name = command->get_name();
    made.doc = command->get_description();
    AddArguments(*command, &made.options, &made.positionals);
    for (const Argument& option : shape.options) {  // they may stand after the command, too
      const std::string& name = option.names.back();
      if (name != "--help" && name != "--version") made.options.push_back(option);
    }
    shape.commands.push_back(std::move(made));
  }
  return shape;
}

std::vector<std::string> Names(const std::vector<Argument>& options) {
  std::vector<std::string> names;
  for (const Argument& option : options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::vector<std::string> KindsAndNames() {
  std::vector<std::string> words = {"op", "format", "pipeline"};
  for (const std::string& name : Registry<server::OpEntry>::Get().Names()) words.push_back(name);
  for (const std::string& name : Registry<server::FormatEntry>::Get().Names()) {
    words.push_back(name);
  }
  return words;
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string Words(const std::vector<std::string>& words) {
  return Quoted(absl::StrJoin(words, " "));
}

// --- bash

// Statements that fill COMPREPLY.
std::string BashValues(const Argument& argument) {
  switch (argument.kind) {
    case ValueKind::kFile:
      return "_feedwater_files";
    case ValueKind::kFolder:
      return "_feedwater_folders";
    case ValueKind::kPipeline:
      return "_feedwater_pipelines";
    case ValueKind::kChoice:
      return absl::StrCat("_feedwater_words ", Words(argument.choices));
    case ValueKind::kDescribeKind:
      return absl::StrCat("_feedwater_words ", Words(KindsAndNames()), "; _feedwater_more_files");
    case ValueKind::kDescribeName:
      return absl::StrCat("case ${args[0]} in op) _feedwater_words ",
                          Words(Registry<server::OpEntry>::Get().Names()),
                          " ;; format) _feedwater_words ",
                          Words(Registry<server::FormatEntry>::Get().Names()),
                          " ;; pipeline) _feedwater_pipelines ;; esac");
    case ValueKind::kAnything:
      return ":";
  }
  return ":";
}

constexpr char kBash[] =
    R"BASH(# bash completion for feedwater: written by `feedwater completion bash`.
_feedwater_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_feedwater_files() { compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); }
_feedwater_folders() { compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); }
# Files beside the words that are there already.
_feedwater_more_files() {
  local -a files
  mapfile -t files < <(compgen -f -- "$cur")
  if ((${#files[@]})); then
    compopt -o filenames
    COMPREPLY+=("${files[@]}")
  fi
}
# Names that the configuration knows, and files.
_feedwater_pipelines() {
  local -a known=(feedwater completion pipelines)
  [[ -n $config ]] && known+=(--config "$config")
  _feedwater_words "$("${known[@]}" 2> /dev/null)"
  _feedwater_more_files
}
_feedwater() {
  local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command='' config='' word i
  local -a args=()
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
      @WITH_VALUE@)
        ((i++))
        [[ $word == --config ]] && config=${COMP_WORDS[i]}
        ;;
      -*) ;;
      *) if [[ -z $command ]]; then command=$word; else args+=("$word"); fi ;;
    esac
  done
  case $command:$previous in
@VALUES@  esac
  if [[ $cur == -* ]]; then
    case $command in
@OPTIONS@    esac
    return
  fi
  case $command:${#args[@]} in
    :0) _feedwater_words @COMMANDS@ ;;
@POSITIONALS@  esac
}
complete -F _feedwater feedwater
)BASH";

std::string BashScript(const Shape& shape) {
  std::set<std::string> with_value;
  std::vector<std::string> commands;
  std::string values, options, positionals;
  const auto add_options = [&](const std::string& command, const std::vector<Argument>& list) {
    absl::StrAppend(&options, "      ", command.empty() ? "''" : command, ") _feedwater_words ",
                    Words(Names(list)), " ;;\n");
    for (const Argument& option : list) {
      if (!option.takes_value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        with_value.insert(name);
        patterns.push_back(absl::StrCat(command, ":", name));
      }
      absl::StrAppend(&values, "    ", absl::StrJoin(patterns, " | "), ") ", BashValues(option),
                      "; return ;;\n");
    }
  };
  add_options("", shape.options);
  for (const CommandShape& command : shape.commands) {
    commands.push_back(command.name);
    add_options(command.name, command.options);
    for (size_t i = 0; i < command.positionals.size(); ++i) {
      absl::StrAppend(&positionals, "    ", command.name, ":", i, ") ",
                      BashValues(command.positionals[i]), " ;;\n");
    }
  }
  return absl::StrReplaceAll(kBash, {{"@WITH_VALUE@", absl::StrJoin(with_value, " | ")},
                                     {"@VALUES@", values},
                                     {"@OPTIONS@", options},
                                     {"@COMMANDS@", Words(commands)},
                                     {"@POSITIONALS@", positionals}});
}

// --- zsh

// The action of an _arguments specification.
std::string ZshValues(const Argument& argument) {
  switch (argument.kind) {
    case ValueKind::kFile:
      return "_files";
    case ValueKind::kFolder:
      return "_files -/";
    case ValueKind::kPipeline:
      return "_feedwater_pipelines";
    case ValueKind::kChoice:
      return absl::StrCat("(", absl::StrJoin(argument.choices, " "), ")");
    case ValueKind::kDescribeKind:
      return absl::StrCat("(", absl::StrJoin(KindsAndNames(), " "), ")");
    case ValueKind::kDescribeName:
      return "_feedwater_described";
    case ValueKind::kAnything:
      return " ";
  }
  return " ";
}

std::string ZshEscape(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

// What stands above the candidates: "file", "int in [1 - 50]".
std::string ZshMessage(const Argument& option) {
  return option.kind == ValueKind::kChoice ? "one of" : absl::AsciiStrToLower(option.type);
}

std::string ZshOption(const Argument& option) {
  std::string specifications;
  for (const std::string& name : option.names) {
    std::string text = absl::StrCat(name, "[", ZshEscape(option.doc), "]");
    if (option.takes_value) {
      absl::StrAppend(&text, ":", ZshEscape(ZshMessage(option)), ":", ZshValues(option));
    }
    absl::StrAppend(&specifications, " \\\n            ", Quoted(text));
  }
  return specifications;
}

constexpr char kZsh[] = R"ZSH(#compdef feedwater
# zsh completion for feedwater: written by `feedwater completion zsh`.
_feedwater_pipelines() {
  local -a known names
  known=(feedwater completion pipelines)
  [[ -n $opt_args[--config] ]] && known+=(--config $opt_args[--config])
  names=(${(f)"$($known 2> /dev/null)"})
  _alternative "pipelines:pipeline:(${names})" 'files:file:_files -g "*.yaml"'
}
_feedwater_described() {
  case $line[1] in
    op) compadd @OPS@ ;;
    format) compadd @FORMATS@ ;;
    pipeline) _feedwater_pipelines ;;
  esac
}
_feedwater() {
  local context state state_descr
  local -a commands line
  typeset -A opt_args
  _arguments -C@OPTIONS@ \
        '1:command:->command' '*::argument:->argument'
  case $state in
    command)
      commands=(
@COMMANDS@      )
      _describe -t commands command commands
      ;;
    argument)
      case $words[1] in
@ARGUMENTS@      esac
      ;;
  esac
}
if [[ $funcstack[1] == _feedwater ]]; then _feedwater "$@"; else compdef _feedwater feedwater; fi
)ZSH";

std::string ZshScript(const Shape& shape) {
  std::string options, commands, arguments;
  for (const Argument& option : shape.options) absl::StrAppend(&options, ZshOption(option));
  for (const CommandShape& command : shape.commands) {
    absl::StrAppend(&commands, "        ",
                    Quoted(absl::StrCat(command.name, ":", ZshEscape(command.doc))), "\n");
    absl::StrAppend(&arguments, "        ", command.name, ")\n          _arguments");
    for (const Argument& option : command.options) absl::StrAppend(&arguments, ZshOption(option));
    for (size_t i = 0; i < command.positionals.size(); ++i) {
      const Argument& positional = command.positionals[i];
      absl::StrAppend(
          &arguments, " \\\n            ",
          Quoted(absl::StrCat(i + 1, ":", ZshEscape(positional.doc), ":", ZshValues(positional))));
    }
    absl::StrAppend(&arguments, "\n          ;;\n");
  }
  return absl::StrReplaceAll(
      kZsh, {{"@OPS@", absl::StrJoin(Registry<server::OpEntry>::Get().Names(), " ")},
             {"@FORMATS@", absl::StrJoin(Registry<server::FormatEntry>::Get().Names(), " ")},
             {"@OPTIONS@", options},
             {"@COMMANDS@", commands},
             {"@ARGUMENTS@", arguments}});
}

// --- fish

std::string FishQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishValues(const Argument& argument) {
  switch (argument.kind) {
    case ValueKind::kFile:
      return " -F";
    case ValueKind::kFolder:
      return " -a '(__fish_complete_directories)'";
    case ValueKind::kPipeline:
      return " -F -a '(feedwater completion pipelines 2> /dev/null)'";
    case ValueKind::kChoice:
      return absl::StrCat(" -a ", Words(argument.choices));
    case ValueKind::kDescribeKind:
    case ValueKind::kDescribeName:
      return absl::StrCat(" -F -a ", Words(KindsAndNames()));
    case ValueKind::kAnything:
      return "";
  }
  return "";
}

std::string FishOption(const std::string& condition, const Argument& option) {
  std::string line = absl::StrCat("complete -c feedwater", condition);
  for (const std::string& name : option.names) {
    absl::StrAppend(&line, name[1] == '-' ? " -l " + name.substr(2) : " -s " + name.substr(1));
  }
  if (option.takes_value) absl::StrAppend(&line, " -r", FishValues(option));
  return absl::StrCat(line, " -d ", FishQuoted(option.doc), "\n");
}

std::string FishScript(const Shape& shape) {
  std::string script =
      "# fish completion for feedwater: written by `feedwater completion fish`.\n"
      "complete -c feedwater -f\n";
  for (const Argument& option : shape.options) {
    absl::StrAppend(&script, FishOption(" -n __fish_use_subcommand", option));
  }
  for (const CommandShape& command : shape.commands) {
    absl::StrAppend(&script, "complete -c feedwater -n __fish_use_subcommand -a ", command.name,
                    " -d ", FishQuoted(command.doc), "\n");
    const std::string condition =
        absl::StrCat(" -n '__fish_seen_subcommand_from ", command.name, "'");
    for (const Argument& option : command.options) {
      absl::StrAppend(&script, FishOption(condition, option));
    }
    for (const Argument& positional : command.positionals) {
      const std::string values = FishValues(positional);
      if (!values.empty())
        absl::StrAppend(&script, "complete -c feedwater", condition, values, "\n");
    }
  }
  return script;
}

// --- the command

// What the scripts ask while somebody types: quick, and silent about errors of files it does not
// need.
absl::Status PrintPipelines(const ConfigChoice& config) {
  FW_ASSIGN_OR_RETURN(const ConfigSource source, FindConfig(config));
  FW_ASSIGN_OR_RETURN(const server::Settings settings,
                      server::LoadSettings(source.file, source.overrides));
  for (const auto& [name, path] : server::FindPipelineFiles(settings.config.pipelines)) {
    std::cout << name << "\n";
  }
  return absl::OkStatus();
}

absl::Status Complete(const CLI::App& app, const std::string& shell, const ConfigChoice& config) {
  if (shell == "pipelines") return PrintPipelines(config);
  const Shape shape = ShapeOf(app);
  std::cout << (shell == "bash"  ? BashScript(shape)
                : shell == "zsh" ? ZshScript(shape)
                                 : FishScript(shape));
  return absl::OkStatus();
}

void AddCompletion(CLI::App& app, Context& context) {
  static std::string shell, config;
  CLI::App* command = AddCommand(
      app, context, "completion", "print the completion script of a shell",
      "  source <(feedwater completion bash)   # for this shell\n"
      "  feedwater completion bash > ~/.local/share/bash-completion/completions/feedwater\n"
      "  feedwater completion zsh > ~/.zfunc/_feedwater   # with fpath+=~/.zfunc before compinit\n"
      "  feedwater completion fish > ~/.config/fish/completions/feedwater.fish\n"
      "`feedwater completion pipelines` lists the names that the configuration knows; the scripts "
      "ask it.",
      [&app, &context] {
        return Complete(app, shell, {config, context.address});
      });
  command->add_option("shell", shell, "which one")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "pipelines"}));
  command->add_option("--config", config, kConfigHelp)->type_name("FILE");
}

const server::Registrar<CommandEntry> kRegistrar("completion",
                                                 {CommandEntry::kThisProgram, AddCompletion});

}  // namespace

}  // namespace feedwater::cli
