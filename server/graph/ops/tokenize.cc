// Turns text into the ids of its tokens, as the file of a vocabulary says (server/text). The ids of
// a text are what the library that the file is from gives.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/graph/element.h"
#include "server/graph/op_schema.h"
#include "server/text/tokenizer.h"
#include "server/text/unicode.h"

namespace feedwater::server {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";  // U+FFFD
constexpr int64_t kReplacementBytes = sizeof(kReplacement) - 1;
constexpr size_t kAlignment = 16;

struct Params {
  OpFile tokenizer;
  std::string kind = "auto";
  std::optional<bool> lowercase;
  std::string unknown_token;
  int64_t max_length = 0;
  std::string truncation = "none";
  std::string pad_token;
  bool add_special_tokens = true;
  std::vector<std::string> before, after;
  std::string errors = "fail";
  std::string dtype = "int64";
  int64_t max_bytes = 1 << 20;
};

absl::StatusOr<VocabularyKind> KindOf(const Params& params, absl::string_view bytes) {
  for (const VocabularyKind kind : {VocabularyKind::kTokenizerJson, VocabularyKind::kSentencePiece,
                                    VocabularyKind::kWordPiece, VocabularyKind::kWords}) {
    if (params.kind == VocabularyKindName(kind)) return kind;
  }
  if (const auto kind = KindOfVocabulary(bytes); kind.has_value()) return *kind;
  return absl::InvalidArgumentError(
      "it is a list of tokens, which does not say how words become tokens; cure: kind: wordpiece "
      "(a vocab.txt of BERT) or kind: words");
}

absl::Status TooManyAround(const Params& params, size_t around) {
  return absl::InvalidArgumentError(
      absl::StrCat("max_length is ", params.max_length, ", and ", around,
                   " of that are for tokens around the text; raise it"));
}

absl::Status CheckRules(const Params& params, VocabularyKind kind) {
  const bool is_word_piece = kind == VocabularyKind::kWordPiece;
  if (is_word_piece && !params.lowercase.has_value()) {
    return absl::InvalidArgumentError(
        "a vocab.txt does not say whether its model is cased; cure: lowercase: true (uncased "
        "models) or lowercase: false");
  }
  if (static_cast<int64_t>(params.before.size() + params.after.size()) >= params.max_length)
    return TooManyAround(params, params.before.size() + params.after.size());
  if (!is_word_piece && params.lowercase.has_value())
    return absl::InvalidArgumentError("lowercase is for kind: wordpiece alone");
  if (!is_word_piece && kind != VocabularyKind::kWords && !params.unknown_token.empty()) {
    return absl::InvalidArgumentError(
        "unknown_token is for kind: wordpiece and kind: words; other files name it themselves");
  }
  return absl::OkStatus();
}

// What Params and the file come to.
struct Made {
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the file was not read
  std::vector<int32_t> before, after;
  int32_t pad = 0, unknown = -1;
};

static_assert(OpFileMemory(0) >= kTokenizerFixedBytes &&
              OpFileMemory(kMostVocabularyBytes) >=
                  kTokenizerBytesPerByte * kMostVocabularyBytes + kTokenizerFixedBytes);

// `why`: what the token is for.
absl::StatusOr<int32_t> FindToken(const Tokenizer& tokenizer, absl::string_view token,
                                  absl::string_view why) {
  const int32_t id = tokenizer.Find(token);
  if (id >= 0) return id;
  return absl::InvalidArgumentError(
      absl::StrCat("it has no token '", Printable(token), "', ", why));
}

absl::StatusOr<Made> Make(const Params& params) {
  Made made;
  if (params.tokenizer.content == nullptr) return made;
  const std::string& bytes = params.tokenizer.content->bytes();
  FW_ASSIGN_OR_RETURN(const VocabularyKind kind, KindOf(params, bytes));
  FW_RETURN_IF_ERROR(CheckRules(params, kind));
  const LineRules rules{params.lowercase.value_or(false)};
  std::string as = absl::StrCat("kind: ", VocabularyKindName(kind));
  if (params.lowercase.has_value())
    absl::StrAppend(&as, ", lowercase: ", rules.lowercase ? "true" : "false");
  FW_ASSIGN_OR_RETURN(
      made.tokenizer,
      params.tokenizer.content->Once<Tokenizer>(
          as, [&](const std::string& held) -> absl::StatusOr<std::shared_ptr<const Tokenizer>> {
            FW_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> fresh,
                                MakeTokenizer(held, kind, rules));
            return fresh;
          }));
  if (params.add_special_tokens) {
    made.before = made.tokenizer->special_before();
    made.after = made.tokenizer->special_after();
  }
  for (const std::string& token : params.before) {
    FW_ASSIGN_OR_RETURN(const int32_t id, FindToken(*made.tokenizer, token, "which before names"));
    made.before.push_back(id);
  }
  for (const std::string& token : params.after) {
    FW_ASSIGN_OR_RETURN(const int32_t id, FindToken(*made.tokenizer, token, "which after names"));
    made.after.push_back(id);
  }
  if (!params.unknown_token.empty()) {
    FW_ASSIGN_OR_RETURN(made.unknown, FindToken(*made.tokenizer, params.unknown_token,
                                                "which unknown_token names"));
  } else if (kind == VocabularyKind::kWordPiece) {
    FW_ASSIGN_OR_RETURN(made.unknown,
                        FindToken(*made.tokenizer, "[UNK]",
                                  "which unknown words become; name another one: unknown_token"));
  }
  if (!params.pad_token.empty()) {
    FW_ASSIGN_OR_RETURN(made.pad,
                        FindToken(*made.tokenizer, params.pad_token, "which pad_token names"));
  }
  return made;
}

