#include "server/base/logging.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/escape.h"
#include "server/base/yaml.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/ansicolor_sink.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

// The message as a JSON string. Log lines carry file names and other bytes from outside, which may
// hold quotes, line breaks or invalid UTF-8.
class JsonMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string text(message.payload.data(), message.payload.size());
    // Escaped, too: people look at such a log, and the JSON says the same.
    const std::string json = Escaped(
        nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    out.append(json.data(), json.data() + json.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
};

// The message for people: see EscapedLines.
class TextMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string text = EscapedLines({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<TextMessage>();
  }
};

absl::StatusOr<spdlog::level::level_enum> LevelFromName(absl::string_view name) {
  static const std::pair<absl::string_view, spdlog::level::level_enum> kLevels[] = {
      {"trace", spdlog::level::trace}, {"debug", spdlog::level::debug},
      {"info", spdlog::level::info},   {"warning", spdlog::level::warn},
      {"error", spdlog::level::err},
  };
  std::vector<std::string> known;
  for (const auto& [known_name, level] : kLevels) {
    if (known_name == name) return level;
    known.emplace_back(known_name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown log level '", Printable(name), "'", Suggest(name, known)));
}

}  // namespace

absl::Status SetUpLogging(LogFormat format, absl::string_view level_name) {
  auto level = LevelFromName(level_name);
  if (!level.ok()) return level.status();
  try {
    auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    if (format == LogFormat::kJson) {
      sink->set_color_mode(spdlog::color_mode::never);
      formatter->add_flag<JsonMessage>('*').set_pattern(
          R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":%*})");
    } else {
      formatter->add_flag<TextMessage>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %*");
    }
    auto logger = std::make_shared<spdlog::logger>("", std::move(sink));
    logger->set_formatter(std::move(formatter));
    logger->set_level(*level);
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("logging could not be set up: ", e.what()));
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
