// What the structures that cross the seam consist of, for the wire. Pointers into the program's memory are left out:
// they mean nothing elsewhere, and what they point at goes as bulk.
#pragma once

#include "channel/wire.hpp"
#include "command/executor.hpp"

namespace grus {

template <>
inline constexpr bool wire::kIsPlain<ObjectId> = true;
template <>
inline constexpr bool wire::kIsPlain<Range> = true;
template <>
inline constexpr bool wire::kIsPlain<ImageLayout> = true;
template <>
inline constexpr bool wire::kIsPlain<cl_image_format> = true;
template <>
inline constexpr bool wire::kIsPlain<cl_name_version> = true;
template <>
inline constexpr bool wire::kIsPlain<command::Rectangle> = true;
template <>
inline constexpr bool wire::kIsPlain<command::ImageRegion> = true;
template <>
inline constexpr bool wire::kIsPlain<command::Pattern> = true;

using wire::Like;

void fields(auto& archive, Like<PlatformDescription> auto& platform) {
  archive(platform.name, platform.vendor, platform.version, platform.profile, platform.extensions,
          platform.versioned_extensions, platform.host_timer_resolution);
}
void fields(auto& archive, Like<DriverDescription> auto& driver) { archive(driver.file, driver.unload); }

void fields(auto& archive, Like<NewBuffer> auto& buffer) {
  archive(buffer.id, buffer.context, buffer.flags, buffer.properties, buffer.size, buffer.is_region);
}
void fields(auto& archive, Like<NewImage> auto& image) {
  auto& desc = image.desc;
  archive(image.id, image.context, image.flags, image.properties, image.format, desc.image_type, desc.image_width,
          desc.image_height, desc.image_depth, desc.image_array_size, desc.image_row_pitch, desc.image_slice_pitch,
          desc.num_mip_levels, desc.num_samples, image.from);
}
void fields(auto& archive, Like<NewSampler> auto& sampler) {
  archive(sampler.id, sampler.context, sampler.normalized, sampler.addressing, sampler.filter, sampler.properties);
}

// Recipes are made of recipes. However deep a peer nests them, there is an end to it.
inline constexpr int kDeepestRecipe = 32;

void fields(wire::Writer& writer, const std::shared_ptr<const Recipe>& recipe);
void fields(wire::Reader& reader, std::shared_ptr<const Recipe>& recipe);

void fields(auto& archive, Like<BuildOrder> auto& order) {
  archive(order.program, order.context, order.program_devices, order.devices, order.step, order.options, order.recipe,
          order.inputs);
}
void fields(auto& archive, Like<DeviceBuild> auto& build) {
  archive(build.status, build.options, build.log, build.binary_type, build.global_variables);
}
void fields(auto& archive, Like<BuildOutcome> auto& outcome) {
  archive(outcome.code, outcome.created, outcome.builds, outcome.executable, outcome.kernel_names);
}
void fields(auto& archive, Like<ArgumentFacts> auto& argument) {
  archive(argument.kind, argument.known, argument.address, argument.access, argument.qualifiers, argument.type,
          argument.name);
}
void fields(auto& archive, Like<KernelFacts> auto& facts) { archive(facts.name, facts.attributes, facts.arguments); }

inline void fields(wire::Writer& writer, const Argument& argument) {
  writer(argument.holds, argument.stamp);
  if (argument.holds == Argument::Holds::value) {
    writer(argument.value.size());
    writer.add(argument.value.data(), argument.value.size());
  } else {
    writer(argument.holds == Argument::Holds::local ? argument.local_size : argument.object.value());
  }
}
inline void fields(wire::Reader& reader, Argument& argument) {
  reader(argument.holds, argument.stamp);
  if (argument.holds > Argument::Holds::value) throw wire::BadMessage{"an argument of no known kind"};
  if (argument.holds == Argument::Holds::value) {
    const auto size = reader.take<std::size_t>();
    argument.value.assign(reader.take_bytes(size).data(), size);
  } else if (argument.holds == Argument::Holds::local) {
    reader(argument.local_size);
  } else {
    reader(argument.object);
  }
}

namespace command {

// Launch has its own way: only arguments that changed are sent.
void fields(auto& archive, Like<Read> auto& read) { archive(read.memory, read.range, read.is_for_mapping); }
void fields(auto& archive, Like<Write> auto& write) { archive(write.memory, write.range); }
void fields(auto& archive, Like<ReadRectangle> auto& read) { archive(read.memory, read.rectangle); }
void fields(auto& archive, Like<WriteRectangle> auto& write) { archive(write.memory, write.rectangle); }
void fields(auto& archive, Like<ReadImage> auto& read) { archive(read.memory, read.where); }
void fields(auto& archive, Like<WriteImage> auto& write) { archive(write.memory, write.where); }
void fields(auto& archive, Like<Copy> auto& copy) {
  archive(copy.from, copy.to, copy.from_offset, copy.to_offset, copy.size);
}
void fields(auto& archive, Like<CopyRectangle> auto& copy) {
  archive(copy.from, copy.to, copy.from_origin, copy.to_origin, copy.region, copy.from_row_pitch, copy.from_slice_pitch,
          copy.to_row_pitch, copy.to_slice_pitch);
}
void fields(auto& archive, Like<Fill> auto& fill) { archive(fill.memory, fill.range, fill.pattern); }
void fields(auto& archive, Like<CopyImage> auto& copy) {
  archive(copy.from, copy.to, copy.from_origin, copy.to_origin, copy.region);
}
void fields(auto& archive, Like<CopyImageToBuffer> auto& copy) { archive(copy.from, copy.to, copy.where, copy.offset); }
void fields(auto& archive, Like<CopyBufferToImage> auto& copy) { archive(copy.from, copy.to, copy.offset, copy.where); }
void fields(auto& archive, Like<FillImage> auto& fill) { archive(fill.memory, fill.color, fill.where); }
void fields(auto& archive, Like<MapBuffer> auto& map) { archive(map.memory, map.flags, map.range); }
void fields(auto& archive, Like<MapImage> auto& map) { archive(map.memory, map.flags, map.where); }
void fields(auto& archive, Like<Unmap> auto& unmap) { archive(unmap.memory); }
inline void fields(wire::Writer& writer, const Migrate& migrate) { writer(migrate.memories, migrate.flags); }
void fields(auto&, Like<Marker> auto&) {}
void fields(auto&, Like<Barrier> auto&) {}

}  // namespace command
}  // namespace grus
