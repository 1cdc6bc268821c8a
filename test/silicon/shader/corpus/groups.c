/* Work-groups: LDS, barriers, atomics. Between two barriers no two items access the same memory, so every order of items
   gives the same result. */
#include "common.h"

GROUP_KERNEL(reduce_sum, u32, u32, u32) {
  SHARED u32 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l]; END
  for (u32 step = GROUP / 2; step; step /= 2) {
    EACH(l) if (l < step) tile[l] += tile[l + step]; END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[0] + l; END
}

GROUP_KERNEL(reduce_max_f32, f32, f32, f32) {
  SHARED f32 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l]; END
  for (u32 step = GROUP / 2; step; step /= 2) {
    EACH(l) if (l < step && tile[l] < tile[l + step]) tile[l] = tile[l + step]; END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[0]; END
}

GROUP_KERNEL(reduce_f64, f64, f64, f64) {
  SHARED f64 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l] * b[GROUP_ID * GROUP + l]; END
  for (u32 step = GROUP / 2; step; step /= 2) {
    EACH(l) if (l < step) tile[l] += tile[l + step]; END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[0]; END
}

GROUP_KERNEL(scan_hillis, u32, u32, u32) {
  SHARED u32 tile[2][GROUP];
  u32 from = 0;
  EACH(l) tile[0][l] = a[GROUP_ID * GROUP + l]; END
  for (u32 step = 1; step < GROUP; step *= 2) {
    EACH(l) tile[1 - from][l] = tile[from][l] + (l >= step ? tile[from][l - step] : 0); END
    from = 1 - from;
  }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[from][l]; END
}

GROUP_KERNEL(scan_blelloch, u32, u32, u32) {
  SHARED u32 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l]; END
  for (u32 step = 1; step < GROUP; step *= 2) {
    EACH(l) if ((l + 1) % (2 * step) == 0) tile[l] += tile[l - step]; END
  }
  EACH(l) if (l == GROUP - 1) tile[l] = 0; END
  for (u32 step = GROUP / 2; step; step /= 2) {
    EACH(l) if ((l + 1) % (2 * step) == 0) {
      u32 t = tile[l - step];
      tile[l - step] = tile[l];
      tile[l] += t;
    } END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[l]; END
}

GROUP_KERNEL(bitonic_sort, u32, u32, u32) {
  SHARED u32 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l]; END
  for (u32 size = 2; size <= GROUP; size *= 2)
    for (u32 step = size / 2; step; step /= 2) {
      EACH(l) u32 other = l ^ step;
      if (other > l && (tile[l] > tile[other]) == ((l & size) == 0)) {
        u32 t = tile[l];
        tile[l] = tile[other], tile[other] = t;
      } END
    }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[l]; END
}

GROUP_KERNEL(bitonic_sort_f32, f32, f32, f32) {
  SHARED f32 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l]; END
  for (u32 size = 2; size <= GROUP; size *= 2)
    for (u32 step = size / 2; step; step /= 2) {
      EACH(l) u32 other = l ^ step;
      if (other > l && (tile[l] > tile[other]) == ((l & size) == 0)) {
        f32 t = tile[l];
        tile[l] = tile[other], tile[other] = t;
      } END
    }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[l]; END
}

GROUP_KERNEL(odd_even_sort, i32, i32, i32) {
  SHARED i32 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l]; END
  for (u32 round = 0; round < GROUP; round++) {
    EACH(l) if ((l & 1) == (round & 1) && l + 1 < GROUP && tile[l] > tile[l + 1]) {
      i32 t = tile[l];
      tile[l] = tile[l + 1], tile[l + 1] = t;
    } END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[l]; END
}

GROUP_KERNEL(rank_sort, u64, u64, u64) {
  SHARED u64 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l]; END
  EACH(l) u32 rank = 0;
  for (u32 k = 0; k < GROUP; k++) rank += tile[k] < tile[l] || (tile[k] == tile[l] && k < l);
  out[GROUP_ID * GROUP + rank] = tile[l]; END
}

