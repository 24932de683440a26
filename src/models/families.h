#pragma once
/// One loader a family, each in its own file; registry.cpp has one row for each.
#include "models/model.h"

namespace galvani::models {

using LoadFamily = Result<std::unique_ptr<Model>> (*)(quant::Checkpoint&, exec::Ops&, const Progress&);

Result<std::unique_ptr<Model>> load_deepseek_v3(quant::Checkpoint& checkpoint, exec::Ops& ops,
                                                const Progress& progress);
Result<std::unique_ptr<Model>> load_gemma3(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_gemma4(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_gpt_oss(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_llama(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_mixtral(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_olmoe(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_qwen2(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_qwen3(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_qwen3_5(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_qwen3_5_moe(quant::Checkpoint& checkpoint, exec::Ops& ops,
                                                const Progress& progress);
Result<std::unique_ptr<Model>> load_qwen3_next(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);
Result<std::unique_ptr<Model>> load_qwen3_moe(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress);

}  // namespace galvani::models
