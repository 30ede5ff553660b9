#include "server/graph/op_schema.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/base/units.h"

namespace feedwater::server {

const char* RandomnessText(Randomness randomness) {
  switch (randomness) {
    case Randomness::kNone:
      return "none";
    case Randomness::kPerSample:
      return "per sample";
    case Randomness::kPerBatch:
      return "per batch";
  }
  return "none";
}

const char* FusionText(Fusion fusion) {
  switch (fusion) {
    case Fusion::kNone:
      return "no";
    case Fusion::kDecode:
      return "yes, with the crops, resizes, flips, colour ops and pixel ops that follow it "
             "directly";
    case Fusion::kGeometry:
      return "yes, with decode before it and with crops, resizes, flips, colour ops and pixel ops "
             "on "
             "both sides";
    case Fusion::kPoint:
      return "yes, with decode, crops, resizes and flips before it, and with colour ops and pixel "
             "ops on both sides";
    case Fusion::kCombinator:
      return "where all of its ops are colour ops on one image: as these";
    case Fusion::kPixel:
      return "yes, with decode, crops, resizes, flips, colour ops and pixel ops before it";
  }
  return "no";
}

namespace {

std::string PortText(const Port& port) {
  if (port.layouts.size() == 1 && port.layouts[0] == Layout::kEncoded) return "an encoded file";
  std::vector<std::string> dtypes, layouts;
  for (DType dtype : port.dtypes) dtypes.emplace_back(DTypeName(dtype));
  for (Layout layout : port.layouts) layouts.emplace_back(LayoutName(layout));
  std::string text = dtypes.empty() ? "any dtype" : absl::StrJoin(dtypes, " or ");
  if (!layouts.empty()) absl::StrAppend(&text, ", ", absl::StrJoin(layouts, " or "));
  return text;
}

}  // namespace

bool OpEntry::DecodesFiles() const {
  return std::any_of(inputs.begin(), inputs.end(), [&](const Port& port) {
    const bool takes_files =
        std::find(port.layouts.begin(), port.layouts.end(), Layout::kEncoded) != port.layouts.end();
    return takes_files && (port.layouts.size() == 1 || !plugin.empty());
  });
}

std::string OpEntry::InputText(size_t i) const {
  return PortText(inputs[is_repeated || is_free ? 0 : i]);
}

std::string OpEntry::OutputText(size_t i) const {
  const Port& port = outputs[is_repeated || is_free ? 0 : i];
  return port.layouts.empty() && port.dtypes.empty() ? "" : PortText(port);
}

namespace {

// Letters and digits in lower case: RandomColorAdjust and random_color_adjust are one name.
std::string Bare(absl::string_view name) {
  std::string bare;
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)))
      bare.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
  }
  return bare;
}

std::string Possessive(const std::string& name) {
  return absl::StrCat(name, absl::EndsWith(name, "s") ? "'" : "'s");
}

}  // namespace

std::string OtherNamesText(const OpEntry& op) {
  std::string text;
  for (const bool is_nearest : {false, true}) {
    const char* before = text.empty() ? "" : "; ";
    bool is_first = true;
    for (const OtherName& other : op.other_names) {
      if (other.is_nearest != is_nearest) continue;
      absl::StrAppend(&text, is_first ? before : ", ", is_first && is_nearest ? "nearest to " : "",
                      "`", other.name, "` (", other.library, ")");
      is_first = false;
    }
  }
  return text;
}

std::string OpOfOtherName::Text() const {
  // What is random here may be what that library does to every sample.
  const bool is_by_chance =
      !absl::StartsWith(Bare(other->name), "random") &&
      std::any_of(op->params.begin(), op->params.end(), [](const ParamInfo& param) {
        return param.name == "p" && !param.required && param.default_text != "1.0";
      });
  const char* const always = is_by_chance ? " (with `p: 1` it is done to every sample)" : "";
  if (other->is_nearest) {
    return absl::StrCat(Possessive(other->library), " '", other->name, "' has no counterpart; '",
                        op->name, "' is nearest", always);
  }
  return absl::StrCat("'", other->name, "' is ", Possessive(other->library), " name of '", op->name,
                      "'", always);
}

std::vector<OpOfOtherName> FindByOtherName(absl::string_view name) {
  std::vector<OpOfOtherName> same, nearest;
  const std::string bare = Bare(name);
  for (const std::string& known : Registry<OpEntry>::Get().Names()) {
    const OpEntry* const op = Registry<OpEntry>::Get().Find(known);
    for (const OtherName& other : op->other_names) {
      if (Bare(other.name) == bare) (other.is_nearest ? nearest : same).push_back({op, &other});
    }
  }
  return same.empty() ? nearest : same;
}

