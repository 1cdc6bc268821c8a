"""What instructions compute, as LLVM IR: a family of instructions a module.

Imported by the translator and by strict mode; shares no meaning with `values`.
"""
