// In place of libcuda.so.1: a driver of the version GALVANI_FAKE_CUDA_VERSION (11040 is 11.4) that starts with the
// error GALVANI_FAKE_CUDA_INIT (0: it starts, and has no GPU). The runtime asks it before anything else; whatever it
// asks besides is not there.
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kNotFound = 500;  // CUDA_ERROR_NOT_FOUND

int number(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}
int nothing() { return kNotFound; }

}  // namespace

extern "C" {

int cuDriverGetVersion(int* version) {
  *version = number("GALVANI_FAKE_CUDA_VERSION");
  return 0;
}
int cuInit(unsigned) { return number("GALVANI_FAKE_CUDA_INIT"); }
int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}
int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotFound;
}
int cuGetProcAddress_v2(const char* symbol, void** function, int, unsigned long long, int* status) {
  if (status != nullptr) *status = 0;
  const auto is = [&](const char* name) { return std::strcmp(symbol, name) == 0; };
  *function = is("cuDriverGetVersion") ? reinterpret_cast<void*>(cuDriverGetVersion)
              : is("cuInit")           ? reinterpret_cast<void*>(cuInit)
              : is("cuDeviceGetCount") ? reinterpret_cast<void*>(cuDeviceGetCount)
              : is("cuGetExportTable") ? reinterpret_cast<void*>(cuGetExportTable)
              : is("cuGetProcAddress") ? reinterpret_cast<void*>(cuGetProcAddress_v2)
                                       : reinterpret_cast<void*>(nothing);
  return 0;
}
int cuGetProcAddress(const char* symbol, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // extern "C"
