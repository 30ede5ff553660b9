// What is said of data that no format reads: what lies below it, or what formats say whose files
// are usually called so.
#pragma once

#include <string>
#include <vector>

#include "client/cli/format_maps.h"

namespace feedwater::cli {

// The formats whose files are usually called so: "a.tar.gz" are those of webdataset. Empty where
// the name says none.
std::vector<std::string> UsualFormats(absl::string_view name);

// Whether it is a file of torchvision's download of CIFAR, packed or unpacked; whether a folder has
// the packed one, which is a tar archive and no webdataset.
bool IsPickledCifar(const server::DatasetLocation& file);
bool HoldsPickledCifar(const server::DatasetLocation& folder);

// The whole message. `name` is what was asked about, which lies at `place`. Looks at so many
// folders and names at most.
std::string WhyUnread(const std::string& name, const DataPlace& place,
                      const std::vector<Refusal>& refusals);

}  // namespace feedwater::cli
