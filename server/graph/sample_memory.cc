// Walks a program's steps in order and adds up what they hold, in the buffers that memory_plan has
// given them.
#include "server/graph/sample_memory.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/units.h"
#include "server/codec/decode_need.h"
#include "server/graph/op_ports.h"
#include "server/graph/plan_impl.h"

namespace feedwater::server {
namespace {

constexpr size_t kShownTerms = 5;

std::string NameOf(const Step& step) {
  return absl::StrJoin(step.parts, "+", [](std::string* out, const Step::Part& part) {
    absl::StrAppend(out, part.entry->name, "#", part.instance + 1);
  });
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
  Walk(const Plan::Impl& plan, bool named, BufferNeeds* needs)
      : plan_(plan), named_(named), needs_(*needs), environment_{plan.classes, plan.limits} {
    environment_.is_for_sample = !named;
  }

  // The record's fields, for the program's sources; without them they are what the plan knows.
  void Begin(const Program& program, const Record* record, std::vector<TensorSpec>* specs) {
    specs->resize(plan_.flow.values.size());
    for (size_t v = 0; v < specs->size(); ++v) (*specs)[v] = plan_.flow.values[v].spec;
    if (record == nullptr || record->fields.size() != program.sources.size()) return;
    for (size_t i = 0; i < program.sources.size(); ++i) {
      const Tensor& field = record->fields[i];
      (*specs)[program.sources[i]] = field.spec;
      if (field.spec.layout == Layout::kEncoded)
        encoded_.emplace_back(program.sources[i], absl::MakeConstSpan(field.data, field.bytes()));
    }
  }

  void Add(const Program& program, std::vector<TensorSpec>* specs) {
    if (needs_.buffers.size() < program.buffers) needs_.buffers.resize(program.buffers);
    if (named_ && largest_.size() < program.buffers) largest_.resize(program.buffers);
    for (const Step& step : program.steps) {
      if (!AddStep(program, step, *specs)) return;  // this sample will fail there
    }
  }

  // What a cache keeps of the record, beside the buffers that it comes from.
  void AddCopies(const std::vector<int>& values, const std::vector<TensorSpec>& specs) {
    for (int value : values) {
      bool is_bound = false;
      const auto own = most_.find(value);
      const int64_t bytes =
          own != most_.end() ? own->second : MostBytes(specs[value], plan_.limits, &is_bound);
      needs_.copies += bytes;
      copies_.bytes += bytes;
      if (!is_bound) copies_.fixed += bytes;
    }
    if (named_) copies_.what = "what the cache keeps";
  }

  const Size& largest_image() const { return largest_image_; }
  bool depends_on_images() const { return depends_on_images_; }

  std::vector<SampleMemory::Term> Terms() {
    std::vector<SampleMemory::Term> terms;
    const auto add = [&](const Largest& one) {
      if (one.bytes > 0) terms.push_back({one.what, one.bytes, one.fixed});
    };
    for (const Largest& buffer : largest_) add(buffer);
    for (const Largest& spare : spares_) add(spare);
    for (const Largest* one : {&scratch_, &codec_, &copies_}) add(*one);
    return terms;
  }

  void TakeScratch(int64_t bytes, bool is_bound, const Step* step) {
    needs_.scratch = std::max(needs_.scratch, bytes);
    if (named_) scratch_.Take(bytes, is_bound, step, "scratch of ");
    if (named_ && step == nullptr && scratch_.bytes == bytes) scratch_.what = "batch ops";
  }

 private:
  // The bytes of the encoded field that a step decodes, if they are there.
  absl::Span<const std::byte> Encoded(int value) const {
    for (const auto& [source, bytes] : encoded_) {
      if (source == value) return bytes;
    }
    return {};
  }

  bool AddStep(const Program& program, const Step& step, std::vector<TensorSpec>& specs) {
    Specs current;
    for (int value : step.in) current.push_back(specs[value]);
    int64_t codec = 0, rows = 0;
    bool is_bound = false, pads = false;
    int64_t image = 0;  // that point ops look at
    bool image_is_bound = false;
    OpMemory own;
    absl::InlinedVector<bool, 4> is_open;  // by output: no image, and of open size
    for (const Step::Part& part : step.parts) {
      Specs made;
      if (part.op->AsDecode() != nullptr) {
        depends_on_images_ = true;
        const auto encoded = Encoded(step.in[0]);
        made.push_back(ImageSpec(DType::kUInt8, Layout::kHWC, -1, -1, 3));
        if (encoded.empty()) {
          codec += MostDecodeBytes(plan_.limits.max_pixels);
          is_bound = true;
        } else {
          const auto need =
              NeedOfDecoding(encoded, part.op->AsDecode()->apply_orientation(), plan_.limits);
          if (!need.ok()) return false;
          codec += need->bytes;
          made[0] = ImageSpec(DType::kUInt8, Layout::kHWC, need->size.height, need->size.width, 3);
          if (static_cast<int64_t>(need->size.width) * need->size.height >
              static_cast<int64_t>(largest_image_.width) * largest_image_.height) {
            largest_image_ = need->size;
          }
        }
      } else {
        absl::StatusOr<Specs> planned = part.op->Plan(current, environment_);
        if (!planned.ok()) return false;
        made = *std::move(planned);
        own = part.op->Memory(current, environment_);
        is_open.clear();
        for (const TensorSpec& spec : made) is_open.push_back(!spec.IsStatic() && !IsImage(spec));
        SettleRows(*part.entry, own, current, &made);
      }
      if (const GeometryOp* op = part.op->AsGeometry()) pads |= op->pads();
      codec += own.codec_copies;
      rows = std::max(rows, own.codec_rows);
      is_bound |= own.is_bound;
      if (step.needs_image && part.op->AsPoint() != nullptr && image == 0)
        image = MostBytes(current[0], plan_.limits, &image_is_bound);
      current = std::move(made);
    }
    codec += rows;
    needs_.codec = std::max(needs_.codec, codec);
    if (named_) codec_.Take(codec, is_bound, &step, "decoders and rows of ");
    const bool has_open_image = std::any_of(step.in.begin(), step.in.end(), [&](int value) {
      return IsImage(specs[value]) && !specs[value].IsStatic();
    });
    if (image > 0 && step.parts.size() > 1 && !step.image_is_output) {
      depends_on_images_ |= image_is_bound;
      TakeScratch(GrowingBuffer::Capacity(image), image_is_bound, &step);
    }
    if (own.scratch > 0) {
      depends_on_images_ |= has_open_image || own.scratch_is_bound;
      TakeScratch(GrowingBuffer::Capacity(own.scratch),
                  has_open_image || own.is_bound || own.scratch_is_bound, &step);
    }
    TakeSpares(own.spares, own.is_bound, step);
    for (size_t i = 0; i < step.out.size(); ++i) {
      bool bound = false;
      int64_t bytes = MostBytes(current[i], plan_.limits, &bound);
      const bool is_combinators = step.parts.size() == 1 && step.parts[0].entry->is_combinator();
      if (i < own.outputs.size() && (is_combinators || is_open[i])) {
        bytes = own.outputs[i];
        bound = has_open_image || own.is_bound;
        if (!bound && !is_combinators) most_[step.out[i]] = bytes;
      }
      depends_on_images_ |= bound;
      specs[step.out[i]] = current[i];
      if (pads) TakeScratch(GrowingBuffer::Capacity(bytes), bound, &step);
      const int buffer = program.places[step.out[i]].buffer;
      if (buffer < 0) continue;
      const auto number = static_cast<size_t>(buffer);
      const int64_t wanted = GrowingBuffer::Capacity(bytes);
      needs_.buffers[number] = std::max(needs_.buffers[number], wanted);
      if (named_) largest_[number].Take(wanted, bound, &step, "");
    }
    return true;
  }

  void TakeSpares(const std::vector<int64_t>& spares, bool is_bound, const Step& step) {
    if (needs_.spares.size() < spares.size()) needs_.spares.resize(spares.size());
    if (named_ && spares_.size() < spares.size()) spares_.resize(spares.size());
    for (size_t i = 0; i < spares.size(); ++i) {
      if (spares[i] == 0) continue;
      depends_on_images_ |= is_bound;
      const int64_t wanted = GrowingBuffer::Capacity(spares[i]);
      needs_.spares[i] = std::max(needs_.spares[i], wanted);
      if (named_) spares_[i].Take(wanted, is_bound, &step, "between the ops of ");
    }
  }

  const Plan::Impl& plan_;
  const bool named_;
  BufferNeeds& needs_;
  PlanEnvironment environment_;
  bool depends_on_images_ = false;
  Size largest_image_;
  absl::flat_hash_map<int, int64_t> most_;  // bytes of values whose size ops leave open
  std::vector<Largest> largest_;            // by buffer
  std::vector<Largest> spares_;             // by number
  Largest scratch_, codec_, copies_;
  absl::InlinedVector<std::pair<int, absl::Span<const std::byte>>, 2> encoded_;  // by value
};

void AddWay(const Plan::Impl& plan, SampleWay way, const Record* fields,
            std::vector<TensorSpec>* specs, Walk* walk) {
  const Program& first = way == SampleWay::kWhole     ? plan.whole
                         : way == SampleWay::kKeeping ? plan.before
                                                      : plan.after;
  walk->Begin(first, fields, specs);
  walk->Add(first, specs);
  if (way != SampleWay::kKeeping) return;
  walk->AddCopies(plan.after.sources, *specs);
  walk->Add(plan.after, specs);
}

}  // namespace

int64_t BufferNeeds::Total() const {
  int64_t total = scratch + codec + copies;
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
  Walk walk(plan, /*named=*/true, &needs);
  std::vector<TensorSpec> specs;
  AddWay(plan, way, nullptr, &specs, &walk);
  if (plan.batch_scratch_bytes > 0) walk.TakeScratch(plan.batch_scratch_bytes, false, nullptr);
  SampleMemory memory;
  memory.depends_on_images = walk.depends_on_images();
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
                         std::vector<TensorSpec>* specs, BufferNeeds* needs) {
  needs->scratch = plan.batch_scratch_bytes;
  needs->codec = needs->copies = 0;
  std::fill(needs->buffers.begin(), needs->buffers.end(), 0);
  std::fill(needs->spares.begin(), needs->spares.end(), 0);
  Walk walk(plan, /*named=*/false, needs);
  AddWay(plan, way, &fields, specs, &walk);
  return {needs->Total(), walk.largest_image()};
}

}  // namespace feedwater::server
