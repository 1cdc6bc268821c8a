// Loads and stores of 64 and 128 bits.
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uvec4 a[]; };
layout(binding = 1) readonly buffer B { u64vec2 b[]; };
layout(binding = 2) writeonly buffer Fours { uvec4 fours[]; };
layout(binding = 3) writeonly buffer Twos { uvec2 twos[]; };
shared uvec4 line[64];

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * 64u, lane = gl_LocalInvocationID.x;
  line[lane] = a[i];
  barrier();
  fours[i] = line[63u - lane].wxyz + uvec4(1, 2, 3, 4);
  u64vec2 wide = b[n - 1u - i];
  twos[i] = unpackUint2x32(wide.x + wide.y);
}
