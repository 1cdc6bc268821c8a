// Powers modulo a prime of 61 bits.
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint64_t a[]; };
layout(binding = 1) writeonly buffer Answer { uint64_t answer[]; };
const uint64_t PRIME = (1ul << 61) - 1ul;

uint64_t product(uint64_t x, uint64_t y) {
  uint64_t high = (x >> 32) * (y >> 32), low = (x & 0xFFFFFFFFul) * (y & 0xFFFFFFFFul);
  uint64_t one = (x >> 32) * (y & 0xFFFFFFFFul), two = (x & 0xFFFFFFFFul) * (y >> 32);
  uint64_t middle = (one & 0xFFFFFFFFul) + (two & 0xFFFFFFFFul) + (low >> 32);
  low = (middle << 32) | (low & 0xFFFFFFFFul);
  high += (one >> 32) + (two >> 32) + (middle >> 32);
  uint64_t sum = (low & PRIME) + (low >> 61) + (high << 3);
  return sum >= PRIME ? sum - PRIME : sum;
}

void main() {
  uint i = gl_GlobalInvocationID.x;
  uint64_t x = a[i], answer_ = 1ul;
  for (uint power = i + 3u; power != 0u; power >>= 1) {
    if ((power & 1u) != 0u) answer_ = product(answer_, x);
    x = product(x, x);
  }
  answer[i] = answer_;
}
