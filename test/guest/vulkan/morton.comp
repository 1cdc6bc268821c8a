// Bits of two coordinates interleaved, and taken apart again.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };

uint spread(uint x) {
  x = (x | x << 8) & 0x00FF00FFu;
  x = (x | x << 4) & 0x0F0F0F0Fu;
  x = (x | x << 2) & 0x33333333u;
  return (x | x << 1) & 0x55555555u;
}

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * 64u, x = a[i], y = 0u;
  answer[i] = spread(x & 0xFFFFu) | spread(x >> 16) << 1;
  for (uint k = 0u; k < 16u; k++) y |= (x >> 2u * k & 1u) << k | (x >> (2u * k + 1u) & 1u) << (16u + k);
  answer[n + i] = y;
}
