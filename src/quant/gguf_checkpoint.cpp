#include "core/error.h"
#include "quant/checkpoint_base.h"

namespace galvani::quant {

Result<std::shared_ptr<Checkpoint>> open_gguf_checkpoint(const std::filesystem::path& file) {
  return fail(ErrorCode::kUnsupported, "{}: GGUF files cannot be read yet", file.string());
}

}  // namespace galvani::quant
