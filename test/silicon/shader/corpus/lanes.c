/* Lanes of a wave that read each other, and instructions that no C operator stands for. On this computer they are
   functions written from the ISA document. */
#include "common.h"

#ifdef __AMDGCN__
#define WAVE __AMDGCN_WAVEFRONT_SIZE
#define LANE __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0))
#if defined(__GFX12__) || defined(__gfx942__) /* ds_permute and ds_bpermute stay in a half of a wave64 on RDNA3 only */
#define IN_HALF(lane) ((LANE & 32) | (lane))
#else
#define IN_HALF(lane) (lane)
#endif
#if WAVE == 32
#define BALLOT(p) ((u64)__builtin_amdgcn_ballot_w32(p))
#else
#define BALLOT(p) __builtin_amdgcn_ballot_w64(p)
#endif
// RDNA4 needs a wait before a scalar that the vector ALU writes is read; in assembly, the compiler puts none.
#if defined(__gfx1200__) || defined(__gfx1201__)
#define WAIT_FOR_SCALARS "s_wait_alu depctr_va_sdst(0)\n"
#else
#define WAIT_FOR_SCALARS ""
#endif
INLINE u32 write_lane_3(u32 value, u32 into) {
  __asm__(WAIT_FOR_SCALARS "v_writelane_b32 %0, %1, 3" : "+v"(into) : "s"(__builtin_amdgcn_readfirstlane(value)));
  return into;
}
#else
#define LANE (i % WAVE)
#endif
#ifdef __AMDGCN__
#define OTHER(device, host) (device)
#else
#define OTHER(device, host) (host)
#endif

#ifndef __AMDGCN__
static u64 ballot_of(const u32 *a, u32 i, u32 mask, u32 value) {
  u64 found = 0;
  for (u32 l = 0; l < WAVE; l++) found |= (u64)((a[i - LANE + l] & mask) == value) << l;
  return found;
}
static u32 at_lane(const u32 *a, u32 i, u32 lane) { return a[i - LANE + lane % WAVE]; }
static u32 last_to(const u32 *a, const u32 *b, u32 i) { /* ds_permute: the highest lane that sends to this one */
  u32 found = 0;
  for (u32 l = 0; l < WAVE; l++)
    if ((at_lane(b, i, l) & 31) == (LANE & 31) && (l & 32) == (LANE & 32)) found = at_lane(a, i, l);
  return found;
}
static u32 sad(u32 x, u32 y, u32 z, u32 masked) {
  for (u32 k = 0; k < 32; k += 8) {
    i32 d = (i32)(x >> k & 255) - (i32)(y >> k & 255);
    if (!masked || (y >> k & 255)) z += d < 0 ? -d : d;
  }
  return z;
}
static u32 perm(u32 x, u32 y, u32 s) {
  u64 both = (u64)x << 32 | y;
  u32 r = 0;
  for (u32 k = 0; k < 4; k++) {
    u32 c = s >> 8 * k & 255;
    u32 v = c > 12 ? 255 : c == 12 ? 0 : c >= 8 ? (both >> (16 * (c - 8) + 15) & 1 ? 255 : 0) : both >> 8 * c & 255;
    r |= v << 8 * k;
  }
  return r;
}
static i32 dot4(u32 x, u32 y, i32 z) {
  for (u32 k = 0; k < 32; k += 8) z += (i32)(i8)(x >> k) * (i32)(i8)(y >> k);
  return z;
}
#endif

