// f16 vectors and a loop in f16: whole numbers, so that no order of the sums rounds.
#version 460
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { f16vec4 a[]; };
layout(binding = 1) readonly buffer B { f16vec4 b[]; };
layout(binding = 2) writeonly buffer Answer { f16vec4 answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  f16vec4 x = a[i], y = b[i];
  answer[i] = f16vec4(dot(x, y), dot(x.xy, y.zw), x.x * y.y - x.y * y.x, max(x.w, y.w));
  f16vec4 sum = f16vec4(0.0hf);
  for (uint k = 0u; k < 8u; k++) sum += b[(i + k) % n] * x.wzyx;
  answer[n + i] = sum;
  answer[2 * n + i] = mix(x, y, lessThan(x, y)) - clamp(x, -2.0hf, 3.0hf) * sign(y);
}
