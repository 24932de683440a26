#include "cli/hf_cache.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "cli/environment.h"
#include "core/error.h"

namespace galvani::cli {
namespace {

namespace fs = std::filesystem;

// HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub: huggingface_hub's own order.
fs::path hub_cache() {
  if (const std::string hub = environment("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "huggingface/hub";
  return fs::path(environment("HOME")) / ".cache/huggingface/hub";
}

bool valid_repo(const std::string& repo) {
  const size_t slash = repo.find('/');
  const bool one_slash = slash != std::string::npos && repo.find('/', slash + 1) == std::string::npos;
  return one_slash && slash > 0 && slash + 1 < repo.size() && repo.find("..") == std::string::npos &&
         std::all_of(repo.begin(), repo.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '/' || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

Result<std::string> resolve_hf(const std::string& repo) {
  if (!valid_repo(repo))
    return fail(ErrorCode::kInvalidArgument,
                "-hf {}: that is not a repository name; write ORG/REPO, e.g. HuggingFaceTB/SmolLM2-135M-Instruct",
                repo);
  std::string folder = "models--" + repo;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path base = hub_cache() / folder;
  std::string revision;
  std::ifstream(base / "refs/main") >> revision;
  const fs::path snapshot = base / "snapshots" / revision;
  std::error_code ignored;
  if (revision.empty() || revision.find_first_of("/.") != std::string::npos || !fs::is_directory(snapshot, ignored))
    return fail(ErrorCode::kNotFound,
                "-hf {}: it is not in the local cache ({}). Download it with:\n  hf download {}\nand run the same "
                "command again",
                repo, base.string(), repo);
  if (fs::exists(snapshot / "config.json", ignored)) return snapshot.string();
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(snapshot, ignored)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  if (files.size() == 1) return files.front();
  if (files.empty())
    return fail(ErrorCode::kNotFound,
                "-hf {}: {} has neither config.json nor a .gguf file. Download it whole with:\n  hf download {}", repo,
                snapshot.string(), repo);
  std::string list;
  for (const std::string& file : files) list += "\n  -m " + file;
  return fail(ErrorCode::kInvalidArgument, "-hf {}: {} GGUF files are there; choose one:{}", repo, files.size(), list);
}

}  // namespace galvani::cli