namespace {

// Words of other loaders and of other sections that people look for among the ops.
struct SectionWord {
  absl::string_view word, is;
};
constexpr absl::string_view kBuckets =
    "rows of differing number come without padding by `outputs: [{NAME: {max_rows: 100}}]`, and "
    "`pad(rows=[32, 64, 128])` of the Python client fills them up to the smallest of these";
constexpr SectionWord kSectionWords[] = {
    {"shuffle", "it is `sampler: {shuffle: full}`"},
    {"seed", "it is `sampler: {seed: 7}`"},
    {"drop_last", "it is `sampler: {last: drop}`"},
    {"batch", "it is `batch: {size: 32}`"},
    {"collate",
     "samples become a batch by `batch: {size: 32}`, and rows of differing number are "
     "filled up by `outputs: [{NAME: {pad_to: 100}}]`"},
    {"collate_fn",
     "samples become a batch by `batch: {size: 32}`, and rows of differing number "
     "are filled up by `outputs: [{NAME: {pad_to: 100}}]`"},
    {"pad_to", "it is `outputs: [{NAME: {pad_to: 100}}]`"},
    {"padded_batch", "it is `batch: {size: 32}` and `outputs: [{NAME: {pad_to: 100}}]`"},
    {"bucket", kBuckets},
    {"bucket_by_sequence_length", kBuckets},
    {"max_rows", "it is `outputs: [{NAME: {max_rows: 100}}]`"},
    {"prefetch", "batches are made ahead of the trainer always, as many as the loader has `slots`"},
    {"cache", "it is `cache: {kind: decoded}`"}};

// What the registry says, and how to see all names where it lists a part of them.
std::string NotKnown(absl::string_view name) {
  std::string text = Registry<OpEntry>::Get().Unknown(name);
  if (absl::EndsWith(text, " more")) absl::StrAppend(&text, "; `feedwater describe op` lists all");
  return text;
}

}  // namespace

std::string UnknownOp(absl::string_view name) {
  constexpr size_t kMostMeant = 4;  // `random` is no hint
  const std::vector<OpOfOtherName> found = FindByOtherName(name);
  if (!found.empty()) {
    return absl::StrCat("unknown op '", Printable(name), "': ", found[0].Text(),
                        "; `feedwater describe op ", found[0].op->name, "` explains it");
  }
  const absl::string_view word =
      absl::StripTrailingAsciiWhitespace(name.substr(0, name.find('{')));  // `decode {in: data}`
  if (word.size() < name.size() && Registry<OpEntry>::Get().Find(std::string(word)) != nullptr)
    return absl::StrCat("':' is missing behind '", word, "': write '", word, ": {'");
  for (const SectionWord& section : kSectionWords) {
    if (name == section.word) return absl::StrCat("'", name, "' is no op: ", section.is);
  }
  std::vector<std::string> names = Registry<OpEntry>::Get().Names();
  if (!DidYouMean(name, names).empty()) return NotKnown(name);
  std::vector<std::string> others;
  for (const std::string& known : names) {
    for (const OtherName& other : Registry<OpEntry>::Get().Find(known)->other_names)
      others.push_back(other.name);
  }
  const std::string near = DidYouMean(name, others);
  if (near.empty()) {
    std::vector<std::string> with;  // `noise`: gaussian_noise
    for (const std::string& known : names) {
      const std::vector<absl::string_view> words = absl::StrSplit(known, '_');
      if (absl::c_linear_search(words, name)) with.push_back(absl::StrCat("'", known, "'"));
    }
    if (with.empty() || with.size() > kMostMeant) return NotKnown(name);
    return absl::StrCat("unknown op '", Printable(name), "', did you mean ",
                        absl::StrJoin(with, " or "), "?");
  }
  for (const std::string& other : others) {
    if (!absl::StrContains(near, absl::StrCat("'", other, "'"))) continue;
    return absl::StrCat("unknown op '", Printable(name), "'", near, " ",
                        FindByOtherName(other)[0].Text());
  }
  return NotKnown(name);
}

absl::StatusOr<std::unique_ptr<Op>> MakeOp(const OpEntry& entry, const YamlNode& params,
                                           const OpFiles& files, absl::Span<const std::string> in,
                                           int64_t* tables) {
  FW_ASSIGN_OR_RETURN(std::unique_ptr<Op> op, entry.is_combinator() ? entry.create_over(params, in)
                                                                    : entry.create(params, files));
  *tables += op->TableBytes();
  if (*tables <= kMostTableBytes) return op;
  return params.Error(absl::StrCat(
      "op '", entry.name, "': with it the ops of the pipeline keep tables of ",
      FormatBytes(*tables), ", over ", FormatBytes(kMostTableBytes),
      "; cure: fewer ops such as resample between rates without a large common divisor, or mfcc "
      "with a large n_fft or n_mels"));
}

}  // namespace feedwater::server
