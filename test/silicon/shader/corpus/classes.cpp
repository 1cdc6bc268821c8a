/* C++ as in HIP: pointers without an address space, virtual functions, recursion, variable arguments, jumps into loops,
   wide integers, values that are only partly written. */
#include "common.h"

struct Shape {
  virtual f32 area() const { return 0; }
  virtual u32 id(u32 x) const { return x; }
};
struct Sq : Shape {
  f32 s;
  Sq(f32 x) : s(x) {}
  f32 area() const override { return s * s; }
};
struct Rect : Shape {
  f32 x, y;
  Rect(f32 p, f32 q) : x(p), y(q) {}
  f32 area() const override { return x * y; }
  u32 id(u32 v) const override { return v * 3 + 1; }
};
struct Tri : Rect {
  Tri(f32 p, f32 q) : Rect(p, q) {}
  f32 area() const override { return 0.5f * x * y; }
  u32 id(u32 v) const override { return v ^ 0x55; }
};

KERNEL(virtual_area, f32, f32, u32) {
  Sq s(a[i]);
  Rect r(a[i], a[(i + 1) % n]);
  Tri t(a[i], 2.0f);
  const Shape *p;
  switch (b[i] % 3) {
  case 0: p = &s; break;
  case 1: p = &r; break;
  default: p = &t;
  }
  out[i] = p->area() + (f32)(p->id(b[i] & 255));
}

KERNEL(virtual_loop, u32, u32, u32) {
  Sq s(1.0f);
  Rect r(1.0f, 2.0f);
  Tri t(3.0f, 4.0f);
  const Shape *ps[3] = {&s, &r, &t};
  u32 x = a[i];
  for (u32 k = 0; k < (b[i] & 15); k++) x = ps[(x >> k) % 3]->id(x + k);
  out[i] = x;
}
template <int N> struct Poly {
  f32 c[N];
  f32 at(f32 x) const {
    f32 s = 0;
    for (int k = N - 1; k >= 0; k--) s = s * x + c[k];
    return s;
  }
};

KERNEL(tmpl_poly, f32, f32, f32) {
  Poly<5> p = {{1, 2, 3, 4, 5}};
  Poly<3> q;
  for (int k = 0; k < 3; k++) q.c[k] = b[(i + k) % n];
  f32 x = a[i] * 0.01f;
  out[i] = p.at(x) + q.at(x);
}
NOINLINE static u32 vsum(u32 count, ...) {
  __builtin_va_list ap;
  __builtin_va_start(ap, count);
  u32 s = 0;
  for (u32 k = 0; k < count; k++) s = s * 7 + __builtin_va_arg(ap, u32);
  __builtin_va_end(ap);
  return s;
}

KERNEL(varargs_u32, u32, u32, u32) { out[i] = vsum(1 + (b[i] & 3), a[i], b[i], i, 5u); }
NOINLINE static f64 vmix(u32 kinds, ...) {
  __builtin_va_list ap;
  __builtin_va_start(ap, kinds);
  f64 s = 0;
  for (u32 k = 0; k < 4; k++) {
    if (kinds >> k & 1) s += __builtin_va_arg(ap, f64);
    else s += (f64) __builtin_va_arg(ap, u32);
  }
  __builtin_va_end(ap);
  return s;
}

KERNEL(varargs_mixed, f64, u32, f64) {
  if (a[i] & 1) out[i] = vmix(0b1010, a[i], b[i], i, b[(i + 3) % n]);
  else out[i] = vmix(0b0101, b[i], i, b[(i + 1) % n], a[i]);
}

KERNEL(goto_irreducible, u32, u32, u32) {
  u32 x = a[i], y = b[i], steps = 0;
  if (x & 1) goto second;
first:
  x = x * 3 + y;
  if (++steps > 40) goto done;
  if (x & 4) goto second;
  y ^= x >> 3;
third:
  y += steps;
  if (++steps > 40) goto done;
  if (y & 8) goto first;
second:
  x ^= y << 1;
  if (++steps > 40) goto done;
  if ((x ^ y) & 16) goto third;
  goto first;
done:
  out[i] = x ^ y ^ steps;
}

KERNEL(goto_duff, u32, u32, u32) {
  u32 c = (b[i] & 31) + 1, s = 0, x = a[i], r = (c + 7) / 8;
  switch (c % 8) {
  case 0:
    do {
      s += x;
      x = x * 5 + 1;
    case 7: s ^= x; x += 3;
    case 6: s += x >> 1;
    case 5: s = s * 3 + x; x >>= 1;
    case 4: s -= x;
    case 3: s ^= x << 2; x += s;
    case 2: s += 7;
    case 1: s = s * 9 + x;
    } while (--r > 0);
  }
  out[i] = s;
}

