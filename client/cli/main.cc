// feedwater: asks a running feedwaterd, and works on pipelines without one.
#include <iostream>

#include "client/cli/command.h"
#include "feedwater/client.h"
#include "server/base/logging.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Looks into a running feedwaterd, and works on pipelines without one.\n\n"
      "A daemon is found by its runtime_dir: --address, else $FEEDWATER_ADDRESS, else the instance "
      "of this NUMA node.\n"
      "Exit status: 0 done, 1 it failed, 2 wrong usage or invalid input.");
  app.name("feedwater");
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
  feedwater::cli::AddValidate(app, context);
  feedwater::cli::AddPreview(app, context);
  feedwater::cli::AddGraph(app, context);
  feedwater::cli::AddVerify(app, context);
  feedwater::cli::AddDescribe(app, context);
  feedwater::cli::AddBench(app, context);
  feedwater::cli::AddIndex(app, context);
  feedwater::cli::AddLedger(app, context);
  feedwater::cli::AddDoctor(app, context);
  feedwater::cli::AddReference(app, context);
  feedwater::cli::AddStatus(app, context);
  feedwater::cli::AddHealth(app, context);
  feedwater::cli::AddCompletion(app, context);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return context.exit_status;
}
