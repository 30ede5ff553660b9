#include "server/source/mix.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/units.h"
#include "server/source/digest.h"
#include "server/source/format.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxDigits = 9;    // of a weight, before its point and behind it
constexpr int64_t kRounded = 1000;  // what weights are rounded to in advice, in all
constexpr char kStops[] = "all, first, or a number of samples such as 1000000";

std::string WordOf(const YamlNode& map, const char* key) {
  const YamlNode* node = map.Find(key);
  return node != nullptr && node->is_scalar() ? node->scalar : "";
}

// A positive decimal as its digits: 0.25 is 25 and 2.
struct Decimal {
  int64_t digits = 0;
  size_t behind_point = 0;
};

absl::StatusOr<Decimal> ReadWeight(const YamlNode& node) {
  const auto wrong = [&](absl::string_view what) {
    return node.Error(
        absl::StrCat("'weight' must be a positive number such as 3 or 0.25, with at "
                     "most ",
                     kMaxDigits, " digits before and behind its point, ", what));
  };
  if (!node.is_scalar()) return wrong(absl::StrCat("not ", node.KindName()));
  const absl::string_view text = node.scalar;
  const size_t point = std::min(text.find('.'), text.size());
  const absl::string_view whole = text.substr(0, point);
  const absl::string_view part = point < text.size() ? text.substr(point + 1) : "";
  const auto are_digits = [](absl::string_view word) {
    return word.size() <= kMaxDigits &&
           absl::c_all_of(word, [](char c) { return absl::ascii_isdigit(c); });
  };
  Decimal weight;
  weight.behind_point = part.size();
  const bool is_number = !whole.empty() && are_digits(whole) && are_digits(part) &&
                         (point == text.size() || !part.empty()) &&
                         absl::SimpleAtoi(absl::StrCat(whole, part), &weight.digits);
  if (!is_number || weight.digits == 0) return wrong(absl::StrCat("not ", node.Found()));
  return weight;
}

// The weights as whole numbers that nothing divides all of.
absl::Status SetWeights(const YamlNode& list, const std::vector<Decimal>& weights, MixSpec* spec) {
  size_t behind_point = 0;
  for (const Decimal& weight : weights) behind_point = std::max(behind_point, weight.behind_point);
  std::vector<int64_t> scaled;  // each below 10^18
  int64_t divisor = 0;
  for (const Decimal& weight : weights) {
    int64_t value = weight.digits;
    for (size_t i = weight.behind_point; i < behind_point; ++i) value *= 10;
    scaled.push_back(value);
    divisor = std::gcd(divisor, value);
  }
  double sum = 0;
  for (int64_t& value : scaled) sum += static_cast<double>(value /= divisor);
  if (sum > static_cast<double>(kMaxMixWeights)) {
    std::vector<int64_t> rounded;
    for (const int64_t value : scaled) {
      const double share = static_cast<double>(value) / sum;
      rounded.push_back(
          std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(kRounded) + 0.5)));
    }
    return list.Error(absl::StrCat("the weights are ", absl::StrJoin(scaled, " : "),
                                   " in whole numbers, which add up to more than ", kMaxMixWeights,
                                   ": shares are kept exactly, over so many samples at most. Cure: "
                                   "round them, for example to ",
                                   absl::StrJoin(rounded, " : ")));
  }
  for (size_t i = 0; i < scaled.size(); ++i) spec->sources[i].weight = scaled[i];
  return absl::OkStatus();
}

absl::Status ReadStop(const YamlNode& node, MixSpec* spec) {
  const absl::Status wrong =
      node.Error(absl::StrCat("'stop' must be ", kStops, ", not ", node.Found()));
  if (!node.is_scalar()) return wrong;
  if (node.scalar == "all" || node.scalar == "first") {
    spec->stop = node.scalar == "all" ? DatasetMix::Stop::kAll : DatasetMix::Stop::kFirst;
    return absl::OkStatus();
  }
  spec->stop = DatasetMix::Stop::kSamples;
  const bool is_number = absl::c_all_of(node.scalar, [](char c) { return absl::ascii_isdigit(c); });
  if (!is_number || !absl::SimpleAtoi(node.scalar, &spec->samples) || spec->samples < 1 ||
      spec->samples > int64_t{1} << 62) {
    return wrong;
  }
  return absl::OkStatus();
}