GROUP_KERNEL(radix_sort, u32, u32, u32) {
  SHARED u32 tile[2][GROUP], ones[GROUP + 1];
  EACH(l) tile[0][l] = a[GROUP_ID * GROUP + l]; END
  for (u32 bit = 0; bit < 32; bit++) {
    u32 from = bit & 1;
    EACH(l) ones[l + 1] = tile[from][l] >> bit & 1; if (l == 0) ones[0] = 0; END
    EACH(l) if (l == 0) for (u32 k = 0; k < GROUP; k++) ones[k + 1] += ones[k]; END
    EACH(l) u32 zeros = GROUP - ones[GROUP];
    u32 to = tile[from][l] >> bit & 1 ? zeros + ones[l] : l - ones[l];
    tile[1 - from][to] = tile[from][l]; END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[0][l]; END
}

GROUP_KERNEL(transpose, u32, u32, u32) {
  SHARED u32 tile[8][9];
  EACH(l) tile[l / 8][l % 8] = a[GROUP_ID * GROUP + l]; END
  EACH(l) out[GROUP_ID * GROUP + l] = tile[l % 8][l / 8]; END
}

GROUP_KERNEL(transpose_u8, u8, u8, u8) {
  SHARED u8 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l]; END
  EACH(l) out[GROUP_ID * GROUP + l] = (u8)(tile[l % 8 * 8 + l / 8] + tile[GROUP - 1 - l]); END
}

GROUP_KERNEL(gemm_tiled, f32, f32, f32) {
  SHARED f32 left[64], right[64];
  EACH(l) left[l] = a[GROUP_ID * GROUP + l], right[l] = b[GROUP_ID * GROUP + l]; END
  EACH(l) f32 sum = 0;
  for (u32 k = 0; k < 8; k++) sum += left[l / 8 * 8 + k] * right[k * 8 + l % 8];
  out[GROUP_ID * GROUP + l] = sum; END
}

GROUP_KERNEL(gemm_tiled_f16, f16, f16, f16) {
  SHARED f16 left[64], right[64];
  EACH(l) left[l] = a[GROUP_ID * GROUP + l] * (f16)0.01f, right[l] = b[GROUP_ID * GROUP + l] * (f16)0.01f; END
  EACH(l) f16 sum = 0;
  for (u32 k = 0; k < 8; k++) sum += left[l / 8 * 8 + k] * right[k * 8 + l % 8];
  out[GROUP_ID * GROUP + l] = sum; END
}

GROUP_KERNEL(histogram_lds, u32, u8, u8) {
  SHARED u32 bins[GROUP];
  EACH(l) bins[l] = 0; END
  EACH(l) ATOMIC_ADD(&bins[a[GROUP_ID * GROUP + l] & 15], 1u); ATOMIC_ADD(&bins[16 + (b[GROUP_ID * GROUP + l] & 31)], l); END
  EACH(l) out[GROUP_ID * GROUP + l] = bins[l]; END
}

GROUP_KERNEL(lds_atomics_u32, u32, u32, u32) {
  SHARED u32 cells[6];
  EACH(l) if (l < 6) cells[l] = l == 2 ? ~0u : 0; END
  EACH(l) u32 x = a[GROUP_ID * GROUP + l];
  ATOMIC(add, &cells[0], x);
  ATOMIC(sub, &cells[1], x);
  ATOMIC(and, &cells[2], x | 0xff00);
  ATOMIC(or, &cells[3], x & 0xf0f0f0);
  ATOMIC(xor, &cells[4], x);
  ATOMIC(max, &cells[5], x); END
  EACH(l) out[GROUP_ID * GROUP + l] = cells[l % 6]; END
}

GROUP_KERNEL(lds_atomics_i64, i64, i64, i64) {
  SHARED i64 cells[4];
  EACH(l) if (l < 4) cells[l] = 0; END
  EACH(l) i64 x = a[GROUP_ID * GROUP + l];
  ATOMIC(add, &cells[0], x);
  ATOMIC(min, &cells[1], x);
  ATOMIC(max, &cells[2], x);
  ATOMIC(xor, &cells[3], x); END
  EACH(l) out[GROUP_ID * GROUP + l] = cells[l % 4]; END
}

