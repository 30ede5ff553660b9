// A parameter is declared once: name, field, description, range. Reading YAML, help, the sample
// config, JSON Schema and the reference pages all come from that declaration; the default is the
// field's member initialiser and stands nowhere else.
//
//   struct Params { std::vector<double> mean; double p = 0.5; };
//   const Schema<Params> kSchema = Schema<Params>()
//       .Required("mean", &Params::mean, "Per-channel mean, in 0..255 units.")
//       .Param("p", &Params::p, "Probability.", Range(0, 1));
//   StatusOr<Params> params = kSchema.Read(node);
//
// A field may have any type T for which ParamType<T> below is specialised; a floor adds a type by
// specialising it. A nested struct is declared with Nested(name, &Params::member, schema, doc).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"

namespace feedwater::server {

// What documentation, help and JSON Schema need to know of one parameter.
struct ParamInfo {
  std::string name, type, default_text, doc;
  bool required = false;
  bool reloadable = false;           // a running program takes a new value
  std::optional<double> low, high;   // inclusive range of a number, or of every number of a list
  std::string low_text, high_text;   // the same as people write them: 16777216, 4KiB, 1h
  std::vector<std::string> choices;  // allowed words, when the type is a word
  std::string json_type;             // a JSON Schema fragment such as {"type":"integer"}
  std::vector<ParamInfo> nested;     // members, for a nested map
  std::vector<ParamInfo> item;       // of a list whose entries may be NAME: {...}: what {...} has
};

struct Constraint {
  std::optional<double> low, high;
  std::vector<std::string> choices;
  std::string type, json_type;

  // What documentation is told in place of the field's own type, where a value has a closer form:
  // a string that holds "auto" or a size, a list of 1 or 3. Whoever uses the value checks it.
  Constraint As(std::string form, std::string json) && {
    type = std::move(form);
    json_type = std::move(json);
    return std::move(*this);
  }
};
inline Constraint Range(double low, double high) { return {low, high, {}, {}, {}}; }
inline Constraint AtLeast(double low) { return {low, std::nullopt, {}, {}, {}}; }
inline Constraint OneOf(std::vector<std::string> choices) {
  return {std::nullopt, std::nullopt, std::move(choices), {}, {}};
}
inline Constraint As(std::string form, std::string json) {
  return Constraint().As(std::move(form), std::move(json));
}

// Read gives InvalidArgument "place: must be ..." (YamlNode::Error); Text is the value as YAML flow
// text; kName is for people; kJson is the JSON Schema fragment.
template <typename T>
struct ParamType;

#define FW_DECLARE_PARAM_TYPE(T)                                       \
  template <>                                                          \
  struct ParamType<T> {                                                \
    static const char* const kName;                                    \
    static const char* const kJson;                                    \
    static absl::Status Read(const YamlNode& node, T* value);          \
    static std::string Text(const T& value);                           \
    static absl::Status Check(const T& value, const Constraint& rule); \
  }

struct ByteCount {  // "512MiB", "8GiB", "4096"
  int64_t bytes = 0;
};
struct Seconds {  // "500ms", "60s", "2min"
  double seconds = 0;
};

FW_DECLARE_PARAM_TYPE(bool);
FW_DECLARE_PARAM_TYPE(int64_t);
FW_DECLARE_PARAM_TYPE(uint64_t);
FW_DECLARE_PARAM_TYPE(double);
FW_DECLARE_PARAM_TYPE(std::string);
FW_DECLARE_PARAM_TYPE(ByteCount);
FW_DECLARE_PARAM_TYPE(Seconds);
FW_DECLARE_PARAM_TYPE(std::vector<int64_t>);
FW_DECLARE_PARAM_TYPE(std::vector<double>);
FW_DECLARE_PARAM_TYPE(std::vector<std::string>);
using StringMap = std::map<std::string, std::string>;
FW_DECLARE_PARAM_TYPE(StringMap);

// A bound of a parameter of type T as people write it.
std::string NumberBoundText(double bound);
template <typename T>
std::string BoundText(double bound) {
  if constexpr (std::is_same_v<T, ByteCount> || std::is_same_v<T, std::optional<ByteCount>>) {
    return ParamType<ByteCount>::Text({static_cast<int64_t>(bound)});
  } else if constexpr (std::is_same_v<T, Seconds> || std::is_same_v<T, std::optional<Seconds>>) {
    return ParamType<Seconds>::Text({bound});
  } else {
    return NumberBoundText(bound);
  }
}

template <typename T>
struct ParamType<std::optional<T>> {
  static constexpr const char* const& kName =
      ParamType<T>::kName;  // references: usable before main() in any order
  static constexpr const char* const& kJson = ParamType<T>::kJson;
  static absl::Status Read(const YamlNode& node, std::optional<T>* value) {
    T read{};
    FW_RETURN_IF_ERROR(ParamType<T>::Read(node, &read));
    *value = std::move(read);
    return absl::OkStatus();
  }
  static std::string Text(const std::optional<T>& value) {
    return value ? ParamType<T>::Text(*value) : "";
  }
  static absl::Status Check(const std::optional<T>& value, const Constraint& rule) {
    return value ? ParamType<T>::Check(*value, rule) : absl::OkStatus();
  }
};

// The unknown-key and missing-key rules shared by every schema. `what` names the thing being read,
// such as "op 'resize'".
absl::Status CheckKeys(const YamlNode& map, const std::vector<ParamInfo>& params,
                       absl::string_view what);

// The error for a value where a map of `params` belongs, with the map that was probably meant:
// {size: 256} for 256. `fits` tells whether the value can be read as the i-th parameter's.
absl::Status NotAMap(const YamlNode& node, const std::vector<ParamInfo>& params,
                     absl::string_view what, const std::function<bool(size_t)>& fits);

// "place: must be ..." of a ParamType's Read becomes "place: 'name' must be ...".
absl::Status NameParam(const absl::Status& status, absl::string_view name);

template <typename P>
class Schema {
 public:
  template <typename T>
  Schema&& Param(std::string name, T P::*field, std::string doc, Constraint rule = {}) && {
    Add(std::move(name), field, std::move(doc), std::move(rule), /*required=*/false);
    return std::move(*this);
  }
  template <typename T>
  Schema&& Required(std::string name, T P::*field, std::string doc, Constraint rule = {}) && {
    Add(std::move(name), field, std::move(doc), std::move(rule), /*required=*/true);
    return std::move(*this);
  }
  template <typename N>
  Schema&& Nested(std::string name, N P::*field, Schema<N> schema, std::string doc) && {
    ParamInfo info;
    info.name = name;
    info.type = "map";
    info.doc = std::move(doc);
    info.nested = schema.params();
    params_.push_back(std::move(info));
    differences_.push_back([name, field, schema](const P& a, const P& b, Names* names) {
      for (const std::string& member : schema.FixedDifferences(a.*field, b.*field))
        names->push_back(absl::StrCat(name, ".", member));
    });
    readers_.push_back([name = std::move(name), field, schema = std::move(schema)](
                           const YamlNode& node, P* params) -> absl::Status {
      FW_ASSIGN_OR_RETURN(params->*field, schema.Read(node, absl::StrCat("'", name, "'")));
      return absl::OkStatus();
    });
    return std::move(*this);
  }

