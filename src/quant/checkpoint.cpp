#include "quant/checkpoint.h"

#include <fstream>

#include "core/error.h"
#include "quant/checkpoint_base.h"
#include "quant/synthetic_checkpoint.h"

namespace galvani::quant {

Result<std::shared_ptr<Checkpoint>> Checkpoint::open(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (path.string().starts_with(kSyntheticPrefix)) return SyntheticCheckpoint::open(path.string());
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status))
    return fail(ErrorCode::kNotFound,
                "{} does not exist; give a folder with config.json and safetensors, or a .gguf file", path.string());
  if (fs::is_directory(status)) {
    if (fs::exists(path / "config.json", error)) return open_folder_checkpoint(path);
    std::string hint;
    fs::directory_iterator entries(path, error);
    if (!error)
      for (const auto& entry : entries)
        if (entry.path().extension() == ".gguf") hint = fmt::format("; did you mean {}?", entry.path().string());
    return fail(ErrorCode::kNotFound, "{} holds no config.json{}", path.string(), hint);
  }
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, 4);
  if (std::string_view(magic, 4) == "GGUF" || path.extension() == ".gguf") return open_gguf_checkpoint(path);
  return fail(ErrorCode::kUnsupported, "{} is neither a folder nor a GGUF file{}", path.string(),
              path.extension() == ".safetensors" ? "; give the folder that it lies in, config.json included" : "");
}

}  // namespace galvani::quant