GROUP_KERNEL(lds_cas_loop, u32, u32, u32) {
  SHARED u32 cell;
  EACH(l) if (l == 0) cell = 1; END
  EACH(l) u32 x = a[GROUP_ID * GROUP + l] | 1, seen = __atomic_load_n(&cell, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&cell, &seen, seen * x, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} END
  EACH(l) out[GROUP_ID * GROUP + l] = cell; END
}

GROUP_KERNEL(global_atomics, u32, u32, u32) {
  EACH(l) u32 x = a[GROUP_ID * GROUP + l];
  ATOMIC(add, &out[0], x);
  ATOMIC(xor, &out[1], x);
  ATOMIC(or, &out[2], x & 0xff);
  ATOMIC(max, &out[3], x);
  ATOMIC(sub, &out[4 + (x & 3)], 1u); END
}

GROUP_KERNEL(global_atomics_u64, u64, u64, u64) {
  EACH(l) u64 x = a[GROUP_ID * GROUP + l];
  ATOMIC(add, &out[0], x);
  ATOMIC(xor, &out[1], x);
  ATOMIC(max, &out[2], x);
  ATOMIC(add, &out[3 + (x & 7)], 1ul); END
}

GROUP_KERNEL(global_cas_loop, u32, u32, u32) {
  EACH(l) u32 x = a[GROUP_ID * GROUP + l] | 1, seen = 0;
  while (!__atomic_compare_exchange_n(&out[x >> 1 & 3], &seen, seen + x * x, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} END
}

GROUP_KERNEL(histogram_global, u32, u8, u8) {
  EACH(l) ATOMIC_ADD(&out[a[GROUP_ID * GROUP + l] & 63], 1u + (b[GROUP_ID * GROUP + l] & 3)); END
}

GROUP_KERNEL(stencil_lds, f32, f32, f32) {
  SHARED f32 tile[2][GROUP + 2];
  EACH(l) tile[0][l + 1] = a[GROUP_ID * GROUP + l];
  if (l < 2) tile[0][l * (GROUP + 1)] = 0, tile[1][l * (GROUP + 1)] = 0; END
  for (u32 step = 0; step < 6; step++) {
    u32 from = step & 1;
    EACH(l) tile[1 - from][l + 1] = 0.25f * tile[from][l] + 0.5f * tile[from][l + 1] + 0.25f * tile[from][l + 2]; END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[0][l + 1]; END
}

GROUP_KERNEL(jacobi_lds, f64, f64, f64) {
  SHARED f64 tile[2][64];
  EACH(l) tile[0][l] = a[GROUP_ID * GROUP + l], tile[1][l] = tile[0][l]; END
  for (u32 step = 0; step < 4; step++) {
    u32 from = step & 1;
    EACH(l) u32 x = l % 8, y = l / 8;
    if (x > 0 && x < 7 && y > 0 && y < 7)
      tile[1 - from][l] = 0.25 * (tile[from][l - 1] + tile[from][l + 1] + tile[from][l - 8] + tile[from][l + 8]); END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = tile[0][l]; END
}

GROUP_KERNEL(life_lds, u8, u8, u8) {
  SHARED u8 cells[2][64];
  EACH(l) cells[0][l] = a[GROUP_ID * GROUP + l] & 1; END
  for (u32 step = 0; step < 6; step++) {
    u32 from = step & 1;
    EACH(l) u32 alive = 0;
    for (u32 k = 0; k < 9; k++)
      if (k != 4) alive += cells[from][(l / 8 + k / 3 + 7) % 8 * 8 + (l % 8 + k % 3 + 7) % 8];
    cells[1 - from][l] = alive == 3 || (alive == 2 && cells[from][l]); END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = cells[0][l]; END
}

GROUP_KERNEL(fft64, f32, f32, f32) {
  SHARED f32 re[64], im[64];
  EACH(l) u32 from = __builtin_bitreverse32(l) >> 26;
  re[l] = a[GROUP_ID * GROUP + from], im[l] = b[GROUP_ID * GROUP + from]; END
  for (u32 size = 2; size <= 64; size *= 2) {
    EACH(l) if (l < 32) {
      u32 half_ = size / 2, at = l / half_ * size + l % half_;
      f32 angle = (f32)(l % half_) / (f32)half_, wr = 1 - angle * angle * 2, wi = -angle * (2 - angle);
      f32 xr = re[at + half_] * wr - im[at + half_] * wi, xi = re[at + half_] * wi + im[at + half_] * wr;
      re[at + half_] = re[at] - xr, im[at + half_] = im[at] - xi;
      re[at] += xr, im[at] += xi;
    } END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = re[l] - im[63 - l]; END
}

GROUP_KERNEL(floyd_lds, u32, u32, u32) {
  SHARED u32 distance[64];
  EACH(l) distance[l] = l / 8 == l % 8 ? 0 : a[GROUP_ID * GROUP + l] & 0xffff; END
  for (u32 k = 0; k < 8; k++) {
    EACH(l) u32 d = distance[l / 8 * 8 + k] + distance[k * 8 + l % 8];
    if (l / 8 != k && l % 8 != k && d < distance[l]) distance[l] = d; END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = distance[l]; END
}

GROUP_KERNEL(gauss_lds, f32, f32, f32) {
  SHARED f32 m[8][8];
  EACH(l) m[l / 8][l % 8] = a[GROUP_ID * GROUP + l] + (l / 8 == l % 8) * 9000.0f; END
  for (u32 p = 0; p < 7; p++) {
    EACH(l) u32 r = l / 8, c = l % 8;
    if (r > p && c > p) m[r][c] -= m[r][p] / m[p][p] * m[p][c]; END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = m[l / 8][l % 8]; END
}

GROUP_KERNEL(compact, u32, u32, u32) {
  SHARED u32 count[GROUP];
  EACH(l) count[l] = a[GROUP_ID * GROUP + l] & 1; END
  EACH(l) if (l == 0) for (u32 k = 1; k < GROUP; k++) count[k] += count[k - 1]; END
  EACH(l) if (a[GROUP_ID * GROUP + l] & 1) out[GROUP_ID * GROUP + count[l] - 1] = a[GROUP_ID * GROUP + l]; END
}

GROUP_KERNEL(list_ranking, u32, u32, u32) {
  SHARED u32 next[2][GROUP], rank[2][GROUP];
  EACH(l) next[0][l] = l ? (l * 7 + 3) % l : 0, rank[0][l] = l != 0; END
  for (u32 step = 0; step < 6; step++) {
    u32 from = step & 1;
    EACH(l) u32 to = next[from][l];
    rank[1 - from][l] = rank[from][l] + rank[from][to], next[1 - from][l] = next[from][to]; END
  }
  EACH(l) out[GROUP_ID * GROUP + l] = rank[0][l] * 1000 + (a[GROUP_ID * GROUP + l] & 7); END
}

GROUP_KERNEL(wide_lds, u64, u64, u64) {
  SHARED u64 pairs[2 * GROUP];
  EACH(l) pairs[2 * l] = a[GROUP_ID * GROUP + l], pairs[2 * l + 1] = b[GROUP_ID * GROUP + l]; END
  EACH(l) u32 k = GROUP - 1 - l;
  out[GROUP_ID * GROUP + l] = pairs[2 * k] * 3 + pairs[2 * k + 1] + pairs[(l * 5) % (2 * GROUP)]; END
}

GROUP_KERNEL(generic_pointer, u32, u32, u32) {
  SHARED u32 tile[GROUP];
  EACH(l) tile[l] = a[GROUP_ID * GROUP + l]; END
  EACH(l) u32 own[4] = {l, l + 1, l + 2, l + 3};
  const u32 *from = l % 3 == 0 ? (const u32 *)&tile[l] : l % 3 == 1 ? (const u32 *)&b[GROUP_ID * GROUP + l] : &own[l & 3];
  out[GROUP_ID * GROUP + l] = *from * 2 + 1; END
}
