/* The kernels of rocr_vector.c. They use only their arguments and the work-item's number, so they read no implicit
 * argument. */
#define ID (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())

__kernel void add(__global float *out, __global const float *a, __global const float *b, unsigned n) {
  if (ID < n) out[ID] = a[ID] + b[ID];
}

/* The same through scratch memory. */
__kernel void add_in_scratch(__global float *out, __global const float *a, __global const float *b, unsigned n) {
  volatile float own[256];
  for (unsigned i = 0; i < 8; i++) own[(n + 37 * i) % 256] = i;
  if (ID >= n) return;
  own[n % 256] = a[ID], own[(n + 1) % 256] = b[ID];
  out[ID] = own[n % 256] + own[(n + 1) % 256];
}
