#pragma once
/// Which module of a model gets which format when a checkpoint is quantised.
#include <optional>
#include <string>
#include <vector>

#include "quant/encode.h"

namespace galvani::quant {

/// Width and group of modules whose path a regular expression (PCRE2) is found in.
struct RecipeOverride {
  std::string pattern;
  int bits = 4;   ///< 2, 3, 4, 5, 6, 8, or 16: not quantised
  int group = 0;  ///< 0: the recipe's
};

/// "REGEX=bits" or "REGEX=bits:group"; the last '=' counts. Errors: another form, a pattern that does not compile.
Result<RecipeOverride> parse_override(const std::string& text);

/// Bits of 16 leave a module as it is, 0 means "as the base".
struct Recipe {
  CodeFormat base;
  std::optional<DType> dtype;  ///< of everything that is not codes; nothing: what config.json says, bf16 for GGUF
  bool exact_norms = false;    ///< norms of delta-net families in f32, so that adding the 1 of 1 + w loses nothing
  int attention_bits = 0;      ///< self_attn and linear_attn
  int head_bits = 0;           ///< lm_head, or the embedding where they are tied
  int router_bits = 8;         ///< routers and gates of shared experts, in groups of 64 as mlx-lm writes them
  std::vector<RecipeOverride> overrides;  ///< the last that matches counts, before everything else

  /// Error, by name: a width or group that no format has.
  Status check() const;
  /// The whole recipe as one line, which tells two recipes apart.
  std::string str() const;
};

/// What a module is for, as far as recipes care.
enum class ModuleRole { kOther, kAttention, kHead, kRouter };

/// A recipe with its patterns compiled.
class RecipeBook {
 public:
  static Result<RecipeBook> create(Recipe recipe, DType dtype);
  RecipeBook(RecipeBook&&) noexcept;
  ~RecipeBook();

  /// Format of the module at `path`, whose rows have `cols` columns; nothing: stays as it is (asked for, or no group
  /// divides the columns).
  std::optional<CodeFormat> format(const std::string& path, ModuleRole role, int64_t cols) const;
  /// After every module was asked for: each override must have been found in one, and its pattern must have worked.
  Status check_overrides() const;

 private:
  struct Compiled;
  explicit RecipeBook(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace galvani::quant
