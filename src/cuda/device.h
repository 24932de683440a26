#pragma once
/// One GPU, opened: what it can do, its kernels with their self-tests, its memory by tag, and whether it still lives.
/// Thread-safe. No CUDA include; a build without CUDA has the same functions, each of which says so.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/self_test.h"
#include "galvani/error.h"

namespace galvani::cuda {

class CudaDevice;

/// Why there is a GPU to use, or why not. Asking costs nothing where there is no driver.
struct DriverState {
  enum class Kind { kReady, kNoCudaInBuild, kNoDriver, kDriverTooOld, kNoDevice, kFailed };
  Kind kind = Kind::kNoCudaInBuild;
  int driver_version = 0;   ///< 1000 × major + 10 × minor of the CUDA that the driver brings; 0 = no driver
  int runtime_version = 0;  ///< of the runtime linked in; 0 = none
  int devices = 0;
  std::string reason;   ///< in words; empty when ready
  std::string message;  ///< the reason, and what to do for a run
};
DriverState driver_state();

/// Fixed when a device is opened; parsed from flags and the environment by the program, never here.
struct CudaOptions {
  bool poison = false;             ///< fill every output that a launch names with NaN before the kernel
  bool sync_every_launch = false;  ///< wait after each launch, so that an error names its kernel
  bool trace_plan = false;         ///< log each decision for a kernel the first time it is taken
  std::span<const KernelObject> kernels = builtin_kernels();
  CudaImageList images = builtin_images();
};

/// A kernel as chosen for one device: of all objects that hold its name, the best image that this device runs.
/// Owned by the device, valid as long as it.
class Kernel {
 public:
  Kernel(CudaDevice& device, const KernelEntry& entry, std::string arch)
      : device_(device), entry_(entry), arch_(std::move(arch)) {}

  const char* name() const { return entry_.name; }
  const std::string& arch() const { return arch_; }
  const KernelEntry& entry() const { return entry_; }
  CudaDevice& device() const { return device_; }
  uint64_t launches() const { return launches_.load(std::memory_order_relaxed); }

  /// Asked on first use, then remembered if it was yes or no. From any thread, also while another captures a graph.
  SelfTest self_test() const;
  /// What the runtime says of it; asks the self-test first. Zero if it could not be asked.
  KernelAttributes attributes() const;

  // For launch() and graphs.
  void count_launches(uint64_t n) const { launches_.fetch_add(n, std::memory_order_relaxed); }
  /// Raises the kernel's limit of dynamic shared memory to `bytes` if it is lower.
  Status opt_in(int bytes) const;

 private:
  CudaDevice& device_;
  const KernelEntry& entry_;
  std::string arch_;
  mutable std::atomic<Answer> answer_{Answer::kUnknown};
  mutable std::atomic<int> opted_in_{0};
  mutable std::atomic<uint64_t> launches_{0};
  mutable std::mutex mutex_;  // of the two below
  mutable SelfTest result_;
  mutable KernelAttributes attributes_;
};

class CudaDevice : public std::enable_shared_from_this<CudaDevice> {
 public:
  /// Errors: kUnsupported (no CUDA in this build, no driver, driver too old, nothing in the binary runs there),
  /// kOutOfRange (no such device).
  static Result<std::shared_ptr<CudaDevice>> open(int index, const CudaOptions& options = {});
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  int index() const { return index_; }
  const std::string& name() const { return name_; }
  const DeviceCaps& caps() const { return caps_; }
  const CudaOptions& options() const { return options_; }

  /// By name. Errors: kNotFound, with what the binary was built for. The kernel's self-test is asked by launch().
  Result<const Kernel*> kernel(std::string_view name) const;
  /// All kernels, sorted by name.
  std::vector<const Kernel*> kernels() const;

  /// Success, or the first error after which CUDA answers nothing else any more; from then on every call here fails
  /// with it. A step ends with synchronize(), so that it is known before its results are used.
  Status alive() const;
  /// Waits for all work on the device. Errors: what any of it reported, with the kernels launched last.
  Status synchronize();
  /// Makes this device the calling thread's current one.
  Status make_current() const;

  struct MemoryInfo {
    int64_t free_bytes = 0, total_bytes = 0;
  };
  Result<MemoryInfo> memory() const;
  /// Bytes held by this process's buffers, by tag.
  std::map<std::string, int64_t> memory_by_tag() const;

  /// GALVANI_TRACE=plan: an operation says which kernel it takes for which problem, and why not the ones before it.
  /// `text` is called only when tracing, and each text is logged once.
  template <typename Text>
  void trace_plan(const Text& text) {
    if (options_.trace_plan) log_plan(text());
  }

  // For the other handles of this folder.
  void note_memory(const std::string& tag, int64_t bytes);
  /// Turns a runtime's error into ours, and remembers it when nothing works after it. `what` names call and kernel.
  tl::unexpected<Error> failed(int cuda_error, const std::string& what);
  /// Remembers the name for the message of an error that shows itself later.
  void note_launch(const Kernel& kernel);

 private:
  CudaDevice() = default;
  void build_kernel_table();
  void log_plan(std::string text);
  std::string recent_launches() const;

  int index_ = 0;
  std::string name_;
  DeviceCaps caps_;
  CudaOptions options_;
  std::map<std::string, std::unique_ptr<Kernel>, std::less<>> kernels_;
  mutable std::mutex mutex_;  // of the four below
  std::set<std::string> traced_;
  std::map<std::string, int64_t> memory_;
  bool dead_ = false;
  Error death_;
  static constexpr size_t kRecent = 8;
  std::atomic<const Kernel*> recent_[kRecent] = {};
  std::atomic<uint64_t> recent_next_{0};
};

}  // namespace galvani::cuda
