// The log as programs read it: one valid JSON object a line, whatever bytes a message holds.
#include "server/base/logging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

std::string Logged(LogFormat format, const std::string& message) {
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(SetUpLogging(format, "info").ok());
  spdlog::warn("{}", message);
  spdlog::debug("not to be seen");
  return ::testing::internal::GetCapturedStderr();
}

TEST(Logging, EveryJsonLineIsAnObject) {
  for (const std::string& message :
       {std::string("plain"), std::string("quo\"te \\ line\nbreak \x1b[31m"),
        std::string("bad \xff\xfe utf8"), std::string("a\0b", 3), std::string("%v {} %*")}) {
    const std::string out = Logged(LogFormat::kJson, message);
    ASSERT_EQ(std::count(out.begin(), out.end(), '\n'), 1) << out;
    const auto line = nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(line.is_object()) << out;
    EXPECT_EQ(line.size(), 3u);
    EXPECT_EQ(line["level"], "warning");
    EXPECT_TRUE(line["time"].is_string());
    const bool is_utf8 = message.find('\xff') == std::string::npos;
    EXPECT_TRUE(!is_utf8 || line["message"] == message) << out;
  }
}

TEST(Logging, ATextLineCannotForgeAnotherNorMoveTheCursor) {
  const std::string out = Logged(LogFormat::kText, "a\n2020-01-01 error b\x1b[2J");
  EXPECT_NE(out.find("warning a\n    2020-01-01 error b\\x1b[2J"), std::string::npos) << out;
}

TEST(Logging, ControlsOfTheTerminalBehindAsciiAreWrittenOutInBothFormats) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string out = Logged(format,
                                   "a\xc2\x9b"
                                   "2Jb\xe2\x80\xae"
                                   "c");
    EXPECT_NE(out.find("a\\u009b2Jb\\u202ec"), std::string::npos) << out;
  }
}

TEST(Logging, RefusesAnUnknownLevel) {
  const absl::Status status = SetUpLogging(LogFormat::kText, "wanring");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("did you mean 'warning'?"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace feedwater::server
