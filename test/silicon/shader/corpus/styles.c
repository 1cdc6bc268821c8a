/* Kernels in the style of real ones: codecs, ciphers, parsers, dynamic programs, quantised products, and values that only
   some paths make. */
#include "common.h"

KERNEL(mandel_escape, u32, f32, f32) {
  f32 cr = a[i] * 0.001f, ci = b[i] * 0.001f, x = 0, y = 0;
  u32 k = 0;
  while (k < 100 && x * x + y * y < 4.0f) {
    f32 t = x * x - y * y + cr;
    y = 2 * x * y + ci;
    x = t;
    k++;
  }
  out[i] = k;
}

KERNEL(ray_sphere, f32, f32, f32) {
  f32 best;
  u32 hit = 0;
  f32 ox = a[i] * 0.01f, oy = b[i] * 0.01f;
  for (u32 s = 0; s < (n & 7) + 2; s++) {
    f32 cx = a[(i + s) % n] * 0.01f, cy = b[(i + s) % n] * 0.01f, r = 1.5f;
    f32 dx = ox - cx, dy = oy - cy;
    f32 d = r * r - dx * dx - dy * dy;
    if (d > 0) {
      f32 t = 10.0f - __builtin_sqrtf(d);
      if (!hit || t < best) {
        best = t;
        hit = s + 1;
      }
    }
  }
  out[i] = hit ? best + hit : -1.0f;
}

KERNEL(quant_matmul_q4, f32, u8, f32) {
  f32 s = 0;
  for (u32 k = 0; k < 32; k++) {
    u8 q = a[(i * 3 + k) % n];
    s += ((i32)(q & 15) - 8) * b[(i + 2 * k) % n];
    s += ((i32)(q >> 4) - 8) * b[(i + 2 * k + 1) % n];
  }
  out[i] = s * 0.125f;
}

KERNEL(quant_q8_dot, i32, i8, i8) {
  i32 s = 0;
  for (u32 k = 0; k < 64; k++) s += (i32)a[(i + k) % n] * (i32)b[(i + k) % n];
  out[i] = s;
}

KERNEL(fp8_decode, f32, u8, u8) {
  u8 v = a[i];
  u32 sgn = v >> 7, e = v >> 3 & 15, m = v & 7;
  f32 r;
  if (e == 0) r = m * 0.001953125f;
  else {
    union {
      u32 u;
      f32 f;
    } p;
    p.u = (e + 120) << 23 | m << 20;
    r = p.f;
  }
  out[i] = sgn ? -r : r;
}

KERNEL(bf16_round, u16, f32, f32) {
  union {
    f32 f;
    u32 u;
  } p;
  p.f = a[i];
  u32 u = p.u;
  u += 0x7fff + (u >> 16 & 1);
  out[i] = u >> 16;
}

KERNEL(f16_soft, u32, u32, u32) {
  u32 h = a[i] & 0xffff;
  u32 s = h >> 15, e = h >> 10 & 31, m = h & 1023;
  if (e == 0) {
    if (m) {
      e = 1;
      while (!(m & 1024)) {
        m <<= 1;
        e--;
      }
      m &= 1023;
      e += 112;
      out[i] = s << 31 | e << 23 | m << 13;
      return;
    }
    out[i] = s << 31;
    return;
  }
  if (e == 31) {
    out[i] = s << 31 | 0x7f800000 | m << 13;
    return;
  }
  out[i] = s << 31 | (e + 112) << 23 | m << 13;
}

KERNEL(udiv64_by_u32, u64, u64, u32) { out[i] = a[i] / (b[i] | 1) + a[i] % (b[i] | 1) * 3; }

KERNEL(sdiv64_signs, i64, i64, i64) {
  i64 d = b[i] ? b[i] : -3;
  if (d == -1) d = 5;
  out[i] = a[i] / d * 7 + a[i] % d;
}

