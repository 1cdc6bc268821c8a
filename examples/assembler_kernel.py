"""A kernel written in assembly, assembled by ringup and run.

python examples/assembler_kernel.py virtual:navi31
"""

import sys

import numpy as np

import ringup
from ringup.compiler.isa.amd import s, v
from ringup.compiler.isa.amd.assembly.dsl import Code


def add_one(target: str) -> bytes:
    """Return a code object whose kernel adds 1.0 to 32 floats; `waits` inserts the waits that registers need."""
    code = Code(target, waits=True)
    # CDNA (MI300X) and RDNA have other names for loads and stores.
    is_cdna = target.startswith("gfx9")
    load_pair = code.s_load_dwordx2 if is_cdna else code.s_load_b64
    load = code.global_load_dword if is_cdna else code.global_load_b32
    store = code.global_store_dword if is_cdna else code.global_store_b32
    load_pair(s[2:3], s[0:1], 0)
    code.v_lshlrev_b32(v[1], 2, v[0])
    load(v[0], v[1], s[2:3])
    code.v_add_f32(v[0], v[0], 1.0)
    store(v[1], v[0], s[2:3])
    code.s_endpgm()
    return code.kernel("add_one", args=[("data", "ptr")])


def main(name: str) -> None:
    with ringup.open(name) as card, card.alloc(128, name="data") as data:
        card.copy.upload(data, np.arange(32, dtype=np.float32)).wait()
        stream = card.compute.stream()
        stream.dispatch(card.load(add_one(card.info.target)), grid=1, block=32, args=[data])
        card.compute.submit(stream).wait()
        result = card.copy.download_array(data, np.float32, 32)
        print(f"add_one gives {result[:4]} ... {result[-1]}")
        assert np.array_equal(result, np.arange(1, 33))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
