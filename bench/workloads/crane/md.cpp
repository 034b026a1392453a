// Forces between the atoms of a liquid with lists of neighbours, like SHOC's MD.
#include <array>
#include <cmath>

#include "crane/sizes.hpp"
#include "frame/workload.hpp"
#include "md.cl.hpp"

namespace {

using namespace workload;

// Lengths are in units of Lennard-Jones's sigma. The lists reach a little further than the forces, as those of a
// program that moves the atoms would.
constexpr double kCutoffSquared = 7.75;
constexpr double kListRadiusSquared = 9.5;
constexpr size_t kCellSide = 4;  // at least the lists' radius

using Vector = std::array<double, 4>;

class Md : public Workload {
 public:
  explicit Md(size_t size) : edge_{size}, atoms_{size * size * size}, positions_(atoms_), forces_(atoms_) {
    place_atoms();
    make_lists();
  }

  void prepare(Frame& frame) override {
    group_ = group_size(frame);
    frame.build(kKernels, define("GROUP", group_));
    find_forces_ = frame.kernel("find_forces");
    on_device_positions_ = frame.buffer_of<cl_float4>(atoms_, CL_MEM_READ_ONLY);
    on_device_neighbours_ = frame.buffer_of<cl_uint>(neighbours_.size(), CL_MEM_READ_ONLY);
    on_device_counts_ = frame.buffer_of<cl_uint>(atoms_, CL_MEM_READ_ONLY);
    on_device_forces_ = frame.buffer_of<cl_float4>(atoms_, CL_MEM_WRITE_ONLY);
    frame.send(on_device_positions_, positions_);
    frame.send(on_device_neighbours_, neighbours_);
    frame.send(on_device_counts_, counts_);
  }
  void iterate(Frame& frame) override {
    frame.launch(find_forces_, {round_up(atoms_, group_)}, {group_}, on_device_positions_, on_device_neighbours_,
                 on_device_counts_, on_device_forces_, static_cast<cl_uint>(atoms_),
                 static_cast<float>(kCutoffSquared));
  }
  void collect(Frame& frame) override { frame.fetch(on_device_forces_, forces_); }

