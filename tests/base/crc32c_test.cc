#include "server/base/crc32c.h"

#include <random>

#include "gtest/gtest.h"
#include "proto/shm/crc32c.h"

namespace feedwater::server {
namespace {

TEST(Crc32cTest, GivesTheKnownAnswers) {
  EXPECT_EQ(Crc32c(0, ""), 0u);
  EXPECT_EQ(Crc32c(0, "123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  // The head of a TFRecord of one byte, as TensorFlow wrote it.
  EXPECT_EQ(MaskedCrc32c(std::string("\1\0\0\0\0\0\0\0", 8)), 0x41de7501u);
}

// Any length, any address, any split: what the tables give.
TEST(Crc32cTest, AgreesWithTheTablesHoweverTheBytesAreCut) {
  std::mt19937_64 random(7);
  std::string bytes(300, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t length = 0; begin + length <= bytes.size(); ++length) {
      const absl::string_view part = absl::string_view(bytes).substr(begin, length);
      const uint32_t whole = wire::Crc32c(0, part.data(), part.size());
      ASSERT_EQ(Crc32c(0, part), whole);
      ASSERT_EQ(Crc32c(Crc32c(0, part.substr(0, length / 3)), part.substr(length / 3)), whole);
    }
  }
}

}  // namespace
}  // namespace feedwater::server