absl::StatusOr<MixSpec::Source> ReadSource(const YamlNode& node, size_t number,
                                           std::vector<Decimal>* weights) {
  if (!node.is_map()) {
    return node.Error(
        absl::StrCat("a source of 'mix' must be a map such as {format: image_folder, root: NAME, "
                     "path: train, weight: 1}, not ",
                     node.Found()));
  }
  if (const YamlNode* inner = node.Find("mix")) {
    return inner->Error(
        "a mix inside a mix is refused: list its sources in the outer one, with weights that are "
        "multiplied");
  }
  MixSpec::Source source;
  source.dataset = node;
  source.dataset.entries.clear();
  weights->push_back({1, 0});
  for (const auto& [key, value] : node.entries) {
    if (key.scalar == "weight") {
      FW_ASSIGN_OR_RETURN(weights->back(), ReadWeight(value));
    } else {
      source.dataset.entries.emplace_back(key, value);
    }
  }
  const YamlNode* format = node.Find("format");
  if (format == nullptr)
    return node.Error("a source of 'mix' needs 'format', such as image_folder");
  if (!format->is_scalar())
    return format->Error(absl::StrCat("'format' must be a word, not ", format->KindName()));
  // A format that nobody knows is refused where it is opened.
  if (const FormatEntry* entry = Registry<FormatEntry>::Get().Find(format->scalar)) {
    std::vector<ParamInfo> known = DatasetParams();
    known.insert(known.end(), entry->params.begin(), entry->params.end());
    known.insert(known.end(), MixSourceParams().begin(), MixSourceParams().end());
    FW_RETURN_IF_ERROR(CheckKeys(
        node, known, absl::StrCat("a source of 'mix' with format '", format->scalar, "'")));
  }
  source.format = format->scalar;
  source.place = DatasetLocation::JoinPath(WordOf(node, "root"), WordOf(node, "path"));
  source.name = absl::StrCat("source ", number, " (", Printable(source.format), " in ",
                             Printable(source.place), ")");
  return source;
}

