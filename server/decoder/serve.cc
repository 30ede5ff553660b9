#include "server/decoder/serve.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/no_throw.h"
#include "server/base/work_clock.h"
#include "server/codec/decode_need.h"
#include "server/decoder/decoder_setup.h"
#include "server/graph/op_caller.h"

namespace feedwater::server {
namespace {

// The packer's buffers are a few times as large.
constexpr int64_t kLargeFileBytes = 4 << 20;

// The seek indexes of one request's images: those that came with it, and what is learned of them.
class RequestIndexes final : public SeekIndexes {
 public:
  struct Image {
    uint32_t field = 0;
    ContentHash hash;
    absl::Span<const std::byte> known;
    std::vector<std::byte> learned;
  };
  std::vector<Image> images;

  bool Find(const ContentHash& image, std::vector<std::byte>* document) const override {
    document->clear();
    for (const Image& entry : images) {
      if (!(entry.hash == image) || entry.known.empty()) continue;
      document->assign(entry.known.begin(), entry.known.end());
      return true;
    }
    return false;
  }
  void Put(const ContentHash& image, absl::Span<const std::byte> document) override {
    for (Image& entry : images) {
      if (entry.hash == image) entry.learned.assign(document.begin(), document.end());
    }
  }
};

class Decoder final : public OpCaller {
 public:
  // `take_turn` tells the worker that the answer stands in the region, and waits until something
  // stands there for this process.
  Decoder(const Region& region, std::function<void()> take_turn)
      : region_(region), take_turn_(std::move(take_turn)) {
    workspace_.images().UseSeekIndexes(&indexes_);
    workspace_.UseCaller(this, /*gone=*/nullptr);
  }

  // The worker has the user's own ops run.
  absl::Status Call(const OpCall& call,
                    absl::FunctionRef<absl::Status(absl::Span<const Tensor>)> take) override {
    struct Answer asked = {};
    asked.call_inputs = static_cast<uint32_t>(call.inputs.size());
    asked.seed[0] = call.seed[0];
    asked.seed[1] = call.seed[1];
    asked.message_bytes = static_cast<uint32_t>(std::min(call.name->size(), sizeof(asked.message)));
    std::memcpy(asked.message, call.name->data(), asked.message_bytes);
    std::vector<RegionField> fields;
    uint64_t used = area_.bytes;
    bool fits = true;
    for (const Tensor& input : call.inputs)
      fits = fits && Put(input.spec, {input.data, input.bytes()}, area_.extra(), &used, &fields);
    for (const TensorSpec& output : call.outputs) {
      FW_ASSIGN_OR_RETURN(const int64_t bytes, output.ByteSize());
      fits = fits && Describe(output, 0, static_cast<uint64_t>(bytes), &fields.emplace_back());
    }
    if (!fits || fields.size() > kMaxRegionFields)
      return absl::InvalidArgumentError("more than a decoder process can give away (isolation)");
    asked.fields = static_cast<uint32_t>(fields.size());
    PutAnswer(asked, fields);
    take_turn_();

    const auto reply = CopyIn<Request>(region_.at(kRequestAt));
    std::vector<Tensor> made;
    FW_RETURN_IF_ERROR(ReadFields(reply, &made, nullptr));
    if (static_cast<DecoderCommand>(reply.command) != DecoderCommand::kReturn || made.empty())
      return absl::InternalError("no answer to a call");
    if (reply.code != 0) {
      return absl::Status(static_cast<absl::StatusCode>(reply.code),
                          {made[0].as<char>(), made[0].bytes()});
    }
    return take(made);
  }

  void Answer(const absl::Status& ready) {
    answer_ = {};
    fields_.clear();
    indexes_.images.clear();
    used_ = area_.extra();
    is_large_ = false;
    const DecodeCounts before = workspace_.images().counts();
    absl::Status status = ready;
    if (status.ok()) status = NoThrow([&] { return Carry(); });
    if (status.ok()) PutIndexes();
    CountImages(before);
    answer_.code = static_cast<uint32_t>(status.code());
    if (!status.ok()) {
      answer_.fields = answer_.indexes = answer_.is_kept = 0;
      SetMessage(status.message());
    }
    if (is_large_) workspace_.GiveBack();
    PutAnswer(answer_, fields_);
  }

 private:
  void PutAnswer(const struct Answer& answer, const std::vector<RegionField>& fields) {
    std::byte* const at = region_.at(kAnswerAt);
    std::memcpy(at, &answer, sizeof(answer));
    if (!fields.empty())
      std::memcpy(at + sizeof(answer), fields.data(), fields.size() * sizeof(RegionField));
  }

