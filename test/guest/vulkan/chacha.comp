// ChaCha20: rotations and additions, in a loop of rounds.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Key { uint key[8]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };

void quarter(inout uint a, inout uint b, inout uint c, inout uint d) {
  a += b; d ^= a; d = d << 16 | d >> 16;
  c += d; b ^= c; b = b << 12 | b >> 20;
  a += b; d ^= a; d = d << 8 | d >> 24;
  c += d; b ^= c; b = b << 7 | b >> 25;
}

void main() {
  uint i = gl_GlobalInvocationID.x;
  uvec4 a = uvec4(0x61707865u, 0x3320646Eu, 0x79622D32u, 0x6B206574u), b = uvec4(key[0], key[1], key[2], key[3]);
  uvec4 c = uvec4(key[4], key[5], key[6], key[7]), d = uvec4(i, 0x09000000u, 0x4A000000u, 0u), a0 = a, b0 = b, c0 = c, d0 = d;
  for (uint k = 0u; k < 20u; k++) {  // columns, then diagonals
    for (uint j = 0u; j < 4u; j++) quarter(a[j], b[j], c[j], d[j]);
    b = (k & 1u) == 0u ? b.yzwx : b.wxyz;
    c = c.zwxy;
    d = (k & 1u) == 0u ? d.wxyz : d.yzwx;
  }
  uvec4 words[4] = {a + a0, b + b0, c + c0, d + d0};
  for (uint j = 0u; j < 16u; j++) answer[i * 16u + j] = words[j / 4u][j & 3u];
}
