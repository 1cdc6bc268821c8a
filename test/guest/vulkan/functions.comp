// Transcendental functions. The hardware has approximations of them, to base 2 and for angles in revolutions.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) writeonly buffer Answer { float answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  float x = a[i];
  answer[i] = sin(x);
  answer[n + i] = cos(x);
  answer[2 * n + i] = exp2(x);
  answer[3 * n + i] = exp(x);
  answer[4 * n + i] = log2(abs(x));
  answer[5 * n + i] = log(abs(x));
  answer[6 * n + i] = pow(abs(x), 1.75);
  answer[7 * n + i] = atan(x);
  answer[8 * n + i] = tanh(x);
  answer[9 * n + i] = atan(x, 0.75);
  answer[10 * n + i] = asin(x / 4.0);
}