  absl::Status Carry() {
    request_ = CopyIn<Request>(region_.at(kRequestAt));
    FW_RETURN_IF_ERROR(ReadFields(request_, &record_.fields, &indexes_));
    const auto command = static_cast<DecoderCommand>(request_.command);
    if (command == DecoderCommand::kSetUp) return SetUp();
    if (command == DecoderCommand::kPack) return Pack();
    if (command == DecoderCommand::kIndex) return Index();
    if (plan_ == nullptr) return absl::FailedPreconditionError("a request before the set-up");
    input_ = {};
    input_.record = &record_;
    input_.sample_id = request_.sample_id;
    input_.position = request_.position;
    input_.stands_for = request_.stands_for;
    input_.is_real = request_.is_real != 0;
    input_.key = {request_.key[0], request_.key[1]};
    BeginClock();
    Fit(command == DecoderCommand::kRun          ? SampleWay::kWhole
        : command == DecoderCommand::kRunKeeping ? SampleWay::kKeeping
                                                 : SampleWay::kFromPrefix);
    switch (command) {
      case DecoderCommand::kRun:
        return plan_->Run(input_, 0, memory_, workspace_);
      case DecoderCommand::kRunFromPrefix:
        return plan_->RunFromPrefix(input_, 0, memory_, workspace_);
      case DecoderCommand::kRunKeeping:
        return RunKeeping();
      default:
        return absl::InvalidArgumentError("an unknown request");
    }
  }

  // The request's fields, as views into the input area, and what is known of their images (null:
  // nothing).
  absl::Status ReadFields(const Request& request, std::vector<Tensor>* fields,
                          RequestIndexes* indexes) const {
    if (request.fields > kMaxRegionFields)
      return absl::InvalidArgumentError("a request of too many fields");
    const uint64_t room = region_.header().input_bytes;
    fields->clear();
    for (uint32_t i = 0; i < request.fields; ++i) {
      const auto at =
          CopyIn<RegionField>(region_.at(kRequestAt + sizeof(Request) + i * sizeof(RegionField)));
      Tensor field;
      FW_ASSIGN_OR_RETURN(field.spec, CheckField(at, room));
      field.data = region_.input() + at.offset;
      fields->push_back(std::move(field));
      if (indexes == nullptr) continue;
      if (at.hash_low == 0 && at.hash_high == 0) continue;
      RequestIndexes::Image image;
      image.field = i;
      image.hash = {at.hash_low, at.hash_high};
      if (at.index_offset > room || at.index_bytes > room - at.index_offset)
        return absl::InvalidArgumentError("a seek index that lies outside");
      image.known = {region_.input() + at.index_offset, static_cast<size_t>(at.index_bytes)};
      indexes->images.push_back(std::move(image));
    }
    return absl::OkStatus();
  }

  absl::Status SetUp() {
    if (record_.fields.size() != 1) return absl::InvalidArgumentError("a set-up without its text");
    const Tensor& text = record_.fields[0];
    FW_ASSIGN_OR_RETURN(const DecoderSetup setup, DecodeSetup({text.data, text.bytes()}));
    FW_ASSIGN_OR_RETURN(plan_, PlanOf(setup));
    FW_ASSIGN_OR_RETURN(SampleArea area, SampleArea::Of(*plan_));
    if (area.output_bytes() > region_.header().output_bytes) {
      plan_ = nullptr;
      return absl::InvalidArgumentError("no room for the pipeline's samples");
    }
    area_ = std::move(area);
    memory_ = area_.At(region_.output());
    SetMessage(PlanIdentity(*plan_));
    return absl::OkStatus();
  }

  // Keeps the buffers within what is set aside for them: those of a large sample go after it.
  void Fit(SampleWay way) {
    const int64_t claim = plan_->memory(way).Claim();
    is_large_ = plan_->NeedOf(input_, way, workspace_).bytes > claim;
    if (!is_large_) workspace_.Fit(claim);
  }

  void BeginClock() { workspace_.clock().Begin(plan_->limits().max_sample_ms, nullptr); }

  // As InProcessMaker::RunKeeping.
  absl::Status RunKeeping() {
    if (!plan_->RunPrefix(input_, request_.max_field_bytes, workspace_, &kept_).ok()) {
      BeginClock();
      return plan_->Run(input_, 0, memory_, workspace_);
    }
    answer_.is_kept = 1;
    for (const Tensor& field : kept_.fields) {
      if (Put(field.spec, {field.data, field.bytes()})) continue;
      answer_.is_kept = 0;
      fields_.clear();
      break;
    }
    answer_.fields = static_cast<uint32_t>(fields_.size());
    input_.record = &kept_;
    BeginClock();
    return plan_->RunFromPrefix(input_, 0, memory_, workspace_);
  }

