#include "presampling/samples/publication.h"

#include "presampling/tables/cell_model.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::publication_test {
namespace {

using testing::Random;

// A record, with memory of its own.
struct Told {
  RecordKind kind;
  uint32_t what;
  uint64_t node;
  std::vector<uint64_t> ids{};
  std::vector<double> times{};
  std::vector<float> weights{}, features{};
  uint32_t worker = 0;
  int64_t change = 0;

  friend bool operator==(const Told&, const Told&) = default;
};

std::vector<Told> read_all(std::span<const uint8_t> bytes, uint64_t first_sequence) {
  std::vector<Told> all;
  while (!bytes.empty()) {
    const PublishedBlock block = PublishedBlock::read(&bytes);
    CHECK(block.header().sender == 3 && block.header().receiver == 5);
    CHECK_EQ(block.header().sequence, first_sequence++);
    block.for_each([&](const Record& record) {
      Told told{record.kind, record.what, record.node};
      const CellView& cell = record.sample;
      told.ids.assign(cell.ids, cell.ids + cell.size);
      if (cell.times != nullptr) told.times.assign(cell.times, cell.times + cell.size);
      if (cell.weights != nullptr) told.weights.assign(cell.weights, cell.weights + cell.size);
      told.features.assign(record.features.begin(), record.features.end());
      told.worker = record.worker;
      told.change = record.change;
      all.push_back(told);
    });
  }
  return all;
}

Told write_random(PublicationWriter* writer, Random* random) {
  const uint64_t node = random->below(3) == 0 ? ~random->below(9) : random->below(1000);
  Told told{static_cast<RecordKind>(1 + random->below(5)), random->index(1024), node};
  switch (told.kind) {
    case RecordKind::kSample: {
      CellOptions options = testing::random_cell_options(random);
      options.query = told.what;
      CellHeap cells(options);
      CellRoot root;
      for (int i = 0; i < 40; ++i) cells.insert(node, &root, testing::random_neighbor(random, 50));
      const CellView cell = cells.view(root);
      if (cells.format().has_ids_alone() && cell.size > 0) {
        writer->sample_of_ids(told.what, node, cells.format(), cell);
      } else {
        writer->sample(told.what, node, cells.format(), cell);
      }
      for (uint32_t i = 0; i < cell.size; ++i) {
        const Neighbor neighbor = cells.format().neighbor_at(cell, i);
        told.ids.push_back(neighbor.id);
        if (options.timed) told.times.push_back(neighbor.time);
        if (options.weighted) told.weights.push_back(neighbor.weight);
      }
      break;
    }
    case RecordKind::kFeatures:
      told.features = random->floats(random->below(20));
      writer->features(told.what, node, told.features);
      break;
    case RecordKind::kNoSample:
      writer->no_sample(told.what, node);
      break;
    case RecordKind::kNoFeatures:
      writer->no_features(told.what, node);
      break;
    case RecordKind::kReference:
      told.worker = random->index(4000);
      told.change = static_cast<int64_t>(random->below(7)) - 3;
      writer->reference(told.what, node, told.worker, told.change);
  }
  return told;
}

TEST(what_is_published_is_read) {
  Random random;
  PublicationWriter writer(3, 5);
  for (int round = 0; round < 20; ++round) {
    const uint64_t first = writer.next_sequence();
    std::vector<Told> written;
    for (int part = 0; part < 3; ++part) {
      for (uint64_t i = random.below(400); i > 0; --i) written.push_back(write_random(&writer, &random));
      writer.finish();
      writer.finish();  // nothing is open
    }
    CHECK(read_all(writer.bytes(), first) == written);
    writer.clear();
    CHECK(writer.bytes().empty());
  }
}

TEST(long_publications_are_several_blocks) {
  PublicationWriter writer(3, 5);
  const std::vector<float> row(100, 0.5f);
  for (uint64_t node = 0; node < 10'000; ++node) writer.features(0, node, row);
  writer.finish();
  CHECK(writer.next_sequence() >= 4);
  const std::vector<Told> told = read_all(writer.bytes(), 0);
  CHECK_EQ(told.size(), 10'000u);
  CHECK(told[9'999].node == 9'999 && told[9'999].features == row);
}

TEST(a_spoiled_block_is_refused) {
  Random random;
  for (int round = 0; round < 300; ++round) {
    PublicationWriter writer(3, 5);
    for (int i = 0; i < 10; ++i) write_random(&writer, &random);
    writer.finish();
    std::vector<uint64_t> words(writer.bytes().size() / 8);
    std::memcpy(words.data(), writer.bytes().data(), writer.bytes().size());
    auto* const bytes = reinterpret_cast<uint8_t*>(words.data());
    std::span<const uint8_t> all(bytes, words.size() * 8), cut = all.first(random.below(all.size()));
    CHECK_THROWS(PublishedBlock::read(&cut), std::runtime_error, "published block: ");
    bytes[random.below(all.size())] ^= static_cast<uint8_t>(1u << random.below(8));
    CHECK_THROWS(PublishedBlock::read(&all), std::runtime_error, "published block: ");
  }
}

// With the right checksum, as another program might write it.
TEST(records_that_are_none_are_refused) {
  const auto read = [](std::vector<uint64_t> words, uint32_t records = 1) {
    BlockHeader header;
    header.bytes = static_cast<uint32_t>(words.size() * 8);
    header.records = records;
    uint64_t head[5];
    std::memcpy(head, &header, sizeof(header));
    header.checksum = checksum_of(words.data(), words.size(), checksum_of(head, 4, 0));
    std::memcpy(head, &header, sizeof(header));
    words.insert(words.begin(), head, head + 5);
    std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8);
    PublishedBlock::read(&bytes);
    CHECK(bytes.empty());
  };
  const uint64_t of_two = uint64_t{2} << 32;
  read({1 | of_two, 7, 1, 2});
  read({}, 0);
  for (const auto& words : {std::vector<uint64_t>{1 | of_two, 7, 1},
                            {1 | of_two},
                            {0, 7},
                            {6, 7},
                            {5, 7},
                            {2 | of_two, 7, 1, 2},
                            {3 | of_two | 256, 7, 1},
                            {1 | of_two | 1024, 7, 1, 2},
                            {UINT64_MAX, 7, 1, 2},
                            {1 | uint64_t{UINT32_MAX} << 32, 7, 1, 2}}) {
    CHECK_THROWS(read(words), std::runtime_error, "is none, or cut off");
  }
  CHECK_THROWS(read({1 | of_two, 7, 1, 2}, 2), std::runtime_error, "another number of records");
}

TEST(blocks_come_in_their_order) {
  BlockOrder order(2);
  BlockHeader header;
  header.sender = 1;
  CHECK(order.is_next(header));
  order.passed(header);
  CHECK(!order.is_next(header));  // it was there
  header.sequence = 2;
  CHECK_THROWS(order.is_next(header), std::runtime_error, "number 1 is missing");
  header.sender = 2;
  CHECK_THROWS(order.is_next(header), std::runtime_error, "no sender 2");
}

TEST(a_writer_without_memory_stays_as_it_is) {
  Random random;
  PublicationWriter writer(3, 5);
  for (int i = 0; i < 3'000; ++i) {
    const size_t records = writer.records_written();
    testing::fail_each_allocation([&] { writer.reference(1, 2, 3, 4); },
                                  [&] { CHECK_EQ(writer.records_written(), records); });
  }
  writer.finish();
  CHECK_EQ(read_all(writer.bytes(), 0).size(), 3'000u);
}

}  // namespace
}  // namespace livegnn::publication_test
