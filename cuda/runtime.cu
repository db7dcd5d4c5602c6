// The names of errors, and a count of launches.
#include "gpu.h"

#if defined(__CUDACC__)

#include <atomic>

static std::atomic<uint64_t> n_launches{0};

void cohop::count_launch() { n_launches.fetch_add(1, std::memory_order_relaxed); }

extern "C" {

uint64_t cohop_launches() { return n_launches.load(std::memory_order_relaxed); }

const char* cohop_error_name(int32_t code) {
  return code == COHOP_ERROR_EXCEPTION ? "exception in a launcher" : cudaGetErrorName(static_cast<cudaError_t>(code));
}

const char* cohop_error_message(int32_t code) {
  return code == COHOP_ERROR_EXCEPTION ? "" : cudaGetErrorString(static_cast<cudaError_t>(code));
}

}  // extern "C"

#else

extern "C" {

uint64_t cohop_launches() { return 0; }

const char* cohop_emulate_error_name(int32_t code);
const char* cohop_emulate_message();

const char* cohop_error_name(int32_t code) {
  return code == COHOP_ERROR_EXCEPTION ? "exception in a launcher" : cohop_emulate_error_name(code);
}

const char* cohop_error_message(int32_t code) { return code == 0 ? "" : cohop_emulate_message(); }

}  // extern "C"

#endif