  absl::Status Pack() {
    if (record_.fields.size() != 1) return absl::InvalidArgumentError("nothing to pack");
    const Tensor& file = record_.fields[0];
    is_large_ = static_cast<int64_t>(file.bytes()) > kLargeFileBytes ||
                NeedOfPacking({file.data, file.bytes()}).coefficient_bytes > kLargeFileBytes;
    const auto document =
        PackCoefficients({file.data, file.bytes()}, limits(), workspace_.images());
    is_large_ |= static_cast<int64_t>(document.size()) > kLargeFileBytes;
    TensorSpec spec;
    spec.shape = {static_cast<int64_t>(document.size())};
    answer_.fields = !document.empty() && Put(spec, document) ? 1 : 0;
    return absl::OkStatus();
  }

  // PutIndexes does the rest.
  absl::Status Index() {
    for (const Tensor& file : record_.fields) {
      is_large_ |= static_cast<int64_t>(file.bytes()) > kLargeFileBytes;
      MakeSeekIndex({file.data, file.bytes()}, limits(), workspace_.images());
    }
    return absl::OkStatus();
  }

  const ImageLimits& limits() const {
    static const ImageLimits kDefault;
    return plan_ == nullptr ? kDefault : plan_->limits();
  }

  // Adds bytes to the answer, behind what is there. False when there is no room.
  bool Put(const TensorSpec& spec, absl::Span<const std::byte> bytes) {
    return Put(spec, bytes, region_.header().output_bytes, &used_, &fields_);
  }

  // The same in the part of the output area that ends at `room`, of which `used` is taken.
  bool Put(const TensorSpec& spec, absl::Span<const std::byte> bytes, uint64_t room, uint64_t* used,
           std::vector<RegionField>* fields) {
    RegionField field;
    if (fields->size() >= kMaxRegionFields || *used > room || bytes.size() > room - *used ||
        !Describe(spec, *used, bytes.size(), &field)) {
      return false;
    }
    if (!bytes.empty()) std::memcpy(region_.output() + *used, bytes.data(), bytes.size());
    *used = std::min(room, *used + RoundUpToUnit(bytes.size()));
    fields->push_back(field);
    return true;
  }

  void PutIndexes() {
    for (const RequestIndexes::Image& image : indexes_.images) {
      TensorSpec spec;
      spec.shape = {static_cast<int64_t>(image.learned.size())};
      if (image.learned.empty() || !Put(spec, image.learned)) continue;
      fields_.back().field = image.field;
      ++answer_.indexes;
    }
  }

  void CountImages(const DecodeCounts& before) {
    DecodeCounts counts;
    counts.AddSince(before, workspace_.images().counts());
    const auto few = [](uint64_t count) {
      return static_cast<uint8_t>(std::min<uint64_t>(count, 255));
    };
    answer_.decoded[0] = few(counts.from_coefficients);
    answer_.decoded[1] = few(counts.own_decoder);
    answer_.decoded[2] = few(counts.with_seek_index);
    for (int i = 0; i < jpeg::kUncoveredKinds; ++i) answer_.decoded[3 + i] = few(counts.libjpeg[i]);
  }

  void SetMessage(absl::string_view text) {
    const size_t bytes = std::min(text.size(), sizeof(answer_.message));
    std::memcpy(answer_.message, text.data(), bytes);
    answer_.message_bytes = static_cast<uint32_t>(bytes);
  }

  const Region& region_;
  const std::function<void()> take_turn_;
  std::shared_ptr<const Plan> plan_;
  SampleWorkspace workspace_;
  RequestIndexes indexes_;
  BatchMemory memory_;
  SampleArea area_;

  // Of the request under way.
  Request request_{};
  SampleInput input_;
  Record record_, kept_;
  struct Answer answer_ {};
  std::vector<RegionField> fields_;
  uint64_t used_ = 0;      // of the output area
  bool is_large_ = false;  // takes more memory than is set aside
};

}  // namespace

int ServeDecoder(int socket, const Region& region, const absl::Status& ready) {
  uint32_t sequence = 0;
  const auto await = [&] {
    ssize_t got;
    do {
      got = read(socket, &sequence, sizeof(sequence));
    } while (got < 0 && errno == EINTR);
    if (got != sizeof(sequence)) _exit(got == 0 ? 0 : 1);
  };
  const auto tell = [&] {
    if (write(socket, &sequence, sizeof(sequence)) != sizeof(sequence)) _exit(0);
  };
  Decoder decoder(region, [&] {
    tell();
    await();
  });
  for (;;) {
    await();
    decoder.Answer(ready);
    tell();
  }
}

}  // namespace feedwater::server
