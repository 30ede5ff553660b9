#include "server/graph/plugin_params.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/escape.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxTextBytes = 4096, kMaxNameBytes = 64;
constexpr uint32_t kMaxChoices = 64;

// An empty value of the kind; nullopt where there is no such kind.
std::optional<PluginValue> ValueOfKind(uint32_t kind) {
  switch (kind) {
    case FEEDWATER_NUMBER:
      return PluginValue(0.0);
    case FEEDWATER_INTEGER:
      return PluginValue(int64_t{0});
    case FEEDWATER_TEXT:
      return PluginValue(std::string());
    case FEEDWATER_LIST:
      return PluginValue(std::vector<double>());
    case FEEDWATER_TRUTH:
      return PluginValue(false);
    default:
      return std::nullopt;
  }
}

template <typename T>
constexpr bool kHasBounds = !std::is_same_v<T, std::string> && !std::is_same_v<T, bool>;

absl::Status ReadBounds(const feedwater_param& declared, ParamInfo* info) {
  if (std::isnan(declared.low) || std::isnan(declared.high) || declared.low > declared.high)
    return absl::InvalidArgumentError(
        absl::StrCat("the bounds ", declared.low, " and ", declared.high, " leave nothing"));
  if (declared.low == 0 && declared.high == 0) return absl::OkStatus();
  if (std::isfinite(declared.low)) info->low = declared.low;
  if (std::isfinite(declared.high)) info->high = declared.high;
  return absl::OkStatus();
}

absl::Status ReadChoices(const feedwater_param& declared, ParamInfo* info) {
  if (declared.choice_count == 0) return absl::OkStatus();
  if (declared.kind != FEEDWATER_TEXT || declared.choices == nullptr ||
      declared.choice_count > kMaxChoices) {
    return absl::InvalidArgumentError(absl::StrCat("choices are for texts, and ", kMaxChoices,
                                                   " at most; it has ", declared.choice_count));
  }
  for (uint32_t i = 0; i < declared.choice_count; ++i) {
    FW_ASSIGN_OR_RETURN(std::string choice, PluginText(declared.choices[i], "a choice"));
    info->choices.push_back(std::move(choice));
  }
  return absl::OkStatus();
}

feedwater_value ViewOf(const PluginValue& value) {
  feedwater_value view{};
  view.text = "";
  if (const auto* number = std::get_if<double>(&value)) view.number = *number;
  if (const auto* truth = std::get_if<bool>(&value)) view.integer = *truth ? 1 : 0;
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    view.integer = *integer;
    view.number = static_cast<double>(*integer);
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    view.text = text->c_str();
    view.length = text->size();
  }
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    view.list = list->data();
    view.length = list->size();
  }
  return view;
}

}  // namespace

absl::StatusOr<std::string> PluginText(const char* text, absl::string_view what) {
  if (text == nullptr || text[0] == '\0')
    return absl::InvalidArgumentError(absl::StrCat(what, " is missing"));
  const size_t length = strnlen(text, kMaxTextBytes + 1);
  if (length > kMaxTextBytes)
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has more than ", kMaxTextBytes, " bytes"));
  std::string copy(text, length);
  if (ToUtf8(copy) != copy) return absl::InvalidArgumentError(absl::StrCat(what, " is no UTF-8"));
  return copy;
}

absl::StatusOr<std::string> PluginName(const char* text, absl::string_view what) {
  FW_ASSIGN_OR_RETURN(std::string name, PluginText(text, what));
  const bool good = name.size() <= kMaxNameBytes && absl::ascii_islower(name[0]) &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
                    });
  if (good) return name;
  return absl::InvalidArgumentError(absl::StrCat(
      what, " '", Printable(name), "' is no name: lower case letters, digits and '_', ",
      kMaxNameBytes, " at most, a letter first"));
}

