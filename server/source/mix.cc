#include "server/source/mix.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/registry.h"
#include "server/base/units.h"
#include "server/base/yaml_word.h"
#include "server/source/digest.h"
#include "server/source/format.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

const FieldSpec* FindField(const std::vector<FieldSpec>& fields, absl::string_view name) {
  const auto found =
      absl::c_find_if(fields, [&](const FieldSpec& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

// Formats whose labels follow from names: a longer list of classes changes numbers, not meanings.
constexpr absl::string_view kNumberNames[] = {"image_folder", "voc"};
constexpr size_t kPrintedClasses = 100;

bool Takes(const MixSpec::Source& source, absl::string_view key) {
  const FormatEntry* format = Registry<FormatEntry>::Get().Find(source.format);
  return format != nullptr &&
         absl::c_any_of(format->params, [&](const ParamInfo& param) { return param.name == key; });
}

std::string CureOfFields(const MixSpec::Source& a, const MixSpec::Source& b) {
  constexpr absl::string_view kChooses = " chooses its fields, their names, dtypes and shapes";
  if (Takes(a, "fields") && Takes(b, "fields"))
    return absl::StrCat("`fields:` of a source", kChooses);
  if (Takes(a, "fields") || Takes(b, "fields")) {
    const MixSpec::Source &one = Takes(a, "fields") ? a : b, &other = Takes(a, "fields") ? b : a;
    return absl::StrCat("`fields:` of ", one.name, kChooses, "; those of ", other.name,
                        " are always these");
  }
  return absl::StrCat(
      a.format == b.format ? "" : "one format for both, or ",
      "write the sources as shards (`feedwater convert`, each as the `dataset:` of a pipeline): "
      "`fields:` of what reads these",
      kChooses);
}

std::string CureOfClasses(const MixSpec::Source& a, const std::vector<std::string>& a_classes,
                          const MixSpec::Source& b, const std::vector<std::string>& b_classes) {
  const bool number_names = absl::c_linear_search(kNumberNames, a.format) &&
                            absl::c_linear_search(kNumberNames, b.format);
  if (number_names) {
    std::set<std::string> all(a_classes.begin(), a_classes.end());
    all.insert(b_classes.begin(), b_classes.end());
    std::vector<std::string> words;
    for (const std::string& name : all) words.push_back(YamlWord(name));
    if (words.size() > kPrintedClasses) return "`classes:` with the names of both, in each";
    return absl::StrCat("`classes: [", absl::StrJoin(words, ", "), "]` in each");
  }
  if (Takes(a, "classes") && Takes(b, "classes"))
    return "`classes:` in each, with the same names in the order of the labels";
  return "the same classes in both (`classes:` or `class_file:` where the format has them), or "
         "none";
}

absl::Status CompareFields(const MixSpec::Source& a, const std::vector<FieldSpec>& a_fields,
                           const MixSpec::Source& b, const std::vector<FieldSpec>& b_fields) {
  const auto differ = [&](absl::string_view what) {
    return b.dataset.Error(absl::StrCat("the sources of a mix must have the same fields: ", what,
                                        ". Cure: ", CureOfFields(a, b)));
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

// `where` names the field whose classes they are; "" for those of the datasets.
absl::Status CompareClasses(const MixSpec::Source& a, const std::vector<std::string>& a_classes,
                            const MixSpec::Source& b, const std::vector<std::string>& b_classes,
                            const std::string& where, absl::string_view cure) {
  if (a_classes == b_classes) return absl::OkStatus();
  const auto differ = [&](absl::string_view what) {
    return b.dataset.Error(
        absl::StrCat("the sources of a mix must have the same classes, in the same order: ", where,
                     what, ". Cure: ", cure));
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

// Every field's numbers must mean the same in all sources, not only those of one.
absl::Status CompareClasses(const MixSpec::Source& a, const Dataset& a_data,
                            const MixSpec::Source& b, const Dataset& b_data) {
  const std::vector<std::string>&a_classes = a_data.classes(), &b_classes = b_data.classes();
  if (a_classes != b_classes)
    return CompareClasses(a, a_classes, b, b_classes, "",
                          CureOfClasses(a, a_classes, b, b_classes));
  const std::vector<FieldSpec>&a_fields = a_data.fields(), &b_fields = b_data.fields();
  for (size_t i = 0; i < a_fields.size(); ++i) {
    const auto other = static_cast<size_t>(FindField(b_fields, a_fields[i].name) - b_fields.data());
    FW_RETURN_IF_ERROR(CompareClasses(
        a, a_data.ClassesOf(i), b, b_data.ClassesOf(other),
        absl::StrCat("of field '", Printable(a_fields[i].name), "' "),
        "the same texts in both, numbers in place of them, or leave the field out of `fields`"));
  }
  return absl::OkStatus();
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

  size_t NamingExtent(int64_t record) const override {
    const size_t i = mix_.SourceOf(record);
    return sources_[i]->NamingExtent(record - mix_.sources[i].first);
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

  absl::Status LookAgain(Reach reach, Look look) const override {
    // At all of them: one that cannot be looked at must not hide that another one has changed.
    absl::Status not_told;
    for (size_t i = 0; i < sources_.size(); ++i) {
      const absl::Status same = Annotate(sources_[i]->LookAgain(reach, look), mix_.sources[i].name);
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

  absl::Status LookAtFolderOf(uint32_t object, Reach reach) const override {
    const size_t i = HolderOf(object);
    return Annotate(sources_[i]->LookAtFolderOf(Within(i, object), reach), mix_.sources[i].name);
  }

  std::optional<IndexedFile> IndexedAs(uint32_t object) const override {
    const size_t i = HolderOf(object);
    return sources_[i]->IndexedAs(Within(i, object));
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
      FW_RETURN_IF_ERROR(CompareClasses(spec.sources[0], *sources[0], spec.sources[i], source));
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
