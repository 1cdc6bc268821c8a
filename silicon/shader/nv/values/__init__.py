"""What instructions compute: functions of NumPy lanes that know no registers.

Sources are documents: the PTX ISA for what an operation means, Mesa's NAK (MIT) for what its encoding adds.
"""
