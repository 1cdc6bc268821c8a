// Dot products of four bytes at a time.
#version 460
#extension GL_EXT_integer_dot_product : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x, x = a[i], y = b[i];
  answer[i] = dotPacked4x8EXT(x, y);
  answer[n + i] = uint(dotPacked4x8EXT(int(x), int(y)));
  answer[2 * n + i] = dotPacked4x8AccSatEXT(x, y, 0xFFFF8000u);
  answer[3 * n + i] = uint(dotPacked4x8AccSatEXT(int(x), int(y), 0x7FFFF000));
}
