#include "cli/synthetic_model.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "core/error.h"
#include "exec/recording_ops.h"
#include "models/model.h"
#include "quant/synthetic_checkpoint.h"

namespace galvani::cli {
namespace {

/// The letter that byte-level BPE writes a byte as: printable Latin-1 as it is, the rest from U+0100 on.
std::string byte_letter(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += !printable(b);
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

}  // namespace

std::string byte_tokenizer_json() {
  nlohmann::ordered_json vocab = nlohmann::ordered_json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_letter(byte)] = byte;
  const nlohmann::ordered_json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return nlohmann::ordered_json{
      {"version", "1.0"},
      {"added_tokens", nlohmann::ordered_json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", level},
      {"post_processor", nullptr},
      {"decoder", level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::ordered_json::array()}}}}
      .dump();
}

Status save_synthetic_model(const std::string& name, const std::string& folder) {
  GALVANI_TRY(const auto checkpoint, quant::SyntheticCheckpoint::open(name));
  exec::RecordingOps ops;  // asks for every tensor and reads none
  GALVANI_TRY(const auto model, models::load_model(*checkpoint, ops));
  quant::SyntheticSave save{.folder = folder, .files = {}, .progress = ProgressBar("writing")};
  std::error_code ignored;
  if (!std::filesystem::exists(checkpoint->path() / "tokenizer.json", ignored))
    save.files["tokenizer.json"] = byte_tokenizer_json();
  save.stop = interrupted;
  const CatchInterrupts until_saved;
  const auto start = std::chrono::steady_clock::now();
  GALVANI_TRY(const int64_t bytes, quant::save_synthetic(*checkpoint, save));
  std::fprintf(stderr, "SYNTHETIC WEIGHTS: %.1f MB written to %s in %.1f s\n", static_cast<double>(bytes) / 1e6,
               folder.c_str(), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return {};
}

}  // namespace galvani::cli
