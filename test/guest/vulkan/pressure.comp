// More values alive at once than a wave has registers: some are spilled to scratch memory.
#version 460
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 1024) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
const uint COUNT = 240u;

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * 1024u, x = a[i], v[COUNT];
  [[unroll]] for (uint k = 0u; k < COUNT; k++) v[k] = a[(i + k * 97u) % n] * (2u * k + 1u);
  for (uint round = 0u; round < 2u; round++) {
    barrier();
    [[unroll]] for (uint k = 0u; k < COUNT; k++) v[k] += v[(k * 7u + 3u) % COUNT] ^ x;
  }
  uint sum = 0u;
  [[unroll]] for (uint k = 0u; k < COUNT; k++) sum = sum * 31u + v[k];
  answer[i] = sum;
}
