// MD5 of messages of 20 bytes: constant tables indexed in a loop.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer Sines { uint sines[64]; };
layout(binding = 2) writeonly buffer Answer { uvec4 answer[]; };
const uint BY[16] = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

void main() {
  uint i = gl_GlobalInvocationID.x, words[16];
  for (uint k = 0u; k < 16u; k++) words[k] = k < 5u ? a[i * 5u + k] : k == 5u ? 0x80u : k == 14u ? 160u : 0u;
  uvec4 start = uvec4(0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u), s = start;
  for (uint k = 0u; k < 64u; k++) {
    uint f, g;
    if (k < 16u) f = (s.y & s.z) | (~s.y & s.w), g = k;
    else if (k < 32u) f = (s.w & s.y) | (~s.w & s.z), g = 5u * k + 1u;
    else if (k < 48u) f = s.y ^ s.z ^ s.w, g = 3u * k + 5u;
    else f = s.z ^ (s.y | ~s.w), g = 7u * k;
    f += s.x + sines[k] + words[g & 15u];
    uint by = BY[k / 16u * 4u + (k & 3u)];
    s = uvec4(s.w, s.y + (f << by | f >> 32u - by), s.y, s.z);
  }
  answer[i] = start + s;
}
