/* Functions that are not inlined, pointers to them, and private memory indexed at run time: the stack. */
#include "common.h"

NOINLINE static u32 mixed(u32 x, u32 y) { return (x ^ y) * 2654435761u + (x >> 3); }
NOINLINE static u32 mixed_twice(u32 x, u32 y) { return mixed(x, y) + mixed(y, x + 1); }
NOINLINE static u64 wide(u64 x, u64 y) { return x * y + (x >> 7); }
NOINLINE static f32 curve(f32 x) { return x * x - 0.5f * x; }
NOINLINE static f64 curve_f64(f64 x, f64 y) { return x * y - 0.5 * x; }
NOINLINE static void swap(u32 *x, u32 *y) {
  u32 t = *x;
  *x = *y, *y = t;
}
NOINLINE static u32 total(const u32 *values, u32 count) {
  u32 sum = 0;
  for (u32 k = 0; k < count; k++) sum = sum * 3 + values[k];
  return sum;
}
NOINLINE static u32 many(u32 a, u32 b, u32 c, u32 d, u32 e, u32 f, u32 g, u32 h, u32 i, u32 j, u32 k, u32 l) {
  return a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h + 19 * i + 23 * j + 29 * k + 31 * l;
}
NOINLINE static u32 twice(u32 x) { return x * 2 + 1; }
NOINLINE static u32 thrice(u32 x) { return x * 3 + 2; }
NOINLINE static u32 square(u32 x) { return x * x; }
NOINLINE static u32 third(u32 x, u32 y) { return y ? x + y : x; }
NOINLINE static u32 second(u32 x, u32 y) { return third(x * 2, y) + third(y, x & 1); }
NOINLINE static u32 first(u32 x, u32 y) { return second(x, y) ^ second(y, x) ^ third(x, x); }

KERNEL(call_one, u32, u32, u32) { out[i] = mixed(a[i], b[i]); }
KERNEL(call_nested, u32, u32, u32) { out[i] = mixed_twice(a[i], b[i]) + mixed(b[i], 3); }
KERNEL(call_depth, u32, u32, u32) { out[i] = first(a[i], b[i]); }
KERNEL(call_in_loop, u32, u32, u32) {
  u32 x = a[i];
  for (u32 k = 0; k < (b[i] & 7); k++) x = mixed(x, k);
  out[i] = x;
}
KERNEL(call_divergent, u32, u32, u32) {
  u32 x = a[i];
  if (x & 1) x = mixed(x, b[i]);
  else if (x & 2) x = square(x);
  out[i] = x;
}
KERNEL(call_u64, u64, u64, u64) { out[i] = wide(a[i], wide(b[i], 5)); }
KERNEL(call_f32, f32, f32, f32) { out[i] = curve(a[i]) + curve(curve(b[i] * 0.001f)); }
KERNEL(call_f64, f64, f64, f64) { out[i] = curve_f64(a[i], curve_f64(b[i], 2.0)); }
KERNEL(call_by_pointer, u32, u32, u32) {
  u32 x = a[i], y = b[i];
  if (x > y) swap(&x, &y);
  out[i] = x * 5 + y;
}
KERNEL(call_with_array, u32, u32, u32) {
  u32 values[10];
  for (u32 k = 0; k < 10; k++) values[k] = a[(i + k) % n];
  out[i] = total(values, 1 + b[i] % 10);
}
KERNEL(call_many_arguments, u32, u32, u32) {
  u32 x = a[i], y = b[i];
  out[i] = many(x, y, x + 1, y + 1, x ^ y, x & y, x | y, x * y, x - y, x >> 1, y >> 1, 7);
}
KERNEL(function_pointers, u32, u32, u32) {
  u32 (*chosen)(u32) = a[i] % 3 == 0 ? twice : a[i] % 3 == 1 ? thrice : square;
  out[i] = chosen(b[i]);
}
KERNEL(function_table, u32, u32, u32) {
  u32 (*table[4])(u32) = {twice, thrice, square, twice};
  u32 x = b[i];
  for (u32 k = 0; k < 3; k++) x = table[(a[i] >> 2 * k) & 3](x);
  out[i] = x;
}
KERNEL(large_array, u32, u32, u32) {
  u32 values[200];
  for (u32 k = 0; k < 200; k++) values[k] = k * k + a[i];
  u32 sum = 0;
  for (u32 k = 0; k < 10; k++) sum += values[(b[i] >> k) % 200];
  out[i] = sum;
}
KERNEL(byte_array, u32, u8, u8) {
  u8 counts[64] = {0};
  for (u32 k = 0; k < 24; k++) counts[a[(i + k) % n] & 63]++;
  u32 most = 0;
  for (u32 k = 0; k < 64; k++) most = counts[k] > (most >> 8) ? counts[k] << 8 | k : most;
  out[i] = most;
}
KERNEL(wide_array, u64, u64, u32) {
  u64 values[33];
  for (u32 k = 0; k < 33; k++) values[k] = a[(i + k) % n] * (k + 1);
  out[i] = values[b[i] % 33] ^ values[b[(i + 1) % n] % 33];
}
KERNEL(half_array, f16, f16, u32) {
  f16 values[40];
  for (u32 k = 0; k < 40; k++) values[k] = a[(i + k) % n] + (f16)(f32)k;
  out[i] = values[b[i] % 40];
}
KERNEL(struct_array, u32, u32, u32) {
  struct {
    u32 key;
    u16 low;
    u8 tag;
  } items[12];
  for (u32 k = 0; k < 12; k++) items[k].key = a[(i + k) % n], items[k].low = (u16)(k * 77), items[k].tag = (u8)(a[i] >> k);
  u32 at = b[i] % 12;
  items[(at + 5) % 12].low ^= 0x55;
  out[i] = items[at].key + items[(at + 5) % 12].low * 3 + items[(at + 7) % 12].tag;
}
KERNEL(ring_buffer, u32, u32, u32) {
  u32 ring[16], head = 0, tail = 0, sum = 0;
  for (u32 k = 0; k < 40; k++) {
    if (a[(i + k) % n] & 1 && head - tail < 16) ring[head++ & 15] = k + b[i];
    else if (head != tail) sum = sum * 3 + ring[tail++ & 15];
  }
  out[i] = sum;
}