  // The parameter declared last may change while the program runs: it is read again on reload.
  Schema&& Reloadable() && {
    params_.back().reloadable = true;
    params_.back().doc += " Read again on reload.";
    return std::move(*this);
  }

  // The parameters that differ and are not reloadable, such as "limits.max_slot".
  std::vector<std::string> FixedDifferences(const P& a, const P& b) const {
    Names names;
    for (size_t i = 0; i < params_.size(); ++i) {
      if (!params_[i].reloadable) differences_[i](a, b, &names);
    }
    return names;
  }

  // Reads a map (or nothing, when every parameter has a default) into P.
  absl::StatusOr<P> Read(const YamlNode& node, absl::string_view what) const {
    P params{};
    if (node.kind == YamlNode::Kind::kNull) {
      YamlNode empty = node;
      empty.kind = YamlNode::Kind::kMap;
      FW_RETURN_IF_ERROR(CheckKeys(empty, params_, what));
      return params;
    }
    if (!node.is_map()) {
      return NotAMap(node, params_, what, [&](size_t i) {
        P ignored{};
        return readers_[i](node, &ignored).ok();
      });
    }
    FW_RETURN_IF_ERROR(CheckKeys(node, params_, what));
    for (size_t i = 0; i < params_.size(); ++i) {
      if (const YamlNode* value = node.Find(params_[i].name))
        FW_RETURN_IF_ERROR(readers_[i](*value, &params));
    }
    return params;
  }

  const std::vector<ParamInfo>& params() const { return params_; }

 private:
  using Names = std::vector<std::string>;

  template <typename T>
  void Add(std::string name, T P::*field, std::string doc, Constraint rule, bool required) {
    ParamInfo info;
    info.name = name;
    info.type = rule.type.empty() ? ParamType<T>::kName : rule.type;
    info.json_type = rule.json_type.empty() ? ParamType<T>::kJson : rule.json_type;
    if (!required) info.default_text = ParamType<T>::Text(P{}.*field);
    info.doc = std::move(doc);
    info.required = required;
    info.low = rule.low;
    info.high = rule.high;
    if (rule.low) info.low_text = BoundText<T>(*rule.low);
    if (rule.high) info.high_text = BoundText<T>(*rule.high);
    info.choices = rule.choices;
    params_.push_back(std::move(info));
    differences_.push_back([name, field](const P& a, const P& b, Names* names) {
      if (ParamType<T>::Text(a.*field) != ParamType<T>::Text(b.*field)) names->push_back(name);
    });
    readers_.push_back([name, field, rule = std::move(rule)](const YamlNode& node,
                                                             P* params) -> absl::Status {
      FW_RETURN_IF_ERROR(NameParam(ParamType<T>::Read(node, &(params->*field)), name));
      absl::Status checked = ParamType<T>::Check(params->*field, rule);
      return checked.ok() ? checked : node.Error(absl::StrCat("'", name, "' ", checked.message()));
    });
  }

  std::vector<ParamInfo> params_;
  std::vector<std::function<absl::Status(const YamlNode&, P*)>> readers_;
  std::vector<std::function<void(const P&, const P&, Names*)>> differences_;
};

}  // namespace feedwater::server
