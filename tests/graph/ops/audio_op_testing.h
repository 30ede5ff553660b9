// What tests of audio's ops share: records of waveforms and spectrograms, and outputs as floats.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/audio/audio_testing.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server::audio_op_testing {

using namespace graph_testing;  // NOLINT: the tests' own words
using audio_testing::Floats;
using audio_testing::TestWaveform;

inline TestRecord RecordOf(const std::string& name, const Shape& shape, const Floats& numbers) {
  const TensorSpec spec{DType::kFloat32, Layout::kPlain, shape};
  Bytes bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  TestRecord record;
  record.Add(name, spec, spec, std::move(bytes));
  return record;
}

// The first output of a graph, or a failure of the test.
inline Floats RunOnNumbers(const std::string& graph, const std::string& name, const Shape& shape,
                           const Floats& numbers, int64_t sample_id = 7) {
  TestRecord record = RecordOf(name, shape, numbers);
  const auto result = RunGraph(graph, record, absl::StrCat("[", name, "]"), sample_id);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? As<float>((*result)[0]) : Floats{};
}

// What a graph is refused with, at its plan or at its sample.
inline std::string Refusal(const std::string& graph, const std::string& name, const Shape& shape,
                           const Floats& numbers) {
  TestRecord record = RecordOf(name, shape, numbers);
  const auto result = RunGraph(graph, record, absl::StrCat("[", name, "]"));
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
  return std::string(result.status().message());
}

// The places of `changed` that differ from `numbers`.
inline std::vector<size_t> Differences(const Floats& numbers, const Floats& changed) {
  std::vector<size_t> places;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != changed[i]) places.push_back(i);
  }
  return places;
}

}  // namespace feedwater::server::audio_op_testing
