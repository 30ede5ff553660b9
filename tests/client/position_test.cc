// The rules of position, against the table that the Python client passes, too.
#include "client/cpp/position.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace feedwater {
namespace {

using Json = nlohmann::json;

std::vector<Json> Cases() {
  std::ifstream file("tests/conformance/positions.json");
  return Json::parse(file).at("cases");
}

absl::Status Do(const Json& step, Position* position) {
  if (step.contains("take")) {
    const Json& batch = step["take"];
    position->Take(batch[0], batch[1], step.value("last", false), step.value("substituted", 0));
  } else if (step.contains("begin_epoch")) {
    position->BeginEpoch(step["begin_epoch"]);
  } else if (step.contains("choose_epoch")) {
    const bool moved = position->ChooseEpoch(step["choose_epoch"]);
    EXPECT_EQ(moved, step.value("moved", moved));
  } else if (step.contains("load")) {
    const Json& state = step["load"];
    Cursor saved;
    saved.at = {state["epoch"], state["position"]};
    saved.substituted = state.value("substituted", 0);
    for (const Json& range : state.value("skips", Json::array()))
      if (absl::Status added = saved.Skip({range[0], range[1], range[2]}); !added.ok())
        return added;
    return position->Load(saved);
  } else if (step.contains("skip")) {
    const Json& steps = step["skip"];
    return position->Skip(steps[1], steps[2], steps[0]);
  }
  return absl::OkStatus();
}

Json Facts(const Position& position) {
  const Cursor& at = position.cursor();
  Json skips = Json::array();
  for (const SkippedRange& range : at.skips)
    skips.push_back(Json::array({range.epoch, range.first, range.end}));
  return {{"at", {at.at.epoch, at.at.position}},
          {"skips", skips},
          {"substituted_so_far", at.substituted},
          {"wanted", {position.Wanted().epoch, position.Wanted().position}},
          {"next_epoch", position.next_epoch()},
          {"has_rest", position.HasRest()}};
}

class PositionTable : public ::testing::TestWithParam<Json> {};

TEST_P(PositionTable, Holds) {
  const Json& rule = GetParam();
  Cursor start;
  start.world_size = rule["world_size"];
  start.batch_size = rule["batch_size"];
  Position position(start, {rule["records"], rule["steps"], rule["last"] == "drop"}, false);
  for (const Json& step : rule["steps_taken"]) {
    SCOPED_TRACE(rule["name"].get<std::string>() + ": " + step.dump());
    const Json before = Facts(position);
    const absl::Status done = Do(step, &position);
    if (step.contains("refused")) {
      EXPECT_THAT(std::string(done.message()), ::testing::HasSubstr(step["refused"]));
      EXPECT_EQ(Facts(position), before);
    } else {
      EXPECT_TRUE(done.ok()) << done;
    }
    const Json facts = Facts(position);
    for (const auto& [name, expected] : step.items()) {
      if (!facts.contains(name)) continue;
      EXPECT_EQ(facts[name], expected) << name;
    }
    for (const Json& begin : step.value("begin_of", Json::array())) {
      const absl::StatusOr<int64_t> position_of = position.BeginOf(begin[0], begin[1]);
      ASSERT_TRUE(position_of.ok()) << position_of.status();
      EXPECT_EQ(*position_of, begin[2].get<int64_t>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, PositionTable, ::testing::ValuesIn(Cases()));

TEST(Position, AStateOfAnotherSourceIsRefused) {
  Cursor start;
  start.batch_size = 10;
  Position position(start, {100, 10, true}, false);
  Cursor other;
  other.seed = 5;
  EXPECT_EQ(position.Load(other).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace feedwater