  // Without the lists: what is within the cutoff is within three places of the lattice.
  void verify() const override {
    for (size_t atom = 0; atom < atoms_; ++atom) {
      Vector expected{};
      Vector magnitude{};
      const auto [x, y, z] = place_of(atom);
      const auto limit = static_cast<std::ptrdiff_t>(edge_) - 1;
      for (auto c = std::max<std::ptrdiff_t>(z - 3, 0); c <= std::min(z + 3, limit); ++c) {
        for (auto b = std::max<std::ptrdiff_t>(y - 3, 0); b <= std::min(y + 3, limit); ++b) {
          for (auto a = std::max<std::ptrdiff_t>(x - 3, 0); a <= std::min(x + 3, limit); ++a)
            add_force(atom, atom_at(a, b, c), expected, magnitude);
        }
      }
      // Rounding of a sum goes with the size of what is added.
      for (size_t i = 0; i < 4; ++i) {
        if (!(std::abs(forces_[atom].s[i] - expected[i]) <= 6e-6 * magnitude[i]))
          throw Wrong("the force on atom " + std::to_string(atom));
      }
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(forces_); }

 private:
  using Place = std::array<std::ptrdiff_t, 3>;

  Place place_of(size_t atom) const {
    return {static_cast<std::ptrdiff_t>(atom % edge_), static_cast<std::ptrdiff_t>(atom / edge_ % edge_),
            static_cast<std::ptrdiff_t>(atom / edge_ / edge_)};
  }
  size_t atom_at(std::ptrdiff_t x, std::ptrdiff_t y, std::ptrdiff_t z) const {
    return (static_cast<size_t>(z) * edge_ + static_cast<size_t>(y)) * edge_ + static_cast<size_t>(x);
  }

  // A lattice, disturbed by up to a fifth of its spacing. All are multiples of 1/256, so that squared distances are
  // exact in single precision and every device agrees on which pairs are within the cutoff.
  void place_atoms() {
    Random random{1};
    for (size_t atom = 0; atom < atoms_; ++atom) {
      const auto place = place_of(atom);
      for (size_t i = 0; i < 3; ++i) {
        const int disturbed = static_cast<int>(place[i]) * 256 + static_cast<int>(random.below(103)) - 51;
        positions_[atom].s[i] = static_cast<float>(disturbed) / 256.0F;
      }
      positions_[atom].s[3] = 0;
    }
  }

  double squared_distance(size_t one, size_t other) const {
    double sum = 0;
    for (size_t i = 0; i < 3; ++i) {
      const double away = double{positions_[one].s[i]} - double{positions_[other].s[i]};
      sum += away * away;
    }
    return sum;
  }

  // Cells as large as the lists reach: neighbours are in the same cell or in those around it.
  void make_lists() {
    const size_t cells = edge_ / kCellSide + 1;
    const auto cell_of = [&](float position) {
      return std::min(cells - 1, static_cast<size_t>(std::max(position, 0.0F)) / kCellSide);
    };
    std::vector<std::vector<cl_uint>> members(cells * cells * cells);
    for (size_t atom = 0; atom < atoms_; ++atom) {
      const auto& p = positions_[atom].s;
      members[(cell_of(p[2]) * cells + cell_of(p[1])) * cells + cell_of(p[0])].push_back(static_cast<cl_uint>(atom));
    }
    const auto from = [](size_t cell) { return cell == 0 ? 0 : cell - 1; };
    const auto to = [&](size_t cell) { return std::min(cell + 1, cells - 1); };
    counts_.resize(atoms_);
    neighbours_.resize(atoms_);  // not nothing, even if nobody has any
    for (size_t atom = 0; atom < atoms_; ++atom) {
      const auto& p = positions_[atom].s;
      const size_t x = cell_of(p[0]);
      const size_t y = cell_of(p[1]);
      const size_t z = cell_of(p[2]);
      for (size_t c = from(z); c <= to(z); ++c) {
        for (size_t b = from(y); b <= to(y); ++b) {
          for (size_t a = from(x); a <= to(x); ++a) {
            for (const cl_uint other : members[(c * cells + b) * cells + a]) add_neighbour(atom, other);
          }
        }
      }
    }
  }
  void add_neighbour(size_t atom, size_t other) {
    if (other == atom || squared_distance(atom, other) >= kListRadiusSquared) return;
    const size_t to = counts_[atom]++ * atoms_ + atom;
    if (to >= neighbours_.size()) neighbours_.resize(counts_[atom] * atoms_);
    neighbours_[to] = static_cast<cl_uint>(other);
  }

  void add_force(size_t atom, size_t other, Vector& sum, Vector& magnitude) const {
    const double squared = squared_distance(atom, other);
    if (other == atom || squared >= kCutoffSquared) return;
    const double sixth = 1 / (squared * squared * squared);
    const double strength = (48 * sixth * sixth - 24 * sixth) / squared;
    for (size_t i = 0; i < 3; ++i) {
      const double part = (double{positions_[atom].s[i]} - double{positions_[other].s[i]}) * strength;
      sum[i] += part;
      magnitude[i] += std::abs(part);
    }
    sum[3] += 2 * (sixth * sixth - sixth);
    magnitude[3] += 2 * (sixth * sixth + sixth);
  }

  size_t edge_;
  size_t atoms_;
  size_t group_ = 0;
  std::vector<cl_float4> positions_;
  std::vector<cl_uint> neighbours_;  // [rank][atom]
  std::vector<cl_uint> counts_;
  std::vector<cl_float4> forces_;
  Kernel find_forces_;
  Buffer on_device_positions_;
  Buffer on_device_neighbours_;
  Buffer on_device_counts_;
  Buffer on_device_forces_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Md>(argc, argv,
                          {.name = "md",
                           .what = "Lennard-Jones forces from lists of neighbours",
                           .size = 48,
                           .size_is = "atoms along each edge of a cube",
                           .iterations = 20,
                           .quick_size = 16});
}
