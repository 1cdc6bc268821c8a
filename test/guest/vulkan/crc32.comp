// CRC-32 by a table that the workgroup makes in shared memory.
#version 460
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
shared uint table[256];

void main() {
  uint lane = gl_LocalInvocationID.x, i = gl_GlobalInvocationID.x, word = lane;
  for (uint k = 0u; k < 8u; k++) word = word >> 1 ^ 0xEDB88320u * (word & 1u);
  table[lane] = word;
  barrier();
  uint crc = ~0u;
  for (uint k = 0u; k < 32u; k++) crc = crc >> 8 ^ table[(crc ^ a[i * 8u + k / 4u] >> 8u * (k & 3u)) & 255u];
  answer[i] = ~crc;
}
