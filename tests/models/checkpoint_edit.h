#pragma once
/// A small checkpoint in memory, to store the same weights in another layout or to break it.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "formats/bytes.h"
#include "formats/safetensors.h"
#include "models/model_fixture.h"

namespace galvani::models {

struct EditedTensor {
  DType dtype = DType::kBF16;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t dim : shape) n *= dim;
    return n;
  }
  /// Of a bf16 tensor.
  std::vector<float> floats() const {
    std::vector<float> values(static_cast<size_t>(elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      values[i] = bf16_to_f32(bits);
    }
    return values;
  }
  static EditedTensor bf16(std::vector<int64_t> shape, const std::vector<float>& values) {
    EditedTensor tensor{DType::kBF16, std::move(shape), std::vector<std::byte>(values.size() * 2)};
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = f32_to_bf16(values[i]);
      std::memcpy(tensor.bytes.data() + 2 * i, &bits, 2);
    }
    return tensor;
  }
  static EditedTensor raw(DType dtype, std::vector<int64_t> shape, const std::vector<uint8_t>& values) {
    EditedTensor tensor{dtype, std::move(shape), std::vector<std::byte>(values.size())};
    std::memcpy(tensor.bytes.data(), values.data(), values.size());
    return tensor;
  }
};

/// tests/data/models/<model>, editable; written to a folder of its own that goes with the object.
class EditedCheckpoint {
 public:
  explicit EditedCheckpoint(const std::string& model) {
    auto file = formats::SafetensorsFile::open(model_data(model) / "model.safetensors");
    if (!file) throw std::runtime_error(file.error().message);
    for (const auto& entry : (*file)->tensors()) {
      EditedTensor tensor{entry.dtype, {}, {}};
      for (int i = 0; i < entry.shape.rank(); ++i) tensor.shape.push_back(entry.shape[i]);
      const auto bytes = (*file)->view(entry).bytes;
      tensor.bytes.assign(bytes.begin(), bytes.end());
      tensors[entry.name] = std::move(tensor);
    }
    config = nlohmann::json::parse(testing::read_text(model_data(model) / "config.json"));
  }

  EditedTensor take(const std::string& name) {
    auto node = tensors.extract(name);
    if (node.empty()) throw std::runtime_error("no tensor " + name);
    return std::move(node.mapped());
  }

  /// The folder, written now.
  std::filesystem::path write() {
    std::vector<formats::SafetensorsToWrite> list;
    for (const auto& [name, tensor] : tensors) list.push_back({name, tensor.dtype, Shape(tensor.shape), tensor.bytes});
    const auto written = formats::write_safetensors(folder_.path() / "model.safetensors", list, {{"format", "pt"}});
    EXPECT_TRUE(written.has_value()) << (written ? "" : written.error().message);
    std::ofstream(folder_.path() / "config.json") << config.dump(1);
    return folder_.path();
  }

  std::unique_ptr<engine::Runner> load(LoadOptions options = {}) {
    options.model = write().string();
    options.act = "f32";
    options.poison = true;
    auto runner = engine::Runner::load(options);
    EXPECT_TRUE(runner.has_value()) << (runner ? "" : runner.error().message);
    return runner ? std::move(*runner) : nullptr;
  }

  /// What loading says, "" when it works.
  std::string load_error() {
    LoadOptions options;
    options.model = write().string();
    options.act = "f32";
    auto runner = engine::Runner::load(options);
    return runner ? std::string() : runner.error().message;
  }

  std::map<std::string, EditedTensor> tensors;
  nlohmann::json config;

 private:
  testing::TempFolder folder_;
};

}  // namespace galvani::models