KERNEL(computed_goto_vm, u32, u32, u32) {
  u32 acc = a[i], pc = b[i] & 7;
  static const u8 prog[8] = {3, 1, 4, 1, 5, 2, 0, 6};
  for (u32 t = 0; t < 50; t++) {
    switch (prog[pc & 7]) {
    case 0: goto out_;
    case 1:
      acc += pc * 17;
      pc++;
      break;
    case 2:
      acc = (acc << 3) | (acc >> 29);
      pc += (acc & 1) ? 2 : 1;
      break;
    case 3:
      acc ^= 0xdeadbeef;
      pc += 3;
      break;
    case 4:
      acc *= 2654435761u;
      pc--;
      break;
    case 5:
      if (acc & 2) pc += 5;
      else pc += 2;
      break;
    default: acc -= t; pc = acc >> 5;
    }
  }
out_:
  out[i] = acc + pc;
}
template <class F> static void each(u32 n, F f) {
  for (u32 k = 0; k < n; k++) f(k);
}

KERNEL(lambda_capture, u32, u32, u32) {
  u32 h = 0, last = 0;
  each(b[i] % 13, [&](u32 k) {
    h = h * 31 + a[(i + k) % n];
    last = k;
  });
  out[i] = h + last;
}
struct Stack {
  u32 top;
  u32 v[24];
  void push(u32 x) {
    if (top < 24) v[top++] = x;
  }
  u32 pop() { return top ? v[--top] : 0; }
};

KERNEL(stack_tree_walk, u32, u32, u32) {
  Stack s;
  s.top = 0;
  s.push(1);
  u32 sum = 0, g = 0;
  while (s.top && g++ < 200) {
    u32 x = s.pop();
    if (x >= (a[i] & 63) + 2) continue;
    sum += b[x % n] & 0xff;
    s.push(x * 2);
    s.push(x * 2 + 1);
  }
  out[i] = sum;
}
NOINLINE static u32 ack(u32 m, u32 k, u32 d) {
  if (d > 60) return k;
  if (m == 0) return k + 1;
  if (k == 0) return ack(m - 1, 1, d + 1);
  return ack(m - 1, ack(m, k - 1, d + 1), d + 1);
}

KERNEL(recursion_ackermann, u32, u32, u32) { out[i] = ack(a[i] & 1, b[i] & 3, 0); }
NOINLINE static u32 fib(u32 k) { return k < 2 ? k : fib(k - 1) + fib(k - 2); }

KERNEL(recursion_fib, u32, u32, u32) { out[i] = fib(a[i] % 9) + b[i]; }
NOINLINE static u32 evenp(u32 k, u32 x);
NOINLINE static u32 oddp(u32 k, u32 x) { return k == 0 ? x : evenp(k - 1, x * 3); }
NOINLINE static u32 evenp(u32 k, u32 x) { return k == 0 ? x + 1 : oddp(k - 1, x ^ k); }

// At -O0 a call takes 64 bytes of the stack of 1024 that HIP gives a work-item, so it may go 12 deep but not 20.
KERNEL(mutual_recursion, u32, u32, u32) { out[i] = evenp(a[i] % 12, b[i]); }
struct Big {
  u32 v[20];
};
NOINLINE static Big mkbig(u32 s) {
  Big r;
  for (u32 k = 0; k < 20; k++) r.v[k] = s *= 1664525u;
  return r;
}
NOINLINE static u32 usebig(Big b, u32 at) {
  b.v[at % 20] ^= at;
  u32 s = 0;
  for (u32 k = 0; k < 20; k++) s += b.v[k] * k;
  return s;
}

KERNEL(struct_by_value, u32, u32, u32) { out[i] = usebig(mkbig(a[i]), b[i]); }
union Pun {
  f32 f;
  u32 u;
  u8 b[4];
  u16 h[2];
};

KERNEL(union_pun, u32, f32, u32) {
  Pun p;
  p.f = a[i];
  p.b[b[i] & 3] ^= 0x5a;
  p.h[b[i] >> 2 & 1] += 3;
  out[i] = p.u;
}

KERNEL(i128_mul, u64, u64, u64) {
  unsigned __int128 x = (unsigned __int128)a[i] * b[i];
  x += (unsigned __int128)a[(i + 1) % n] << 17;
  out[i] = (u64)(x >> 64) ^ (u64)x;
}

KERNEL(i128_shift, u64, u64, u32) {
  __int128 x = ((__int128)a[i] << 64) | a[(i + 1) % n];
  x >>= (b[i] & 127);
  out[i] = (u64)(x >> 64) ^ (u64)x;
}

KERNEL(mod_inverse, u64, u64, u64) {
  u64 m = (b[i] | 1) & 0xffffffffffffull;
  i64 t = 0, nt = 1;
  u64 r = m, nr = a[i] % m;
  u32 g = 0;
  while (nr && g++ < 90) {
    u64 q = r / nr;
    i64 tt = t - (i64)q * nt;
    t = nt;
    nt = tt;
    u64 rr = r - q * nr;
    r = nr;
    nr = rr;
  }
  out[i] = (u64)t ^ r;
}

KERNEL(bigint_add, u32, u32, u32) {
  u32 x[8], y[8];
  for (u32 k = 0; k < 8; k++) {
    x[k] = a[(i + k) % n];
    y[k] = b[(i * 3 + k) % n];
  }
  u64 c = 0;
  for (u32 k = 0; k < 8; k++) {
    c += (u64)x[k] + y[k];
    x[k] = (u32)c;
    c >>= 32;
  }
  u32 s = (u32)c;
  for (u32 k = 0; k < 8; k++) s = s * 33 + x[k];
  out[i] = s;
}

