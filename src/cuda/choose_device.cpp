// Shared by the CUDA build and the one without.
#include "cuda/choose_device.h"

#include <charconv>

#include "core/error.h"
#include "cuda/device.h"

namespace galvani::cuda {
namespace {

Status usable(int index) {
  const DriverState state = driver_state();
  if (state.kind != DriverState::Kind::kReady) return fail(ErrorCode::kUnsupported, "{}", state.message);
  if (index >= state.devices)
    return fail(ErrorCode::kOutOfRange, "this machine has {} GPU{}; allowed: {}", state.devices,
                state.devices == 1 ? "" : "s",
                state.devices == 1 ? "cuda:0" : "cuda:0 to cuda:" + std::to_string(state.devices - 1));
  GALVANI_TRY(const DeviceIdentity identity, device_identity(index));
  return check_coverage(builtin_images(), identity.cc, identity.name);
}

}  // namespace

Result<DeviceRequest> parse_device(std::string_view text) {
  using Kind = DeviceRequest::Kind;
  if (text == "auto") return DeviceRequest{};
  if (text == "cpu") return DeviceRequest{Kind::kCpu, 0};
  if (text == "cuda") return DeviceRequest{Kind::kCuda, 0};
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    int index = -1;
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && rest == digits.data() + digits.size() && index >= 0)
      return DeviceRequest{Kind::kCuda, index};
  }
  return fail(ErrorCode::kInvalidArgument, "--device {}: there is no such device; allowed: auto, cpu, cuda, cuda:N",
              text);
}

Result<DeviceChoice> choose_device(const DeviceRequest& request) {
  using Kind = DeviceRequest::Kind;
  if (request.kind == Kind::kCpu) return DeviceChoice{};
  const Status status = usable(request.index);
  if (status) return DeviceChoice{true, request.index, "", false};
  if (request.kind == Kind::kAuto) {
    const DriverState state = driver_state();
    // A driver that is there but of no use is worth a warning; none, or no GPU, is how most machines are.
    const bool unusable =
        state.devices > 0 || state.kind == DriverState::Kind::kDriverTooOld || state.kind == DriverState::Kind::kFailed;
    return DeviceChoice{false, 0, status.error().message, unusable};
  }
  return fail(status.error().code, "--device cuda{}: {}", request.index > 0 ? fmt::format(":{}", request.index) : "",
              status.error().message);
}

}  // namespace galvani::cuda
