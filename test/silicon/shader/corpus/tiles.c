/* The building blocks of GPU libraries: scans, sorts, sparse products, hash tables, transforms, by groups that share LDS. */
#include "common.h"

GROUP_KERNEL(block_scan_raking, u32, u32, u32) {
  SHARED u32 sh2[128];
  SHARED u32 sh[64];
  EACH(l)
    sh[l] = a[GROUP_ID * 64 + l];
  END
  EACH(l)
    if (l < 8) {
      u32 s = 0;
      for (u32 k = 0; k < 8; k++) {
        s += sh[l * 8 + k];
        sh[l * 8 + k] = s;
      }
      sh2[l] = s;
    }
  END
  EACH(l)
    if (l == 0) {
      u32 s = 0;
      for (u32 k = 0; k < 8; k++) {
        u32 t = sh2[k];
        sh2[k] = s;
        s += t;
      }
    }
  END
  EACH(l)
    out[GROUP_ID * 64 + l] = sh[l] + sh2[l / 8];
  END
}

GROUP_KERNEL(radix_rank4, u32, u32, u32) {
  SHARED u32 sh2[128];
  SHARED u32 sh[64];
  SHARED u32 cnt[16];
  EACH(l)
    sh[l] = a[GROUP_ID * 64 + l];
  END
  for (u32 bit = 0; bit < 32; bit += 4) {
    EACH(l)
      if (l < 16) cnt[l] = 0;
    END
    EACH(l)
      if (l < 16) {
        u32 c = 0;
        for (u32 k = 0; k < 64; k++) c += ((sh[k] >> bit & 15) == l);
        cnt[l] = c;
      }
    END
    EACH(l)
      u32 d = sh[l] >> bit & 15, p = 0;
      for (u32 k = 0; k < d; k++) p += cnt[k];
      for (u32 k = 0; k < l; k++) p += ((sh[k] >> bit & 15) == d);
      sh2[p] = sh[l];
    END
    EACH(l)
      sh[l] = sh2[l];
    END
  }
  EACH(l)
    out[GROUP_ID * 64 + l] = sh[l];
  END
}

GROUP_KERNEL(merge_sort_lds, i32, i32, i32) {
  SHARED u32 sh2[128];
  SHARED u32 sh[64];
  EACH(l)
    sh[l] = a[GROUP_ID * 64 + l];
  END
  for (u32 w = 1; w < 64; w *= 2) {
    EACH(l)
      u32 base = l / (2 * w) * (2 * w);
      u32 me = l - base;
      u32 lo, hi;
      i32 v = sh[l];
      if (me < w) {
        lo = base + w;
        hi = base + 2 * w;
      } else {
        lo = base;
        hi = base + w;
      }
      u32 s = lo;
      while (lo < hi) {
        u32 m = (lo + hi) / 2;
        i32 x = (i32)sh[m];
        u32 less = me < w ? x < v : x <= v;
        if (less) lo = m + 1;
        else hi = m;
      }
      sh2[(me < w ? me : me - w) + (lo - s) + base] = v;
    END
    EACH(l)
      sh[l] = sh2[l];
    END
  }
  EACH(l)
    out[GROUP_ID * 64 + l] = sh[l];
  END
}

GROUP_KERNEL(segmented_scan, u32, u32, u32) {
  SHARED u32 sh2[128];
  SHARED u32 sh[64];
  SHARED u64 wide[64];
  EACH(l)
    sh[l] = a[GROUP_ID * 64 + l];
    sh2[l] = (b[GROUP_ID * 64 + l] & 3) == 0;
  END
  for (u32 d = 1; d < 64; d *= 2) {
    EACH(l)
      u32 v = sh[l], f = sh2[l];
      if (l >= d && !f) {
        v += sh[l - d];
        f |= sh2[l - d];
      }
      wide[l] = (u64)v << 32 | f;
    END
    EACH(l)
      sh[l] = wide[l] >> 32;
      sh2[l] = (u32)wide[l];
    END
  }
  EACH(l)
    out[GROUP_ID * 64 + l] = sh[l];
  END
}

GROUP_KERNEL(softmax_like, f32, f32, f32) {
  SHARED f32 fs[128];
  EACH(l)
    fs[l] = a[GROUP_ID * 64 + l] * 0.001f;
  END
  for (u32 s = 32; s; s /= 2) {
    EACH(l)
      if (l < s) {
        f32 x = fs[l], y = fs[l + s];
        fs[l] = x > y ? x : y;
      }
    END
  }
  EACH(l)
    f32 x = a[GROUP_ID * 64 + l] * 0.001f - fs[0];
    f32 e = 1, t = 1;
    for (u32 k = 1; k < 9; k++) {
      t = t * x / (f32)k;
      e += t;
    }
    if (e < 0) e = 0;
    fs[64 + l] = e;
  END
  EACH(l)
    f32 s = 0;
    for (u32 k = 0; k < 64; k++) s += fs[64 + k];
    out[GROUP_ID * 64 + l] = fs[64 + l] / s;
  END
}

