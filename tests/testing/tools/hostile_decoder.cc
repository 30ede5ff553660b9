// hostile_decoder: a decoder process in which somebody else's code runs. The name of the pipeline's
// file, without folder and ending, says what it does with each request after the set-up: see
// Misbehave. Started by tests/decoder and tests/cli as the real one is, without its sandbox.
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "server/decoder/decoder_program.h"
#include "server/decoder/decoder_setup.h"
#include "server/decoder/region.h"

namespace feedwater::server {
namespace {

constexpr uint32_t kMany = 0xffffffff;
volatile uintptr_t nowhere = 8;

void Write(const Region& region, const Answer& answer, const RegionField* field = nullptr) {
  std::memcpy(region.at(kAnswerAt), &answer, sizeof(answer));
  if (field != nullptr) {
    for (size_t i = 0; i < kMaxRegionFields; ++i)
      std::memcpy(region.at(kAnswerAt + sizeof(answer) + i * sizeof(*field)), field,
                  sizeof(*field));
  }
}

// Rewrites the answer as long as the process lives, while the worker reads it.
void Scribble(const Region& region) {
  std::thread([&region] {
    for (uint32_t i = 0;; ++i) {
      Answer answer;
      std::memset(&answer, static_cast<int>(i * 37), sizeof(answer));
      RegionField field;
      std::memset(&field, static_cast<int>(i * 11), sizeof(field));
      if (i % 2 == 0) {
        answer = {};
        answer.fields = answer.is_kept = 1;
        field = {};
        field.dtype = 1;
        field.axes = 3;
      }
      Write(region, answer, &field);
    }
  }).detach();
}

void Misbehave(const std::string& how, const Region& region, uint32_t* sequence, size_t* bytes) {
  Answer answer = {};
  RegionField field = {};
  field.dtype = 1;
  field.layout = static_cast<uint8_t>(Layout::kHWC);
  field.axes = 3;
  field.shape[0] = field.shape[1] = 4;
  field.shape[2] = 3;
  field.bytes = 48;
  if (how == "segv") *reinterpret_cast<volatile int*>(nowhere) = 1;
  if (how == "kill") raise(SIGKILL);
  if (how == "exit") _exit(7);
  if (how == "sleep") pause();
  if (how == "doze") usleep(300'000);
  if (how == "deaf") {  // answers before it is asked, and reads nothing any more
    for (;; ++*sequence) {
      if (write(kDecoderSocket, sequence, sizeof(*sequence)) < 0) _exit(0);
    }
  }
  if (how == "hoard") std::memset(region.output(), 1, region.header().output_bytes);
  while (how == "spin" && nowhere != 0) {
  }
  if (how == "close") {
    close(kDecoderSocket);
    pause();
  }
  if (how == "sequence") *sequence += 1;
  if (how == "long") *bytes = 8;
  if (how == "code") answer.code = 77;
  if (how == "machine") answer.code = static_cast<uint32_t>(absl::StatusCode::kUnavailable);
  if (how == "message") {
    answer.code = 3;
    answer.message_bytes = kMany;
  }
  if (how == "text") {
    answer.code = 3;
    std::memcpy(answer.message, "a\nb\x1b[2J", 7);
    answer.message_bytes = 7;
  }
  if (how == "scribble") Scribble(region);
  if (how == "fields") answer.fields = kMany;
  if (how == "indexes") answer.fields = answer.indexes = kMany / 2 + 1;
  if (how == "outside" || how == "overflow" || how == "shape" || how == "type" || how == "axes") {
    answer.is_kept = answer.fields = 1;
    if (how == "outside") field.offset = ~0ull - 63;
    if (how == "shape") field.bytes = 1ull << 40;
    if (how == "type") field.dtype = 200;
    if (how == "axes") field.axes = 60000;
    if (how == "overflow") {
      field.shape[0] = field.shape[1] = 1LL << 62;
      field.bytes = 0;
    }
  }
  if (how == "index_of_nothing" || how == "indexes_of_one") {  // no field's; garbage, and again
    answer.indexes = how == "indexes_of_one" ? 2 : 1;
    field.field = how == "indexes_of_one" ? 0 : kMany;
  }
  if (how == "other_shape") {  // a good tensor, but not what the plan keeps
    answer.is_kept = answer.fields = 1;
    field.axes = 1;
    field.shape[0] = 48;
  }
  Write(region, answer, &field);
}

int Serve() {
  absl::StatusOr<Region> region = Region::Open(kDecoderRegion);
  if (!region.ok()) return 1;
  std::string how;
  for (;;) {
    uint32_t told[2] = {};
    if (read(kDecoderSocket, told, sizeof(told)) != sizeof(told[0])) return 0;
    size_t bytes = sizeof(told[0]);
    if (how.empty()) {
      const auto field = CopyIn<RegionField>(region->at(kRequestAt + sizeof(Request)));
      const auto setup =
          DecodeSetup({region->input() + field.offset, static_cast<size_t>(field.bytes)});
      if (!setup.ok()) return 1;
      how = std::filesystem::path(setup->file_name).stem();
      const auto plan = PlanOf(*setup);
      if (!plan.ok() || how == "start") return 1;
      if (how == "kill_start") raise(SIGKILL);
      const std::string identity = how == "stranger" ? "stranger" : PlanIdentity(**plan);
      Answer answer = {};
      answer.message_bytes = static_cast<uint32_t>(identity.size());
      std::memcpy(answer.message, identity.data(), identity.size());
      Write(*region, answer);
    } else {
      Misbehave(how, *region, &told[0], &bytes);
    }
    if (write(kDecoderSocket, told, bytes) < 0) return 0;
  }
}

}  // namespace
}  // namespace feedwater::server

int main() { return feedwater::server::Serve(); }
