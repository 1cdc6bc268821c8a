/* Loops of run-time length over data-dependent conditions. Variables get a value only where they are used later.
   Compilers compute with variables that have none, and select the result away. `b` gives every work-item its own bound,
   `n` gives all of them the same. */
#include "common.h"
#define BOUND(i) (b[i] % 13)

KERNEL(largest_odd, u32, u32, u32) {
  u32 best, have = 0;
  for (u32 k = 0; k < n / 8; k++) {
    u32 v = a[(i + k) % n];
    if (v & 1) {
      if (!have || v > best) { best = v; have = 1; }
    }
  }
  out[i] = have ? best : 9;
}

KERNEL(largest_odd_of_few, u32, u32, u32) {
  u32 best, have = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    u32 v = a[(i * 5 + k) % n];
    if (v & 1) {
      if (!have || v > best) { best = v; have = 1; }
    }
  }
  out[i] = have ? best : 9;
}

KERNEL(uniform_best, u32, u32, u32) {
  u32 best, have = 0;
  for (u32 k = 0; k < n; k++) {
    u32 v = a[k];
    if (v % 3 == 0) {
      best = have && best < v ? best : v * 7 + 1;
      have = 1;
    }
  }
  out[i] = have ? best + i : i;
}

KERNEL(smallest_float, f32, f32, u32) {
  f32 low, sum = 0;
  u32 seen = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    f32 v = a[(i + k * 3) % n];
    if (v < 0) continue;
    if (!seen++ || v < low) low = v;
    sum += v;
  }
  out[i] = seen ? sum - low : -1;
}

KERNEL(last_two, u32, u32, u32) {
  u32 last, before, count = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    u32 v = a[(i + k) % n];
    if ((v ^ k) & 2) { before = last; last = v; count++; }
  }
  out[i] = count == 0 ? 1 : count == 1 ? last : last * 3 + before;
}

KERNEL(packed_bytes, u32, u8, u32) {
  u32 word, filled = 0, sum = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    u32 v = a[(i + k) % n];
    word = filled ? word << 8 | v : v;
    if (++filled == 4) { sum = sum * 31 + word; filled = 0; }
  }
  out[i] = filled ? sum ^ word : sum;
}

KERNEL(early_exit, i32, i32, u32) {
  i32 found;
  u32 at = 0, k;
  for (k = 0; k < n; k++) {
    i32 v = a[(i + k) % n];
    if (v % 5 == 3) { found = v; at = k; break; }
    if (k > BOUND(i) * 4) break;
  }
  out[i] = at ? found / (i32)(at + 1) : -7;
}

KERNEL(state_machine, u32, u8, u32) {
  u32 state = 0, number, total = 0;
  for (u32 k = 0; k < BOUND(i) * 2; k++) {
    u32 c = a[(i + k) % n];
    switch (state) {
      case 0: if (c & 1) { number = c; state = 1; } break;
      case 1: if (c & 2) number = number * 10 + c; else { total += number; state = 2; } break;
      default: if (c % 3) state = 0; break;
    }
  }
  out[i] = state == 1 ? total ^ number : total;
}

KERNEL(collatz, u32, u32, u32) {
  u32 v = a[i] % 1000 + 1, steps = 0, top;
  while (v != 1 && steps < BOUND(i) * 9) {
    if (!steps || v > top) top = v;
    v = v & 1 ? 3 * v + 1 : v / 2;
    steps++;
  }
  out[i] = steps ? top + steps : 0;
}

KERNEL(two_level, u32, u32, u32) {
  u32 outer = 0, inner, any = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    u32 seen = 0;
    for (u32 j = k; j < BOUND((i + k) % n); j++) {
      u32 v = a[(i + j * k) % n];
      if (v % 7 < 3) { inner = seen ? inner ^ v : v + j; seen = 1; }
    }
    if (seen) { outer = any ? outer + inner : inner; any = 1; }
  }
  out[i] = any ? outer : ~0u;
}

KERNEL(wide_best, u64, u64, u32) {
  u64 best;
  u32 have = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    u64 v = a[(i + k * 7) % n];
    if (v >> 3 & 1) { if (!have || v < best) best = v; have++; }
  }
  out[i] = have ? best + have : 5;
}

