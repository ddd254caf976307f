// Runs a fuzz target where the compiler brings no libFuzzer, with the options of its that are needed:
//
//   target [-max_total_time=SECONDS] [-seed=SEED]      random inputs, and mutations of those that reached new code
//   target FILE ...                                    these inputs, once each
//
// Inputs run in a child process, which may die in any way: its parent has the input before its eyes, in shared memory,
// and writes it to a file. Code is instrumented by -fsanitize-coverage=trace-pc, but for this file.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMaxInput = 2048;
constexpr unsigned kPatience = 60;  // seconds for one input

struct Shared {
  uint64_t runs, kept;
  size_t size;
  uint8_t bytes[kMaxInput];
};

// Steps from one piece of code to another that some input took.
constexpr size_t kSteps = 1 << 16;
uint8_t steps[kSteps];
size_t last_place = 0;
bool is_new = false;

void run(const Bytes& input) { LLVMFuzzerTestOneInput(input.data(), input.size()); }

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : bits_(seed) {}

  Bytes next(const std::vector<Bytes>& corpus) {
    if (corpus.empty() || below(20) == 0) return fresh();
    // The latest ones have been tried least.
    const size_t from =
        below(2) == 0 ? corpus.size() - 1 - below(std::min<size_t>(corpus.size(), 16)) : below(corpus.size());
    Bytes bytes = corpus[from];
    for (size_t times = 1 + below(5); times > 0; --times) mutate(&bytes, corpus);
    if (bytes.size() > kMaxInput) bytes.resize(kMaxInput);
    return bytes;
  }

 private:
  size_t below(size_t n) { return n < 2 ? 0 : std::uniform_int_distribution<size_t>(0, n - 1)(bits_); }
  uint8_t byte() { return static_cast<uint8_t>(below(256)); }

  Bytes fresh() {
    Bytes bytes(1 + below(size_t{16} << below(7)));
    for (uint8_t& b : bytes) b = byte();
    return bytes;
  }

  void mutate(Bytes* bytes, const std::vector<Bytes>& corpus) {
    const size_t at = below(bytes->size() + 1), length = below(std::min<size_t>(bytes->size() - at, 64) + 1);
    const auto begin = bytes->begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = begin + static_cast<std::ptrdiff_t>(length);
    switch (below(6)) {
      case 0:
        if (at < bytes->size()) *begin = byte();
        break;
      case 1:
        if (at < bytes->size()) *begin = static_cast<uint8_t>(*begin ^ (1u << below(8)));
        break;
      case 2:
        bytes->erase(begin, end);
        break;
      case 3: {
        Bytes more(below(64));
        for (uint8_t& b : more) b = byte();
        bytes->insert(begin, more.begin(), more.end());
        break;
      }
      case 4: {
        const Bytes copy(begin, end);
        const auto to = bytes->begin() + static_cast<std::ptrdiff_t>(below(bytes->size() + 1));
        bytes->insert(to, copy.begin(), copy.end());
        break;
      }
      default: {
        const Bytes& other = corpus[below(corpus.size())];
        const auto from = other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1));
        bytes->insert(begin, from,
                      from + static_cast<std::ptrdiff_t>(below(static_cast<size_t>(other.end() - from) + 1)));
      }
    }
  }

  std::mt19937_64 bits_;
};

[[noreturn]] void fuzz(uint64_t seed, double seconds, Shared* shared) {
  Mutator mutator(seed);
  std::vector<Bytes> corpus;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
    const Bytes input = mutator.next(corpus);
    std::copy(input.begin(), input.end(), shared->bytes);
    shared->size = input.size();
    ++shared->runs;
    is_new = false;
    last_place = 0;
    alarm(kPatience);
    run(input);
    if (!is_new) continue;
    corpus.push_back(input);
    shared->kept = corpus.size();
  }
  std::fflush(nullptr);
  _exit(0);
}

int replay(int count, char** files) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(files[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", files[i]);
      return 2;
    }
    run(Bytes(std::istreambuf_iterator<char>(file), {}));
  }
  return 0;
}

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<size_t>(__builtin_return_address(0));
  const size_t step = (place ^ (last_place << 5)) * 0x9E3779B97F4A7C15u >> 48;
  last_place = place;
  if (steps[step] != 0) return;
  steps[step] = 1;
  is_new = true;
}

int main(int argc, char** argv) {
  uint64_t seed = std::random_device{}();
  double seconds = 60;
  int options = 1;
  for (; options < argc && argv[options][0] == '-'; ++options) {
    const std::string_view option = argv[options];
    const size_t equals = option.find('=');
    const char* value = equals == option.npos ? "" : argv[options] + equals + 1;
    if (option.starts_with("-seed=")) {
      seed = std::strtoull(value, nullptr, 10);
    } else if (option.starts_with("-max_total_time=")) {
      seconds = std::strtod(value, nullptr);
    } else {
      std::fprintf(stderr, "expected -seed=SEED, -max_total_time=SECONDS or files to replay, got %s\n", argv[options]);
      return 2;
    }
  }
  if (options < argc) return replay(argc - options, argv + options);

  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 2;
  }
  auto* shared = static_cast<Shared*>(memory);
  std::fprintf(stderr, "%s -seed=%llu\n", argv[0], static_cast<unsigned long long>(seed));
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    return 2;
  }
  if (child == 0) fuzz(seed, seconds, shared);
  int status = 0;
  waitpid(child, &status, 0);
  std::fprintf(stderr, "%llu inputs, of which %llu reached new code\n", static_cast<unsigned long long>(shared->runs),
               static_cast<unsigned long long>(shared->kept));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;

  const std::string_view path = argv[0];
  const std::string name = "crash-" + std::string(path.substr(path.rfind('/') + 1)) + "-" + std::to_string(seed);
  std::ofstream(name, std::ios::binary)
      .write(reinterpret_cast<const char*>(shared->bytes), static_cast<std::streamsize>(shared->size));
  std::fprintf(stderr, "FAILED%s; to see it again: %s %s\n",
               WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? " (an input that does not end)" : "", argv[0],
               name.c_str());
  return 1;
}
