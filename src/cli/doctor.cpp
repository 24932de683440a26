// galvani doctor: what this machine has, what this binary holds for it, and whether each kernel computes what it
// should.
#include <cstdio>
#include <map>
#include <random>
#include <set>

#include "cli/cli.h"
#include "cli/environment.h"
#include "cli/sampling_flags.h"
#include "core/error.h"
#include "core/parallel.h"
#include "cuda/choose_device.h"
#include "device/parts.h"
#include "galvani/version.h"
#include "kernels/cuda_checks.h"
#include "kernels/probe/probe.h"
#include "kernels/qmatmul/self_test.h"

namespace galvani::cli {
namespace {

struct DoctorFlags {
  std::string device = "auto";
  uint64_t seed = 0;
  CLI::Option* seed_option = nullptr;
  bool quick = false;
};

template <typename... Args>
void put(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stdout);
}

// What was found so far: anything wrong makes the answer no, anything unanswered makes it "could not tell".
struct Findings {
  std::vector<std::string> wrong, unanswered;

  int verdict(const std::string& yes) const {
    for (const std::string& text : wrong) put("  wrong: {}\n", text);
    for (const std::string& text : unanswered) put("  could not tell: {}\n", text);
    put("{}\n", !wrong.empty()        ? fmt::format("NO: {} thing(s) wrong", wrong.size())
                : !unanswered.empty() ? fmt::format("COULD NOT TELL: {} question(s) open", unanswered.size())
                                      : "YES: " + yes);
    return !wrong.empty() ? kNo : !unanswered.empty() ? kCannotAnswer : kYes;
  }
};

std::string version_str(int version) {
  return version == 0 ? "none" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void print_binary() {
  const CudaImageList images = cuda::builtin_images();
  std::set<std::string> names;
  for (const cuda::KernelObject& object : cuda::builtin_kernels())
    for (const cuda::KernelEntry& entry : object.entries) names.insert(entry.name);
  put("binary   galvani {}, CUDA toolkit {}, device code for {}, {} kernels in {} objects\n", GALVANI_VERSION_STRING,
      cuda::builtin_toolkit(), images.empty() ? "no GPU" : cuda_images_str(images), names.size(),
      cuda::builtin_kernels().size());
}

void check_cpu(Findings& findings) {
  const CpuCaps claimed = cpu_caps(), checked = kernels::checked_caps();
  put("CPU      {}; {} physical cores\n", cpu_caps_str(claimed), physical_cores());
  if (!(claimed == checked))
    findings.wrong.push_back(
        fmt::format("the CPU claims more than it computes right; used are {}", cpu_caps_str(checked)));
  put("  compared: {}; the other CPU kernels are not compared here, the tests do that\n",
      claimed.amx_bf16 && claimed.avx512_bf16 ? "the AMX product, with integers" : "nothing");
}

/// The start-up question, of every kernel: would launch() run it?
void self_test(const cuda::CudaDevice& device, Findings& findings) {
  std::map<std::string, int> by_arch;
  int yes = 0, others = 0;
  for (const cuda::Kernel* kernel : device.kernels()) {
    const cuda::SelfTest test = kernel->self_test();
    if (test.answer == cuda::Answer::kYes) ++yes, ++by_arch[kernel->arch()];
    if (test.answer == cuda::Answer::kNo) {
      if (cuda::is_for_other_parts(kernel->name(), device.caps()))
        ++others;
      else
        findings.wrong.push_back(test.reason);
    }
    if (test.answer == cuda::Answer::kCouldNotTell) findings.unanswered.push_back(test.reason);
  }
  std::string archs;
  for (const auto& [arch, count] : by_arch)
    archs += fmt::format("{}{} from {}", archs.empty() ? "" : ", ", count, arch);
  put("  loads: {} of {} kernels would run here ({}){}\n", yes, device.kernels().size(), archs.empty() ? "none" : archs,
      others > 0 ? fmt::format("; {} are for other parts", others) : "");
}

/// Every kernel against its f64 reference. A kernel that nobody compares is said, not passed over.
void compare(cuda::CudaDevice& device, uint64_t seed, Findings& findings) {
  std::set<std::string> compared;
  for (const kernels::KernelCheck& check : kernels::kernel_checks()) {
    const auto verdicts = check.run(device, seed);
    if (!verdicts) {
      findings.wrong.push_back(fmt::format("{}: {}", check.operation, verdicts.error().message));
      if (device.alive()) continue;
      findings.unanswered.push_back(fmt::format("every kernel after {}: the GPU had stopped", check.operation));
      return;
    }
    double worst = 0;
    std::set<std::string> names;
    for (const kernels::KernelVerdict& verdict : *verdicts) {
      compared.insert(verdict.kernel), names.insert(verdict.kernel);
      worst = std::max(worst, verdict.worst);
      if (!verdict.ok())
        findings.wrong.push_back(
            fmt::format("{}: error is {:.2f} times its bound; {}", verdict.kernel, verdict.worst, verdict.note));
    }
    if (names.empty()) continue;  // none for this part
    put("  computes: {:<14} {:>3} kernels, worst error {:.2f} of its bound\n", check.operation, names.size(), worst);
  }
  // What no plan takes here, since it does not fit this part, is compared where it does.
  std::set<std::string> here, elsewhere;
  for (const kernels::KernelCheck& check : kernels::kernel_checks()) {
    for (std::string& name : check.kernels(device.caps())) here.insert(std::move(name));
    for (const Part& part : known_parts())
      for (std::string& name : check.kernels(part.caps)) elsewhere.insert(std::move(name));
  }
  std::string missing;
  int count = 0, unused = 0;
  for (const cuda::Kernel* kernel : device.kernels()) {
    if (compared.count(kernel->name()) > 0 || kernels::computes_nothing(kernel->name()) ||
        kernel->self_test().answer != cuda::Answer::kYes)
      continue;
    if (here.count(kernel->name()) == 0 && elsewhere.count(kernel->name()) > 0)
      ++unused;
    else if (++count <= 12)
      missing += std::string(missing.empty() ? "" : ", ") + kernel->name();
  }
  if (unused > 0)
    put("  unused: {} kernels that no plan takes on this part; parts that take them compare them\n", unused);
  if (count > 0)
    findings.unanswered.push_back(
        fmt::format("{} kernels have no comparison here: {}{}", count, missing, count > 12 ? ", ..." : ""));
}

void ceilings(cuda::CudaDevice& device, Findings& findings) {
  const Part* part = part_of_device(device.name(), device.caps());
  const auto share = [](double measured, double peak) {
    return peak > 0 ? fmt::format(", {:.0f} % of the datasheet's {:.0f}", 100 * measured / peak, peak) : std::string();
  };
  if (const auto read = kernels::measure_read_ceiling(device))
    put("  reads: {:.0f} GB/s over {:.1f} GiB{}\n", read->gbps, static_cast<double>(read->bytes) / (1 << 30),
        share(read->gbps, device.caps().peak_gbps));
  else
    findings.unanswered.push_back("read ceiling: " + read.error().message);
  for (const auto& [type, peak] :
       {std::pair{DType::kF16, part ? part->f16_tflops : 0}, {DType::kBF16, part ? part->bf16_tflops : 0}}) {
    if (type == DType::kBF16 && !device.caps().has(Feature::kBf16)) continue;
    if (const auto product = kernels::measure_matmul_ceiling(device, type))
      put("  multiplies: {:.0f} TFLOPS in {} at {}^3, cuBLASLt, random data{}\n", product->tflops, dtype_name(type),
          product->size, share(product->tflops, peak));
    else
      findings.unanswered.push_back(fmt::format("{} ceiling: {}", dtype_name(type), product.error().message));
  }
}

void check_gpu(int index, const DoctorFlags& flags, const cuda::CudaOptions& options, Findings& findings) {
  const auto device = cuda::CudaDevice::open(index, options);
  if (!device) {
    put("GPU {}    cannot be used\n", index);
    findings.wrong.push_back(fmt::format("GPU {}: {}", index, device.error().message));
    return;
  }
  cuda::CudaDevice& gpu = **device;
  const Part* part = part_of_device(gpu.name(), gpu.caps());
  put("GPU {}    {} ({}): {}\n", index, gpu.name(), part != nullptr ? part->key : "not in the table of known parts",
      device_caps_str(gpu.caps()));
  if (const auto memory = gpu.memory())
    put("  memory: {:.1f} of {:.1f} GiB free\n", static_cast<double>(memory->free_bytes) / (1 << 30),
        static_cast<double>(memory->total_bytes) / (1 << 30));
  self_test(gpu, findings);
  compare(gpu, flags.seed, findings);
  if (!flags.quick) ceilings(gpu, findings);
}

int doctor(DoctorFlags& flags) {
  const auto request = cuda::parse_device(flags.device);
  if (!request) return report(request.error());
  const auto switches = debug_switches();
  if (!switches) return report(switches.error());
  if (flags.seed_option->count() == 0) flags.seed = std::random_device{}();

  Findings findings;
  print_binary();
  check_cpu(findings);
  const cuda::DriverState state = cuda::driver_state();
  using Kind = cuda::DriverState::Kind;
  put("driver   CUDA {}, runtime {}, {} GPU(s)\n", version_str(state.driver_version),
      version_str(state.runtime_version), state.devices);
  if (request->kind == cuda::DeviceRequest::Kind::kCpu)
    return findings.verdict("nothing is wrong with the CPU; the GPU was not asked (--device cpu)");
  const bool insists = request->kind == cuda::DeviceRequest::Kind::kCuda;
  if (state.kind == Kind::kNoCudaInBuild && !insists)
    return findings.verdict("nothing is wrong with the CPU; this build holds no CUDA code");
  if (state.kind != Kind::kReady) {
    // A binary with device code and no GPU to ask it of: the question stays open, unless a GPU was insisted on.
    (insists ? findings.wrong : findings.unanswered).push_back(state.message);
    return findings.verdict("");
  }
  put("seed     {}\n", flags.seed);
  for (int index = 0; index < state.devices; ++index)
    if (!insists || index == request->index) check_gpu(index, flags, cuda_options(*switches), findings);
  if (insists && request->index >= state.devices)
    findings.wrong.push_back(cuda::choose_device(*request).error().message);
  return findings.verdict("every kernel loads and computes what it should");
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* verb = app.add_subcommand(
      "doctor", "what this machine has, what this binary holds for it, and whether its GPU kernels compute right");
  verb->add_option("--device", flags->device, "auto (all), cpu, cuda or cuda:N");
  flags->seed_option =
      verb->add_option("--seed", flags->seed, "of the data that kernels are compared on (default: random)")
          ->check(check_seed);
  verb->add_flag("--quick", flags->quick, "do not measure the ceilings");
  verb->footer("exit codes: 0 all is well, 1 something is wrong, 2 something could not be asked");
  verb->callback([flags, &action] { action = [flags] { return doctor(*flags); }; });
}

}  // namespace galvani::cli