KERNEL(bits_deposit, u32, u32, u32) {
  u32 r = 0, m = b[i], k = 0;
  while (m) {
    u32 low = m & -m;
    if (a[i] >> k & 1) r |= low;
    m ^= low;
    k++;
  }
  out[i] = r;
}

KERNEL(bits_extract, u32, u32, u32) {
  u32 r = 0, m = b[i], k = 0;
  while (m) {
    u32 low = m & -m;
    if (a[i] & low) r |= 1u << k;
    m &= m - 1;
    k++;
  }
  out[i] = r;
}

KERNEL(hilbert, u32, u32, u32) {
  u32 x = a[i] & 255, y = b[i] & 255, d = 0;
  for (u32 s = 128; s; s /= 2) {
    u32 rx = (x & s) > 0, ry = (y & s) > 0;
    d += s * s * ((3 * rx) ^ ry);
    if (!ry) {
      if (rx) {
        x = 255 - x;
        y = 255 - y;
      }
      u32 t = x;
      x = y;
      y = t;
    }
  }
  out[i] = d;
}

KERNEL(lz_match, u32, u8, u8) {
  u32 best = 0, at = 0;
  for (u32 k = 1; k < 32 && k <= i; k++) {
    u32 l = 0;
    while (l < 16 && i + l < n && a[i - k + l] == (a[i + l])) l++;
    if (l > best) {
      best = l;
      at = k;
    }
  }
  out[i] = best << 8 | at;
}

KERNEL(utf8_decode, u32, u8, u8) {
  u32 c = a[i], need;
  if (c < 0x80) need = 0;
  else if (c < 0xe0) {
    c &= 31;
    need = 1;
  } else if (c < 0xf0) {
    c &= 15;
    need = 2;
  } else {
    c &= 7;
    need = 3;
  }
  for (u32 k = 1; k <= need; k++) c = c << 6 | (a[(i + k) % n] & 63);
  out[i] = c;
}

KERNEL(atoi_like, i32, u8, u8) {
  i32 v = 0;
  u32 k = 0, neg = 0;
  if (a[i] & 1) {
    neg = 1;
    k++;
  }
  while (k < 8) {
    u32 c = a[(i + k) % n] % 14;
    if (c >= 10) break;
    v = (i32)((u32)v * 10u + c);
    k++;
  }
  out[i] = neg ? (i32)(0u - (u32)v) : v;
}

KERNEL(printf_like, u32, u32, u32) {
  u32 buf[16];
  u32 at = 0;
  u32 fmt = b[i];
  for (u32 k = 0; k < 6; k++) {
    switch (fmt >> (k * 4) & 7) {
    case 0:
      if (at < 16) buf[at++] = '%';
      break;
    case 1:
      if (at < 14) {
        buf[at++] = a[i];
        buf[at++] = k;
      }
      break;
    case 2:
      if (at < 16) buf[at++] = i;
      break;
    case 3: goto end;
    default:
      if (at < 15) {
        buf[at] = a[(i + k) % n];
        at++;
      }
    }
  }
end:
  {
    u32 h = at;
    for (u32 k = 0; k < at; k++) h = h * 33 ^ buf[k];
    out[i] = h;
  }
}

KERNEL(dp_lcs_row, u32, u8, u8) {
  u8 row[17];
  for (u32 k = 0; k < 17; k++) row[k] = 0;
  for (u32 p = 0; p < 8; p++) {
    u8 diag = 0;
    for (u32 k = 1; k < 17; k++) {
      u8 up = row[k];
      row[k] = (a[(i + p) % n] & 3) == (b[(i + k) % n] & 3) ? diag + 1 : (up > row[k - 1] ? up : row[k - 1]);
      diag = up;
    }
  }
  out[i] = row[16];
}

