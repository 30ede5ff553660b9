// Prints the sampler's order as JSON, for tests in other languages. Every line of standard input is
// one case, a JSON object with the keys records, batch_size, world_size, seed, epoch, shuffle,
// last, shard, block_records, shard_starts and start (a position); every line of output is its
// order: {"steps", "next": [cursor after each step], "batches": [[step, rank, [[position, record,
// is_real], ...]], ...]} in the order of handing out. With the key "at", a list of positions, only
// {"records": [the record at each]} is printed. With the key "mix", the list of its sources, each
// {"records", "weight", "shard_starts"}, and "stop" ("all", "first" or a number), "positions", the
// length of an epoch, comes to both. A refused case prints {"error": message}.
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/sampler/order.h"

namespace feedwater::server {
namespace {

using nlohmann::json;

absl::StatusOr<std::shared_ptr<const Mix>> MixOf(const json& test_case) {
  std::vector<MixSource> sources;
  for (const json& source : test_case["mix"]) {
    sources.push_back({source["records"], source["weight"],
                       source.value("shard_starts", std::vector<int64_t>())});
  }
  const json& stop = test_case["stop"];
  if (stop.is_number()) return Mix::Create(sources, MixStop::kSamples, stop);
  return Mix::Create(sources, stop == "all" ? MixStop::kAll : MixStop::kFirst);
}

absl::StatusOr<OrderConfig> ConfigOf(const SamplerSpec& spec, const json& test_case) {
  const auto batch_size = test_case.value("batch_size", int64_t{1});
  const auto world_size = test_case.value("world_size", int64_t{1});
  if (!test_case.contains("mix")) {
    return MakeOrderConfig(spec, test_case.value("records", int64_t{0}), batch_size, world_size,
                           test_case.value("shard_starts", std::vector<int64_t>()));
  }
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const Mix> mix, MixOf(test_case));
  return MakeOrderConfig(spec, std::move(mix), batch_size, world_size);
}

json Order(const json& test_case) {
  SamplerSpec spec;
  spec.shuffle = test_case.value("shuffle", spec.shuffle);
  spec.seed = test_case.value("seed", spec.seed);
  spec.last = test_case.value("last", spec.last);
  spec.shard = test_case.value("shard", spec.shard);
  spec.block_records = test_case.value("block_records", spec.block_records);
  const absl::StatusOr<OrderConfig> config = ConfigOf(spec, test_case);
  if (!config.ok()) return {{"error", std::string(config.status().message())}};
  const EpochOrder order(std::make_shared<const OrderConfig>(*config),
                         test_case.value("epoch", uint64_t{0}),
                         test_case.value("start", int64_t{0}));
  if (test_case.contains("at")) {
    json records = json::array();
    for (int64_t position : test_case["at"].get<std::vector<int64_t>>())
      records.push_back(order.RecordAt(position));
    json answer = {{"records", records}};
    if (config->mix != nullptr) answer["positions"] = config->positions();
    return answer;
  }
  json next = json::array(), batches = json::array();
  for (int64_t step = 0; step < order.steps(); ++step) {
    next.push_back(order.NextPosition(step));
    for (int64_t rank = 0; rank < config->world_size; ++rank) {
      json places = json::array();
      for (int64_t k = 0; k < order.BatchSamples(step, rank); ++k) {
        const Placement placement = order.At(step, rank, k);
        places.push_back({placement.position, placement.record, placement.is_real});
      }
      batches.push_back({step, rank, places});
    }
  }
  json answer = {{"steps", order.steps()}, {"next", next}, {"batches", batches}};
  if (config->mix != nullptr) answer["positions"] = config->positions();
  return answer;
}

}  // namespace
}  // namespace feedwater::server

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      std::cout << feedwater::server::Order(nlohmann::json::parse(line)) << '\n';
    } catch (const std::exception& e) {
      std::cerr << "print_order: " << e.what() << '\n';
      return 2;
    }
  }
  return 0;
}
