/* One work-item, one float problem: series, iterations, small matrices. */
#include "common.h"

KERNEL(mandelbrot, u32, f32, f32) {
  f32 cx = a[i] * 0.01f, cy = b[i] * 0.01f, x = 0, y = 0;
  u32 k = 0;
  while (k < 40 && x * x + y * y < 4.0f) {
    f32 t = x * x - y * y + cx;
    y = 2 * x * y + cy, x = t, k++;
  }
  out[i] = k;
}

KERNEL(julia_f64, u32, f64, f64) {
  f64 x = a[i] * 0.01, y = b[i] * 0.01;
  u32 k = 0;
  for (; k < 30 && x * x + y * y < 4; k++) {
    f64 t = x * x - y * y - 0.4;
    y = 2 * x * y + 0.6, x = t;
  }
  out[i] = k;
}

KERNEL(newton_root, f32, f32, f32) {
  f32 x = a[i] < 0 ? -a[i] : a[i], root = x * 0.5f + 0.5f;
  for (u32 k = 0; k < 6; k++) root = 0.5f * (root + x / root);
  out[i] = root;
}

KERNEL(newton_root_f64, f64, f64, f64) {
  f64 x = a[i] < 0 ? -a[i] : a[i], root = x * 0.5 + 0.5;
  for (u32 k = 0; k < 5; k++) root = 0.5 * (root + x / root);
  out[i] = root;
}

KERNEL(exponential_series, f32, f32, f32) {
  f32 x = a[i] * 0.01f, term = 1, sum = 1;
  for (u32 k = 1; k < 10; k++) term = term * x / (f32)k, sum += term;
  out[i] = sum;
}

KERNEL(sine_series, f64, f64, f64) {
  f64 x = a[i] * 0.01, term = x, sum = x;
  for (u32 k = 1; k < 8; k++) term = -term * x * x / (f64)(2 * k * (2 * k + 1)), sum += term;
  out[i] = sum;
}

KERNEL(logarithm_bits, f32, f32, f32) {
  f32 x = a[i] < 0 ? -a[i] : a[i] + 1.0f;
  u32 bits = __builtin_bit_cast(u32, x);
  i32 exponent = (i32)(bits >> 23) - 127;
  f32 m = __builtin_bit_cast(f32, (bits & 0x7fffff) | 0x3f800000);
  f32 t = (m - 1.0f) / (m + 1.0f), t2 = t * t;
  out[i] = (f32)exponent * 0.69314718f + 2.0f * t * (1.0f + t2 * (0.33333333f + t2 * (0.2f + t2 * 0.14285714f)));
}

KERNEL(fast_inverse_root, f32, f32, f32) {
  f32 x = a[i] < 0 ? -a[i] : a[i] + 0.5f;
  f32 y = __builtin_bit_cast(f32, 0x5f3759df - (__builtin_bit_cast(u32, x) >> 1));
  y = y * (1.5f - 0.5f * x * y * y);
  out[i] = y * (1.5f - 0.5f * x * y * y);
}

KERNEL(kahan_sum, f32, f32, f32) {
  f32 sum = 0, lost = 0;
  for (u32 k = 0; k < 24; k++) {
    f32 y = a[(i + k) % n] - lost, t = sum + y;
    lost = (t - sum) - y, sum = t;
  }
  out[i] = sum;
}

KERNEL(dot_f32, f32, f32, f32) {
  f32 sum = 0;
  for (u32 k = 0; k < 16; k++) sum = __builtin_fmaf(a[(i + k) % n], b[(i * 3 + k) % n], sum);
  out[i] = sum;
}

KERNEL(dot_f16, f32, f16, f16) {
  f32 sum = 0;
  for (u32 k = 0; k < 16; k++) sum += (f32)a[(i + k) % n] * (f32)b[(i * 3 + k) % n];
  out[i] = sum;
}

KERNEL(horner_f16, f16, f16, f16) {
  f16 x = a[i] * (f16)0.01f, sum = (f16)1;
  for (u32 k = 0; k < 5; k++) sum = sum * x + b[(i + k) % n];
  out[i] = sum;
}

KERNEL(gemv, f32, f32, f32) {
  f32 sum = 0;
  for (u32 k = 0; k < 32; k++) sum += a[(i * 32 + k) % n] * b[k];
  out[i] = sum;
}

