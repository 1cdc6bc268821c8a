"""Enclosures with an ASM2464PD bridge: USB on our side, PCI Express with one card on the other. `docs/asm2464pd.md`
describes the protocol.
"""
