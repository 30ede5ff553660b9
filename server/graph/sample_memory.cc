// Walks a program's steps in order and adds up what they hold, in the buffers that memory_plan has
// given them.
#include "server/graph/sample_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/units.h"
#include "server/codec/decode_need.h"
#include "server/graph/op_caller.h"
#include "server/graph/op_ports.h"
#include "server/graph/plan_impl.h"

namespace feedwater::server {
namespace {

constexpr size_t kShownTerms = 5;

std::string NameOf(const Step& step) {
  constexpr size_t kShownOps = 4;
  const auto name = [](std::string* out, const Step::Part& part) {
    absl::StrAppend(out, part.entry->name, "#", part.instance + 1);
  };
  const auto parts = absl::MakeConstSpan(step.parts);
  std::string names = absl::StrJoin(parts.first(std::min(parts.size(), kShownOps)), "+", name);
  if (parts.size() > kShownOps) absl::StrAppend(&names, "+", parts.size() - kShownOps, " more");
  return names;
}

// Who needs the most of what several steps use one after the other.
struct Largest {
  int64_t bytes = 0, fixed = 0;
  std::string what;

  void Take(int64_t others, bool is_bound, const Step* step, absl::string_view prefix) {
    if (!is_bound) fixed = std::max(fixed, others);
    if (others <= bytes) return;
    bytes = others;
    if (step != nullptr) what = absl::StrCat(prefix, NameOf(*step));
  }
};

class Walk {
 public:
  // `named` gathers terms for people.
  Walk(const Plan::Impl& plan, bool named, std::vector<SizedValue>* values, BufferNeeds* needs)
      : plan_(plan),
        named_(named),
        values_(*values),
        needs_(*needs),
        environment_{plan.classes, plan.limits} {
    environment_.is_for_sample = !named;
    values_.resize(plan_.flow.values.size());
    for (size_t v = 0; v < values_.size(); ++v) Set(v, plan_.flow.values[v].spec);
  }

  // The record's fields, for the program's sources; without them they are what the plan knows.
  void Begin(const Program& program, const Record* record) {
    if (record == nullptr || record->fields.size() != program.sources.size()) return;
    for (size_t i = 0; i < program.sources.size(); ++i) {
      const Tensor& field = record->fields[i];
      Set(static_cast<size_t>(program.sources[i]), field.spec);
      if (field.spec.layout == Layout::kEncoded)
        encoded_.emplace_back(program.sources[i], absl::MakeConstSpan(field.data, field.bytes()));
    }
  }

  void Add(const Program& program) {
    if (needs_.buffers.size() < program.buffers) needs_.buffers.resize(program.buffers);
    if (named_ && largest_.size() < program.buffers) largest_.resize(program.buffers);
    for (const Step& step : program.steps) {
      if (!AddStep(program, step)) return;  // this sample will fail there
    }
  }

  // What a cache keeps of the record, beside the buffers that it comes from.
  void AddCopies(const std::vector<int>& values) {
    for (int value : values) {
      const SizedValue& kept = values_[value];
      depends_on_record_ |= kept.is_bound;
      needs_.copies += kept.most;
      copies_.bytes += kept.most;
      if (!kept.is_bound) copies_.fixed += kept.most;
    }
    if (named_) copies_.what = "what the cache keeps";
  }

  const Size& largest_image() const { return largest_image_; }
  bool depends_on_record() const { return depends_on_record_; }

  std::vector<SampleMemory::Term> Terms() {
    std::vector<SampleMemory::Term> terms;
    const auto add = [&](const Largest& one) {
      if (one.bytes > 0) terms.push_back({one.what, one.bytes, one.fixed});
    };
    for (const Largest& buffer : largest_) add(buffer);
    for (const Largest& spare : spares_) add(spare);
    for (const Largest* one : {&scratch_, &decoders_, &rows_, &jpeg_, &copies_}) add(*one);
    return terms;
  }

  void TakeScratch(int64_t bytes, bool is_bound, const Step* step) {
    needs_.scratch = std::max(needs_.scratch, bytes);
    if (named_) scratch_.Take(bytes, is_bound, step, "scratch of ");
    if (named_ && step == nullptr && scratch_.bytes == bytes) scratch_.what = "batch ops";
  }

 private:
  void Set(size_t value, const TensorSpec& spec) {
    bool is_counted = false;
    values_[value] = {spec, MostBytes(spec, plan_.limits, &is_counted), !spec.IsStatic()};
  }

  // The bytes of the encoded field that a step decodes, if they are there.
  absl::Span<const std::byte> Encoded(int value) const {
    for (const auto& [source, bytes] : encoded_) {
      if (source == value) return bytes;
    }
    return {};
  }

