// SHA-256 of messages of 52 bytes, one for each invocation.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Messages { uint messages[]; };
layout(binding = 1) writeonly buffer Digests { uint digests[]; };
const uint K[64] = uint[](
  0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u, 0xd807aa98u, 0x12835b01u, 0x243185beu,
  0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u, 0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau,
  0x5cb0a9dcu, 0x76f988dau, 0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u, 0x27b70a85u,
  0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u, 0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u,
  0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u, 0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu,
  0x682e6ff3u, 0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u);

uint turned(uint x, uint by) { return x >> by | x << (32u - by); }
uint swapped(uint x) { return x >> 24 | (x >> 8 & 0xFF00u) | (x << 8 & 0xFF0000u) | x << 24; }

void main() {
  uint i = gl_GlobalInvocationID.x, w[64];
  for (uint t = 0u; t < 13u; t++) w[t] = swapped(messages[i * 13u + t]);
  w[13] = 0x80000000u;
  w[14] = 0u;
  w[15] = 52u * 8u;
  for (uint t = 16u; t < 64u; t++) {
    uint p = w[t - 15u], q = w[t - 2u];
    w[t] = w[t - 16u] + (turned(p, 7u) ^ turned(p, 18u) ^ p >> 3) + w[t - 7u] + (turned(q, 17u) ^ turned(q, 19u) ^ q >> 10);
  }
  const uint start[8] = uint[](0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u);
  uint s[8] = start;
  for (uint t = 0u; t < 64u; t++) {
    uint one = s[7] + (turned(s[4], 6u) ^ turned(s[4], 11u) ^ turned(s[4], 25u)) + (s[4] & s[5] ^ ~s[4] & s[6]) + K[t] + w[t];
    uint two = (turned(s[0], 2u) ^ turned(s[0], 13u) ^ turned(s[0], 22u)) + (s[0] & s[1] ^ s[0] & s[2] ^ s[1] & s[2]);
    for (uint k = 7u; k > 0u; k--) s[k] = s[k - 1u];
    s[4] += one;
    s[0] = one + two;
  }
  for (uint k = 0u; k < 8u; k++) digests[i * 8u + k] = swapped(start[k] + s[k]);
}