GROUP_KERNEL(layernorm, f32, f32, f32) {
  SHARED f32 fs[128];
  EACH(l)
    fs[l] = a[GROUP_ID * 64 + l];
  END
  EACH(l)
    f32 m = 0;
    for (u32 k = 0; k < 64; k++) m += fs[k];
    m /= 64;
    f32 v = 0;
    for (u32 k = 0; k < 64; k++) v += (fs[k] - m) * (fs[k] - m);
    v /= 64;
    out[GROUP_ID * 64 + l] = (fs[l] - m) / __builtin_sqrtf(v + 1e-5f) * b[l];
  END
}

GROUP_KERNEL(softmax_f16_tile, f16, f16, f16) {
  SHARED f16 hs[64];
  EACH(l)
    hs[l] = a[GROUP_ID * 64 + l];
  END
  EACH(l)
    f16 m = hs[0];
    for (u32 k = 1; k < 64; k++) m = hs[k] > m ? hs[k] : m;
    out[GROUP_ID * 64 + l] = (f16)(hs[l] - m) * (f16)0.5;
  END
}

GROUP_KERNEL(spmv_csr, f32, f32, u32) {
  EACH(l)
    u32 row = GROUP_ID * 64 + l;
    u32 s = b[row] % n, e = s + (b[row] >> 8) % 9;
    f32 sum = 0;
    for (u32 k = s; k < e; k++) sum += a[k % n] * a[(k * 7) % n];
    out[row] = sum;
  END
}

GROUP_KERNEL(hash_table_lds, u32, u32, u32) {
  SHARED u32 sh2[128];
  EACH(l)
    sh2[l] = 0;
    sh2[l + 64] = 0;
  END
  EACH(l)
    if (l == 0)
      for (u32 k = 0; k < 64; k++) {
        u32 key = a[GROUP_ID * 64 + k] | 1;
        u32 h = key * 2654435761u >> 25;
        while (sh2[h] && sh2[h] != key) h = (h + 1) & 127;
        sh2[h] = key;
      }
  END
  EACH(l)
    u32 key = a[GROUP_ID * 64 + (l * 5) % 64] | 1;
    u32 h = key * 2654435761u >> 25, g = 0;
    while (sh2[h] != key && g < 128) {
      h = (h + 1) & 127;
      g++;
    }
    out[GROUP_ID * 64 + l] = h + g * 1000;
  END
}

