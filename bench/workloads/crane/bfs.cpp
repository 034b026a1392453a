// Breadth-first search of a graph, level by level, like SHOC's BFS. The host asks after each level whether there is
// another.
#include "bfs.cl.hpp"
#include "crane/sizes.hpp"
#include "frame/workload.hpp"

namespace {

using namespace workload;

constexpr cl_uint kUnreached = ~cl_uint{0};

class Bfs : public Workload {
 public:
  explicit Bfs(size_t size)
      : vertices_{static_cast<cl_uint>(size)}, source_{vertices_ / 3}, levels_(size), first_edges_(size + 1) {
    make_graph();
  }

  void prepare(Frame& frame) override {
    group_ = group_size(frame);
    frame.build(kKernels, define("GROUP", group_));
    begin_ = frame.kernel("begin");
    visit_level_ = frame.kernel("visit_level");
    on_device_first_edges_ = frame.buffer_of<cl_uint>(first_edges_.size(), CL_MEM_READ_ONLY);
    on_device_targets_ = frame.buffer_of<cl_uint>(targets_.size(), CL_MEM_READ_ONLY);
    on_device_levels_ = frame.buffer_of<cl_uint>(levels_.size());
    on_device_deepest_ = frame.buffer_of<cl_uint>(1);
    frame.send(on_device_first_edges_, first_edges_);
    frame.send(on_device_targets_, targets_);
  }
  void iterate(Frame& frame) override {
    const Range global{round_up(vertices_, group_)};
    frame.launch(begin_, global, {group_}, on_device_levels_, on_device_deepest_, vertices_, source_);
    std::vector<cl_uint> deepest(1);
    for (cl_uint level = 0; deepest[0] == level; ++level) {
      frame.launch(visit_level_, global, {group_}, on_device_first_edges_, on_device_targets_, on_device_levels_,
                   on_device_deepest_, vertices_, level);
      frame.fetch(on_device_deepest_, deepest);
    }
  }
  void collect(Frame& frame) override { frame.fetch(on_device_levels_, levels_); }

  // With a queue, one vertex at a time.
  void verify() const override {
    std::vector<cl_uint> expected(vertices_, kUnreached);
    std::vector<cl_uint> queue{source_};
    queue.reserve(vertices_);
    expected[source_] = 0;
    for (size_t next = 0; next < queue.size(); ++next) {
      const cl_uint vertex = queue[next];
      for (cl_uint edge = first_edges_[vertex]; edge < first_edges_[vertex + 1]; ++edge) {
        cl_uint& level = expected[targets_[edge]];
        if (level != kUnreached) continue;
        level = expected[vertex] + 1;
        queue.push_back(targets_[edge]);
      }
    }
    expect_same("level of vertex", levels_, expected);
  }
  void add_to(Checksum& checksum) const override { checksum.add(levels_); }

 private:
  // Vertices on a ring, each joined with four that are up to a thirty-second of the way ahead: some twenty levels. The
  // last few have no edges and are never reached.
  void make_graph() {
    constexpr cl_uint kEdges = 4;
    const cl_uint ring = vertices_ - vertices_ / 64;
    const cl_uint reach = ring / 32 + 1;
    std::vector<std::array<cl_uint, kEdges>> ahead(ring);
    Random random{1};
    for (cl_uint vertex = 0; vertex < ring; ++vertex) {
      for (cl_uint& target : ahead[vertex]) {
        target = (vertex + 1 + random.below(reach)) % ring;
        ++first_edges_[vertex + 1];
        ++first_edges_[target + 1];
      }
    }
    for (cl_uint vertex = 0; vertex < vertices_; ++vertex) first_edges_[vertex + 1] += first_edges_[vertex];
    targets_.resize(first_edges_.back());
    auto next = first_edges_;
    for (cl_uint vertex = 0; vertex < ring; ++vertex) {
      for (const cl_uint target : ahead[vertex]) {
        targets_[next[vertex]++] = target;
        targets_[next[target]++] = vertex;
      }
    }
  }

  cl_uint vertices_;
  cl_uint source_;
  size_t group_ = 0;
  std::vector<cl_uint> levels_;
  std::vector<cl_uint> first_edges_;
  std::vector<cl_uint> targets_;
  Kernel begin_;
  Kernel visit_level_;
  Buffer on_device_first_edges_;
  Buffer on_device_targets_;
  Buffer on_device_levels_;
  Buffer on_device_deepest_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Bfs>(argc, argv,
                           {.name = "bfs",
                            .what = "Breadth-first search of a graph, level by level",
                            .size = size_t{1} << 20,
                            .size_is = "vertices",
                            .iterations = 5,
                            .quick_size = size_t{1} << 16});
}
