// Puts the texts of a batch into windows of fixed length, several into one, so that less of a batch
// is padding. Each window takes the place of `samples` samples: of a batch of 64 with samples: 8
// there are 8 windows. A text goes into the first window that has room for all of it, in the order
// of the batch; none is cut. Samples that are not real (is_real: what fills up a batch, what stands
// for a bad sample) leave their places to the others. A batch stands for itself, so that a job goes
// on from any step with the same windows.
#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/units.h"
#include "server/graph/element.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t length = 0;
  int64_t samples = 0;
  int64_t pad_id = 0;
  std::string overflow = "fail";
};

class Pack : public BatchOp {
 public:
  static absl::Status Check(const Params& params) {
    if (params.length % params.samples == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "length is ", params.length, " and samples ", params.samples,
        ": length must be a multiple of samples, since each sample holds its share of a window"));
  }

  explicit Pack(const Params& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    const TensorSpec &ids = inputs[0], &mask = inputs[1], &is_real = inputs[2];
    if (ids.shape.size() != 1 || ids.shape != mask.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "takes ids and their mask, of one length, but the fields are ", ids.ToString(), " and ",
          mask.ToString(), "; tokenize with pad_token makes them"));
    }
    if (!is_real.shape.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("takes is_real, one bool a sample, as its third field, not ",
                       is_real.ToString(), "; every pipeline has it"));
    }
    const int64_t longest = ids.shape[0], share = params_.length / params_.samples;
    if (longest > params_.length) {
      return absl::InvalidArgumentError(
          absl::StrCat("has windows of length ", params_.length, ", and a text may have ", longest,
                       " ids; raise length, or lower max_length of tokenize"));
    }
    if (share >= longest) {
      return absl::InvalidArgumentError(
          absl::StrCat("gives each text ", share,
                       " places of a window (length / samples), and no text has more "
                       "than ",
                       longest, ": nothing is gained; raise samples, or leave pack out"));
    }
    if (ids.dtype == DType::kInt32 && params_.pad_id > INT32_MAX)
      return absl::InvalidArgumentError("has a pad_id beyond int32, which the ids are");
    const TensorSpec window{ids.dtype, Layout::kPlain, {share}};
    return Specs{window, window, window, {DType::kBool, Layout::kPlain, {}}};
  }

  absl::Status Run(const OpBatch& batch, Draws) const override {
    return batch.inputs[0].spec.dtype == DType::kInt32 ? RunAs<int32_t>(batch)
                                                       : RunAs<int64_t>(batch);
  }

 private:
  // Of a batch, such as the last one with `last: partial`, whose last window is not whole.
  std::string ShorterWindow(int64_t samples) const {
    const int64_t rest = samples % params_.samples;
    if (rest == 0) return "";
    return absl::StrCat(", of which the last has ", rest * params_.length / params_.samples,
                        " places, since the batch has ", FormatCount(samples, "sample"),
                        ": with sampler: {last: pad} all are whole");
  }

  template <typename T>
  static T* Data(const BatchField& field) {
    return reinterpret_cast<T*>(field.data);
  }

  template <typename T>
  absl::Status RunAs(const OpBatch& batch) const {
    const int64_t share = params_.length / params_.samples;
    const int64_t places = batch.samples * share;
    const int64_t windows = (batch.samples + params_.samples - 1) / params_.samples;
    T *const ids = Data<T>(batch.outputs[0]), *const segments = Data<T>(batch.outputs[1]),
             *const positions = Data<T>(batch.outputs[2]);
    std::fill(ids, ids + places, static_cast<T>(params_.pad_id));
    std::fill(segments, segments + places, T{0});
    std::fill(positions, positions + places, T{0});
    // What is used of each window so far; the last one is shorter where the batch is.
    const absl::Span<int64_t> used = batch.permutation;
    std::fill(used.begin(), used.begin() + windows, 0);
    int64_t first_open = 0, texts = 0, left_out = 0, left_out_ids = 0;
    for (int64_t k = 0; k < batch.samples; ++k) {
      FW_RETURN_IF_ERROR(batch.clock->Check());
      auto* const packed = reinterpret_cast<uint8_t*>(batch.outputs[3].at(k));
      *packed = 0;
      if (*reinterpret_cast<const uint8_t*>(batch.inputs[2].at(k)) == 0) continue;
      ++texts;
      const T* const text = reinterpret_cast<const T*>(batch.inputs[0].at(k));
      const auto* const mask = reinterpret_cast<const uint8_t*>(batch.inputs[1].at(k));
      const int64_t most = batch.inputs[0].spec.shape[0];
      const int64_t count = std::find(mask, mask + most, uint8_t{0}) - mask;
      if (std::find_if(mask + count, mask + most, [](uint8_t is) { return is != 0; }) !=
          mask + most) {
        return absl::InvalidArgumentError(
            absl::StrCat("place ", k,
                         " of the batch has tokens behind padding; pack takes texts from their "
                         "beginning on"));
      }
      const auto room = [&](int64_t window) {
        return std::min(params_.length, places - window * params_.length) - used[window];
      };
      while (first_open < windows && room(first_open) == 0) ++first_open;
      int64_t window = first_open;
      while (window < windows && room(window) < count) ++window;
      const bool fits = count == 0 || window < windows;
      *packed = fits ? 1 : 0;
      if (!fits) {
        ++left_out;
        left_out_ids += count;
        continue;
      }
      if (count == 0) continue;
      const int64_t begin = window * params_.length + used[window];
      // Numbered from 1 within the window; 0 is padding.
      const T segment = used[window] == 0 ? T{1} : static_cast<T>(segments[begin - 1] + 1);
      std::copy(text, text + count, ids + begin);
      std::fill(segments + begin, segments + begin + count, segment);
      for (int64_t i = 0; i < count; ++i) positions[begin + i] = static_cast<T>(i);
      used[window] += count;
    }
    if (left_out == 0 || params_.overflow == "leave_out") return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        left_out, " of ", texts, " texts, with ", left_out_ids, " tokens, find no room in ",
        windows, " windows of ", params_.length, ShorterWindow(batch.samples),
        "; cure: a lower `samples`, so that there are more windows, or overflow: leave_out, with "
        "which `packed` is false for them"));
  }

  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("pack")
        .Summary("Puts the texts of a batch into windows of fixed length, several into one, with "
                 "the number of the text and the place in it for each token.")
        .Input({.field = "tokens",
                .layouts = {Layout::kPlain},
                .dtypes = {DType::kInt64, DType::kInt32},
                .doc = "The ids of each text, padded: tokenize with pad_token."})
        .Input({.field = "mask",
                .layouts = {Layout::kPlain},
                .dtypes = {DType::kBool},
                .doc = "Which of them are tokens."})
        .Input(
            {.field = "is_real",
             .layouts = {Layout::kPlain},
             .dtypes = {DType::kBool},
             .doc = "Which samples are real, a field that every pipeline has: others (last: pad, "
                    "on_bad_sample: skip_with_count) are in no window, and their places are "
                    "the real ones'."})
        .Output({.field = "tokens",
                 .layouts = {Layout::kPlain},
                 .dtypes = {DType::kInt64, DType::kInt32},
                 .doc = "The windows. Each sample holds its share, length / samples, of a window: "
                        "tokens.reshape(-1, length) are the windows, without a copy."})
        .Output({.field = "segment_ids",
                 .layouts = {Layout::kPlain},
                 .dtypes = {DType::kInt64, DType::kInt32},
                 .doc = "For each place of a window the number of its text there, from 1; 0 is "
                        "padding. Laid out as the windows."})
        .Output({.field = "positions",
                 .layouts = {Layout::kPlain},
                 .dtypes = {DType::kInt64, DType::kInt32},
                 .doc = "For each place of a window the place in its text, from 0. Laid out as "
                        "the windows."})
        .Output({.field = "packed",
                 .layouts = {Layout::kPlain},
                 .dtypes = {DType::kBool},
                 .doc = "For each text of the batch whether it is in a window; false where the "
                        "sample is not real."})
        .Required("length", &Params::length, "Length of a window.", Range(1, 1 << 24))
        .Required("samples", &Params::samples,
                  "How many samples' places make up one window. Choose it so that as many texts "
                  "fit with little left: length divided by the mean number of tokens, less a "
                  "tenth. Take batch.size as a multiple of it, so that every window is whole.",
                  Range(2, 1 << 16))
        .Param("pad_id", &Params::pad_id, "What stands where no text does.",
               Range(0, (1 << 24) - 1))
        .Param("overflow", &Params::overflow,
               "What becomes of texts that find no room. fail: the job ends, and the message says "
               "how many tokens were over; leave_out: they are not in this batch, and `packed` "
               "says which. A batch that is no multiple of `samples` has a last window that is "
               "shorter, and texts that are longer than it are over. With `sampler: {last: pad}`, "
               "which is what auto means here without shuffling, there is none.",
               OneOf({"fail", "leave_out"}))
        .Cost("One pass over the batch.")
        .Example("- pack: {in: [tokens, mask, is_real], out: [tokens, segment_ids, positions, "
                 "packed], length: 64, samples: 8}")
        .Create<Pack>());

}  // namespace
}  // namespace feedwater::server
