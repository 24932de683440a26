#pragma once
/// A parsed chat template, ready to render any number of times (const, so from several threads at once).
///
/// The language is jinja2's in the environment of Hugging Face transformers: an immutable sandbox with trim_blocks,
/// lstrip_blocks, loop controls, the generation tag, tojson without HTML escaping, raise_exception and strftime_now.
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/error.h"
#include "text/jinja/budget.h"
#include "text/jinja/clock.h"

namespace galvani::text {

struct RenderOptions {
  std::optional<CivilTime> clock;  ///< what strftime_now shows; the local time when absent
  jinja::Limits limits;
};

namespace jinja {
struct Program;
}

class Template {
 public:
  /// `name` appears in messages. Errors: kCorrupt (no template, with the line), kUnsupported (needs other templates).
  static Result<Template> parse(std::string source, std::string name);

  /// `context` is an object: its members are the template's variables.
  /// Errors: kInvalidArgument with the template's own words, verbatim, when it calls raise_exception;
  /// kCorrupt when the template does something its language forbids (with the line); kOutOfRange when it uses more
  /// steps, text or memory than allowed.
  Result<std::string> render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

  const std::string& name() const noexcept { return name_; }

 private:
  Template(std::string name, std::shared_ptr<const jinja::Program> program)
      : name_(std::move(name)), program_(std::move(program)) {}
  std::string name_;
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace galvani::text
