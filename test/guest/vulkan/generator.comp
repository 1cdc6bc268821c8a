// 64-bit random numbers: shifts, rotations and products of 64 bits in a loop.
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint64_t a[]; };
layout(binding = 1) writeonly buffer Answer { uint64_t answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  uint64_t state = a[i], mixed = 0ul;
  for (uint k = 0u; k < 12u; k++) {
    state += 0x9E3779B97F4A7C15ul;
    uint64_t z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ul;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBul;
    uint by = k * 5u + 1u;
    mixed = (mixed << by | mixed >> (64u - by)) ^ z ^ (z >> 31);
  }
  answer[i] = mixed;
}