KERNEL(dijkstra8, u32, u32, u32) {
  u32 dist[8];
  u32 done = 0;
  for (u32 k = 0; k < 8; k++) dist[k] = k ? 0xffffu : 0;
  for (u32 t = 0; t < 8; t++) {
    u32 at = 9, best = 0xffffff;
    for (u32 k = 0; k < 8; k++)
      if (!(done >> k & 1) && dist[k] < best) {
        best = dist[k];
        at = k;
      }
    if (at > 8) break;
    done |= 1u << at;
    for (u32 k = 0; k < 8; k++) {
      u32 w = (a[(i + at * 8 + k) % n] & 31) + 1;
      if (dist[at] + w < dist[k]) dist[k] = dist[at] + w;
    }
  }
  u32 s = 0;
  for (u32 k = 0; k < 8; k++) s = s * 7 + dist[k];
  out[i] = s;
}

KERNEL(matrix_inverse3, f32, f32, f32) {
  f32 m[9];
  for (u32 k = 0; k < 9; k++) m[k] = a[(i + k) % n] * 0.01f + (k % 4 == 0 ? 3.0f : 0.0f);
  f32 d = m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) + m[2] * (m[3] * m[7] - m[4] * m[6]);
  out[i] = d != 0 ? (m[4] * m[8] - m[5] * m[7]) / d : 0;
}

KERNEL(qr_like, f64, f64, f64) {
  f64 v[4];
  f64 s = 0;
  for (u32 k = 0; k < 4; k++) {
    v[k] = a[(i + k) % n];
    s += v[k] * v[k];
  }
  s = __builtin_sqrt(s + 1.0);
  for (u32 k = 0; k < 4; k++) v[k] /= s;
  out[i] = v[0] * b[i] + v[3];
}

KERNEL(early_chain, u32, u32, u32) {
  u32 x = a[i];
  if (x == 0) {
    out[i] = 1;
    return;
  }
  if (x & 1) {
    if (b[i] & 1) {
      out[i] = 2;
      return;
    }
    x >>= 1;
  }
  for (u32 k = 0; k < x % 10; k++) {
    if (b[(i + k) % n] == x) {
      out[i] = k;
      return;
    }
    if ((b[(i + k) % n] & 7) == 7) break;
    if (k == 5 && (x & 8)) {
      out[i] = x + k;
      return;
    }
  }
  out[i] = x * 3;
}

KERNEL(continue_nest, u32, u32, u32) {
  u32 s = 0;
  for (u32 x = 0; x < a[i] % 7; x++) {
    for (u32 y = 0; y < b[i] % 7; y++) {
      if ((x ^ y) & 1) continue;
      for (u32 z = 0; z < (x + y) % 5; z++) {
        if (z == 3) break;
        s += x * y + z;
      }
      if (s > 100) goto next;
    }
  next:
    s ^= x;
  }
  out[i] = s;
}

KERNEL(switch_sparse, u32, u32, u32) {
  switch (a[i] & 0xfff) {
  case 1: out[i] = 5; break;
  case 17: out[i] = b[i]; break;
  case 100:
  case 101:
  case 102: out[i] = b[i] * 2; break;
  case 0x800: out[i] = b[i] / 7; break;
  default:
    if (a[i] & 1) out[i] = 9;
    else out[i] = b[i] ^ a[i];
  }
}

KERNEL(switch_dense_ret, u32, u32, u32) {
  u32 r;
  switch (a[i] % 12) {
  case 0: r = b[i] + 1; break;
  case 1: r = b[i] * 3; break;
  case 2: r = b[i] >> 3; break;
  case 3: r = b[i] << 5; break;
  case 4: r = ~b[i]; break;
  case 5: r = b[i] ^ a[i]; break;
  case 6: r = a[i] - b[i]; break;
  case 7: r = b[i] % 9; break;
  case 8: r = b[i] / 5; break;
  case 9: r = b[i] & a[i]; break;
  default: r = 0;
  }
  out[i] = r;
}

