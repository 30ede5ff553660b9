// Goal: the C++ client writes the cursor that every client and the daemon agree on, byte for byte.
#include "client/cpp/cursor.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "proto/shm/crc32c.h"

namespace feedwater {
namespace {

TEST(Cursor, Crc32cIsTheOneOfTheStandardsCheckValue) {
  EXPECT_EQ(wire::Crc32c(0, "123456789", 9), 0xe3069283u);
}

TEST(Cursor, JsonIsTheSortedFieldsWithTheChecksumOverTheRest) {
  const Cursor cursor{
      std::string(32, 'd'), std::string(32, 'p'), 18446744073709551615u, {3, 24}, 2, 4, 1, {}};
  const std::string canonical =
      R"({"batch_size":4,"dataset":"dddddddddddddddddddddddddddddddd","epoch":3,)"
      R"("pipeline":"pppppppppppppppppppppppppppppppp","position":24,"seed":18446744073709551615,)"
      R"("substituted":1,"version":1,"world_size":2})";
  const std::string crc = std::to_string(wire::Crc32c(0, canonical.data(), canonical.size()));
  const std::string json = cursor.ToJson();
  EXPECT_TRUE(absl::StrContains(json, "\"crc32c\":" + crc)) << json;
  EXPECT_TRUE(absl::StrContains(json, "\"seed\":18446744073709551615")) << json;
  EXPECT_LE(json.size(), 1024u);
}

}  // namespace
}  // namespace feedwater
