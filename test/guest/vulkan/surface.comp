// Texels of a storage image: loaded, changed, stored, and counted by atomics; some places are outside.
#version 460
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0, r32ui) uniform uimage2D image;
layout(binding = 1) buffer Answer { uint answer[]; };
layout(binding = 2, r32ui) uniform uimage2D counts;

void main() {
  ivec2 at = ivec2(gl_GlobalInvocationID.xy), size = imageSize(image);
  uint texel = imageLoad(image, at).x;
  uint old = imageAtomicAdd(counts, at % 4, texel & 255u);
  imageAtomicMax(counts, ivec2(4, at.y & 3), texel);
  imageAtomicCompSwap(counts, ivec2(5, 0), 0u, 77u);
  imageStore(image, at, uvec4(texel * 3u + 1u));
  uint i = gl_GlobalInvocationID.y * 40u + gl_GlobalInvocationID.x;
  answer[i] = texel ^ uint(size.x + 1000 * size.y) ^ (old & 0u);
}
