/* One work-item, one small problem: hashes, random numbers, sorting, searching, strings, games. */
#include "common.h"

CONSTANT u32 SHA256_K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
CONSTANT u8 MD5_SHIFTS[16] = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};
#define ROTL(x, k) ((x) << (k) | (x) >> (32 - (k)))
#define ROTR(x, k) ((x) >> (k) | (x) << (32 - (k)))
#define ROTL64(x, k) ((x) << (k) | (x) >> (64 - (k)))

KERNEL(crc32, u32, u32, u32) {
  u32 crc = ~0u;
  for (u32 word = 0; word < 2; word++) {
    u32 data = word ? b[i] : a[i];
    for (u32 byte = 0; byte < 4; byte++) {
      crc ^= data >> 8 * byte & 255;
      for (u32 bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (-(crc & 1) & 0xedb88320u);
    }
  }
  out[i] = ~crc;
}

KERNEL(adler32, u32, u8, u8) {
  u32 low = 1, high = 0;
  for (u32 k = 0; k < 16; k++) {
    low = (low + a[(i + k) % n]) % 65521;
    high = (high + low) % 65521;
  }
  out[i] = high << 16 | low;
}

KERNEL(fnv1a, u32, u8, u8) {
  u32 hash = 2166136261u;
  for (u32 k = 0; k < 9; k++) hash = (hash ^ a[(i * 3 + k) % n]) * 16777619u;
  out[i] = hash;
}

KERNEL(djb2, u32, u8, u8) {
  u32 hash = 5381;
  for (u32 k = 0; a[(i + k) % n] > 20 && k < 32; k++) hash = hash * 33 + a[(i + k) % n];
  out[i] = hash;
}

KERNEL(sha256, u32, u32, u32) {
  u32 w[64], s[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, t[8];
  for (u32 k = 0; k < 16; k++) w[k] = a[(i + k) % n];
  for (u32 k = 16; k < 64; k++) {
    u32 x = w[k - 15], y = w[k - 2];
    w[k] = w[k - 16] + (ROTR(x, 7) ^ ROTR(x, 18) ^ x >> 3) + w[k - 7] + (ROTR(y, 17) ^ ROTR(y, 19) ^ y >> 10);
  }
  for (u32 k = 0; k < 8; k++) t[k] = s[k];
  for (u32 k = 0; k < 64; k++) {
    u32 t1 = t[7] + (ROTR(t[4], 6) ^ ROTR(t[4], 11) ^ ROTR(t[4], 25)) + ((t[4] & t[5]) ^ (~t[4] & t[6])) + SHA256_K[k] + w[k];
    u32 t2 = (ROTR(t[0], 2) ^ ROTR(t[0], 13) ^ ROTR(t[0], 22)) + ((t[0] & t[1]) ^ (t[0] & t[2]) ^ (t[1] & t[2]));
    for (u32 j = 7; j > 0; j--) t[j] = t[j - 1];
    t[4] += t1;
    t[0] = t1 + t2;
  }
  u32 mixed = 0;
  for (u32 k = 0; k < 8; k++) mixed ^= (s[k] + t[k]) * (2 * k + 1);
  out[i] = mixed;
}

KERNEL(sha1, u32, u32, u32) {
  u32 w[16], h0 = 0x67452301, h1 = 0xefcdab89, h2 = 0x98badcfe, h3 = 0x10325476, h4 = 0xc3d2e1f0;
  for (u32 k = 0; k < 16; k++) w[k] = a[(i + k * 5) % n];
  for (u32 k = 0; k < 80; k++) {
    if (k >= 16) {
      u32 x = w[(k + 13) & 15] ^ w[(k + 8) & 15] ^ w[(k + 2) & 15] ^ w[k & 15];
      w[k & 15] = ROTL(x, 1);
    }
    u32 f, c;
    if (k < 20) f = (h1 & h2) | (~h1 & h3), c = 0x5a827999;
    else if (k < 40) f = h1 ^ h2 ^ h3, c = 0x6ed9eba1;
    else if (k < 60) f = (h1 & h2) | (h1 & h3) | (h2 & h3), c = 0x8f1bbcdc;
    else f = h1 ^ h2 ^ h3, c = 0xca62c1d6;
    u32 t = ROTL(h0, 5) + f + h4 + c + w[k & 15];
    h4 = h3, h3 = h2, h2 = ROTL(h1, 30), h1 = h0, h0 = t;
  }
  out[i] = h0 ^ h1 ^ h2 ^ h3 ^ h4;
}

KERNEL(md5_rounds, u32, u32, u32) {
  u32 x = 0x67452301, y = 0xefcdab89, z = 0x98badcfe, w = 0x10325476;
  for (u32 k = 0; k < 64; k++) {
    u32 f, g;
    switch (k >> 4) {
      case 0: f = (y & z) | (~y & w), g = k; break;
      case 1: f = (w & y) | (~w & z), g = 5 * k + 1; break;
      case 2: f = y ^ z ^ w, g = 3 * k + 5; break;
      default: f = z ^ (y | ~w), g = 7 * k; break;
    }
    f += x + k * 0x9e3779b9u + a[(i + (g & 15)) % n];
    x = w, w = z, z = y;
    u32 shift = MD5_SHIFTS[(k >> 4) * 4 + (k & 3)];
    y += ROTL(f, shift);
  }
  out[i] = x + 3 * y + 5 * z + 7 * w;
}

KERNEL(murmur3, u32, u32, u32) {
  u32 h = b[i];
  for (u32 k = 0; k < 4; k++) {
    u32 v = a[(i + k) % n] * 0xcc9e2d51u;
    v = ROTL(v, 15) * 0x1b873593u;
    h ^= v;
    h = ROTL(h, 13) * 5 + 0xe6546b64u;
  }
  h ^= 16;
  h = (h ^ h >> 16) * 0x85ebca6bu;
  h = (h ^ h >> 13) * 0xc2b2ae35u;
  out[i] = h ^ h >> 16;
}

KERNEL(xxhash32, u32, u32, u32) {
  u32 h = b[i] + 0x165667b1u + 8;
  for (u32 k = 0; k < 2; k++) {
    h += a[(i + k) % n] * 0xc2b2ae3du;
    h = ROTL(h, 17) * 0x27d4eb2fu;
  }
  h = (h ^ h >> 15) * 0x85ebca77u;
  h = (h ^ h >> 13) * 0xc2b2ae3du;
  out[i] = h ^ h >> 16;
}

KERNEL(siphash, u64, u64, u64) {
  u64 v0 = a[i] ^ 0x736f6d6570736575, v1 = b[i] ^ 0x646f72616e646f6d, v2 = a[i] ^ 0x6c7967656e657261, v3 = b[i] ^ 0x7465646279746573;
  for (u32 k = 0; k < 6; k++) {
    u64 m = k < 4 ? a[(i + k) % n] : 0;
    v3 ^= m;
    v0 += v1, v1 = ROTL64(v1, 13) ^ v0, v0 = ROTL64(v0, 32), v2 += v3, v3 = ROTL64(v3, 16) ^ v2;
    v0 += v3, v3 = ROTL64(v3, 21) ^ v0, v2 += v1, v1 = ROTL64(v1, 17) ^ v2, v2 = ROTL64(v2, 32);
    v0 ^= m;
  }
  out[i] = v0 ^ v1 ^ v2 ^ v3;
}

KERNEL(tea, u64, u64, u32) {
  u32 y = (u32)a[i], z = (u32)(a[i] >> 32), sum = 0;
  for (u32 k = 0; k < 32; k++) {
    sum += 0x9e3779b9u;
    y += (z << 4) + b[0] ^ z + sum ^ (z >> 5) + b[1];
    z += (y << 4) + b[2] ^ y + sum ^ (y >> 5) + b[3];
  }
  out[i] = (u64)z << 32 | y;
}

KERNEL(rc4, u32, u8, u8) {
  u8 state[256];
  for (u32 k = 0; k < 256; k++) state[k] = (u8)k;
  u32 j = 0, x = 0, mixed = 0;
  for (u32 k = 0; k < 256; k++) {
    j = (j + state[k] + a[(i + k % 16) % n]) & 255;
    u8 t = state[k];
    state[k] = state[j], state[j] = t;
  }
  j = 0;
  for (u32 k = 0; k < 16; k++) {
    x = (x + 1) & 255, j = (j + state[x]) & 255;
    u8 t = state[x];
    state[x] = state[j], state[j] = t;
    mixed = mixed * 31 + state[(state[x] + state[j]) & 255];
  }
  out[i] = mixed;
}

KERNEL(lcg, u32, u32, u32) {
  u32 x = a[i];
  for (u32 k = 0; k < (b[i] & 31); k++) x = x * 1664525u + 1013904223u;
  out[i] = x;
}

KERNEL(lcg64, u64, u64, u32) {
  u64 x = a[i];
  for (u32 k = 0; k < (b[i] & 15); k++) x = x * 6364136223846793005u + 1442695040888963407u;
  out[i] = x;
}

KERNEL(xorshift, u32, u32, u32) {
  u32 x = a[i] | 1;
  for (u32 k = 0; k < 20; k++) x ^= x << 13, x ^= x >> 17, x ^= x << 5;
  out[i] = x + b[i];
}

KERNEL(xoroshiro, u64, u64, u64) {
  u64 s0 = a[i], s1 = b[i] | 1, sum = 0;
  for (u32 k = 0; k < 8; k++) {
    sum += s0 + s1;
    s1 ^= s0;
    s0 = ROTL64(s0, 24) ^ s1 ^ s1 << 16;
    s1 = ROTL64(s1, 37);
  }
  out[i] = sum;
}

KERNEL(pcg, u32, u64, u32) {
  u64 state = a[i];
  u32 mixed = 0;
  for (u32 k = 0; k < 6; k++) {
    u32 x = (u32)((state >> 18 ^ state) >> 27), turn = (u32)(state >> 59);
    mixed ^= x >> turn | x << (-turn & 31);
    state = state * 6364136223846793005u + (b[i] | 1);
  }
  out[i] = mixed;
}

KERNEL(philox, u32, u32, u32) {
  u32 c0 = i, c1 = a[i], c2 = b[i], c3 = 0, k0 = 0xdeadbeef, k1 = 0x12345678;
  for (u32 k = 0; k < 10; k++) {
    u64 p0 = (u64)c0 * 0xd2511f53u, p1 = (u64)c2 * 0xcd9e8d57u;
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0, c1 = (u32)p1, c2 = (u32)(p0 >> 32) ^ c3 ^ k1, c3 = (u32)p0;
    k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
  }
  out[i] = c0 ^ c1 ^ c2 ^ c3;
}

KERNEL(monte_carlo_pi, u32, u32, u32) {
  u32 x = a[i] | 1, inside = 0;
  for (u32 k = 0; k < 24; k++) {
    x = x * 747796405u + 2891336453u;
    f32 u = (f32)(x >> 16) / 65536.0f, v = (f32)(x & 0xffff) / 65536.0f;
    inside += u * u + v * v < 1.0f;
  }
  out[i] = inside;
}

KERNEL(insertion_sort, u32, u32, u32) {
  u32 v[12];
  for (u32 k = 0; k < 12; k++) v[k] = a[(i * 7 + k) % n];
  for (u32 k = 1; k < 12; k++) {
    u32 x = v[k];
    i32 j = (i32)k - 1;
    while (j >= 0 && v[j] > x) v[j + 1] = v[j], j--;
    v[j + 1] = x;
  }
  out[i] = v[b[i] % 12] ^ v[5] << 1;
}

KERNEL(heap_sort, u32, u32, u32) {
  u32 v[16];
  for (u32 k = 0; k < 16; k++) v[k] = a[(i + k * 3) % n];
  for (u32 start = 24; start > 0; start--) {
    u32 end = start > 16 ? 16 : start - 1, root = start > 16 ? start - 17 : 0;
    if (start <= 16) {
      u32 t = v[end & 15]; /* & 15: clang speculates the store, and a relative move beyond the array hits other registers */
      v[end & 15] = v[0], v[0] = t;
    }
    while (2 * root + 1 < end) {
      u32 child = 2 * root + 1;
      if (child + 1 < end && v[child] < v[child + 1]) child++;
      if (v[root] >= v[child]) break;
      u32 t = v[root];
      v[root] = v[child], v[child] = t, root = child;
    }
  }
  out[i] = v[b[i] & 15];
}

KERNEL(quick_select, u32, u32, u32) {
  u32 v[15], low = 0, high = 14, wanted = b[i] % 15;
  for (u32 k = 0; k < 15; k++) v[k] = a[(i * 5 + k) % n];
  while (low < high) {
    u32 pivot = v[high], at = low;
    for (u32 k = low; k < high; k++)
      if (v[k] < pivot) {
        u32 t = v[k];
        v[k] = v[at], v[at++] = t;
      }
    v[high] = v[at], v[at] = pivot;
    if (at == wanted) break;
    if (at < wanted) low = at + 1;
    else high = at - 1;
  }
  out[i] = v[wanted];
}

KERNEL(binary_search, u32, u32, u32) {
  u32 low = 0, high = 1000, x = b[i] % 600000;
  while (low < high) {
    u32 middle = (low + high) / 2;
    if (middle * middle + a[0] % 7 < x) low = middle + 1;
    else high = middle;
  }
  out[i] = low;
}

KERNEL(string_search, u32, u8, u8) {
  u32 found = n;
  for (u32 at = 0; at < 40; at++) {
    u32 k = 0;
    while (k < 3 && (a[(i + at + k) % n] & 3) == (b[k] & 3)) k++;
    if (k == 3) {
      found = at;
      break;
    }
  }
  out[i] = found;
}

KERNEL(levenshtein, u32, u8, u8) {
  u32 row[9];
  for (u32 k = 0; k < 9; k++) row[k] = k;
  for (u32 x = 1; x < 9; x++) {
    u32 corner = row[0];
    row[0] = x;
    for (u32 y = 1; y < 9; y++) {
      u32 cost = corner + ((a[(i + x) % n] & 7) != (b[(i + y) % n] & 7));
      corner = row[y];
      u32 best = row[y] < row[y - 1] ? row[y] + 1 : row[y - 1] + 1;
      row[y] = cost < best ? cost : best;
    }
  }
  out[i] = row[8];
}

KERNEL(longest_common, u32, u8, u8) {
  u32 row[11] = {0};
  for (u32 x = 0; x < 10; x++) {
    u32 corner = 0;
    for (u32 y = 1; y < 11; y++) {
      u32 up = row[y];
      row[y] = (a[(i + x) % n] & 3) == (b[(i + y) % n] & 3) ? corner + 1 : up > row[y - 1] ? up : row[y - 1];
      corner = up;
    }
  }
  out[i] = row[10];
}

KERNEL(knapsack, u32, u32, u32) {
  u32 best[25];
  for (u32 k = 0; k < 25; k++) best[k] = 0;
  for (u32 item = 0; item < 6; item++) {
    u32 weight = a[(i + item) % n] % 9 + 1, value = b[(i + item) % n] & 255;
    for (u32 k = 24; k >= weight; k--)
      if (best[k - weight] + value > best[k]) best[k] = best[k - weight] + value;
  }
  out[i] = best[24];
}

KERNEL(gcd, u32, u32, u32) {
  u32 x = a[i], y = b[i];
  while (y) {
    u32 t = x % y;
    x = y, y = t;
  }
  out[i] = x;
}

KERNEL(binary_gcd, u64, u64, u64) {
  u64 x = a[i] | 1, y = b[i] | 2;
  while (y) {
    y >>= __builtin_ctzl(y);
    if (x > y) {
      u64 t = x;
      x = y, y = t;
    }
    y -= x;
  }
  out[i] = x;
}

KERNEL(collatz, u32, u32, u32) {
  u32 x = a[i] % 5000 + 1, steps = 0;
  while (x != 1 && steps < 200) x = x & 1 ? 3 * x + 1 : x / 2, steps++;
  out[i] = steps;
}

KERNEL(prime_test, u32, u32, u32) {
  u32 x = a[i] % 3000 + 2, prime = 1;
  for (u32 k = 2; k * k <= x; k++)
    if (x % k == 0) {
      prime = 0;
      break;
    }
  out[i] = prime;
}

KERNEL(power_mod, u64, u64, u64) {
  u64 base = a[i] % 1000003, power = b[i] & 0xffff, result = 1;
  for (; power; power >>= 1) {
    if (power & 1) result = result * base % 1000003;
    base = base * base % 1000003;
  }
  out[i] = result;
}

KERNEL(integer_sqrt, u32, u32, u32) {
  u32 x = a[i], root = 0;
  for (u32 bit = 1u << 15; bit; bit >>= 1)
    if ((u64)(root | bit) * (root | bit) <= x) root |= bit;
  out[i] = root;
}

KERNEL(base64, u32, u32, u32) {
  u32 mixed = 0;
  for (u32 k = 0; k < 5; k++) {
    u32 six = a[i] >> 6 * k & 63;
    u32 letter = six < 26 ? six + 'A' : six < 52 ? six - 26 + 'a' : six < 62 ? six - 52 + '0' : six == 62 ? '+' : '/';
    mixed = mixed * 67 + letter;
  }
  out[i] = mixed;
}

KERNEL(run_length, u32, u8, u8) {
  u32 longest = 0, run = 0;
  for (u32 k = 0; k < 30; k++) {
    run = (a[(i + k) % n] & 1) == (a[(i + k + 1) % n] & 1) ? run + 1 : 0;
    longest = run > longest ? run : longest;
  }
  out[i] = longest;
}

KERNEL(bracket_machine, u32, u8, u8) {
  u8 stack[16] = {0};
  u32 depth = 0, errors = 0;
  for (u32 k = 0; k < 24; k++) switch (a[(i + k) % n] & 7) {
      case 0: case 1: case 2:
        if (depth < 16) stack[depth++] = a[(i + k) % n] & 3;
        break;
      case 3: case 4: case 5:
        if (depth && stack[depth - 1] == (a[(i + k) % n] & 7) - 3) depth--;
        else errors++;
        break;
      case 6: errors += depth; break;
      default: if (depth > 3) depth -= 2;
    }
  out[i] = errors << 8 | depth;
}

KERNEL(stack_machine, u32, u32, u32) {
  u32 stack[8] = {0}, top = 0, word = a[i], steps = 0;
  for (u32 k = 0; k < 30 && word; k++, word = ROTR(word, 3) ^ k) {
    steps++;
    u32 x = stack[top & 7], y = stack[(top - 1) & 7];
    switch (word & 7) {
      case 0: stack[++top & 7] = k; break;
      case 1: stack[--top & 7] = x + y; break;
      case 2: stack[--top & 7] = x - y; break;
      case 3: stack[top & 7] = x * 3; break;
      case 4: stack[++top & 7] = b[i]; break;
      case 5: stack[--top & 7] = x ^ y; break;
      case 6: if (x & 1) continue; stack[top & 7] = ~x; break;
      default: if (x > y) top = 0;
    }
  }
  out[i] = stack[top & 7] + steps;
}

KERNEL(huffman_walk, u32, u32, u32) {
  u32 code = a[i], decoded = 0;
  for (u32 used = 0; used < 28;) {
    u32 length = __builtin_ctz(~(code >> used) | 16) + 1;
    decoded = decoded * 5 + length;
    used += length;
  }
  out[i] = decoded;
}

KERNEL(queens, u32, u32, u32) {
  u32 columns[6], found = 0, row = 0;
  columns[0] = a[i] % 5;
  row = 1, columns[1] = ~0u;
  while (row > 0 && row < 5) {
    columns[row]++;
    u32 ok = columns[row] < 5;
    if (!ok) {
      row--;
      continue;
    }
    for (u32 k = 0; k < row; k++) {
      u32 d = columns[k] > columns[row] ? columns[k] - columns[row] : columns[row] - columns[k];
      if (d == 0 || d == row - k) ok = 0;
    }
    if (!ok) continue;
    if (row == 4) found++;
    else columns[++row] = ~0u;
  }
  out[i] = found;
}

KERNEL(floyd_warshall, u32, u32, u32) {
  u32 distance[5][5];
  for (u32 x = 0; x < 5; x++)
    for (u32 y = 0; y < 5; y++) distance[x][y] = x == y ? 0 : a[(i + 5 * x + y) % n] & 1023;
  for (u32 k = 0; k < 5; k++)
    for (u32 x = 0; x < 5; x++)
      for (u32 y = 0; y < 5; y++) {
        u32 d = distance[x][k] + distance[k][y];
        if (d < distance[x][y]) distance[x][y] = d;
      }
  out[i] = distance[b[i] % 5][(b[i] >> 3) % 5];
}

KERNEL(bit_matrix, u64, u64, u64) {
  u64 x = a[i], t;
  t = (x ^ x >> 7) & 0x00aa00aa00aa00aa, x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000cccc0000cccc, x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000f0f0f0f0, x ^= t ^ t << 28;
  out[i] = x ^ b[i];
}

KERNEL(early_return, u32, u32, u32) {
  out[i] = 1;
  if (a[i] & 1) return;
  out[i] = 2;
  for (u32 k = 0; k < 9; k++) {
    if (a[(i + k) % n] % 5 == 2) return;
    out[i] += k;
    if (b[(i + k) % n] % 7 == 3) break;
  }
  out[i] *= 3;
}

KERNEL(nested_loops, u32, u32, u32) {
  u32 sum = 0;
  for (u32 x = 0; x < (a[i] & 7); x++)
    for (u32 y = x; y < (b[i] & 7); y++) {
      if ((x ^ y) == 5) break;
      if ((x + y) % 3 == 0) continue;
      sum += x * y + 1;
    }
  out[i] = sum;
}
