"""Facts about NVIDIA hardware and drivers: RM, UVM, GSP and FSP interfaces, registers, class methods. Generated; see docs/autogen.md."""