  bool AddStep(const Program& program, const Step& step) {
    Specs current;
    ByteCounts most;  // of `current`
    bool reads_bound = false, reads_open_image = false;
    for (int value : step.in) {
      const SizedValue& in = values_[value];
      current.push_back(in.spec);
      most.push_back(in.most);
      reads_bound |= in.is_bound;
      reads_open_image |= IsImage(in.spec) && !in.spec.IsStatic();
    }
    int64_t decoders = 0, rows = 0, jpeg = 0;
    bool is_bound = false, moves = false, pads = false;
    // Pixels that the codec converts, whatever else it does with them.
    if (step.in.size() == 1 && IsImage(current[0]) && current[0].layout == Layout::kHWC &&
        current[0].dtype == DType::kUInt8 &&
        (step.parts.size() > 1 || step.parts[0].op->AsPixel() != nullptr)) {
      rows = CopiedRowBytes(MostSizeOf(current[0], plan_.limits));
      is_bound = !current[0].IsStatic();
    }
    int64_t image = 0;  // that point ops look at
    bool image_is_bound = false;
    OpMemory own;
    bool fails = false;
    absl::InlinedVector<bool, 4> is_open;  // by output
    bool is_of_limits = false;             // some of them, which are counted with Op::MostPixels
    for (const Step::Part& part : step.parts) {
      Specs made;
      if (const DecodeOp* decode = part.op->AsDecode()) {
        depends_on_record_ = true;
        const auto encoded = Encoded(step.in[0]);
        const int channels = ChannelsOf(decode->values());
        made.push_back(ImageSpec(DType::kUInt8, Layout::kHWC, -1, -1, channels));
        if (encoded.empty()) {
          decoders += MostDecodeBytes(plan_.limits.max_pixels);
          is_bound = true;
        } else {
          const auto need =
              NeedOfDecoding(encoded, decode->apply_orientation(), plan_.limits, decode->values());
          if (!need.ok()) return false;
          decoders += need->bytes;
          made[0] =
              ImageSpec(DType::kUInt8, Layout::kHWC, need->size.height, need->size.width, channels);
          if (static_cast<int64_t>(need->size.width) * need->size.height >
              static_cast<int64_t>(largest_image_.width) * largest_image_.height) {
            largest_image_ = need->size;
          }
        }
      } else {
        absl::StatusOr<Specs> planned = part.op->Plan(current, environment_);
        fails = !planned.ok();
        // What does not fit takes nothing, but for a combinator whose first ops may fit.
        if (fails && !part.entry->is_combinator()) return false;
        made = fails ? current : *std::move(planned);
        environment_.most_bytes = most;
        own = part.op->Memory(current, environment_);
      }
      is_open.clear();
      for (const TensorSpec& spec : made) is_open.push_back(!spec.IsStatic());
      if (step.needs_image && part.op->AsPoint() != nullptr && image == 0) {
        image = most[0];
        image_is_bound = !current[0].IsStatic();
      }
      environment_.most_bytes = most;
      most = MostBytesMade(*part.entry, *part.op, own, current, environment_, &made, &is_of_limits);
      decoders += own.codec_copies;
      jpeg = std::max(jpeg, own.codec_jpeg);
      // The codec does a run at once: what comes in is resampled, and the rest leaves out some of
      // it.
      const GeometryOp* const op = part.op->AsGeometry();
      if (own.codec_rows > 0 && (op == nullptr || op->resamples() || !moves)) {
        rows = std::max(rows, own.codec_rows);
        is_bound |= IsImage(current[0]) && !current[0].IsStatic();
      }
      moves |= op != nullptr;
      pads |= op != nullptr && op->pads();
      is_bound |= own.is_bound;
      current = std::move(made);
    }
    if (!step.views.empty())
      rows = std::max(rows, CopiedRowBytes(MostSizeOf(current[0], plan_.limits)));
    // The codec keeps what it has of each for the next image.
    needs_.decoders = std::max(needs_.decoders, decoders);
    needs_.rows = std::max(needs_.rows, rows);
    needs_.jpeg = std::max(needs_.jpeg, jpeg);
    needs_.calls.inputs = std::max(needs_.calls.inputs, own.call_inputs);
    needs_.calls.outputs = std::max(needs_.calls.outputs, own.call_outputs);
    needs_.calls.are_open |= own.calls_are_open;
    if (named_) decoders_.Take(decoders, is_bound, &step, "decoders of ");
    if (named_) rows_.Take(rows, is_bound, &step, "rows of ");
    if (named_) jpeg_.Take(jpeg, is_bound, &step, "rows of ");
    const bool is_combinator = step.parts.size() == 1 && step.parts[0].entry->is_combinator();
    if (is_combinator) is_bound = own.is_bound |= reads_bound;
    depends_on_record_ |= is_bound || own.scratch_is_bound;
    if (image > 0 && step.parts.size() > 1 && !step.image_is_output) {
      depends_on_record_ |= image_is_bound;
      TakeScratch(GrowingBuffer::Capacity(image), image_is_bound, &step);
    }
    if (own.scratch > 0) {
      depends_on_record_ |= reads_open_image;
      TakeScratch(GrowingBuffer::Capacity(own.scratch),
                  reads_open_image || own.is_bound || own.scratch_is_bound, &step);
    }
    TakeSpares(own.spares, own.is_bound, step);
    for (size_t i = 0; i < step.out.size(); ++i) {
      const bool bound =
          (is_combinator || is_open[i]) && (own.is_bound || reads_open_image || is_of_limits ||
                                            (reads_bound && i >= own.outputs.size()));
      values_[step.out[i]] = {current[i], most[i], bound};
      const int64_t wanted = GrowingBuffer::Capacity(most[i]);
      if (pads) TakeScratch(wanted, bound, &step);
      const int buffer = program.places[step.out[i]].buffer;
      if (buffer < 0) continue;
      depends_on_record_ |= bound;
      const auto number = static_cast<size_t>(buffer);
      needs_.buffers[number] = std::max(needs_.buffers[number], wanted);
      if (named_) largest_[number].Take(wanted, bound, &step, "");
    }
    return !fails;
  }

