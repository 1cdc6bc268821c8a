/* The kernel of rocr_vector.c. It asks for nothing but its arguments and the work-item's number, so that no implicit argument is read. */
__kernel void add(__global float *out, __global const float *a, __global const float *b, unsigned n) {
  unsigned id = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x();
  if (id < n) out[id] = a[id] + b[id];
}
