// 16-bit integers: products, shifts, divisions, packed in pairs.
#version 460
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { u16vec2 a[]; };
layout(binding = 1) readonly buffer B { i16vec2 b[]; };
layout(binding = 2) writeonly buffer Unsigned { u16vec2 u[]; };
layout(binding = 3) writeonly buffer Signed { i16vec2 s[]; };
shared uint16_t line[64];

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x, lane = gl_LocalInvocationID.x;
  u16vec2 x = a[i];
  i16vec2 y = b[i];
  line[lane] = x.x + x.y;
  barrier();
  u[i] = x * x.yx + u16vec2(y);
  u[n + i] = x / uint16_t(10) + x.yx % uint16_t(7);
  u[2 * n + i] = u16vec2(line[lane ^ 1u], line[63u - lane]);
  s[i] = (y >> int16_t(lane & 15u)) - y.yx;
  s[n + i] = max(y, i16vec2(-100)) * int16_t(-3);
}
