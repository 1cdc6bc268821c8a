// f16 arithmetic, two values in a register. Every operation here is exact up to its own rounding.
#version 460
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { f16vec2 a[]; };
layout(binding = 1) readonly buffer B { f16vec2 b[]; };
layout(binding = 2) readonly buffer C { f16vec2 c[]; };
layout(binding = 3) writeonly buffer Answer { f16vec2 answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  f16vec2 x = a[i], y = b[i], z = c[i];
  precise f16vec2 sum = x + y, difference = x - y.yx, product = x * y, fused = fma(x, y, z);
  answer[i] = sum;
  answer[n + i] = difference;
  answer[2 * n + i] = product;
  answer[3 * n + i] = fused;
  answer[4 * n + i] = min(x, y);
  answer[5 * n + i] = max(x, -z.yx);
  answer[6 * n + i] = floor(x);
  answer[7 * n + i] = f16vec2(vec2(x) * 0.5 + 1.0);
  answer[8 * n + i] = abs(z);
  answer[9 * n + i] = f16vec2(ivec2(x * float16_t(8.0)));
}