class Tokenize : public Op {
 public:
  static absl::Status Check(const Params& params) {
    const absl::StatusOr<Made> made = Make(params);
    if (!made.ok()) {
      return absl::Status(made.status().code(),
                          absl::StrCat(params.tokenizer.Describe(), ": ", made.status().message()));
    }
    const size_t around = made->before.size() + made->after.size();
    if (static_cast<int64_t>(around) < params.max_length) return absl::OkStatus();
    return TooManyAround(params, around);
  }

  explicit Tokenize(const Params& params)
      : made_(Make(params).value_or(Made())),
        file_(params.tokenizer.Describe()),
        dtype_(*DTypeFromName(params.dtype)),
        max_length_(params.max_length),
        max_bytes_(params.max_bytes),
        truncation_(params.truncation == "right"  ? Truncation::kRight
                    : params.truncation == "left" ? Truncation::kLeft
                                                  : Truncation::kNone),
        pads_(!params.pad_token.empty()),
        replaces_(params.errors == "replace") {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    if (inputs[0].shape.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("takes one text, uint8[?], but the field is ", inputs[0].ToString()));
    }
    const int64_t rows = pads_ ? max_length_ : -1;
    return Specs{{dtype_, Layout::kPlain, {rows}}, {DType::kBool, Layout::kPlain, {rows}}};
  }

  OpMemory Memory(absl::Span<const TensorSpec> inputs, const PlanEnvironment&) const override {
    const int64_t size = inputs[0].shape[0];  // -1: the record says
    OpMemory memory;
    memory.scratch = ScratchBytes(size < 0 ? max_bytes_ : std::min(size, max_bytes_));
    memory.outputs = {max_length_ * static_cast<int64_t>(DTypeSize(dtype_)), max_length_};
    memory.scratch_is_bound = size < 0;
    return memory;
  }

  absl::Status Run(Sample& sample, Draws) const override {
    if (made_.tokenizer == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("the file ", file_, " was not read: name a configuration with its root"));
    }
    const Tensor& input = sample.inputs()[0];
    absl::string_view text(input.as<const char>(), input.bytes());
    if (static_cast<int64_t>(text.size()) > max_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrCat("the text has ", text.size(), " bytes, more than max_bytes = ", max_bytes_));
    }
    const auto scratch_bytes = static_cast<size_t>(ScratchBytes(static_cast<int64_t>(text.size())));
    FW_ASSIGN_OR_RETURN(std::byte* const memory, sample.Scratch(scratch_bytes));
    TextScratch scratch(memory, scratch_bytes);
    FW_RETURN_IF_ERROR(MakeValid(&text, &scratch));
    const int64_t room = max_length_ - around();
    auto* const ids = scratch.Take<int32_t>(static_cast<size_t>(room));
    if (ids == nullptr) return absl::InternalError("too little scratch for a text's ids");
    IdSink sink(ids, room, truncation_);
    Encoding encoding{scratch, sample.clock(), sink, made_.unknown};
    made_.tokenizer->Encode(text, &encoding);
    FW_RETURN_IF_ERROR(encoding.status);
    if (sink.is_over()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the text has more than max_length = ", max_length_,
                       " tokens; raise it, or cut texts with truncation: right (or left)"));
    }
    return Write(sample, sink);
  }

 private:
  int64_t around() const { return static_cast<int64_t>(made_.before.size() + made_.after.size()); }

  int64_t ScratchBytes(int64_t text_bytes) const {
    if (made_.tokenizer == nullptr) return 0;
    int64_t bytes = max_length_ * static_cast<int64_t>(sizeof(int32_t)) + 4 * kAlignment;
    if (replaces_) {
      text_bytes *= kReplacementBytes;
      bytes += text_bytes;
    }
    return bytes + made_.tokenizer->ScratchBytes(text_bytes);
  }

  absl::Status MakeValid(absl::string_view* text, TextScratch* scratch) const {
    size_t bad = FirstBadUtf8(*text);
    if (bad == absl::string_view::npos) return absl::OkStatus();
    if (!replaces_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the text is not UTF-8 at byte ", bad, " of ", text->size(),
          "; if it is good all the same: errors: replace, which makes U+FFFD of such bytes"));
    }
    auto* const valid = scratch->Take<char>(text->size() * kReplacementBytes);
    if (valid == nullptr) return absl::InternalError("too little scratch for a text");
    size_t size = 0;
    while (!text->empty()) {
      bad = std::min(FirstBadUtf8(*text), text->size());
      std::memcpy(valid + size, text->data(), bad);
      size += bad;
      text->remove_prefix(bad);
      if (text->empty()) break;
      std::memcpy(valid + size, kReplacement, kReplacementBytes);
      size += kReplacementBytes;
      text->remove_prefix(1);
    }
    *text = absl::string_view(valid, size);
    return absl::OkStatus();
  }

  absl::Status Write(Sample& sample, const IdSink& ids) const {
    const int64_t count = ids.count() + around(), rows = pads_ ? max_length_ : count;
    TensorSpec spec = sample.planned(0), mask_spec = sample.planned(1);
    spec.shape = mask_spec.shape = {rows};
    FW_ASSIGN_OR_RETURN(const Tensor out, sample.Output(0, spec));
    FW_ASSIGN_OR_RETURN(const Tensor mask, sample.Output(1, mask_spec));
    if (dtype_ == DType::kInt32) {
      Put(ids, rows, out.as<int32_t>());
    } else {
      Put(ids, rows, out.as<int64_t>());
    }
    auto* const is_token = mask.as<uint8_t>();
    std::fill(is_token, is_token + count, uint8_t{1});
    std::fill(is_token + count, is_token + rows, uint8_t{0});
    return absl::OkStatus();
  }

  template <typename T>
  void Put(const IdSink& ids, int64_t rows, T* out) const {
    T* const end = out + rows;
    out = std::copy(made_.before.begin(), made_.before.end(), out);
    for (int64_t i = 0; i < ids.count(); ++i) *out++ = ids.at(i);
    out = std::copy(made_.after.begin(), made_.after.end(), out);
    std::fill(out, end, static_cast<T>(made_.pad));
  }

  const Made made_;
  const std::string file_;
  const DType dtype_;
  const int64_t max_length_, max_bytes_;
  const Truncation truncation_;
  const bool pads_, replaces_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("tokenize")
        .Summary("Turns text into the ids of its tokens: BPE, WordPiece, SentencePiece or whole "
                 "words, as the file of a vocabulary says.")
        .Input({.field = "text",
                .layouts = {Layout::kPlain, Layout::kEncoded},
                .dtypes = {DType::kUInt8},
                .doc = "The text, UTF-8."})
        .Output({.field = "tokens",
                 .layouts = {Layout::kPlain},
                 .dtypes = {DType::kInt64, DType::kInt32},
                 .doc = "The ids: as many as the text has, or max_length with pad_token."})
        .Output({.field = "mask",
                 .layouts = {Layout::kPlain},
                 .dtypes = {DType::kBool},
                 .doc = "Which of them are tokens, and not padding: a model's attention mask."})
        .File("tokenizer", &Params::tokenizer,
              "The vocabulary's file: a tokenizer.json of Hugging Face, a .model of SentencePiece, "
              "or a list with a token a line. A path below the dataset's root, or {root: ROOT, "
              "path: PATH} with a declared root; for a private daemon also an absolute path. It is "
              "read when the pipeline is opened, and what it holds is part of the pipeline's "
              "digest: with another vocabulary a saved position is refused.")
        .Param("kind", &Params::kind,
               "What the file is. auto: tokenizer_json and sentencepiece are found by what they "
               "hold; of a list of tokens say wordpiece (a vocab.txt of BERT) or words (text is "
               "split at white space alone).",
               OneOf({"auto", "tokenizer_json", "sentencepiece", "wordpiece", "words"}))
        .Param("lowercase", &Params::lowercase,
               "For kind: wordpiece, where it has to be given: whether the model is uncased, and "
               "text loses capitals and accents.")
        .Param("unknown_token", &Params::unknown_token,
               "Token of words that are not in the vocabulary, for kind: wordpiece ([UNK] when "
               "left out) and kind: words (when left out, such a text is a bad sample).")
        .Required("max_length", &Params::max_length,
                  "The most ids of a sample, those around the text included.", Range(1, 1 << 20))
        .Param("truncation", &Params::truncation,
               "What becomes of a longer text. none: it is a bad sample; right: its end is cut "
               "off; left: its beginning is.",
               OneOf({"none", "right", "left"}))
        .Param("pad_token", &Params::pad_token,
               "Token that shorter texts are filled up with, to max_length: the outputs have a "
               "fixed shape then, which ops on batches need. Left out: they are ragged.")
        .Param("add_special_tokens", &Params::add_special_tokens,
               "Whether a text stands between the tokens that the file says, such as [CLS] and "
               "[SEP].")
        .Param("before", &Params::before,
               "Tokens that are put before each text, behind those that the file says.")
        .Param(
            "after", &Params::after,
            "Tokens that are put after each text, such as [\"<|endoftext|>\"], behind those that "
            "the file says.")
        .Param("errors", &Params::errors,
               "What becomes of a text that is not UTF-8. fail: it is a bad sample; replace: each "
               "byte that is none becomes U+FFFD.",
               OneOf({"fail", "replace"}))
        .Param("dtype", &Params::dtype, "Type of the ids.", OneOf({"int64", "int32"}))
        .Param("max_bytes", &Params::max_bytes,
               "The most bytes of a text; a longer one is a bad sample. Byte pair encoding takes "
               "some 40 times a text's bytes of memory while it works.",
               Range(1, 64 << 20))
        .Cost("Grows with the text, whatever it is; memory for the vocabulary once a pipeline.")
        .Example("- tokenize: {in: text, out: [tokens, mask], tokenizer: {root: models, path: "
                 "bert/vocab.txt}, kind: wordpiece, lowercase: true, max_length: 128, truncation: "
                 "right, pad_token: \"[PAD]\"}")
        .Create<Tokenize>());

}  // namespace
}  // namespace feedwater::server
