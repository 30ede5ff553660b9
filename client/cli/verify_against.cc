#include "client/cli/verify_against.h"

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/conversion.h"
#include "client/cli/convert_options.h"
#include "client/cli/json_text.h"
#include "client/cli/materialize_work.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/units.h"

namespace feedwater::cli {
namespace {

using json = nlohmann::ordered_json;

// As the command that made the folder would make it again.
absl::StatusOr<ConversionWork> WorkOf(const Conversion& conversion, const std::string& folder) {
  absl::StatusOr<json> made_from = ShardJournal::MadeFromOf(folder);
  if (absl::IsNotFound(made_from.status()))
    return absl::InvalidArgumentError(made_from.status().message());
  FW_RETURN_IF_ERROR(made_from.status());
  if (!made_from->contains("command")) {
    FW_ASSIGN_OR_RETURN(const ConvertOptions options, ConvertOptionsOf(*made_from));
    return ConvertWork(conversion, options);
  }
  const auto bytes = made_from->find("shard-bytes");
  if (bytes == made_from->end() || !bytes->is_number_integer())
    return absl::InvalidArgumentError(absl::StrCat(folder, " was made by another version"));
  server::Continuation continuation;
  return MaterializeWork(conversion, bytes->get<int64_t>(), &continuation);
}

}  // namespace

absl::Status VerifyAgainst(Context& context, const VerifyAgainstArguments& arguments) {
  const int64_t start = server::MonotonicNs();
  ConversionArguments common;
  common.pipeline = arguments.pipeline;
  common.config = arguments.config;
  common.out = arguments.folder;
  common.jobs = arguments.jobs;
  Conversion conversion(context, "verify", common);
  FW_RETURN_IF_ERROR(conversion.Open());
  FW_ASSIGN_OR_RETURN(ConversionWork work, WorkOf(conversion, arguments.folder));
  FW_ASSIGN_OR_RETURN(const std::unique_ptr<ShardComparison> comparison,
                      conversion.Compare(std::move(work)));
  const LocalPipeline& local = conversion.local();
  const double seconds = static_cast<double>(server::MonotonicNs() - start) * 1e-9;
  json list = json::array();
  for (const Difference& difference : comparison->differences()) {
    list.push_back({{"record", difference.record},
                    {"path", PlaceOf(local.dataset(), difference.record).path},
                    {"field", difference.field.empty() ? json() : json(difference.field)},
                    {"reason", difference.reason}});
  }
  if (comparison->different() > 0) context.exit_status = 1;
  if (context.json) {
    PrintJson(json{{"pipeline", local.loaded->spec.name},
                   {"records", local.dataset().size()},
                   {"same", comparison->compared()},
                   {"bad", conversion.journal().bad()},
                   {"different", comparison->different()},
                   {"differences", list},
                   {"seconds", seconds}});
    return absl::OkStatus();
  }
  for (const json& difference : list)
    std::cout << server::Escaped(JsonText(difference, -1)) << "\n";
  std::cerr << absl::StrFormat(
      "verify: %s against %s: %s the same, %d bad, %s, in %s\n",
      server::Escaped(local.loaded->spec.name), server::Escaped(arguments.folder),
      server::FormatCount(comparison->compared(), "record"), conversion.journal().bad(),
      comparison->different() == 0 ? "no difference"
                                   : server::FormatCount(comparison->different(), "difference"),
      server::FormatSeconds(seconds));
  return absl::OkStatus();
}

}  // namespace feedwater::cli
