#pragma once
/// Template text to a syntax tree.
#include <memory>
#include <string_view>

#include "text/jinja/ast.h"

namespace galvani::text::jinja {

/// Errors: kCorrupt for text that is no template (with the line), kUnsupported for statements that need other
/// templates (include, import, extends, block). Nesting is bounded, so hostile text cannot exhaust the stack.
Result<std::unique_ptr<Program>> parse_template(std::string_view source);

}  // namespace galvani::text::jinja
