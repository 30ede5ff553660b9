// feedwater migrate: runs the module feedwater.migrate, which reads Python scripts with Python's
// own parser, in a Python that has the package.
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "server/base/registry.h"

namespace feedwater::cli {
namespace {

// That of feedwater.migrate where it fails: 1 says that something could not be translated.
constexpr int kFailed = 2;

// Exit statuses of shells and of `env` for a program that cannot be found or run.
constexpr int kNotFound = 127;

// The working directory, where a script's project has modules of any name, is nothing to import
// from.
constexpr char kNoFolder[] = "import sys; sys.path[:] = [p for p in sys.path if p]; ";

// Ends with 0 if the interpreter has the package. Importing it would take longer.
constexpr char kHasPackage[] = R"(
import importlib.util, os
spec = importlib.util.find_spec('feedwater')
folders = spec.submodule_search_locations if spec else []
sys.exit(not any(os.path.exists(os.path.join(f, 'migrate.py')) for f in folders or []))
)";

// What `python3 -m feedwater.migrate` does.
constexpr char kRunModule[] = "from feedwater.migrate import main; sys.exit(main())";

// The exit status of a program, which is found through $PATH; kNotFound where it cannot be run.
int Run(const std::vector<std::string>& words, bool is_quiet) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (is_quiet) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return kNotFound;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return kNotFound;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Interpreters in the order in which they are tried: the one that the user names, else the one of
// the virtual environment that is active, and the system's.
std::vector<std::string> Interpreters() {
  if (const char* named = std::getenv("PYTHON"); named != nullptr && *named != '\0') {
    return {named};
  }
  std::vector<std::string> found;
  if (const char* venv = std::getenv("VIRTUAL_ENV"); venv != nullptr && *venv != '\0') {
    found.push_back(absl::StrCat(venv, "/bin/python"));
  }
  found.push_back("python3");
  return found;
}

absl::Status Migrate(Context& context, const std::string& script, const std::string& out) {
  const std::vector<std::string> interpreters = Interpreters();
  for (const std::string& python : interpreters) {
    if (Run({python, "-c", absl::StrCat(kNoFolder, kHasPackage)}, /*is_quiet=*/true) != 0) continue;
    std::vector<std::string> words = {python, "-c", absl::StrCat(kNoFolder, kRunModule)};
    if (!out.empty()) words.push_back(absl::StrCat("--out=", out));
    if (context.json) words.push_back("--json");
    words.insert(words.end(), {"--", script});
    std::cout.flush();
    context.exit_status = Run(words, /*is_quiet=*/false);
    return absl::OkStatus();
  }
  context.exit_status = kFailed;
  return absl::FailedPreconditionError(absl::StrCat(
      "no Python with the package feedwater: tried ", absl::StrJoin(interpreters, ", "),
      "; `pip install` the package into the environment that trains, and activate it "
      "or name its interpreter in $PYTHON"));
}

void AddMigrate(CLI::App& app, Context& context) {
  static std::string script, out;
  CLI::App* command = AddCommand(
      app, context, "migrate",
      "translate a PyTorch script: pipeline files for its DataLoaders, and the changed lines as a "
      "diff; the script is read, not run",
      "  feedwater migrate train.py               # prints files, diff and what is left to do\n"
      "  feedwater migrate train.py --out pipelines && patch train.py < pipelines/train.py.diff\n"
      "It needs a Python with the package feedwater: $PYTHON, else that of $VIRTUAL_ENV, else "
      "python3.\nExit status 1: something could not be translated; it is listed with its line.\n"
      "Exit status 2: it failed, as where a file is there already and differs.",
      [&context] { return Migrate(context, script, out); });
  command->add_option("script", script, "the script")->required()->type_name("FILE");
  command
      ->add_option("-o,--out", out,
                   "write the pipeline files there, and the diff as SCRIPT.py.diff; what is there "
                   "already stays: a pipeline of that name is written as SCRIPT-NAME.yaml")
      ->type_name("DIR");
}

const server::Registrar<CommandEntry> kRegistrar("migrate", {CommandEntry::kPipelines, AddMigrate});

}  // namespace
}  // namespace feedwater::cli
