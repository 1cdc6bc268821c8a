"""Conversions between f16 and f32 or f64 for hosts without such instructions, under the names that LLVM calls.

No library with these functions is needed. Source: IEEE 754-2019, "Conversion to binary interchange format": to nearest
even, NaNs made quiet. They use integers and exact operations only, except for the sum that makes a denormal.
"""

from __future__ import annotations

# The biases of f16 and f32 differ by 112. Values above 65519.996 (0x477FEFFF) are infinite, below 2**-14 (0x38800000)
# denormal.
HALVES = """
define linkonce_odr float @__extendhfsf2(half %value) {
  %bits16 = bitcast half %value to i16
  %bits = zext i16 %bits16 to i32
  %sign16 = and i32 %bits, 32768
  %sign = shl i32 %sign16, 16
  %size16 = and i32 %bits, 32767
  %size = shl i32 %size16, 13
  %small = bitcast i32 %size to float
  %scaled = fmul float %small, 0x46F0000000000000
  %number = bitcast float %scaled to i32
  %is.special = icmp uge i32 %size16, 31744
  %is.nan = icmp ugt i32 %size16, 31744
  %quiet = select i1 %is.nan, i32 4194304, i32 0
  %moved = add i32 %size, 1879048192
  %special = or i32 %moved, %quiet
  %found = select i1 %is.special, i32 %special, i32 %number
  %signed = or i32 %found, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}
define linkonce_odr half @__truncsfhf2(float %value) {
  %bits = bitcast float %value to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %size = and i32 %bits, 2147483647
  %moved = sub i32 %size, 939524096
  %up = lshr i32 %moved, 13
  %odd = and i32 %up, 1
  %half.less = add i32 %moved, 4095
  %rounded = add i32 %half.less, %odd
  %normal = lshr i32 %rounded, 13
  %positive = bitcast i32 %size to float
  %sum = fadd float %positive, 5.000000e-01
  %sum.bits = bitcast float %sum to i32
  %denormal = sub i32 %sum.bits, 1056964608
  %payload = lshr i32 %size, 13
  %kept = and i32 %payload, 1023
  %nan = or i32 %kept, 32256
  %is.denormal = icmp ult i32 %size, 947912704
  %is.infinite = icmp uge i32 %size, 1199566848
  %is.nan = icmp ugt i32 %size, 2139095040
  %finite = select i1 %is.denormal, i32 %denormal, i32 %normal
  %number = select i1 %is.infinite, i32 31744, i32 %finite
  %found = select i1 %is.nan, i32 %nan, i32 %number
  %signed = or i32 %found, %sign
  %bits16 = trunc i32 %signed to i16
  %result = bitcast i16 %bits16 to half
  ret half %result
}
define linkonce_odr half @__truncdfhf2(double %value) {
  %near = fptrunc double %value to float
  %back = fpext float %near to double
  %inexact = fcmp one double %back, %value
  %back.bits = bitcast double %back to i64
  %back.size = shl i64 %back.bits, 1
  %bits64 = bitcast double %value to i64
  %size = shl i64 %bits64, 1
  %above = icmp ugt i64 %back.size, %size
  %away = and i1 %above, %inexact
  %bits = bitcast float %near to i32
  %one = zext i1 %away to i32
  %towards.zero = sub i32 %bits, %one
  %sticky = zext i1 %inexact to i32
  %to.odd = or i32 %towards.zero, %sticky
  %single = bitcast i32 %to.odd to float
  %result = call half @__truncsfhf2(float %single)
  ret half %result
}
"""
