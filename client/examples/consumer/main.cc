// Reads one epoch of a pipeline and prints the mean of each channel of its field `image`.
//
//   channel_means PIPELINE
//
// The daemon is that of $FEEDWATER_ADDRESS, or of this process's NUMA node. The status is 0, or 1
// when something failed, or 2 for wrong usage.
#include <cstdint>
#include <iostream>
#include <optional>
#include <vector>

#include "feedwater/client.h"

namespace {

// Sums of the values of each channel, and how many there were of each.
struct Sums {
  std::vector<double> of_channel;
  int64_t values = 0;
};

// Where the channels stand in an image.
struct Channels {
  int64_t count = 0;
  bool last = false;  // HWC, else CHW
};

template <typename T>
void Add(const feedwater::Tensor& image, Channels channels, Sums* sums) {
  const int64_t samples = image.shape[0],
                pixels = image.shape[1] * image.shape[2] * image.shape[3] / channels.count;
  const T* value = image.as<T>().data();  // in the shared memory itself
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int64_t i = 0; i < pixels * channels.count; ++i) {
      sums->of_channel[channels.last ? i % channels.count : i / pixels] += *value++;
    }
  }
  sums->values += samples * pixels;
}

absl::StatusOr<Channels> ChannelsOf(const feedwater::Stream& stream) {
  for (const feedwater::Field& field : stream.fields()) {
    if (field.name != "image" || field.shape.size() != 3) continue;
    const bool readable =
        field.dtype == feedwater::DType::kUInt8 || field.dtype == feedwater::DType::kFloat32;
    if (!readable) {
      return absl::InvalidArgumentError("`image` is neither uint8 nor float32");
    }
    const bool last = field.layout == "HWC";
    return Channels{last ? field.shape[2] : field.shape[0], last};
  }
  return absl::InvalidArgumentError("the pipeline has no output `image` with three axes");
}

absl::Status Run(const char* pipeline) {
  absl::StatusOr<feedwater::Client> client = feedwater::Client::Connect();
  if (!client.ok()) return client.status();
  feedwater::StreamOptions options;
  options.pipeline = pipeline;
  absl::StatusOr<feedwater::Stream> stream = client->Open(options);
  if (!stream.ok()) return stream.status();
  const absl::StatusOr<Channels> channels = ChannelsOf(*stream);
  if (!channels.ok()) return channels.status();

  Sums sums{std::vector<double>(static_cast<size_t>(channels->count)), 0};
  int64_t samples = 0;
  while (true) {
    absl::StatusOr<std::optional<feedwater::Batch>> next = stream->NextInEpoch();
    if (!next.ok()) return next.status();
    if (!next->has_value()) break;  // the epoch ended
    const feedwater::Batch& batch = **next;
    const feedwater::Tensor& image = batch["image"];
    if (image.dtype == feedwater::DType::kUInt8) {
      Add<uint8_t>(image, *channels, &sums);
    } else {
      Add<float>(image, *channels, &sums);
    }
    samples += batch.samples();
  }  // the batch's destructor gives its memory back to the daemon
  if (samples == 0) return absl::NotFoundError("an epoch of this pipeline has no batch");

  std::cout << samples << " images\n";
  for (size_t channel = 0; channel < sums.of_channel.size(); ++channel) {
    std::cout << "channel " << channel << " mean "
              << sums.of_channel[channel] / static_cast<double>(sums.values) << "\n";
  }
  return absl::OkStatus();
}

// What a user can do about it, where the status itself does not say.
void Explain(const absl::Status& status) {
  std::cerr << "channel_means: " << status.message() << "\n";
  if (const std::optional<feedwater::BadSample> bad = feedwater::BadSampleOf(status)) {
    std::cerr << "  record " << bad->record << ", " << bad->path
              << ": mend it, or let the pipeline "
              << "say `on_bad_sample: substitute`\n";
  } else if (feedwater::IsDaemonLost(status) && !feedwater::IsNotServed(status)) {
    std::cerr << "  it went away and did not come back in time. A program that must go on later "
              << "saves Stream::State() and gives it as StreamOptions::state\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: channel_means PIPELINE\n";
    return 2;
  }
  const absl::Status done = Run(argv[1]);
  if (!done.ok()) Explain(done);
  return done.ok() ? 0 : 1;
}
