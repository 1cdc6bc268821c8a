/* One source for two machines: a GPU kernel, and the same function for this computer, which the test calls once for each
   work-item or group. */
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef float f32;
typedef double f64;
#ifdef __cplusplus
#define C_NAMES extern "C"
#else
#define C_NAMES
#endif
#ifdef __AMDGCN__
typedef unsigned long u64;
typedef long i64;
#ifdef __cplusplus
typedef _Float16 f16;
#define GLOBAL
#define CONSTANT static const
#define SHARED static __attribute__((address_space(3), loader_uninitialized))
#define GPU_KERNEL C_NAMES __attribute__((amdgpu_kernel, visibility("protected"))) void
#define GROUP_SIZE 64u
#else
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
typedef half f16;
#define GLOBAL __global
#define CONSTANT __constant
#define SHARED __local
#define GPU_KERNEL __kernel void
#define GROUP_SIZE (u32)__builtin_amdgcn_workgroup_size_x()
#endif
#define NOINLINE __attribute__((noinline))
#define INLINE static inline __attribute__((always_inline))
#define ITEM_ID (__builtin_amdgcn_workgroup_id_x() * GROUP_SIZE + __builtin_amdgcn_workitem_id_x())
#define BARRIER() \
  do { \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
    __builtin_amdgcn_s_barrier(); \
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); \
  } while (0)
/* KERNEL(name, out type, in types) { the code of one work-item, with out, a, b, n, i } */
#define KERNEL(name, T, U, V) \
  INLINE void name##_item(GLOBAL T *out, GLOBAL const U *a, GLOBAL const V *b, u32 n, u32 i); \
  GPU_KERNEL name(GLOBAL T *out, GLOBAL const U *a, GLOBAL const V *b, u32 n) { name##_item(out, a, b, n, ITEM_ID); } \
  INLINE void name##_item(GLOBAL T *out, GLOBAL const U *a, GLOBAL const V *b, u32 n, u32 i)
/* GROUP_KERNEL(name, ...) { the code of one group: phases EACH(l) { ... } END, with a barrier behind each } */
#define GROUP_KERNEL(name, T, U, V) \
  __kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void name(GLOBAL T *out, GLOBAL const U *a, GLOBAL const V *b, u32 n)
#define GROUP_ID __builtin_amdgcn_workgroup_id_x()
#define EACH(l) { u32 l = __builtin_amdgcn_workitem_id_x();
#define END BARRIER(); }
#define ATOMIC_ADD(p, v) __atomic_fetch_add(p, v, __ATOMIC_RELAXED)
#define ATOMIC(op, p, v) __atomic_fetch_##op(p, v, __ATOMIC_RELAXED)
#else
#include <stdint.h>
typedef uint64_t u64;
typedef int64_t i64;
typedef _Float16 f16;
#define GLOBAL
#define CONSTANT static const
#define SHARED
#define NOINLINE __attribute__((noinline))
#define INLINE static inline
#define KERNEL(name, T, U, V) \
  static void name##_item(T *out, const U *a, const V *b, u32 n, u32 i); \
  C_NAMES void name(T *out, const U *a, const V *b, u32 n, u32 groups) { \
    for (u32 i = 0; i < groups * GROUP; i++) name##_item(out, a, b, n, i); \
  } \
  static void name##_item(T *out, const U *a, const V *b, u32 n, u32 i)
#define GROUP_KERNEL(name, T, U, V) \
  static void name##_group(T *out, const U *a, const V *b, u32 n, u32 GROUP_ID); \
  C_NAMES void name(T *out, const U *a, const V *b, u32 n, u32 groups) { \
    for (u32 g = 0; g < groups; g++) name##_group(out, a, b, n, g); \
  } \
  static void name##_group(T *out, const U *a, const V *b, u32 n, u32 GROUP_ID)
#define EACH(l) for (u32 l = 0; l < GROUP; l++) {
#define END }
#define ATOMIC_ADD(p, v) __atomic_fetch_add(p, v, __ATOMIC_RELAXED)
#define ATOMIC(op, p, v) __atomic_fetch_##op(p, v, __ATOMIC_RELAXED)
#endif
#define GROUP 64
