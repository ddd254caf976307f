#include "inference/evaluation/message_sums.h"

#include <cstring>
#include <memory>

#include "memory/recent.h"

namespace livegnn {

size_t heads_of(const Program& program, const PropagateStep& step) {
  const MessageProgram& messages = program.messages[step.message];
  return messages.coefficient == kNoIndex ? 1 : messages.step.registers[messages.coefficient].width;
}

MessageSums& sums_of(const Program& program, uint64_t serial, const PropagateStep& step, const float* inverse) {
  // One object for each thread and step, for the last few engines that the thread has worked for, which include
  // destroyed ones. A new state may have the address of an old one, so the serial number is the key.
  constexpr size_t kStates = 8;
  static thread_local Recent<uint64_t, std::vector<std::unique_ptr<MessageSums>>, kStates> states;
  const auto position = static_cast<size_t>(&step - program.propagations.data());
  auto& made = states.at(serial);
  if (made.size() <= position) made.resize(program.propagations.size());
  if (made[position] == nullptr) made[position] = std::make_unique<MessageSums>(program, step);
  made[position]->set_units(inverse);
  return *made[position];
}

void write_sums(const Program& program, const PropagateStep& step, MessageSums* sums, size_t target, float* row,
                float* context) {
  const size_t heads = sums->heads(), width = sums->width();
  if (sums->messages(target) == 0) {
    std::memset(row, 0, width * sizeof(float));
    if (context != nullptr) std::memset(context, 0, program.values[step.context].width * sizeof(float));
    return;
  }
  std::memcpy(row, sums->sum(target), width * sizeof(float));
  if (context == nullptr) return;
  std::memcpy(context, sums->context(target), heads * sizeof(float));
  if (program.messages[step.message].softmax) {
    std::memcpy(context + heads, sums->references(target), heads * sizeof(float));
  }
}

}  // namespace livegnn
