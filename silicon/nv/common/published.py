"""Fingerprints of images that NVIDIA published and signed: SHA-256 of the bytes that the chip checks.

Booters: the secure blocks of IMEM. The rest: the whole image, without its container.

Those of release 535.113.01 are from Debian's package firmware-nvidia-graphics 20250410-2. Its licence allows use with
NVIDIA's own chips only, so no test loads these images; `firmware/nouveau.py` makes files in their place. Those of
535.261.03 are what NVIDIA's open kernel modules of Debian 12 uploaded into the card: they are MIT and bring loader,
booters and bootloaders. The loader, the booters and Turing's bootloader turned out to be the same in both.
"""

from __future__ import annotations

from ringup.silicon.nv.common.signed import Identity, Part

FIRST, SECOND = ("535.113.01",), ("535.261.03",)
BOTH = FIRST + SECOND
PUBLISHED: dict[str, Identity] = {
    "fd7e3e786f662cb9579319bf2f1eaf092a064c8d725a00b383c8596ae50b188f": Identity(Part.BOOTER_LOAD, ("tu102",), BOTH),
    "030428ed4ef7d97affb83577235101bba26fcb56f9819707fd2af38efa18d72c": Identity(Part.BOOTER_UNLOAD, ("tu102",), BOTH),
    "8765694cd38beaa4e2b8b1b83a31fb7aee6cb9d8b7c6bc7a86e6d931a3a056c2": Identity(Part.BOOTLOADER, ("tu102",), BOTH),
    "6aee0a90b83b4d193db3d365bb6c3dc29c446f27826783aff7f9c72f5c3a8478": Identity(Part.GSP_RM, ("tu102",), FIRST),
    "6e5616f63f74c0d2888d61d267137e77135bcf830f35440d7ef9f4216815efcd": Identity(Part.SIGNATURE, ("tu102",), FIRST),
    "93490057379c531c14764d1795fcbc5ddbae245dab6b5c730fe3883659c0eba7": Identity(Part.BOOTER_LOAD, ("ga102",), BOTH),
    "0b5ab396ecc0da2e15e0e9e0ed856f7cc3cf803a83b721b82c193e6410cb11bf": Identity(Part.BOOTER_UNLOAD, ("ga102",), BOTH),
    "a1af02f2eb7969986b0ea2863f066db34ec42bfb1aa1fa3f4d8cae1c7644df90": Identity(Part.BOOTLOADER, ("ga102",), FIRST),
    "1f1a5a16b56990ff184bf12af176567baa683902b047dfead7a398482e4a2f41": Identity(
        Part.GSP_RM, ("ga102", "ad102"), FIRST
    ),
    "f549bfbb3c241180cb3c0107d545c80f5f882a320603d7388645e20dd52259d8": Identity(Part.SIGNATURE, ("ga102",), FIRST),
    "47c6b4825c81cb082e377b47e58605added72344b078fa7b26d64d3e48046db3": Identity(Part.BOOTER_LOAD, ("ad102",), BOTH),
    "03032428187ee1754045d6613bf466df72fbc835e4fd1fc90133fd7d29a19b64": Identity(Part.BOOTER_UNLOAD, ("ad102",), BOTH),
    "a09c3f7cf03b1e497d222093a2e3dc1c5baeb0a15bd5c0998a9c720f95d6fa52": Identity(Part.BOOTLOADER, ("ad102",), FIRST),
    "a8c1a715244927efb17781870d668c09193199f49456840c8f9da7d0cf625484": Identity(Part.SIGNATURE, ("ad102",), FIRST),
    "3df651acb174fd5f5561a1996965b192f50c5d763168446ed0d4ead19d895768": Identity(Part.BOOTLOADER, ("ga102",), SECOND),
    "45d6335a8185d6ff13e8d1484cea73f68d3d13aa1c19dc080ed1c3482dd5bac0": Identity(Part.BOOTLOADER, ("ad102",), SECOND),
    # the generic falcon loader, which Turing needs for FWSEC: gp102/acr/bl.bin
    "6f442fbd706a3e7cb2c4d116553e246963eccf493dc12527e0658770a036b771": Identity(Part.LOADER, ("tu102",), ()),
}
