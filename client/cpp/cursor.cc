#include "client/cpp/cursor.h"

#include <nlohmann/json.hpp>

#include "proto/shm/crc32c.h"

namespace feedwater {

std::string Cursor::ToJson() const {
  nlohmann::json json = {{"version", 1},
                         {"dataset", dataset},
                         {"pipeline", pipeline},
                         {"seed", seed},
                         {"epoch", epoch},
                         {"position", position},
                         {"world_size", world_size},
                         {"batch_size", batch_size},
                         {"substituted", substituted}};
  const std::string canonical = json.dump();  // nlohmann keeps keys sorted and writes no blanks
  json["crc32c"] = wire::Crc32c(0, canonical.data(), canonical.size());
  return json.dump();
}

}  // namespace feedwater
