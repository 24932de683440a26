#include "quant/quantize.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/log.h"
#include "formats/json_file.h"
#include "quant/export_stream.h"

namespace galvani::quant {
namespace {

namespace fs = std::filesystem;
using formats::SafetensorsFile;
using formats::SafetensorsWriter;
using nlohmann::ordered_json;

constexpr const char* kProgressName = "quantize-progress.json";
constexpr const char* kIndexName = "model.safetensors.index.json";
/// Taken over from the model's folder or --tokenizer, where they are.
constexpr const char* kCopied[] = {"generation_config.json",
                                   "tokenizer.json",
                                   "tokenizer_config.json",
                                   "tokenizer.model",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "chat_template.jinja",
                                   "chat_template.json",
                                   "LICENSE"};

/// A checksum against damaged files, not against people: 64-bit FNV-1a over words of eight bytes.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (filled_ == 0 && bytes.size() >= 8) {
        uint64_t word;
        std::memcpy(&word, bytes.data(), 8);
        mix(word);
        bytes = bytes.subspan(8);
        continue;
      }
      tail_ |= static_cast<uint64_t>(bytes[0]) << (8 * filled_);
      bytes = bytes.subspan(1);
      if (++filled_ < 8) continue;
      mix(tail_);
      tail_ = 0;
      filled_ = 0;
    }
  }
  std::string hex() const { return fmt::format("{:016x}", (hash_ ^ tail_ ^ static_cast<uint64_t>(filled_)) * kPrime); }

 private:
  static constexpr uint64_t kPrime = 0x100000001B3ull;
  void mix(uint64_t word) {
    hash_ = (hash_ ^ word) * kPrime;
    hash_ ^= hash_ >> 29;  // FNV's high bits never reach the low ones otherwise
  }
  uint64_t hash_ = 0xCBF29CE484222325ull, tail_ = 0;
  int filled_ = 0;
};

/// One work item of a shard: a matrix or a vector of the plan.
struct Item {
  const ExportMatrix* matrix = nullptr;
  const ExportVector* vector = nullptr;
  std::vector<SafetensorsWriter::Tensor> tensors() const {
    if (matrix != nullptr) return tensors_of(*matrix);
    return {{vector->name, vector->dtype, vector->shape}};
  }
  int64_t bytes() const { return matrix != nullptr ? bytes_of(*matrix) : bytes_of(*vector); }
};

struct Shard {
  std::string name;
  std::vector<Item> items;
  int64_t bytes = 0;
};

std::vector<Shard> make_shards(const ExportPlan& plan, int64_t limit) {
  std::vector<Shard> shards(1);
  const auto add = [&](Item item) {
    const int64_t bytes = item.bytes();
    if (!shards.back().items.empty() && shards.back().bytes + bytes > limit) shards.emplace_back();
    shards.back().items.push_back(item);
    shards.back().bytes += bytes;
  };
  for (const auto& vector : plan.vectors) add({.matrix = nullptr, .vector = &vector});
  for (const auto& matrix : plan.matrices) add({.matrix = &matrix, .vector = nullptr});
  for (size_t i = 0; i < shards.size(); ++i)
    shards[i].name = shards.size() == 1 ? std::string("model.safetensors")
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

tl::unexpected<Error> io_error(const std::string& what, const fs::path& path) {
  return fail(ErrorCode::kIo, "cannot {} {}: {}", what, path.string(), std::strerror(errno));
}

Status write_text(const fs::path& path, const std::string& text) {
  GALVANI_TRY(auto file, formats::AtomicFile::create(path));
  GALVANI_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Status sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error("open", folder);
  const bool good = ::fsync(fd) == 0;
  ::close(fd);
  return good ? Status{} : io_error("sync", folder);
}

/// Held while a run works in the folder, released by the system when the process ends in whatever way.
class FolderLock {
 public:
  static Result<FolderLock> take(const fs::path& folder) {
    FolderLock lock;
    lock.fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (lock.fd_ < 0) return io_error("open", folder);
    if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0)
      return fail(ErrorCode::kIo, "another run is writing to {}; wait for it or stop it", folder.string());
    return lock;
  }
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  FolderLock() = default;
  int fd_ = -1;
};

