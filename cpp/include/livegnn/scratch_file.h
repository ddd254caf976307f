// Floats in a file that is mapped: the system may write them out and forget them when memory is scarce.
//
// The file has no name from the moment it is open, so it goes with the process, however that ends. It keeps nothing.
//
// Invariants: the disk space of all bytes up to `size` is taken, so that a write to the mapping cannot fail; what was
// never written is zero.
// Thread safety: `reserve` beside readers of the mapping; all else alone.
#pragma once

#include <cstddef>
#include <string>

namespace livegnn {

class ScratchFile {
 public:
  // Throws std::system_error where no file can be made in the directory.
  explicit ScratchFile(const std::string& directory);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& directory() const { return directory_; }
  float* data() const { return data_; }
  size_t size() const { return size_; }  // in floats

  // Takes the space for so many floats; `data` does not move. Throws std::system_error where the disk is full.
  void reserve(size_t floats);
  // Maps all that was reserved; `data` may move.
  void map();

 private:
  std::string directory_;
  int file_ = -1;
  float* data_ = nullptr;
  size_t size_ = 0, reserved_ = 0;
};

}  // namespace livegnn
