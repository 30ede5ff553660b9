// feedwater verify PIPELINE --against DIR: the shards of a folder, compared with the dataset that
// they were made from.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cli/command.h"

namespace feedwater::cli {

struct VerifyAgainstArguments {
  std::string pipeline, config, folder;
  size_t jobs = 0;
};
// Prints a line for each difference, and how many there are; sets the exit status.
absl::Status VerifyAgainst(Context& context, const VerifyAgainstArguments& arguments);

}  // namespace feedwater::cli