KERNEL(bigint_mul, u32, u32, u32) {
  u32 r[8] = {0};
  for (u32 p = 0; p < 4; p++) {
    u64 c = 0;
    for (u32 q = 0; q < 4; q++) {
      c += (u64)a[(i + p) % n] * b[(i + q) % n] + r[p + q];
      r[p + q] = (u32)c;
      c >>= 32;
    }
    r[p + 4] = (u32)c;
  }
  u32 s = 0;
  for (u32 k = 0; k < 8; k++) s = s * 33 + r[k];
  out[i] = s;
}

KERNEL(optional_value, u32, u32, u32) {
  struct Opt {
    bool has;
    u32 v;
  };
  auto find = [&](u32 key) -> Opt {
    for (u32 k = 0; k < (b[i] & 31); k++)
      if ((a[(i + k) % n] & 7) == (key & 7)) return {true, a[(i + k) % n]};
    Opt o;
    o.has = false;
    return o;
  };
  Opt o = find(b[i]);
  Opt p = find(b[i] + 1);
  out[i] = (o.has ? o.v : 7) + (p.has ? p.v * 2 : 9);
}

KERNEL(argmin_pair, u32, f32, u32) {
  f32 best;
  u32 at;
  bool any = false;
  for (u32 k = 0; k < (b[i] % 9); k++) {
    f32 v = a[(i + k) % n];
    if (!(v < 0) && (!any || v < best)) {
      best = v;
      at = k;
      any = true;
    }
  }
  out[i] = any ? at : 99;
}

KERNEL(three_undefined, u32, u32, u32) {
  u32 x, y, z;
  u32 have = 0;
  for (u32 k = 0; k < (a[i] & 15); k++) {
    u32 v = b[(i + k) % n];
    if ((v & 3) == 0) {
      x = v;
      have |= 1;
    } else if ((v & 3) == 1) {
      y = x * v;
      have |= (have & 1) ? 2 : 0;
    } else if ((v & 3) == 2) {
      z = (have & 2) ? y + x : v;
      have |= 4;
    }
  }
  out[i] = (have & 1 ? x : 1) + (have & 2 ? y : 2) + (have & 4 ? z : 3);
}

KERNEL(partial_struct, u32, u32, u32) {
  struct P {
    u16 h;
    u8 c;
    u32 w;
    u64 q;
  } p;
  u32 k = a[i] % 5;
  if (k == 0) p.h = b[i];
  if (k == 1) p.c = b[i];
  if (k == 2) p.w = b[i];
  if (k == 3) p.q = (u64)b[i] * a[i];
  u32 r = 0;
  if (k == 0) r = p.h;
  else if (k == 1) r = p.c;
  else if (k == 2) r = p.w;
  else if (k == 3) r = (u32)(p.q >> 5);
  out[i] = r;
}

KERNEL(partial_array_copy, u32, u32, u32) {
  u32 t[12], v[12];
  u32 c = a[i] % 12;
  for (u32 k = 0; k < c; k++) t[k] = b[(i + k) % n];
  __builtin_memcpy(v, t, sizeof t);
  u32 s = 0;
  for (u32 k = 0; k < c; k++) s = s * 3 + v[k];
  out[i] = s;
}

KERNEL(partial_bits, u32, u32, u32) {
  struct B {
    u32 x : 5;
    u32 y : 11;
    u32 z : 16;
  } f;
  f.x = a[i];
  if (a[i] & 1) f.y = b[i];
  if (a[i] & 2) f.z = b[i] >> 3;
  u32 r = f.x;
  if (a[i] & 1) r += f.y;
  if (a[i] & 2) r ^= f.z << 4;
  out[i] = r;
}

KERNEL(float_maybe, f32, f32, u32) {
  f32 x;
  if (b[i] & 1) x = a[i];
  f32 y = x * 2.0f + 1.0f;
  f32 z = b[i] & 1 ? y : a[i] * 0.5f;
  out[i] = z;
}

KERNEL(half_maybe, f16, f16, u32) {
  f16 x, y;
  if (b[i] & 1) x = a[i];
  if (b[i] & 2) y = a[(i + 1) % n];
  f16 s = (b[i] & 1) ? x : (f16)1;
  s += (b[i] & 2) ? y : (f16)2;
  out[i] = s;
}

KERNEL(f64_maybe, f64, f64, u32) {
  f64 x;
  u32 g = 0;
  for (u32 k = 0; k < (b[i] & 7); k++) {
    if (a[(i + k) % n] > 0) {
      x = g ? x + a[(i + k) % n] : a[(i + k) % n];
      g = 1;
    }
  }
  out[i] = g ? x / 3.0 : -1.0;
}

KERNEL(u8_maybe, u8, u8, u8) {
  u8 t[4];
  for (u32 k = 0; k < (b[i] & 3); k++) t[k] = a[(i + k) % n];
  u8 s = 1;
  for (u32 k = 0; k < (b[i] & 3); k++) s = s * 3 + t[k];
  out[i] = s;
}
