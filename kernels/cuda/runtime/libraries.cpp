#include "kernels/cuda/runtime/libraries.h"

#include <cuda_runtime_api.h>
#include <cudnn_version.h>
#include <dlfcn.h>

#include "kernels/base/error.h"
#include "kernels/wheel_libraries.h"

namespace dpt {
namespace {

/// Formats a version number of the libraries: 91900 is 9.19.0.
std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// A library that stays open until the process ends, because kernels and handles made from it may
/// live that long.
class Library {
 public:
  /// Opens a library. `file` is a name without a folder, for which the loader searches as usual. In
  /// a wheel, the libraries that pip installed with it come first. They have the versions that the
  /// wheel requires, while a cluster's LD_LIBRARY_PATH may lead to a cuDNN 9 for another CUDA.
  Library(std::string name, std::string file, std::string remedy)
      : name_(std::move(name)), file_(std::move(file)), remedy_(std::move(remedy)) {
    const std::string installed = wheel_library(file_);
    dlerror();
    handle_ = dlopen(installed.empty() ? file_.c_str() : installed.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) unusable(reason());
  }

  void* handle() const { return handle_; }

  template <class Function>
  void find(Function*& function, const char* symbol) const {
    dlerror();
    void* address = dlsym(handle_, symbol);
    if (!address) unusable(reason());
    function = reinterpret_cast<Function*>(address);
  }

  [[noreturn]] void unusable(const std::string& why) const {
    fail(ErrorKind::device,
         "{} cannot be used: {}; {} (with the wheel: pip install 'dpt-train[cuda]'), or add the "
         "folder that has {} to LD_LIBRARY_PATH",
         name_, why, remedy_, file_);
  }

 private:
  std::string reason() const {
    const char* text = dlerror();
    return text ? text : file_ + ": no reason given";
  }

  std::string name_, file_, remedy_;
  void* handle_ = nullptr;
};

/// Returns cuBLASLt. The major version is part of the interface, so it must equal that of the
/// headers.
const Library& cublas_lt_library() {
  static const Library library("cuBLASLt", fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR),
                               fmt::format("install cuBLAS of CUDA {}", CUDART_VERSION / 1000));
  return library;
}

constexpr std::size_t kOldestCudnn = 90100;

std::size_t cudnn_version(const Library& library) {
  std::size_t (*version)() = nullptr;
  library.find(version, "cudnnGetVersion");
  return version();
}

const Library& checked_cudnn_library() {
  static const Library library = [] {
    Library opened("cuDNN", fmt::format("libcudnn.so.{}", CUDNN_MAJOR),
                   fmt::format("install cuDNN {} for CUDA {}", CUDNN_MAJOR, CUDART_VERSION / 1000));
    const std::size_t version = cudnn_version(opened);
    if (version < kOldestCudnn) {
      opened.unusable(fmt::format("version {} or later is needed, and {} was found",
                                  version_text(kOldestCudnn), version_text(version)));
    }
    return opened;
  }();
  return library;
}

const Library& opened_nccl_library() {
  static const Library library("NCCL", "libnccl.so.2",
                               fmt::format("install NCCL 2 for CUDA {}", CUDART_VERSION / 1000));
  return library;
}

std::string nccl_version() {
  const Library& library = opened_nccl_library();
  int (*version)(int*) = nullptr;
  library.find(version, "ncclGetVersion");
  int number = 0;
  if (version(&number) != 0) library.unusable("ncclGetVersion failed");
  return version_text(static_cast<std::size_t>(number));
}

/// Returns the result of `describe`, or the reason why it failed.
template <class Describe>
std::string attempt(Describe describe) {
  try {
    return describe();
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt functions = [] {
    const Library& library = cublas_lt_library();
    CublasLt found = {};
    library.find(found.create, "cublasLtCreate");
    library.find(found.destroy, "cublasLtDestroy");
    library.find(found.matmul_desc_create, "cublasLtMatmulDescCreate");
    library.find(found.matmul_desc_destroy, "cublasLtMatmulDescDestroy");
    library.find(found.matmul_desc_set, "cublasLtMatmulDescSetAttribute");
    library.find(found.layout_create, "cublasLtMatrixLayoutCreate");
    library.find(found.layout_destroy, "cublasLtMatrixLayoutDestroy");
    library.find(found.preference_create, "cublasLtMatmulPreferenceCreate");
    library.find(found.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    library.find(found.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    library.find(found.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    library.find(found.algorithm_get, "cublasLtMatmulAlgoConfigGetAttribute");
    library.find(found.matmul, "cublasLtMatmul");
    library.find(found.version, "cublasLtGetVersion");
    library.find(found.status_string, "cublasLtGetStatusString");
    return found;
  }();
  return functions;
}

void* cudnn_library() {
  return checked_cudnn_library().handle();
}

void* nccl_library() {
  return opened_nccl_library().handle();
}

std::string describe_cudnn() {
  return attempt([] { return "cuDNN " + version_text(cudnn_version(checked_cudnn_library())); });
}

std::vector<std::string> describe_libraries() {
  return {attempt([] { return "cuBLASLt " + version_text(cublas_lt().version()); }),
          describe_cudnn(), attempt([] { return "NCCL " + nccl_version(); })};
}

}  // namespace dpt
