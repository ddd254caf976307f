// Floats in a mapped file: the system may write them to disk and drop them from memory if memory is scarce.
//
// The file is unlinked as soon as it is open, so it disappears with the process, however that ends. It stores nothing
// permanently.
//
// Invariants: disk space is allocated for all bytes up to `size`, so that a write to the mapping cannot fail; bytes
// that were never written are zero.
// Thread safety: `reserve` and `settle` may run concurrently with readers of the mapping; everything else needs
// exclusive access.
#pragma once

#include <cstddef>
#include <string>

namespace livegnn {

class ScratchFile {
 public:
  // Throws std::system_error if no file can be made in the directory.
  explicit ScratchFile(const std::string& directory);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& directory() const { return directory_; }
  float* data() const { return now_.data; }
  size_t size() const { return now_.size; }  // in floats

  // Allocates the space for this many floats and maps it at another address; `data` does not change. Throws
  // std::system_error if there is no more disk or address space.
  void reserve(size_t floats);
  // Makes everything that was reserved available; `data` may change. The old address stays readable until `settle`.
  void adopt() noexcept;
  void settle() noexcept;

 private:
  struct Mapping {
    float* data = nullptr;
    size_t size = 0;  // in floats
  };

  static void unmap(Mapping* mapping) noexcept;

  std::string directory_;
  int file_ = -1;
  size_t on_disk_ = 0;  // number of floats with disk space
  Mapping now_, next_, old_;
};

}  // namespace livegnn