GROUP_KERNEL(hash_insert_cas, u32, u32, u32) {
  SHARED u32 sh2[128];
  EACH(l)
    sh2[l] = 0;
    sh2[l + 64] = 0;
  END
  EACH(l)
    u32 key = (a[GROUP_ID * 64 + l] & 15) + 1;
    u32 h = key;
    for (;;) {
      u32 want = 0;
      if (__atomic_compare_exchange_n(&sh2[h], &want, key, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) break;
      if (want == key) break;
      h = (h + 1) & 127;
    }
  END
  EACH(l)
    out[GROUP_ID * 64 + l] = sh2[l];
  END
}

GROUP_KERNEL(byte_histogram, u32, u8, u8) {
  SHARED u32 sh[64];
  SHARED u8 bytes[256];
  EACH(l)
    for (u32 k = 0; k < 4; k++) bytes[l * 4 + k] = 0;
  END
  EACH(l)
    sh[l] = 0;
  END
  EACH(l)
    for (u32 k = 0; k < 16; k++) ATOMIC_ADD(&sh[a[(GROUP_ID * 64 + l * 16 + k) % n] >> 2], 1u);
  END
  EACH(l)
    out[GROUP_ID * 64 + l] = sh[l];
  END
}

GROUP_KERNEL(bytes_shuffle, u8, u8, u8) {
  SHARED u8 bytes[256];
  EACH(l)
    for (u32 k = 0; k < 4; k++) bytes[(l * 4 + k) * 37 % 256] = a[(GROUP_ID * 64 + l) % n] + k;
  END
  EACH(l)
    u32 s = 0;
    for (u32 k = 0; k < 4; k++) s = s * 5 + bytes[(l + k * 64) & 255];
    out[GROUP_ID * 64 + l] = s;
  END
}

GROUP_KERNEL(fft64_f32, f32, f32, f32) {
  SHARED f32 fs[128];
  EACH(l)
    u32 r = 0;
    for (u32 k = 0; k < 6; k++) r |= (l >> k & 1) << (5 - k);
    fs[2 * r] = a[GROUP_ID * 64 + l];
    fs[2 * r + 1] = b[GROUP_ID * 64 + l];
  END
  for (u32 h = 1; h < 64; h *= 2) {
    EACH(l)
      if (l < 32) {
        u32 j = l % h, p = l / h * 2 * h + j, q = p + h;
        f32 wr = 1.0f - (f32)j / (f32)h, wi = -(f32)j / (f32)h;
        f32 xr = fs[2 * q] * wr - fs[2 * q + 1] * wi, xi = fs[2 * q] * wi + fs[2 * q + 1] * wr;
        f32 yr = fs[2 * p], yi = fs[2 * p + 1];
        fs[2 * p] = yr + xr;
        fs[2 * p + 1] = yi + xi;
        fs[2 * q] = yr - xr;
        fs[2 * q + 1] = yi - xi;
      }
    END
  }
  EACH(l)
    out[GROUP_ID * 64 + l] = fs[2 * l] + fs[2 * l + 1];
  END
}

GROUP_KERNEL(transpose_wide, u64, u64, u64) {
  SHARED u64 wide[64];
  EACH(l)
    wide[(l % 8) * 8 + l / 8] = a[GROUP_ID * 64 + l];
  END
  EACH(l)
    out[GROUP_ID * 64 + l] = wide[l] ^ b[GROUP_ID * 64 + l];
  END
}

GROUP_KERNEL(lds_partly_filled, u32, u32, u32) {
  SHARED u32 sh[64];
  EACH(l)
    if (l < (b[GROUP_ID * 64] & 63)) sh[l] = a[GROUP_ID * 64 + l];
  END
  EACH(l)
    u32 c = b[GROUP_ID * 64] & 63;
    u32 s = 0;
    for (u32 k = 0; k < c; k++) s += sh[k] * (l + k);
    out[GROUP_ID * 64 + l] = s;
  END
}

GROUP_KERNEL(lds_guarded_read, u32, u32, u32) {
  SHARED u32 sh[64];
  EACH(l)
    if (a[GROUP_ID * 64 + l] & 1) sh[l] = a[GROUP_ID * 64 + l];
  END
  EACH(l)
    u32 o = (l + 7) & 63;
    u32 v = sh[o];
    out[GROUP_ID * 64 + l] = (a[GROUP_ID * 64 + o] & 1) ? v * 3 : 5;
  END
}

GROUP_KERNEL(atomic_minmax, u32, u32, i32) {
  SHARED u32 cnt[16];
  EACH(l)
    if (l < 4) cnt[l] = l == 0 ? 0xffffffffu : (l == 2 ? 0x7fffffff : 0);
    if (l == 3) cnt[3] = 0x80000000;
  END
  EACH(l)
    __atomic_fetch_min(&cnt[0], a[GROUP_ID * 64 + l], __ATOMIC_RELAXED);
    __atomic_fetch_max(&cnt[1], a[GROUP_ID * 64 + l], __ATOMIC_RELAXED);
    __atomic_fetch_min((SHARED i32 *)&cnt[2], b[GROUP_ID * 64 + l], __ATOMIC_RELAXED);
    __atomic_fetch_max((SHARED i32 *)&cnt[3], b[GROUP_ID * 64 + l], __ATOMIC_RELAXED);
  END
  EACH(l)
    out[GROUP_ID * 64 + l] = cnt[l & 3];
  END
}

GROUP_KERNEL(queue_bfs, u32, u32, u32) {
  SHARED u32 sh2[128];
  SHARED u32 sh[64];
  SHARED u32 cnt[16];
  EACH(l)
    sh[l] = 0xffff;
    if (l == 0) {
      sh[0] = 0;
      cnt[0] = 1;
    }
  END
  for (u32 it = 0; it < 6; it++) {
    EACH(l)
      sh2[l] = sh[l];
    END
    EACH(l)
      if (sh2[l] == 0xffff) {
        for (u32 k = 0; k < 3; k++) {
          u32 o = (a[GROUP_ID * 64 + l] >> (k * 6)) & 63;
          if (sh2[o] != 0xffff) {
            sh[l] = sh2[o] + 1;
            break;
          }
        }
      }
    END
  }
  EACH(l)
    out[GROUP_ID * 64 + l] = sh[l];
  END
}

GROUP_KERNEL(gemm_lds_regtile, f32, f32, f32) {
  SHARED f32 fs[128];
  EACH(l)
    fs[l] = a[GROUP_ID * 64 + l];
    fs[64 + l] = b[GROUP_ID * 64 + l];
  END
  EACH(l)
    f32 c[4] = {0, 0, 0, 0};
    u32 r = l / 8, q = l % 8;
    for (u32 k = 0; k < 8; k++)
      for (u32 t = 0; t < 4; t++) c[t] = __builtin_fmaf(fs[r * 8 + k], fs[64 + ((k * 8 + q + t) & 63)], c[t]);
    out[GROUP_ID * 64 + l] = c[0] + c[1] * 2 + c[2] * 3 + c[3] * 4;
  END
}

GROUP_KERNEL(pipelined_copy, u32, u32, u32) {
  SHARED u32 sh2[128];
  EACH(l)
    sh2[l] = a[GROUP_ID * 64 + l];
  END
  for (u32 k = 0; k < (b[0] & 7); k++) {
    EACH(l)
      sh2[((k + 1) & 1) * 64 + l] = sh2[(k & 1) * 64 + ((l + k) & 63)] * 3 + a[(GROUP_ID * 64 + l + k) % n];
    END
  }
  EACH(l)
    out[GROUP_ID * 64 + l] = sh2[(b[0] & 7 & 1) * 64 + l];
  END
}