const FieldSpec* FindField(const std::vector<FieldSpec>& fields, absl::string_view name) {
  const auto found =
      absl::c_find_if(fields, [&](const FieldSpec& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

absl::Status CompareFields(const MixSpec::Source& a, const std::vector<FieldSpec>& a_fields,
                           const MixSpec::Source& b, const std::vector<FieldSpec>& b_fields) {
  const auto differ = [&](absl::string_view what) {
    return b.dataset.Error(absl::StrCat(
        "the sources of a mix must have the same fields: ", what,
        ". Cure: `fields:` of a source chooses its fields, their names, dtypes and shapes"));
  };
  for (const FieldSpec& field : a_fields) {
    const FieldSpec* other = FindField(b_fields, field.name);
    if (other == nullptr) {
      return differ(
          absl::StrCat(a.name, " has '", Printable(field.name), "', and ", b.name, " has not"));
    }
    if (other->spec == field.spec) continue;
    return differ(absl::StrCat("'", Printable(field.name), "' is ", field.spec.ToString(), " in ",
                               a.name, ", and ", other->spec.ToString(), " in ", b.name));
  }
  for (const FieldSpec& field : b_fields) {
    if (FindField(a_fields, field.name) != nullptr) continue;
    return differ(
        absl::StrCat(b.name, " has '", Printable(field.name), "', and ", a.name, " has not"));
  }
  return absl::OkStatus();
}

absl::Status CheckFreeField(const MixSpec::Source& source, const std::vector<FieldSpec>& fields) {
  if (FindField(fields, kDatasetIdField) == nullptr) return absl::OkStatus();
  return source.dataset.Error(
      absl::StrCat(source.name, " has a field '", kDatasetIdField,
                   "', which a mix has itself, for the number of the source. Cure: give it another "
                   "name with `fields:`"));
}

absl::Status CompareClasses(const MixSpec::Source& a, const std::vector<std::string>& a_classes,
                            const MixSpec::Source& b, const std::vector<std::string>& b_classes) {
  if (a_classes == b_classes) return absl::OkStatus();
  const auto differ = [&](absl::string_view what) {
    return b.dataset.Error(absl::StrCat(
        "the sources of a mix must have the same classes, in the same order: ", what,
        ". Cure: the same classes in both (`classes:` or `class_file:` where the format has them), "
        "or none"));
  };
  if (a_classes.size() != b_classes.size()) {
    return differ(absl::StrCat(
        a.name, " has ", FormatCount(static_cast<int64_t>(a_classes.size()), "class"), ", and ",
        b.name, " has ", FormatCount(static_cast<int64_t>(b_classes.size()), "class")));
  }
  const size_t first = static_cast<size_t>(
      std::mismatch(a_classes.begin(), a_classes.end(), b_classes.begin()).first -
      a_classes.begin());
  return differ(absl::StrCat("class ", first, " is '", Printable(a_classes[first]), "' in ", a.name,
                             ", and '", Printable(b_classes[first]), "' in ", b.name));
}

FieldSpec DatasetIdField() {
  FieldSpec field;
  field.name = kDatasetIdField;
  field.spec.dtype = DType::kInt64;
  field.doc = "number of the mix's source that the record is of, from 0";
  return field;
}

class MixDataset final : public Dataset {
 public:
  MixDataset(const MixSpec& spec, std::vector<std::shared_ptr<const Dataset>> sources)
      : sources_(std::move(sources)), ids_(sources_.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
    fields_ = sources_[0]->fields();
    Digest digest;
    digest.Add("mix");
    std::vector<std::string> notes;
    for (size_t i = 0; i < sources_.size(); ++i) {
      const Dataset& source = *sources_[i];
      const MixSpec::Source& of = spec.sources[i];
      mix_.sources.push_back(
          {of.name, of.format, of.place, size_, source.size(), of.weight, &source.shard_starts()});
      first_object_.push_back(objects_);
      std::vector<size_t> order;
      for (const FieldSpec& field : fields_) {
        order.push_back(
            static_cast<size_t>(FindField(source.fields(), field.name) - source.fields().data()));
      }
      field_order_.push_back(absl::c_is_sorted(order) ? std::vector<size_t>() : std::move(order));
      shard_starts_.push_back(size_);
      for (const int64_t start : source.shard_starts()) {
        if (start > 0) shard_starts_.push_back(size_ + start);
      }
      size_ += source.size();
      objects_ += source.objects();
      digest.Add(source.digest());
      digest.Add(static_cast<uint64_t>(of.weight));
      if (!source.notes().empty()) notes.push_back(absl::StrCat(of.name, ": ", source.notes()));
      for (const Root* root : source.roots()) {
        if (!absl::c_linear_search(roots_, root)) roots_.push_back(root);
      }
    }
    mix_.stop = spec.stop;
    mix_.samples = spec.samples;
    digest.Add(static_cast<uint64_t>(spec.stop));
    digest.Add(static_cast<uint64_t>(spec.samples));
    digest_ = digest.Hex();
    notes_ = absl::StrJoin(notes, "; ");
    fields_.push_back(DatasetIdField());
  }

  int64_t size() const override { return size_; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return sources_[0]->classes(); }
  const std::string& digest() const override { return digest_; }
  const Root& root() const override { return sources_[0]->root(); }
  std::vector<const Root*> roots() const override { return roots_; }
  const DatasetMix* mix() const override { return &mix_; }
  int64_t objects() const override { return objects_; }
  const std::vector<int64_t>& shard_starts() const override { return shard_starts_; }
  const std::string& notes() const override { return notes_; }

  const Root& RootOf(uint32_t object) const override {
    const size_t i = HolderOf(object);
    return sources_[i]->RootOf(Within(i, object));
  }
  std::string ObjectPath(uint32_t object) const override {
    const size_t i = HolderOf(object);
    return sources_[i]->ObjectPath(Within(i, object));
  }
  int64_t ObjectBytes(uint32_t object) const override {
    const size_t i = HolderOf(object);
    return sources_[i]->ObjectBytes(Within(i, object));
  }
  std::string PathText(uint32_t object) const override {
    const size_t i = HolderOf(object);
    return absl::StrCat(sources_[i]->root().name(), "/", sources_[i]->PathText(Within(i, object)));
  }

  void Extents(int64_t record, std::vector<Extent>* extents) const override {
    const size_t i = mix_.SourceOf(record);
    sources_[i]->Extents(record - mix_.sources[i].first, extents);
    for (Extent& extent : *extents) extent.object += static_cast<uint32_t>(first_object_[i]);
  }

  absl::Status Parse(int64_t record, absl::Span<const absl::Span<const std::byte>> bytes,
                     Record* out) const override {
    const size_t i = mix_.SourceOf(record);
    FW_RETURN_IF_ERROR(sources_[i]->Parse(record - mix_.sources[i].first, bytes, out));
    if (const std::vector<size_t>& order = field_order_[i]; !order.empty()) {
      std::vector<Tensor> fields;
      fields.reserve(fields_.size());
      for (const size_t field : order) fields.push_back(std::move(out->fields[field]));
      out->fields = std::move(fields);
    }
    // Nobody writes into the fields of a record; this one lives as long as the dataset.
    auto* const id = const_cast<int64_t*>(&ids_[i]);
    out->fields.push_back({fields_.back().spec, reinterpret_cast<std::byte*>(id)});
    return absl::OkStatus();
  }

  int64_t LabelOf(int64_t record) const override {
    const size_t i = mix_.SourceOf(record);
    return sources_[i]->LabelOf(record - mix_.sources[i].first);
  }

  int64_t memory_bytes() const override {
    auto bytes = static_cast<int64_t>(shard_starts_.size() * sizeof(int64_t));
    for (const auto& source : sources_) bytes += source->memory_bytes();
    return bytes;
  }

  absl::Status LookAgain(Reach reach) const override {
    // At all of them: one that cannot be looked at must not hide that another one has changed.
    absl::Status not_told;
    for (size_t i = 0; i < sources_.size(); ++i) {
      const absl::Status same = Annotate(sources_[i]->LookAgain(reach), mix_.sources[i].name);
      if (absl::IsFailedPrecondition(same)) return same;
      // What can be looked at later, or elsewhere, goes before what is refused for good.
      if (not_told.ok() || (!same.ok() && (IsElsewhere(same) || IsTransient(same))))
        not_told = same;
    }
    return not_told;
  }

  Dependencies dependencies(int64_t as_of_ns) const override {
    constexpr size_t kVersionSize = 2;  // of a source's identity, at its beginning
    Dependencies all;
    Digest identity;
    bool is_known = true;
    std::string version;
    for (const auto& source : sources_) {
      Dependencies one = source->dependencies(as_of_ns);
      is_known = is_known && !one.identity.empty();
      version = one.identity.substr(0, kVersionSize);
      identity.Add(one.identity);
      if (one.newest_file_ns > all.newest_file_ns) {
        all.newest_file_ns = one.newest_file_ns;
        all.newest_file = std::move(one.newest_file);
      }
      all.later_ns.insert(all.later_ns.end(), one.later_ns.begin(), one.later_ns.end());
    }
    absl::c_sort(all.later_ns);
    if (is_known) all.identity = absl::StrCat(version, identity.Hex());
    return all;
  }

  void MarkOutOfDate(uint32_t object) const override {
    const size_t i = HolderOf(object);
    sources_[i]->MarkOutOfDate(Within(i, object));
  }

 private:
  // The source that has a file.
  size_t HolderOf(uint32_t object) const {
    const auto after = absl::c_upper_bound(first_object_, int64_t{object});
    return static_cast<size_t>(after - first_object_.begin()) - 1;
  }
  uint32_t Within(size_t source, uint32_t object) const {
    return object - static_cast<uint32_t>(first_object_[source]);
  }

  const std::vector<std::shared_ptr<const Dataset>> sources_;
  std::vector<int64_t> ids_;
  DatasetMix mix_;
  std::vector<FieldSpec> fields_;                 // of the first source, and dataset_id
  std::vector<std::vector<size_t>> field_order_;  // by source; empty: as the first one's
  std::vector<int64_t> first_object_;             // by source
  std::vector<int64_t> shard_starts_;
  std::vector<const Root*> roots_;
  int64_t size_ = 0, objects_ = 0;
  std::string digest_, notes_;
};

}  // namespace

size_t DatasetMix::SourceOf(int64_t record) const {
  const auto after =
      std::upper_bound(sources.begin(), sources.end(), record,
                       [](int64_t wanted, const Source& source) { return wanted < source.first; });
  return static_cast<size_t>(after - sources.begin()) - 1;
}

const std::vector<ParamInfo>& MixParams() {
  static const auto* params = [] {
    auto* list = new std::vector<ParamInfo>(2);
    (*list)[0].name = "mix";
    (*list)[0].type = "list of datasets";
    (*list)[0].json_type = R"({"type":"array"})";
    (*list)[0].required = true;
    (*list)[0].doc = absl::StrCat(
        "Several datasets in one epoch, in exact shares: 1 to ", kMaxMixSources,
        " sources, each a `dataset:` map with a `weight`. They have the same fields and classes.");
    (*list)[1].name = "stop";
    (*list)[1].type = "word or integer";
    (*list)[1].json_type = R"({"anyOf":[{"enum":["all","first"]},{"type":"integer","minimum":1}]})";
    (*list)[1].default_text = "all";
    (*list)[1].doc =
        "Where an epoch ends. all: when every source has given as many samples as it has records. "
        "first: when one has. A number: after so many samples.";
    return list;
  }();
  return *params;
}

const std::vector<ParamInfo>& MixSourceParams() {
  static const auto* params = [] {
    auto* list = new std::vector<ParamInfo>(1);
    (*list)[0].name = "weight";
    (*list)[0].type = "number";
    (*list)[0].json_type = R"({"type":"number","exclusiveMinimum":0})";
    (*list)[0].default_text = "1";
    (*list)[0].doc = absl::StrCat(
        "Share of the source, in comparison with the other sources' weights: a positive number "
        "with at most ",
        kMaxDigits,
        " digits before and behind its point. As whole numbers without a common "
        "divisor all weights together are at most ",
        kMaxMixWeights, ".");
    return list;
  }();
  return *params;
}

absl::StatusOr<MixSpec> ReadMix(const YamlNode& node) {
  if (const YamlNode* format = node.Find("format")) {
    return format->Error(
        "'dataset' has either 'format' or 'mix': in a mix each source has a format of its own");
  }
  FW_RETURN_IF_ERROR(CheckKeys(node, MixParams(), "a dataset with 'mix'"));
  const YamlNode& list = *node.Find("mix");
  if (!list.is_list() || list.items.empty() || list.items.size() > kMaxMixSources) {
    return list.Error(absl::StrCat(
        "'mix' must be a list of 1 to ", kMaxMixSources,
        " datasets such as [{format: webdataset, root: a, weight: 3}, {format: webdataset, root: "
        "b, weight: 1}], not ",
        list.is_list() ? absl::StrCat("one of ", list.items.size()) : list.Found()));
  }
  MixSpec spec;
  std::vector<Decimal> weights;
  for (size_t i = 0; i < list.items.size(); ++i) {
    FW_ASSIGN_OR_RETURN(MixSpec::Source source, ReadSource(list.items[i], i, &weights));
    spec.sources.push_back(std::move(source));
  }
  FW_RETURN_IF_ERROR(SetWeights(list, weights, &spec));
  if (const YamlNode* stop = node.Find("stop")) FW_RETURN_IF_ERROR(ReadStop(*stop, &spec));
  return spec;
}

absl::StatusOr<std::optional<std::vector<FieldSpec>>> FieldsOfMix(
    const MixSpec& spec, const std::vector<std::optional<std::vector<FieldSpec>>>& fields) {
  std::optional<size_t> first;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!fields[i]) continue;
    FW_RETURN_IF_ERROR(CheckFreeField(spec.sources[i], *fields[i]));
    if (first) {
      FW_RETURN_IF_ERROR(
          CompareFields(spec.sources[*first], *fields[*first], spec.sources[i], *fields[i]));
    } else {
      first = i;
    }
  }
  if (!first) return std::nullopt;
  std::vector<FieldSpec> all = *fields[*first];
  all.push_back(DatasetIdField());
  return std::make_optional(std::move(all));
}

absl::StatusOr<std::shared_ptr<const Dataset>> MixOf(
    const MixSpec& spec, std::vector<std::shared_ptr<const Dataset>> sources) {
  int64_t records = 0, objects = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Dataset& source = *sources[i];
    FW_RETURN_IF_ERROR(CheckFreeField(spec.sources[i], source.fields()));
    if (i > 0) {
      FW_RETURN_IF_ERROR(
          CompareFields(spec.sources[0], sources[0]->fields(), spec.sources[i], source.fields()));
      FW_RETURN_IF_ERROR(CompareClasses(spec.sources[0], sources[0]->classes(), spec.sources[i],
                                        source.classes()));
    }
    if (__builtin_add_overflow(records, source.size(), &records) ||
        __builtin_add_overflow(objects, source.objects(), &objects) ||
        objects > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the sources of the mix up to ", spec.sources[i].name,
                       " have more than 2^32 - 1 files, or too many records"));
    }
  }
  return std::make_shared<const MixDataset>(spec, std::move(sources));
}

}  // namespace feedwater::server
