// What an order is made of, in short.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/sampler/order.h"

namespace feedwater::server::order_testing {

inline std::shared_ptr<const OrderConfig> Config(const SamplerSpec& spec, int64_t records,
                                                 int64_t batch_size, int64_t world_size,
                                                 std::vector<int64_t> shard_starts = {}) {
  auto config = MakeOrderConfig(spec, records, batch_size, world_size, std::move(shard_starts));
  EXPECT_TRUE(config.ok()) << config.status();
  return std::make_shared<const OrderConfig>(*std::move(config));
}

inline SamplerSpec Spec(const std::string& shuffle, const std::string& last,
                        const std::string& shard, int64_t block = 5) {
  SamplerSpec spec;
  spec.shuffle = shuffle;
  spec.seed = 42;
  spec.last = last;
  spec.shard = shard;
  spec.block_records = block;
  return spec;
}

}  // namespace feedwater::server::order_testing
