// Euclid's algorithm: loops of very different lengths.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, x = a[i], y = b[i], steps = 0u;
  for (; y != 0u; steps++) {
    uint rest = x % y;
    x = y;
    y = rest;
  }
  answer[i] = x ^ steps << 24;
}
