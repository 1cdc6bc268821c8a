// C = A B by the matrix instructions, i8 into i32, with B in column-major order.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = 16;
// the shape of a product
layout(constant_id = 2) const uint ROWS = 16;
layout(constant_id = 3) const uint COLUMNS = 16;
layout(constant_id = 4) const uint DEPTH = 16;
layout(binding = 0) readonly buffer A { int8_t a[]; };
layout(binding = 1) readonly buffer B { int8_t b[]; };
layout(binding = 2) buffer C { int c[]; };

void main() {
  uint N = gl_NumWorkGroups.x * COLUMNS, row = gl_WorkGroupID.y * ROWS, column = gl_WorkGroupID.x * COLUMNS;
  coopmat<int, gl_ScopeSubgroup, ROWS, COLUMNS, gl_MatrixUseAccumulator> sum = coopmat<int, gl_ScopeSubgroup, ROWS, COLUMNS, gl_MatrixUseAccumulator>(0);
  for (uint k = 0u; k < K; k += DEPTH) {
    coopmat<int8_t, gl_ScopeSubgroup, ROWS, DEPTH, gl_MatrixUseA> left;
    coopmat<int8_t, gl_ScopeSubgroup, DEPTH, COLUMNS, gl_MatrixUseB> right;
    coopMatLoad(left, a, row * K + k, K, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(right, b, column * K + k, K, gl_CooperativeMatrixLayoutColumnMajor);
    sum = coopMatMulAdd(left, right, sum);
  }
  coopMatStore(sum, c, row * N + column, N, gl_CooperativeMatrixLayoutRowMajor);
}