KERNEL(gemm_f64, f64, f64, f64) {
  u32 row = i / 8, column = i % 8;
  f64 sum = 0;
  for (u32 k = 0; k < 8; k++) sum += a[(row * 8 + k) % n] * b[k * 8 + column];
  out[i] = sum;
}

KERNEL(determinant3, f32, f32, f32) {
  f32 m[9];
  for (u32 k = 0; k < 9; k++) m[k] = a[(i + k) % n];
  out[i] = m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) + m[2] * (m[3] * m[7] - m[4] * m[6]);
}

KERNEL(gauss_inverse, f32, f32, f32) {
  f32 m[4][8];
  for (u32 r = 0; r < 4; r++)
    for (u32 c = 0; c < 8; c++) m[r][c] = c < 4 ? a[(i + r * 4 + c) % n] + (r == c) * 4000.0f : r == c - 4;
  for (u32 p = 0; p < 4; p++) {
    f32 pivot = m[p][p];
    for (u32 c = 0; c < 8; c++) m[p][c] /= pivot;
    for (u32 r = 0; r < 4; r++)
      if (r != p) {
        f32 factor = m[r][p];
        for (u32 c = 0; c < 8; c++) m[r][c] -= factor * m[p][c];
      }
  }
  out[i] = m[i & 3][4 + (i >> 2 & 3)];
}

KERNEL(cholesky, f64, f64, f64) {
  f64 l[3][3] = {{0}};
  for (u32 r = 0; r < 3; r++)
    for (u32 c = 0; c <= r; c++) {
      f64 sum = r == c ? 1e7 + a[(i + r) % n] : b[(i + r * 3 + c) % n];
      for (u32 k = 0; k < c; k++) sum -= l[r][k] * l[c][k];
      l[r][c] = r == c ? __builtin_sqrt(sum) : sum / l[c][c];
    }
  out[i] = l[2][2] + l[2][0] + l[1][1];
}

KERNEL(jacobi_point, f32, f32, f32) {
  f32 x[4] = {0}, y[4];
  for (u32 step = 0; step < 5; step++) {
    for (u32 r = 0; r < 4; r++) {
      f32 sum = b[(i + r) % n];
      for (u32 c = 0; c < 4; c++)
        if (c != r) sum -= a[(i + r + c) % n] * 0.01f * x[c];
      y[r] = sum / 1000.0f;
    }
    for (u32 r = 0; r < 4; r++) x[r] = y[r];
  }
  out[i] = x[i & 3];
}

KERNEL(n_body, f32, f32, f32) {
  f32 force = 0, x = a[i], y = b[i];
  for (u32 k = 0; k < 32; k++) {
    f32 dx = a[k] - x, dy = b[k] - y, r2 = dx * dx + dy * dy + 0.5f;
    force += dx / (r2 * __builtin_sqrtf(r2));
  }
  out[i] = force;
}

KERNEL(runge_kutta, f64, f64, f64) {
  f64 y = a[i] * 0.1, h = 0.05;
  for (u32 k = 0; k < 4; k++) {
    f64 k1 = -2 * y + b[i] * 0.01, k2 = -2 * (y + h * k1 / 2) + b[i] * 0.01, k3 = -2 * (y + h * k2 / 2) + b[i] * 0.01;
    y += h / 6 * (k1 + 2 * k2 + 2 * k3 + (-2 * (y + h * k3) + b[i] * 0.01));
  }
  out[i] = y;
}

KERNEL(bisection, f32, f32, f32) {
  f32 low = -2000, high = 2000, target = a[i];
  for (u32 k = 0; k < 30; k++) {
    f32 middle = (low + high) * 0.5f;
    if (middle + middle * 0.25f < target) low = middle;
    else high = middle;
  }
  out[i] = low;
}

KERNEL(simpson, f64, f64, f64) {
  f64 sum = 0, h = b[i] * 0.001;
  for (u32 k = 0; k < 9; k++) {
    f64 x = a[i] + (f64)k * h, f = x * x * x - 3 * x;
    sum += k == 0 || k == 8 ? f : k & 1 ? 4 * f : 2 * f;
  }
  out[i] = sum * h / 3;
}