KERNEL(double_range, f64, f64, u32) {
  f64 low, high;
  u32 have = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    f64 v = a[(i + k) % n];
    if (v == 0) continue;
    if (!have) { low = high = v; have = 1; }
    else { low = v < low ? v : low; high = v > high ? v : high; }
  }
  out[i] = have ? high - low : -1;
}

KERNEL(half_best, f16, f16, u32) {
  f16 best;
  u32 have = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    f16 v = a[(i + k) % n];
    if (v > (f16)0.5f) { best = have ? (v > best ? v : best) : v; have = 1; }
  }
  out[i] = have ? best : (f16)-2.0f;
}

KERNEL(insertion, u32, u32, u32) {
  u32 kept[6], count = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    u32 v = a[(i + k) % n] % 997, at = count < 6 ? count++ : 5;
    if (at == 5 && count == 6 && kept[5] < v && k > 5) continue;
    while (at && kept[at - 1] > v) { kept[at] = kept[at - 1]; at--; }
    kept[at] = v;
  }
  u32 sum = 0;
  for (u32 k = 0; k < count; k++) sum = sum * 17 + kept[k];
  out[i] = sum;
}

typedef u32 three __attribute__((ext_vector_type(4)));
KERNEL(padded_vector, u32, u32, u32) {
  three v;
  u32 have = 0;
  for (u32 k = 0; k < BOUND(i); k++) {
    u32 x = a[(i + k) % n];
    if (x & 4) { v.x = x; v.y = have ? v.y + x : x; v.z = k; have = 1; }
  }
  out[i] = have ? v.x ^ v.y * 3 ^ v.z : 2;
}

GROUP_KERNEL(group_best, u32, u32, u32) {
  SHARED u32 best[GROUP], have[GROUP];
  EACH(l)
    u32 low, any = 0;
    for (u32 k = l; k < n; k += GROUP) {
      u32 v = a[(k * 3 + GROUP_ID) % n];
      if (v & 2) { if (!any || v < low) low = v; any = 1; }
    }
    if (any) best[l] = low;
    have[l] = any;
  END
  EACH(l)
    u32 low, any = 0;
    for (u32 k = 0; k <= l; k++) {
      if (have[k]) { low = any && low < best[k] ? low : best[k]; any = 1; }
    }
    out[GROUP_ID * GROUP + l] = any ? low : 3;
  END
}

/* Arrays of bytes that stay in registers, four bytes in each. */
KERNEL(itoa, u32, u32, u32) {
  char t[12];
  u32 l = 0, v = a[i];
  do {
    t[l++] = '0' + v % 10;
    v /= 10;
  } while (v);
  u32 h = 0;
  while (l) h = h * 31 + t[--l];
  out[i] = h;
}

KERNEL(union_find, u32, u32, u32) {
  u8 p[16];
  for (u32 k = 0; k < 16; k++) p[k] = k;
  for (u32 t = 0; t < 12; t++) {
    u32 x = a[(i + t) % n] & 15, y = b[(i + t) % n] & 15;
    while (p[x] != x) x = p[x];
    while (p[y] != y) y = p[y];
    p[x] = y;
  }
  u32 c = 0;
  for (u32 k = 0; k < 16; k++) c += p[k] == k;
  out[i] = c;
}

KERNEL(perm_next, u32, u32, u32) {
  u8 p[6];
  for (u32 k = 0; k < 6; k++) p[k] = k;
  for (u32 t = 0; t < a[i] % 50; t++) {
    i32 k = 4;
    while (k >= 0 && p[k] > p[k + 1]) k--;
    if (k < 0) break;
    i32 l = 5;
    while (p[k] > p[l]) l--;
    u8 x = p[k];
    p[k] = p[l];
    p[l] = x;
    for (i32 q = k + 1, r = 5; q < r; q++, r--) {
      x = p[q];
      p[q] = p[r];
      p[r] = x;
    }
  }
  u32 s = 0;
  for (u32 k = 0; k < 6; k++) s = s * 6 + p[k];
  out[i] = s;
}