KERNEL(uniform_table, u32, u32, u32) {
  u32 r = 0;
  for (u32 k = 0; k < n / 8; k++) {
    switch (a[k] % 5) {
    case 0: r += b[i]; break;
    case 1: r ^= b[(i + k) % n]; break;
    case 2: r *= 3; break;
    case 3: r -= k; break;
    default: r = (r << 1) | (r >> 31);
    }
  }
  out[i] = r;
}

KERNEL(vec4_ops, u32, u32, u32) {
  u32 v[4], w[4];
  for (u32 k = 0; k < 4; k++) {
    v[k] = a[(i * 4 + k) % n];
    w[k] = b[(i * 4 + k) % n];
  }
  u32 s = 0;
  for (u32 k = 0; k < 4; k++) s += v[k] > w[k] ? v[k] - w[k] : w[k] - v[k];
  out[i] = s;
}

KERNEL(u16_packed, u16, u16, u16) {
  u16 x = a[i], y = b[i];
  u16 p = x * y, q = x + y, r = x > y ? x : y, s = (u16)((i16)x >> (y & 15));
  out[i] = p ^ q ^ r ^ s;
}

KERNEL(i16_packed, i16, i16, i16) {
  i16 s = 0;
  for (u32 k = 0; k < 8; k++) {
    i16 x = a[(i + k) % n], y = b[(i + k) % n];
    s += (i16)(x * y);
    if (s < 0) s = -s;
  }
  out[i] = s;
}

KERNEL(f16_poly, f16, f16, f16) {
  f16 x = a[i] * (f16)0.01, s = (f16)1;
  for (u32 k = 0; k < 5; k++) s = s * x + (f16)(1 + k);
  out[i] = s;
}

KERNEL(cordic, i32, i32, i32) {
  i32 x = 19898, y = 0, z = a[i] % 51472;
  for (u32 k = 0; k < 14; k++) {
    i32 dx = x >> k, dy = y >> k;
    if (z >= 0) {
      x -= dy;
      y += dx;
      z -= 51472 >> (k + 1);
    } else {
      x += dy;
      y -= dx;
      z += 51472 >> (k + 1);
    }
  }
  out[i] = x ^ y;
}

KERNEL(aes_sbox_like, u8, u8, u8) {
  u8 x = a[i], r = 0, y = b[i];
  for (u32 k = 0; k < 8; k++) {
    if (y & 1) r ^= x;
    u8 h = x & 0x80;
    x <<= 1;
    if (h) x ^= 0x1b;
    y >>= 1;
  }
  out[i] = r;
}

KERNEL(chacha_quarter, u32, u32, u32) {
  u32 s[16];
  for (u32 k = 0; k < 16; k++) s[k] = a[(i + k) % n];
  for (u32 r = 0; r < 4; r++) {
    for (u32 q = 0; q < 4; q++) {
      u32 A = q, B = 4 + ((q + r) & 3), C = 8 + ((q + 2 * r) & 3), D = 12 + ((q + 3 * r) & 3);
      s[A] += s[B];
      s[D] ^= s[A];
      s[D] = s[D] << 16 | s[D] >> 16;
      s[C] += s[D];
      s[B] ^= s[C];
      s[B] = s[B] << 12 | s[B] >> 20;
    }
  }
  u32 x = 0;
  for (u32 k = 0; k < 16; k++) x = x * 3 ^ s[k];
  out[i] = x;
}

KERNEL(blake_mix, u64, u64, u64) {
  u64 v0 = a[i], v1 = b[i], v2 = a[(i + 1) % n], v3 = b[(i + 1) % n];
  for (u32 k = 0; k < 6; k++) {
    v0 += v1 + k;
    v3 ^= v0;
    v3 = v3 >> 32 | v3 << 32;
    v2 += v3;
    v1 ^= v2;
    v1 = v1 >> 24 | v1 << 40;
  }
  out[i] = v0 ^ v1 ^ v2 ^ v3;
}

