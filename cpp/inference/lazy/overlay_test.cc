#include "inference/lazy/overlay.h"

#include <algorithm>
#include <map>
#include <vector>

#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::overlay_test {

using namespace testing;

namespace {

struct OverlayModel {
  enum State { kStale, kWanted, kPlaced };
  struct Covered {
    State state;
    std::vector<float> row;
  };
  std::map<uint32_t, Covered> nodes;

  void check(Overlay* overlay, size_t capacity) const {
    size_t stale = 0;
    for (uint32_t node = 0; node < capacity + 70; ++node) {
      const auto found = nodes.find(node);
      CHECK_EQ(overlay->covers(node), found != nodes.end());
      CHECK_EQ(overlay->stale(node), found != nodes.end() && found->second.state == kStale);
      CHECK_EQ(overlay->wanted(node), found != nodes.end() && found->second.state == kWanted);
      if (found == nodes.end()) continue;
      const auto& [state, row] = found->second;
      stale += state != kPlaced;
      if (state != kPlaced) continue;
      CHECK(std::equal(row.begin(), row.end(), overlay->row(node)));
      CHECK_EQ(overlay->error(node)[0], row[0]);
    }
    CHECK_EQ(overlay->num_stale(), stale);
    std::vector<uint32_t> listed = overlay->nodes();
    std::sort(listed.begin(), listed.end());
    CHECK_EQ(listed.size(), nodes.size());
    CHECK(std::equal(listed.begin(), listed.end(), nodes.begin(),
                     [](uint32_t a, const auto& b) { return a == b.first; }));
  }
};

}  // namespace

// Batches that invalidate rows, for which all is reserved, and queries that compute some of them.
TEST(overlay_agrees_with_a_map) {
  Random random;
  constexpr size_t kStride = 4;
  for (int run = 0; run < 10; ++run) {
    Overlay overlay(kStride);
    OverlayModel model;
    size_t capacity = 1;
    for (int turn = 0; turn < 150; ++turn) {
      std::vector<uint32_t> invalidated, wanted;
      capacity += random.below(random.chance(0.05) ? 9000 : 20);
      for (size_t i = random.below(40); i > 0; --i)
        invalidated.push_back(random.index(std::min<size_t>(capacity, 3000)));
      for (const auto& [node, covered] : model.nodes) {
        if (covered.state != OverlayModel::kPlaced && random.chance(0.3)) wanted.push_back(node);
      }
      overlay.reserve(capacity, invalidated.size(), wanted.size());
      check_allocates_nothing([&] {
        overlay.resize(capacity);
        for (uint32_t node : invalidated) overlay.invalidate(node);
        for (uint32_t node : wanted) {
          if (!overlay.stale(node)) continue;
          overlay.want(node);
          if (node % 4 == 0) overlay.unwant(node);
          if (node % 4 != 1) overlay.place(node);
        }
      });
      for (uint32_t node : invalidated) model.nodes[node] = {OverlayModel::kStale, {}};
      for (uint32_t node : wanted) {
        auto& covered = model.nodes[node];
        if (covered.state != OverlayModel::kStale) continue;
        covered.state = OverlayModel::kWanted;
        if (node % 4 == 1) continue;
        covered = {OverlayModel::kPlaced, random.floats(kStride)};
        std::copy(covered.row.begin(), covered.row.end(), overlay.row(node));
        overlay.error(node)[0] = covered.row[0];
      }
      overlay.settle();
      if (random.chance(0.03)) {
        overlay.clear();
        model.nodes.clear();
      }
      if (turn % 10 == 0) model.check(&overlay, capacity);
      // A query leaves nothing behind that is only wanted.
      for (auto& [node, covered] : model.nodes) {
        overlay.unwant(node);
        if (covered.state == OverlayModel::kWanted) covered.state = OverlayModel::kStale;
      }
    }
    model.check(&overlay, capacity);
  }
}

// Without a reservation a row is placed all the same, and none of the others moves.
TEST(overlay_rows_stay_where_they_are) {
  Overlay overlay(2);
  overlay.reserve(5000, 5000, 0);
  overlay.resize(5000);
  std::vector<const float*> rows;
  for (uint32_t node = 0; node < 5000; ++node) {
    overlay.invalidate(node);
    overlay.place(node);
    rows.push_back(overlay.row(node));
  }
  for (uint32_t node = 0; node < 5000; ++node) CHECK_EQ(overlay.row(node), rows[node]);
  CHECK(overlay.bytes() >= 5000 * 2 * sizeof(float));
  overlay.clear();
  CHECK(!overlay.covers(7));
}

}  // namespace livegnn::overlay_test
