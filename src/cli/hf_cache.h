#pragma once
/// The local Hugging Face cache: where `-hf org/repo` looks. Nothing is downloaded.
#include <string>

#include "galvani/error.h"

namespace galvani::cli {

/// Folder of the newest snapshot of `repo` ("org/name"), or a .gguf file in it; the error prints the command that
/// would download it.
Result<std::string> resolve_hf(const std::string& repo);

}  // namespace galvani::cli
