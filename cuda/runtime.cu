// Devices and the names of errors.
#include "gpu.h"

extern "C" {

#if defined(__CUDACC__)

int32_t cohop_device_count(int32_t* count) {
  int found = 0;
  const cudaError_t error = cudaGetDeviceCount(&found);
  *count = found;
  (void)cudaGetLastError();
  return static_cast<int32_t>(error);
}

const char* cohop_error_name(int32_t code) {
  return code == COHOP_ERROR_EXCEPTION ? "exception in a launcher" : cudaGetErrorName(static_cast<cudaError_t>(code));
}

const char* cohop_error_message(int32_t code) {
  return code == COHOP_ERROR_EXCEPTION ? "" : cudaGetErrorString(static_cast<cudaError_t>(code));
}

#else

const char* cohop_emulate_message();

int32_t cohop_device_count(int32_t* count) {
  *count = 1;
  return 0;
}

const char* cohop_error_name(int32_t code) {
  switch (code) {
    case 0: return "success";
    case 1: return "invalid value";
    case 9: return "invalid configuration";
    case 710: return "assertion failed";
    case 716: return "misaligned address";
    case 719: return "launch failure";
    case 10001: return "deadlock";
    case 10002: return "divergent barrier";
    case 10003: return "wrong mask";
    case 10004: return "race";
    case 10005: return "exception in a kernel";
    case COHOP_ERROR_EXCEPTION: return "exception in a launcher";
    default: return "unknown error";
  }
}

const char* cohop_error_message(int32_t code) { return code == 0 ? "" : cohop_emulate_message(); }

#endif

}  // extern "C"