/// What the input is, well enough to notice that it changed between two runs.
std::string identity_of(const fs::path& in) {
  std::vector<fs::path> files;
  std::error_code ignored;
  if (fs::is_directory(in, ignored)) {
    for (const auto& entry : fs::directory_iterator(in, ignored))
      if (entry.path().extension() == ".safetensors" || entry.path().extension() == ".json")
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(in);
  }
  Checksum sum;
  const auto add = [&](const std::string& text) { sum.add(std::as_bytes(std::span(text))); };
  for (const auto& file : files) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) continue;
    add(fmt::format("{} {} {}.{}\n", file.filename().string(), info.st_size, info.st_mtim.tv_sec,
                    info.st_mtim.tv_nsec));
  }
  return sum.hex();
}

class Quantizer {
 public:
  explicit Quantizer(const QuantizeOptions& options) : options_(options) {}

  Result<QuantizeReport> run() {
    GALVANI_TRY_VOID(check_output());
    GALVANI_TRY(checkpoint_, Checkpoint::open(options_.in));
    GALVANI_TRY(plan_, plan_export(*checkpoint_, options_.recipe));
    shards_ = make_shards(plan_, std::max<int64_t>(1, options_.shard_bytes));
    GALVANI_TRY_VOID(enter_partial());
    GALVANI_TRY(const auto lock, FolderLock::take(partial_));
    GALVANI_TRY_VOID(read_progress());
    describe();
    for (const Shard& shard : shards_) {
      GALVANI_TRY(const bool kept, keep(shard));
      report_.shards_kept += kept;
      if (kept) {
        for (const Item& item : shard.items)
          if (item.matrix != nullptr) done_weights_ += weights_of(item.matrix->shape);
      } else {
        GALVANI_TRY_VOID(write(shard));
      }
      GALVANI_TRY_VOID(advance(0));
    }
    GALVANI_TRY_VOID(finish());
    return std::move(report_);
  }

 private:
  static int64_t weights_of(const Shape& shape) {
    int64_t count = 1;
    for (const int64_t dim : shape.dims()) count *= dim;
    return count;
  }

  Status check_output() {
    out_ = options_.out;
    if (out_.has_filename()) {
      out_ = out_.lexically_normal();
    } else if (out_.has_parent_path()) {
      out_ = out_.lexically_normal().parent_path();  // "folder/" means "folder"
    }
    if (out_.empty() || out_.filename() == "." || out_.filename() == ".." || !out_.has_filename())
      return fail(ErrorCode::kInvalidArgument,
                  "the output needs a name of its own; give a folder that does not exist yet");
    partial_ = out_;
    partial_ += ".partial";
    take_back_unfinished();
    std::error_code ignored;
    const bool empty_folder = fs::is_directory(out_, ignored) && fs::is_empty(out_, ignored);
    if (fs::exists(fs::symlink_status(out_, ignored)) && !empty_folder)
      return fail(ErrorCode::kInvalidArgument, "{} exists; nothing is overwritten: name another folder or remove it",
                  out_.string());
    const fs::path parent = out_.has_parent_path() ? out_.parent_path() : fs::path(".");
    if (!fs::is_directory(parent, ignored))
      return fail(ErrorCode::kNotFound, "{} cannot be made: there is no folder {}", out_.string(), parent.string());
    return {};
  }

  /// A run that died between its rename and its last removal left a complete output with its record inside: it becomes
  /// the partial folder again, to be checked and finished.
  void take_back_unfinished() {
    std::error_code ignored;
    if (!fs::exists(out_ / kProgressName, ignored) || fs::exists(partial_, ignored)) return;
    const auto record = formats::read_json_file(out_ / kProgressName);
    if (record && ours(*record))
      ::rename(out_.c_str(), partial_.c_str());  // where it fails, the output counts as existing
  }

