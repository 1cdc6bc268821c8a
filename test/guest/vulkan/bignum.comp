// Products of numbers of 256 bits, with carries.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x * 8u, low = 0u, middle = 0u, high = 0u;
  for (uint k = 0u; k < 15u; k++) {
    for (uint j = k > 7u ? k - 7u : 0u; j <= min(k, 7u); j++) {
      uint upper, lower, carry, more;
      umulExtended(a[i + j], b[i + k - j], upper, lower);
      low = uaddCarry(low, lower, carry);
      middle = uaddCarry(middle, upper, more);
      high += more;
      middle = uaddCarry(middle, carry, more);
      high += more;
    }
    answer[i * 2u + k] = low;
    low = middle;
    middle = high;
    high = 0u;
  }
  answer[i * 2u + 15u] = low;
}
