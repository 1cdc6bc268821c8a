// f64: polynomials, roots, divisions and conversions.
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { double a[]; };
layout(binding = 1) readonly buffer B { int64_t b[]; };
layout(binding = 2) writeonly buffer Exact { double exact[]; };
layout(binding = 3) writeonly buffer Close { double close_[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  double x = a[i], whole = floor(x);
  exact[i] = whole * whole * whole - 7.0 * whole + 3.0;
  exact[n + i] = double(b[i]) + double(uint(b[i]));
  exact[2 * n + i] = double(int64_t(x * 1024.0));
  exact[3 * n + i] = ceil(x) + abs(x) * 2.0 + sign(x);
  exact[4 * n + i] = x < 0.0 ? max(x, -1.0) : double(floatBitsToUint(float(x)));
  double newton = 1.0;
  for (uint k = 0u; k < 6u; k++) newton = 0.5 * (newton + 3.0 / newton);
  close_[i] = sqrt(abs(x)) + newton;
  close_[n + i] = inversesqrt(abs(x) + 1.0) / (x * x + 1.0);
}