  void TakeSpares(const std::vector<int64_t>& spares, bool is_bound, const Step& step) {
    if (needs_.spares.size() < spares.size()) needs_.spares.resize(spares.size());
    if (named_ && spares_.size() < spares.size()) spares_.resize(spares.size());
    for (size_t i = 0; i < spares.size(); ++i) {
      if (spares[i] == 0) continue;
      depends_on_record_ |= is_bound;
      const int64_t wanted = GrowingBuffer::Capacity(spares[i]);
      needs_.spares[i] = std::max(needs_.spares[i], wanted);
      if (named_) spares_[i].Take(wanted, is_bound, &step, "between the ops of ");
    }
  }

  const Plan::Impl& plan_;
  const bool named_;
  std::vector<SizedValue>& values_;
  BufferNeeds& needs_;
  PlanEnvironment environment_;
  bool depends_on_record_ = false;
  Size largest_image_;
  std::vector<Largest> largest_;  // by buffer
  std::vector<Largest> spares_;   // by number
  Largest scratch_, decoders_, rows_, jpeg_, copies_;
  absl::InlinedVector<std::pair<int, absl::Span<const std::byte>>, 2> encoded_;  // by value
};

void AddWay(const Plan::Impl& plan, SampleWay way, const Record* fields, Walk* walk) {
  const Program& first = way == SampleWay::kWhole     ? plan.whole
                         : way == SampleWay::kKeeping ? plan.before
                                                      : plan.after;
  walk->Begin(first, fields);
  walk->Add(first);
  if (way != SampleWay::kKeeping) return;
  walk->AddCopies(plan.after.sources);
  walk->Add(plan.after);
}

}  // namespace

int64_t BufferNeeds::Total() const {
  int64_t total = scratch + codec() + copies;
  for (int64_t bytes : buffers) total += bytes;
  for (int64_t bytes : spares) total += bytes;
  return total;
}

std::string SampleMemory::Sum() const {
  std::string sum;
  int64_t rest = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (i >= kShownTerms && terms.size() > kShownTerms + 1) {
      rest += terms[i].bytes;
      continue;
    }
    absl::StrAppend(&sum, sum.empty() ? "" : " + ", terms[i].what,
                    terms[i].fixed < terms[i].bytes ? " at most " : " ",
                    FormatBytes(terms[i].bytes));
  }
  if (rest > 0)
    absl::StrAppend(&sum, " + ", terms.size() - kShownTerms, " more ", FormatBytes(rest));
  return sum.empty() ? "nothing" : absl::StrCat(sum, " = ", FormatBytes(most));
}

SampleMemory MemoryOf(const Plan::Impl& plan, SampleWay way) {
  BufferNeeds needs;
  std::vector<SizedValue> sizes;
  Walk walk(plan, /*named=*/true, &sizes, &needs);
  AddWay(plan, way, nullptr, &walk);
  if (plan.batch_scratch_bytes > 0)
    walk.TakeScratch(GrowingBuffer::Capacity(plan.batch_scratch_bytes), false, nullptr);
  SampleMemory memory;
  memory.depends_on_record = walk.depends_on_record();
  memory.calls = needs.calls;
  memory.calls.inputs = std::min(memory.calls.inputs, kMostCallBytes);
  memory.calls.outputs = std::min(memory.calls.outputs, kMostCallBytes);
  memory.terms = walk.Terms();
  std::stable_sort(memory.terms.begin(), memory.terms.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (const SampleMemory::Term& term : memory.terms) {
    memory.most += term.bytes;
    memory.fixed += term.fixed;
  }
  return memory;
}

SampleNeed NeedsOfSample(const Plan::Impl& plan, const Record& fields, SampleWay way,
                         std::vector<SizedValue>* sizes, BufferNeeds* needs) {
  needs->scratch =
      plan.batch_scratch_bytes > 0 ? GrowingBuffer::Capacity(plan.batch_scratch_bytes) : 0;
  needs->decoders = needs->rows = needs->jpeg = needs->copies = 0;
  needs->calls = {};
  std::fill(needs->buffers.begin(), needs->buffers.end(), 0);
  std::fill(needs->spares.begin(), needs->spares.end(), 0);
  Walk walk(plan, /*named=*/false, sizes, needs);
  AddWay(plan, way, &fields, &walk);
  return {needs->Total(), std::min(needs->calls.bytes(), kMostCallBytes), walk.largest_image()};
}

}  // namespace feedwater::server
