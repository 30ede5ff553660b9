// What a table's file says that `dataset:` has to say of it, too: tabs between values, and quotes
// that are characters like any other.
#pragma once

#include <string>
#include <vector>

#include "server/source/format.h"

namespace feedwater::cli {

// Parameters behind "{format: csv, ...", in the order in which they are to be tried: one that is
// empty, for commas, and those of a file, or of a folder, of .tsv files. Looks at the first bytes
// of a few files at most.
std::vector<std::string> FindCsvParams(const server::DatasetLocation& data);

}  // namespace feedwater::cli
