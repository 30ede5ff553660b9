#include "server/base/units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace feedwater::server {
namespace {

TEST(Units, ReadsSizes) {
  EXPECT_EQ(*ParseBytes("4096"), 4096);
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("512MiB"), 512 << 20);
  EXPECT_EQ(*ParseBytes("8 GiB"), int64_t{8} << 30);
  EXPECT_EQ(*ParseBytes("1.5KiB"), 1536);
  EXPECT_EQ(*ParseBytes("1GB"), 1'000'000'000);
  EXPECT_EQ(*ParseBytes("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(*ParseBytes("9007199254740993"), 9007199254740993);  // not through a double
}

TEST(Units, RefusesWhatIsNotASize) {
  for (const char* bad : {"", "-1", "+1", "MiB", "1e3", "1 2", "0x10", "12QiB", "1..5GiB", ".5GiB",
                          "5.GiB", "1.5", "inf", "9223372036854775808", "8192PiB",
                          "99999999999999999999999999999999999999999", "1GiBs"}) {
    EXPECT_EQ(ParseBytes(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Units, WritesSizes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(FormatBytes(INT64_MAX), "8.0 EiB");
  EXPECT_EQ(FormatBytes(-1536), "-1.5 KiB");
  EXPECT_EQ(FormatBytes(INT64_MIN), "-8.0 EiB");
}

TEST(Units, ReadsTimes) {
  EXPECT_DOUBLE_EQ(*ParseSeconds("500ms"), 0.5);
  EXPECT_DOUBLE_EQ(*ParseSeconds("60s"), 60);
  EXPECT_DOUBLE_EQ(*ParseSeconds("2min"), 120);
  EXPECT_DOUBLE_EQ(*ParseSeconds("1.5 h"), 5400);
  EXPECT_DOUBLE_EQ(*ParseSeconds("20us"), 20e-6);
  EXPECT_DOUBLE_EQ(*ParseSeconds("0"), 0);
}

TEST(Units, RefusesWhatIsNotATime) {
  for (const char* bad :
       {"", "5", "-1s", "s", "1m", "1e3s", "inf", "nan s", "1s2", "99999999999999h"}) {
    EXPECT_EQ(ParseSeconds(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Units, WritesTimes) {
  EXPECT_EQ(FormatSeconds(1.5), "1.5 s");
  EXPECT_EQ(FormatSeconds(0.02), "20 ms");
  EXPECT_EQ(FormatSeconds(25e-6), "25 us");
  EXPECT_EQ(FormatSeconds(0), "0 s");
  EXPECT_EQ(FormatSeconds(600), "10 min");
  EXPECT_EQ(FormatSeconds(10'800), "3.0 h");
  EXPECT_EQ(FormatSeconds(-0.5), "-500 ms");
  EXPECT_EQ(FormatSeconds(std::numeric_limits<double>::infinity()), "unknown");
}

}  // namespace
}  // namespace feedwater::server
