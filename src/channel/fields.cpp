#include "channel/fields.hpp"

namespace grus {
namespace {

void write_recipe(wire::Writer& writer, const Recipe& recipe) {
  writer(recipe.origin, recipe.source, recipe.il, recipe.specialization_constants, recipe.options, recipe.compiled_only,
         recipe.vendor_binaries);
  writer(recipe.headers.size());
  for (const Recipe::Header& header : recipe.headers) {
    writer(header.name);
    write_recipe(writer, *header.recipe);
  }
  writer(recipe.inputs.size());
  for (const auto& input : recipe.inputs) write_recipe(writer, *input);
  writer(recipe.fallback != nullptr);
  if (recipe.fallback) write_recipe(writer, *recipe.fallback);
}

std::shared_ptr<const Recipe> read_recipe(wire::Reader& reader, int depth) {
  if (depth > kDeepestRecipe) throw wire::BadMessage{"a program is made of too many others"};
  const auto recipe = std::make_shared<Recipe>();
  reader(recipe->origin, recipe->source, recipe->il, recipe->specialization_constants, recipe->options,
         recipe->compiled_only, recipe->vendor_binaries);
  if (recipe->origin > ProgramOrigin::linked) throw wire::BadMessage{"a program of no known origin"};
  for (auto left = reader.take<std::size_t>(); left != 0; --left) {
    auto name = reader.take<std::string>();
    recipe->headers.push_back({std::move(name), read_recipe(reader, depth + 1)});
  }
  for (auto left = reader.take<std::size_t>(); left != 0; --left)
    recipe->inputs.push_back(read_recipe(reader, depth + 1));
  if (reader.take<bool>()) recipe->fallback = read_recipe(reader, depth + 1);
  return recipe;
}

}  // namespace

void fields(wire::Writer& writer, const std::shared_ptr<const Recipe>& recipe) { write_recipe(writer, *recipe); }
void fields(wire::Reader& reader, std::shared_ptr<const Recipe>& recipe) { recipe = read_recipe(reader, 0); }

}  // namespace grus