  Status enter_partial() {
    if (::mkdir(partial_.c_str(), 0755) != 0 && errno != EEXIST) return io_error("create the folder", partial_);
    struct stat info {};
    if (::lstat(partial_.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
      return fail(ErrorCode::kIo, "{} is in the way: it is no folder; remove it", partial_.string());
    return {};
  }

  /// Is this the record of a run with this input and these settings?
  template <class Json>
  bool ours(const Json& record) const {
    if (!record.is_object()) return false;
    const auto found = record.find("fingerprint");
    return found != record.end() && found->is_string() && found->template get<std::string>() == fingerprint();
  }

  std::string fingerprint() const {
    return fmt::format("galvani 1; input {} {}; {}; shards of {}",
                       fs::absolute(options_.in).lexically_normal().string(), identity_of(options_.in),
                       options_.recipe.str(), options_.shard_bytes);
  }

  /// A temporary file that AtomicFile makes for one of the names that a run writes here: NAME.PID.tmp. Anything else is
  /// someone else's.
  bool our_temporary(const fs::directory_entry& entry) const {
    std::error_code ignored;
    if (!fs::is_regular_file(entry.symlink_status(ignored))) return false;
    const std::string file = entry.path().filename().string();
    std::string_view name = file;
    if (!name.ends_with(".tmp")) return false;
    name.remove_suffix(4);
    const size_t dot = name.find_last_not_of("0123456789");
    if (dot == name.npos || name[dot] != '.' || dot + 1 == name.size()) return false;
    name = name.substr(0, dot);
    return name == kProgressName || name == kIndexName || name == "config.json" ||
           std::any_of(std::begin(kCopied), std::end(kCopied), [&](const char* copied) { return name == copied; }) ||
           std::any_of(shards_.begin(), shards_.end(), [&](const Shard& shard) { return name == shard.name; });
  }

  /// Finished shards of an earlier run; remains of its unfinished files are removed.
  Status read_progress() {
    progress_ = {{"fingerprint", fingerprint()}, {"shards", ordered_json::object()}};
    const fs::path path = partial_ / kProgressName;
    std::error_code ignored;
    if (fs::exists(path, ignored)) {
      GALVANI_TRY(const auto read, formats::read_json_file(path));
      if (!ours(read))
        return fail(ErrorCode::kInvalidArgument,
                    "{} holds the beginning of another run (other input or settings); repeat that command, or remove "
                    "the folder to start anew",
                    partial_.string());
      if (const auto shards = read.find("shards"); shards != read.end() && shards->is_object())
        progress_["shards"] = *shards;
    } else {
      // Nothing is known of what lies here: only an empty folder is ours to fill.
      for (const auto& entry : fs::directory_iterator(partial_, ignored))
        if (!our_temporary(entry))
          return fail(ErrorCode::kInvalidArgument, "{} holds files that no run of quantize left there; remove it",
                      partial_.string());
      GALVANI_TRY_VOID(write_text(path, progress_.dump(1)));
    }
    for (const auto& entry : fs::directory_iterator(partial_, ignored))
      if (our_temporary(entry)) fs::remove(entry.path(), ignored);
    return {};
  }

  void describe() {
    for (const auto& matrix : plan_.matrices) {
      total_weights_ += weights_of(matrix.shape);
      const auto& f = matrix.format;
      ++report_.matrices[!f            ? std::string(dtype_name(matrix.dtype))
                         : f->affine() ? fmt::format("affine {}-bit g{}", f->bits, f->group)
                                       : std::string(matrix_kind_name(f->kind))];
    }
    report_.weights = total_weights_;
    for (const auto& vector : plan_.vectors) report_.weights += weights_of(vector.shape);
    for (const auto& shard : shards_) report_.bytes += shard.bytes;
    report_.shards = static_cast<int>(shards_.size());
    report_.left_out = plan_.left_out;
  }

  Status advance(int64_t weights) {
    if (options_.stop && options_.stop())
      return fail(ErrorCode::kCancelled, "interrupted; the same command goes on with what {} holds", partial_.string());
    done_weights_ += weights;
    if (options_.progress)
      options_.progress(static_cast<double>(done_weights_) / static_cast<double>(std::max<int64_t>(1, total_weights_)));
    return {};
  }

  /// Is this shard already there, whole and undamaged?
  Result<bool> keep(const Shard& shard) {
    const auto recorded = progress_["shards"].find(shard.name);
    std::error_code ignored;
    if (recorded == progress_["shards"].end() || !fs::exists(partial_ / shard.name, ignored)) return false;
    const auto file = SafetensorsFile::open(partial_ / shard.name);
    bool good = file.has_value() && recorded->is_string();
    size_t wanted = 0, begin = SIZE_MAX;
    for (const Item& item : shard.items) {
      for (const auto& tensor : item.tensors()) {
        ++wanted;
        const auto* entry = good ? (*file)->find(tensor.name) : nullptr;
        good = entry != nullptr && entry->dtype == tensor.dtype && entry->shape == tensor.shape;
        if (good) begin = std::min(begin, entry->begin);
      }
    }
    if (good && (*file)->tensors().size() == wanted) {
      Checksum sum;
      sum.add((*file)->map()->bytes().subspan(begin));
      if (sum.hex() == recorded->get<std::string>()) return true;
    }
    log_warn("{} of an earlier run is damaged; it is written again", (partial_ / shard.name).string());
    return false;
  }

  Status write(const Shard& shard) {
    std::vector<SafetensorsWriter::Tensor> tensors;
    for (const Item& item : shard.items)
      for (auto& tensor : item.tensors()) tensors.push_back(std::move(tensor));
    GALVANI_TRY(auto writer, SafetensorsWriter::create(partial_ / shard.name, tensors, {{"format", "mlx"}}));
    Checksum sum;
    const ByteSink sink = [&](std::span<const std::byte> bytes) {
      sum.add(bytes);
      return writer.append(bytes);
    };
    const std::function<Status(int64_t)> done = [this](int64_t weights) { return advance(weights); };
    for (const Item& item : shard.items) {
      if (item.matrix != nullptr)
        GALVANI_TRY_VOID(stream_matrix(*checkpoint_, *item.matrix, done, sink));
      else
        GALVANI_TRY_VOID(stream_vector(*checkpoint_, *item.vector, sink));
    }
    GALVANI_TRY_VOID(writer.finish());
    progress_["shards"][shard.name] = sum.hex();
    return write_text(partial_ / kProgressName, progress_.dump(1));
  }

  Status copy_files() {
    std::error_code ignored;
    const bool folder = fs::is_directory(options_.in, ignored);
    const fs::path tokenizer = options_.tokenizer.empty() && folder ? options_.in : options_.tokenizer;
    for (const char* name : kCopied) {
      const bool generation = std::string_view(name) == "generation_config.json";
      const fs::path& from = generation && folder ? options_.in : tokenizer;
      if (from.empty() || !fs::exists(from / name, ignored)) continue;
      GALVANI_TRY(const auto map, FileMap::open(from / name));
      GALVANI_TRY(auto file, formats::AtomicFile::create(partial_ / name));
      GALVANI_TRY_VOID(file.write(map->bytes()));
      GALVANI_TRY_VOID(file.commit());
      report_.copied.emplace_back(name);
    }
    return {};
  }

  Status finish() {
    ordered_json weight_map = ordered_json::object();
    for (const Shard& shard : shards_)
      for (const Item& item : shard.items)
        for (const auto& tensor : item.tensors()) weight_map[tensor.name] = shard.name;
    const ordered_json index = {{"metadata", {{"total_size", report_.bytes}}}, {"weight_map", std::move(weight_map)}};
    GALVANI_TRY_VOID(write_text(partial_ / kIndexName, index.dump(1) + "\n"));
    GALVANI_TRY_VOID(write_text(partial_ / "config.json", plan_.config.dump(1) + "\n"));
    GALVANI_TRY_VOID(copy_files());
    GALVANI_TRY_VOID(sync_folder(partial_));
    if (::rename(partial_.c_str(), out_.c_str()) != 0)
      return fail(ErrorCode::kIo, "cannot rename {} to {}: {}", partial_.string(), out_.string(), std::strerror(errno));
    // The record goes last: until the rename, a run that dies can be taken up again.
    std::error_code ignored;
    fs::remove(out_ / kProgressName, ignored);
    return sync_folder(out_.has_parent_path() ? out_.parent_path() : fs::path("."));
  }

  const QuantizeOptions& options_;
  fs::path out_, partial_;
  std::shared_ptr<Checkpoint> checkpoint_;
  ExportPlan plan_;
  std::vector<Shard> shards_;
  ordered_json progress_;
  int64_t total_weights_ = 0, done_weights_ = 0;
  QuantizeReport report_;
};

}  // namespace

Result<QuantizeReport> quantize_checkpoint(const QuantizeOptions& options) { return Quantizer(options).run(); }

}  // namespace galvani::quant
