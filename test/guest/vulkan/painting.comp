// Stores to storage images and a texel buffer of several formats, loads behind them, and atomics in three dimensions.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0, rgba8) uniform image2D colours;
layout(binding = 1, rg16f) uniform image2D halves;
layout(binding = 2, rgba8_snorm) uniform image2D signs;
layout(binding = 3, rgba16i) uniform iimage2DArray sheets;
layout(binding = 4, r32ui) uniform uimage3D block;
layout(binding = 5, r32i) uniform iimage1D line;
layout(binding = 6, r32ui) uniform uimageBuffer words;
layout(binding = 7, rgb10_a2) uniform image2D deep;
layout(binding = 8) buffer Answer { uint answer[]; };

void main() {
  int i = int(gl_GlobalInvocationID.x);
  ivec2 at = ivec2(i % 13, i / 13);
  vec4 shade = vec4(float(i), float(i * 3 % 255), float(i * 7 % 255), float(255 - i)) / 255.0;
  imageStore(colours, at, shade);
  imageStore(halves, at, vec4(float(i + 1) * 0.5, float(i + 1) * -0.25, 0.0, 0.0));
  imageStore(signs, at, vec4(float(i % 128), -float(i % 128), 127.0, -200.0) / 127.0);
  imageStore(sheets, ivec3(at, i % 2), ivec4(i, -i, i * 100, -i * 100));
  imageStore(deep, at, vec4(float(i * 4 % 1024) / 1023.0, float(i * 5 % 1024) / 1023.0, 1.5, float(i % 4) / 3.0));
  uint old = imageAtomicAdd(block, ivec3(i % 3, i % 2, i % 5), uint(i));
  imageAtomicMin(line, i % 4, -i);
  imageAtomicOr(words, i % 8, 1u << (i / 8));
  old += imageAtomicExchange(words, 8 + i, uint(i) + 1u);
  answer[i] = uint(imageLoad(sheets, ivec3(at, i % 2)).w) + (old & 0u);
}