KERNEL(dft8, f32, f32, f32) {
  f32 re = 0;
  for (u32 k = 0; k < 8; k++) {
    u32 angle = k * (i & 7) & 7;
    f32 c = angle == 0 ? 1 : angle == 4 ? -1 : angle == 2 || angle == 6 ? 0 : angle == 1 || angle == 7 ? 0.70710678f : -0.70710678f;
    re += a[(i / 8 * 8 + k) % n] * c;
  }
  out[i] = re;
}

KERNEL(fft8, f32, f32, f32) {
  f32 re[8], im[8];
  for (u32 k = 0; k < 8; k++) {
    u32 from = (k & 1) << 2 | (k & 2) | k >> 2;
    re[k] = a[(i + from) % n], im[k] = b[(i + from) % n];
  }
  for (u32 size = 2; size <= 8; size *= 2)
    for (u32 k = 0; k < 4; k++) {
      u32 half_ = size / 2, at = k / half_ * size + k % half_, turn = k % half_ * (8 / size);
      f32 wr = turn == 0 ? 1 : turn == 1 ? 0.70710678f : turn == 2 ? 0 : -0.70710678f;
      f32 wi = turn == 0 ? 0 : turn == 2 ? -1 : -0.70710678f;
      f32 xr = re[at + half_] * wr - im[at + half_] * wi, xi = re[at + half_] * wi + im[at + half_] * wr;
      re[at + half_] = re[at] - xr, im[at + half_] = im[at] - xi;
      re[at] += xr, im[at] += xi;
    }
  out[i] = re[i & 7] + im[(i >> 3) & 7];
}

KERNEL(bilinear, f32, f32, f32) {
  f32 x = (f32)(i % 7) * 0.31f, fx = x - __builtin_floorf(x), y = b[i] * 0.001f, fy = y - __builtin_floorf(y);
  u32 at = (u32)x + i;
  f32 top = a[at % n] * (1 - fx) + a[(at + 1) % n] * fx, low = a[(at + 8) % n] * (1 - fx) + a[(at + 9) % n] * fx;
  out[i] = top * (1 - fy) + low * fy;
}

KERNEL(color_convert, u32, u32, u32) {
  f32 r = (f32)(a[i] & 255), g = (f32)(a[i] >> 8 & 255), bl = (f32)(a[i] >> 16 & 255);
  u32 y = (u32)(0.299f * r + 0.587f * g + 0.114f * bl + 0.5f);
  i32 u = (i32)(-0.169f * r - 0.331f * g + 0.5f * bl) + 128;
  out[i] = y | (u32)(u & 255) << 8 | (b[i] & 0xff0000);
}

KERNEL(stencil3, f32, f32, f32) { out[i] = 0.25f * a[(i + n - 1) % n] + 0.5f * a[i] + 0.25f * a[(i + 1) % n]; }

KERNEL(stencil5_f64, f64, f64, f64) {
  f64 sum = -4 * a[i];
  sum += a[(i + 1) % n] + a[(i + n - 1) % n] + a[(i + 8) % n] + a[(i + n - 8) % n];
  out[i] = a[i] + 0.1 * sum;
}

KERNEL(box_blur_u8, u8, u8, u8) {
  u32 sum = 0;
  for (u32 k = 0; k < 9; k++) sum += a[(i + k % 3 + k / 3 * 8) % n];
  out[i] = (u8)((sum + 4) / 9);
}

KERNEL(median3, i32, i32, i32) {
  i32 x = a[i], y = b[i], z = a[(i + 1) % n], low = x < y ? x : y, high = x < y ? y : x;
  out[i] = z < low ? low : z > high ? high : z;
}

KERNEL(life, u8, u8, u8) {
  u32 alive = 0, x = i % 8, y = i / 8;
  for (u32 k = 0; k < 9; k++)
    if (k != 4) alive += a[((y + k / 3 + 7) % 8 * 8 + (x + k % 3 + 7) % 8) % n] & 1;
  out[i] = alive == 3 || (alive == 2 && (a[i] & 1));
}

KERNEL(rule110, u32, u32, u32) {
  u32 x = a[i];
  for (u32 k = 0; k < 8; k++) {
    u32 left = x >> 1 | x << 31, right = x << 1 | x >> 31;
    x = (x | right) & ~(left & x & right);
  }
  out[i] = x;
}