absl::StatusOr<PluginParam> PluginParam::Create(const feedwater_param& declared) {
  FW_ASSIGN_OR_RETURN(std::string name, PluginName(declared.name, "a parameter's name"));
  const std::string what = absl::StrCat("parameter '", name, "'");
  if (name == "in" || name == "out" || name == "draws_as")
    return absl::InvalidArgumentError(absl::StrCat(what, ": every op has that already"));
  const std::optional<PluginValue> kind = ValueOfKind(declared.kind);
  if (!kind.has_value())
    return absl::InvalidArgumentError(absl::StrCat(what, ": there is no kind ", declared.kind));
  ParamInfo info;
  info.name = std::move(name);
  info.required = declared.default_text == nullptr;
  const absl::StatusOr<std::string> doc = PluginText(declared.doc, "`doc`");
  FW_RETURN_IF_ERROR(Annotate(doc.status(), what));
  info.doc = *doc;
  FW_RETURN_IF_ERROR(Annotate(ReadBounds(declared, &info), what));
  FW_RETURN_IF_ERROR(Annotate(ReadChoices(declared, &info), what));
  const absl::Status bounds = std::visit(
      [&](const auto& value) -> absl::Status {
        using T = std::decay_t<decltype(value)>;
        info.type = ParamType<T>::kName;
        info.json_type = ParamType<T>::kJson;
        if (!kHasBounds<T> && (info.low || info.high))
          return absl::InvalidArgumentError("bounds are for numbers and lists of them");
        if (info.low) info.low_text = BoundText<T>(*info.low);
        if (info.high) info.high_text = BoundText<T>(*info.high);
        return absl::OkStatus();
      },
      *kind);
  FW_RETURN_IF_ERROR(Annotate(bounds, what));

  PluginParam param(std::move(info), *kind);
  if (declared.default_text == nullptr) return param;
  const std::string default_what = absl::StrCat(what, ": its default");
  if (strnlen(declared.default_text, kMaxTextBytes + 1) > kMaxTextBytes)
    return absl::InvalidArgumentError(absl::StrCat(default_what, " is too long"));
  const absl::StatusOr<YamlNode> node = ParseYaml(declared.default_text, default_what);
  FW_RETURN_IF_ERROR(node.status());
  FW_ASSIGN_OR_RETURN(param.default_, param.Read(*node));
  param.info_.default_text = std::visit(
      [](const auto& value) { return ParamType<std::decay_t<decltype(value)>>::Text(value); },
      param.default_);
  return param;
}

absl::StatusOr<PluginValue> PluginParam::Read(const YamlNode& node) const {
  return std::visit(
      [&](const auto& kind) -> absl::StatusOr<PluginValue> {
        using T = std::decay_t<decltype(kind)>;
        T value{};
        FW_RETURN_IF_ERROR(NameParam(ParamType<T>::Read(node, &value), info_.name));
        const Constraint rule = {info_.low, info_.high, info_.choices, {}, {}};
        const absl::Status checked = ParamType<T>::Check(value, rule);
        if (!checked.ok())
          return node.Error(absl::StrCat("'", info_.name, "' ", checked.message()));
        return PluginValue(std::move(value));
      },
      default_);
}

absl::StatusOr<PluginArguments> PluginArguments::Read(absl::Span<const PluginParam> params,
                                                      const YamlNode& node,
                                                      absl::string_view what) {
  std::vector<ParamInfo> infos;
  for (const PluginParam& param : params) infos.push_back(param.info());
  YamlNode map = node;
  if (map.kind == YamlNode::Kind::kNull) map.kind = YamlNode::Kind::kMap;
  if (!map.is_map())
    return NotAMap(node, infos, what, [&](size_t i) { return params[i].Read(node).ok(); });
  FW_RETURN_IF_ERROR(CheckKeys(map, infos, what));
  PluginArguments arguments;
  for (const PluginParam& param : params) {
    arguments.values_.push_back(param.default_value());
    if (const YamlNode* value = map.Find(param.info().name)) {
      FW_ASSIGN_OR_RETURN(arguments.values_.back(), param.Read(*value));
    }
  }
  for (const PluginValue& value : arguments.values_) arguments.views_.push_back(ViewOf(value));
  return arguments;
}

std::string PluginArguments::Text(absl::Span<const PluginParam> params) const {
  std::string text;
  for (size_t i = 0; i < params.size(); ++i) {
    absl::StrAppend(&text, params[i].info().name, "=");
    std::visit(
        [&](const auto& value) { text += ParamType<std::decay_t<decltype(value)>>::Text(value); },
        values_[i]);
    text += ';';
  }
  return text;
}

}  // namespace feedwater::server
