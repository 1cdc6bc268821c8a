// f32 arithmetic: exact operations go into `exact`, those that may be some ulp off go into `near`.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) readonly buffer C { float c[]; };
layout(binding = 3) writeonly buffer Exact { float exact[]; };
layout(binding = 4) writeonly buffer Near { float near[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  float x = a[i], y = b[i], z = c[i];
  precise float sum = x + y, difference = x - y, product = x * y, fused = fma(x, y, z);
  precise float unfused = x * y;
  unfused += z;
  exact[i] = sum;
  exact[n + i] = difference;
  exact[2 * n + i] = product;
  exact[3 * n + i] = fused;
  exact[4 * n + i] = unfused;
  exact[5 * n + i] = min(x, y);
  exact[6 * n + i] = max(x, -y);
  exact[7 * n + i] = floor(x);
  exact[8 * n + i] = ceil(x);
  exact[9 * n + i] = trunc(x);
  exact[10 * n + i] = roundEven(x);
  exact[11 * n + i] = abs(z);
  exact[12 * n + i] = clamp(x, -1.0, 1.0);
  exact[13 * n + i] = x < y ? x : z;
  exact[14 * n + i] = ldexp(x, int(i % 17u) - 8);
  near[i] = x / y;
  near[n + i] = sqrt(abs(x));
  near[2 * n + i] = inversesqrt(abs(y));
  near[3 * n + i] = 1.0 / z;
}
