// Synthetic weights as a folder of files.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/file_map.h"
#include "formats/json_file.h"
#include "formats/safetensors.h"
#include "quant/synthetic_checkpoint.h"

namespace galvani::quant {
namespace {

namespace fs = std::filesystem;
using formats::SafetensorsWriter;

/// Tokenizer and sampling files that a run looks for beside config.json.
constexpr const char* kBeside[] = {"generation_config.json", "tokenizer.json",      "tokenizer_config.json",
                                   "tokenizer.model",        "chat_template.jinja", "chat_template.json",
                                   "special_tokens_map.json"};

Status sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool good = fd >= 0 && ::fsync(fd) == 0;
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  return good ? Status{} : fail(ErrorCode::kIo, "cannot sync {}: {}", folder.string(), std::strerror(reason));
}

Status write_file(const fs::path& path, std::span<const std::byte> bytes) {
  GALVANI_TRY(auto file, formats::AtomicFile::create(path));
  GALVANI_TRY_VOID(file.write(bytes));
  return file.commit();
}
Status write_file(const fs::path& path, const std::string& text) {
  return write_file(path, std::as_bytes(std::span(text)));
}

/// A folder under a temporary name, removed again unless it is renamed.
class NewFolder {
 public:
  static Result<NewFolder> create(const fs::path& wanted) {
    NewFolder folder;
    folder.final_ = wanted.has_filename() ? wanted : wanted.parent_path();  // "folder/" means "folder"
    if (folder.final_.empty() || folder.final_.filename() == "." || folder.final_.filename() == "..")
      return fail(ErrorCode::kInvalidArgument, "the folder to save to needs a name of its own");
    GALVANI_TRY_VOID(folder.check_absent());
    std::string name = folder.final_.string() + ".partial-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
      return fail(ErrorCode::kIo, "cannot create a folder beside {}: {}", folder.final_.string(), std::strerror(errno));
    folder.temporary_ = name;
    std::error_code ignored;
    fs::permissions(folder.temporary_, fs::perms(0755), ignored);
    return folder;
  }
  NewFolder(NewFolder&& other) noexcept
      : final_(std::move(other.final_)), temporary_(std::exchange(other.temporary_, fs::path())) {}
  NewFolder& operator=(NewFolder&&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  }
  const fs::path& path() const { return temporary_; }
  Status commit() {
    GALVANI_TRY_VOID(sync_folder(temporary_));
    GALVANI_TRY_VOID(check_absent());
    if (::rename(temporary_.c_str(), final_.c_str()) != 0)
      return fail(ErrorCode::kIo, "cannot rename {} to {}: {}", temporary_.string(), final_.string(),
                  std::strerror(errno));
    temporary_.clear();
    return sync_folder(final_.has_parent_path() ? final_.parent_path() : fs::path("."));
  }

 private:
  NewFolder() = default;
  Status check_absent() const {
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(final_, ignored)))
      return fail(ErrorCode::kInvalidArgument, "{} exists; nothing is overwritten: name another folder or remove it",
                  final_.string());
    return {};
  }
  fs::path final_, temporary_;
};

struct Shard {
  std::vector<SafetensorsWriter::Tensor> tensors;
  std::vector<MatrixPtr> matrices;                       // in the order of their tensors
  std::vector<std::pair<std::string, int64_t>> vectors;  // before the matrices
  int64_t bytes = 0;
};

std::vector<Shard> make_shards(const SyntheticCheckpoint& checkpoint, int64_t limit) {
  std::vector<Shard> shards(1);
  for (const auto& [name, count] : checkpoint.vectors()) {
    shards[0].tensors.push_back({name, DType::kBF16, Shape{count}});
    shards[0].vectors.emplace_back(name, count);
    shards[0].bytes += 2 * count;
  }
  for (const auto& [module, matrix] : checkpoint.matrices()) {
    const int64_t groups = matrix->cols() / matrix->group(), words = matrix->cols() / 32 * matrix->bits();
    const int64_t bytes = matrix->rows() * (4 * words + 4 * groups);
    if (!shards.back().tensors.empty() && shards.back().bytes + bytes > limit) shards.emplace_back();
    Shard& shard = shards.back();
    shard.tensors.push_back({module + ".weight", DType::kU32, Shape{matrix->rows(), words}});
    shard.tensors.push_back({module + ".scales", DType::kBF16, Shape{matrix->rows(), groups}});
    shard.tensors.push_back({module + ".biases", DType::kBF16, Shape{matrix->rows(), groups}});
    shard.matrices.push_back(matrix);
    shard.bytes += bytes;
  }
  return shards;
}

