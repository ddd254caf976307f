// Steps on the rows of one node, in the first computation and after batches.
#include <cmath>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"

namespace livegnn::node_rows_test {

using namespace testing;

TEST(rows_are_those_of_plain_operations) {
  for_each_state([](const Engine& engine) {
    const Program& program = engine.program();
    for (const RowsStep& step : program.rows) {
      for (uint32_t node : nodes_in_use(engine)) {
        std::vector<PlainRow> sources;
        for (uint32_t source : step.sources) sources.push_back(plain_row(engine, source, node));
        const std::vector<PlainRow> registers = plain_registers(program, step, sources);
        for (const Sink& sink : step.sinks) {
          const PlainRow row = plain_row(engine, sink.value, node);
          double largest = 0;
          for (double value : registers[sink.reg]) largest = std::max(largest, std::fabs(value));
          for (size_t c = 0; c < row.size(); ++c) CHECK_NEAR(row[c], registers[sink.reg][c], 3e-5 * (largest + 1));
        }
      }
    }
  });
}

}  // namespace livegnn::node_rows_test
