// feedwater completion: scripts for shells, which ask `feedwater complete` while somebody types.
#include <iostream>

#include "client/cli/command.h"

namespace feedwater::cli {
namespace {

constexpr char kBash[] =
    R"BASH(# bash completion for feedwater: written by `feedwater completion bash`.
_feedwater() {
  local action='' cur=${COMP_WORDS[COMP_CWORD]}
  mapfile -t COMPREPLY < <(feedwater complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null | cut -f 1)
  case ${COMPREPLY[*]: -1} in :files) action=-f ;; :folders) action=-d ;; *) return ;; esac
  unset 'COMPREPLY[-1]'
  local -a files
  mapfile -t files < <(compgen "$action" -- "$cur")
  ((${#files[@]})) && compopt -o filenames && COMPREPLY+=("${files[@]}")
}
complete -F _feedwater feedwater
)BASH";

constexpr char kZsh[] = R"ZSH(#compdef feedwater
# zsh completion for feedwater: written by `feedwater completion zsh`.
_feedwater() {
  local tab=$'\t'
  local -a lines
  lines=("${(@f)$(feedwater complete -- "${(@)words[2,CURRENT]}" 2> /dev/null)}")
  [[ $lines[-1] == :files ]] && _files
  [[ $lines[-1] == :folders ]] && _files -/
  lines=("${(@)lines:#(|:files|:folders)}")
  lines=("${(@)lines//:/\\:}")
  lines=("${(@)lines/$tab/:}")
  _describe value lines
}
if [[ $funcstack[1] == _feedwater ]]; then _feedwater "$@"; else compdef _feedwater feedwater; fi
)ZSH";

constexpr char kFish[] =
    R"FISH(# fish completion for feedwater: written by `feedwater completion fish`.
function __feedwater_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (feedwater complete -- $words[2..] 2> /dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :folders
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c feedwater -f -a '(__feedwater_complete)'
)FISH";

void AddCompletion(CLI::App& app, Context& context) {
  static std::string shell;
  CLI::App* command = AddCommand(
      app, context, "completion", "print the completion script of a shell",
      "  source <(feedwater completion bash)   # for this shell\n"
      "  feedwater completion bash > ~/.local/share/bash-completion/completions/feedwater\n"
      "  feedwater completion zsh > ~/.zfunc/_feedwater   # with fpath+=~/.zfunc before compinit\n"
      "  feedwater completion fish > ~/.config/fish/completions/feedwater.fish",
      [] {
        std::cout << (shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish);
        return absl::OkStatus();
      });
  command->add_option("shell", shell, "the shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

const server::Registrar<CommandEntry> kRegistrar("completion",
                                                 {CommandEntry::kThisProgram, AddCompletion});

}  // namespace
}  // namespace feedwater::cli
