// Vectors of 8-bit numbers: signed, unsigned, saturated by hand, wrapped.
#version 460
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { u8vec4 a[]; };
layout(binding = 1) readonly buffer B { i8vec4 b[]; };
layout(binding = 2) writeonly buffer Unsigned { u8vec4 u[]; };
layout(binding = 3) writeonly buffer Signed { i8vec4 s[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  u8vec4 x = a[i];
  i8vec4 y = b[i];
  u[i] = x * x.wxyz + u8vec4(y);
  u[n + i] = u8vec4(min(uvec4(x) + uvec4(x.yzwx), 255u));
  u[2 * n + i] = (x >> u8vec4(3)) | (x << u8vec4(5));
  s[i] = max(y, y.yxwz) - min(y, i8vec4(x));
  s[n + i] = i8vec4(clamp(ivec4(y) * 3, -128, 127));
  s[2 * n + i] = y >> i8vec4(0, 1, 2, 7);
}
