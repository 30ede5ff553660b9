// One rank of scripts/demo in C++: takes every batch of some epochs and prints, as a JSON line
// each, which samples it held and how long it was on its way. The Python twin is demo_rank.py.
//
//   demo_rank PIPELINE --rank 0 --world-size 4 --epochs 2 --job demo
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "feedwater/client.h"

namespace {

absl::Status Run(const feedwater::StreamOptions& options, uint64_t epochs) {
  absl::StatusOr<feedwater::Client> client = feedwater::Client::Connect();
  if (!client.ok()) return client.status();
  absl::StatusOr<feedwater::Stream> stream = client->Open(options);
  if (!stream.ok()) return stream.status();
  while (stream->epoch() < epochs) {
    const int64_t asked_ns = feedwater::MonotonicNs();
    absl::StatusOr<std::optional<feedwater::Batch>> next = stream->NextInEpoch();
    if (!next.ok()) return next.status();
    if (!next->has_value()) continue;  // the epoch ended
    const feedwater::Batch& batch = **next;
    const absl::Span<const int64_t> ids = batch["sample_id"].as<int64_t>();
    const absl::Span<const int64_t> positions = batch["position"].as<int64_t>();
    nlohmann::json line = {{"epoch", batch.epoch()},
                           {"step", batch.step()},
                           {"sample_id", std::vector<int64_t>(ids.begin(), ids.end())},
                           {"position", std::vector<int64_t>(positions.begin(), positions.end())}};
    // Only a batch that was waited for tells how long the hand-over takes.
    if (asked_ns < batch.published_ns())
      line["handover_us"] = (batch.received_ns() - batch.published_ns()) * 1e-3;
    std::cout << line.dump() << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of the demonstration, in C++");
  feedwater::StreamOptions options;
  uint64_t epochs = 2;
  app.add_option("pipeline", options.pipeline, "name of the pipeline")->required();
  app.add_option("--rank", options.rank)->required();
  app.add_option("--world-size", options.world_size)->required();
  app.add_option("--job", options.job, "the same on all ranks")->required();
  app.add_option("--epochs", epochs)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status done = Run(options, epochs);
  if (!done.ok()) std::cerr << "demo_rank: " << done << "\n";
  return done.ok() ? 0 : 1;
}