Status append_repeated(SafetensorsWriter& writer, uint16_t value, int64_t count) {
  const std::vector<uint16_t> block(static_cast<size_t>(std::min<int64_t>(count, 1 << 20)), value);
  for (int64_t at = 0; at < count; at += 1 << 20)
    GALVANI_TRY_VOID(writer.append(
        std::as_bytes(std::span(block).first(static_cast<size_t>(std::min<int64_t>(count - at, 1 << 20))))));
  return {};
}

Status append_matrix(SafetensorsWriter& writer, const MatrixSource& matrix, const SyntheticSave& save) {
  const int64_t row_bytes = matrix.cols() * matrix.bits() / 8;
  const int64_t block = std::max<int64_t>(1, (int64_t{32} << 20) / row_bytes);
  for (int64_t r = 0; r < matrix.rows(); r += block) {
    if (save.stop && save.stop())
      return fail(ErrorCode::kCancelled, "interrupted; nothing is left of {}", save.folder.string());
    const int64_t end = std::min(matrix.rows(), r + block);
    GALVANI_TRY(const AffineTensor rows, matrix.affine(r, end, 0, matrix.cols()));
    GALVANI_TRY_VOID(writer.append({rows.view.codes, static_cast<size_t>((end - r) * row_bytes)}));
  }
  const SyntheticWords& words = *matrix.synthetic();
  const int64_t pairs = matrix.rows() * (matrix.cols() / matrix.group());
  GALVANI_TRY_VOID(append_repeated(writer, words.scale, pairs));
  return append_repeated(writer, words.bias, pairs);
}

Status write_config(const SyntheticCheckpoint& checkpoint, const fs::path& folder) {
  GALVANI_TRY(nlohmann::json config, formats::read_json_file(checkpoint.config_file()));
  const nlohmann::json quantization = {{"group_size", 64}, {"bits", checkpoint.bits()}, {"mode", "affine"}};
  for (nlohmann::json* level : {&config, config.contains("text_config") ? &config["text_config"] : nullptr}) {
    if (level == nullptr || !level->is_object()) continue;
    level->erase("quantization_config");
    level->erase("quantization");
  }
  config["quantization"] = quantization;
  return write_file(folder / "config.json", config.dump(2) + "\n");
}

Status copy_beside(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  for (const char* name : kBeside) {
    if (!fs::exists(from / name, ignored)) continue;
    GALVANI_TRY(const auto map, FileMap::open(from / name));
    GALVANI_TRY_VOID(write_file(to / name, map->bytes()));
  }
  return {};
}

}  // namespace

Result<int64_t> save_synthetic(const SyntheticCheckpoint& checkpoint, const SyntheticSave& save) {
  GALVANI_TRY(NewFolder folder, NewFolder::create(save.folder));
  const std::vector<Shard> shards = make_shards(checkpoint, save.shard_bytes);
  int64_t total = 0, done = 0;
  for (const Shard& shard : shards) total += shard.bytes;
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? std::string("model.safetensors")
                                                : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const auto& tensor : shards[i].tensors) weight_map[tensor.name] = name;
    GALVANI_TRY(auto writer, SafetensorsWriter::create(
                                 folder.path() / name, shards[i].tensors,
                                 {{"format", "mlx"}, {kSyntheticKey, fmt::format("{} bits", checkpoint.bits())}}));
    for (const auto& [vector, count] : shards[i].vectors)
      GALVANI_TRY_VOID(append_repeated(writer, f32_to_bf16(synthetic_value(vector)), count));
    for (const MatrixPtr& matrix : shards[i].matrices) {
      GALVANI_TRY_VOID(append_matrix(writer, *matrix, save));
      done += matrix->file_bytes();
      if (save.progress) save.progress(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total)));
    }
    GALVANI_TRY_VOID(writer.finish());
  }
  if (shards.size() > 1) {
    const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
    GALVANI_TRY_VOID(write_file(folder.path() / "model.safetensors.index.json", index.dump(1) + "\n"));
  }
  GALVANI_TRY_VOID(write_config(checkpoint, folder.path()));
  GALVANI_TRY_VOID(copy_beside(checkpoint.path(), folder.path()));
  for (const auto& [name, text] : save.files) GALVANI_TRY_VOID(write_file(folder.path() / name, text));
  GALVANI_TRY_VOID(folder.commit());
  return total;
}

}  // namespace galvani::quant
