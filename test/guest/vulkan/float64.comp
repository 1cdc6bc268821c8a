// f64 arithmetic: exact operations go into `exact`, division and roots go into `near`.
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { double a[]; };
layout(binding = 1) readonly buffer B { double b[]; };
layout(binding = 2) readonly buffer C { double c[]; };
layout(binding = 3) writeonly buffer Exact { double exact[]; };
layout(binding = 4) writeonly buffer Near { double near[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  double x = a[i], y = b[i], z = c[i];
  precise double sum = x + y, product = x * y, fused = fma(x, y, z);
  exact[i] = sum;
  exact[n + i] = product;
  exact[2 * n + i] = fused;
  exact[3 * n + i] = min(x, y);
  exact[4 * n + i] = floor(x);
  exact[5 * n + i] = trunc(y);
  exact[6 * n + i] = roundEven(z);
  exact[7 * n + i] = x < y ? y : z;
  precise float single = float(x) * 0.5f;
  exact[8 * n + i] = single;
  exact[9 * n + i] = double(int(y)) + double(uint(abs(z)));
  near[i] = x / y;
  near[n + i] = sqrt(abs(x));
  near[2 * n + i] = inversesqrt(abs(z));
}
