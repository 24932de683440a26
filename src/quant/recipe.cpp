#include "quant/recipe.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <charconv>
#include <memory>

#include "core/error.h"
#include "formats/quoted.h"

namespace galvani::quant {
namespace {

using formats::quote;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

Result<Code> compile(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), 0, &error, &at, nullptr));
  if (code != nullptr) return code;
  unsigned char message[256] = {};
  pcre2_get_error_message(error, message, sizeof message);
  return fail(ErrorCode::kInvalidArgument, "the pattern {} is no regular expression: {} at position {}", quote(pattern),
              reinterpret_cast<const char*>(message), at);
}

/// 1 found, 0 not, negative: PCRE2's error.
int found_in(const pcre2_code* code, const std::string& text) {
  struct FreeData {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  const std::unique_ptr<pcre2_match_data, FreeData> data(pcre2_match_data_create(1, nullptr));
  const int code_of =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(), nullptr);
  return code_of >= 0 ? 1 : code_of == PCRE2_ERROR_NOMATCH ? 0 : code_of;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool affine_bits(int bits) { return bits >= 2 && bits <= 8 && bits != 7; }
bool affine_group(int group) { return group == 32 || group == 64 || group == 128; }

}  // namespace

Result<RecipeOverride> parse_override(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    return fail(ErrorCode::kInvalidArgument, "{}: write an override as REGEX=bits or REGEX=bits:group", quote(text));
  RecipeOverride result{.pattern = text.substr(0, equals)};
  const std::string_view rest = std::string_view(text).substr(equals + 1);
  const size_t colon = rest.find(':');
  const auto bits = number(rest.substr(0, colon));
  const auto group = colon == rest.npos ? std::optional<int>(0) : number(rest.substr(colon + 1));
  if (!bits || !group || !(affine_bits(*bits) || *bits == 16) || !(affine_group(*group) || colon == rest.npos))
    return fail(ErrorCode::kInvalidArgument,
                "{}: {} is no width; bits are 2, 3, 4, 5, 6, 8 or 16 (not quantised), groups 32, 64 or 128",
                quote(text), quote(rest));
  result.bits = *bits;
  result.group = *group;
  GALVANI_TRY(const Code code, compile(result.pattern));
  return result;
}

Status Recipe::check() const {
  GALVANI_TRY_VOID(check_code_format(base));
  const std::pair<int, const char*> widths[] = {
      {attention_bits, "attention"}, {head_bits, "the head"}, {router_bits, "routers"}};
  for (const auto& [bits, what] : widths)
    if (bits != 0 && bits != 16 && !affine_bits(bits))
      return fail(ErrorCode::kInvalidArgument, "{} bits for {}: allowed are 2, 3, 4, 5, 6, 8 and 16 (not quantised)",
                  bits, what);
  return {};
}

std::string Recipe::str() const {
  std::string text =
      fmt::format("{} {} g{}, dtype {}, norms {}, attention {}, head {}, routers {}", matrix_kind_name(base.kind),
                  base.bits, base.group, dtype ? dtype_name(*dtype) : "auto", exact_norms ? "f32" : "dtype",
                  attention_bits, head_bits, router_bits);
  for (const auto& one : overrides) text += fmt::format(", {}={}:{}", one.pattern, one.bits, one.group);
  return text;
}

struct RecipeBook::Compiled {
  Recipe recipe;
  DType dtype = DType::kBF16;
  std::vector<Code> codes;
  std::vector<int> verdicts;  ///< an override: found in a module so far, or PCRE2's error
};

RecipeBook::RecipeBook(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
RecipeBook::RecipeBook(RecipeBook&&) noexcept = default;
RecipeBook::~RecipeBook() = default;

Result<RecipeBook> RecipeBook::create(Recipe recipe, DType dtype) {
  GALVANI_TRY_VOID(recipe.check());
  auto compiled = std::make_unique<Compiled>();
  for (const auto& one : recipe.overrides) {
    GALVANI_TRY(Code code, compile(one.pattern));
    compiled->codes.push_back(std::move(code));
  }
  compiled->verdicts.assign(recipe.overrides.size(), 0);
  compiled->recipe = std::move(recipe);
  compiled->dtype = dtype;
  return RecipeBook(std::move(compiled));
}

std::optional<CodeFormat> RecipeBook::format(const std::string& path, ModuleRole role, int64_t cols) const {
  const Recipe& recipe = compiled_->recipe;
  const int affine_default = recipe.base.affine() ? recipe.base.group : 64;
  int bits = 0, group = affine_default;
  switch (role) {
    case ModuleRole::kRouter:
      bits = recipe.router_bits;
      group = cols % 64 == 0 ? 64 : affine_default;
      break;
    case ModuleRole::kHead: bits = recipe.head_bits; break;
    case ModuleRole::kAttention: bits = recipe.attention_bits; break;
    case ModuleRole::kOther: break;
  }
  for (size_t i = 0; i < recipe.overrides.size(); ++i) {
    const int found = found_in(compiled_->codes[i].get(), path);
    if (int& verdict = compiled_->verdicts[i]; verdict >= 0 && found != 0) verdict = found;
    if (found <= 0) continue;
    bits = recipe.overrides[i].bits;
    group = recipe.overrides[i].group != 0 ? recipe.overrides[i].group : affine_default;
  }
  CodeFormat result = recipe.base;
  if (bits != 0) result = {MatrixKind::kAffine, bits, group, compiled_->dtype};
  result.dtype = compiled_->dtype;
  if (result.bits == 16 || cols % result.group != 0 || cols * result.bits % 32 != 0) return std::nullopt;
  return result;
}

Status RecipeBook::check_overrides() const {
  for (size_t i = 0; i < compiled_->verdicts.size(); ++i) {
    const RecipeOverride& one = compiled_->recipe.overrides[i];
    if (compiled_->verdicts[i] < 0)
      return fail(ErrorCode::kInvalidArgument,
                  "override '{}={}': the pattern cannot be matched (PCRE2 error {}); give a simpler one", one.pattern,
                  one.bits, compiled_->verdicts[i]);
    if (compiled_->verdicts[i] == 0)
      return fail(ErrorCode::kInvalidArgument,
                  "override '{}={}' is found in no module of this model; `galvani inspect --all` lists them",
                  one.pattern, one.bits);
  }
  return {};
}

}  // namespace galvani::quant
