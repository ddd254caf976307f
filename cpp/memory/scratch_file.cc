#include "memory/scratch_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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
  for (Mapping* mapping : {&now_, &next_, &old_}) unmap(mapping);
  close(file_);
}

void ScratchFile::unmap(Mapping* mapping) noexcept {
  if (mapping->data != nullptr) munmap(mapping->data, mapping->size * sizeof(float));
  *mapping = {};
}

void ScratchFile::reserve(size_t floats) {
  const size_t bytes = floats * sizeof(float);
  if (floats > on_disk_) {
#ifdef __linux__
    // A sparse file would be faster to make, but a write to a hole on a full disk kills the process.
    int error;
    do {
      error = posix_fallocate(file_, 0, static_cast<off_t>(bytes));
    } while (error == EINTR);
#else
    const int error = ftruncate(file_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
#endif
    if (error != 0) throw_error(error, "a file cannot grow to " + std::to_string(bytes) + " bytes");
    on_disk_ = floats;
  }
  if (floats <= std::max(now_.size, next_.size)) return;
  // Both mappings show the same pages: nothing is copied, and writes to one are visible in the other.
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) throw_error(errno, "a file cannot be mapped");
  // Rows are read at random, so reading ahead would be wasted.
  madvise(mapped, bytes, MADV_RANDOM);
  unmap(&next_);
  next_ = {static_cast<float*>(mapped), floats};
}

void ScratchFile::adopt() noexcept {
  if (next_.data == nullptr) return;
  unmap(&old_);
  old_ = now_;
  now_ = next_;
  next_ = {};
}

void ScratchFile::settle() noexcept { unmap(&old_); }

}  // namespace livegnn
