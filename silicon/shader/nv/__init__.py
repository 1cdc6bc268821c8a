"""The shader cores of NVIDIA, from sm_75 on. They run code made for them (SASS)."""
