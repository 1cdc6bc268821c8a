// Texels of images of every shape: fetched from a level, gathered, found by a direction; and the images' sizes.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) writeonly buffer Answer { uint answer[]; };
layout(binding = 1) uniform usampler1D line;
layout(binding = 2) uniform usampler1DArray lines;
layout(binding = 3) uniform usampler2DArray sheets;
layout(binding = 4) uniform usampler3D block;
layout(binding = 5) uniform usamplerCube cube;
layout(binding = 6) uniform usampler2D sheet;
layout(binding = 7) uniform usamplerBuffer words;

void main() {
  int i = int(gl_GlobalInvocationID.x);
  uint at = uint(i) * 16u;
  answer[at] = texelFetch(line, i % 18, 1).x;
  answer[at + 1u] = texelFetch(lines, ivec2(i % 21, i % 3), 0).x;
  answer[at + 2u] = texelFetch(sheets, ivec3(i % 10, i % 6, i % 4), 1).x;
  answer[at + 3u] = texelFetch(block, ivec3(i % 9, i % 7, i % 5), 0).x;
  answer[at + 4u] = texelFetch(block, ivec3(i % 4, i % 3, i % 2), 1).x;
  vec3 to = vec3(i % 3 == 0 ? 1.0 : 0.25, i % 3 == 1 ? 1.0 : 0.375, i % 3 == 2 ? 1.0 : -0.625);
  answer[at + 5u] = textureLod(cube, (i & 4) != 0 ? -to : to, 0.0).x;
  uvec4 four = textureGather(sheet, vec2(float(i % 8), float(i / 8)) / 8.0, 1);
  answer[at + 6u] = four.x | four.y << 8 | four.z << 16 | four.w << 24;
  uvec4 texel = texelFetch(sheet, ivec2(i % 8, i / 8), 0);
  answer[at + 7u] = texel.x | texel.y << 8 | texel.z << 16 | texel.w << 24;
  texel = texelFetch(words, i);
  answer[at + 8u] = texel.x + 3u * texel.y + 5u * texel.z + 7u * texel.w;
  answer[at + 9u] = uint(textureSize(line, i & 1)) + 100u * uint(textureQueryLevels(line));
  ivec2 pair = textureSize(lines, 0);
  answer[at + 10u] = uint(pair.x + 100 * pair.y);
  ivec3 size = textureSize(sheets, i & 1);
  answer[at + 11u] = uint(size.x + 100 * size.y + 10000 * size.z);
  size = textureSize(block, i & 1);
  answer[at + 12u] = uint(size.x + 100 * size.y + 10000 * size.z);
  pair = textureSize(cube, 0);
  answer[at + 13u] = uint(pair.x + 100 * pair.y);
  answer[at + 14u] = uint(textureSize(words));
  answer[at + 15u] = textureLod(block, vec3(float(i % 9) + 0.5, float(i % 7) + 0.5, float(i % 5) + 0.5) / vec3(9.0, 7.0, 5.0), 0.0).x;
}
