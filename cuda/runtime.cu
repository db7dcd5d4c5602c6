// The names of errors.
#include "gpu.h"

extern "C" {

#if defined(__CUDACC__)

const char* cohop_error_name(int32_t code) {
  return code == COHOP_ERROR_EXCEPTION ? "exception in a launcher" : cudaGetErrorName(static_cast<cudaError_t>(code));
}

const char* cohop_error_message(int32_t code) {
  return code == COHOP_ERROR_EXCEPTION ? "" : cudaGetErrorString(static_cast<cudaError_t>(code));
}

#else

const char* cohop_emulate_error_name(int32_t code);
const char* cohop_emulate_message();

const char* cohop_error_name(int32_t code) {
  return code == COHOP_ERROR_EXCEPTION ? "exception in a launcher" : cohop_emulate_error_name(code);
}

const char* cohop_error_message(int32_t code) { return code == 0 ? "" : cohop_emulate_message(); }

#endif

}  // extern "C"
