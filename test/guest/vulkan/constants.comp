// Constants of every kind: specialisation constants (also the workgroup's size), push constants, a uniform buffer.
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROUNDS = 1;
layout(constant_id = 2) const bool BACKWARDS = false;
layout(push_constant) uniform Push { uint base; float scale; uint64_t wide; double fine; uint far[8]; };
layout(binding = 0) uniform Table { uvec4 table[16]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x, x = base + i;
  for (uint k = 0u; k < ROUNDS; k++) x = x * 1664525u + table[(x >> 4) & 15u][x & 3u];
  answer[BACKWARDS ? n - 1u - i : i] = x;
  answer[n + i] = uint(float(i) * scale);
  answer[2 * n + i] = uint(wide >> (i & 31u));
  answer[3 * n + i] = uint(double(i) * fine);
  answer[4 * n + i] = far[gl_WorkGroupID.x & 7u] + gl_WorkGroupSize.x;
}
