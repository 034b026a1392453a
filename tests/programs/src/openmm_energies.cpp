// Molecular dynamics on OpenMM's OpenCL platform: argon with a cutoff, and rigid water with PME.
// usage: openmm_energies argon|water SIDE STEPS     (SIDE molecules along each edge of the box)
// Prints the energies every tenth of the way.
#include <OpenMM.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

using OpenMM::Vec3;

namespace {

// Positions on a lattice, each pushed off it a little, the same in every run.
Vec3 lattice_point(int index, int side, double spacing) {
  const int x = index % side, y = index / side % side, z = index / (side * side);
  const auto push = [&](int axis) { return 0.02 * std::sin(1.7 * index + 2.3 * axis); };
  return Vec3(x * spacing + push(0), y * spacing + push(1), z * spacing + push(2));
}

OpenMM::NonbondedForce* add_nonbonded(OpenMM::System& system, double box, double cutoff) {
  system.setDefaultPeriodicBoxVectors(Vec3(box, 0, 0), Vec3(0, box, 0), Vec3(0, 0, box));
  auto* force = new OpenMM::NonbondedForce();  // the system deletes it
  force->setCutoffDistance(cutoff);
  system.addForce(force);
  return force;
}

std::vector<Vec3> make_argon(OpenMM::System& system, int side) {
  constexpr double kSpacing = 0.37;
  auto* force = add_nonbonded(system, side * kSpacing, std::fmin(1.0, side * kSpacing * 0.45));
  force->setNonbondedMethod(OpenMM::NonbondedForce::CutoffPeriodic);
  std::vector<Vec3> positions;
  for (int i = 0; i < side * side * side; ++i) {
    system.addParticle(39.95);
    force->addParticle(0.0, 0.3350, 0.996);
    positions.push_back(lattice_point(i, side, kSpacing));
  }
  return positions;
}

std::vector<Vec3> make_water(OpenMM::System& system, int side) {
  constexpr double kSpacing = 0.32, kBond = 0.1, kHalfAngle = 0.9553;  // SPC/E
  auto* force = add_nonbonded(system, side * kSpacing, std::fmin(0.9, side * kSpacing * 0.45));
  force->setNonbondedMethod(OpenMM::NonbondedForce::PME);
  const double dx = kBond * std::sin(kHalfAngle), dy = kBond * std::cos(kHalfAngle);
  std::vector<Vec3> positions;
  for (int i = 0; i < side * side * side; ++i) {
    const int oxygen = system.addParticle(15.999);
    system.addParticle(1.008);
    system.addParticle(1.008);
    force->addParticle(-0.8476, 0.3166, 0.650);
    force->addParticle(0.4238, 1.0, 0.0);
    force->addParticle(0.4238, 1.0, 0.0);
    system.addConstraint(oxygen, oxygen + 1, kBond);
    system.addConstraint(oxygen, oxygen + 2, kBond);
    system.addConstraint(oxygen + 1, oxygen + 2, 2 * dx);
    for (int a = 0; a < 3; ++a)
      for (int b = a + 1; b < 3; ++b) force->addException(oxygen + a, oxygen + b, 0, 1, 0);
    const Vec3 centre = lattice_point(i, side, kSpacing);
    const double sign = i % 2 ? 1 : -1;
    positions.push_back(centre);
    positions.push_back(centre + Vec3(dx, sign * dy, 0));
    positions.push_back(centre + Vec3(-dx, sign * dy, 0));
  }
  return positions;
}

int simulate(const std::string& what, int side, int steps) {
  OpenMM::Platform::loadPluginsFromDirectory(OPENMM_PLUGINS);
  auto& platform = OpenMM::Platform::getPlatformByName("OpenCL");
  OpenMM::System system;
  const auto positions = what == "argon" ? make_argon(system, side) : make_water(system, side);
  OpenMM::VerletIntegrator integrator(0.001);
  OpenMM::Context context(system, integrator, platform,
                          {{"OpenCLPlatformIndex", "0"}, {"DeviceIndex", "0"}, {"Precision", "single"}});
  context.setPositions(positions);
  context.setVelocitiesToTemperature(100.0, 7);
  std::printf("device %s\n", platform.getPropertyValue(context, "DeviceName").c_str());
  const int stride = steps / 10 > 0 ? steps / 10 : 1;
  for (int step = 0; step <= steps; step += stride) {
    const auto state = context.getState(OpenMM::State::Energy | OpenMM::State::Positions);
    const Vec3 last = state.getPositions().back();
    std::printf("step %d potential %.9g kinetic %.9g last %.9g %.9g %.9g\n", step, state.getPotentialEnergy(),
                state.getKineticEnergy(), last[0], last[1], last[2]);
    integrator.step(stride);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: %s argon|water SIDE STEPS\n", argv[0]), 2;
  try {
    return simulate(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