KERNEL(keccak_theta, u64, u64, u64) {
  u64 s[10];
  for (u32 k = 0; k < 10; k++) s[k] = a[(i + k) % n];
  for (u32 r = 0; r < 3; r++) {
    u64 c[5];
    for (u32 k = 0; k < 5; k++) c[k] = s[k] ^ s[k + 5];
    for (u32 k = 0; k < 5; k++) {
      u64 d = c[(k + 4) % 5] ^ (c[(k + 1) % 5] << 1 | c[(k + 1) % 5] >> 63);
      s[k] ^= d;
      s[k + 5] ^= d;
    }
    u64 t = s[0];
    for (u32 k = 0; k < 9; k++) s[k] ^= ~s[k + 1] & t;
  }
  u64 x = 0;
  for (u32 k = 0; k < 10; k++) x = x * 3 + s[k];
  out[i] = x;
}

KERNEL(ddmul, f64, f64, f64) {
  f64 p = a[i] * b[i];
  f64 e = __builtin_fma(a[i], b[i], -p);
  f64 s = p + e;
  out[i] = s + (p - s) + e * 0.5;
}

KERNEL(int_overflow_mul, u32, i32, i32) {
  i32 r;
  u32 o = __builtin_mul_overflow(a[i], b[i], &r);
  out[i] = (u32)r ^ (o << 7);
}

KERNEL(u64_overflow, u64, u64, u64) {
  u64 r;
  u32 o = __builtin_add_overflow(a[i], b[i], &r);
  u64 q;
  o += 2 * __builtin_sub_overflow(a[i], b[i], &q);
  out[i] = r ^ q ^ o;
}

KERNEL(two_loops_share, u32, u32, u32) {
  u32 last;
  u32 c = 0;
  for (u32 k = 0; k < a[i] % 6; k++) {
    last = b[(i + k) % n];
    c++;
  }
  for (u32 k = 0; k < b[i] % 6; k++) {
    if (c) {
      last = last * 3 + k;
    } else {
      last = k;
      c = 1;
    }
  }
  out[i] = c ? last : 1234;
}

KERNEL(nested_maybe, u32, u32, u32) {
  u32 x;
  u32 st = 0;
  for (u32 k = 0; k < a[i] % 5; k++) {
    u32 y;
    u32 h = 0;
    for (u32 j = 0; j < b[(i + k) % n] % 4; j++) {
      if (a[(i + j) % n] & 2) {
        y = a[(i + j) % n] + j;
        h = 1;
      }
    }
    if (h) {
      x = st ? x ^ y : y;
      st = 1;
    }
  }
  out[i] = st ? x : 77;
}

KERNEL(maybe_u64, u64, u64, u32) {
  u64 x;
  u32 st = 0;
  for (u32 k = 0; k < b[i] % 6; k++) {
    u64 v = a[(i + k) % n];
    if (v & 1) {
      x = st ? (x > v ? x : v) : v;
      st = 1;
    }
  }
  out[i] = st ? x * 3 : 1;
}

KERNEL(maybe_bool, u32, u32, u32) {
  u32 f, g;
  u32 st = 0;
  for (u32 k = 0; k < a[i] % 7; k++) {
    if (b[(i + k) % n] & 1) {
      f = b[(i + k) % n] > b[i];
      g = k & 1;
      st = 1;
    }
  }
  out[i] = st && f && !g ? b[i] : 3;
}

KERNEL(maybe_select_chain, u32, u32, u32) {
  u32 a1, a2, a3;
  u32 k = a[i] & 7;
  if (k & 1) a1 = b[i];
  if (k & 2) a2 = b[i] * 2;
  if (k & 4) a3 = b[i] * 3;
  u32 m = (k & 1) && (k & 2) ? (a1 > a2 ? a1 : a2) : (k & 1) ? a1 : (k & 2) ? a2 : 0;
  if (k & 4) m = m > a3 ? m : a3;
  out[i] = m;
}
