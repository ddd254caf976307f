// Floats in a file that is mapped: the system may write them out and forget them when memory is scarce.
//
// The file has no name from the moment it is open, so it goes with the process, however that ends. It keeps nothing.
//
// Invariants: the disk space of all bytes up to `size` is taken, so that a write to the mapping cannot fail; what was
// never written is zero.
// Thread safety: `reserve` and `settle` beside readers of the mapping; all else alone.
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
  float* data() const { return now_.data; }
  size_t size() const { return now_.size; }  // in floats

  // Takes the space for so many floats and maps it aside; `data` does not move. Throws std::system_error where the disk
  // or the addresses are used up.
  void reserve(size_t floats);
  // All that was reserved is there; `data` may move. What is read at the old place stays good until `settle`.
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
  size_t on_disk_ = 0;  // floats for which there is space
  Mapping now_, next_, old_;
};

}  // namespace livegnn
