#include "livegnn/scratch_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace livegnn {
namespace {

[[noreturn]] void throw_error(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

ScratchFile::ScratchFile(const std::string& directory) : directory_(directory) {
  std::string name = directory + "/livegnn-XXXXXX";
  file_ = mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) throw_error(errno, "a file cannot be made in " + directory);
  unlink(name.c_str());
}

ScratchFile::~ScratchFile() {
  if (data_ != nullptr) munmap(data_, size_ * sizeof(float));
  close(file_);
}

void ScratchFile::reserve(size_t floats) {
  if (floats <= reserved_) return;
  const auto bytes = static_cast<off_t>(floats * sizeof(float));
#ifdef __linux__
  // A file with holes would be shorter to make, but a write to a hole on a full disk kills the process.
  int error;
  do {
    error = posix_fallocate(file_, 0, bytes);
  } while (error == EINTR);
#else
  const int error = ftruncate(file_, bytes) == 0 ? 0 : errno;
#endif
  if (error != 0) throw_error(error, "a file cannot grow to " + std::to_string(bytes) + " bytes");
  reserved_ = floats;
}

void ScratchFile::map() {
  if (reserved_ == size_) return;
  void* mapped = mmap(nullptr, reserved_ * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) throw_error(errno, "a file cannot be mapped");
  if (data_ != nullptr) munmap(data_, size_ * sizeof(float));
  data_ = static_cast<float*>(mapped);
  size_ = reserved_;
  // Rows are read at random: what lies behind them in the file would be read ahead for nothing.
  madvise(data_, size_ * sizeof(float), MADV_RANDOM);
}

}  // namespace livegnn
