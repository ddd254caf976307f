// Operations over blocks of rows, of any number of rows up to a block.
#include "inference/evaluation/row_evaluation.h"

#include <cmath>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"

namespace livegnn::row_evaluation_test {

using namespace testing;

namespace {

// Each kind of operation that has code of its own here, one after the other.
Program all_kinds(Random* random) {
  enum : uint32_t { kA, kB, kContext, kOut };
  Program program;
  program.values = {{0, 12, true, 0}, {0, 12, false, 0}, {0, 1, false, 1}, {0, 12, false, 2}};
  program.output = kOut;
  RowsBuilder rows(&program, {kA, kB, kContext});
  uint32_t row = rows.apply(OpKind::kAdd, {0, 1});
  row = rows.apply(OpKind::kMultiply, {row, 1});
  row = rows.apply(OpKind::kDivideContext, {row, 2});
  row = rows.apply(OpKind::kAddLoop, {row, 2, 0});
  row = rows.apply(OpKind::kRsqrtContext, {row, 2});
  row = rows.linear(row, 12, random);
  row = rows.apply(OpKind::kRelu, {row});
  row = rows.apply("tanh", {row});
  row = rows.apply(OpKind::kSigmoid, {row});
  rows.finish({{row, kOut}});
  return program;
}

}  // namespace

TEST(a_block_of_any_size_gives_plain_rows) {
  Random random;
  const Program program = all_kinds(&random);
  const RowsStep& step = program.rows[0];
  for (size_t count = 1; count <= kBlockRows; ++count) {
    std::vector<Floats> rows;
    std::vector<const float*> sources(step.sources.size() * kBlockRows);
    for (size_t s = 0; s < step.sources.size(); ++s) {
      for (size_t i = 0; i < count; ++i) {
        rows.push_back(random.floats(row_stride(step.registers[s].width)));
        if (s == 2) rows.back()[0] = random.chance(0.3) ? 0.0f : std::fabs(rows.back()[0]) + 0.1f;
        sources[s * kBlockRows + i] = rows.back().data();
      }
    }
    RowBuffers memory;
    float* const* const buffers = memory.open(step);
    CHECK(run_rows(program, step, count, sources.data(), buffers));
    Floats out(count * 16, -1.0f);
    run_block(program, step, count, sources.data(), out.data(), 16);
    for (size_t i = 0; i < count; ++i) {
      std::vector<PlainRow> plain;
      for (size_t s = 0; s < step.sources.size(); ++s) {
        const float* const row = sources[s * kBlockRows + i];
        plain.emplace_back(row, row + step.registers[s].width);
      }
      const uint32_t sink = step.sinks[0].reg;
      const PlainRow expected = plain_registers(program, step, plain)[sink];
      const float* const row = row_in(step, sink, i, sources.data(), buffers);
      for (size_t c = 0; c < expected.size(); ++c) {
        CHECK_NEAR(row[c], expected[c], 1e-4);
        CHECK_EQ(out[i * 16 + c], row[c]);
      }
      for (size_t c = expected.size(); c < 16; ++c) CHECK_EQ(out[i * 16 + c], -1.0f);
    }
  }
}

TEST(a_source_may_be_a_sink) {
  Random random;
  Program program = all_kinds(&random);
  RowsStep& step = program.rows[0];
  step.sinks[0].reg = 1;
  const Floats a = random.floats(16), b = random.floats(16), context(1, 2.0f);
  std::vector<const float*> sources(3 * kBlockRows);
  sources[0] = a.data(), sources[kBlockRows] = b.data(), sources[2 * kBlockRows] = context.data();
  Floats out(12);
  run_block(program, step, 1, sources.data(), out.data(), 12);
  CHECK(std::equal(out.begin(), out.end(), b.begin()));
}

}  // namespace livegnn::row_evaluation_test
