// Runtimes and jobs over made-up datasets.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/pipeline/runtime.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {

inline std::string Yaml(const std::string& sampler, const std::string& policy = "fail") {
  return absl::StrCat(
      "version: 1\ndataset: {format: image_folder, root: r, path: p}\nsampler: ", sampler,
      "\noutputs: [data, label, sample_id, position, is_real]\non_bad_sample: ", policy, "\n");
}

inline JobConfig FakeJob(testing::FakeDataset::Options dataset, const std::string& yaml,
                         int64_t batch_size, int64_t world_size = 1) {
  return testing::TestJob(
      testing::LoadPipeline(yaml, std::make_shared<testing::FakeDataset>(std::move(dataset))),
      batch_size, world_size);
}

inline std::unique_ptr<Runtime> MakeRuntime(int workers, const std::string& engine = "pread") {
  auto runtime = Runtime::Create(testing::TestRuntimeOptions(workers, engine));
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  return *std::move(runtime);
}

}  // namespace feedwater::server
