// TFRecord files in a folder whose names do not say what they are: known by the CRC of their first
// length.
#pragma once

#include <string>
#include <vector>

#include "server/source/format.h"

namespace feedwater::cli {

// Whether it is a file of records, whatever it is called: the first length's checksum says so.
bool IsTfrecord(const server::DatasetLocation& file);

// Patterns for `files:`, one for each set of files that belong together by their names; the one to
// train with first. Empty where `folder` is none. Looks into so many files at most.
std::vector<std::string> FindTfrecords(const server::DatasetLocation& folder);

}  // namespace feedwater::cli
