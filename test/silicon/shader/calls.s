// Calls whose targets are only known at run time. The second target comes from memory. The program adds 195 to 32
// dwords at s[2:3].
    s_getpc_b64 s[12:13]
.Lhere:
    s_add_u32 s12, s12, .Lfar-.Lhere
    s_load_b32 s16, s[0:1], 0x30 // 12 bytes lie between the two
    s_mov_b32 s20, 1
    s_swappc_b64 s[14:15], s[12:13]
    s_waitcnt lgkmcnt(0)
    s_add_u32 s12, s12, s16
    s_swappc_b64 s[14:15], s[12:13]
    v_mov_b32_e32 v2, s20
    global_atomic_add_u32 v1, v2, s[2:3]
    s_endpgm
.Lfar:
    s_add_u32 s20, s20, 64
    s_setpc_b64 s[14:15]
    s_nop 0
.Lfurther:
    s_mul_i32 s20, s20, 3
    s_setpc_b64 s[14:15]
