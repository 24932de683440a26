#pragma once
/// Synthetic models for the verbs: writing one to a folder, and a tokenizer where its config has none beside it.
#include <string>

#include "galvani/error.h"

namespace galvani::cli {

/// tokenizer.json of a tokenizer with one token a byte, ids 0 to 255: it takes any text, and what random weights answer
/// needs no better one.
std::string byte_tokenizer_json();

/// Writes the synthetic model `name` ("synthetic:BITS:CONFIG") to `folder`, complete or not at all, and says on
/// standard error how much that was and how long it took. Errors: a folder that exists, a config that no family takes.
Status save_synthetic_model(const std::string& name, const std::string& folder);

}  // namespace galvani::cli