KERNEL(lane_number, u32, u32, u32) { out[i] = LANE * 3 + a[i]; }
KERNEL(ballot, u64, u32, u32) { out[i] = OTHER(BALLOT((a[i] & 1) == 1), ballot_of(a, i, 1, 1)); }
KERNEL(ballot_divergent, u64, u32, u32) {
  out[i] = 7;
  if (a[i] & 2) out[i] = OTHER(BALLOT((a[i] & 3) == 3), ballot_of(a, i, 3, 3));
}
KERNEL(prefix_of_ballot, u32, u32, u32) {
  u64 found = OTHER(BALLOT((a[i] & 1) == 1), ballot_of(a, i, 1, 1));
  out[i] = OTHER(__builtin_amdgcn_mbcnt_hi((u32)(found >> 32), __builtin_amdgcn_mbcnt_lo((u32)found, 5)),
                 5 + (u32)__builtin_popcountl(found & ((1ul << LANE) - 1)));
}
KERNEL(first_lane, u32, u32, u32) { out[i] = OTHER((u32)__builtin_amdgcn_readfirstlane(a[i]), at_lane(a, i, 0)) + b[i]; }
KERNEL(first_active_lane, u32, u32, u32) {
  out[i] = 0;
  if (LANE > 4) out[i] = OTHER((u32)__builtin_amdgcn_readfirstlane(a[i]), at_lane(a, i, 5)) ^ b[i];
}
KERNEL(read_lane, u32, u32, u32) { out[i] = OTHER((u32)__builtin_amdgcn_readlane(a[i], n & 31 | 9), at_lane(a, i, n & 31 | 9)); }
KERNEL(write_lane, u32, u32, u32) {
  out[i] = OTHER(write_lane_3(n, a[i]), LANE == 3 ? n : a[i]);
}
KERNEL(bpermute, u32, u32, u32) {
  u32 from = b[i] & 31;
  out[i] = OTHER((u32)__builtin_amdgcn_ds_bpermute(IN_HALF(from) * 4, a[i]), at_lane(a, i, (LANE & 32) | from));
}
KERNEL(permute, u32, u32, u32) { out[i] = OTHER((u32)__builtin_amdgcn_ds_permute(IN_HALF(b[i] & 31) * 4, a[i]), last_to(a, b, i)); }
KERNEL(swizzle_xor, u32, u32, u32) { out[i] = OTHER((u32)__builtin_amdgcn_ds_swizzle(a[i], 0x141f), at_lane(a, i, LANE ^ 5)); }
KERNEL(swizzle_broadcast, u32, u32, u32) { out[i] = OTHER((u32)__builtin_amdgcn_ds_swizzle(a[i], 0x0078), at_lane(a, i, (LANE & 0x38) | 3)); }
KERNEL(swizzle_quad, u32, u32, u32) {
  out[i] = OTHER((u32)__builtin_amdgcn_ds_swizzle(a[i], 0x801b), at_lane(a, i, LANE ^ 3));
}
KERNEL(dpp_quad, u32, u32, u32) {
  out[i] = OTHER((u32)__builtin_amdgcn_update_dpp(0, a[i], 0x4e, 0xf, 0xf, 1), at_lane(a, i, LANE ^ 2)) + b[i];
}
KERNEL(dpp_shift_right, u32, u32, u32) {
  out[i] = OTHER((u32)__builtin_amdgcn_update_dpp(b[i], a[i], 0x113, 0xf, 0xf, 0), (LANE & 15) >= 3 ? at_lane(a, i, LANE - 3) : b[i]);
}
KERNEL(dpp_shift_left_zero, u32, u32, u32) {
  out[i] = OTHER((u32)__builtin_amdgcn_update_dpp(b[i], a[i], 0x102, 0xf, 0xf, 1), (LANE & 15) < 14 ? at_lane(a, i, LANE + 2) : 0);
}
KERNEL(dpp_rotate, u32, u32, u32) {
  out[i] = OTHER((u32)__builtin_amdgcn_update_dpp(0, a[i], 0x125, 0xf, 0xf, 1), at_lane(a, i, (LANE & 48) | (LANE - 5 & 15)));
}
KERNEL(dpp_mirror, u32, u32, u32) {
  u32 x = OTHER((u32)__builtin_amdgcn_update_dpp(0, a[i], 0x140, 0xf, 0xf, 1), at_lane(a, i, LANE ^ 15));
  out[i] = x + OTHER((u32)__builtin_amdgcn_update_dpp(0, b[i], 0x141, 0xf, 0xf, 1), at_lane(b, i, LANE ^ 7));
}
#ifndef __gfx942__ /* GFX9 cannot exchange any lanes of a row. */
KERNEL(dpp_share_xmask, u32, u32, u32) {
  u32 x = OTHER((u32)__builtin_amdgcn_update_dpp(0, a[i], 0x156, 0xf, 0xf, 1), at_lane(a, i, (LANE & 48) | 6));
  out[i] = x ^ OTHER((u32)__builtin_amdgcn_update_dpp(0, b[i], 0x169, 0xf, 0xf, 1), at_lane(b, i, LANE ^ 9));
}
#endif
KERNEL(dpp_masks, u32, u32, u32) {
  out[i] = OTHER((u32)__builtin_amdgcn_update_dpp(b[i], a[i], 0x4e, 0x5, 0x3, 0),
                 (LANE >> 4 & 1) == 0 && (LANE & 15) < 8 ? at_lane(a, i, LANE ^ 2) : b[i]);
}
KERNEL(dpp_inactive, u32, u32, u32) {
  out[i] = 1;
  if (LANE & 1) out[i] = OTHER((u32)__builtin_amdgcn_update_dpp(b[i], a[i], 0x111, 0xf, 0xf, 1), 0);
}
#ifndef __gfx942__ /* GFX9 has no groups of eight lanes. */
KERNEL(dpp8, u32, u32, u32) { out[i] = OTHER((u32)__builtin_amdgcn_mov_dpp8(a[i], 0x053977), at_lane(a, i, (LANE & 56) | (0x053977 >> 3 * (LANE & 7) & 7))); }
#endif
KERNEL(dpp_row_sum, u32, u32, u32) {
  u32 x = a[i];
#ifdef __AMDGCN__
  x += (u32)__builtin_amdgcn_update_dpp(0, x, 0x111, 0xf, 0xf, 1);
  x += (u32)__builtin_amdgcn_update_dpp(0, x, 0x112, 0xf, 0xf, 1);
  x += (u32)__builtin_amdgcn_update_dpp(0, x, 0x114, 0xf, 0xf, 1);
  x += (u32)__builtin_amdgcn_update_dpp(0, x, 0x118, 0xf, 0xf, 1);
#else
  for (u32 k = LANE & ~15u; k < LANE; k++) x += at_lane(a, i, k);
#endif
  out[i] = x;
}
KERNEL(dpp_max_f32, f32, f32, f32) {
  f32 x = a[i];
#ifdef __AMDGCN__
  for (u32 k = 0; k < 1; k++) {
    f32 y = __builtin_bit_cast(f32, __builtin_amdgcn_update_dpp(0, __builtin_bit_cast(i32, x), 0xb1, 0xf, 0xf, 1));
    x = x > y ? x : y;
    y = __builtin_bit_cast(f32, __builtin_amdgcn_update_dpp(0, __builtin_bit_cast(i32, x), 0x4e, 0xf, 0xf, 1));
    x = x > y ? x : y;
  }
#else
  for (u32 k = 0; k < 4; k++) x = a[(i & ~3u) + k] > x ? a[(i & ~3u) + k] : x;
#endif
  out[i] = x;
}
#ifndef __gfx942__ /* Nor has it these. */
KERNEL(permlane16, u32, u32, u32) {
  out[i] = OTHER(__builtin_amdgcn_permlane16(0, a[i], 0x76543210, 0xfedcba98 ^ n * 0, 0, 0), a[i]) +
           OTHER(__builtin_amdgcn_permlane16(0, b[i], 0x01234567, 0x89abcdef, 0, 0),
                 at_lane(b, i, (LANE & 48) | (LANE & 8) | (7 - (LANE & 7))));
}
KERNEL(permlanex16, u32, u32, u32) {
  out[i] = OTHER(__builtin_amdgcn_permlanex16(0, a[i], 0x76543210, 0xfedcba98, 0, 0), at_lane(a, i, LANE ^ 16)) ^ b[i];
}
KERNEL(permlane64, u32, u32, u32) { /* A wave32 does nothing, not even a move. */
#if WAVE == 64
  out[i] = OTHER((u32)__builtin_amdgcn_permlane64(a[i]), at_lane(a, i, LANE ^ 32)) - b[i];
#else
  out[i] = a[i] - b[i];
#endif
}
#endif
KERNEL(wave_sum, u32, u32, u32) {
  u32 x = a[i];
#ifdef __AMDGCN__
  for (u32 k = 1; k < 32; k *= 2) x += (u32)__builtin_amdgcn_ds_bpermute(IN_HALF(LANE & 31 ^ k) * 4, x);
#else
  x = 0;
  for (u32 k = 0; k < 32; k++) x += at_lane(a, i, (LANE & 32) | k);
#endif
  out[i] = x;
}
KERNEL(waterfall, u32, u32, u32) {
  u32 done = 0;
#ifdef __AMDGCN__
  for (u32 turn = 1; !done; turn++) {
    u32 key = (u32)__builtin_amdgcn_readfirstlane(a[i] & 7);
    if (key == (a[i] & 7)) done = turn;
  }
#else
  u32 seen = 0, turn = 0;
  for (u32 l = 0; l < WAVE; l++) {
    u32 key = at_lane(a, i, l) & 7;
    if (seen >> key & 1) continue;
    seen |= 1u << key, turn++;
    if (key == (a[i] & 7)) done = turn;
  }
#endif
  out[i] = done;
}
KERNEL(sad_u8, u32, u32, u32) {
  out[i] = OTHER(__builtin_amdgcn_sad_u8(a[i], b[i], 7), sad(a[i], b[i], 7, 0)) ^ OTHER(__builtin_amdgcn_msad_u8(a[i], b[i], 1), sad(a[i], b[i], 1, 1));
}
KERNEL(sad_hi, u32, u32, u32) { out[i] = OTHER(__builtin_amdgcn_sad_hi_u8(a[i], b[i], 5), (sad(a[i], b[i], 0, 0) << 16) + 5); }
KERNEL(lerp_u8, u32, u32, u32) {
  u32 r = 0;
  for (u32 k = 0; k < 32; k += 8) r |= (((a[i] >> k & 255) + (b[i] >> k & 255) + (a[i] >> k & 1)) >> 1 & 255) << k;
  out[i] = OTHER(__builtin_amdgcn_lerp(a[i], b[i], a[i]), r);
}
KERNEL(perm_b32, u32, u32, u32) {
  u32 s = b[i] & 0x0f0f0f0f;
  out[i] = OTHER(__builtin_amdgcn_perm(a[i], b[i], s), perm(a[i], b[i], s));
}
KERNEL(align_bit, u32, u32, u32) {
  out[i] = OTHER(__builtin_amdgcn_alignbit(a[i], b[i], n + i), (u32)(((u64)a[i] << 32 | b[i]) >> ((n + i) & 31))) ^
           OTHER(__builtin_amdgcn_alignbyte(a[i], b[i], i), (u32)(((u64)a[i] << 32 | b[i]) >> 8 * (i & 3)));
}
#ifdef __gfx942__
#define DOT_I8(a, b, c) __builtin_amdgcn_sdot4(a, b, c, 0)
#else
#define DOT_I8(a, b, c) __builtin_amdgcn_sudot4(1, a, 1, b, c, 0)
#endif
KERNEL(dot_i8, i32, u32, u32) { out[i] = OTHER(DOT_I8(a[i], b[i], 9), dot4(a[i], b[i], 9)); }
KERNEL(dot_u8, u32, u32, u32) {
  u32 z = 3;
  for (u32 k = 0; k < 32; k += 8) z += (a[i] >> k & 255) * (b[i] >> k & 255);
  out[i] = OTHER(__builtin_amdgcn_udot4(a[i], b[i], 3, 0), z);
}
KERNEL(med3_f32, f32, f32, f32) {
  f32 x = a[i], y = b[i], low = x < y ? x : y, high = x < y ? y : x;
  out[i] = OTHER(__builtin_amdgcn_fmed3f(x, y, 1.0f), 1.0f < low ? low : 1.0f > high ? high : 1.0f);
}
KERNEL(mantissa_f32, f32, f32, f32) {
  f32 x = a[i] == 0 ? 1 : a[i];
  i32 e = (i32)(__builtin_bit_cast(u32, x) >> 23 & 255) - 126;
  out[i] = OTHER(__builtin_amdgcn_frexp_mantf(x), __builtin_bit_cast(f32, (__builtin_bit_cast(u32, x) & 0x807fffff) | 0x3f000000)) +
           (f32)OTHER(__builtin_amdgcn_frexp_expf(x), e);
}
KERNEL(class_f32, u32, f32, f32) {
  u32 normal = a[i] != 0;
  out[i] = OTHER(__builtin_amdgcn_classf(a[i], 0x108), normal) + 2 * OTHER(__builtin_amdgcn_classf(a[i], 0x60), a[i] == 0);
}
KERNEL(fract_f64, f64, f64, f64) { out[i] = OTHER(__builtin_amdgcn_fract(a[i]), a[i] - __builtin_floor(a[i])); }
KERNEL(bit_fields, u32, u32, u32) {
  u32 at = b[i] & 31, width = b[i] >> 8 & 31;
  out[i] = OTHER(__builtin_amdgcn_ubfe(a[i], at, width), a[i] >> at & ((1u << width) - 1));
}
