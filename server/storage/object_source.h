// Files by number below a root: what a read is addressed to. Datasets are the usual ones; the
// cache's segments are others. Immutable and thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "server/storage/roots.h"

namespace feedwater::server {

struct Extent {
  uint32_t object = 0;  // number of a file of the source; see ObjectPath
  int64_t offset = 0;
  int64_t length = 0;
};

class ObjectSource {
 public:
  virtual ~ObjectSource() = default;
  virtual const Root& root() const = 0;
  // The root that a file lies below, where some lie elsewhere (source/staging.h).
  virtual const Root& RootOf(uint32_t /*object*/) const { return root(); }
  virtual std::string ObjectPath(uint32_t object) const = 0;  // below RootOf(object)
};

}  // namespace feedwater::server
